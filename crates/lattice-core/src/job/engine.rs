//! The only way a job changes. design: 3-jobs "Written once"

use super::flow::{Attempts, Failing, Flow, Reentry, Stage};
use super::operate::operate;
use super::operator_action::OperatorAction;
use super::refused::Refused;
use super::retry::{Disposition, Stop, command, disposition, recommended_next_action};
use super::stage::StageName;
use super::state::{CompensateTo, Failure, Input, Intent, JobState, KEPT_WARNINGS, StageError, Wait, Warning};
use super::status::JobStatus;
use crate::explain::NextAction;
use crate::failure::FailureClass;
use crate::ids::LeaseEpoch;
use crate::time::Timestamp;

/// Code of a job that an operator froze: nothing but an operator takes it up again. spec: S5 4.9
pub const FROZEN: &str = "frozen_by_operator";
/// Longest pause that the other side may ask for with its `retry_after`.
pub const LONGEST_RETRY_AFTER: std::time::Duration = std::time::Duration::from_secs(900);

/// The job after an input; None when the input changes nothing, because it is stale, a duplicate, or out of place.
///
/// # Errors
/// Only for `Input::Op`, when the action is refused.
pub fn step(flow: &Flow, job: &JobState, input: &Input, now: Timestamp) -> Result<Option<JobState>, Refused> {
    let after = match input {
        Input::Op(op) => return operate(flow, job, op, now),
        Input::Start => start(flow, job, now),
        Input::Claim { fence } => claim(job, *fence),
        Input::IntentRecorded { fence } => intent_recorded(flow, job, *fence),
        Input::StageOk { fence } => open(job, *fence, JobStatus::Running).and_then(|job| stage_ok(flow, &job, now)),
        Input::StageWaiting { fence, recheck_at, waiting_for } => {
            stage_waiting(flow, job, *fence, *recheck_at, waiting_for, now)
        }
        Input::StageErr { fence, error } => {
            open(job, *fence, JobStatus::Running).and_then(|job| stage_err(flow, &job, error, now))
        }
        Input::UndoOk { fence } => open(job, *fence, JobStatus::Compensating).and_then(|job| undo_ok(flow, job, now)),
        Input::UndoErr { fence, error } => {
            open(job, *fence, JobStatus::Compensating).and_then(|job| undo_err(flow, job, error, now))
        }
        Input::Timer => timer(job, now),
        Input::Wake => wake(job),
        Input::Amended { lease_until } => amended(flow, job, *lease_until, now),
        Input::LateSuccess => late_success(flow, job, now),
    };
    Ok(after)
}

fn start(flow: &Flow, job: &JobState, now: Timestamp) -> Option<JobState> {
    (job.status == JobStatus::Pending).then(|| enter(flow, job, flow.first(), now))
}

fn claim(job: &JobState, fence: LeaseEpoch) -> Option<JobState> {
    let is_next = job.fence.0.checked_add(1) == Some(fence.0);
    (is_next && job.status.is_driven()).then(|| JobState { fence, claimed: true, ..job.clone() })
}

fn intent_recorded(flow: &Flow, job: &JobState, fence: LeaseEpoch) -> Option<JobState> {
    let stage = flow.stage(job.stage)?;
    let is_open = job.claimed && job.fence == fence && job.status == JobStatus::Running;
    let key = job.key(flow, stage.name);
    if !is_open || stage.reentry != Reentry::NeverBlind || job.has_intent(&key) {
        return None;
    }
    let mut after = job.clone();
    after.intents.push(Intent { stage: stage.name, key });
    Some(after)
}

/// The job with its turn closed, if the result belongs to the open turn.
fn open(job: &JobState, fence: LeaseEpoch, status: JobStatus) -> Option<JobState> {
    (job.claimed && job.fence == fence && job.status == status).then(|| quiet(job))
}

fn stage_ok(flow: &Flow, job: &JobState, now: Timestamp) -> Option<JobState> {
    let stage = flow.stage(job.stage)?;
    let back = flow.back_edge.as_ref().filter(|back| back.via == Some(stage.name));
    match back {
        Some(back) => Some(enter(flow, &next_round(job), flow.stage(back.to)?, now)),
        None => Some(advance(flow, job, stage.name, now)),
    }
}

fn next_round(job: &JobState) -> JobState {
    JobState { round: job.round + 1, intents: Vec::new(), ..job.clone() }
}

/// The job after that stage was done, by itself or by what was observed.
pub(super) fn advance(flow: &Flow, job: &JobState, done: StageName, now: Timestamp) -> JobState {
    match flow.after(done) {
        Some(stage) => enter(flow, job, stage, now),
        None => {
            let status = if job.adopted { JobStatus::Reconciled } else { JobStatus::Completed };
            JobState { status, stage: done, failure: None, deadline: None, ..quiet(job) }
        }
    }
}

/// The job at the beginning of that stage.
pub(super) fn enter(flow: &Flow, job: &JobState, stage: &Stage, now: Timestamp) -> JobState {
    let limit_at = limit_at(flow, job, stage.name, now);
    let deadline = now + stage.timeout.after;
    JobState {
        status: JobStatus::Running,
        stage: stage.name,
        stage_entered_at: now,
        deadline: Some(limit_at.map_or(deadline, |limit| limit.min(deadline))),
        limit_at,
        windows: 0,
        attempt: 0,
        errors_in_row: 0,
        highest_stage: furthest(flow, job.highest_stage, stage.name),
        failure: None,
        ..quiet(job)
    }
}

/// When the stages together are to be over: from the entry of the first of them on; a job that an operator takes up again
/// later gets the whole time anew.
fn limit_at(flow: &Flow, job: &JobState, stage: StageName, now: Timestamp) -> Option<Timestamp> {
    let limit = flow.limit.as_ref()?;
    if stage == limit.from {
        return Some(now + limit.after);
    }
    let began = flow.position(stage) > flow.position(limit.from);
    began.then(|| job.limit_at.unwrap_or(now + limit.after))
}

/// Whether the time of the stages together is over.
fn is_limit_over(job: &JobState, now: Timestamp) -> bool {
    job.limit_at.is_some_and(|at| at <= now)
}

/// The later of two stages.
pub(super) fn furthest(flow: &Flow, one: StageName, other: StageName) -> StageName {
    if flow.position(other) > flow.position(one) { other } else { one }
}

/// The job without an open turn and without anything to wait for.
pub(super) fn quiet(job: &JobState) -> JobState {
    JobState { claimed: false, next_at: None, wait: None, ..job.clone() }
}

fn stage_waiting(
    flow: &Flow,
    job: &JobState,
    fence: LeaseEpoch,
    recheck_at: Timestamp,
    waiting_for: &str,
    now: Timestamp,
) -> Option<JobState> {
    let job = open(job, fence, JobStatus::Running).or_else(|| open(job, fence, JobStatus::Compensating))?;
    let stage = flow.stage(job.stage)?;
    if job.deadline.is_some_and(|deadline| deadline <= now) {
        return Some(window_over(flow, &job, stage, waiting_for, now));
    }
    // The last look happens at the deadline, never later.
    let until = job.deadline.map_or(recheck_at, |deadline| recheck_at.min(deadline)).max(now);
    Some(JobState { errors_in_row: 0, ..waiting(&job, waiting_for, until) })
}

fn waiting(job: &JobState, reason: &str, until: Timestamp) -> JobState {
    JobState { next_at: Some(until), wait: Some(Wait { reason: reason.to_owned(), until }), ..job.clone() }
}

fn window_over(flow: &Flow, job: &JobState, stage: &Stage, waiting_for: &str, now: Timestamp) -> JobState {
    let limit = flow.limit.as_ref().filter(|_| is_limit_over(job, now));
    let (class, error_code) = match limit {
        Some(limit) => (limit.class, limit.error_code),
        None => (stage.timeout.class, stage.timeout.error_code),
    };
    let error = StageError {
        class,
        error_code: error_code.to_owned(),
        message: format!("still waiting for {waiting_for} when the time of `{}` was over", stage.name),
        retry_after: None,
        choices: Vec::new(),
        recovery: None,
    };
    if job.status == JobStatus::Compensating {
        let error = StageError { error_code: "undo_timeout".to_owned(), ..error };
        return undo_failed(job, &error, now);
    }
    if limit.is_none() && job.windows + 1 < stage.timeout.windows {
        let failure = failure(job, &error, next_look(now, "the next time window"), now);
        return JobState {
            windows: job.windows + 1,
            attempt: job.attempt + 1,
            errors_in_row: 0,
            deadline: Some(now + stage.timeout.after),
            failure: Some(failure),
            ..job.clone()
        };
    }
    failed(flow, job, stage, &error, now)
}

fn stage_err(flow: &Flow, job: &JobState, error: &StageError, now: Timestamp) -> Option<JobState> {
    let stage = flow.stage(job.stage)?;
    let is_over = job.deadline.is_some_and(|deadline| deadline <= now);
    let after = match disposition(error.class) {
        Disposition::FailRetryable | Disposition::Manual => failed(flow, job, stage, error, now),
        Disposition::Retry { .. } if is_limit_over(job, now) => failed(flow, job, stage, error, now),
        Disposition::Retry { .. } => match stage.attempts {
            Attempts::Bounded(attempts) if job.errors_in_row + 1 < attempts => retry(job, stage, error, now),
            Attempts::Bounded(_) => failed(flow, job, stage, error, now),
            // What kept it from its end until the last look is why it failed, if that is of another class. spec: S5 4.7
            Attempts::UntilTimeout if is_over && error.class == stage.timeout.class => {
                window_over(flow, job, stage, &error.message, now)
            }
            Attempts::UntilTimeout if is_over => failed(flow, job, stage, error, now),
            Attempts::UntilTimeout => retry(job, stage, error, now),
        },
    };
    Some(after)
}

fn retry(job: &JobState, stage: &Stage, error: &StageError, now: Timestamp) -> JobState {
    let errors = job.errors_in_row + 1;
    let until = pause(now, stage.backoff.after(errors), error);
    let until = match stage.attempts {
        Attempts::UntilTimeout => until.min(job.deadline.unwrap_or(until)),
        Attempts::Bounded(_) => until.min(job.limit_at.unwrap_or(until)),
    };
    let reason = format!("the next attempt: {}", error.message);
    let failure = failure(job, error, next_look(until, "the next attempt"), now);
    JobState { attempt: job.attempt + 1, errors_in_row: errors, failure: Some(failure), ..waiting(job, &reason, until) }
}

fn pause(now: Timestamp, backoff: std::time::Duration, error: &StageError) -> Timestamp {
    let asked = error.retry_after.map_or(now, |at| at.min(now + LONGEST_RETRY_AFTER));
    asked.max(now + backoff)
}

/// The stage failed for good: the way back, its detour, the next stage, or a stop.
fn failed(flow: &Flow, job: &JobState, stage: &Stage, error: &StageError, now: Timestamp) -> JobState {
    let is_way_back = flow.back_edge.as_ref().filter(|back| {
        back.from.contains(&stage.name) && back.class == error.class && back.error_code == error.error_code
    });
    if let Some(back) = is_way_back {
        let via = back.via.and_then(|via| flow.stage(via));
        return match flow.stage(back.to).filter(|_| job.round < back.max_rounds) {
            Some(to) => match via {
                Some(via) => enter_after(flow, job, via, error, now),
                None => enter_after(flow, &next_round(job), to, error, now),
            },
            None => stopped(flow, job, stage, error, Stop::Manual, now),
        };
    }
    if let Some(detour) = flow.detour(stage.name, error.class) {
        return enter_after(flow, job, detour, error, now);
    }
    let by_class = disposition(error.class).stop();
    match stage.failing {
        Failing::ByClass => stopped(flow, job, stage, error, by_class, now),
        Failing::ForOperator => stopped(flow, job, stage, error, Stop::Manual, now),
        Failing::Continues if error.class == FailureClass::StateAmbiguity => {
            stopped(flow, job, stage, error, by_class, now)
        }
        Failing::Continues => advance(flow, &warned(job, stage, error, now), stage.name, now),
    }
}

/// The job in the stage that follows a failure; the failure stays visible until that stage is done.
fn enter_after(flow: &Flow, job: &JobState, stage: &Stage, error: &StageError, now: Timestamp) -> JobState {
    let failure = failure(job, error, next_look(now, stage.name.into()), now);
    JobState { failure: Some(failure), ..enter(flow, job, stage, now) }
}

fn stopped(flow: &Flow, job: &JobState, stage: &Stage, error: &StageError, stop: Stop, now: Timestamp) -> JobState {
    let next_action = recommended_next_action(flow, job, stage.name, error);
    let status = match stop {
        Stop::Retryable => JobStatus::FailedRetryable,
        Stop::Manual => JobStatus::FailedManualIntervention,
    };
    let failure = failure(job, error, next_action, now);
    JobState { status, attempt: job.attempt + 1, failure: Some(failure), ..quiet(job) }
}

fn warned(job: &JobState, stage: &Stage, error: &StageError, now: Timestamp) -> JobState {
    let mut after = job.clone();
    after.warnings.push(Warning {
        stage: stage.name,
        error_code: error.error_code.clone(),
        message: error.message.clone(),
        at: now,
    });
    let surplus = after.warnings.len().saturating_sub(KEPT_WARNINGS);
    after.warnings.drain(..surplus);
    after
}

fn failure(job: &JobState, error: &StageError, next_action: NextAction, now: Timestamp) -> Failure {
    Failure {
        stage: job.stage,
        class: error.class,
        error_code: error.error_code.clone(),
        message: error.message.clone(),
        at: now,
        next_action,
    }
}

fn next_look(until: Timestamp, waiting_for: &str) -> NextAction {
    NextAction::WaitUntil { until, waiting_for: waiting_for.to_owned() }
}

/// The job at the beginning of a compensation, or at its end when nothing has to be undone.
pub(super) fn compensate(flow: &Flow, job: &JobState, to: CompensateTo, now: Timestamp) -> JobState {
    let job = JobState { compensating_to: Some(to), ..quiet(job) };
    undo_below(flow, job, None, to, now)
}

fn undo_below(flow: &Flow, job: JobState, below: Option<StageName>, to: CompensateTo, now: Timestamp) -> JobState {
    let due = flow.next_undo(job.highest_stage, below, to);
    match due.and_then(|stage| stage.undo.map(|undo| (stage.name, undo))) {
        Some((stage, undo)) => JobState {
            status: JobStatus::Compensating,
            stage,
            stage_entered_at: now,
            deadline: Some(now + undo.timeout),
            windows: 0,
            attempt: 0,
            errors_in_row: 0,
            ..job
        },
        None => compensated(flow, job, to, now),
    }
}

fn compensated(flow: &Flow, job: JobState, to: CompensateTo, now: Timestamp) -> JobState {
    match to {
        CompensateTo::Cancelled => JobState { status: JobStatus::Cancelled, deadline: None, ..quiet(&job) },
        CompensateTo::Restart { .. } => {
            let first = flow.first();
            let clean = JobState {
                epoch: job.epoch + 1,
                round: 0,
                highest_stage: first.name,
                intents: Vec::new(),
                compensating_to: None,
                adopted: false,
                warnings: Vec::new(),
                ..job
            };
            enter(flow, &clean, first, now)
        }
    }
}

fn undo_ok(flow: &Flow, mut job: JobState, now: Timestamp) -> Option<JobState> {
    let to = job.compensating_to?;
    let undone = job.stage;
    job.intents.retain(|intent| intent.stage != undone);
    Some(undo_below(flow, job, Some(undone), to, now))
}

fn undo_err(flow: &Flow, job: JobState, error: &StageError, now: Timestamp) -> Option<JobState> {
    let undo = flow.stage(job.stage)?.undo?;
    let errors = job.errors_in_row + 1;
    let after = match disposition(error.class) {
        Disposition::Retry { .. } if errors < undo.attempts => {
            let until = pause(now, undo.backoff.after(errors), error);
            let failure = failure(&job, error, next_look(until, "the next attempt to undo"), now);
            let reason = format!("the next attempt to undo: {}", error.message);
            JobState {
                attempt: job.attempt + 1,
                errors_in_row: errors,
                failure: Some(failure),
                ..waiting(&job, &reason, until)
            }
        }
        Disposition::Retry { .. } | Disposition::FailRetryable | Disposition::Manual => undo_failed(&job, error, now),
    };
    Some(after)
}

/// A failed undo is never retried unasked: what is half undone needs a person.
fn undo_failed(job: &JobState, error: &StageError, now: Timestamp) -> JobState {
    let action = match job.compensating_to {
        Some(CompensateTo::Restart { .. }) => OperatorAction::Resume,
        Some(CompensateTo::Cancelled) | None => OperatorAction::Cancel,
    };
    let next_action = NextAction::run(command(action, job.id), format!("go on undoing at {}", job.stage));
    let failure = failure(job, error, next_action, now);
    JobState {
        status: JobStatus::FailedManualIntervention,
        attempt: job.attempt + 1,
        failure: Some(failure),
        ..quiet(job)
    }
}

fn timer(job: &JobState, now: Timestamp) -> Option<JobState> {
    let is_due = job.next_at.is_some_and(|at| at <= now) && job.status.is_driven();
    is_due.then(|| JobState { next_at: None, wait: None, ..job.clone() })
}

fn wake(job: &JobState) -> Option<JobState> {
    // After an error the pause stands: what woke the job does not know why it paused.
    let may_look = job.next_at.is_some() && job.errors_in_row == 0 && job.status == JobStatus::Running;
    may_look.then(|| JobState { next_at: None, wait: None, ..job.clone() })
}

/// The live turn is fenced off, as by an operator's action: what it decided is of what was asked before.
fn amended(flow: &Flow, job: &JobState, lease_until: Option<Timestamp>, now: Timestamp) -> Option<JobState> {
    let stage = flow.stage(job.stage)?;
    match job.status {
        JobStatus::Pending => Some(job.clone()),
        JobStatus::Running => {
            let since_entry = job.stage_entered_at + stage.timeout.after;
            let deadline = if since_entry > now { since_entry } else { now + stage.timeout.after };
            let next_at = lease_until.filter(|until| *until > now);
            let fence = LeaseEpoch(job.fence.0 + 1);
            Some(JobState { deadline: Some(deadline), fence, next_at, ..quiet(job) })
        }
        JobStatus::Completed
        | JobStatus::FailedRetryable
        | JobStatus::FailedManualIntervention
        | JobStatus::Cancelled
        | JobStatus::Compensating
        | JobStatus::Reconciled => None,
    }
}

/// What the provider must receive from the host is not proven by its agent: those stages are still run, and a job that
/// failed at one of them stays failed. spec: S5 4.6, 4.13, 9.1
fn late_success(flow: &Flow, job: &JobState, now: Timestamp) -> Option<JobState> {
    let enrollment = flow.stage(StageName::WaitForAgentEnrollment)?;
    let is_frozen = job.failure.as_ref().is_some_and(|failure| failure.error_code == FROZEN);
    if !job.status.is_failed() || job.compensating_to.is_some() || is_frozen {
        return None;
    }
    let adopted = JobState { adopted: true, fence: LeaseEpoch(job.fence.0 + 1), ..job.clone() };
    let left = flow.in_sequence(job.stage)?;
    match flow.stage(StageName::EnsureHardwareSyncConfigured) {
        Some(sync) if flow.position(left) < flow.position(sync.name) => Some(enter(flow, &adopted, sync, now)),
        Some(_) if left != enrollment.name => None,
        Some(_) | None => {
            let entered = enter(flow, &adopted, enrollment, now);
            Some(JobState { status: JobStatus::Reconciled, deadline: None, ..entered })
        }
    }
}
