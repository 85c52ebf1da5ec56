//! Until the agent enrolled and its health check passed. spec: S5 4.3, 4.6; design: 3-jobs "Enrolment-token refresh"

use std::time::Duration;

use async_trait::async_trait;
use lattice_core::change::Change;
use lattice_core::credential::EnrollmentToken;
use lattice_core::job::row::MANUAL_TOKEN_TTL;
use lattice_core::job::{JobInput, StageError, UndoKind};
use lattice_core::node::Availability;
use lattice_core::site::SiteProvider;

use super::{maas, openchami};
use crate::enrollment;
use crate::first_boot;
use crate::stage::{Context, Delta, Observation, Outcome, StageRunner};

/// The enrolment wakes the job; this look is for the case that the waking was lost.
const RECHECK: Duration = Duration::from_secs(60);

/// See the module.
pub struct WaitForAgentEnrollment;

#[async_trait]
impl StageRunner for WaitForAgentEnrollment {
    async fn observe(&self, ctx: &Context<'_>) -> Result<Observation, StageError> {
        let token = enrollment::token_of(ctx).await?;
        if is_ready(ctx, token.as_ref()) {
            // What was kept secret for it is forgotten first; a manual job kept nothing.
            let keeps = ctx.job.outputs.token.is_some() && !matches!(ctx.job.input, JobInput::OnboardManual { .. });
            return Ok(if keeps { Observation::Absent } else { Observation::Done(enrolled(ctx)) });
        }
        if token.as_ref().is_some_and(|token| may_extend(ctx, token)) {
            return Ok(Observation::Absent);
        }
        if let Some(taken) = taken_away(ctx).await {
            return Ok(taken);
        }
        if is_last_look(ctx)
            && let Some(why) = first_boot::failure(ctx).await
        {
            return Err(why);
        }
        let hostname = &ctx.job.hostname;
        let waiting_for = match token.filter(|token| token.used_at.is_some()) {
            Some(_) => format!("the health check of {hostname}; its agent enrolled, the node is {}", ctx.node.state),
            None => format!("the agent of {hostname} to enrol"),
        };
        Ok(Observation::Waiting { recheck_at: ctx.now + RECHECK, waiting_for, delta: Delta::default() })
    }

    async fn act(&self, ctx: &Context<'_>, _: &str) -> Result<Outcome, StageError> {
        let token = enrollment::token_of(ctx).await?;
        if is_ready(ctx, token.as_ref()) {
            enrollment::forget(ctx).await?;
            openchami::forget_before(ctx).await?;
            return Ok(Outcome::Done(enrolled(ctx)));
        }
        let mut delta = Delta::default();
        if let Some(token) = token.filter(|token| may_extend(ctx, token)) {
            delta.changes.push(Change::EnrollmentToken(enrollment::extended(&token, ctx.now, life(ctx))));
        }
        let waiting_for = format!("the agent of {} to enrol, with more time for its token", ctx.job.hostname);
        Ok(Outcome::StillGoing { recheck_at: ctx.now + RECHECK, waiting_for, delta })
    }

    async fn undo(&self, ctx: &Context<'_>, _: UndoKind, _: &str) -> Result<Outcome, StageError> {
        super::render_cloud_init::revoke(ctx).await
    }
}

/// Whether somebody took the machine away, as the site's poll saw it last: no agent will come from it then.
async fn taken_away(ctx: &Context<'_>) -> Option<Observation> {
    let SiteProvider::Maas(_) = &ctx.site.provider else { return None };
    let id = maas::system_id(ctx.job.outputs.provider_ref.as_deref()?).ok()?;
    let region = ctx.tools.providers.maas(ctx.site).await.ok()?;
    let machine = maas::seen_in_stage(ctx, &region, &id)?;
    maas::taken_away(ctx, &machine)
}

/// Whether the job stops if the agent is not there now.
fn is_last_look(ctx: &Context<'_>) -> bool {
    let is_over = ctx.job.state.deadline.is_some_and(|deadline| deadline <= ctx.now);
    is_over && ctx.window >= ctx.stage.timeout.windows && matches!(ctx.site.provider, SiteProvider::Maas(_))
}

/// The node is ready, by the agent that this job's token let in: another one is of a system that was wiped.
fn is_ready(ctx: &Context<'_>, token: Option<&EnrollmentToken>) -> bool {
    let came = token.is_none_or(|token| token.used_at.is_some());
    came && ctx.node.state.availability == Availability::Ready
}

fn enrolled(ctx: &Context<'_>) -> Delta {
    let version = ctx.node.agent_version.as_deref().unwrap_or("of unknown version");
    Delta::said(format!("agent {version} enrolled, health check passed"))
}

/// An unused token gets another life in the second time window, and when it ran out: at most twice.
fn may_extend(ctx: &Context<'_>, token: &EnrollmentToken) -> bool {
    let is_open = token.used_at.is_none() && token.revoked_at.is_none();
    let is_due = token.refreshes + 1 < ctx.window || ctx.now >= token.expires_at;
    is_open && is_due && token.refreshes < EnrollmentToken::MAX_REFRESHES
}

fn life(ctx: &Context<'_>) -> Duration {
    match &ctx.site.provider {
        SiteProvider::Maas(site) => Duration::from_secs(site.policy.enrollment_token_ttl_seconds),
        SiteProvider::Lxd(site) => Duration::from_secs(site.enrollment_token_ttl_seconds),
        SiteProvider::Openchami(site) => Duration::from_secs(site.policy.enrollment_token_ttl_seconds),
        SiteProvider::Manual => MANUAL_TOKEN_TTL,
    }
}
