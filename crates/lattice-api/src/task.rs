//! Tasks of agents as operators see them, and the keys that sign them.

pub use lattice_core::agent::task::TaskOwner;
use lattice_core::agent::task::{TaskErrorCode, TaskKey, TaskKind, TaskReport, TaskStatus};
use lattice_core::ids::{AllocationId, NodeId, TaskId};
use lattice_core::time::Timestamp;
use serde::{Deserialize, Serialize};

/// Which tasks of a node.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct TaskQuery {
    /// Where to go on: `next` of the page before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
    /// At most so many rows, 1 to 1000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
    /// Only tasks in this status.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<TaskStatus>,
    /// Only tasks of this kind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<TaskKind>,
}

/// A task in a list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct TaskRow {
    /// Identity.
    pub id: TaskId,
    /// Whose agent does it.
    pub node_id: NodeId,
    /// What it does.
    pub kind: TaskKind,
    /// Where it stands.
    pub status: TaskStatus,
    /// What it is done for.
    pub owner: TaskOwner,
    /// The allocation that it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allocation: Option<AllocationId>,
    /// When it was issued.
    pub issued_at: Timestamp,
    /// From when on it is not begun any more.
    pub expires_at: Timestamp,
    /// When it was handed to its agent last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delivered_at: Option<Timestamp>,
    /// When its agent began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Timestamp>,
    /// When it was over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<Timestamp>,
    /// Why it was refused or not done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error_code: Option<TaskErrorCode>,
    /// Why, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// One task, with what it was told and what its agent said.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct TaskView {
    /// The row.
    #[serde(flatten)]
    pub row: TaskRow,
    /// Idempotency key under which it was created.
    pub key: String,
    /// What it was told; the values of variables are left out.
    #[schema(value_type = Object)]
    pub input: serde_json::Value,
    /// When it is given up if nobody reports.
    pub finish_by: Timestamp,
    /// Who asked.
    pub requested_by: String,
    /// What its agent said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub report: Option<TaskReport>,
}

/// The keys that sign tasks: their public halves.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct TaskSigningKeys {
    /// Signs from now on.
    pub current: TaskKey,
    /// Sign no more, and are trusted until their last task is over.
    pub retired: Vec<RetiredKey>,
}

/// A key that signs no more.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct RetiredKey {
    /// The key.
    #[serde(flatten)]
    pub key: TaskKey,
    /// Until when agents trust it.
    pub until: Timestamp,
}
