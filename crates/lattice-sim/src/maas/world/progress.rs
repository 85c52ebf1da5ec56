//! What happens by itself as time passes: commissioning, deployment, release and their failures.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use super::{FirstBoot, Level, MaasWorld};
use crate::dice::text_key;
use crate::maas::config::generate_key;
use crate::maas::faults::MachineFault;
use crate::maas::node::{BlockDevice, Doom, Found, Link, LinkMode, PowerState};
use crate::maas::oauth::Caller;
use crate::maas::quirk::Quirk;
use crate::maas::status::NodeStatus;
use crate::machine::hardware::{Hardware, NicRole};

/// Something that is due at a time.
pub(super) struct Due {
    system_id: String,
    /// The status epoch it belongs to; it is void in another one.
    epoch: u64,
    what: What,
}

/// What is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum What {
    /// A machine without a record has booted over the network.
    Enlist { asset: usize },
    /// The commissioning system boots and fetches its preseed.
    CommissioningBoots { stay_on: bool },
    /// Its scripts are done.
    CommissioningEnds { stay_on: bool },
    /// The BMC did not do it: the phase fails.
    PowerFails,
    /// The installer boots and fetches its preseed.
    InstallerBoots,
    /// The installer is done.
    InstallerEnds,
    /// The installed system boots for the first time.
    FirstBoot,
    /// The installed system boots again.
    SystemBoots,
    /// The status monitor looks.
    TimedOut,
    /// The release is done.
    Released,
    /// The disks are erased.
    Erased,
    /// The tests are done.
    Tested,
    /// The rescue system is up.
    RescueEntered,
    /// The rescue system is gone.
    RescueLeft,
    /// The next hardware sync.
    Sync,
}

impl MaasWorld {
    /// Puts something on the calendar for the present status of a machine.
    pub(super) fn schedule(&mut self, now: Timestamp, delay: Duration, system_id: String, what: What) {
        let epoch = self.nodes.get(&system_id).map_or(0, |node| node.epoch);
        let delay = SignedDuration::try_from(delay).unwrap_or(SignedDuration::MAX);
        let at = now.checked_add(delay).unwrap_or(Timestamp::MAX);
        self.last_timer += 1;
        self.due.insert((at, self.last_timer), Due { system_id, epoch, what });
    }

    /// What is due happens, unless the machine has moved on.
    pub(super) fn happen(&mut self, due: Due, now: Timestamp) {
        let Due { system_id, epoch, what } = due;
        if let What::Enlist { asset } = what {
            return self.enlist(asset, now);
        }
        if self.nodes.get(&system_id).is_none_or(|node| node.epoch != epoch) {
            return;
        }
        match what {
            What::Enlist { .. } => {}
            What::CommissioningBoots { stay_on } => self.commissioning_boots(&system_id, stay_on, now),
            What::CommissioningEnds { stay_on } => self.commissioning_ends(&system_id, stay_on, now),
            What::PowerFails => self.power_fails(&system_id, now),
            What::InstallerBoots => self.installer_boots(&system_id, now),
            What::InstallerEnds => self.installer_ends(&system_id, now),
            What::FirstBoot => self.first_boot(&system_id, now),
            What::SystemBoots => self.boot_installed(&system_id, false),
            What::TimedOut => self.fail(&system_id, "timed out", now),
            What::Released => self.released(&system_id, now),
            What::Erased => self.erased(&system_id, now),
            What::Tested => self.tested(&system_id, now),
            What::RescueEntered => self.move_to(&system_id, NodeStatus::RescueMode, now),
            What::RescueLeft => self.rescue_left(&system_id, now),
            What::Sync => self.sync_hardware(&system_id, now),
        }
    }

    /// A change that the simulation itself decides, and which the table allows.
    pub(super) fn move_to(&mut self, system_id: &str, to: NodeStatus, now: Timestamp) {
        if self.change_status(system_id, to, now).is_err() {
            tracing::warn!(system_id, to = to.row().label, "simulated machine cannot make this change of status");
        }
    }

    /// The phase under way fails, where the table has a place for it.
    pub(super) fn fail(&mut self, system_id: &str, why: &str, now: Timestamp) {
        let Some(node) = self.nodes.get(system_id) else { return };
        let label = node.status.row().label;
        if let Some(to) = node.status.row().fails_to {
            self.record(system_id, Level::Error, "Marking node failed", &format!("{label} failed: {why}"), now);
            self.move_to(system_id, to, now);
            if let Some(node) = self.nodes.get_mut(system_id) {
                node.error_description = format!("{label} failed: {why}");
            }
        }
    }

    /// Makes the machine's key and puts it in its preseed.
    pub(super) fn render_preseed(&mut self, system_id: &str) {
        self.last_key += 1;
        let key = generate_key(self.dice, text_key(system_id).wrapping_add(self.last_key << 32));
        let Some(node) = self.nodes.get_mut(system_id) else { return };
        if node.token.is_none() {
            node.token = Some(key.clone());
            self.keys.add(key, Caller::Machine(system_id.to_owned()));
        }
    }

    /// Forgets the machine's key.
    pub(super) fn drop_token(&mut self, system_id: &str) {
        if let Some(key) = self.nodes.get_mut(system_id).and_then(|node| node.token.take()) {
            self.keys.remove(&key.token);
        }
    }

    /// Switches the machine on for a network boot, or says why it does not start.
    fn boots_over_network(&mut self, system_id: &str, now: Timestamp) -> bool {
        let Some(node) = self.nodes.get(system_id) else { return false };
        if let Some(asset) = self.asset_of(node) {
            self.assets[asset].powered = true;
            self.assets[asset].boots += 1;
        }
        if let Some(node) = self.nodes.get_mut(system_id)
            && node.power.kind != "manual"
        {
            node.power.state = PowerState::On;
        }
        self.record(system_id, Level::Info, "Performing PXE boot", "", now);
        self.render_preseed(system_id);
        true
    }

    fn power_fails(&mut self, system_id: &str, now: Timestamp) {
        if let Some(node) = self.nodes.get_mut(system_id) {
            node.power.state = PowerState::Error;
        }
        let why = "Power state could not be changed: the BMC does not answer or refuses the login";
        self.record(system_id, Level::Error, "Failed to power on node", why, now);
        self.fail(system_id, why, now);
    }

    fn commissioning_boots(&mut self, system_id: &str, stay_on: bool, now: Timestamp) {
        if !self.boots_over_network(system_id, now) || self.strikes(MachineFault::CommissioningHangs, system_id) {
            return;
        }
        let rest = self.node_duration(system_id, self.timings.commissioning_ms).mul_f64(0.7);
        self.schedule(now, rest, system_id.to_owned(), What::CommissioningEnds { stay_on });
    }

    fn commissioning_ends(&mut self, system_id: &str, stay_on: bool, now: Timestamp) {
        let passed = !self.strikes(MachineFault::CommissioningFailure, system_id);
        if let Some(node) = self.nodes.get_mut(system_id) {
            node.commissioning_passed = Some(passed);
        }
        if !passed {
            let why = "50-maas-01-commissioning exited with 1";
            self.record(system_id, Level::Error, "Script result", why, now);
            self.fail(system_id, why, now);
            return;
        }
        if self.strikes(MachineFault::MachineDeletedEarly, system_id) {
            self.record(system_id, Level::Info, "Node deleted", "by another administrator", now);
            self.remove_node(system_id);
            return;
        }
        self.take_inventory(system_id);
        self.move_to(system_id, NodeStatus::Ready, now);
        if !stay_on {
            self.power_down(system_id, now);
        }
    }

    /// What commissioning finds becomes what MAAS believes.
    fn take_inventory(&mut self, system_id: &str) {
        let Some(asset) = self.nodes.get(system_id).and_then(|node| self.asset_of(node)) else { return };
        let mut hardware = self.assets[asset].hardware.clone();
        self.hide_what_is_broken(system_id, &mut hardware);
        let disks = hardware.disks.iter().map(|disk| BlockDevice {
            id: 0,
            name: disk.name.clone(),
            model: disk.model.clone(),
            serial: disk.serial.clone(),
            size_bytes: disk.size_bytes,
            id_path: disk.id_path.clone(),
            tags: vec!["ssd".to_owned()],
        });
        let mut disks: Vec<BlockDevice> = disks.collect();
        for disk in &mut disks {
            disk.id = self.new_id();
        }
        self.take_interfaces(system_id, &hardware);
        let Some(node) = self.nodes.get_mut(system_id) else { return };
        node.boot_disk = disks.first().map(|disk| disk.id);
        node.disks = disks;
        node.layout = "flat".to_owned();
        node.found = Some(Found {
            cpu_count: hardware.cpu_count,
            cpu_model: hardware.cpu_model,
            memory_mib: hardware.memory_mib,
            vendor: hardware.product.vendor,
            product: hardware.product.name,
            serial: hardware.product.serial,
        });
    }

    fn hide_what_is_broken(&mut self, system_id: &str, hardware: &mut Hardware) {
        if self.strikes(MachineFault::MissingBootDisk, system_id) {
            hardware.disks.retain(|disk| !disk.boot_card);
        }
        if self.strikes(MachineFault::AbsentPxeNic, system_id) {
            for nic in hardware.nics.iter_mut().filter(|nic| nic.role == NicRole::Pxe) {
                nic.name = "eth0".to_owned();
            }
        }
        if self.strikes(MachineFault::AbsentNic, system_id)
            && let Some(at) = hardware.nics.iter().position(|nic| nic.role == NicRole::Roce)
        {
            hardware.nics.remove(at);
        }
    }

    /// Known interfaces keep their id; links begin anew: AUTO on the one that boots, none elsewhere.
    fn take_interfaces(&mut self, system_id: &str, hardware: &Hardware) {
        let known = self.nodes.get(system_id).map(|node| node.interfaces.clone()).unwrap_or_default();
        let home = self.network.boot_subnet();
        let mut interfaces = Vec::with_capacity(hardware.nics.len());
        for nic in &hardware.nics {
            let boots = nic.role == NicRole::Pxe;
            let mut interface = self.bare_interface(&nic.name, &nic.mac, boots);
            if let Some(old) = known.iter().find(|old| old.mac.eq_ignore_ascii_case(&nic.mac)) {
                interface.id = old.id;
                interface.tags.clone_from(&old.tags);
            }
            interface.vendor = Some(nic.vendor.clone());
            interface.product = Some(nic.product.clone());
            interface.firmware = Some(nic.firmware.clone());
            interface.speed_mbps = nic.speed_mbps;
            if boots {
                let link = Link { id: self.new_id(), mode: LinkMode::Auto, subnet: Some(home.id), address: None };
                interface.links.push(link);
                interface.vlan = Some(home.vlan);
                interface.discovered = Some((hardware.address, home.id));
            }
            interfaces.push(interface);
        }
        if let Some(node) = self.nodes.get_mut(system_id) {
            node.interfaces = interfaces;
        }
    }

    fn installer_boots(&mut self, system_id: &str, now: Timestamp) {
        if !self.boots_over_network(system_id, now) {
            return;
        }
        let doom = self.nodes.get(system_id).and_then(|node| node.doom);
        match doom {
            Some(Doom::Deleted) => {
                self.record(system_id, Level::Info, "Node deleted", "by another administrator", now);
                self.remove_node(system_id);
            }
            Some(Doom::Hangs) => {}
            Some(Doom::InstallFails | Doom::NoDatasource) | None => {
                let rest = self.node_duration(system_id, self.timings.deploying_ms).mul_f64(0.7);
                self.schedule(now, rest, system_id.to_owned(), What::InstallerEnds);
            }
        }
    }

    fn installer_ends(&mut self, system_id: &str, now: Timestamp) {
        let doom = self.nodes.get(system_id).and_then(|node| node.doom);
        if doom == Some(Doom::InstallFails) {
            let why = "curtin: Installation failed with exception: unable to create the filesystem";
            self.record(system_id, Level::Error, "Installation failed", why, now);
            self.fail(system_id, why, now);
            return;
        }
        self.record(system_id, Level::Info, "Rebooting", "", now);
        let boot = self.node_duration(system_id, self.timings.boot_ms);
        self.schedule(now, boot, system_id.to_owned(), What::FirstBoot);
    }

    fn first_boot(&mut self, system_id: &str, now: Timestamp) {
        let doom = self.nodes.get(system_id).and_then(|node| node.doom);
        if doom == Some(Doom::NoDatasource) {
            let why = "cloud-init: No instance datasource found! Likely bad things to come!";
            self.record(system_id, Level::Warning, "Node post-installation failure", why, now);
            self.fail(system_id, why, now);
            return;
        }
        match self.first_boot {
            FirstBoot::ByWorld => {
                self.user_data_was_fetched(system_id, now);
                self.cloud_init_is_done(system_id, true, now);
                self.boot_installed(system_id, true);
            }
            FirstBoot::ByRunner => self.boot_installed(system_id, true),
        }
    }

    /// The moment at which MAAS calls a machine Deployed. spec: MAAS contract section 6.
    pub(super) fn user_data_was_fetched(&mut self, system_id: &str, now: Timestamp) {
        let Some(node) = self.nodes.get_mut(system_id) else { return };
        if let Some(system) = &mut node.system {
            system.user_data_fetched = true;
        }
        if node.status == NodeStatus::Deploying && self.quirks.meet(Quirk::DeployedBeforeReady) {
            self.move_to(system_id, NodeStatus::Deployed, now);
        }
    }

    /// cloud-init's last stage has ended.
    pub(super) fn cloud_init_is_done(&mut self, system_id: &str, well: bool, now: Timestamp) {
        let deploying = self.nodes.get(system_id).is_some_and(|node| node.status == NodeStatus::Deploying);
        match (well, deploying) {
            (true, true) => self.move_to(system_id, NodeStatus::Deployed, now),
            (false, true) => self.fail(system_id, "cloud-init modules-final failed", now),
            (true | false, false) => {}
        }
    }

    fn tested(&mut self, system_id: &str, now: Timestamp) {
        let back = self.nodes.get(system_id).map_or(NodeStatus::Ready, |node| node.status_before);
        self.move_to(system_id, back, now);
    }

    fn rescue_left(&mut self, system_id: &str, now: Timestamp) {
        let back = self.nodes.get(system_id).map_or(NodeStatus::Ready, |node| node.status_before);
        self.move_to(system_id, back, now);
    }
}
