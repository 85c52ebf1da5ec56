//! Takes a node out of the fleet and keeps its identity: the commit of this stage moves it. spec: S5 5.4

use async_trait::async_trait;
use lattice_core::job::StageError;

use crate::stage::{Context, Delta, Observation, Outcome, StageRunner};

/// See the module.
pub struct RetireNode;

#[async_trait]
impl StageRunner for RetireNode {
    async fn observe(&self, _: &Context<'_>) -> Result<Observation, StageError> {
        Ok(Observation::Done(Delta::said("retired, its identity is kept")))
    }

    async fn act(&self, _: &Context<'_>, _: &str) -> Result<Outcome, StageError> {
        Ok(Outcome::Done(Delta::default().skipped()))
    }
}
