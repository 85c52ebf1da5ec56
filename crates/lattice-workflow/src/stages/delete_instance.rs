//! Deletes the instance of a node that is being removed. spec: S5 10

use async_trait::async_trait;
use lattice_core::job::StageError;

use crate::evidence::{instance_name, own_instance};
use crate::providers::failed;
use crate::stage::{Context, Delta, Observation, Outcome, StageRunner};

/// See the module.
pub struct DeleteInstance;

#[async_trait]
impl StageRunner for DeleteInstance {
    async fn observe(&self, ctx: &Context<'_>) -> Result<Observation, StageError> {
        let name = instance_name(ctx);
        match own_instance(ctx).await? {
            None => Ok(Observation::Done(Delta::said(format!("there is no instance {name}")))),
            Some(_) => Ok(Observation::Absent),
        }
    }

    async fn act(&self, ctx: &Context<'_>, key: &str) -> Result<Outcome, StageError> {
        let name = instance_name(ctx);
        let instances = ctx.tools.providers.instances(ctx.site).await.map_err(failed(ctx.now))?;
        instances.delete(name, key).await.map_err(failed(ctx.now))?;
        Ok(Outcome::Done(Delta::said(format!("{name} deleted"))))
    }
}
