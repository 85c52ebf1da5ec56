//! Bodies of machines and their parts: the fields that are used, all else ignored. spec: MAAS contract section 4

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use lattice_core::node::PowerFact;
use serde::{Deserialize, Deserializer};

use super::date::MaasTime;
use super::status::MachineStatus;

/// MAAS's own name of a machine: a few letters and digits.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SystemId(String);

/// A text that is not a system id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not a MAAS system id: expected up to 41 letters and digits such as `hmt77t`")]
pub struct InvalidSystemId;

impl SystemId {
    /// As text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for SystemId {
    type Err = InvalidSystemId;
    fn from_str(text: &str) -> Result<Self, InvalidSystemId> {
        // It becomes part of a path: anything but letters and digits could leave it.
        let good = (1..=41).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_alphanumeric());
        if good { Ok(Self(text.to_owned())) } else { Err(InvalidSystemId) }
    }
}

impl fmt::Display for SystemId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for SystemId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

/// A machine as MAAS describes it.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Machine {
    /// Its name in all calls.
    pub system_id: SystemId,
    /// Host name without domain.
    #[serde(default)]
    pub hostname: String,
    /// Host name with domain.
    #[serde(default, deserialize_with = "nullable")]
    pub fqdn: String,
    /// State.
    pub status: MachineStatus,
    /// Last message about the state.
    #[serde(default)]
    pub status_message: Option<String>,
    /// Why it is broken.
    #[serde(default, deserialize_with = "nullable")]
    pub error_description: String,
    /// Power as MAAS read it last. `error` is unknown.
    #[serde(default = "power_unknown", deserialize_with = "power")]
    pub power_state: PowerFact,
    /// Power driver: `ipmi`, `redfish`, `manual`.
    #[serde(default, deserialize_with = "nullable")]
    pub power_type: String,
    /// Name of the user that holds it.
    #[serde(default)]
    pub owner: Option<String>,
    /// What was stamped on it.
    #[serde(default, deserialize_with = "nullable")]
    pub owner_data: BTreeMap<String, String>,
    /// Whether it is locked against release and deletion.
    #[serde(default)]
    pub locked: bool,
    /// `amd64/generic`.
    #[serde(default, deserialize_with = "nullable")]
    pub architecture: String,
    /// Logical processors.
    #[serde(default)]
    pub cpu_count: u32,
    /// Memory in MiB.
    #[serde(default)]
    pub memory: u64,
    /// Operating system that is, or is being, installed.
    #[serde(default, deserialize_with = "nullable")]
    pub osystem: String,
    /// Release of it.
    #[serde(default, deserialize_with = "nullable")]
    pub distro_series: String,
    /// Addresses that MAAS knows.
    #[serde(default, deserialize_with = "addresses")]
    pub ip_addresses: Vec<IpAddr>,
    /// Network interfaces.
    #[serde(default, deserialize_with = "nullable")]
    pub interface_set: Vec<Interface>,
    /// Disks.
    #[serde(default, deserialize_with = "nullable")]
    pub physicalblockdevice_set: Vec<BlockDevice>,
    /// The disk it boots from.
    #[serde(default)]
    pub boot_disk: Option<BlockDevice>,
    /// The interface it boots from.
    #[serde(default)]
    pub boot_interface: Option<Interface>,
    /// Whether the deployed system reports its hardware to MAAS.
    #[serde(default)]
    pub enable_hw_sync: bool,
    /// When it reported last.
    #[serde(default)]
    pub last_sync: Option<MaasTime>,
    /// When it should report next.
    #[serde(default)]
    pub next_sync: Option<MaasTime>,
    /// Whether the reports come in time; not all versions say it.
    #[serde(default)]
    pub is_sync_healthy: Option<bool>,
}

impl Machine {
    /// All hardware addresses, lower case.
    pub fn macs(&self) -> impl Iterator<Item = String> + '_ {
        self.interface_set.iter().filter_map(|interface| interface.mac_address.as_ref().map(|mac| mac.to_lowercase()))
    }

    /// Whether hardware sync has reported and is expected again. spec: S5 9.1
    pub fn hardware_sync_is_healthy(&self) -> bool {
        self.enable_hw_sync
            && self.last_sync.is_some()
            && self.next_sync.is_some()
            && self.is_sync_healthy.unwrap_or(true)
    }
}

/// A network interface of a machine.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Interface {
    /// Number within the region.
    pub id: u64,
    /// Name: `eno8303`.
    #[serde(default, deserialize_with = "nullable")]
    pub name: String,
    /// `physical`, `bond`, `bridge`, `vlan`.
    #[serde(default, rename = "type", deserialize_with = "nullable")]
    pub kind: String,
    /// Hardware address.
    #[serde(default)]
    pub mac_address: Option<String>,
    /// Whether a cable is in.
    #[serde(default)]
    pub link_connected: bool,
    /// Mbit/s; 0 when unknown.
    #[serde(default)]
    pub link_speed: u32,
    /// Product name.
    #[serde(default)]
    pub product: Option<String>,
    /// Firmware version.
    #[serde(default)]
    pub firmware_version: Option<String>,
    /// The VLAN it is in; `None`: not connected as far as MAAS knows.
    #[serde(default)]
    pub vlan: Option<Vlan>,
    /// Its addresses.
    #[serde(default, deserialize_with = "nullable")]
    pub links: Vec<Link>,
}

/// A VLAN.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Vlan {
    /// Number within the region.
    pub id: u64,
    /// VLAN tag; 0 is untagged.
    #[serde(default)]
    pub vid: u16,
    /// Fabric it belongs to.
    #[serde(default)]
    pub fabric_id: Option<u64>,
}

/// An address configuration of an interface.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Link {
    /// Number within the region.
    pub id: u64,
    /// Where the address comes from.
    #[serde(default)]
    pub mode: LinkMode,
    /// The address, when one is assigned.
    #[serde(default, deserialize_with = "address")]
    pub ip_address: Option<IpAddr>,
    /// The subnet; `None` for a mere link.
    #[serde(default)]
    pub subnet: Option<Subnet>,
}

/// Where the address of a link comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LinkMode {
    /// Chosen by MAAS at deployment, static on the host.
    Auto,
    /// From DHCP.
    Dhcp,
    /// Given.
    Static,
    /// Up, without an address.
    LinkUp,
    /// A word that this contract does not know.
    #[default]
    #[serde(other)]
    Other,
}

impl LinkMode {
    /// As calls want it: `AUTO`; `None` for what the contract does not know.
    pub const fn parameter(self) -> Option<&'static str> {
        match self {
            Self::Auto => Some("AUTO"),
            Self::Dhcp => Some("DHCP"),
            Self::Static => Some("STATIC"),
            Self::LinkUp => Some("LINK_UP"),
            Self::Other => None,
        }
    }
}

/// A subnet.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Subnet {
    /// Number within the region.
    pub id: u64,
    /// Name.
    #[serde(default, deserialize_with = "nullable")]
    pub name: String,
    /// Network with prefix: `172.30.9.60/31`.
    pub cidr: String,
    /// Its VLAN.
    #[serde(default)]
    pub vlan: Option<Vlan>,
}

/// A partition of a disk.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Partition {
    /// What is, or will be, on it.
    #[serde(default)]
    pub filesystem: Option<Filesystem>,
}

/// A file system.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Filesystem {
    /// Where the deployed system mounts it.
    #[serde(default)]
    pub mount_point: Option<String>,
}

impl BlockDevice {
    /// Whether MAAS's layout `flat` is on it: a partition of its own that holds the root file system.
    pub fn has_flat_layout(&self) -> bool {
        let mounts = self.partitions.iter().filter_map(|one| one.filesystem.as_ref()?.mount_point.as_deref());
        mounts.into_iter().any(|mount_point| mount_point == "/")
    }
}

/// A disk.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct BlockDevice {
    /// Number within the region.
    pub id: u64,
    /// Name: `nvme0n1`.
    #[serde(default, deserialize_with = "nullable")]
    pub name: String,
    /// Model.
    #[serde(default, deserialize_with = "nullable")]
    pub model: String,
    /// Serial number.
    #[serde(default, deserialize_with = "nullable")]
    pub serial: String,
    /// Size in bytes.
    #[serde(default)]
    pub size: u64,
    /// Stable path: `/dev/disk/by-id/…`.
    #[serde(default, deserialize_with = "nullable")]
    pub id_path: String,
    /// `physical` or `virtual`.
    #[serde(default, rename = "type", deserialize_with = "nullable")]
    pub kind: String,
    /// Tags.
    #[serde(default, deserialize_with = "nullable")]
    pub tags: Vec<String>,
    /// What it is used for, in words.
    #[serde(default, deserialize_with = "nullable")]
    pub used_for: String,
    /// Its partitions.
    #[serde(default, deserialize_with = "nullable")]
    pub partitions: Vec<Partition>,
}

/// Null is as good as absent: MAAS leaves nearly every field null at some time of a machine's life.
pub(super) fn nullable<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(
    deserializer: D,
) -> Result<T, D::Error> {
    Option::<T>::deserialize(deserializer).map(Option::unwrap_or_default)
}

/// Only the two words that say something positive are believed.
pub(super) fn power_of(word: &str) -> PowerFact {
    match word {
        "on" => PowerFact::On,
        "off" => PowerFact::Off,
        _ => PowerFact::Unknown,
    }
}

const fn power_unknown() -> PowerFact {
    PowerFact::Unknown
}

fn power<'de, D: Deserializer<'de>>(deserializer: D) -> Result<PowerFact, D::Error> {
    Option::<String>::deserialize(deserializer).map(|word| power_of(word.as_deref().unwrap_or_default()))
}

fn addresses<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<IpAddr>, D::Error> {
    let texts = Option::<Vec<Option<String>>>::deserialize(deserializer)?.unwrap_or_default();
    Ok(texts.into_iter().flatten().filter_map(|text| text.parse().ok()).collect())
}

fn address<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<IpAddr>, D::Error> {
    Option::<String>::deserialize(deserializer).map(|text| text.and_then(|text| text.parse().ok()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(json: &str) -> Machine {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn a_new_machine_is_read() {
        let machine = machine(include_str!("../../../tests/fixtures/maas-machine-new.json"));
        assert_eq!((machine.system_id.as_str(), machine.status), ("sqeaem", MachineStatus::New));
        assert_eq!((machine.power_state, machine.power_type.as_str()), (PowerFact::Unknown, "manual"));
        assert_eq!(machine.macs().collect::<Vec<_>>(), ["52:54:00:00:00:01"]);
        assert!(machine.boot_disk.is_none() && machine.owner.is_none());
    }

    #[test]
    fn a_ready_machine_is_read_with_its_disk_and_its_network() {
        let machine = machine(include_str!("../../../tests/fixtures/maas-machine-ready.json"));
        assert_eq!(
            (machine.status, machine.power_state, machine.memory),
            (MachineStatus::Ready, PowerFact::On, 16_384)
        );
        let disk = machine.boot_disk.as_ref().unwrap();
        assert_eq!((disk.name.as_str(), disk.size), ("sda", 500_000_000_000));
        let link = &machine.interface_set[0].links[0];
        assert_eq!((link.mode, link.subnet.as_ref().unwrap().cidr.as_str()), (LinkMode::Auto, "10.99.0.0/24"));
        assert!(!machine.hardware_sync_is_healthy());
    }

    #[test]
    fn a_deployed_machine_has_an_owner_and_an_address() {
        let machine = machine(include_str!("../../../tests/fixtures/maas-machine-deploying.json"));
        assert_eq!((machine.status, machine.owner.as_deref()), (MachineStatus::Deployed, Some("admin")));
        assert_eq!(machine.interface_set[0].links[0].ip_address, "10.99.0.2".parse().ok());
    }

    #[test]
    fn unknown_words_nulls_and_absent_fields_are_no_error() {
        let machine = machine(
            r#"{"system_id": "a1", "status": 77, "power_state": "error", "fqdn": null, "ip_addresses": [null, "x", "10.0.0.1"],
                "interface_set": [{"id": 1, "name": null, "links": [{"id": 2, "mode": "quantum"}]}], "brand_new": {}}"#,
        );
        assert_eq!((machine.status, machine.power_state), (MachineStatus::Other(77), PowerFact::Unknown));
        assert_eq!(machine.interface_set[0].links[0].mode, LinkMode::Other);
        assert_eq!(machine.ip_addresses.len(), 1);
    }

    #[test]
    fn a_system_id_cannot_leave_its_path() {
        for bad in ["", "../users", "a/b", "a?b", "a b", "ä", &"a".repeat(42)] {
            assert!(bad.parse::<SystemId>().is_err(), "{bad}");
        }
    }
}
