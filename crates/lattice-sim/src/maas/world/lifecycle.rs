//! The operations that move a machine through its life. spec: MAAS contract sections 3 and 6.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::progress::What;
use super::{Answer, Call, Level, MaasWorld};
use crate::maas::faults::MachineFault;
use crate::maas::node::{Doom, HardwareSync, LinkMode, PowerState, System};
use crate::maas::quirk::Quirk;
use crate::maas::status::{ABORTABLE, NodeStatus, RELEASABLE};
use crate::maas::wire::Response;

impl MaasWorld {
    pub(super) fn accept_machines(&mut self, call: &Call<'_>) -> Answer {
        let wanted = call.request.form.list("machines");
        if let Some(unknown) = wanted.iter().find(|id| !self.nodes.contains_key(*id)) {
            return Err(Response::text(400, format!("Unknown machine(s): {unknown}.")));
        }
        self.accept(&wanted, call.now)
    }

    pub(super) fn accept_all_machines(&mut self, call: &Call<'_>) -> Answer {
        let new = self.nodes.values().filter(|node| node.status == NodeStatus::New);
        let new: Vec<String> = new.map(|node| node.system_id.clone()).collect();
        self.accept(&new, call.now)
    }

    /// Accepting a New machine commissions it; accepting an accepted one changes nothing.
    fn accept(&mut self, wanted: &[String], now: Timestamp) -> Answer {
        let mut accepted: Vec<Value> = Vec::new();
        for system_id in wanted {
            match self.node(system_id)?.status {
                NodeStatus::New => {
                    self.start_commissioning(system_id, false, now)?;
                    accepted.push(self.machine_body(system_id)?);
                }
                NodeStatus::Commissioning | NodeStatus::Ready => {}
                other => {
                    let label = other.row().label;
                    let text = format!("Cannot accept node enlistment: node {system_id} is in state {label}.");
                    return Err(Response::text(409, text));
                }
            }
        }
        Ok(Response::json(200, &Value::Array(accepted)))
    }

    pub(super) fn commission(&mut self, call: &Call<'_>) -> Answer {
        let stay_on = call.request.form.flag("enable_ssh").unwrap_or(false);
        self.start_commissioning(call.arg(0), stay_on, call.now)?;
        self.read_machine(call.arg(0))
    }

    /// Commissioning begins with a power cycle, which a broken BMC fails only after a while.
    pub(super) fn start_commissioning(
        &mut self,
        system_id: &str,
        stay_on: bool,
        now: Timestamp,
    ) -> Result<(), Response> {
        self.change_status(system_id, NodeStatus::Commissioning, now)?;
        self.drop_token(system_id);
        let result = self.new_id();
        let node = self.node_mut(system_id)?;
        node.commissioning_result = Some(result);
        node.commissioning_passed = None;
        node.error_description.clear();
        self.start_phase(system_id, self.timings.commissioning_ms, What::CommissioningBoots { stay_on }, now);
        let limit = self.timings.exact(self.timings.node_timeout_ms);
        self.schedule(now, limit, system_id.to_owned(), What::TimedOut);
        Ok(())
    }

    /// Powers the machine on for a phase; the boot takes three tenths of it.
    fn start_phase(&mut self, system_id: &str, phase_ms: u64, boots: What, now: Timestamp) {
        let driver = self.driver_can(system_id).unwrap_or(false);
        if driver && self.reach_machine(system_id).is_err() {
            let patience = self.timings.exact(self.timings.bmc_timeout_ms);
            self.schedule(now, patience, system_id.to_owned(), What::PowerFails);
            return;
        }
        if let Some(asset) = self.nodes.get(system_id).and_then(|node| self.asset_of(node)) {
            self.switch_off(asset);
            let boot = self.node_duration(system_id, phase_ms).mul_f64(0.3);
            self.schedule(now, boot, system_id.to_owned(), boots);
        }
    }

    pub(super) fn allocate(&mut self, call: &Call<'_>) -> Answer {
        let form = &call.request.form;
        let (names, ids) = (form.list("name"), form.list("system_id"));
        let (pools, zones, tags) = (form.list("pool"), form.list("zone"), form.list("tags"));
        let mut free: Vec<_> = self.nodes.values().filter(|node| node.status == NodeStatus::Ready).collect();
        free.sort_by_key(|node| node.number);
        let fits = free.into_iter().find(|node| {
            (names.is_empty() || names.contains(&node.hostname))
                && (ids.is_empty() || ids.contains(&node.system_id))
                && (zones.is_empty() || zones.contains(&node.zone))
                && (pools.is_empty() || pools.contains(&self.pool_name(node.pool)))
                && tags.iter().all(|tag| node.tags.contains(tag))
        });
        let Some(system_id) = fits.map(|node| node.system_id.clone()) else {
            let constraints: Vec<String> = form.iter().map(|(key, value)| format!("{key}={value}")).collect();
            let text = match ids.first() {
                Some(id) => format!("No machine with system ID {id} available."),
                None => format!("No available machine matches constraints: {}", constraints.join(" ")),
            };
            return Err(Response::text(409, text));
        };
        if !form.flag("dry_run").unwrap_or(false) {
            self.take(&system_id, call)?;
        }
        self.read_machine(&system_id)
    }

    fn take(&mut self, system_id: &str, call: &Call<'_>) -> Result<(), Response> {
        self.change_status(system_id, NodeStatus::Allocated, call.now)?;
        self.node_mut(system_id)?.owner = Some(call.user().to_owned());
        Ok(())
    }

    pub(super) fn deploy(&mut self, call: &Call<'_>) -> Answer {
        let system_id = call.arg(0).to_owned();
        let status = self.node(&system_id)?.status;
        let allocates = status == NodeStatus::Ready && self.quirks.meet(Quirk::ImplicitAllocate);
        if status != NodeStatus::Allocated && !allocates {
            let text = format!("Can't deploy a machine that is in the '{}' state", status.row().label);
            return Err(Response::text(409, text));
        }
        let system = self.read_system(call)?;
        if self.strikes(MachineFault::DeployRejected, &system_id) {
            return Err(Response::form_error("distro_series", "The boot images for this series are not available."));
        }
        if allocates {
            self.take(&system_id, call)?;
        }
        self.check_deployable(&system_id, allocates, call.now)?;
        self.change_status(&system_id, NodeStatus::Deploying, call.now)?;
        self.assign_addresses(&system_id);
        let doom = self.foresee(&system_id);
        let result = self.new_id();
        let node = self.node_mut(&system_id)?;
        node.system = Some(system);
        node.installation_result = Some(result);
        node.deployments += 1;
        node.doom = doom;
        node.error_description.clear();
        self.start_phase(&system_id, self.timings.deploying_ms, What::InstallerBoots, call.now);
        let limit = self.timings.exact(self.timings.node_timeout_ms * 2);
        self.schedule(call.now, limit, system_id.clone(), What::TimedOut);
        self.read_machine(&system_id)
    }

    /// What the form asks to install.
    fn read_system(&mut self, call: &Call<'_>) -> Result<System, Response> {
        let form = &call.request.form;
        if form.flag("install_rackd").unwrap_or(false) {
            return Err(Response::form_error("install_rackd", "Rack controllers are not installed by deployment."));
        }
        let asked = form.text("distro_series").unwrap_or("noble");
        let (osystem, series) = asked.split_once('/').unwrap_or(("ubuntu", asked));
        let known = matches!((osystem, series), ("ubuntu", "noble" | "jammy" | "focal")) || osystem == "custom";
        if !known {
            let text = format!("'{asked}' is not a valid distro_series. It should be one of: 'ubuntu/noble', 'noble'.");
            return Err(Response::form_error("distro_series", text));
        }
        let encoded: String = form.get("user_data").unwrap_or_default().split_whitespace().collect();
        let Ok(user_data) = STANDARD.decode(encoded) else {
            return Err(Response::text(400, "Invalid user_data: it must be base64-encoded"));
        };
        let interval_s = self.settings.sync_interval_s();
        let wants_sync = form.flag("enable_hw_sync").unwrap_or(false);
        Ok(System {
            osystem: osystem.to_owned(),
            series: series.to_owned(),
            user_data,
            ephemeral: form.flag("ephemeral_deploy").unwrap_or(false),
            sync: wants_sync.then_some(HardwareSync { interval_s, last: None, next: None }),
            user_data_fetched: false,
        })
    }

    /// Network and storage must be there; without, the machine stays as it is now: Allocated.
    fn check_deployable(&mut self, system_id: &str, allocated_here: bool, now: Timestamp) -> Result<(), Response> {
        let node = self.node(system_id)?;
        let refusal = if !node.has_network() {
            Response::form_error("network", "Node must be configured to use a network")
        } else if node.boot_disk.is_none() {
            Response::form_error("storage", "Specify a storage device to be able to deploy this node.")
        } else {
            return Ok(());
        };
        if allocated_here && !self.quirks.meet(Quirk::RefusedDeployStaysAllocated) {
            self.change_status(system_id, NodeStatus::Ready, now)?;
            self.node_mut(system_id)?.owner = None;
        }
        Err(refusal)
    }

    fn foresee(&mut self, system_id: &str) -> Option<Doom> {
        const DOOMS: [(MachineFault, Doom); 4] = [
            (MachineFault::MachineDeleted, Doom::Deleted),
            (MachineFault::DeployHangs, Doom::Hangs),
            (MachineFault::DeployFails, Doom::InstallFails),
            (MachineFault::DeployNoDatasource, Doom::NoDatasource),
        ];
        DOOMS.into_iter().find(|(fault, _)| self.strikes(*fault, system_id)).map(|(_, doom)| doom)
    }

    /// AUTO links get the machine's address for the time of the deployment.
    fn assign_addresses(&mut self, system_id: &str) {
        let Some(asset) = self.nodes.get(system_id).and_then(|node| self.asset_of(node)) else { return };
        let address = self.assets[asset].hardware.address;
        let Some(node) = self.nodes.get_mut(system_id) else { return };
        for nic in &mut node.interfaces {
            let boots = nic.boots;
            for link in &mut nic.links {
                if boots && matches!(link.mode, LinkMode::Auto | LinkMode::Dhcp) {
                    link.address = Some(address);
                }
            }
        }
    }

    pub(super) fn release_machines(&mut self, call: &Call<'_>) -> Answer {
        let wanted = call.request.form.list("machines");
        let mut released = Vec::new();
        for system_id in wanted {
            if self.start_release(&system_id, call)? {
                released.push(system_id);
            }
        }
        Ok(Response::json(200, &json!(released)))
    }

    pub(super) fn release(&mut self, call: &Call<'_>) -> Answer {
        self.start_release(call.arg(0), call)?;
        self.read_machine(call.arg(0))
    }

    /// True when a release began, false when there was nothing to release.
    fn start_release(&mut self, system_id: &str, call: &Call<'_>) -> Result<bool, Response> {
        let node = self.node(system_id)?;
        let (status, locked) = (node.status, node.locked);
        if locked {
            return Err(self.forbidden("The machine is locked."));
        }
        if matches!(status, NodeStatus::Ready | NodeStatus::Releasing) && self.quirks.meet(Quirk::ReleaseIsNoop) {
            return Ok(false);
        }
        if !RELEASABLE.contains(&status) {
            let text = format!("Machine cannot be released in its current state ('{}').", status.row().label);
            return Err(Response::text(409, text));
        }
        let form = &call.request.form;
        let erase = ["erase", "quick_erase", "secure_erase"].iter().any(|name| form.flag(name).unwrap_or(false));
        let (to, what, took) = match erase {
            true if !self.quirks.meet(Quirk::EraseShowsReleasing) => {
                (NodeStatus::DiskErasing, What::Erased, self.timings.erasing_ms)
            }
            true => (NodeStatus::Releasing, What::Released, self.timings.erasing_ms + self.timings.releasing_ms),
            false => (NodeStatus::Releasing, What::Released, self.timings.releasing_ms),
        };
        self.change_status(system_id, to, call.now)?;
        let delay = self.node_duration(system_id, took);
        self.schedule(call.now, delay, system_id.to_owned(), what);
        self.power_down(system_id, call.now);
        if let Some(asset) = self.nodes.get(system_id).and_then(|node| self.asset_of(node)) {
            self.wipe(asset);
        }
        Ok(true)
    }

    pub(super) fn erased(&mut self, system_id: &str, now: Timestamp) {
        self.released(system_id, now);
    }

    /// The end of a release: MAAS forgets the deployment and puts storage and network back.
    pub(super) fn released(&mut self, system_id: &str, now: Timestamp) {
        if self.strikes(MachineFault::ReleaseFails, system_id) {
            return self.fail(system_id, "the machine did not report that it was released", now);
        }
        self.move_to(system_id, NodeStatus::Ready, now);
        let Some(node) = self.nodes.get_mut(system_id) else { return };
        node.owner = None;
        node.system = None;
        node.doom = None;
        node.annotations.clear();
        node.installation_result = None;
        node.error_description.clear();
        node.layout = "flat".to_owned();
        node.boot_disk = node.disks.first().map(|disk| disk.id);
        for nic in &mut node.interfaces {
            nic.links.retain(|link| nic.boots || link.mode == LinkMode::Auto);
            for link in &mut nic.links {
                link.address = None;
            }
        }
    }

    pub(super) fn abort(&mut self, call: &Call<'_>) -> Answer {
        let system_id = call.arg(0).to_owned();
        let node = self.node(&system_id)?;
        let (status, before, found) = (node.status, node.status_before, node.found.is_some());
        if !ABORTABLE.contains(&status) {
            let text = format!("Cannot abort in current state: node {system_id} is in state {}.", status.row().label);
            return Err(Response::text(409, text));
        }
        let back = match (status, found) {
            (NodeStatus::Commissioning, true) => NodeStatus::Ready,
            (NodeStatus::Commissioning, false) => NodeStatus::New,
            (NodeStatus::Deploying, _) => NodeStatus::Allocated,
            (NodeStatus::DiskErasing, _) => NodeStatus::FailedDiskErasing,
            (_, _) => before,
        };
        self.change_status(&system_id, back, call.now)?;
        self.power_down(&system_id, call.now);
        let node = self.node_mut(&system_id)?;
        if status == NodeStatus::Deploying {
            node.system = None;
            node.doom = None;
        }
        self.read_machine(&system_id)
    }

    pub(super) fn test(&mut self, call: &Call<'_>) -> Answer {
        let system_id = call.arg(0).to_owned();
        let before = self.node(&system_id)?.status;
        self.change_status(&system_id, NodeStatus::Testing, call.now)?;
        self.node_mut(&system_id)?.status_before = before;
        let delay = self.node_duration(&system_id, self.timings.testing_ms);
        self.schedule(call.now, delay, system_id.clone(), What::Tested);
        self.read_machine(&system_id)
    }

    pub(super) fn override_failed_testing(&mut self, call: &Call<'_>) -> Answer {
        let system_id = call.arg(0).to_owned();
        let node = self.node(&system_id)?;
        if node.status != NodeStatus::FailedTesting {
            return Err(Response::text(409, "Cannot override testing unless it failed."));
        }
        let to = if node.system.is_some() { NodeStatus::Deployed } else { NodeStatus::Ready };
        self.change_status(&system_id, to, call.now)?;
        self.read_machine(&system_id)
    }

    pub(super) fn mark_broken(&mut self, call: &Call<'_>) -> Answer {
        let system_id = call.arg(0).to_owned();
        let node = self.node(&system_id)?;
        let (owned, before) = (node.owner.as_deref() == Some(call.user()), node.status);
        if !owned && self.quirks.meet(Quirk::MarkBrokenNeedsOwner) {
            return Err(self.forbidden("Only the owner may mark a machine broken."));
        }
        self.change_status(&system_id, NodeStatus::Broken, call.now)?;
        let comment = call.request.form.text("comment").unwrap_or("Manually marked as broken by user").to_owned();
        let node = self.node_mut(&system_id)?;
        node.status_before = before;
        node.error_description = comment;
        self.read_machine(&system_id)
    }

    pub(super) fn mark_fixed(&mut self, call: &Call<'_>) -> Answer {
        let system_id = call.arg(0).to_owned();
        let node = self.node(&system_id)?;
        if node.status != NodeStatus::Broken {
            let label = node.status.row().label;
            let text = format!("Can't mark a non-broken node as 'Ready': it is in state '{label}'.");
            return Err(Response::text(409, text));
        }
        let deployed = node.status_before == NodeStatus::Deployed;
        let to = if deployed { NodeStatus::Deployed } else { NodeStatus::Ready };
        self.change_status(&system_id, to, call.now)?;
        let node = self.node_mut(&system_id)?;
        node.error_description.clear();
        if !deployed {
            node.owner = None;
        }
        self.read_machine(&system_id)
    }

    pub(super) fn lock(&mut self, call: &Call<'_>) -> Answer {
        let node = self.node_mut(call.arg(0))?;
        if !node.holds_system() {
            return Err(Response::text(409, "Can't lock, machine is not deployed"));
        }
        node.locked = true;
        self.read_machine(call.arg(0))
    }

    pub(super) fn unlock(&mut self, call: &Call<'_>) -> Answer {
        let node = self.node_mut(call.arg(0))?;
        if !node.locked {
            return Err(Response::text(409, "Machine is already unlocked"));
        }
        node.locked = false;
        self.read_machine(call.arg(0))
    }

    pub(super) fn enter_rescue(&mut self, call: &Call<'_>) -> Answer {
        let system_id = call.arg(0).to_owned();
        let before = self.node(&system_id)?.status;
        self.change_status(&system_id, NodeStatus::EnteringRescueMode, call.now)?;
        let node = self.node_mut(&system_id)?;
        node.power.state = PowerState::On;
        // From a failed attempt the status to go back to is still the one before the first.
        if !matches!(before, NodeStatus::FailedEnteringRescueMode) {
            node.status_before = before;
        }
        let delay = self.node_duration(&system_id, self.timings.rescue_ms);
        self.schedule(call.now, delay, system_id.clone(), What::RescueEntered);
        self.read_machine(&system_id)
    }

    pub(super) fn exit_rescue(&mut self, call: &Call<'_>) -> Answer {
        let system_id = call.arg(0).to_owned();
        self.change_status(&system_id, NodeStatus::ExitingRescueMode, call.now)?;
        let before = self.node(&system_id)?.status_before;
        let acts = matches!(before, NodeStatus::Ready | NodeStatus::Broken | NodeStatus::Deployed);
        if acts || !self.quirks.meet(Quirk::ExitRescueHangs) {
            let delay = self.node_duration(&system_id, self.timings.rescue_ms);
            self.schedule(call.now, delay, system_id.clone(), What::RescueLeft);
        } else {
            let text = "Waiting for a power state that nobody changes";
            self.record(&system_id, Level::Info, "Exiting rescue mode", text, call.now);
        }
        self.read_machine(&system_id)
    }
}
