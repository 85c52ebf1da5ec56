//! Enrolment token, host key and first-boot payload. spec: S5 4.3 CreateGPUaaSNodeAndRenderCloudInit, 9

use std::time::Duration;

use async_trait::async_trait;
use lattice_core::change::Change;
use lattice_core::failure::FailureClass;
use lattice_core::job::{StageError, UndoKind};
use lattice_core::secret::{Secret, token_hash};
use lattice_providers::secret::{SecretError, SecretObject, read_field};

use super::maas;
use crate::bootstrap::bootstrap_json;
use crate::cloud_init::{Payload, render};
use crate::enrollment::{self, TokenFor, secret_error};
use crate::host_key::host_key;
use crate::stage::{Context, Delta, Observation, Outcome, StageRunner, error, store_failed};

/// See the module.
pub struct RenderCloudInit;

#[async_trait]
impl StageRunner for RenderCloudInit {
    async fn observe(&self, ctx: &Context<'_>) -> Result<Observation, StageError> {
        if ctx.job.outputs.user_data_sha256.is_none() {
            return Ok(Observation::Absent);
        }
        let token = enrollment::token_of(ctx).await?;
        let is_good = token.is_some_and(|token| token.used_at.is_some() || token.check(ctx.node.id, ctx.now).is_ok());
        let is_kept = match ctx.tools.secrets.read(&enrollment::job_secrets(ctx.job.id)).await {
            Ok(kept) => kept.get("user_data").is_some_and(|text| enrollment::is_rendered(ctx, text)),
            Err(SecretError::NotFound { .. }) => false,
            // A store that does not answer is no proof that nothing is kept.
            Err(error) => return Err(secret_error(&error, ctx.now)),
        };
        if is_good && is_kept {
            return Ok(Observation::Done(Delta::said("the payload was rendered before").skipped()));
        }
        let machine = maas::fresh(ctx).await?;
        if maas::is_deployed_by_us(ctx, &machine) {
            return Ok(Observation::Done(Delta::said("it is deployed with an earlier payload of this job").skipped()));
        }
        Ok(Observation::Absent)
    }

    async fn act(&self, ctx: &Context<'_>, _: &str) -> Result<Outcome, StageError> {
        let site = ctx.maas_site()?;
        // It outlives the deployment and the first boot, whatever the policy says of tokens. spec: S5 4.3
        let deploying = Duration::from_millis(site.policy.deploy_timeout_ms + site.policy.enrollment_timeout_ms);
        let life = Duration::from_secs(site.policy.enrollment_token_ttl_seconds).max(deploying);
        let whose = TokenFor { node: ctx.node.id, job: ctx.job.id, now: ctx.now, life };
        let (row, token) = enrollment::issue(whose, &*ctx.tools.ids, &*ctx.tools.entropy);
        let key = host_key(ctx.tools.entropy.bytes32(), &ctx.job.hostname);
        let password_path = maas::secret_path(&site.deploy_password_path)?;
        let password =
            read_field(&*ctx.tools.secrets, &password_path, "pass").await.map_err(|e| secret_error(&e, ctx.now))?;
        let roce = ctx.tools.store.roce_assignments(ctx.site.id, &ctx.job.hostname).await.map_err(store_failed)?;
        let bootstrap = &ctx.tools.bootstrap;
        let user_data = render(&Payload {
            node: ctx.node.id,
            hostname: &ctx.job.hostname,
            bootstrap_json: &bootstrap_json(bootstrap, ctx.node.id, &token),
            agent_url: &bootstrap.agent_url,
            agent_is_ours: bootstrap.gives_agent(),
            agent_sha256: bootstrap.agent_sha256.as_deref(),
            ca_pem: &bootstrap.ca_pem,
            task_keys_pem: &bootstrap.task_keys_pem,
            site_bundle: site.policy.site_bootstrap_bundle_ref.as_deref(),
            deploy_user: &site.deploy_user,
            deploy_password: &password,
            ssh_private_key: &key.private,
            ssh_public_key: &key.public,
            // MAAS makes them while it deploys; they are pushed afterwards.
            sync_credentials: None,
            dns: &site.upstream_dns_servers,
            roce: if site.policy.enable_phase2_roce { &roce } else { &[] },
        })
        .map_err(|failed| error(FailureClass::InputConfigError, "payload_not_rendered", chain(&failed)))?;
        let mut outputs = ctx.outputs();
        outputs.token = Some(row.id);
        outputs.user_data_sha256 = Some(token_hash(user_data.expose()));
        outputs.ssh_host_key = Some(key.public);
        let mut delta = Delta::said(
            "payload rendered; its first boot formats every disk but the boot disk and mounts them as /shareN",
        )
        .outputs(outputs);
        // An earlier token that nobody used dies with its payload.
        delta.changes = enrollment::revoke_all(ctx.tools, ctx.node.id, ctx.now).await?;
        delta.changes.push(Change::EnrollmentToken(row));
        enrollment::keep(ctx, secrets(token, user_data, key.private)).await?;
        Ok(Outcome::Done(delta))
    }

    async fn undo(&self, ctx: &Context<'_>, _: UndoKind, _: &str) -> Result<Outcome, StageError> {
        revoke(ctx).await
    }
}

fn secrets(token: Secret<String>, user_data: Secret<String>, host_key: Secret<String>) -> SecretObject {
    [("token".to_owned(), token), ("user_data".to_owned(), user_data), ("ssh_host_key".to_owned(), host_key)].into()
}

fn chain(failed: &dyn std::error::Error) -> String {
    match failed.source() {
        Some(source) => format!("{failed}: {source}"),
        None => failed.to_string(),
    }
}

/// The enrolment token dies, and with it what was kept secret for it.
pub(super) async fn revoke(ctx: &Context<'_>) -> Result<Outcome, StageError> {
    let mut delta = Delta::said("enrolment token withdrawn");
    delta.changes = enrollment::revoke_all(ctx.tools, ctx.node.id, ctx.now).await?;
    enrollment::forget(ctx).await?;
    Ok(Outcome::Done(delta))
}
