//! Creates the instance, once: its stamp tells whose it is. spec: S5 10

use std::collections::BTreeMap;
use std::time::Duration;

use async_trait::async_trait;
use lattice_core::failure::FailureClass;
use lattice_core::job::{StageError, UndoKind};
use lattice_core::node::availability::AvailabilityEvent;
use lattice_providers::observer::MachineObservation;
use lattice_providers::provider::{NewInstance, Stop};

use crate::providers::{failed, seen};
use crate::stage::{Context, Delta, NodeAsk, Observation, Outcome, StageRunner, error};

/// See the module.
pub struct CreateLxdInstance;

#[async_trait]
impl StageRunner for CreateLxdInstance {
    async fn observe(&self, ctx: &Context<'_>) -> Result<Observation, StageError> {
        let instances = ctx.tools.providers.instances(ctx.site).await.map_err(failed(ctx.now))?;
        match instances.observe(&ctx.job.hostname).await.map_err(failed(ctx.now))? {
            None => Ok(Observation::Absent),
            Some(found) if is_ours(ctx, &found) => Ok(Observation::Done(created(ctx, &found)?)),
            Some(found) => Err(error(
                FailureClass::StateAmbiguity,
                "instance_not_ours",
                format!("an instance named {} is there, which this job did not create", found.name),
            )),
        }
    }

    async fn act(&self, ctx: &Context<'_>, key: &str) -> Result<Outcome, StageError> {
        let site = ctx.lxd_site()?;
        let instances = ctx.tools.providers.instances(ctx.site).await.map_err(failed(ctx.now))?;
        let new = NewInstance {
            name: ctx.job.hostname.clone(),
            image: site.image.clone(),
            profiles: vec![site.default_profile.clone()],
            config: BTreeMap::new(),
            user_data: None,
            loopback_port: loopback_port(&ctx.tools.bootstrap.server),
        };
        let found = instances.create(&new, key).await.map_err(failed(ctx.now))?.into_observation();
        instances.start(&found.provider_ref, key).await.map_err(failed(ctx.now))?;
        Ok(Outcome::Done(created(ctx, &found)?))
    }

    async fn undo(&self, ctx: &Context<'_>, _: UndoKind, key: &str) -> Result<Outcome, StageError> {
        let instances = ctx.tools.providers.instances(ctx.site).await.map_err(failed(ctx.now))?;
        let name = &ctx.job.hostname;
        // Only what this job made is unmade.
        match instances.observe(name).await.map_err(failed(ctx.now))? {
            Some(found) if is_ours(ctx, &found) => {
                instances.stop(name, Stop::Hard, key).await.map_err(failed(ctx.now))?;
                instances.delete(name, key).await.map_err(failed(ctx.now))?;
            }
            Some(_) | None => return Ok(Outcome::Done(undone(ctx, "no instance of this job").skipped())),
        }
        match instances.observe(name).await.map_err(failed(ctx.now))? {
            None => Ok(Outcome::Done(undone(ctx, &format!("instance {name} deleted")))),
            Some(found) => Err(error(
                FailureClass::UpstreamTransient,
                "instance_not_deleted",
                format!("instance {name} is still there, {}", found.status),
            )),
        }
    }
}

fn undone(ctx: &Context<'_>, message: &str) -> Delta {
    let mut outputs = ctx.outputs();
    outputs.deployed = false;
    Delta::said(message).outputs(outputs)
}

/// The stamp is the key of this stage, in this epoch or an earlier one of the same job.
fn is_ours(ctx: &Context<'_>, found: &MachineObservation) -> bool {
    let job = ctx.job.id.to_string();
    found.stamp.as_deref().is_some_and(|stamp| stamp.split('/').any(|part| part == job))
}

fn created(ctx: &Context<'_>, found: &MachineObservation) -> Result<Delta, StageError> {
    let site = ctx.lxd_site()?;
    let mut outputs = ctx.outputs();
    outputs.provider_ref = Some(found.provider_ref.clone());
    outputs.deployed = true;
    let boot_timeout = Duration::from_millis(site.enrollment_timeout_ms);
    Ok(Delta::said(format!("instance {} of image {}", found.name, site.image))
        .outputs(outputs)
        .ask(NodeAsk::ProviderRef(found.provider_ref.clone()))
        .ask(NodeAsk::Availability { event: AvailabilityEvent::BootStarted, boot_timeout })
        .seen(ctx, seen(found)))
}

/// The port at which an instance reaches a server that listens on this host's loopback only; none for a real address.
fn loopback_port(server: &str) -> Option<u16> {
    let (host, port) = server.strip_prefix("https://")?.trim_end_matches('/').rsplit_once(':')?;
    matches!(host, "127.0.0.1" | "localhost" | "[::1]").then(|| port.parse().ok()).flatten()
}
