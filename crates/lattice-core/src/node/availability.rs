//! The table of availability: what the detector, the agent, drains and boots may do. spec: S1 "Transitions"

use serde::{Deserialize, Serialize};

use super::Availability;

/// What moves the availability.
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
pub enum AvailabilityEvent {
    /// A boot or a deploy was started.
    BootStarted,
    /// The agent registered.
    AgentRegistered,
    /// The health check passed.
    HealthPassed,
    /// The boot took too long.
    BootDeadline,
    /// A boot failed.
    BootFailed,
    /// Silent through the window.
    HeartbeatMissed,
    /// The agent reported a minor health issue.
    MinorIssue,
    /// Heard again within the grace, and no minor issue left.
    HeartbeatBack,
    /// Silent through window and grace.
    GraceExpired,
    /// Empty it.
    Drain,
    /// Empty it, and ask what can to checkpoint.
    DrainUrgently,
    /// Its fingerprint differs from the approved one.
    ConformanceDrift,
    /// Nothing runs on it any more.
    Emptied,
    /// Take it back after maintenance.
    Undrain,
    /// The BMC reports a critical hardware failure.
    CriticalHardware,
    /// It could not be wiped after sensitive work.
    WipeFailed,
    /// An operator takes it down at once.
    Disable,
    /// An operator gives it back.
    Enable,
    /// Reboot, or boot of a new image.
    Reboot,
    /// An operator gives up on what failed.
    Reset,
}

/// What else must be true for an availability edge.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, strum::IntoStaticStr, strum::VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum AvailabilityGuard {
    /// Nothing else.
    None,
    /// Recovery ends in ready: no drain intent, and not being retired or removed.
    NoDrainIntent,
    /// Recovery ends in drained: a drain intent, or being retired or removed.
    DrainIntent,
    /// Fewer than three boots failed in a row, this one included.
    FewBootFailures,
    /// Three boots failed in a row, this one included.
    ThreeBootFailures,
    /// A boot before this one failed, and none was well since.
    BootFailedBefore,
    /// A sensitive node.
    Sensitive,
    /// Not a sensitive node.
    NotSensitive,
    /// No minor issue is left.
    NoMinorIssue,
    /// The inventory status lets it be drained: not enrolling, not retiring.
    MayDrain,
    /// The health check passed, and it is not being retired or removed.
    MayUndrain,
    /// Heard of at least once: past `bootstrap_issued`, and not deleted.
    PastBootstrap,
    /// Its own onboarding, or a reimage, installs it.
    Enrolling,
    /// It is down because it was silent.
    DownSilent,
    /// As `DownSilent`, with a drain intent, and nothing placed on it.
    DownSilentDrainIntent,
    /// As `DownSilent`, with a drain intent, and a brake kept what is placed on it.
    DownSilentDrainIntentBusy,
    /// Disabled, its agent registered since it lost its work, and the health check passed.
    DisabledHealthy,
    /// As `DisabledHealthy`, with a drain intent.
    DisabledHealthyDrainIntent,
    /// Another kernel boot than the last one.
    NewBoot,
    /// Nothing runs on it.
    NoAllocations,
    /// It was heard of, and no brake keeps what is placed on it.
    NothingKept,
}

/// What a transition asks of others, or sets in the row.
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
    strum::IntoStaticStr,
    strum::VariantArray,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Effect {
    /// A boot deadline starts.
    StartDeadline,
    /// Operators are alerted.
    Alert,
    /// The provider is asked for an out-of-band check.
    BmcCheck,
    /// The node's ownership is released.
    ReleaseOwnership,
    /// Allocations are judged by their requeue policy.
    EvaluateRequeue,
    /// Checkpointable allocations are asked to checkpoint.
    RequestCheckpoint,
    /// The drain intent is set.
    SetDrainIntent,
    /// The drain intent is cleared.
    ClearDrainIntent,
    /// The boot is tried again.
    BootAgain,
    /// The provider boots the assigned image.
    ProviderBoots,
    /// It is placed last.
    Deprioritise,
    /// The hold `disabled` is set.
    HoldDisabled,
    /// The hold `disabled` is cleared.
    ClearDisabled,
    /// The hold `wipe_failed` is set.
    HoldWipeFailed,
}

/// One row of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AvailabilityEdge {
    /// From any of these.
    pub from: &'static [Availability],
    /// By which event.
    pub event: AvailabilityEvent,
    /// If.
    pub guard: AvailabilityGuard,
    /// To.
    pub to: Availability,
    /// With.
    pub effects: &'static [Effect],
}

const fn edge(
    from: &'static [Availability],
    event: AvailabilityEvent,
    guard: AvailabilityGuard,
    to: Availability,
    effects: &'static [Effect],
) -> AvailabilityEdge {
    AvailabilityEdge { from, event, guard, to, effects }
}

use Availability::{Booting, Degraded, Down, Drained, Draining, Failed, Ready, Unknown};
use AvailabilityEvent as E;
use AvailabilityGuard as G;
use Effect as F;

const ALL: &[Availability] = &[Unknown, Booting, Ready, Degraded, Down, Draining, Drained, Failed];
const ALL_BUT_DOWN: &[Availability] = &[Unknown, Booting, Ready, Degraded, Draining, Drained, Failed];
const LOST: &[Effect] = &[F::EvaluateRequeue, F::ReleaseOwnership, F::Alert, F::BmcCheck];
const LOST_BY_DISABLE: &[Effect] = &[F::EvaluateRequeue, F::ReleaseOwnership, F::Alert, F::BmcCheck, F::HoldDisabled];

/// Every edge of the availability. spec: S1 "Transitions"; design: 2-state-model "Availability"
pub const AVAILABILITY_EDGES: &[AvailabilityEdge] = &[
    edge(&[Unknown], E::BootStarted, G::PastBootstrap, Booting, &[F::StartDeadline]),
    // A restarted onboarding deploys a machine whose agent had come already. docs/decisions/0004
    edge(&[Ready, Degraded], E::BootStarted, G::Enrolling, Booting, &[F::StartDeadline]),
    // What came up ill is switched off and on again: that boot has its own time.
    edge(&[Booting], E::BootStarted, G::BootFailedBefore, Booting, &[F::StartDeadline]),
    edge(&[Unknown], E::AgentRegistered, G::PastBootstrap, Booting, &[F::StartDeadline]),
    edge(&[Booting], E::HealthPassed, G::NoDrainIntent, Ready, &[]),
    edge(&[Booting], E::HealthPassed, G::DrainIntent, Drained, &[]),
    edge(&[Booting], E::BootDeadline, G::None, Failed, &[F::Alert]),
    edge(&[Booting], E::BootFailed, G::ThreeBootFailures, Failed, &[F::Alert]),
    edge(&[Booting], E::BootFailed, G::FewBootFailures, Booting, &[F::BootAgain, F::StartDeadline]),
    edge(&[Ready], E::HeartbeatMissed, G::None, Degraded, &[]),
    edge(&[Ready], E::MinorIssue, G::None, Degraded, &[]),
    edge(&[Degraded], E::HeartbeatBack, G::NoMinorIssue, Ready, &[]),
    edge(&[Degraded], E::GraceExpired, G::None, Down, LOST),
    edge(&[Ready, Degraded], E::Drain, G::MayDrain, Draining, &[F::SetDrainIntent]),
    edge(&[Ready, Degraded], E::DrainUrgently, G::MayDrain, Draining, &[F::SetDrainIntent, F::RequestCheckpoint]),
    edge(&[Ready, Degraded], E::ConformanceDrift, G::Sensitive, Draining, &[F::SetDrainIntent]),
    edge(&[Ready], E::ConformanceDrift, G::NotSensitive, Ready, &[F::Deprioritise]),
    edge(&[Draining], E::Emptied, G::NoAllocations, Drained, &[]),
    edge(&[Draining, Drained], E::Undrain, G::MayUndrain, Ready, &[F::ClearDrainIntent]),
    edge(&[Draining, Drained], E::GraceExpired, G::None, Down, LOST),
    edge(ALL_BUT_DOWN, E::CriticalHardware, G::PastBootstrap, Down, LOST),
    // What a brake holds back is lost now: evidence and operators do not wait for it.
    edge(&[Down], E::CriticalHardware, G::PastBootstrap, Down, &[F::EvaluateRequeue, F::ReleaseOwnership, F::Alert]),
    // What may hold another user's data is never heard back: only a wipe, or an operator, leads on from there.
    edge(ALL, E::WipeFailed, G::PastBootstrap, Down, &[F::Alert, F::HoldWipeFailed]),
    edge(ALL_BUT_DOWN, E::Disable, G::PastBootstrap, Down, LOST_BY_DISABLE),
    edge(&[Down], E::Disable, G::PastBootstrap, Down, &[F::EvaluateRequeue, F::ReleaseOwnership, F::HoldDisabled]),
    edge(&[Down], E::Enable, G::DisabledHealthyDrainIntent, Drained, &[F::ClearDisabled]),
    edge(&[Down], E::Enable, G::DisabledHealthy, Ready, &[F::ClearDisabled]),
    edge(&[Down], E::HealthPassed, G::DownSilentDrainIntent, Drained, &[]),
    edge(&[Down], E::HealthPassed, G::DownSilentDrainIntentBusy, Draining, &[]),
    edge(&[Down], E::HealthPassed, G::DownSilent, Ready, &[]),
    edge(&[Unknown, Drained, Down, Failed], E::Reboot, G::NothingKept, Booting, &[F::ProviderBoots, F::StartDeadline]),
    edge(&[Failed], E::AgentRegistered, G::NewBoot, Booting, &[F::StartDeadline]),
    edge(&[Failed], E::Reset, G::None, Unknown, &[]),
];

/// The rows of `event` from `from`, in the order in which their guards are tried.
pub fn availability_edges(
    from: Availability,
    event: AvailabilityEvent,
) -> impl Iterator<Item = &'static AvailabilityEdge> {
    AVAILABILITY_EDGES.iter().filter(move |edge| edge.event == event && edge.from.contains(&from))
}

/// How many boots may fail in a row before the node is failed. spec: S1 "Booting → Failed"
pub const BOOT_FAILURES: u32 = 3;

/// All availabilities, for tables that say "any".
pub const fn all() -> &'static [Availability] {
    ALL
}
