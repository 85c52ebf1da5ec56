//! Gives the machine its name and power control and has MAAS commission it. spec: S5 4.3

use async_trait::async_trait;
use lattice_core::failure::FailureClass;
use lattice_core::job::StageError;
use lattice_providers::machine::maas::lifecycle::Commission;
use lattice_providers::machine::maas::machines::MachineUpdate;
use lattice_providers::machine::maas::{Machine, MachineStatus};

use super::wait_for_ready::RECHECK;
use super::{configure_storage, ensure_pxe_interface_auto, maas};
use crate::providers::failed;
use crate::stage::{Context, Delta, Observation, Outcome, StageRunner, error};

/// See the module.
pub struct CommissionNode;

#[async_trait]
impl StageRunner for CommissionNode {
    async fn observe(&self, ctx: &Context<'_>) -> Result<Observation, StageError> {
        let machine = maas::fresh(ctx).await?;
        if maas::is_deployed_by_us(ctx, &machine) {
            return Ok(Observation::Done(Delta::said("it is deployed by this job already").skipped()));
        }
        match machine.status {
            MachineStatus::Commissioning | MachineStatus::Testing => Ok(done(ctx, &machine)),
            MachineStatus::Ready if machine.hostname == ctx.job.hostname && lacks(ctx, &machine)?.is_none() => {
                Ok(done(ctx, &machine))
            }
            MachineStatus::Ready
            | MachineStatus::New
            | MachineStatus::FailedCommissioning
            | MachineStatus::FailedTesting => Ok(Observation::Absent),
            MachineStatus::Allocated if maas::is_ours(ctx, &machine) => Ok(done(ctx, &machine)),
            // Whoever released it gave it back: it is Ready soon.
            MachineStatus::Releasing | MachineStatus::DiskErasing => Ok(Observation::Waiting {
                recheck_at: ctx.now + RECHECK,
                waiting_for: format!("MAAS to finish releasing {}", ctx.job.hostname),
                delta: Delta::default().seen(ctx, maas::seen(&machine)),
            }),
            MachineStatus::Broken => Err(error(
                FailureClass::HardwareMismatch,
                "machine_broken",
                format!("machine {} is marked broken in MAAS: {}", machine.system_id, maas::reason(&machine)),
            )),
            MachineStatus::Missing
            | MachineStatus::Reserved
            | MachineStatus::Deployed
            | MachineStatus::Retired
            | MachineStatus::Deploying
            | MachineStatus::Allocated
            | MachineStatus::FailedDeployment
            | MachineStatus::FailedReleasing
            | MachineStatus::FailedDiskErasing
            | MachineStatus::RescueMode
            | MachineStatus::EnteringRescueMode
            | MachineStatus::FailedEnteringRescueMode
            | MachineStatus::ExitingRescueMode
            | MachineStatus::FailedExitingRescueMode
            | MachineStatus::Other(_) => {
                Ok(maas::conflict(ctx, &machine, "commissioning it would take it from somebody"))
            }
        }
    }

    async fn act(&self, ctx: &Context<'_>, _: &str) -> Result<Outcome, StageError> {
        let id = maas::system_id(ctx.provider_ref()?)?;
        let region = maas::region(ctx).await?;
        let power = maas::power_login(ctx).await?.setup;
        let update = MachineUpdate { hostname: Some(ctx.job.hostname.clone()), power: Some(power) };
        let machine = region.client().update(&id, update).await.map_err(failed(ctx.now))?;
        let lack = lacks(ctx, &machine)?.filter(|_| machine.status == MachineStatus::Ready);
        if machine.status == MachineStatus::Ready && lack.is_none() {
            return Ok(Outcome::Done(
                Delta::said("Ready already; name and power control set").seen(ctx, maas::seen(&machine)),
            ));
        }
        // A BMC that does not answer is said at once, not when a boot that never began has failed. spec: S5 4.6
        region.client().query_power(&id).await.map_err(failed(ctx.now))?;
        // Commissioning accepts a New machine by the way; accepting it first would commission it without these options.
        let how = Commission { enable_ssh: true, skip_bmc_config: true, skip_testing: false };
        let machine = region.client().commission(&id, how).await.map_err(failed(ctx.now))?;
        let why = lack.map_or_else(String::new, |lack| format!(", to look again: {lack}"));
        Ok(Outcome::Done(Delta::said(format!("commissioning of {id} begun{why}")).seen(ctx, maas::seen(&machine))))
    }
}

/// What the stages before the deploy would miss in the inventory of a Ready machine. MAAS knows of what was put in, or
/// put back, since it was commissioned last only after it is commissioned again; nothing runs on it that could be lost.
/// spec: S5 4.10
fn lacks(ctx: &Context<'_>, machine: &Machine) -> Result<Option<String>, StageError> {
    let is_strict = ctx.maas_site()?.policy.strict_pxe_preflight;
    let disk = configure_storage::wanted(ctx, machine).map(drop);
    let interface = ensure_pxe_interface_auto::interface(ctx, machine).map(drop);
    let missing = disk.and(if is_strict { interface } else { Ok(()) });
    Ok(missing.err().map(|lack| lack.message))
}

fn done(ctx: &Context<'_>, machine: &Machine) -> Observation {
    Observation::Done(Delta::said(format!("MAAS says {}", machine.status)).seen(ctx, maas::seen(machine)).skipped())
}
