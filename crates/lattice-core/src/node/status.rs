//! The table of inventory status: which edges exist, who may ask for them, under which condition. spec: S2 3.2–3.3

use serde::{Deserialize, Serialize};

use super::Status;

/// What moves the inventory status.
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
pub enum StatusEvent {
    /// The agent came for the first time, with a valid token.
    FirstContact,
    /// Withdrawn, or the token expired unused.
    Withdraw,
    /// Enrolled and healthy.
    Enrolled,
    /// Onboarding is blocked or unsafe.
    Block,
    /// Onboarding was cancelled before its deploy.
    CancelOnboarding,
    /// Seen to be gone by something that has no availability edge of its own.
    WentOffline,
    /// Heard again, or proven healthy by the reconciler.
    CameBack,
    /// Drift, failed cleanup or an operator's suspicion.
    Quarantine,
    /// Proven healthy after quarantine.
    Recover,
    /// Onboarding is taken up again after quarantine.
    ResumeOnboarding,
    /// Retirement or decommission begins.
    Retire,
    /// The drain of a retirement ended well.
    DrainDone,
    /// The drain failed, or an operator stops short of retirement.
    StopRetirement,
    /// Cleanup or wipe failed.
    CleanupFailed,
    /// Taken back into service, same identity.
    Reactivate,
    /// Removal begins.
    Remove,
    /// The uninstall failed, or an operator rolls removal back.
    StopRemoval,
    /// The uninstall succeeded, or fresh evidence proves the OS or instance gone.
    Removed,
    /// Reimage begins to destroy the OS.
    Reimage,
}

/// Who may ask for an edge. spec: S2 3.3
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
pub enum Owner {
    /// The agent's enrolment endpoint.
    AgentContact,
    /// Token expiry.
    Deadlines,
    /// An onboarding job.
    Onboarding,
    /// A reimage job.
    Reimage,
    /// A drain or retirement job.
    Retirement,
    /// A removal job.
    Removal,
    /// A cleanup or wipe job.
    Cleanup,
    /// The failure detector.
    Detector,
    /// The reconciler.
    Reconciler,
    /// BMC evidence.
    Bmc,
    /// An operator.
    Operator,
}

/// What else must be true for a status edge.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, strum::IntoStaticStr, strum::VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum StatusGuard {
    /// Nothing else.
    None,
    /// The health check passed.
    Healthy,
    /// The health check passed, and no wipe is owed.
    HealthyAndWiped,
    /// Its availability may stand beside the new status.
    AvailabilityFits,
    /// Not draining and not drained.
    NotDraining,
    /// No deploy was started yet.
    NotDeployed,
    /// Drained, and the health check passed.
    DrainedAndHealthy,
    /// Nothing is draining any more.
    Emptied,
    /// Unknown, booting, drained, down or failed.
    NothingRuns,
    /// The agent uninstalled itself, or fresh provider evidence says that the OS or instance is gone.
    ProvenGone,
    /// A job that owns the node is created or resumed in the same commit.
    OwningJob,
}

/// One row of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StatusEdge {
    /// From.
    pub from: Status,
    /// By which event.
    pub event: StatusEvent,
    /// If.
    pub guard: StatusGuard,
    /// To.
    pub to: Status,
    /// Asked for by.
    pub owners: &'static [Owner],
}

const fn edge(
    from: Status,
    event: StatusEvent,
    guard: StatusGuard,
    to: Status,
    owners: &'static [Owner],
) -> StatusEdge {
    StatusEdge { from, event, guard, to, owners }
}

use Owner as O;
use Status::{Active, BootstrapIssued, Deleted, Draining, Enrolling, Offline, Quarantined, Removing, Retired};
use StatusEvent as E;
use StatusGuard as G;

/// Every edge of the inventory status. spec: S2 3.2–3.3, S5 4.6, 7.3; design: 2-state-model "Inventory status"
pub const STATUS_EDGES: &[StatusEdge] = &[
    edge(BootstrapIssued, E::FirstContact, G::None, Enrolling, &[O::AgentContact]),
    edge(BootstrapIssued, E::Withdraw, G::None, Deleted, &[O::Operator, O::Deadlines]),
    edge(Enrolling, E::Enrolled, G::Healthy, Active, &[O::Onboarding, O::Reimage]),
    edge(Enrolling, E::Block, G::None, Quarantined, &[O::Onboarding, O::Operator]),
    edge(Enrolling, E::CancelOnboarding, G::NotDeployed, Deleted, &[O::Onboarding]),
    edge(Active, E::WentOffline, G::AvailabilityFits, Offline, &[O::Detector, O::Reconciler, O::Operator, O::Bmc]),
    edge(Offline, E::CameBack, G::AvailabilityFits, Active, &[O::Detector, O::Reconciler]),
    edge(Active, E::Quarantine, G::None, Quarantined, &[O::Reconciler, O::Cleanup, O::Operator]),
    edge(Offline, E::Quarantine, G::None, Quarantined, &[O::Reconciler, O::Cleanup, O::Operator]),
    edge(Quarantined, E::Recover, G::HealthyAndWiped, Active, &[O::Operator, O::Reconciler, O::Cleanup]),
    edge(Quarantined, E::ResumeOnboarding, G::NotDraining, Enrolling, &[O::Onboarding, O::Operator]),
    edge(Active, E::Retire, G::OwningJob, Draining, &[O::Operator]),
    edge(Offline, E::Retire, G::OwningJob, Draining, &[O::Operator]),
    edge(Quarantined, E::Retire, G::OwningJob, Draining, &[O::Operator]),
    edge(Draining, E::DrainDone, G::Emptied, Retired, &[O::Retirement]),
    edge(Draining, E::StopRetirement, G::None, Offline, &[O::Retirement, O::Operator]),
    edge(Draining, E::CleanupFailed, G::None, Quarantined, &[O::Retirement, O::Cleanup]),
    edge(Retired, E::Reactivate, G::DrainedAndHealthy, Active, &[O::Operator]),
    edge(Retired, E::Remove, G::OwningJob, Removing, &[O::Operator]),
    edge(Removing, E::StopRemoval, G::None, Retired, &[O::Removal, O::Operator]),
    edge(Removing, E::Removed, G::ProvenGone, Deleted, &[O::Removal]),
    edge(Active, E::Reimage, G::NothingRuns, Enrolling, &[O::Reimage]),
    edge(Offline, E::Reimage, G::NothingRuns, Enrolling, &[O::Reimage]),
    edge(Quarantined, E::Reimage, G::NothingRuns, Enrolling, &[O::Reimage]),
    edge(Retired, E::Reimage, G::NothingRuns, Enrolling, &[O::Reimage]),
];

/// The edge of `event` from `from`, if there is one.
pub fn status_edge(from: Status, event: StatusEvent) -> Option<&'static StatusEdge> {
    STATUS_EDGES.iter().find(|edge| edge.from == from && edge.event == event)
}
