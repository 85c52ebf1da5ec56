//! Until the instance runs. spec: S5 10

use std::time::Duration;

use async_trait::async_trait;
use lattice_core::failure::FailureClass;
use lattice_core::job::StageError;
use lattice_providers::observer::MachineState;

use crate::providers::{failed, seen};
use crate::stage::{Context, Delta, NodeAsk, Observation, Outcome, StageRunner, error};

/// An instance starts within seconds: look again after one.
const RECHECK: Duration = Duration::from_secs(1);

/// See the module.
pub struct WaitForRunning;

#[async_trait]
impl StageRunner for WaitForRunning {
    async fn observe(&self, ctx: &Context<'_>) -> Result<Observation, StageError> {
        let instances = ctx.tools.providers.instances(ctx.site).await.map_err(failed(ctx.now))?;
        let name = ctx.provider_ref()?;
        let Some(found) = instances.observe(name).await.map_err(failed(ctx.now))? else {
            return Err(error(
                FailureClass::StateAmbiguity,
                "instance_deleted",
                format!("instance {name} is not there any more"),
            ));
        };
        match found.state {
            MachineState::Running => {
                let delta = Delta::said(format!("{name} is {}", found.status)).seen(ctx, seen(&found));
                Ok(Observation::Done(match found.addresses.first() {
                    Some(address) => delta.ask(NodeAsk::Address(address.to_string())),
                    None => delta,
                }))
            }
            MachineState::Stopped => Ok(Observation::Absent),
            MachineState::Failed => Err(error(
                FailureClass::UpstreamTransient,
                "instance_failed",
                format!("instance {name} is {}", found.status),
            )),
            MachineState::Changing | MachineState::Unknown => Ok(Observation::Waiting {
                recheck_at: ctx.now + RECHECK,
                waiting_for: format!("{name} to run; it is {}", found.status),
                delta: Delta::default().seen(ctx, seen(&found)),
            }),
        }
    }

    async fn act(&self, ctx: &Context<'_>, key: &str) -> Result<Outcome, StageError> {
        let name = ctx.provider_ref()?;
        let instances = ctx.tools.providers.instances(ctx.site).await.map_err(failed(ctx.now))?;
        instances.start(name, key).await.map_err(failed(ctx.now))?;
        Ok(Outcome::StillGoing {
            recheck_at: ctx.now + RECHECK,
            waiting_for: format!("{name} to run; it was started"),
            delta: Delta::default(),
        })
    }
}
