//! What operators do to a job. design: 3-jobs "Operator actions"

use std::time::Duration;

use super::engine::{FROZEN, advance, compensate, enter, furthest, quiet};
use super::flow::{Enter, Flow, Stage};
use super::operator_action::{Allowed, DecisionKind, Decisions, Op, OperatorAction};
use super::refused::{NotProven, Refused};
use super::retry::command;
use super::state::{CompensateTo, Failure, JobState, SEEN_REQUESTS, Wait};
use super::status::JobStatus;
use crate::explain::NextAction;
use crate::failure::FailureClass;
use crate::ids::LeaseEpoch;
use crate::time::Timestamp;

/// Oldest observation that may be adopted: a provider's answer, not a memory.
pub const FRESH: Duration = Duration::from_secs(120);

pub(super) fn operate(flow: &Flow, job: &JobState, op: &Op, now: Timestamp) -> Result<Option<JobState>, Refused> {
    if job.seen.contains(&op.request_id) {
        return Ok(None);
    }
    match allowed(job, op) {
        Allowed::No => {
            return Err(Refused::Status { job: job.id, action: op.action, status: job.status });
        }
        Allowed::AlreadySo => return Ok(None),
        Allowed::Yes => {}
    }
    check_decisions(flow, job, op)?;
    let is_live = op.lease_until.is_some_and(|until| until > now);
    let after = match op.action {
        // Its driver is alive: success without a duplicate. spec: S2 8
        OperatorAction::Resume if job.status == JobStatus::Running && is_live => return Ok(None),
        OperatorAction::Resume => resume(flow, job, now),
        OperatorAction::RetryStage => reenter(flow, job, flow.stage(job.stage), now),
        OperatorAction::Rerun => forward(job, op).map(|job| enter(flow, job, flow.first(), now))?,
        OperatorAction::RestartClean => restart_clean(flow, job, op, now)?,
        OperatorAction::Cancel => cancel(flow, job, now),
        OperatorAction::AdoptObservedState => adopt(flow, forward(job, op)?, op, now)?,
        OperatorAction::MarkManualInterventionRequired => freeze(job, now),
    };
    Ok(Some(committed(job, after, op, now)))
}

fn allowed(job: &JobState, op: &Op) -> Allowed {
    let is_restarting = matches!(job.compensating_to, Some(CompensateTo::Restart { .. }));
    match op.action.allowed_from(job.status) {
        // It is being undone in order to begin again: that is not what was asked.
        Allowed::AlreadySo if is_restarting && op.action == OperatorAction::Cancel => Allowed::No,
        allowed => allowed,
    }
}

/// The actions that go forward are refused once something was undone.
fn forward<'a>(job: &'a JobState, op: &Op) -> Result<&'a JobState, Refused> {
    if job.compensating_to.is_some() {
        return Err(Refused::CompensationBegan { job: job.id, action: op.action, stage: job.stage });
    }
    Ok(job)
}

/// What every action does besides: the request is remembered, the live turn is fenced off, what follows begins
/// after its lease.
fn committed(before: &JobState, after: JobState, op: &Op, now: Timestamp) -> JobState {
    let mut after = JobState {
        fence: LeaseEpoch(before.fence.0 + 1),
        decisions: before.decisions.updated(&Decisions { release_deployed: false, ..op.decisions.clone() }),
        ..after
    };
    if let Some(until) = op.lease_until.filter(|until| *until > now && after.status.is_driven()) {
        after.next_at = Some(until);
        after.wait = Some(Wait { reason: "the turn before to end".to_owned(), until });
    }
    after.seen.push(op.request_id);
    let surplus = after.seen.len().saturating_sub(SEEN_REQUESTS);
    after.seen.drain(..surplus);
    after
}

fn check_decisions(flow: &Flow, job: &JobState, op: &Op) -> Result<(), Refused> {
    let declared = flow.stage(job.stage).map_or(&[][..], |stage| stage.decisions);
    let unknown = op.decisions.kinds().into_iter().find(|kind| match kind {
        DecisionKind::ReleaseDeployed => op.action != OperatorAction::RestartClean,
        DecisionKind::BootDisk | DecisionKind::Machine | DecisionKind::OsGone => !declared.contains(kind),
    });
    match unknown {
        Some(decision) => Err(Refused::DecisionUnknown { job: job.id, stage: job.stage, decision }),
        None => Ok(()),
    }
}

fn resume(flow: &Flow, job: &JobState, now: Timestamp) -> JobState {
    if let Some(to) = job.compensating_to {
        return compensate(flow, job, to, now);
    }
    if job.status == JobStatus::Running {
        return quiet(job);
    }
    let stage = flow.stage(job.stage);
    let safe = stage.and_then(|stage| stage.resume_at).and_then(|name| flow.stage(name));
    reenter(flow, job, safe.or(stage), now)
}

/// The job at that stage again; from the top when the table does not have it any more.
fn reenter(flow: &Flow, job: &JobState, stage: Option<&Stage>, now: Timestamp) -> JobState {
    enter(flow, &JobState { limit_at: None, ..job.clone() }, stage.unwrap_or(flow.first()), now)
}

fn restart_clean(flow: &Flow, job: &JobState, op: &Op, now: Timestamp) -> Result<JobState, Refused> {
    let release_deployed = op.decisions.release_deployed;
    if !release_deployed && flow.keeps_effects(job.highest_stage) {
        return Err(Refused::ReleaseNotDecided { job: job.id, highest: job.highest_stage });
    }
    Ok(compensate(flow, job, CompensateTo::Restart { release_deployed }, now))
}

fn cancel(flow: &Flow, job: &JobState, now: Timestamp) -> JobState {
    if job.status == JobStatus::Pending {
        return JobState { status: JobStatus::Cancelled, ..quiet(job) };
    }
    compensate(flow, job, CompensateTo::Cancelled, now)
}

fn adopt(flow: &Flow, job: &JobState, op: &Op, now: Timestamp) -> Result<JobState, Refused> {
    let not_proven = |why| Refused::NothingObserved { job: job.id, why };
    let proof = op.observed.ok_or_else(|| not_proven(NotProven::Absent))?;
    let proven = flow
        .stage(proof.proves)
        .filter(|stage| stage.enter == Enter::InSequence)
        .ok_or_else(|| not_proven(NotProven::Absent))?;
    if now.since(proof.at) > FRESH {
        return Err(not_proven(NotProven::Old { at: proof.at }));
    }
    if flow.position(proven.name) < flow.in_sequence(job.stage).and_then(|name| flow.position(name)) {
        return Err(not_proven(NotProven::Behind { proves: proven.name, stage: job.stage }));
    }
    let highest_stage = furthest(flow, job.highest_stage, proven.name);
    let adopted = JobState { adopted: true, highest_stage, limit_at: None, ..job.clone() };
    Ok(advance(flow, &adopted, proven.name, now))
}

fn freeze(job: &JobState, now: Timestamp) -> JobState {
    let failure = Failure {
        stage: job.stage,
        class: job.failure.as_ref().map_or(FailureClass::StateAmbiguity, |failure| failure.class),
        error_code: FROZEN.to_owned(),
        message: format!("an operator froze the job at `{}`", job.stage),
        at: now,
        next_action: NextAction::run(
            command(OperatorAction::Resume, job.id),
            "once it is decided: continue from the last safe stage",
        ),
    };
    JobState { status: JobStatus::FailedManualIntervention, failure: Some(failure), ..quiet(job) }
}
