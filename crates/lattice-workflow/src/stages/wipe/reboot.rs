//! Restarts the host through its agent, where nothing else reaches its power. spec: S1 "Sensitive Release Sequence"

use async_trait::async_trait;
use lattice_core::agent::task::{NodeReboot, TaskInput, TaskStatus};
use lattice_core::failure::FailureClass;
use lattice_core::job::StageError;
use lattice_core::node::availability::AvailabilityEvent;

use super::{RECHECK, issued, not_done, task_of};
use crate::stage::{Context, Delta, NodeAsk, Observation, Outcome, StageRunner, error};

/// See the module.
pub struct RebootHost;

#[async_trait]
impl StageRunner for RebootHost {
    async fn observe(&self, ctx: &Context<'_>) -> Result<Observation, StageError> {
        let Some(task) = task_of(ctx).await? else { return Ok(Observation::Absent) };
        match task.status {
            TaskStatus::Pending | TaskStatus::Delivered | TaskStatus::Running => Ok(Observation::Waiting {
                recheck_at: ctx.now + RECHECK,
                waiting_for: format!("{} to restart; task {} is {}", ctx.node.hostname, task.id, task.status),
                delta: Delta::default(),
            }),
            TaskStatus::Succeeded => Ok(Observation::Done(Delta::said("it restarted"))),
            TaskStatus::Failed | TaskStatus::Expired | TaskStatus::Cancelled => Err(not_done(ctx, &task, "restart")),
        }
    }

    async fn act(&self, ctx: &Context<'_>, _: &str) -> Result<Outcome, StageError> {
        let Some(boot_id) = ctx.node.boot_id.clone() else {
            let why = format!("which boot of {} runs is not known", ctx.node.hostname);
            return Err(error(FailureClass::StateAmbiguity, "boot_unknown", why));
        };
        let issued = issued(ctx, TaskInput::NodeReboot(NodeReboot { boot_id }))?;
        let boot_timeout = ctx.site.heartbeat.boot_timeout();
        let boots = NodeAsk::Availability { event: AvailabilityEvent::Reboot, boot_timeout };
        let delta = Delta { changes: vec![issued], ..Delta::default() }.ask(boots);
        let waiting_for = format!("{} to restart", ctx.node.hostname);
        Ok(Outcome::StillGoing { recheck_at: ctx.now + RECHECK, waiting_for, delta })
    }
}
