//! The machines themselves: power, network boot, enlistment.

use std::collections::{BTreeMap, HashMap};

use jiff::Timestamp;

use super::progress::What;
use super::{Boot, Effect, Level, MaasWorld};
use crate::dice::text_key;
use crate::maas::faults::MachineFault;
use crate::maas::node::{Interface, Node, PowerState};
use crate::maas::status::NodeStatus;
use crate::machine::hardware::Hardware;

/// A machine in its rack, whether or not MAAS knows of it.
pub(super) struct Asset {
    pub(super) hardware: Hardware,
    pub(super) powered: bool,
    /// The login that MAAS made for itself when it enlisted the machine.
    pub(super) maas_login: Option<String>,
    pub(super) boots: u64,
    /// System id of its record in MAAS.
    pub(super) record: Option<String>,
}

/// Machines by the two things MAAS knows them by.
pub(super) struct AssetIndex {
    by_bmc: HashMap<String, usize>,
    by_mac: HashMap<String, usize>,
}

impl AssetIndex {
    pub(super) fn of(assets: &[Asset]) -> Self {
        let numbered = || assets.iter().map(|asset| &asset.hardware).enumerate();
        let by_bmc = numbered().map(|(index, hardware)| (hardware.bmc.address.to_string(), index)).collect();
        let macs =
            numbered().flat_map(|(index, hardware)| hardware.nics.iter().map(move |nic| (nic.mac.clone(), index)));
        Self { by_bmc, by_mac: macs.collect() }
    }
}

impl Asset {
    pub(super) const fn new(hardware: Hardware) -> Self {
        Self { hardware, powered: false, maas_login: None, boots: 0, record: None }
    }

    fn accepts(&self, user: &str, password: &str) -> bool {
        let bmc = &self.hardware.bmc;
        (user == bmc.user && password == bmc.password)
            || (user == "maas" && self.maas_login.as_deref() == Some(password))
    }
}

/// What a client may ask of a BMC directly, past MAAS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BmcCommand {
    /// Is it on?
    Query,
    /// Switch on; boots what is installed, or over the network.
    On,
    /// Switch off.
    Off,
    /// Off and on again, over the network once.
    CycleToNetwork,
}

/// Why a BMC did not do it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BmcError {
    /// There is no answer from that address.
    #[error("no answer from the BMC")]
    Unreachable,
    /// The login is refused.
    #[error("the BMC refuses the login")]
    LoginRefused,
}

/// A machine and where it stands, for displays and assertions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MachineFacts {
    /// The machine.
    pub hardware: Hardware,
    /// Whether it has power.
    pub powered: bool,
    /// Its record in MAAS with the status, if it has one.
    pub record: Option<(String, NodeStatus)>,
}

impl MaasWorld {
    /// Every machine in its rack.
    pub fn machines(&self) -> Vec<MachineFacts> {
        let facts = |(index, asset): (usize, &Asset)| MachineFacts {
            hardware: asset.hardware.clone(),
            powered: asset.powered,
            record: self.node_of(index).map(|node| (node.system_id.clone(), node.status)),
        };
        self.assets.iter().enumerate().map(facts).collect()
    }

    /// A machine by its label.
    pub fn hardware(&self, label: &str) -> Option<&Hardware> {
        self.assets.iter().map(|asset| &asset.hardware).find(|hardware| hardware.label == label)
    }

    /// Talks to the BMC at `address` directly. True is on, after the command.
    ///
    /// # Errors
    /// [`BmcError`] when nothing answers there, a fault keeps it silent, or the login is refused.
    pub fn bmc(
        &mut self,
        address: &str,
        login: (&str, &str),
        command: BmcCommand,
        now: Timestamp,
    ) -> Result<bool, BmcError> {
        let asset = self.reach_bmc(address, login)?;
        match command {
            BmcCommand::Query => {}
            BmcCommand::On if self.assets[asset].powered => {}
            BmcCommand::On => self.switch_on(asset, now),
            BmcCommand::Off => self.switch_off(asset),
            BmcCommand::CycleToNetwork => {
                self.switch_off(asset);
                self.assets[asset].powered = true;
                self.assets[asset].boots += 1;
                let delay = self.asset_duration(asset, self.timings.discovery_ms);
                self.schedule(now, delay, String::new(), What::Enlist { asset });
            }
        }
        Ok(self.assets[asset].powered)
    }

    /// The machine behind a BMC.
    pub(super) fn reach_bmc(&mut self, address: &str, login: (&str, &str)) -> Result<usize, BmcError> {
        let Some(asset) = self.index.by_bmc.get(address).copied() else { return Err(BmcError::Unreachable) };
        if self.asset_fault(MachineFault::BmcUnreachable, asset) {
            return Err(BmcError::Unreachable);
        }
        if self.asset_fault(MachineFault::BmcLoginRefused, asset) || !self.assets[asset].accepts(login.0, login.1) {
            return Err(BmcError::LoginRefused);
        }
        Ok(asset)
    }

    /// The machine behind a record: by the address of its BMC, else by a MAC.
    pub(super) fn asset_of(&self, node: &Node) -> Option<usize> {
        let by_bmc = node.power.parameters.get("power_address").and_then(|address| self.index.by_bmc.get(address));
        by_bmc.or_else(|| node.interfaces.iter().find_map(|nic| self.index.by_mac.get(&nic.mac))).copied()
    }

    /// The record of a machine.
    pub(super) fn node_of(&self, asset: usize) -> Option<&Node> {
        self.nodes.get(self.assets[asset].record.as_ref()?)
    }

    /// Remembers which machine a record is about, after its power parameters or interfaces changed.
    pub(super) fn link_record(&mut self, system_id: &str) {
        for asset in self.assets.iter_mut().filter(|asset| asset.record.as_deref() == Some(system_id)) {
            asset.record = None;
        }
        if let Some(asset) = self.nodes.get(system_id).and_then(|node| self.asset_of(node)) {
            self.assets[asset].record = Some(system_id.to_owned());
        }
    }

    /// Gives a machine power. An installed system boots; anything else tries the network.
    pub(super) fn switch_on(&mut self, asset: usize, now: Timestamp) {
        self.assets[asset].powered = true;
        self.assets[asset].boots += 1;
        let installed = self.node_of(asset).filter(|node| node.status == NodeStatus::Deployed);
        if let Some(system_id) = installed.map(|node| node.system_id.clone()) {
            let delay = self.asset_duration(asset, self.timings.boot_ms);
            self.schedule(now, delay, system_id, What::SystemBoots);
        } else if self.node_of(asset).is_none() {
            let delay = self.asset_duration(asset, self.timings.discovery_ms);
            self.schedule(now, delay, String::new(), What::Enlist { asset });
        }
    }

    /// Takes power from a machine.
    pub(super) fn switch_off(&mut self, asset: usize) {
        if std::mem::replace(&mut self.assets[asset].powered, false) {
            self.effects.push(Effect::PoweredOff { label: self.assets[asset].hardware.label.clone() });
        }
    }

    /// Gives the disks of a machine up.
    pub(super) fn wipe(&mut self, asset: usize) {
        self.effects.push(Effect::Wiped { label: self.assets[asset].hardware.label.clone() });
    }

    /// Tells whoever plays the machines that an installed system boots.
    pub(super) fn boot_installed(&mut self, system_id: &str, first: bool) {
        let Some(node) = self.nodes.get(system_id) else { return };
        let (Some(asset), Some(system), Some(token)) = (self.asset_of(node), &node.system, &node.token) else { return };
        let hardware = &self.assets[asset].hardware;
        self.effects.push(Effect::Booted(Boot {
            label: hardware.label.clone(),
            system_id: node.system_id.clone(),
            hostname: node.hostname.clone(),
            deployment: node.deployments,
            first,
            address: hardware.address,
            user_data: system.user_data.clone(),
            token: token.clone(),
        }));
    }

    /// A machine that booted over the network makes itself known.
    pub(super) fn enlist(&mut self, asset: usize, now: Timestamp) {
        if !self.assets[asset].powered || self.asset_fault(MachineFault::DiscoveryTimeout, asset) {
            return;
        }
        let hardware = self.assets[asset].hardware.clone();
        let password = self.dice.word("abcdefghijkmnpqrstuvwxyz23456789", 14, &[0xb3c, asset as u64]);
        self.assets[asset].maas_login.get_or_insert(password.clone());
        match self.node_of(asset).map(|node| (node.system_id.clone(), node.interfaces.is_empty())) {
            // Adopted by the address of its BMC: MAAS learns the MACs.
            Some((system_id, true)) => {
                let boots = hardware.pxe_nic().map(|nic| self.bare_interface(&nic.name, &nic.mac, true));
                if let Some(node) = self.nodes.get_mut(&system_id) {
                    node.interfaces.extend(boots);
                    node.power.state = PowerState::On;
                }
                self.record(&system_id, Level::Info, "Found existing machine, enlisting", &hardware.bmc.mac, now);
            }
            Some((_, false)) => {}
            None => {
                let system_id = self.insert_node(None, "amd64/generic");
                let parameters = [
                    ("power_address", hardware.bmc.address.to_string()),
                    ("power_user", "maas".to_owned()),
                    ("power_pass", password),
                    ("power_driver", "LAN_2_0".to_owned()),
                    ("power_boot_type", "efi".to_owned()),
                    ("mac_address", hardware.bmc.mac.clone()),
                ];
                let boots = hardware.pxe_nic().map(|nic| self.bare_interface(&nic.name, &nic.mac, true));
                if let Some(node) = self.nodes.get_mut(&system_id) {
                    node.power.kind = "ipmi".to_owned();
                    let named = parameters.into_iter().map(|(key, value)| (key.to_owned(), value));
                    node.power.parameters = BTreeMap::from_iter(named);
                    node.power.state = PowerState::On;
                    node.interfaces = boots.into_iter().collect();
                }
                self.link_record(&system_id);
                self.record(&system_id, Level::Info, "Enlisted new machine", &hardware.bmc.mac, now);
            }
        }
    }

    /// An interface of which only name and MAC are known.
    pub(super) fn bare_interface(&mut self, name: &str, mac: &str, boots: bool) -> Interface {
        Interface {
            id: self.new_id(),
            name: name.to_owned(),
            mac: mac.to_ascii_lowercase(),
            vlan: None,
            links: Vec::new(),
            vendor: None,
            product: None,
            firmware: None,
            speed_mbps: 0,
            discovered: None,
            boots,
            mtu: None,
            tags: Vec::new(),
        }
    }

    /// How long `base_ms` takes on this machine this time.
    pub(super) fn asset_duration(&self, asset: usize, base_ms: u64) -> std::time::Duration {
        let about = [asset as u64, base_ms, self.assets[asset].boots];
        self.timings.actual(base_ms, self.dice, &about)
    }

    /// How long `base_ms` takes on this record this time.
    pub(super) fn node_duration(&self, system_id: &str, base_ms: u64) -> std::time::Duration {
        let about = self.nodes.get(system_id).map_or([0, 0, 0], |node| {
            let subject = self.asset_of(node).map_or_else(|| text_key(system_id), |asset| asset as u64);
            [subject, base_ms, node.deployments]
        });
        self.timings.actual(base_ms, self.dice, &about)
    }

    fn asset_fault(&mut self, what: MachineFault, asset: usize) -> bool {
        let label = self.assets[asset].hardware.label.clone();
        match self.node_of(asset).map(|node| node.system_id.clone()) {
            Some(system_id) => self.strikes(what, &system_id),
            None => self.faults.strikes(what, &[&label]),
        }
    }
}
