//! Until the last allocation of a drained node is gone. spec: S1 "Draining → Drained"

use std::time::Duration;

use async_trait::async_trait;
use lattice_core::job::StageError;
use lattice_core::node::Availability;
use lattice_core::node::availability::AvailabilityEvent;

use crate::stage::{Context, Delta, NodeAsk, Observation, Outcome, StageRunner};

/// Agents report how much runs every ten seconds; half of that keeps the wait short.
const RECHECK: Duration = Duration::from_secs(5);

/// See the module.
pub struct WaitForDrained;

#[async_trait]
impl StageRunner for WaitForDrained {
    async fn observe(&self, ctx: &Context<'_>) -> Result<Observation, StageError> {
        match ctx.node.state.availability {
            Availability::Drained => Ok(Observation::Done(Delta::said("drained").skipped())),
            Availability::Draining => Ok(emptied(ctx).await),
            Availability::Unknown
            | Availability::Booting
            | Availability::Ready
            | Availability::Degraded
            | Availability::Down
            | Availability::Failed => Ok(waiting(
                ctx,
                format!("{} to come back, it is {}; it ends drained then", ctx.node.hostname, ctx.node.state),
            )),
        }
    }

    async fn act(&self, ctx: &Context<'_>, _: &str) -> Result<Outcome, StageError> {
        // Observing never finds the effect absent: work ends by itself.
        Ok(Outcome::StillGoing {
            recheck_at: ctx.now + RECHECK,
            waiting_for: "its allocations to end".to_owned(),
            delta: Delta::default(),
        })
    }
}

/// Whether nothing runs on a draining node any more, as its agent says.
pub(super) async fn emptied(ctx: &Context<'_>) -> Observation {
    match ctx.tools.live_work.live_allocations(ctx.node.id).await {
        Some(0) => {
            let asked = NodeAsk::Require(AvailabilityEvent::Emptied);
            Observation::Done(Delta::said("nothing runs on it any more").ask(asked))
        }
        Some(1) => waiting(ctx, "its last allocation to end".to_owned()),
        Some(left) => waiting(ctx, format!("its {left} allocations to end")),
        None => waiting(ctx, format!("the agent of {} to say what runs", ctx.node.hostname)),
    }
}

fn waiting(ctx: &Context<'_>, waiting_for: String) -> Observation {
    Observation::Waiting { recheck_at: ctx.now + RECHECK, waiting_for, delta: Delta::default() }
}
