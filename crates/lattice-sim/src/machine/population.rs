//! Racks of machines, generated from a seed.

use std::net::Ipv4Addr;

use serde::{Deserialize, Serialize};

use super::hardware::{Bmc, Disk, Gpu, Hardware, Nic, NicRole, Product};
use crate::dice::Dice;

/// Machines in one rack before the next one begins.
const MACHINES_PER_RACK: u32 = 8;
/// RoCE interfaces of each machine, one for each accelerator.
const ROCE_NICS: u32 = 8;
/// The PCI buses of the RoCE interfaces, from which the kernel makes their names.
const ROCE_BUSES: [u32; 8] = [28, 29, 62, 63, 158, 159, 188, 189];
/// Largest population: the host part of the loopback addresses has 16 bits.
pub const MAX_MACHINES: u32 = 60_000;

/// The machines of a site.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Population {
    /// All machines in rack order.
    pub machines: Vec<Hardware>,
}

impl Population {
    /// `count` machines in racks of eight. The same seed gives the same machines, and the first of a
    /// larger population are those of a smaller one.
    ///
    /// # Panics
    /// When `count` is above [`MAX_MACHINES`].
    pub fn generate(seed: u64, count: u32) -> Self {
        assert!(count <= MAX_MACHINES, "a site holds at most {MAX_MACHINES} machines");
        Self { machines: (0..count).map(|index| machine(Dice(seed), index)).collect() }
    }
}

fn machine(dice: Dice, index: u32) -> Hardware {
    let rack = index / MACHINES_PER_RACK + 1;
    let unit = 43 - (index % MACHINES_PER_RACK) * 5;
    let serial = dice.word("BCDFGHJKLMNPQRSTVWXYZ0123456789", 7, &[1, u64::from(index)]);
    Hardware {
        label: format!("c{rack:02}u{unit:02}"),
        product: Product { vendor: "Dell Inc.".into(), name: "PowerEdge XE9680".into(), serial: serial.clone() },
        bmc: bmc(dice, index),
        cpu_count: 192,
        cpu_model: "INTEL(R) XEON(R) PLATINUM 8568Y+".into(),
        memory_mib: 2 * 1024 * 1024,
        nics: nics(dice, index),
        disks: disks(&serial),
        gpus: (0..8).map(|slot| gpu(dice, index, slot)).collect(),
        address: host_address([127, 1], index),
    }
}

fn bmc(dice: Dice, index: u32) -> Bmc {
    Bmc {
        address: host_address([10, 176], index),
        user: "root".into(),
        password: dice.word("abcdefghjkmnpqrstuvwxyz23456789", 12, &[2]),
        mac: mac(dice, index, 0xff),
    }
}

/// 250 hosts in each /24, so that no address ends in 0 or 255.
fn host_address(prefix: [u8; 2], index: u32) -> Ipv4Addr {
    let [third, fourth] = [(index / 250) as u8, (index % 250 + 1) as u8];
    Ipv4Addr::new(prefix[0], prefix[1], third, fourth)
}

fn nics(dice: Dice, index: u32) -> Vec<Nic> {
    let pxe = Nic {
        name: "eno8303".into(),
        mac: mac(dice, index, 0),
        role: NicRole::Pxe,
        speed_mbps: 1000,
        vendor: "Broadcom Inc. and subsidiaries".into(),
        product: "NetXtreme BCM5720 Gigabit Ethernet PCIe".into(),
        firmware: "FFV22.91.5 bc 5720-v1.39".into(),
    };
    let roce = (0..ROCE_NICS).map(|slot| Nic {
        name: format!("enp{}s0np0", ROCE_BUSES[slot as usize]),
        mac: mac(dice, index, slot + 1),
        role: NicRole::Roce,
        speed_mbps: 400_000,
        vendor: "Mellanox Technologies".into(),
        product: "MT2910 Family [ConnectX-7]".into(),
        firmware: "28.39.2048 (DEL0000000038)".into(),
    });
    std::iter::once(pxe).chain(roce).collect()
}

/// A locally administered address: rack position and slot in clear, the rest from the seed.
fn mac(dice: Dice, index: u32, slot: u32) -> String {
    let salt = dice.below(256, &[3]);
    format!("02:{salt:02x}:{:02x}:{:02x}:{:02x}:{slot:02x}", index >> 16, (index >> 8) & 0xff, index & 0xff)
}

fn disks(serial: &str) -> Vec<Disk> {
    let boot = Disk {
        name: "sda".into(),
        model: "DELLBOSS_VD".into(),
        serial: format!("{serial}0010"),
        size_bytes: 480_036_519_936,
        id_path: format!("/dev/disk/by-id/scsi-3{}", serial.to_ascii_lowercase()),
        boot_card: true,
    };
    let data = (0..4).map(|slot| Disk {
        name: format!("nvme{slot}n1"),
        model: "INTEL SSDPF2KX076T1".into(),
        serial: format!("PHAC{serial}{slot}"),
        size_bytes: 7_681_501_126_656,
        id_path: format!("/dev/disk/by-id/nvme-INTEL_SSDPF2KX076T1_PHAC{serial}{slot}"),
        boot_card: false,
    });
    std::iter::once(boot).chain(data).collect()
}

fn gpu(dice: Dice, index: u32, slot: u32) -> Gpu {
    let id = dice.bits(&[4, u64::from(index), u64::from(slot)]);
    Gpu {
        model: "AMD Instinct MI300X".into(),
        memory_mib: 192 * 1024,
        pci_address: format!("0000:{:02x}:00.0", 0x05 + slot * 0x10),
        uuid: format!("GPU-{id:016x}"),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_machines_and_a_larger_site_begins_with_a_smaller_one() {
        let large = Population::generate(7, 600);
        assert_eq!(large, Population::generate(7, 600));
        assert_eq!(large.machines[..20], Population::generate(7, 20).machines);
        assert_ne!(large.machines[0], Population::generate(8, 1).machines[0]);
    }

    #[test]
    fn no_two_machines_share_a_name_an_address_or_a_mac() {
        let site = Population::generate(1, 1000).machines;
        let count = |values: BTreeSet<String>| values.len();
        assert_eq!(count(site.iter().map(|m| m.label.clone()).collect()), 1000);
        assert_eq!(count(site.iter().map(|m| m.address.to_string()).collect()), 1000);
        assert_eq!(count(site.iter().map(|m| m.bmc.address.to_string()).collect()), 1000);
        let macs = site.iter().flat_map(|m| m.nics.iter().map(|nic| nic.mac.clone()));
        assert_eq!(count(macs.collect()), 9000);
    }

    #[test]
    fn every_machine_has_one_boot_card_one_pxe_interface_and_eight_of_everything_else() {
        for machine in Population::generate(3, 40).machines {
            assert_eq!(machine.disks.iter().filter(|disk| disk.boot_card).count(), 1);
            assert_eq!(machine.pxe_nic().map(|nic| nic.name.as_str()), Some("eno8303"));
            assert_eq!((machine.nics.len(), machine.gpus.len()), (9, 8));
        }
    }
}
