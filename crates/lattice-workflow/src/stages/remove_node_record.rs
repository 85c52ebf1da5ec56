//! Ends the identity of a node, on fresh evidence that its OS or instance is gone. spec: S5 5.4, 5.8

use std::time::Duration;

use async_trait::async_trait;
use lattice_core::job::StageError;

use crate::enrollment;
use crate::evidence::{Evidence, evidence};
use crate::stage::{Context, Delta, NodeAsk, Observation, Outcome, StageRunner};

/// How soon unclear evidence is looked at again.
const RECHECK: Duration = Duration::from_secs(15);

/// See the module.
pub struct RemoveNodeRecord;

#[async_trait]
impl StageRunner for RemoveNodeRecord {
    async fn observe(&self, ctx: &Context<'_>) -> Result<Observation, StageError> {
        match evidence(ctx).await? {
            Evidence::Gone { how } => {
                let mut delta = Delta::said(format!("identity ended: {how}")).ask(NodeAsk::ProvenGone);
                delta.changes = enrollment::revoke_all(ctx.tools, ctx.node.id, ctx.now).await?;
                Ok(Observation::Done(delta))
            }
            Evidence::Waits { for_what } => Ok(Observation::Waiting {
                recheck_at: ctx.now + RECHECK,
                waiting_for: for_what,
                delta: Delta::default(),
            }),
        }
    }

    async fn act(&self, _: &Context<'_>, _: &str) -> Result<Outcome, StageError> {
        Ok(Outcome::Done(Delta::default().skipped()))
    }
}
