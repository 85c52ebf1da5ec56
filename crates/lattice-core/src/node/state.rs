//! The states of a node, in two layers that are never collapsed. design: 2-state-model

use serde::{Deserialize, Serialize};

/// Inventory status: coarse, operator-facing. spec: S2 3.1
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
pub enum Status {
    /// Bootstrap command and token issued, the machine was not heard yet.
    BootstrapIssued,
    /// Onboarding or reimage is in progress.
    Enrolling,
    /// Healthy member of the fleet.
    Active,
    /// Expected to exist, not responding.
    Offline,
    /// Blocked from scheduling: drift, failed cleanup, investigation.
    Quarantined,
    /// Being retired: unschedulable until its drain ends.
    Draining,
    /// Taken out of scheduling on purpose, still kept.
    Retired,
    /// Removal is in progress.
    Removing,
    /// Terminal; the identity is never reused.
    Deleted,
}

/// Availability: what the failure detector, the agent, drains and boots say. spec: S1 "States"
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
pub enum Availability {
    /// In the inventory, never reported.
    Unknown,
    /// Booting or being reimaged; has a deadline.
    Booting,
    /// Healthy, its agent reports.
    Ready,
    /// Heartbeat missed, or a minor issue.
    Degraded,
    /// Confirmed failure; stores its cause.
    Down,
    /// Being emptied.
    Draining,
    /// Empty, safe for maintenance.
    Drained,
    /// Boot failed, or hardware is beyond recovery.
    Failed,
}

/// Why a node is down. Heartbeats undo the first, never the others.
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
pub enum DownCause {
    /// Silent through the window and the grace.
    HeartbeatLost,
    /// The BMC reported a critical hardware failure.
    CriticalHardware,
    /// An operator disabled it.
    Disabled,
    /// It could not be wiped after sensitive work. spec: S1 "Wipe Failure Handling"
    WipeFailed,
}

/// Both layers of one node, as they stand in one row and change in one commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, utoipa::ToSchema)]
pub struct NodeState {
    /// Inventory status.
    pub status: Status,
    /// Availability.
    pub availability: Availability,
}

impl NodeState {
    /// Both layers.
    pub const fn new(status: Status, availability: Availability) -> Self {
        Self { status, availability }
    }

    /// Whether the two may stand together. The store refuses to persist any other pair.
    pub fn is_allowed(self) -> bool {
        allowed_availabilities(self.status).contains(&self.availability)
    }
}

impl std::fmt::Display for NodeState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} / {}", self.status, self.availability)
    }
}

/// Which availabilities may stand beside a status. design: 2-state-model "Which pairs may stand together"
pub const fn allowed_availabilities(status: Status) -> &'static [Availability] {
    use Availability::{Booting, Degraded, Down, Drained, Draining, Failed, Ready, Unknown};
    match status {
        Status::BootstrapIssued | Status::Deleted => &[Unknown],
        Status::Enrolling => &[Unknown, Booting, Ready, Degraded, Down, Failed],
        Status::Active => &[Booting, Ready, Degraded, Draining, Drained],
        Status::Offline | Status::Draining => &[Unknown, Booting, Down, Draining, Drained, Failed],
        Status::Quarantined => &[Unknown, Booting, Ready, Degraded, Down, Draining, Drained, Failed],
        Status::Retired | Status::Removing => &[Unknown, Booting, Drained, Down, Failed],
    }
}
