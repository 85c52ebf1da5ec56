//! Until MAAS says Deployed: the first boot fetched its payload, which is not yet readiness. spec: S5 4.3

use async_trait::async_trait;
use lattice_core::failure::FailureClass;
use lattice_core::job::StageError;
use lattice_providers::machine::maas::MachineStatus;

use super::maas;
use super::wait_for_ready::RECHECK;
use crate::stage::{Context, Delta, NodeAsk, Observation, Outcome, StageRunner, error};

/// See the module.
pub struct WaitForDeployed;

#[async_trait]
impl StageRunner for WaitForDeployed {
    async fn observe(&self, ctx: &Context<'_>) -> Result<Observation, StageError> {
        let machine = maas::recent(ctx).await?;
        let delta = Delta::said(format!("MAAS says {}", machine.status)).seen(ctx, maas::seen(&machine));
        if !maas::is_ours(ctx, &machine) {
            return Ok(Observation::Failed(maas::out_of_band(&machine, "this job's deployment is not on it"), delta));
        }
        match machine.status {
            MachineStatus::Deployed => Ok(Observation::Done(match machine.ip_addresses.first() {
                Some(address) => delta.ask(NodeAsk::Address(address.to_string())),
                None => delta,
            })),
            MachineStatus::Deploying => Ok(Observation::Waiting {
                recheck_at: ctx.now + RECHECK,
                waiting_for: format!("MAAS to deploy {}", ctx.job.hostname),
                delta,
            }),
            MachineStatus::FailedDeployment => {
                let text = format!("the deployment of {} failed: {}", machine.system_id, maas::reason(&machine));
                Ok(Observation::Failed(error(FailureClass::DeployCloudInitFailure, "failed_deployment", text), delta))
            }
            MachineStatus::New
            | MachineStatus::Commissioning
            | MachineStatus::FailedCommissioning
            | MachineStatus::Missing
            | MachineStatus::Ready
            | MachineStatus::Reserved
            | MachineStatus::Retired
            | MachineStatus::Broken
            | MachineStatus::Allocated
            | MachineStatus::Releasing
            | MachineStatus::FailedReleasing
            | MachineStatus::DiskErasing
            | MachineStatus::FailedDiskErasing
            | MachineStatus::RescueMode
            | MachineStatus::EnteringRescueMode
            | MachineStatus::FailedEnteringRescueMode
            | MachineStatus::ExitingRescueMode
            | MachineStatus::FailedExitingRescueMode
            | MachineStatus::Testing
            | MachineStatus::FailedTesting
            | MachineStatus::Other(_) => {
                Ok(Observation::Failed(maas::out_of_band(&machine, "it should be deploying"), delta))
            }
        }
    }

    async fn act(&self, ctx: &Context<'_>, _: &str) -> Result<Outcome, StageError> {
        Ok(Outcome::StillGoing {
            recheck_at: ctx.now + RECHECK,
            waiting_for: "MAAS to say Deployed".to_owned(),
            delta: Delta::default(),
        })
    }
}
