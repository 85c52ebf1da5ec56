//! Switches the node's machine on, until its power is seen to be on. spec: S1 "Down → Booting"

use std::time::Duration;

use async_trait::async_trait;
use lattice_core::bmc::BootDevice;
use lattice_core::job::{JobInput, StageError};
use lattice_core::node::PowerFact;

use crate::power::{needed_bmc, of_bmc, order_in_progress, power, switch_on};
use crate::stage::{Context, Delta, Observation, Outcome, StageRunner};

/// How soon the power is looked at again.
const RECHECK: Duration = Duration::from_secs(5);

/// What the machine is to start from this once, where its BMC was not told yet. One that is booted again by the same job,
/// because it came up ill or was resumed, starts as always.
pub(super) fn untold(ctx: &Context<'_>) -> Option<BootDevice> {
    let JobInput::Reboot { boot } = ctx.job.input else { return None };
    boot.filter(|_| !ctx.job.outputs.boot_told)
}

/// See the module.
pub struct PowerOn;

#[async_trait]
impl StageRunner for PowerOn {
    async fn observe(&self, ctx: &Context<'_>) -> Result<Observation, StageError> {
        let power = power(ctx).await?;
        match power.fact {
            PowerFact::On => {
                let mut outputs = ctx.outputs();
                outputs.power_order = None;
                Ok(Observation::Done(Delta::said("its power is on").outputs(outputs).seen(ctx, power.seen)))
            }
            PowerFact::Off | PowerFact::Unknown => Ok(order_in_progress(ctx).await?.unwrap_or(Observation::Absent)),
        }
    }

    async fn act(&self, ctx: &Context<'_>, key: &str) -> Result<Outcome, StageError> {
        if let Some(device) = untold(ctx) {
            // Kept before it is switched on: told again after a death, it is the same, for nothing started since.
            needed_bmc(ctx).await?.boot_once(device).await.map_err(of_bmc(ctx.now))?;
            let mut outputs = ctx.outputs();
            outputs.boot_told = true;
            return Ok(Outcome::StillGoing {
                recheck_at: ctx.now,
                waiting_for: format!("{} to be switched on", ctx.node.hostname),
                delta: Delta::said(format!("its BMC has it start from {device}, this once")).outputs(outputs),
            });
        }
        let delta = switch_on(ctx, key).await?;
        Ok(Outcome::StillGoing {
            recheck_at: ctx.now + RECHECK,
            waiting_for: format!("the power of {} to come on", ctx.node.hostname),
            delta,
        })
    }
}
