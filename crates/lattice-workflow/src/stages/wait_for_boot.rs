//! Until the agent of a machine that was switched on registered, and its health check passed. spec: S1 "Booting → Ready"

use std::time::Duration;

use async_trait::async_trait;
use lattice_core::failure::FailureClass;
use lattice_core::job::flows::CAME_UP_ILL;
use lattice_core::job::{JobKind, StageError};
use lattice_core::node::Availability;
use lattice_core::node::availability::BOOT_FAILURES;
use lattice_core::site::SiteProvider;

use lattice_providers::secret::SecretError;

use super::inject_bootstrap;
use crate::enrollment;
use crate::stage::{Context, Delta, Observation, Outcome, StageRunner, error};

/// The registration wakes the job; this look is for the case that the waking was lost.
const RECHECK: Duration = Duration::from_secs(30);

/// See the module.
pub struct WaitForBoot;

#[async_trait]
impl StageRunner for WaitForBoot {
    async fn observe(&self, ctx: &Context<'_>) -> Result<Observation, StageError> {
        match ctx.node.state.availability {
            Availability::Ready | Availability::Degraded | Availability::Draining | Availability::Drained => {
                if has_open_token(ctx).await? {
                    return Ok(Observation::Absent);
                }
                Ok(Observation::Done(Delta::said(format!("it is {}", ctx.node.state.availability))))
            }
            Availability::Unknown | Availability::Booting | Availability::Down | Availability::Failed => {
                if let Some(ill) = came_up_ill(ctx) {
                    return Err(ill);
                }
                match &ctx.site.provider {
                    // The image of an instance may have nothing that starts services.
                    SiteProvider::Lxd(_) => Ok(Observation::Absent),
                    SiteProvider::Maas(_) | SiteProvider::Manual | SiteProvider::Openchami(_) => {
                        Ok(Observation::Waiting {
                            recheck_at: ctx.now + RECHECK,
                            waiting_for: waiting_for(ctx),
                            delta: Delta::default(),
                        })
                    }
                }
            }
        }
    }

    async fn act(&self, ctx: &Context<'_>, _: &str) -> Result<Outcome, StageError> {
        if has_open_token(ctx).await? {
            // It came with its identity, or its token was used: what was kept for it is forgotten.
            return super::render_cloud_init::revoke(ctx).await;
        }
        inject_bootstrap::start_agent(ctx).await?;
        Ok(Outcome::StillGoing {
            recheck_at: ctx.now + RECHECK,
            waiting_for: waiting_for(ctx),
            delta: Delta::default(),
        })
    }
}

/// This boot came up ill: it is tried again, until the node failed. A wipe waits for its health check, and gives up.
fn came_up_ill(ctx: &Context<'_>) -> Option<StageError> {
    let ill = ctx.node.boot_failures;
    if ctx.job.kind != JobKind::Reboot || ill <= ctx.job.outputs.ill_boots {
        return None;
    }
    let hostname = &ctx.node.hostname;
    let (code, message) = match ctx.node.state.availability {
        Availability::Failed => ("boots_failed", format!("{ill} boots of {hostname} in a row came up ill")),
        Availability::Unknown
        | Availability::Booting
        | Availability::Ready
        | Availability::Degraded
        | Availability::Down
        | Availability::Draining
        | Availability::Drained => {
            (CAME_UP_ILL, format!("boot {ill} of {BOOT_FAILURES} of {hostname} came up ill: it is booted again"))
        }
    };
    Some(error(FailureClass::HardwareMismatch, code, message))
}

/// Whether this job made a token and still keeps it.
async fn has_open_token(ctx: &Context<'_>) -> Result<bool, StageError> {
    if ctx.job.outputs.token.is_none() {
        return Ok(false);
    }
    match ctx.tools.secrets.read(&enrollment::job_secrets(ctx.job.id)).await {
        Ok(_) => Ok(true),
        Err(SecretError::NotFound { .. }) => Ok(false),
        Err(failed) => Err(enrollment::secret_error(&failed, ctx.now)),
    }
}

fn waiting_for(ctx: &Context<'_>) -> String {
    format!("the agent of {} to register, and its health check; the node is {}", ctx.node.hostname, ctx.node.state)
}
