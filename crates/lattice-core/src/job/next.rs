//! What a driver has to do for a job, from its durable row alone.

use super::flow::{Flow, Reentry, UndoKind};
use super::stage::StageName;
use super::state::JobState;
use super::status::JobStatus;
use crate::time::Timestamp;

/// What a driver has to do now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Next {
    /// Claim, then run that stage.
    Run {
        /// Which stage.
        stage: StageName,
        /// Which attempt, from 1.
        attempt: u32,
        /// Which time window, from 1; a later one may need fresh means, such as another token.
        window: u32,
        /// Whether to observe before acting.
        observe: bool,
        /// Whether `IntentRecorded` must be committed before acting.
        needs_intent: bool,
        /// Whether the intent to act under that key was committed before: the effect may have happened. Act
        /// only if the observation proves that it did not; if it cannot tell, it is a `state_ambiguity`.
        intended: bool,
        /// Idempotency key of the effect.
        key: String,
    },
    /// Claim, observe, then undo that stage.
    Undo {
        /// Which stage.
        stage: StageName,
        /// How.
        kind: UndoKind,
        /// Which attempt, from 1.
        attempt: u32,
        /// Idempotency key of the undo.
        key: String,
    },
    /// Nothing before that time; then call `next` again.
    Sleep {
        /// When.
        until: Timestamp,
    },
    /// Nothing, until somebody does something.
    Park {
        /// What is missing.
        why: ParkedFor,
    },
    /// Nothing, ever.
    Done,
}

/// What a parked job waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, strum::Display, strum::VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum ParkedFor {
    /// The input `Start`: permits of its site and batch.
    Start,
    /// An operator.
    Operator,
    /// A version that knows the stage: the table does not have it.
    KnownStage,
}

/// What a driver has to do for a job at `now`.
pub fn next(flow: &Flow, job: &JobState, now: Timestamp) -> Next {
    match job.status {
        JobStatus::Pending => Next::Park { why: ParkedFor::Start },
        JobStatus::Running | JobStatus::Compensating => match job.next_at.filter(|until| *until > now) {
            Some(until) => Next::Sleep { until },
            None => turn(flow, job),
        },
        JobStatus::FailedRetryable | JobStatus::FailedManualIntervention => Next::Park { why: ParkedFor::Operator },
        JobStatus::Completed | JobStatus::Cancelled | JobStatus::Reconciled => Next::Done,
    }
}

fn turn(flow: &Flow, job: &JobState) -> Next {
    let Some(stage) = flow.stage(job.stage) else {
        return Next::Park { why: ParkedFor::KnownStage };
    };
    let attempt = job.attempt + 1;
    if job.status == JobStatus::Compensating {
        return match stage.undo {
            Some(undo) => {
                let key = job.undo_key(flow, stage.name);
                Next::Undo { stage: stage.name, kind: undo.kind, attempt, key }
            }
            None => Next::Park { why: ParkedFor::KnownStage },
        };
    }
    let key = job.key(flow, stage.name);
    Next::Run {
        stage: stage.name,
        attempt,
        window: job.windows + 1,
        observe: stage.reentry != Reentry::Pure,
        needs_intent: stage.reentry == Reentry::NeverBlind,
        intended: job.has_intent(&key),
        key,
    }
}
