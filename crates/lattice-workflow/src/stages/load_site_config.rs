//! Reads the site and its secrets; the region answers and knows the key. spec: S5 4.3, 4.14

use async_trait::async_trait;
use lattice_core::failure::FailureClass;
use lattice_core::job::StageError;

use super::maas;
use crate::preflight;
use crate::providers::failed;
use crate::stage::{Context, Delta, Observation, Outcome, StageRunner, error};

/// See the module.
pub struct LoadSiteConfig;

#[async_trait]
impl StageRunner for LoadSiteConfig {
    async fn observe(&self, _: &Context<'_>) -> Result<Observation, StageError> {
        Ok(Observation::Absent)
    }

    async fn act(&self, ctx: &Context<'_>, _: &str) -> Result<Outcome, StageError> {
        preflight::site_is_active(ctx)?;
        let site = ctx.maas_site()?;
        let region = maas::region(ctx).await?;
        let version = region.client().version().await.map_err(failed(ctx.now))?;
        let user = region.client().whoami().await.map_err(failed(ctx.now))?;
        if !user.is_superuser {
            return Err(error(
                FailureClass::SiteCapabilityMissing,
                "not_an_administrator",
                format!("the site's API key is {}'s, who is no administrator of {}", user.username, site.api_base_url),
            ));
        }
        Ok(Outcome::Done(Delta::said(format!("MAAS {} answers, as {}", version.version, user.username))))
    }
}
