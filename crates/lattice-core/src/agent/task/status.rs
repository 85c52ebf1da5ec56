//! Where a task stands, as a table.

use serde::{Deserialize, Serialize};

/// Status of a task.
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
pub enum TaskStatus {
    /// Issued; its agent has not asked for it yet.
    Pending,
    /// Handed to its agent, which has not said that it began.
    Delivered,
    /// The agent works on it.
    Running,
    /// Done, with what came out of it.
    Succeeded,
    /// Refused by the agent, or not done.
    Failed,
    /// Nobody said anything in time: it was not begun, or what became of it is not known.
    Expired,
    /// Withdrawn before its agent got it.
    Cancelled,
}

impl TaskStatus {
    /// Whether nothing more follows.
    pub const fn is_final(self) -> bool {
        match self {
            Self::Succeeded | Self::Failed | Self::Expired | Self::Cancelled => true,
            Self::Pending | Self::Delivered | Self::Running => false,
        }
    }
}

/// What moves a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, strum::Display, strum::VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum TaskEvent {
    /// It is handed to its agent.
    Deliver,
    /// The agent began.
    Begin,
    /// The agent is done.
    Succeed,
    /// The agent refused it, or it went wrong.
    Fail,
    /// Its time is over.
    Expire,
    /// Somebody withdrew it.
    Cancel,
}

/// One allowed move.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Edge {
    /// From.
    pub from: TaskStatus,
    /// By.
    pub event: TaskEvent,
    /// To.
    pub to: TaskStatus,
}

const fn edge(from: TaskStatus, event: TaskEvent, to: TaskStatus) -> Edge {
    Edge { from, event, to }
}

/// Every allowed move. A report may come before the delivery was noted: the row may be a restored one.
pub const EDGES: &[Edge] = &[
    edge(TaskStatus::Pending, TaskEvent::Deliver, TaskStatus::Delivered),
    edge(TaskStatus::Delivered, TaskEvent::Deliver, TaskStatus::Delivered),
    edge(TaskStatus::Pending, TaskEvent::Begin, TaskStatus::Running),
    edge(TaskStatus::Delivered, TaskEvent::Begin, TaskStatus::Running),
    edge(TaskStatus::Pending, TaskEvent::Succeed, TaskStatus::Succeeded),
    edge(TaskStatus::Delivered, TaskEvent::Succeed, TaskStatus::Succeeded),
    edge(TaskStatus::Running, TaskEvent::Succeed, TaskStatus::Succeeded),
    edge(TaskStatus::Pending, TaskEvent::Fail, TaskStatus::Failed),
    edge(TaskStatus::Delivered, TaskEvent::Fail, TaskStatus::Failed),
    edge(TaskStatus::Running, TaskEvent::Fail, TaskStatus::Failed),
    edge(TaskStatus::Pending, TaskEvent::Expire, TaskStatus::Expired),
    edge(TaskStatus::Delivered, TaskEvent::Expire, TaskStatus::Expired),
    edge(TaskStatus::Running, TaskEvent::Expire, TaskStatus::Expired),
    edge(TaskStatus::Pending, TaskEvent::Cancel, TaskStatus::Cancelled),
];

/// A move that is not in the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a task that is {from} takes no `{event}`")]
pub struct IllegalTransition {
    /// Where it stands.
    pub from: TaskStatus,
    /// What came.
    pub event: TaskEvent,
}

impl TaskStatus {
    /// Where `event` leads.
    ///
    /// # Errors
    /// [`IllegalTransition`] when the table has no such edge.
    pub fn next(self, event: TaskEvent) -> Result<Self, IllegalTransition> {
        EDGES
            .iter()
            .find(|edge| edge.from == self && edge.event == event)
            .map(|edge| edge.to)
            .ok_or(IllegalTransition { from: self, event })
    }
}
