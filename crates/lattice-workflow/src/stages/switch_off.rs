//! Switches the machine off and leaves it off, before its drives are erased; or sees that nothing runs on it, where its BMC
//! reaches its drives only while it is on.

use std::time::Duration;

use async_trait::async_trait;
use lattice_core::failure::FailureClass;
use lattice_core::job::{JobInput, StageError};
use lattice_core::node::{Availability, PowerFact};

use super::wipe::is_heard;
use crate::power::{Off, Power, order_in_progress, power, switch_off};
use crate::stage::{Context, Delta, Observation, Outcome, StageRunner, error};

/// How soon it is looked at again: an OS needs some seconds to stop.
const RECHECK: Duration = Duration::from_secs(10);

/// See the module.
pub struct SwitchOff;

#[async_trait]
impl StageRunner for SwitchOff {
    async fn observe(&self, ctx: &Context<'_>) -> Result<Observation, StageError> {
        match idle(ctx).await? {
            Idle::Seen { how, power } => {
                let mut outputs = ctx.outputs();
                outputs.power_order = None;
                let delta = Delta::said(how).outputs(outputs);
                Ok(Observation::Done(match power {
                    Some(power) => delta.seen(ctx, power.seen),
                    None => delta,
                }))
            }
            Idle::IsOn => Ok(order_in_progress(ctx).await?.unwrap_or(Observation::Absent)),
            Idle::Waits { for_what } => Ok(Observation::Waiting {
                recheck_at: ctx.now + RECHECK,
                waiting_for: for_what,
                delta: Delta::default(),
            }),
        }
    }

    async fn act(&self, ctx: &Context<'_>, key: &str) -> Result<Outcome, StageError> {
        // What answers is asked to stop; what does not, and what did not stop in its time, loses its power.
        let answers = ctx.node.state.availability == Availability::Drained;
        let how = if answers && ctx.window == 1 { Off::Asked } else { Off::Cut };
        let delta = switch_off(ctx, how, key).await?;
        let waiting_for = format!("the power of {} to go off", ctx.node.hostname);
        Ok(Outcome::StillGoing { recheck_at: ctx.now + RECHECK, waiting_for, delta })
    }
}

/// Whether something may run on a machine whose drives are to be erased.
pub(super) enum Idle {
    /// Nothing does: that was seen now.
    Seen {
        /// How, for people.
        how: String,
        /// The power, where that was looked at.
        power: Option<Power>,
    },
    /// It is on, or nobody can tell.
    IsOn,
    /// It may stay on, and nobody has said that nothing runs.
    Waits {
        /// For what, for people.
        for_what: String,
    },
}

/// Looks, now, whether something may run on the machine.
///
/// # Errors
/// The node came back; its power cannot be read.
pub(super) async fn idle(ctx: &Context<'_>) -> Result<Idle, StageError> {
    let node = ctx.node;
    if node.ownership.allocations > 0 || came_back(node.state.availability) {
        let why = format!(
            "{host} is {} and may have work: `lattice node disable {host}`, then resume; or cancel this job, and drain it",
            node.state,
            host = node.hostname
        );
        return Err(error(FailureClass::StateAmbiguity, "came_back", why));
    }
    if !matches!(ctx.job.input, JobInput::SecureErase { powered_on: true, .. }) {
        let power = power(ctx).await?;
        return Ok(match power.fact {
            PowerFact::Off => Idle::Seen { how: "its power is off".to_owned(), power: Some(power) },
            PowerFact::On | PowerFact::Unknown => Idle::IsOn,
        });
    }
    if ctx.job.state.decisions.os_gone {
        return Ok(Idle::Seen { how: "its OS is gone, as an operator says".to_owned(), power: None });
    }
    let running = ctx.tools.live_work.live_allocations(node.id).await;
    Ok(match running.filter(|_| node.state.availability == Availability::Drained) {
        Some(0) if is_heard(ctx).await => {
            Idle::Seen { how: "nothing runs on it, as its agent says".to_owned(), power: None }
        }
        Some(left) if left > 0 => Idle::Waits { for_what: format!("its {left} allocations to end") },
        Some(_) | None => Idle::Waits {
            for_what: format!(
                "the agent of {} to say that nothing runs there, or an operator's word that its OS is gone: \
                 `lattice job resume {} --os-gone`",
                node.hostname, ctx.job.id
            ),
        },
    })
}

const fn came_back(availability: Availability) -> bool {
    match availability {
        Availability::Ready | Availability::Degraded | Availability::Draining | Availability::Booting => true,
        Availability::Unknown | Availability::Drained | Availability::Down | Availability::Failed => false,
    }
}
