//! What MAAS believes about one machine.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

use jiff::Timestamp;

use super::oauth::ApiKey;
use super::status::NodeStatus;

/// A machine record of MAAS, from its creation to its deletion.
#[derive(Clone)]
pub struct Node {
    /// Six letters and digits; never reused.
    pub system_id: String,
    /// Order of creation, from 1.
    pub number: u32,
    /// Host name without domain.
    pub hostname: String,
    /// Free text.
    pub description: String,
    /// Current status.
    pub status: NodeStatus,
    /// The status to go back to from Broken, Testing and rescue mode.
    pub status_before: NodeStatus,
    /// The last message about the status.
    pub status_message: Option<String>,
    /// Why it is broken.
    pub error_description: String,
    /// Grows with each change of status; timers of an older one are void.
    pub epoch: u64,
    /// How to reach the BMC.
    pub power: Power,
    /// Name of the user who allocated it.
    pub owner: Option<String>,
    /// Owner data, which MAAS also shows as workload annotations.
    pub annotations: BTreeMap<String, String>,
    /// Tag names.
    pub tags: BTreeSet<String>,
    /// Resource pool id.
    pub pool: u32,
    /// Zone name.
    pub zone: String,
    /// Whether it may be released or deleted.
    pub locked: bool,
    /// `amd64/generic`.
    pub architecture: String,
    /// What commissioning found.
    pub found: Option<Found>,
    /// Network interfaces.
    pub interfaces: Vec<Interface>,
    /// Block devices.
    pub disks: Vec<BlockDevice>,
    /// Id of the disk it boots from.
    pub boot_disk: Option<u32>,
    /// The storage layout in force.
    pub layout: String,
    /// What is, or is being, installed.
    pub system: Option<System>,
    /// The key that the preseed carries.
    pub token: Option<ApiKey>,
    /// Id of the last commissioning.
    pub commissioning_result: Option<u32>,
    /// Whether that commissioning passed.
    pub commissioning_passed: Option<bool>,
    /// Id of the last installation.
    pub installation_result: Option<u32>,
    /// Deployments so far.
    pub deployments: u64,
    /// The reason a running deployment is going to fail.
    pub doom: Option<Doom>,
}

/// Power configuration and the last state that MAAS saw.
#[derive(Clone)]
pub struct Power {
    /// `ipmi`, `manual`, …
    pub kind: String,
    /// Parameters by name, secrets included.
    pub parameters: BTreeMap<String, String>,
    /// The state as MAAS believes it.
    pub state: PowerState,
}

/// A power state as MAAS reports it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PowerState {
    /// Running.
    On,
    /// Not running.
    Off,
    /// Never asked, or the driver cannot tell.
    Unknown,
    /// The BMC did not answer.
    Error,
}

impl PowerState {
    /// The form in the machine body.
    pub const fn name(self) -> &'static str {
        match self {
            Self::On => "on",
            Self::Off => "off",
            Self::Unknown => "unknown",
            Self::Error => "error",
        }
    }
}

/// Processor and memory as commissioning found them.
#[derive(Clone)]
pub struct Found {
    /// Logical processors.
    pub cpu_count: u32,
    /// Processor model.
    pub cpu_model: String,
    /// Memory in MiB.
    pub memory_mib: u64,
    /// Vendor of the chassis.
    pub vendor: String,
    /// Product name of the chassis.
    pub product: String,
    /// Serial number of the chassis.
    pub serial: String,
}

/// A network interface as MAAS knows it.
#[derive(Clone)]
pub struct Interface {
    /// Id, unique in the region.
    pub id: u32,
    /// Kernel name.
    pub name: String,
    /// MAC address.
    pub mac: String,
    /// VLAN id, if it is known where it is wired.
    pub vlan: Option<u32>,
    /// How it is configured.
    pub links: Vec<Link>,
    /// Vendor, once commissioned.
    pub vendor: Option<String>,
    /// Product, once commissioned.
    pub product: Option<String>,
    /// Firmware, once commissioned.
    pub firmware: Option<String>,
    /// Speed in Mbit/s, once commissioned.
    pub speed_mbps: u32,
    /// The address it had while commissioning, with its subnet.
    pub discovered: Option<(Ipv4Addr, u32)>,
    /// Whether it booted the machine.
    pub boots: bool,
    /// MTU if one was set.
    pub mtu: Option<u32>,
    /// Tags.
    pub tags: Vec<String>,
}

/// The configuration of an interface in one subnet.
#[derive(Clone)]
pub struct Link {
    /// Id, unique in the region.
    pub id: u32,
    /// How the address comes about.
    pub mode: LinkMode,
    /// Subnet id; none for a mere link.
    pub subnet: Option<u32>,
    /// The address, when there is one.
    pub address: Option<Ipv4Addr>,
}

/// How the address of a link comes about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinkMode {
    /// MAAS assigns one for each deployment.
    Auto,
    /// The machine asks for one.
    Dhcp,
    /// Given by the client, or picked once.
    Static,
    /// No address.
    LinkUp,
}

impl LinkMode {
    /// Every mode with its name in the body.
    pub const ALL: [(Self, &'static str); 4] =
        [(Self::Auto, "auto"), (Self::Dhcp, "dhcp"), (Self::Static, "static"), (Self::LinkUp, "link_up")];

    /// Reads a mode in any letter case.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.iter().find(|(_, name)| name.eq_ignore_ascii_case(text)).map(|(mode, _)| *mode)
    }

    /// The name in the body.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Dhcp => "dhcp",
            Self::Static => "static",
            Self::LinkUp => "link_up",
        }
    }
}

/// A block device as MAAS knows it.
#[derive(Clone)]
pub struct BlockDevice {
    /// Id, unique in the region.
    pub id: u32,
    /// Kernel name.
    pub name: String,
    /// Model.
    pub model: String,
    /// Serial number.
    pub serial: String,
    /// Size in bytes.
    pub size_bytes: u64,
    /// Stable path.
    pub id_path: String,
    /// Tags, `ssd` for all of ours.
    pub tags: Vec<String>,
}

/// What is, or is being, installed on a machine.
#[derive(Clone)]
pub struct System {
    /// `ubuntu` or `custom`.
    pub osystem: String,
    /// `noble`.
    pub series: String,
    /// What cloud-init will read.
    pub user_data: Vec<u8>,
    /// Whether it runs from memory.
    pub ephemeral: bool,
    /// Hardware sync, if it was asked for.
    pub sync: Option<HardwareSync>,
    /// Whether user-data was fetched.
    pub user_data_fetched: bool,
}

/// Hardware sync of a deployed machine.
#[derive(Clone)]
pub struct HardwareSync {
    /// Seconds between two reports, frozen at the deployment.
    pub interval_s: u64,
    /// The last report.
    pub last: Option<Timestamp>,
    /// When the next is due.
    pub next: Option<Timestamp>,
}

/// Why a deployment under way is going to fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Doom {
    /// The installed system finds no datasource.
    NoDatasource,
    /// The installer fails.
    InstallFails,
    /// Nothing more is heard of it.
    Hangs,
    /// An operator deletes it.
    Deleted,
}

impl Node {
    /// The interface that boots the machine, or the first one.
    pub fn boot_interface(&self) -> Option<&Interface> {
        self.interfaces.iter().find(|nic| nic.boots).or_else(|| self.interfaces.first())
    }

    /// The names under which a fault may mean this machine.
    pub fn names<'a>(&'a self, label: Option<&'a str>) -> Vec<&'a str> {
        [Some(self.system_id.as_str()), Some(self.hostname.as_str()), label].into_iter().flatten().collect()
    }

    /// Whether one of its interfaces has a link in a subnet.
    pub fn has_network(&self) -> bool {
        self.interfaces.iter().any(|nic| nic.links.iter().any(|link| link.subnet.is_some()))
    }
}
