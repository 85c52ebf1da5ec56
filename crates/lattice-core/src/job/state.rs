//! The durable part of a job that the engine owns, and what can change it.

use serde::{Deserialize, Serialize};

use super::flow::Flow;
use super::operator_action::{Decisions, Op, OperatorAction};
use super::stage::StageName;
use super::status::JobStatus;
use crate::explain::NextAction;
use crate::failure::FailureClass;
use crate::ids::{JobId, LeaseEpoch, OpId};
use crate::time::Timestamp;

/// How many request ids of operators a job remembers; older ones are found in the audit.
pub const SEEN_REQUESTS: usize = 32;
/// How many warnings a job keeps, the newest.
pub const KEPT_WARNINGS: usize = 16;

/// Why a job does nothing right now, and until when.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Wait {
    /// What it waits for, in a few words.
    pub reason: String,
    /// When it looks again.
    pub until: Timestamp,
}

/// Committed before an effect that must not happen twice.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Intent {
    /// Which stage is going to act.
    pub stage: StageName,
    /// Under which key.
    pub key: String,
}

/// Why a job stopped, or why its stage is tried again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Failure {
    /// Stage that failed.
    pub stage: StageName,
    /// Class; decides what may be done. spec: S5 4.7
    pub class: FailureClass,
    /// Code within the class: `failed_commission`.
    pub error_code: String,
    /// What happened, for a person.
    pub message: String,
    /// When.
    pub at: Timestamp,
    /// What to do about it.
    pub next_action: NextAction,
}

/// A stage that failed and was not essential.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Warning {
    /// Which stage.
    pub stage: StageName,
    /// Code of its failure.
    pub error_code: String,
    /// What happened.
    pub message: String,
    /// When.
    pub at: Timestamp,
}

/// What a compensation leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(tag = "to", rename_all = "snake_case")]
pub enum CompensateTo {
    /// The end of the job.
    Cancelled,
    /// The first stage in a new epoch.
    Restart {
        /// An operator decided that a machine whose OS runs is released too.
        release_deployed: bool,
    },
}

/// The engine's part of a job's row. Outputs of stages are not here.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct JobState {
    /// Whose.
    pub id: JobId,
    /// Status.
    pub status: JobStatus,
    /// The stage that runs, waits or failed; while compensating, the one being undone.
    pub stage: StageName,
    /// When it was entered, or entered again by an operator.
    pub stage_entered_at: Timestamp,
    /// When its present time window ends; none before the job started.
    pub deadline: Option<Timestamp>,
    /// When the later stages of its flow together are to be over; none before the first of them, or without a limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit_at: Option<Timestamp>,
    /// Windows used up.
    pub windows: u32,
    /// Attempts that ended with an error or a timeout since it was entered.
    pub attempt: u32,
    /// Errors since it last made progress.
    pub errors_in_row: u32,
    /// Pass of the flow's way back, from 0.
    pub round: u32,
    /// Grows by one with each clean restart, from 0.
    pub epoch: u32,
    /// Furthest stage entered in this epoch; compensation follows it.
    pub highest_stage: StageName,
    /// Fence: results of turns with an older one are refused.
    pub fence: LeaseEpoch,
    /// Whether a turn with that fence is open.
    pub claimed: bool,
    /// Not before.
    pub next_at: Option<Timestamp>,
    /// Why not.
    pub wait: Option<Wait>,
    /// Intents of this epoch and round that were not undone.
    pub intents: Vec<Intent>,
    /// Why it stopped, or the last error of the stage being retried.
    pub failure: Option<Failure>,
    /// Where the compensation leads, once it began.
    pub compensating_to: Option<CompensateTo>,
    /// Whether an operator had an observed state adopted; such a job ends as reconciled.
    pub adopted: bool,
    /// What operators decided.
    pub decisions: Decisions,
    /// Failures that did not stop it.
    pub warnings: Vec<Warning>,
    /// Requests of operators that were applied, the newest.
    pub seen: Vec<OpId>,
}

impl JobState {
    /// A job that was accepted at `now` and not started; `first` is the first stage of its flow.
    pub fn pending(id: JobId, first: StageName, now: Timestamp) -> Self {
        Self {
            id,
            status: JobStatus::Pending,
            stage: first,
            stage_entered_at: now,
            deadline: None,
            limit_at: None,
            windows: 0,
            attempt: 0,
            errors_in_row: 0,
            round: 0,
            epoch: 0,
            highest_stage: first,
            fence: LeaseEpoch(0),
            claimed: false,
            next_at: None,
            wait: None,
            intents: Vec::new(),
            failure: None,
            compensating_to: None,
            adopted: false,
            decisions: Decisions::default(),
            warnings: Vec::new(),
            seen: Vec::new(),
        }
    }

    /// Key of the effect of a stage: stable over attempts and crashes. design: 3-jobs "Idempotency key"
    pub fn key(&self, flow: &Flow, stage: StageName) -> String {
        format!("{}/{}/g{}/r{}/{stage}", flow.name, self.id, self.epoch, self.round)
    }

    /// Key of undoing a stage.
    pub fn undo_key(&self, flow: &Flow, stage: StageName) -> String {
        format!("{}/undo", self.key(flow, stage))
    }

    /// Whether the intent to act under that key was committed.
    pub fn has_intent(&self, key: &str) -> bool {
        self.intents.iter().any(|intent| intent.key == key)
    }
}

/// An error of a stage or of an undo.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StageError {
    /// Class. spec: S5 4.7
    pub class: FailureClass,
    /// Code within the class, snake_case.
    pub error_code: String,
    /// What happened, for a person; no secrets.
    pub message: String,
    /// Not before that time again, if the other side said so.
    pub retry_after: Option<Timestamp>,
    /// What the decision that the stage asks for can be, the likeliest first: disks, machines.
    pub choices: Vec<String>,
    /// The operator's action that recovers from it, where it is another one than its class's.
    pub recovery: Option<OperatorAction>,
}

/// Everything that can change a job. Results carry the fence of their turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Input {
    /// Permits are there: begin.
    Start,
    /// A driver opens a turn; its fence is the job's plus one.
    Claim {
        /// The new fence.
        fence: LeaseEpoch,
    },
    /// The stage is about to act, under the key that `next` gave. Only for stages that are never blind.
    IntentRecorded {
        /// Of the turn.
        fence: LeaseEpoch,
    },
    /// The stage's effect is there.
    StageOk {
        /// Of the turn.
        fence: LeaseEpoch,
    },
    /// The stage, or the undo, goes on elsewhere.
    StageWaiting {
        /// Of the turn.
        fence: LeaseEpoch,
        /// When to look again.
        recheck_at: Timestamp,
        /// What for.
        waiting_for: String,
    },
    /// The stage failed this time.
    StageErr {
        /// Of the turn.
        fence: LeaseEpoch,
        /// How.
        error: StageError,
    },
    /// The stage is undone.
    UndoOk {
        /// Of the turn.
        fence: LeaseEpoch,
    },
    /// The undo failed this time.
    UndoErr {
        /// Of the turn.
        fence: LeaseEpoch,
        /// How.
        error: StageError,
    },
    /// `next_at` has come.
    Timer,
    /// What the stage waits for may have come: look now. Does not shorten a pause after an error.
    Wake,
    /// What it was asked changed while it runs: its stage gets the time that its flow gives it now, and looks again.
    Amended {
        /// Until when a turn of it may still run.
        lease_until: Option<Timestamp>,
    },
    /// An operator asks.
    Op(Op),
    /// The job's own agent enrolled, and is healthy, after the job had failed. spec: S5 4.13
    LateSuccess,
}
