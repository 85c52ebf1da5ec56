//! Releases the machine, so that it can be deployed again. spec: S5 4.3 RecoverForDatasourceRetry

use async_trait::async_trait;
use lattice_core::job::StageError;
use lattice_providers::machine::maas::MachineStatus;

use super::deploy_via_maas::release;
use super::maas;
use crate::stage::{Context, Delta, Observation, Outcome, StageRunner};

/// How soon a release is looked at again.
const RECHECK: std::time::Duration = std::time::Duration::from_secs(10);

/// See the module.
pub struct RecoverForDatasourceRetry;

#[async_trait]
impl StageRunner for RecoverForDatasourceRetry {
    async fn observe(&self, ctx: &Context<'_>) -> Result<Observation, StageError> {
        let machine = maas::fresh(ctx).await?;
        let delta = Delta::said(format!("MAAS says {}", machine.status)).seen(ctx, maas::seen(&machine));
        if machine.status == MachineStatus::Ready {
            return Ok(Observation::Done(delta));
        }
        if machine.status == MachineStatus::Releasing {
            return Ok(Observation::Waiting {
                recheck_at: ctx.now + RECHECK,
                waiting_for: format!("MAAS to release {}", ctx.job.hostname),
                delta,
            });
        }
        // Destructive: only what this job deployed is released.
        if maas::is_ours(ctx, &machine) {
            return Ok(Observation::Absent);
        }
        Ok(Observation::Failed(
            maas::out_of_band(&machine, "this job did not deploy it and does not release it"),
            delta,
        ))
    }

    async fn act(&self, ctx: &Context<'_>, _: &str) -> Result<Outcome, StageError> {
        let machine = maas::fresh(ctx).await?;
        release(ctx, &machine).await
    }
}
