//! Switches the node's machine off, until its power is seen to be off: the node boots from then on. spec: S1

use std::time::Duration;

use async_trait::async_trait;
use lattice_core::job::StageError;
use lattice_core::node::availability::AvailabilityEvent;
use lattice_core::node::{Availability, PowerFact};

use crate::power::{Off, power, switch_off};
use crate::stage::{Context, Delta, NodeAsk, Observation, Outcome, StageRunner};

/// How soon the power is looked at again: an OS needs some seconds to stop.
const RECHECK: Duration = Duration::from_secs(10);
/// What switching it on may take besides the boot itself.
const SWITCHING: Duration = Duration::from_secs(300);

/// See the module.
pub struct PowerOff;

#[async_trait]
impl StageRunner for PowerOff {
    async fn observe(&self, ctx: &Context<'_>) -> Result<Observation, StageError> {
        if let Some(back) = is_back(ctx) {
            return Ok(Observation::Done(back));
        }
        let power = power(ctx).await?;
        match power.fact {
            PowerFact::Off => {
                let boot_timeout = SWITCHING + ctx.site.heartbeat.boot_timeout();
                let boots = NodeAsk::Availability { event: AvailabilityEvent::Reboot, boot_timeout };
                Ok(Observation::Done(Delta::said("its power is off").seen(ctx, power.seen).ask(boots)))
            }
            PowerFact::On | PowerFact::Unknown => Ok(Observation::Absent),
        }
    }

    async fn act(&self, ctx: &Context<'_>, key: &str) -> Result<Outcome, StageError> {
        // What answers is asked to stop; what does not, and what did not stop in its time, loses its power.
        let answers = ctx.node.state.availability == Availability::Drained && ctx.window == 1;
        let how = if answers { Off::Asked } else { Off::Cut };
        switch_off(ctx, how, key).await?;
        Ok(Outcome::StillGoing {
            recheck_at: ctx.now + RECHECK,
            waiting_for: format!("the power of {} to go off", ctx.node.hostname),
            delta: Delta::default(),
        })
    }
}

/// It came back by itself meanwhile, and may have work: it is not switched off any more.
fn is_back(ctx: &Context<'_>) -> Option<Delta> {
    match ctx.node.state.availability {
        Availability::Ready | Availability::Degraded | Availability::Draining => {
            Some(Delta::said(format!("it is {} again: it is left on", ctx.node.state.availability)).skipped())
        }
        Availability::Unknown
        | Availability::Booting
        | Availability::Down
        | Availability::Drained
        | Availability::Failed => None,
    }
}
