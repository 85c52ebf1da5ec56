//! Reads the OpenCHAMI site; its services answer and let us in. spec: S1 "Down → Booting"; S5 4.14

use async_trait::async_trait;
use lattice_core::job::StageError;

use crate::preflight;
use crate::stage::{Context, Delta, Observation, Outcome, StageRunner};

/// See the module.
pub struct LoadOpenchamiSiteConfig;

#[async_trait]
impl StageRunner for LoadOpenchamiSiteConfig {
    async fn observe(&self, _: &Context<'_>) -> Result<Observation, StageError> {
        Ok(Observation::Absent)
    }

    async fn act(&self, ctx: &Context<'_>, _: &str) -> Result<Outcome, StageError> {
        Ok(Outcome::Done(Delta::said(preflight::openchami(ctx).await?)))
    }
}
