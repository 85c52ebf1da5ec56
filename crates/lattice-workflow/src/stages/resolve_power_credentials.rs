//! Finds the BMC login: overrides first, then the site's default. spec: S5 3.2.1

use async_trait::async_trait;
use lattice_core::job::StageError;

use super::maas;
use crate::stage::{Context, Delta, Observation, Outcome, StageRunner};

/// See the module.
pub struct ResolvePowerCredentials;

#[async_trait]
impl StageRunner for ResolvePowerCredentials {
    async fn observe(&self, _: &Context<'_>) -> Result<Observation, StageError> {
        Ok(Observation::Absent)
    }

    async fn act(&self, ctx: &Context<'_>, _: &str) -> Result<Outcome, StageError> {
        let login = maas::power_login(ctx).await?;
        let mut outputs = ctx.outputs();
        outputs.power_credentials = Some(login.source.clone());
        Ok(Outcome::Done(Delta::said(format!("BMC login: {}", login.source)).outputs(outputs)))
    }
}
