//! What a simulated machine is made of.

use std::net::Ipv4Addr;

use lattice_core::node::{DiskFact, GpuFact, HostFacts, NicFact};
use serde::{Deserialize, Serialize};

/// One physical machine, as it stands in its rack.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hardware {
    /// The name on the label: rack and height unit, `c07u43`.
    pub label: String,
    /// Vendor and product of the chassis.
    pub product: Product,
    /// The management controller.
    pub bmc: Bmc,
    /// Logical processors.
    pub cpu_count: u32,
    /// Processor model.
    pub cpu_model: String,
    /// Main memory in MiB.
    pub memory_mib: u64,
    /// Network interfaces, the one that boots first.
    pub nics: Vec<Nic>,
    /// Block devices in the order the kernel names them.
    pub disks: Vec<Disk>,
    /// Accelerators.
    pub gpus: Vec<Gpu>,
    /// The loopback address on which the running system is reached.
    pub address: Ipv4Addr,
}

/// Who made the machine and what it is called.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Product {
    /// Vendor, `Dell Inc.`.
    pub vendor: String,
    /// Product, `PowerEdge XE9680`.
    pub name: String,
    /// Serial number.
    pub serial: String,
}

/// A management controller with the one login it accepts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bmc {
    /// IPMI address.
    pub address: Ipv4Addr,
    /// Login name.
    pub user: String,
    /// Password; a simulated one, so that it may be shown.
    pub password: String,
    /// MAC of the management port.
    pub mac: String,
}

/// A network interface.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Nic {
    /// Kernel name, `eno8303`.
    pub name: String,
    /// MAC address in lower case with colons.
    pub mac: String,
    /// What it is wired for.
    pub role: NicRole,
    /// Link speed in Mbit/s.
    pub speed_mbps: u32,
    /// Vendor, as the commissioning reports it.
    pub vendor: String,
    /// Product, as the commissioning reports it.
    pub product: String,
    /// Firmware version.
    pub firmware: String,
}

/// What a network interface is wired for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NicRole {
    /// Boots over the network and carries management traffic.
    Pxe,
    /// RDMA over Ethernet between the accelerators.
    Roce,
}

/// A block device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Disk {
    /// Kernel name, `sda` or `nvme0n1`.
    pub name: String,
    /// Model, as the kernel reports it.
    pub model: String,
    /// Serial number.
    pub serial: String,
    /// Size in bytes.
    pub size_bytes: u64,
    /// Stable path below `/dev/disk/by-id`.
    pub id_path: String,
    /// Whether it is the mirrored boot card.
    pub boot_card: bool,
}

/// An accelerator.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gpu {
    /// Model, `AMD Instinct MI300X`.
    pub model: String,
    /// Memory in MiB.
    pub memory_mib: u64,
    /// PCI address.
    pub pci_address: String,
    /// Unique id.
    pub uuid: String,
}

impl Hardware {
    /// The interface that boots over the network.
    pub fn pxe_nic(&self) -> Option<&Nic> {
        self.nics.iter().find(|nic| nic.role == NicRole::Pxe)
    }

    /// What an agent finds when it looks at this host.
    pub fn facts(&self) -> HostFacts {
        let gpu = |gpu: &Gpu| GpuFact {
            address: gpu.pci_address.clone(),
            vendor: gpu.model.split_whitespace().next().unwrap_or_default().to_ascii_lowercase(),
            model: gpu.model.clone(),
        };
        let nic = |nic: &Nic| NicFact {
            name: nic.name.clone(),
            mac: nic.mac.clone(),
            firmware: nic.firmware.clone(),
            speed_mbps: nic.speed_mbps,
        };
        let disk = |disk: &Disk| DiskFact {
            name: disk.name.clone(),
            model: disk.model.clone(),
            size_bytes: disk.size_bytes,
            in_use: disk.boot_card,
        };
        HostFacts {
            gpus: self.gpus.iter().map(gpu).collect(),
            nics: self.nics.iter().map(nic).collect(),
            disks: self.disks.iter().map(disk).collect(),
            memory_mib: self.memory_mib,
            cpus: self.cpu_count,
            kernel: "6.8.0-60-generic".to_owned(),
            os: "Ubuntu 24.04.2 LTS".to_owned(),
        }
    }

    /// Whether one of the interfaces has this MAC; letter case does not matter.
    pub fn has_mac(&self, mac: &str) -> bool {
        self.nics.iter().any(|nic| nic.mac.eq_ignore_ascii_case(mac))
    }
}
