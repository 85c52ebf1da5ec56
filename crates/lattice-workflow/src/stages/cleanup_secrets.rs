//! Withdraws what tokens are left of a removed node. spec: S5 5.4 CleanupSecrets

use async_trait::async_trait;
use lattice_core::job::StageError;

use crate::enrollment;
use crate::stage::{Context, Delta, Observation, Outcome, StageRunner};

/// See the module.
pub struct CleanupSecrets;

#[async_trait]
impl StageRunner for CleanupSecrets {
    async fn observe(&self, ctx: &Context<'_>) -> Result<Observation, StageError> {
        let mut delta = Delta::said("tokens withdrawn");
        delta.changes = enrollment::revoke_all(ctx.tools, ctx.node.id, ctx.now).await?;
        Ok(Observation::Done(if delta.changes.is_empty() { delta.skipped() } else { delta }))
    }

    async fn act(&self, _: &Context<'_>, _: &str) -> Result<Outcome, StageError> {
        Ok(Outcome::Done(Delta::default().skipped()))
    }
}
