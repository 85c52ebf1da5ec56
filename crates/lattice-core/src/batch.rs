//! Batches of onboardings: a parent with a status of its own, which follows its children. spec: S5 4.4
//!
//! What an operator wants of a batch is its [`BatchControl`]; what became of it is its [`BatchStatus`], recomputed
//! from the children's rows at any time. Which children may start is decided in [`admission`], how long the rest will
//! take in [`estimate`].

pub mod admission;
pub mod estimate;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::actor::Actor;
use crate::ids::{BatchId, CorrelationId, Generation, JobId, OpId, SiteId};
use crate::job::JobStatus;
use crate::time::Timestamp;

/// Most machines of one batch: what one transaction creates within a fraction of a second.
pub const MACHINES_MAX: usize = 1_000;

/// What operators want of a batch.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    utoipa::ToSchema,
    strum::Display,
    strum::EnumString,
    strum::IntoStaticStr,
    strum::VariantArray,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum BatchControl {
    /// Children start as permits become free.
    Run,
    /// No further child starts; those that run go on.
    Pause,
    /// Every child that is not over is cancelled. There is no way back.
    Cancel,
}

/// Where a batch stands; follows from its control and its children.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    utoipa::ToSchema,
    strum::Display,
    strum::EnumString,
    strum::IntoStaticStr,
    strum::VariantArray,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum BatchStatus {
    /// No child was started.
    Pending,
    /// Children run, or wait for permits.
    Running,
    /// An operator paused it, and children wait to be started.
    Paused,
    /// An operator cancelled it, and not every child is over.
    Cancelling,
    /// Nothing moves: some children succeeded, others stopped and need an operator.
    PartialFailure,
    /// Nothing moves: children stopped and need an operator, and none succeeded.
    Failed,
    /// Every child is over, at least one succeeded.
    Completed,
    /// Every child is over, and it was cancelled, or each of them was.
    Cancelled,
}

impl BatchStatus {
    /// Whether nothing changes the batch any more.
    pub const fn is_terminal(self) -> bool {
        match self {
            Self::Completed | Self::Cancelled => true,
            Self::Pending | Self::Running | Self::Paused | Self::Cancelling | Self::PartialFailure | Self::Failed => {
                false
            }
        }
    }
}

/// How many children of a batch stand where.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Children {
    /// Accepted, not started.
    pub pending: u64,
    /// Started and moving.
    pub running: u64,
    /// Being undone.
    pub compensating: u64,
    /// Completed or reconciled.
    pub succeeded: u64,
    /// Stopped; a safe way to go on exists.
    pub failed_retryable: u64,
    /// Stopped; an operator must decide.
    pub failed_manual_intervention: u64,
    /// Cancelled.
    pub cancelled: u64,
}

impl Children {
    /// Counts children by their status.
    pub fn count(statuses: impl IntoIterator<Item = (JobStatus, u64)>) -> Self {
        let mut children = Self::default();
        for (status, count) in statuses {
            let place = match status {
                JobStatus::Pending => &mut children.pending,
                JobStatus::Running => &mut children.running,
                JobStatus::Compensating => &mut children.compensating,
                JobStatus::Completed | JobStatus::Reconciled => &mut children.succeeded,
                JobStatus::FailedRetryable => &mut children.failed_retryable,
                JobStatus::FailedManualIntervention => &mut children.failed_manual_intervention,
                JobStatus::Cancelled => &mut children.cancelled,
            };
            *place += count;
        }
        children
    }

    /// All of them.
    pub const fn total(&self) -> u64 {
        self.pending + self.moving() + self.succeeded + self.failed() + self.cancelled
    }

    /// Those that hold a permit: started, and neither over nor stopped.
    pub const fn moving(&self) -> u64 {
        self.running + self.compensating
    }

    /// Those that stopped and wait for an operator. They hold no permit: one failure never blocks another child.
    pub const fn failed(&self) -> u64 {
        self.failed_retryable + self.failed_manual_intervention
    }

    /// Those that are over.
    pub const fn over(&self) -> u64 {
        self.succeeded + self.cancelled
    }
}

/// Where a batch with that control and those children stands.
pub const fn status(control: BatchControl, children: &Children) -> BatchStatus {
    if children.over() == children.total() {
        return match control {
            BatchControl::Run | BatchControl::Pause if children.succeeded > 0 => BatchStatus::Completed,
            BatchControl::Cancel if children.succeeded > 0 && children.cancelled == 0 => BatchStatus::Completed,
            BatchControl::Run | BatchControl::Pause | BatchControl::Cancel => BatchStatus::Cancelled,
        };
    }
    if matches!(control, BatchControl::Cancel) {
        return BatchStatus::Cancelling;
    }
    if children.pending > 0 && matches!(control, BatchControl::Pause) {
        return BatchStatus::Paused;
    }
    if children.pending == children.total() {
        return BatchStatus::Pending;
    }
    if children.pending > 0 || children.moving() > 0 {
        return BatchStatus::Running;
    }
    if children.succeeded > 0 { BatchStatus::PartialFailure } else { BatchStatus::Failed }
}

/// What happened to a batch, as its events and its audit name it: `onboarding.batch.paused`.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    strum::Display,
    strum::EnumString,
    strum::IntoStaticStr,
    strum::VariantArray,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum BatchCause {
    /// It was accepted, with all its children.
    Created,
    /// Its first child was started.
    Started,
    /// An operator paused it.
    Paused,
    /// An operator let it go on.
    Resumed,
    /// An operator cancelled it; its children follow.
    CancelRequested,
    /// Nothing moves any more, and some children need an operator.
    PartialFailure,
    /// Nothing moves any more, and every child that is not over needs an operator.
    Failed,
    /// It moves again: an operator resumed a child that had stopped.
    Continued,
    /// Every child is over, at least one succeeded.
    Completed,
    /// Every child is over after a cancel.
    Cancelled,
}

/// A batch of onboardings. spec: S5 4.1, 4.4
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Batch {
    /// Identity; its children's rows carry it.
    pub id: BatchId,
    /// Where all its machines are.
    pub site: SiteId,
    /// What kind of machines.
    pub sku: String,
    /// Name of the profile of their onboardings; none: the site's own settings.
    pub profile: Option<String>,
    /// The `batch_max_parallel` of that profile, as it stood when the batch was accepted.
    pub profile_parallel: Option<u32>,
    /// How many machines.
    pub machines: u64,
    /// Children that may run at once, where the operator asked for fewer than the site's policy allows.
    pub max_parallel: Option<u32>,
    /// What operators want of it.
    pub control: BatchControl,
    /// Who wanted that last.
    pub control_by: Actor,
    /// Since when.
    pub control_since: Timestamp,
    /// Where it stood when its row was written; [`status`] of its children's rows is the present truth.
    pub status: BatchStatus,
    /// Since when.
    pub status_since: Timestamp,
    /// Who asked for it.
    pub requested_by: Actor,
    /// Why.
    pub reason: String,
    /// Ties together all it caused.
    pub correlation: CorrelationId,
    /// When it was asked for.
    pub created_at: Timestamp,
    /// When its first child was started.
    pub started_at: Option<Timestamp>,
    /// When its last child was over.
    pub finished_at: Option<Timestamp>,
    /// When its row changed last.
    pub updated_at: Timestamp,
    /// Version of the row.
    pub generation: Generation,
}

/// A changed batch row with what its events tell.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BatchChange {
    /// The row after the change.
    pub after: Batch,
    /// Status before; none when it is created.
    pub before: Option<BatchStatus>,
    /// What happened.
    pub cause: BatchCause,
    /// Its children at that moment.
    pub children: Children,
}

/// The change that brings a batch's row in step with its children; none when it is.
pub fn follow(batch: &Batch, children: &Children, now: Timestamp) -> Option<BatchChange> {
    let after = status(batch.control, children);
    let was_started = batch.started_at.is_some();
    let is_started = was_started || children.total() > children.pending + children.cancelled;
    if after == batch.status && is_started == was_started {
        return None;
    }
    let cause = match after {
        BatchStatus::Running | BatchStatus::Paused | BatchStatus::Cancelling | BatchStatus::Pending if was_started => {
            BatchCause::Continued
        }
        BatchStatus::Pending | BatchStatus::Running | BatchStatus::Paused | BatchStatus::Cancelling => {
            BatchCause::Started
        }
        BatchStatus::PartialFailure => BatchCause::PartialFailure,
        BatchStatus::Failed => BatchCause::Failed,
        BatchStatus::Completed => BatchCause::Completed,
        BatchStatus::Cancelled => BatchCause::Cancelled,
    };
    let row = Batch {
        status: after,
        status_since: if after == batch.status { batch.status_since } else { now },
        started_at: batch.started_at.or(is_started.then_some(now)),
        finished_at: after.is_terminal().then_some(now),
        updated_at: now,
        generation: batch.generation.next(),
        ..batch.clone()
    };
    Some(BatchChange { after: row, before: Some(batch.status), cause, children: *children })
}

/// The request under which a cancelled batch cancels that child: always the same, so that no child is asked twice,
/// whatever dies in between. An undo that failed waits for an operator.
pub fn cancel_request(batch: BatchId, child: JobId) -> OpId {
    let mut hasher = Sha256::new();
    hasher.update(b"cancel");
    hasher.update(batch.uuid().as_bytes());
    hasher.update(child.uuid().as_bytes());
    let hash = hasher.finalize();
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&hash[..16]);
    OpId::new(uuid::Builder::from_custom_bytes(bytes).into_uuid())
}
