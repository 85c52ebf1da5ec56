//! Puts agent, token and trust into the instance and starts the agent. The image has no cloud-init. spec: S5 10

use std::time::Duration;

use async_trait::async_trait;
use lattice_core::change::Change;
use lattice_core::failure::FailureClass;
use lattice_core::job::{StageError, UndoKind};
use lattice_core::secret::Secret;
use lattice_providers::provider::GuestFile;

use crate::bootstrap::{AGENT_PATH, BOOTSTRAP_PATH, bootstrap_json};
use crate::enrollment::{self, TokenFor};
use crate::evidence::instance_name;
use crate::providers::{InstanceHost, failed};
use crate::stage::{Context, Delta, Observation, Outcome, StageRunner, error};

/// Written last: says which token was put in place.
const STAMP_PATH: &str = "/etc/lattice/bootstrap-token-id";
/// How the agent is started where no service manager is there to keep it: detached from the caller.
const START: [&str; 4] =
    ["/bin/sh", "-c", "exec setsid \"$0\" run >>/var/log/lattice-agent.log 2>&1 </dev/null &", AGENT_PATH];
/// The same for an instance that was started again: its agent may run already.
const START_AGAIN: [&str; 4] = [
    "/bin/sh",
    "-c",
    "pidof lattice-agent >/dev/null || exec setsid \"$0\" run >>/var/log/lattice-agent.log 2>&1 </dev/null &",
    AGENT_PATH,
];
/// Longest run of one of these commands.
const COMMAND: Duration = Duration::from_secs(20);

/// See the module.
pub struct InjectBootstrap;

#[async_trait]
impl StageRunner for InjectBootstrap {
    async fn observe(&self, ctx: &Context<'_>) -> Result<Observation, StageError> {
        let Some(token) = enrollment::token_of(ctx).await? else { return Ok(Observation::Absent) };
        if token.used_at.is_none() && token.check(ctx.node.id, ctx.now).is_err() {
            return Ok(Observation::Absent);
        }
        let instances = ctx.tools.providers.instances(ctx.site).await.map_err(failed(ctx.now))?;
        let read = instances.exec(ctx.provider_ref()?, &["/bin/cat", STAMP_PATH], COMMAND).await;
        let stamp = read.map_err(failed(ctx.now))?.stdout;
        if String::from_utf8_lossy(&stamp).trim() == token.id.to_string() {
            return Ok(Observation::Done(Delta::said("agent and token are in place")));
        }
        Ok(Observation::Absent)
    }

    async fn act(&self, ctx: &Context<'_>, _: &str) -> Result<Outcome, StageError> {
        let Some(token) = enrollment::usable_token(ctx).await? else { return issue(ctx).await };
        let mut secrets = enrollment::kept(ctx).await?;
        let Some(secret) = secrets.remove("token") else { return issue(ctx).await };
        let name = ctx.provider_ref()?;
        let bootstrap = bootstrap_json(&ctx.tools.bootstrap, ctx.node.id, &secret);
        let file = |path: &str, mode, content: Vec<u8>| GuestFile {
            path: path.to_owned(),
            content: Secret::new(content),
            mode,
        };
        let instances = ctx.tools.providers.instances(ctx.site).await.map_err(failed(ctx.now))?;
        run(ctx, &*instances, &["/bin/mkdir", "-p", "/etc/lattice", "/usr/local/bin", "/var/log"]).await?;
        let mut files = vec![file(BOOTSTRAP_PATH, 0o600, bootstrap.expose().clone().into_bytes())];
        if let Some(path) = &ctx.lxd_site()?.agent_binary {
            files.push(file(AGENT_PATH, 0o755, agent(path).await?));
        }
        for pushed in &files {
            instances.push_file(name, pushed).await.map_err(failed(ctx.now))?;
        }
        run(ctx, &*instances, &START).await?;
        let stamp = file(STAMP_PATH, 0o644, token.id.to_string().into_bytes());
        instances.push_file(name, &stamp).await.map_err(failed(ctx.now))?;
        Ok(Outcome::Done(Delta::said(format!("agent and token put into {name}, agent started"))))
    }

    async fn undo(&self, ctx: &Context<'_>, _: UndoKind, _: &str) -> Result<Outcome, StageError> {
        super::render_cloud_init::revoke(ctx).await
    }
}

async fn run(ctx: &Context<'_>, instances: &dyn InstanceHost, command: &[&str]) -> Result<(), StageError> {
    run_in(ctx, instances, ctx.provider_ref()?, command).await
}

async fn run_in(
    ctx: &Context<'_>,
    instances: &dyn InstanceHost,
    name: &str,
    command: &[&str],
) -> Result<(), StageError> {
    let output = instances.exec(name, command, COMMAND).await.map_err(failed(ctx.now))?;
    if output.code == Some(0) {
        return Ok(());
    }
    let said = lattice_providers::message::of_body(&output.stderr, &[]);
    let message = format!("`{}` in the instance ended with {:?}: {said}", command[0], output.code);
    Err(error(FailureClass::PostDeployConnectivityFailure, "guest_command_failed", message))
}

/// Starts the agent of the node's instance, unless it runs.
pub(super) async fn start_agent(ctx: &Context<'_>) -> Result<(), StageError> {
    let instances = ctx.tools.providers.instances(ctx.site).await.map_err(failed(ctx.now))?;
    run_in(ctx, &*instances, instance_name(ctx), &START_AGAIN).await
}

/// A token is committed before anybody can try to use it: the files follow in the next step.
async fn issue(ctx: &Context<'_>) -> Result<Outcome, StageError> {
    let life = Duration::from_secs(ctx.lxd_site()?.enrollment_token_ttl_seconds);
    let whose = TokenFor { node: ctx.node.id, job: ctx.job.id, now: ctx.now, life };
    let (row, secret) = enrollment::issue(whose, &*ctx.tools.ids, &*ctx.tools.entropy);
    enrollment::keep(ctx, [("token".to_owned(), secret)].into()).await?;
    let mut outputs = ctx.outputs();
    outputs.token = Some(row.id);
    let mut delta = Delta::default().outputs(outputs);
    delta.changes.push(Change::EnrollmentToken(row));
    Ok(Outcome::StillGoing { recheck_at: ctx.now, waiting_for: "its enrolment token to be recorded".to_owned(), delta })
}

async fn agent(path: &str) -> Result<Vec<u8>, StageError> {
    tokio::fs::read(path).await.map_err(|source| {
        error(
            FailureClass::SiteCapabilityMissing,
            "agent_binary_missing",
            format!("the agent's binary {path}: {source}"),
        )
    })
}
