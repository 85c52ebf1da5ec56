//! Releases the node's machine in MAAS, until it is Ready: its OS is gone then. spec: S5 7.3 "Reimaging"

use std::time::Duration;

use async_trait::async_trait;
use lattice_core::failure::FailureClass;
use lattice_core::ids::JobId;
use lattice_core::job::StageError;
use lattice_providers::machine::maas::{Machine, MachineStatus};
use lattice_providers::observer::STAMP;

use super::deploy_via_maas::release;
use super::maas;
use crate::stage::{Context, Delta, Observation, Outcome, StageRunner, error, store_failed};

/// How soon a release is looked at again; a change of the machine wakes the job besides.
const RECHECK: Duration = Duration::from_secs(30);

/// See the module.
pub struct ReleaseMachine;

#[async_trait]
impl StageRunner for ReleaseMachine {
    async fn observe(&self, ctx: &Context<'_>) -> Result<Observation, StageError> {
        let (_, machine) = maas::fresh_of_node(ctx).await?;
        let mut outputs = ctx.outputs();
        outputs.provider_ref = Some(machine.system_id.to_string());
        let said = format!("MAAS says {}", machine.status);
        let delta = Delta::said(said).outputs(outputs).seen(ctx, maas::seen(&machine));
        if maas::is_deployed_by_us(ctx, &machine) {
            return Ok(Observation::Done(delta.skipped()));
        }
        match machine.status {
            MachineStatus::Ready => Ok(Observation::Done(delta)),
            MachineStatus::Releasing | MachineStatus::DiskErasing => Ok(Observation::Waiting {
                recheck_at: ctx.now + RECHECK,
                waiting_for: format!("MAAS to release {}; it is {}", ctx.job.hostname, machine.status),
                delta,
            }),
            // The stamp is gone with a release, and who began it brings it to its end.
            MachineStatus::FailedReleasing | MachineStatus::FailedDiskErasing => Ok(Observation::Absent),
            MachineStatus::Deployed
            | MachineStatus::Deploying
            | MachineStatus::FailedDeployment
            | MachineStatus::Allocated => match is_of_node(ctx, &machine).await? {
                true => Ok(Observation::Absent),
                false => Ok(maas::conflict(ctx, &machine, "no job of this node deployed it, so it is not released")),
            },
            MachineStatus::New
            | MachineStatus::Commissioning
            | MachineStatus::FailedCommissioning
            | MachineStatus::Missing
            | MachineStatus::Reserved
            | MachineStatus::Retired
            | MachineStatus::Broken
            | MachineStatus::RescueMode
            | MachineStatus::EnteringRescueMode
            | MachineStatus::FailedEnteringRescueMode
            | MachineStatus::ExitingRescueMode
            | MachineStatus::FailedExitingRescueMode
            | MachineStatus::Testing
            | MachineStatus::FailedTesting
            | MachineStatus::Other(_) => {
                Ok(maas::conflict(ctx, &machine, "it can be released only while it is Deployed"))
            }
        }
    }

    async fn act(&self, ctx: &Context<'_>, _: &str) -> Result<Outcome, StageError> {
        match ctx.tools.live_work.live_allocations(ctx.node.id).await {
            Some(0) | None => {}
            Some(several) => {
                let why = format!("{several} allocations run on {}: its OS is not taken away", ctx.node.hostname);
                return Err(error(FailureClass::StateAmbiguity, "work_runs", why));
            }
        }
        let (_, machine) = maas::fresh_of_node(ctx).await?;
        release(ctx, &machine).await
    }
}

/// Whether a job of this node deployed the machine: its stamp says which.
async fn is_of_node(ctx: &Context<'_>, machine: &Machine) -> Result<bool, StageError> {
    let Some(stamp) = machine.owner_data.get(STAMP) else { return Ok(false) };
    for part in stamp.split('/') {
        let Ok(job) = part.parse::<JobId>() else { continue };
        let job = ctx.tools.store.job(job).await.map_err(store_failed)?;
        return Ok(job.is_some_and(|job| job.node == ctx.node.id));
    }
    Ok(false)
}
