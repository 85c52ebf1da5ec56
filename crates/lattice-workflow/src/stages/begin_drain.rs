//! Asks for the drain. spec: S1 "Drain"

use async_trait::async_trait;
use lattice_core::failure::FailureClass;
use lattice_core::job::{StageError, UndoKind};
use lattice_core::node::Availability;
use lattice_core::node::availability::AvailabilityEvent;

use super::wait_for_drained::Asked;
use crate::stage::{Context, Delta, NodeAsk, Observation, Outcome, StageRunner, error};

/// See the module.
pub struct BeginDrain;

#[async_trait]
impl StageRunner for BeginDrain {
    async fn observe(&self, ctx: &Context<'_>) -> Result<Observation, StageError> {
        match ctx.node.state.availability {
            Availability::Draining | Availability::Drained => {
                Ok(Observation::Done(Delta::said("the drain was asked for").skipped()))
            }
            // The command that makes the job usually begins the drain in the same commit; if not, this does.
            Availability::Ready | Availability::Degraded => {
                let event = match Asked::of(ctx).urgent {
                    true => AvailabilityEvent::DrainUrgently,
                    false => AvailabilityEvent::Drain,
                };
                Ok(Observation::Done(Delta::said("drain begun").ask(NodeAsk::Require(event))))
            }
            Availability::Unknown | Availability::Booting | Availability::Down | Availability::Failed => Err(error(
                FailureClass::InputConfigError,
                "nothing_to_drain",
                format!("{} is {}: nothing runs on it that could be drained", ctx.node.hostname, ctx.node.state),
            )),
        }
    }

    async fn act(&self, _: &Context<'_>, _: &str) -> Result<Outcome, StageError> {
        Ok(Outcome::Done(Delta::default().skipped()))
    }

    async fn undo(&self, ctx: &Context<'_>, _: UndoKind, _: &str) -> Result<Outcome, StageError> {
        match ctx.node.state.availability {
            Availability::Draining | Availability::Drained => {
                let undrain = NodeAsk::Require(AvailabilityEvent::Undrain);
                Ok(Outcome::Done(Delta::said("drain taken back").ask(undrain)))
            }
            Availability::Unknown
            | Availability::Booting
            | Availability::Ready
            | Availability::Degraded
            | Availability::Down
            | Availability::Failed => Ok(Outcome::Done(Delta::said("nothing is draining").skipped())),
        }
    }
}
