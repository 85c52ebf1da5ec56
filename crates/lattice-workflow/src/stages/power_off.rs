//! Switches the node's machine off, until its power is seen to be off: the node boots from then on. spec: S1

use std::time::Duration;

use async_trait::async_trait;
use lattice_core::job::StageError;
use lattice_core::node::availability::AvailabilityEvent;
use lattice_core::node::{Availability, PowerFact};
use lattice_core::site::SiteProvider;

use crate::power::{Off, needed_bmc, of_bmc, order_in_progress, power, switch_off};
use crate::stage::{Context, Delta, NodeAsk, Observation, Outcome, StageRunner};
use crate::stages::power_on::untold;

/// How soon the power is looked at again: an OS needs some seconds to stop.
const RECHECK: Duration = Duration::from_secs(10);
/// How long a host that came up ill may take to become well: its agent looks again 15 s and 45 s after it started.
const SETTLES: Duration = Duration::from_secs(60);
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
                let boot_timeout = SWITCHING + boot_timeout(ctx);
                let mut outputs = ctx.outputs();
                outputs.power_order = None;
                outputs.off_at = Some(ctx.now);
                outputs.ill_boots = ctx.node.boot_failures;
                let event = if came_up_ill(ctx) { AvailabilityEvent::BootStarted } else { AvailabilityEvent::Reboot };
                let boots = NodeAsk::Availability { event, boot_timeout };
                let delta = Delta::said("its power is off").outputs(outputs).seen(ctx, power.seen);
                Ok(Observation::Done(delta.ask(boots)))
            }
            PowerFact::On | PowerFact::Unknown => {
                if let Some(settles) = settles(ctx) {
                    return Ok(settles);
                }
                Ok(order_in_progress(ctx).await?.unwrap_or(Observation::Absent))
            }
        }
    }

    async fn act(&self, ctx: &Context<'_>, key: &str) -> Result<Outcome, StageError> {
        if let Some(device) = untold(ctx) {
            // Before anything is touched.
            needed_bmc(ctx).await?.offers_boot(device).await.map_err(of_bmc(ctx.now))?;
        }
        // What answers is asked to stop; what does not, and what did not stop in its time, loses its power.
        let answers = ctx.node.state.availability == Availability::Drained || came_up_ill(ctx);
        let how = if answers && ctx.window == 1 { Off::Asked } else { Off::Cut };
        let delta = switch_off(ctx, how, key).await?;
        Ok(Outcome::StillGoing {
            recheck_at: ctx.now + RECHECK,
            waiting_for: format!("the power of {} to go off", ctx.node.hostname),
            delta,
        })
    }
}

/// Drivers may come later than the agent, which looks again: a host that becomes well is left on.
fn settles(ctx: &Context<'_>) -> Option<Observation> {
    let recheck_at = ctx.job.state.stage_entered_at + SETTLES;
    (came_up_ill(ctx) && ctx.now < recheck_at).then(|| Observation::Waiting {
        recheck_at,
        waiting_for: format!("{} to become well by itself, before it is booted again", ctx.node.hostname),
        delta: Delta::default(),
    })
}

/// It came up, its agent registered, and it is not well: it is booted again.
fn came_up_ill(ctx: &Context<'_>) -> bool {
    ctx.node.state.availability == Availability::Booting && ctx.node.boot_failures > 0
}

/// What boots from the network takes longer than what starts from its disk.
fn boot_timeout(ctx: &Context<'_>) -> Duration {
    match &ctx.site.provider {
        SiteProvider::Openchami(site) => site.boot_timeout(),
        SiteProvider::Manual | SiteProvider::Maas(_) | SiteProvider::Lxd(_) => ctx.site.heartbeat.boot_timeout(),
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
