//! Until the last allocation of a drained node is gone; past the drain's deadline, what still runs is stopped.
//! spec: S1 "Draining → Drained"

use std::time::Duration;

use async_trait::async_trait;
use lattice_core::actor::Actor;
use lattice_core::allocation::Allocation;
use lattice_core::command::{Request, allocation};
use lattice_core::failure::FailureClass;
use lattice_core::job::{JobInput, StageError};
use lattice_core::node::Availability;
use lattice_core::node::availability::AvailabilityEvent;
use lattice_core::time::{Timestamp, human};

use crate::stage::{Context, Delta, NodeAsk, Observation, Outcome, StageRunner, error, store_failed};

/// Agents report how much runs every ten seconds; half of that keeps the wait short.
pub(super) const RECHECK: Duration = Duration::from_secs(5);

/// See the module.
pub struct WaitForDrained;

#[async_trait]
impl StageRunner for WaitForDrained {
    async fn observe(&self, ctx: &Context<'_>) -> Result<Observation, StageError> {
        match ctx.node.state.availability {
            Availability::Drained => Ok(Observation::Done(Delta::said("drained").skipped())),
            Availability::Draining => match (emptied(ctx).await, Asked::of(ctx).deadline) {
                (Observation::Waiting { .. }, Some(deadline)) if ctx.now >= deadline => past(ctx).await,
                (Observation::Waiting { waiting_for, delta, .. }, Some(deadline)) => Ok(Observation::Waiting {
                    recheck_at: (ctx.now + RECHECK).min(deadline),
                    waiting_for: format!(
                        "{waiting_for}; what is left in {} is stopped",
                        human(deadline.since(ctx.now))
                    ),
                    delta,
                }),
                (observation, _) => Ok(observation),
            },
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

    /// The deadline passed: what may be stopped is stopped. Asking again changes nothing.
    async fn act(&self, ctx: &Context<'_>, _: &str) -> Result<Outcome, StageError> {
        let request = Request {
            actor: Actor::system("drain"),
            reason: ctx.job.reason.clone(),
            now: ctx.now,
            ids: &*ctx.tools.ids,
            op: ctx.op(),
            correlation: ctx.job.correlation,
        };
        let mut delta = Delta::default();
        let mut stopped = 0_usize;
        for one in placed(ctx).await? {
            let random = ctx.tools.entropy.bytes32();
            let nonce = std::array::from_fn(|at| random[at]);
            let evicted = allocation::evict(&request, &one, ctx.node, nonce)
                .map_err(|refused| error(FailureClass::StateAmbiguity, "not_stopped", refused.to_string()))?;
            if let Some(changes) = evicted {
                stopped += 1;
                delta.changes.extend(changes);
            }
        }
        let waiting_for = format!("{stopped} allocations to be stopped: the deadline of the drain passed");
        delta.message.clone_from(&waiting_for);
        Ok(Outcome::StillGoing { recheck_at: ctx.now + RECHECK, waiting_for, delta })
    }
}

/// What a drain was asked for with; of another job nothing.
#[derive(Default)]
pub(super) struct Asked {
    /// Whether checkpointable work is asked to save its state.
    pub(super) urgent: bool,
    /// When what still runs is stopped; none: never.
    deadline: Option<Timestamp>,
    /// How many allocations ran when it was asked for.
    allocations: u32,
}

impl Asked {
    pub(super) fn of(ctx: &Context<'_>) -> Self {
        match ctx.job.input {
            JobInput::Drain { urgent, allocations, .. } => {
                Self { urgent, deadline: ctx.job.drain_deadline(), allocations }
            }
            JobInput::OnboardMaas { .. }
            | JobInput::OnboardLxd { .. }
            | JobInput::OnboardOpenchami { .. }
            | JobInput::OnboardManual { .. }
            | JobInput::Retire { .. }
            | JobInput::Remove
            | JobInput::Reboot { .. }
            | JobInput::Reimage { .. }
            | JobInput::ReimageMaas { .. }
            | JobInput::InvestigateBmc
            | JobInput::SecureErase { .. }
            | JobInput::WipeSensitive { .. } => Self::default(),
        }
    }
}

/// Past the deadline: absent while something is left that may be stopped.
async fn past(ctx: &Context<'_>) -> Result<Observation, StageError> {
    let placed = placed(ctx).await?;
    if placed.iter().any(|one| allocation::is_evictable(one, ctx.node)) {
        return Ok(Observation::Absent);
    }
    let ending = placed.iter().filter(|one| one.evicted).count();
    let theirs = placed.len() - ending;
    let waiting_for = match theirs {
        0 => format!("{ending} allocations to be stopped: the deadline of the drain passed"),
        _ => format!(
            "{theirs} allocations that only their user or an operator ends, and {ending} to be stopped: the deadline of \
             the drain passed"
        ),
    };
    Ok(waiting(ctx, waiting_for))
}

async fn placed(ctx: &Context<'_>) -> Result<Vec<Allocation>, StageError> {
    ctx.tools.store.placed_on(ctx.node.id).await.map_err(store_failed)
}

/// Whether nothing runs on a draining node any more, as its agent says.
pub(crate) async fn emptied(ctx: &Context<'_>) -> Observation {
    let asked = Asked::of(ctx).allocations;
    match ctx.tools.live_work.live_allocations(ctx.node.id).await {
        Some(0) => {
            let asked = NodeAsk::Require(AvailabilityEvent::Emptied);
            Observation::Done(Delta::said("nothing runs on it any more").ask(asked))
        }
        Some(left) if asked > left => waiting(ctx, format!("{left} of {asked} allocations to end")),
        Some(1) => waiting(ctx, "its last allocation to end".to_owned()),
        Some(left) => waiting(ctx, format!("its {left} allocations to end")),
        None => waiting(ctx, format!("the agent of {} to say what runs", ctx.node.hostname)),
    }
}

fn waiting(ctx: &Context<'_>, waiting_for: String) -> Observation {
    Observation::Waiting { recheck_at: ctx.now + RECHECK, waiting_for, delta: Delta::default() }
}
