//! Reads the LXD site; its server answers and lets us in. spec: S5 10, 4.14

use async_trait::async_trait;
use lattice_core::job::StageError;

use crate::preflight;
use crate::providers::failed;
use crate::stage::{Context, Delta, Observation, Outcome, StageRunner};

/// See the module.
pub struct LoadLxdSiteConfig;

#[async_trait]
impl StageRunner for LoadLxdSiteConfig {
    async fn observe(&self, _: &Context<'_>) -> Result<Observation, StageError> {
        Ok(Observation::Absent)
    }

    async fn act(&self, ctx: &Context<'_>, _: &str) -> Result<Outcome, StageError> {
        preflight::site_is_active(ctx)?;
        let site = ctx.lxd_site()?;
        let instances = ctx.tools.providers.instances(ctx.site).await.map_err(failed(ctx.now))?;
        // Reading one name proves the address, the certificates and the right to read; a full list would cost more.
        instances.observe(&ctx.job.hostname).await.map_err(failed(ctx.now))?;
        Ok(Outcome::Done(Delta::said(format!("{} answers", site.api_url))))
    }
}
