//! A fresh enrolment token, made while the machine is off. It is in no boot script: who boots at one of the machine's
//! addresses takes it from the agent listener, once. design: 4 "Identity and transport"

use std::time::Duration;

use async_trait::async_trait;
use lattice_core::change::Change;
use lattice_core::credential::EnrollmentToken;
use lattice_core::job::{Netboot, StageError, UndoKind};
use lattice_providers::secret::SecretError;

use super::openchami::{client, machine, netboot, of};
use crate::enrollment::{self, TokenFor, secret_error};
use crate::stage::{Context, Delta, Observation, Outcome, StageRunner};

/// See the module.
pub struct OpenEnrollment;

#[async_trait]
impl StageRunner for OpenEnrollment {
    async fn observe(&self, ctx: &Context<'_>) -> Result<Observation, StageError> {
        let Some(off_at) = ctx.job.outputs.off_at else {
            return Ok(Observation::Done(Delta::said("it was left on: it keeps its identity").skipped()));
        };
        let token = enrollment::usable_token(ctx).await?;
        let is_of_this_boot = |token: &EnrollmentToken| token.issued_at >= off_at;
        let is_kept = match ctx.tools.secrets.read(&enrollment::job_secrets(ctx.job.id)).await {
            Ok(kept) => kept.contains_key("token"),
            Err(SecretError::NotFound { .. }) => false,
            Err(failed) => return Err(secret_error(&failed, ctx.now)),
        };
        if is_kept && token.as_ref().is_some_and(is_of_this_boot) {
            return Ok(Observation::Done(Delta::said("its token waits for it").skipped()));
        }
        Ok(Observation::Absent)
    }

    async fn act(&self, ctx: &Context<'_>, _: &str) -> Result<Outcome, StageError> {
        let (bss, machine) = (client(ctx).await?, machine(ctx)?);
        // Nothing asks for it while it is off: a later time proves that it booted from the network.
        let asked_before = bss.asked_at(&machine).await.map_err(of(ctx))?;
        let life = Duration::from_secs(ctx.openchami_site()?.policy.enrollment_token_ttl_seconds);
        let whose = TokenFor { node: ctx.node.id, job: ctx.job.id, now: ctx.now, life };
        let (row, secret) = enrollment::issue(whose, &*ctx.tools.ids, &*ctx.tools.entropy);
        let mut outputs = ctx.outputs();
        outputs.token = Some(row.id);
        outputs.netboot = Some(Netboot { asked_before, ..netboot(ctx)?.clone() });
        let mut delta = Delta::said("a fresh enrolment token waits for whoever boots at its address").outputs(outputs);
        // One of an earlier boot dies with that boot.
        delta.changes = enrollment::revoke_all(ctx.tools, ctx.node.id, ctx.now).await?;
        delta.changes.push(Change::EnrollmentToken(row));
        enrollment::keep(ctx, [("token".to_owned(), secret)].into()).await?;
        Ok(Outcome::Done(delta))
    }

    async fn undo(&self, ctx: &Context<'_>, _: UndoKind, _: &str) -> Result<Outcome, StageError> {
        super::render_cloud_init::revoke(ctx).await
    }
}
