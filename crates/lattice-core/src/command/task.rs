//! Tasks of agents: issuing, handing over, reporting, expiring. Pure decisions.

use std::time::Duration;

use super::{Refused, Request};
use crate::agent::task::{
    Progress, Task, TaskCause, TaskChange, TaskEvent, TaskInput, TaskOwner, TaskReport, TaskStatus, Term,
};
use crate::change::Commit;
use crate::ids::{Generation, TaskId};
use crate::node::{Node, Status};
use crate::time::Timestamp;

/// A task that was handed over and not begun is handed over again after this: the answer that carried it may be lost.
/// Longer than an agent takes to say that it began, shorter than any task may wait.
pub const REDELIVER_AFTER: Duration = Duration::from_secs(15);

/// Largest statement, in bytes of JSON: what an envelope holds, with room for its base64 text.
const LARGEST: usize = 48 * 1024;

/// Longest idempotency key, in bytes.
const LONGEST_KEY: usize = 256;

/// A task to be.
#[derive(Debug, Clone)]
pub struct NewTask<'a> {
    /// Who is to do it.
    pub node: &'a Node,
    /// What for.
    pub owner: TaskOwner,
    /// Idempotency key: a second task with it is refused by the store, and the first one is it.
    pub key: String,
    /// What.
    pub input: TaskInput,
    /// How long it may wait and take; none: as its kind says.
    pub term: Option<Term>,
}

/// A new task and its commit.
///
/// The key is unique in the store: a conflict names the task that has it.
///
/// # Errors
/// The input cannot be right or is too large, or the node is deleted.
pub fn issue(request: &Request, new: NewTask<'_>, nonce: [u8; 16]) -> Result<(Task, Commit), Refused> {
    new.input.check().map_err(|invalid| Refused::Invalid { field: invalid.field, problem: invalid.problem })?;
    if new.key.is_empty() || new.key.len() > LONGEST_KEY || new.key.chars().any(char::is_control) {
        let problem = format!("must be 1 to {LONGEST_KEY} bytes of printable text");
        return Err(Refused::Invalid { field: "key", problem });
    }
    if new.node.state.status == Status::Deleted {
        return Err(Refused::Invalid { field: "node", problem: "is deleted and takes no tasks".to_owned() });
    }
    let term = new.term.unwrap_or_else(|| new.input.kind().term());
    let expires_at = request.now + term.start_within;
    let task = Task {
        id: TaskId::generate(request.ids, request.now),
        node: new.node.id,
        owner: new.owner,
        key: new.key,
        input: new.input,
        node_epoch: new.node.identity_epoch,
        issued_at: request.now,
        expires_at,
        finish_by: expires_at + term.finish_within,
        nonce: hex::encode(nonce),
        status: TaskStatus::Pending,
        delivered_at: None,
        started_at: None,
        finished_at: None,
        report: None,
        requested_by: request.actor.clone(),
        correlation: request.correlation,
        updated_at: request.now,
        generation: Generation::FIRST,
    };
    if serde_json::to_vec(&task.statement()).is_ok_and(|text| text.len() > LARGEST) {
        return Err(Refused::Invalid { field: "input", problem: format!("takes more than {LARGEST} bytes") });
    }
    let created = task.created();
    Ok((task, request.commit(Vec::new(), vec![created])))
}

/// Whether a task is to be handed to its agent at `now`: it was not, or not lately, and may still be begun.
///
/// A node with another identity than the one that was asked is never handed it.
pub fn is_deliverable(task: &Task, identity_epoch: u64, now: Timestamp) -> bool {
    let waits = match task.status {
        TaskStatus::Pending => true,
        TaskStatus::Delivered => task.delivered_at.is_none_or(|at| now.since(at) >= REDELIVER_AFTER),
        TaskStatus::Running
        | TaskStatus::Succeeded
        | TaskStatus::Failed
        | TaskStatus::Expired
        | TaskStatus::Cancelled => false,
    };
    waits && task.node_epoch == identity_epoch && now < task.expires_at
}

/// The task is handed over: noted before it is sent, so that nothing is begun that is not known.
pub fn delivered(request: &Request, task: &Task) -> Option<TaskChange> {
    let mut change = moved(request, task, TaskEvent::Deliver, TaskCause::Delivered)?;
    change.after.delivered_at = Some(request.now);
    Some(change)
}

/// An agent's report about its task; none: it was known, nothing changes.
///
/// # Errors
/// Another report ended the task before, the output is another kind's, or a wipe has no evidence.
pub fn reported(request: &Request, task: &Task, report: &TaskReport) -> Result<Option<TaskChange>, Refused> {
    if task.status.is_final() {
        return after_end(request, task, report);
    }
    let (event, cause) = match &report.progress {
        Progress::Running if task.status == TaskStatus::Running => return Ok(None),
        Progress::Running => (TaskEvent::Begin, TaskCause::Started),
        Progress::Succeeded { output } => {
            if output.kind() != task.input.kind() {
                let problem = format!("is of a {} task, this one is {}", output.kind(), task.input.kind());
                return Err(Refused::Invalid { field: "output", problem });
            }
            if let Some(wiped) = output.wipe() {
                wiped.proves(&task.input).map_err(|why| Refused::NoEvidence { task: task.id, why })?;
            }
            (TaskEvent::Succeed, TaskCause::Succeeded)
        }
        Progress::Failed { .. } => (TaskEvent::Fail, TaskCause::Failed),
    };
    let Some(mut change) = moved(request, task, event, cause) else { return Ok(None) };
    let after = &mut change.after;
    after.started_at = after.started_at.or(Some(request.now));
    if report.progress.is_final() {
        after.report = Some(report.clone());
    }
    Ok(Some(change))
}

/// The same report again changes nothing; one about a task that was given up is kept; another one is refused.
fn after_end(request: &Request, task: &Task, report: &TaskReport) -> Result<Option<TaskChange>, Refused> {
    if !report.progress.is_final() {
        return Ok(None);
    }
    match (&task.report, task.status) {
        (Some(known), _) if known.progress == report.progress => Ok(None),
        (None, TaskStatus::Expired | TaskStatus::Cancelled) => {
            let mut after = successor(task, request.now);
            after.report = Some(report.clone());
            Ok(Some(TaskChange { after, before: Some(task.status), cause: TaskCause::ReportedLate }))
        }
        (Some(_), _) | (None, _) => Err(Refused::TaskOver { task: task.id, status: task.status }),
    }
}

/// Whether a task is given up at `now`. One that its agent may have begun gets the time to report.
pub fn is_overdue(task: &Task, now: Timestamp) -> bool {
    match task.status {
        TaskStatus::Pending => now >= task.expires_at,
        TaskStatus::Delivered | TaskStatus::Running => now >= task.finish_by,
        TaskStatus::Succeeded | TaskStatus::Failed | TaskStatus::Expired | TaskStatus::Cancelled => false,
    }
}

/// The task is given up, if its time is over.
pub fn expired(request: &Request, task: &Task) -> Option<TaskChange> {
    if !is_overdue(task, request.now) {
        return None;
    }
    moved(request, task, TaskEvent::Expire, TaskCause::Expired)
}

/// The task is withdrawn before its agent got it; none: it was before.
///
/// # Errors
/// Its agent has it, or it is over.
pub fn cancelled(request: &Request, task: &Task) -> Result<Option<TaskChange>, Refused> {
    match moved(request, task, TaskEvent::Cancel, TaskCause::Cancelled) {
        Some(change) => Ok(Some(change)),
        None if task.status == TaskStatus::Cancelled => Ok(None),
        None => Err(Refused::TaskOver { task: task.id, status: task.status }),
    }
}

fn successor(task: &Task, now: Timestamp) -> Task {
    Task { updated_at: now, generation: task.generation.next(), ..task.clone() }
}

fn moved(request: &Request, task: &Task, event: TaskEvent, cause: TaskCause) -> Option<TaskChange> {
    let status = task.status.next(event).ok()?;
    let mut after = successor(task, request.now);
    after.status = status;
    if status.is_final() {
        after.finished_at = Some(request.now);
    }
    Some(TaskChange { after, before: Some(task.status), cause })
}
