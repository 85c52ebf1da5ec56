//! Reads the site and its secrets; the region answers and has what the onboarding will need. spec: S5 4.3, 4.14

use async_trait::async_trait;
use lattice_core::job::StageError;

use crate::preflight;
use crate::stage::{Context, Delta, Observation, Outcome, StageRunner};

/// See the module.
pub struct LoadSiteConfig;

#[async_trait]
impl StageRunner for LoadSiteConfig {
    async fn observe(&self, _: &Context<'_>) -> Result<Observation, StageError> {
        Ok(Observation::Absent)
    }

    async fn act(&self, ctx: &Context<'_>, _: &str) -> Result<Outcome, StageError> {
        Ok(Outcome::Done(Delta::said(preflight::maas(ctx).await?)))
    }
}
