//! Until nothing runs on a node that is being retired. spec: S2 3.3, S5 5.8

use async_trait::async_trait;
use lattice_core::job::StageError;
use lattice_core::node::Availability;

use super::wait_for_drained::{RECHECK, emptied};
use crate::stage::{Context, Delta, Observation, Outcome, StageRunner};

/// See the module.
pub struct DrainNode;

#[async_trait]
impl StageRunner for DrainNode {
    async fn observe(&self, ctx: &Context<'_>) -> Result<Observation, StageError> {
        match ctx.node.state.availability {
            Availability::Draining => Ok(emptied(ctx).await),
            Availability::Down if ctx.node.ownership.allocations > 0 => Ok(Observation::Waiting {
                recheck_at: ctx.now + RECHECK,
                waiting_for: "the brake that holds back the loss of what runs on it".to_owned(),
                delta: Delta::default(),
            }),
            // A node that is down, and not braked, or failed lost its ownership in that very commit: nothing of ours runs there.
            Availability::Drained
            | Availability::Down
            | Availability::Failed
            | Availability::Unknown
            | Availability::Booting => {
                Ok(Observation::Done(Delta::said(format!("nothing runs on it, it is {}", ctx.node.state.availability))))
            }
            // Retiring led from these to draining in its own commit: the row is about to be read again.
            Availability::Ready | Availability::Degraded => Ok(Observation::Waiting {
                recheck_at: ctx.now,
                waiting_for: format!("{} to begin to drain", ctx.node.hostname),
                delta: Delta::default(),
            }),
        }
    }

    async fn act(&self, _: &Context<'_>, _: &str) -> Result<Outcome, StageError> {
        Ok(Outcome::Done(Delta::default().skipped()))
    }
}
