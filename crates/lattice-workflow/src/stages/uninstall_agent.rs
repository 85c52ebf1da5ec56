//! Until the agent is gone from the host, by its own word or by evidence. spec: S5 5.4, 5.8; design: 3-jobs

use std::time::Duration;

use async_trait::async_trait;
use lattice_core::job::StageError;

use crate::evidence::{Evidence, evidence};
use crate::stage::{Context, Delta, Observation, Outcome, StageRunner};

/// How soon it is looked at again: a person or a provider is at work.
const RECHECK: Duration = Duration::from_secs(15);

/// See the module.
pub struct UninstallAgent;

#[async_trait]
impl StageRunner for UninstallAgent {
    async fn observe(&self, ctx: &Context<'_>) -> Result<Observation, StageError> {
        Ok(match evidence(ctx).await? {
            Evidence::Gone { how } => Observation::Done(Delta::said(how)),
            Evidence::Waits { for_what } => {
                Observation::Waiting { recheck_at: ctx.now + RECHECK, waiting_for: for_what, delta: Delta::default() }
            }
        })
    }

    async fn act(&self, _: &Context<'_>, _: &str) -> Result<Outcome, StageError> {
        Ok(Outcome::Done(Delta::default().skipped()))
    }
}
