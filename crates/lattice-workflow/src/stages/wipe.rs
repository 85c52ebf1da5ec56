//! The wipe of a node after sensitive work: emptied, each kind of device erased by a signed task, restarted, certified.
//! spec: S1 "Sensitive Release Sequence"

mod confirm;
mod erase;
mod prepare;
mod reboot;

pub use confirm::ConfirmWipe;
pub use erase::EraseDevices;
pub use prepare::PrepareWipe;
pub(in crate::stages) use prepare::is_heard;
pub use reboot::RebootHost;

use std::time::Duration;

use lattice_core::agent::task::{Progress, Task, TaskErrorCode, TaskInput, TaskOwner, TaskStatus, Term};
use lattice_core::change::Change;
use lattice_core::command::Request;
use lattice_core::command::task::{self as tasks, NewTask};
use lattice_core::failure::FailureClass;
use lattice_core::job::StageError;

use crate::stage::{Context, error, store_failed};

/// A report of the agent wakes the job; this look is for the case that the waking was lost.
const RECHECK: Duration = Duration::from_secs(10);

/// Key of the task of the present stage: one for each time that the stage was entered, so that an operator who takes the
/// job up again gets another task, and a crash does not.
fn task_key(ctx: &Context<'_>) -> String {
    let state = &ctx.job.state;
    format!("{}/t{}", state.key(ctx.flow, ctx.stage.name), state.stage_entered_at.as_millis())
}

/// The task of the present stage, if it was issued.
async fn task_of(ctx: &Context<'_>) -> Result<Option<Task>, StageError> {
    ctx.tools.store.task_by_key(&task_key(ctx)).await.map_err(store_failed)
}

/// The task of the present stage, to be issued in the commit of this turn. Nothing of it is begun or goes on once the time
/// of the wipe is over.
fn issued(ctx: &Context<'_>, input: TaskInput) -> Result<Change, StageError> {
    let left = ctx.job.state.limit_at.map_or(Duration::ZERO, |at| at.since(ctx.now));
    let of_kind = input.kind().term();
    let start_within = of_kind.start_within.min(left);
    let term = Term { start_within, finish_within: of_kind.finish_within.min(left.saturating_sub(start_within)) };
    let request = Request::of_system("jobs", &*ctx.tools.ids, ctx.now, ctx.job.correlation);
    let mut nonce = [0; 16];
    nonce.copy_from_slice(&ctx.tools.entropy.bytes32()[..16]);
    let owner = TaskOwner::Job { job: ctx.job.id, stage: ctx.stage.name };
    let new = NewTask { node: ctx.node, owner, key: task_key(ctx), input, term: Some(term) };
    let (task, _) = tasks::issue(&request, new, nonce)
        .map_err(|refused| error(FailureClass::StateAmbiguity, "task_not_issued", refused.to_string()))?;
    Ok(task.created())
}

/// Why a task that is over was not done.
fn not_done(ctx: &Context<'_>, task: &Task, what: &str) -> StageError {
    let host = &ctx.node.hostname;
    let (class, code, why) = match task.report.as_ref().map(|report| &report.progress) {
        Some(Progress::Failed { code: TaskErrorCode::NoEvidence, detail, .. }) => {
            let why = format!("reported without evidence, which is not a wipe: {detail}");
            (FailureClass::HardwareMismatch, "wipe_without_evidence", why)
        }
        Some(Progress::Failed { code: TaskErrorCode::TimedOut, detail, .. }) => {
            (FailureClass::PostDeployConnectivityFailure, "wipe_step_timeout", detail.clone())
        }
        Some(Progress::Failed { code, detail, .. }) => {
            (FailureClass::HardwareMismatch, "wipe_step_failed", format!("{code}: {detail}"))
        }
        Some(Progress::Running | Progress::Succeeded { .. }) | None => {
            let why = match task.status {
                TaskStatus::Cancelled => "somebody withdrew the task",
                TaskStatus::Pending
                | TaskStatus::Delivered
                | TaskStatus::Running
                | TaskStatus::Succeeded
                | TaskStatus::Failed
                | TaskStatus::Expired => "its agent said nothing in time",
            };
            (FailureClass::PostDeployConnectivityFailure, "agent_silent", why.to_owned())
        }
    };
    error(class, code, format!("{host} did not {what}: {why} (task {})", task.id))
}
