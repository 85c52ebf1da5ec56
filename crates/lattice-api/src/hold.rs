//! Holds: named reasons why a usable node must not be scheduled.

use lattice_core::actor::Actor;
use lattice_core::ids::{JobId, NodeId};
use lattice_core::node::HoldKind;
use lattice_core::time::Timestamp;
use serde::{Deserialize, Serialize};

/// A hold, with the node that it stands on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct HoldView {
    /// Which node.
    pub node_id: NodeId,
    /// Its name.
    pub hostname: String,
    /// What kind of reason.
    pub kind: HoldKind,
    /// Who set it.
    pub by: Actor,
    /// Why.
    pub reason: String,
    /// When it was set.
    pub since: Timestamp,
    /// When it ends by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
    /// The job that owns it and will clear it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<JobId>,
    /// Whether it counts now.
    pub in_force: bool,
    /// Whether it is set and cleared by hand.
    pub manual: bool,
}

/// Sets a hold; one of the same kind is replaced.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SetHold {
    /// What kind of reason.
    pub kind: HoldKind,
    /// Why.
    #[serde(default)]
    pub reason: String,
    /// When it ends by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
}
