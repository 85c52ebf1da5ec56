//! Allocations: users' work on nodes. design: 2-state-model "Allocations and ownership"

use lattice_core::actor::Actor;
use lattice_core::ids::{AllocationId, CorrelationId, Generation, NodeId, OwnershipEpoch, SiteId};
use lattice_core::node::{Labels, NodeClass};
use lattice_core::time::Timestamp;
use serde::{Deserialize, Serialize};

pub use lattice_core::agent::task::{CheckpointHow, Limits};
pub use lattice_core::allocation::{AllocationStatus, RequeuePolicy, Workload};

/// Asks for a node and something to be started on it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateAllocation {
    /// Whose work it is: a node belongs to one user at a time.
    pub user: String,
    /// Class of the claim; `standard` when absent. A sensitive claim has its node wiped when it ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<NodeClass>,
    /// Only on this node, by hostname or id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// Only at this site, by name or id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub site: Option<String>,
    /// Only on nodes of this SKU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sku: Option<String>,
    /// GPUs that it needs for itself.
    #[serde(default)]
    pub gpus: u32,
    /// Only on nodes with all of these labels.
    #[serde(default, skip_serializing_if = "Labels::is_empty")]
    pub labels: Labels,
    /// When it is queued again; `on_node_failure` when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requeue: Option<RequeuePolicy>,
    /// What is started.
    pub workload: Workload,
    /// Why.
    #[serde(default)]
    pub reason: String,
}

/// An allocation in a list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct AllocationRow {
    /// Identity.
    pub id: AllocationId,
    /// Whose it is.
    pub user: String,
    /// Class of its claim.
    pub class: NodeClass,
    /// Where it stands.
    pub status: AllocationStatus,
    /// Since when.
    pub status_since: Timestamp,
    /// Why it stands there: what it waits for, how it ended.
    pub why: String,
    /// Its node; the last one when it is over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_id: Option<NodeId>,
    /// That node's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hostname: Option<String>,
    /// GPUs that it has for itself.
    pub gpus: u32,
    /// When it is queued again.
    pub requeue: RequeuePolicy,
    /// Whether it can save its state.
    pub checkpointable: bool,
    /// How often it was placed.
    pub placements: u32,
    /// When it is tried again, if it waits because the last start failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_at: Option<Timestamp>,
    /// When it was asked for.
    pub requested_at: Timestamp,
}

/// An allocation with all that is known of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct AllocationView {
    /// As in lists.
    #[serde(flatten)]
    pub row: AllocationRow,
    /// The only site it may go to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub site_id: Option<SiteId>,
    /// The only SKU it may go to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sku: Option<String>,
    /// The ownership under which it was placed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ownership_epoch: Option<OwnershipEpoch>,
    /// What is started.
    pub workload: Workload,
    /// Who asked.
    pub requested_by: Actor,
    /// What it belongs to.
    pub correlation_id: CorrelationId,
    /// Version of the row.
    pub generation: Generation,
}

/// Which allocations.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
pub struct AllocationQuery {
    /// A status, or `live` for those that are not over.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<String>,
    /// That have, or had last, this node, by hostname or id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// Of this user.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// Where the page before this one ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
    /// Longest page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
}

/// What can be asked of an allocation.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    Serialize,
    Deserialize,
    utoipa::ToSchema,
    strum::Display,
    strum::EnumString,
    strum::VariantArray,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum AllocationVerb {
    /// End it.
    Release,
    /// Queue it again after it failed.
    Requeue,
}

/// What a verb came to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct AllocationActionAnswer {
    /// Whether something changed; false: it was so already.
    pub changed: bool,
    /// The allocation as it stands now.
    pub allocation: AllocationView,
}

/// What a verb on a node means for something that is placed there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct AllocationImpact {
    /// Which allocation.
    pub id: AllocationId,
    /// Whose it is.
    pub user: String,
    /// Class of its claim.
    pub class: NodeClass,
    /// Where it stands.
    pub status: AllocationStatus,
    /// For how long, in milliseconds.
    pub for_ms: u64,
    /// What becomes of it, in words.
    pub what: String,
}
