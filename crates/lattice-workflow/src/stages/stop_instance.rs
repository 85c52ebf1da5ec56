//! Stops the instance of a node that is being removed. spec: S5 10

use async_trait::async_trait;
use lattice_core::job::StageError;
use lattice_providers::observer::MachineState;
use lattice_providers::provider::Stop;

use crate::evidence::{instance_name, own_instance};
use crate::providers::{failed, seen};
use crate::stage::{Context, Delta, Observation, Outcome, StageRunner};

/// See the module.
pub struct StopInstance;

#[async_trait]
impl StageRunner for StopInstance {
    async fn observe(&self, ctx: &Context<'_>) -> Result<Observation, StageError> {
        let name = instance_name(ctx);
        match own_instance(ctx).await? {
            None => Ok(Observation::Done(Delta::said(format!("there is no instance {name}")).skipped())),
            Some(found) if found.state == MachineState::Stopped => {
                Ok(Observation::Done(Delta::said(format!("{name} is stopped")).seen(ctx, seen(&found))))
            }
            Some(_) => Ok(Observation::Absent),
        }
    }

    async fn act(&self, ctx: &Context<'_>, key: &str) -> Result<Outcome, StageError> {
        let name = instance_name(ctx);
        let instances = ctx.tools.providers.instances(ctx.site).await.map_err(failed(ctx.now))?;
        instances.stop(name, Stop::Hard, key).await.map_err(failed(ctx.now))?;
        Ok(Outcome::Done(Delta::said(format!("{name} stopped"))))
    }
}
