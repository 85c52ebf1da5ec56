//! Until MAAS says Ready. spec: S5 4.3 WaitForMaasStatus

use std::time::Duration;

use async_trait::async_trait;
use lattice_core::failure::FailureClass;
use lattice_core::job::StageError;
use lattice_providers::machine::maas::{Machine, MachineStatus};

use super::maas;
use crate::providers::failed;
use crate::stage::{Context, Delta, Observation, Outcome, StageRunner, error};

/// A change of the machine wakes the job; this look is for the case that the waking was lost.
pub(super) const RECHECK: Duration = Duration::from_secs(60);

/// See the module.
pub struct WaitForReady;

#[async_trait]
impl StageRunner for WaitForReady {
    async fn observe(&self, ctx: &Context<'_>) -> Result<Observation, StageError> {
        let machine = maas::recent(ctx).await?;
        let delta = Delta::said(format!("MAAS says {}", machine.status)).seen(ctx, maas::seen(&machine));
        if maas::is_deployed_by_us(ctx, &machine) {
            return Ok(Observation::Done(delta.skipped()));
        }
        let failure = |class, code: &str| {
            let text = format!("machine {} is {}: {}", machine.system_id, machine.status, maas::reason(&machine));
            Ok(Observation::Failed(error(class, code, text), delta.clone()))
        };
        match machine.status {
            MachineStatus::Ready => Ok(Observation::Done(delta)),
            MachineStatus::Allocated if maas::is_ours(ctx, &machine) => Ok(Observation::Done(delta)),
            MachineStatus::Commissioning | MachineStatus::Testing => Ok(Observation::Waiting {
                recheck_at: ctx.now + RECHECK,
                waiting_for: format!("MAAS to finish; {} is {}", ctx.job.hostname, machine.status),
                delta,
            }),
            MachineStatus::FailedCommissioning => match bmc_silent(ctx, &machine).await {
                Some(silent) => Ok(Observation::Failed(silent, delta)),
                None => failure(FailureClass::PxeDiscoveryFailure, "failed_commission"),
            },
            MachineStatus::FailedTesting => failure(FailureClass::HardwareMismatch, "failed_testing"),
            MachineStatus::Broken => failure(FailureClass::HardwareMismatch, "machine_broken"),
            MachineStatus::New => failure(FailureClass::StateAmbiguity, "commissioning_aborted"),
            MachineStatus::Missing
            | MachineStatus::Reserved
            | MachineStatus::Deployed
            | MachineStatus::Retired
            | MachineStatus::Deploying
            | MachineStatus::Allocated
            | MachineStatus::FailedDeployment
            | MachineStatus::Releasing
            | MachineStatus::FailedReleasing
            | MachineStatus::DiskErasing
            | MachineStatus::FailedDiskErasing
            | MachineStatus::RescueMode
            | MachineStatus::EnteringRescueMode
            | MachineStatus::FailedEnteringRescueMode
            | MachineStatus::ExitingRescueMode
            | MachineStatus::FailedExitingRescueMode
            | MachineStatus::Other(_) => {
                Ok(Observation::Failed(maas::out_of_band(&machine, "it should be commissioning or Ready"), delta))
            }
        }
    }

    async fn act(&self, ctx: &Context<'_>, _: &str) -> Result<Outcome, StageError> {
        Ok(Outcome::StillGoing {
            recheck_at: ctx.now + RECHECK,
            waiting_for: "MAAS to say Ready".to_owned(),
            delta: Delta::default(),
        })
    }
}

/// A commissioning that failed because its BMC does not answer, or refuses the login: it is asked now.
async fn bmc_silent(ctx: &Context<'_>, machine: &Machine) -> Option<StageError> {
    let region = maas::region(ctx).await.ok()?;
    let asked = region.client().query_power(&machine.system_id).await.map_err(failed(ctx.now)).err()?;
    let text = format!("commissioning {} failed, and {}", machine.system_id, asked.message);
    (asked.class == FailureClass::BmcPowerFailure).then_some(StageError { message: text, ..asked })
}
