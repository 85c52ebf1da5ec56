//! Empties the node: other sensitive work on it ends first. spec: S1 "Sensitive Release Sequence"

use async_trait::async_trait;
use lattice_core::job::StageError;
use lattice_core::node::Availability;
use lattice_core::node::availability::AvailabilityEvent;

use super::RECHECK;
use crate::stage::{Context, Delta, NodeAsk, Observation, Outcome, StageRunner};
use crate::stages::wait_for_drained::emptied;

/// See the module.
pub struct PrepareWipe;

#[async_trait]
impl StageRunner for PrepareWipe {
    async fn observe(&self, ctx: &Context<'_>) -> Result<Observation, StageError> {
        let node = ctx.node;
        let placed = node.ownership.allocations;
        match node.state.availability {
            Availability::Ready | Availability::Degraded => {
                let mut outputs = ctx.outputs();
                outputs.drained = !node.drain_intent;
                let drain = NodeAsk::Require(AvailabilityEvent::Drain);
                let delta = Delta::default().outputs(outputs).ask(drain);
                Ok(moving(ctx, "what runs on it to end", delta))
            }
            Availability::Draining if placed > 0 => {
                Ok(waiting(ctx, format!("its {placed} other allocations to end"), Delta::default()))
            }
            Availability::Draining => Ok(match emptied(ctx).await {
                // The node's row says that it is drained before anything on it is erased.
                Observation::Done(delta) => moving(ctx, "it to be drained", delta),
                waits @ (Observation::Absent
                | Observation::Waiting { .. }
                | Observation::Failed(..)
                | Observation::CannotTell { .. }) => waits,
            }),
            Availability::Drained => Ok(quiet(ctx).await),
            // A wipe that failed left it down; its agent is heard nevertheless.
            Availability::Down => Ok(match is_heard(ctx).await {
                true => quiet(ctx).await,
                false => waiting(ctx, format!("the agent of {} to be heard", node.hostname), Delta::default()),
            }),
            Availability::Unknown | Availability::Booting | Availability::Failed => {
                let why = format!("{} to come back, it is {}", node.hostname, node.state);
                Ok(waiting(ctx, why, Delta::default()))
            }
        }
    }

    async fn act(&self, ctx: &Context<'_>, _: &str) -> Result<Outcome, StageError> {
        // Observing never finds the effect absent: work ends by itself.
        Ok(Outcome::StillGoing {
            recheck_at: ctx.now + RECHECK,
            waiting_for: "what runs on it to end".to_owned(),
            delta: Delta::default(),
        })
    }
}

/// Nothing runs on it, as its agent says now: else a wipe would take running work's data.
async fn quiet(ctx: &Context<'_>) -> Observation {
    match ctx.tools.live_work.live_allocations(ctx.node.id).await {
        Some(0) => Observation::Done(Delta::said("nothing runs on it")),
        Some(left) => waiting(ctx, format!("its {left} allocations to end"), Delta::default()),
        None => waiting(ctx, format!("the agent of {} to say what runs", ctx.node.hostname), Delta::default()),
    }
}

/// Whether the agent of the node was heard within its window.
pub(in crate::stages) async fn is_heard(ctx: &Context<'_>) -> bool {
    let times = ctx.site.heartbeat.times(ctx.node.effective_class());
    let heard = ctx.tools.live_work.last_heard(ctx.node.id).await;
    heard.is_some_and(|at| ctx.now.since(at) < times.window())
}

fn waiting(ctx: &Context<'_>, waiting_for: String, delta: Delta) -> Observation {
    Observation::Waiting { recheck_at: ctx.now + RECHECK / 2, waiting_for, delta }
}

/// The node moves in the commit of this look: it is looked at again at once.
fn moving(ctx: &Context<'_>, waiting_for: &str, delta: Delta) -> Observation {
    Observation::Waiting { recheck_at: ctx.now, waiting_for: waiting_for.to_owned(), delta }
}
