//! Takes a node out of scheduling: the commit of this stage moves it to draining. spec: S2 3.2, S5 5.4

use async_trait::async_trait;
use lattice_core::job::StageError;
use lattice_core::node::Status;

use crate::stage::{Context, Delta, Observation, Outcome, StageRunner};

/// See the module.
pub struct DisableNode;

#[async_trait]
impl StageRunner for DisableNode {
    async fn observe(&self, ctx: &Context<'_>) -> Result<Observation, StageError> {
        let delta = match ctx.node.state.status {
            Status::Draining => Delta::said("it is draining").skipped(),
            Status::BootstrapIssued
            | Status::Enrolling
            | Status::Active
            | Status::Offline
            | Status::Quarantined
            | Status::Retired
            | Status::Removing
            | Status::Deleted => Delta::said("taken out of scheduling"),
        };
        Ok(Observation::Done(delta))
    }

    async fn act(&self, _: &Context<'_>, _: &str) -> Result<Outcome, StageError> {
        Ok(Outcome::Done(Delta::default().skipped()))
    }
}
