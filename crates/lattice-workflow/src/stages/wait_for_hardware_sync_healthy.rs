//! Until MAAS receives the hardware sync. spec: S5 4.3, 9.1

use async_trait::async_trait;
use lattice_core::job::StageError;
use lattice_providers::machine::maas::Machine;

use super::ensure_hardware_sync_configured::seed;
use super::maas;
use crate::stage::{Context, Delta, Observation, Outcome, StageRunner};

/// No event tells of a sync: the machine is read again after half a minute.
const RECHECK: std::time::Duration = std::time::Duration::from_secs(30);

/// How long a seeded host may take to report before it is seeded again.
const SEED_AGAIN: std::time::Duration = std::time::Duration::from_secs(300);

/// See the module.
pub struct WaitForHardwareSyncHealthy;

#[async_trait]
impl StageRunner for WaitForHardwareSyncHealthy {
    async fn observe(&self, ctx: &Context<'_>) -> Result<Observation, StageError> {
        if !ctx.maas_site()?.policy.require_hw_sync {
            return Ok(Observation::Done(Delta::said("the site does not ask for hardware sync").skipped()));
        }
        let machine = maas::recent(ctx).await?;
        if let Some(taken) = maas::taken_away(ctx, &machine) {
            return Ok(taken);
        }
        let delta = Delta::said("MAAS receives the hardware sync").seen(ctx, maas::seen(&machine));
        if machine.hardware_sync_is_healthy() {
            return Ok(Observation::Done(delta));
        }
        // Credentials and timer are given to the host anew now and then: they may have been lost. spec: S5 4.6
        if ctx.job.outputs.hw_sync_seeded_at.is_none_or(|at| ctx.now.since(at) >= SEED_AGAIN) {
            return Ok(Observation::Absent);
        }
        Ok(Observation::Waiting { recheck_at: ctx.now + RECHECK, waiting_for: missing(&machine), delta })
    }

    async fn act(&self, ctx: &Context<'_>, _: &str) -> Result<Outcome, StageError> {
        let delta = seed(ctx).await?;
        let waiting_for = "MAAS to receive the hardware sync, which was seeded again".to_owned();
        Ok(Outcome::StillGoing { recheck_at: ctx.now + RECHECK, waiting_for, delta })
    }
}

/// What is still missing, in words.
fn missing(machine: &Machine) -> String {
    let what = if !machine.enable_hw_sync {
        "it to be enabled: the machine was deployed without it"
    } else if machine.last_sync.is_none() {
        "the first report"
    } else if machine.next_sync.is_none() {
        "the next report to be planned"
    } else {
        "reports that come in time"
    };
    format!("the hardware sync of {}: {what}", machine.hostname)
}
