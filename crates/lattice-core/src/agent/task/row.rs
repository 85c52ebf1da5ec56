//! The row of a task.

use serde::{Deserialize, Serialize};

use super::{Statement, TaskInput, TaskReport, TaskStatus};
use crate::actor::Actor;
use crate::change::Change;
use crate::ids::{AllocationId, CorrelationId, Generation, JobId, NodeId, TaskId};
use crate::job::StageName;
use crate::time::Timestamp;

/// Something that an agent is asked to do, once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Task {
    /// Identity.
    pub id: TaskId,
    /// The only node that may do it.
    pub node: NodeId,
    /// What it is done for.
    pub owner: TaskOwner,
    /// Idempotency key: a second task with it is this one.
    pub key: String,
    /// What.
    pub input: TaskInput,
    /// Identity epoch of the node when it was issued: another host with that name is not asked.
    pub node_epoch: u64,
    /// When it was issued.
    pub issued_at: Timestamp,
    /// From when on it is not begun any more.
    pub expires_at: Timestamp,
    /// From when on it is given up if nobody reported.
    pub finish_by: Timestamp,
    /// 16 random bytes, in hex.
    pub nonce: String,
    /// Where it stands.
    pub status: TaskStatus,
    /// When it was handed to its agent last.
    pub delivered_at: Option<Timestamp>,
    /// When its agent began, by the server's clock.
    pub started_at: Option<Timestamp>,
    /// When it was over, by the server's clock.
    pub finished_at: Option<Timestamp>,
    /// The agent's last report; a report that comes after its end is kept too.
    pub report: Option<TaskReport>,
    /// Who asked.
    pub requested_by: Actor,
    /// What it belongs to.
    pub correlation: CorrelationId,
    /// When the row changed last.
    pub updated_at: Timestamp,
    /// Version of the row.
    pub generation: Generation,
}

/// What a task is done for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(tag = "for", rename_all = "snake_case")]
pub enum TaskOwner {
    /// A stage of a job, which waits for it.
    Job {
        /// Which job.
        job: JobId,
        /// Which of its stages.
        stage: StageName,
    },
    /// An allocation, outside of any job.
    Allocation {
        /// Which.
        allocation: AllocationId,
    },
    /// A person or a program, by the API.
    Request,
}

impl TaskOwner {
    /// The job that waits for it.
    pub const fn job(&self) -> Option<JobId> {
        match self {
            Self::Job { job, .. } => Some(*job),
            Self::Allocation { .. } | Self::Request => None,
        }
    }
}

impl Task {
    /// The change that creates it.
    pub fn created(&self) -> Change {
        Change::Task(Box::new(TaskChange { after: self.clone(), before: None, cause: TaskCause::Issued }))
    }

    /// What its agent is told.
    pub fn statement(&self) -> Statement {
        Statement {
            task: self.id,
            node: self.node,
            node_epoch: self.node_epoch,
            issued_at: self.issued_at,
            expires_at: self.expires_at,
            nonce: self.nonce.clone(),
            input: self.input.clone(),
        }
    }

    /// The allocation that it is about, or done for.
    pub fn allocation(&self) -> Option<AllocationId> {
        match self.owner {
            TaskOwner::Allocation { allocation } => Some(allocation),
            TaskOwner::Job { .. } | TaskOwner::Request => self.input.allocation(),
        }
    }
}

/// What happened to a task: the last word of its events, `task.issued`.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    Hash,
    Serialize,
    Deserialize,
    strum::Display,
    strum::IntoStaticStr,
    strum::VariantArray,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum TaskCause {
    /// It was created.
    Issued,
    /// It was handed to its agent.
    Delivered,
    /// The agent began.
    Started,
    /// It is done.
    Succeeded,
    /// It was refused, or went wrong.
    Failed,
    /// Its time is over.
    Expired,
    /// It was withdrawn.
    Cancelled,
    /// A report came after its end; it is kept and changes nothing else.
    ReportedLate,
}

impl TaskCause {
    /// Whether it stands in the audit: handing over and beginning are no decisions.
    pub const fn is_audited(self) -> bool {
        match self {
            Self::Issued | Self::Succeeded | Self::Failed | Self::Expired | Self::Cancelled | Self::ReportedLate => {
                true
            }
            Self::Delivered | Self::Started => false,
        }
    }
}

/// A changed task row.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskChange {
    /// The row after the change.
    pub after: Task,
    /// Status before; none when it is created.
    pub before: Option<TaskStatus>,
    /// What happened.
    pub cause: TaskCause,
}
