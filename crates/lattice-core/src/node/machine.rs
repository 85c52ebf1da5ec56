//! Decides what an event does to a node: reads both tables, couples the two layers, returns the changed row.
//!
//! Pure: the row, the facts and the time come in, the row after and its effects come out, or a typed refusal.

use std::time::Duration;

use super::availability::{AvailabilityEvent, AvailabilityGuard, BOOT_FAILURES, Effect, availability_edges};
use super::status::{Owner, StatusEvent, StatusGuard, status_edge};
use super::{Availability, DownCause, Hold, HoldKind, Node, NodeClass, NodeState, Status};
use crate::actor::Actor;
use crate::change::{NodeAction, NodeChange};
use crate::explain::{Code, Explain, NextAction};
use crate::ids::JobId;
use crate::time::Timestamp;

/// An event of either layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum NodeEvent {
    /// Moves the inventory status.
    Status(StatusEvent),
    /// Moves the availability.
    Availability(AvailabilityEvent),
}

impl NodeEvent {
    /// Name as in history, JSON and metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Status(event) => event.into(),
            Self::Availability(event) => event.into(),
        }
    }
}

/// What is known about the node's health, judged against its SKU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Health {
    /// The check passed, freshly.
    Passed,
    /// The check failed, for these reasons.
    Failed(Vec<String>),
    /// Nothing fresh is known.
    NotReported,
}

/// Everything a decision needs besides the row.
#[derive(Debug, Clone)]
pub struct Facts {
    /// Who asks.
    pub owner: Owner,
    /// Who asks, for holds and history.
    pub actor: Actor,
    /// Why, in the asker's words.
    pub reason: String,
    /// Fresh health.
    pub health: Health,
    /// Effective class: the strictest current claim.
    pub class: NodeClass,
    /// Work that still runs on it.
    pub live_allocations: u32,
    /// How long a boot may take: the owning job's stage says so, else the site.
    pub boot_timeout: Duration,
    /// The job that is created or resumed in the same commit, or that asks.
    pub job: Option<JobId>,
    /// The owning job started a deploy.
    pub deployed: bool,
    /// Uninstalled, or fresh provider evidence says that the OS or instance is gone.
    pub proven_gone: bool,
    /// The agent registered with another kernel boot than the last one.
    pub new_boot: bool,
    /// The mass-failure brake holds what a lost node brings with it back until then.
    pub braked_until: Option<Timestamp>,
}

impl Facts {
    /// Facts of which nothing but the asker is known: every guard that needs evidence refuses.
    pub fn of(owner: Owner, actor: Actor) -> Self {
        Self {
            owner,
            actor,
            reason: String::new(),
            health: Health::NotReported,
            class: NodeClass::Standard,
            live_allocations: 0,
            boot_timeout: super::class::HeartbeatPolicy::default().boot_timeout(),
            job: None,
            deployed: true,
            proven_gone: false,
            new_boot: false,
            braked_until: None,
        }
    }
}

/// A decision: the row after, and what others must do about it.
#[derive(Debug, Clone, PartialEq)]
pub struct Moved {
    /// The change to commit.
    pub change: NodeChange,
    /// What the transition asks of others.
    pub effects: Vec<Effect>,
}

/// Why an event does nothing to a node.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// The tables have no such edge.
    #[error("{hostname} is {state}: `{event}` does nothing there", event = event.name())]
    NoEdge {
        /// Which node.
        hostname: String,
        /// Where it stands.
        state: NodeState,
        /// What was asked.
        event: NodeEvent,
    },
    /// There is an edge, and its condition is not met.
    #[error("{hostname} is {state}: `{event}` needs {need}", event = event.name())]
    GuardFailed {
        /// Which node.
        hostname: String,
        /// Where it stands.
        state: NodeState,
        /// What was asked.
        event: NodeEvent,
        /// What is not met, in words.
        need: String,
    },
    /// There is an edge, and the asker may not use it.
    #[error("{hostname} is {state}: `{event}` belongs to {owners}, not to {asker}", event = event.name())]
    NotOwner {
        /// Which node.
        hostname: String,
        /// Where it stands.
        state: NodeState,
        /// What was asked.
        event: NodeEvent,
        /// Who may.
        owners: String,
        /// Who asked.
        asker: Owner,
    },
}

impl Explain for Refused {
    fn code(&self) -> Code {
        match self {
            Self::NoEdge { .. } | Self::NotOwner { .. } => Code::NodeState,
            Self::GuardFailed { need, .. } if need.starts_with("a passed health check") => Code::HealthCheckFailed,
            Self::GuardFailed { .. } => Code::NodeState,
        }
    }
    fn because(&self) -> Vec<String> {
        match self {
            Self::NoEdge { state, .. } => {
                let possible: Vec<&str> = possible_events(*state).map(NodeEvent::name).collect();
                vec![format!("from {state} it can only: {}", possible.join(", "))]
            }
            Self::GuardFailed { need, .. } => vec![format!("not met: {need}")],
            Self::NotOwner { owners, .. } => vec![format!("only {owners} may ask for it")],
        }
    }
    fn next_actions(&self) -> Vec<NextAction> {
        let (Self::NoEdge { hostname, .. } | Self::GuardFailed { hostname, .. } | Self::NotOwner { hostname, .. }) =
            self;
        vec![NextAction::run(format!("lattice explain node {hostname}"), "says what it waits for and what would help")]
    }
}

/// Every event that has an edge from `state`, whatever its guard: the page's buttons and the API's "what can I do".
pub fn possible_events(state: NodeState) -> impl Iterator<Item = NodeEvent> {
    use strum::VariantArray;
    let of_status = StatusEvent::VARIANTS
        .iter()
        .filter(move |event| status_edge(state.status, **event).is_some())
        .map(|event| NodeEvent::Status(*event));
    let of_availability = AvailabilityEvent::VARIANTS
        .iter()
        .filter(move |event| {
            state.status != Status::Deleted
                && state.status != Status::BootstrapIssued
                && availability_edges(state.availability, **event).next().is_some()
        })
        .map(|event| NodeEvent::Availability(*event));
    of_status.chain(of_availability)
}

/// Decides what `event` does to `node` at `now`.
///
/// # Errors
/// No such edge from the node's state; the edge's condition is not met; the asker does not own the edge.
pub fn decide(node: &Node, event: NodeEvent, facts: &Facts, now: Timestamp) -> Result<Moved, Refused> {
    let mut draft = Draft { after: node.successor(now), effects: Vec::new(), now };
    match event {
        NodeEvent::Status(event) => draft.status(node, event, facts)?,
        NodeEvent::Availability(event) => draft.availability(node, event, facts)?,
    }
    debug_assert!(draft.after.state.is_allowed(), "{event:?} from {} leads to {}", node.state, draft.after.state);
    Ok(Moved {
        change: NodeChange {
            before: Some(node.state),
            action: NodeAction::Moved,
            cause: event.name().to_owned(),
            detail: facts.reason.clone(),
            after: draft.after,
        },
        effects: draft.effects,
    })
}

/// Whether recovery of this node ends in drained: by intent, or because it is being retired or removed.
pub fn recovers_drained(node: &Node) -> bool {
    node.drain_intent || matches!(node.state.status, Status::Draining | Status::Retired | Status::Removing)
}

struct Draft {
    after: Node,
    effects: Vec<Effect>,
    now: Timestamp,
}

impl Draft {
    fn status(&mut self, node: &Node, event: StatusEvent, facts: &Facts) -> Result<(), Refused> {
        let refused_event = NodeEvent::Status(event);
        let edge = status_edge(node.state.status, event).ok_or_else(|| no_edge(node, refused_event))?;
        if !edge.owners.contains(&facts.owner) {
            let owners: Vec<String> = edge.owners.iter().map(ToString::to_string).collect();
            return Err(Refused::NotOwner {
                hostname: node.hostname.clone(),
                state: node.state,
                event: refused_event,
                owners: owners.join(" or "),
                asker: facts.owner,
            });
        }
        if let Some(need) = status_need(node, edge.guard, edge.to, facts) {
            return Err(guard_failed(node, refused_event, need));
        }
        self.enter_status(edge.to);
        self.couple_to_status(node, event, facts);
        Ok(())
    }

    /// What a change of status does to the availability and the rest of the row.
    fn couple_to_status(&mut self, node: &Node, event: StatusEvent, facts: &Facts) {
        match event {
            StatusEvent::FirstContact => {
                self.enter_availability(Availability::Booting);
                self.start_deadline(facts);
            }
            StatusEvent::Withdraw | StatusEvent::CancelOnboarding | StatusEvent::Removed => {
                self.enter_availability(Availability::Unknown);
                self.after.drain_intent = false;
                self.after.owning_job = None;
                self.after.holds.clear();
                self.after.identity_epoch += 1;
            }
            StatusEvent::Retire => {
                self.after.drain_intent = true;
                self.effects.push(Effect::SetDrainIntent);
                self.after.owning_job = facts.job;
                if matches!(node.state.availability, Availability::Ready | Availability::Degraded) {
                    self.enter_availability(Availability::Draining);
                }
            }
            StatusEvent::Remove => self.after.owning_job = facts.job,
            StatusEvent::Reactivate => {
                self.clear_intent();
                self.enter_availability(Availability::Ready);
            }
            StatusEvent::ResumeOnboarding => {
                self.clear_intent();
                self.after.owning_job = facts.job.or(node.owning_job);
            }
            StatusEvent::Reimage => {
                self.clear_intent();
                self.enter_availability(Availability::Booting);
                self.start_deadline(facts);
                self.after.owning_job = facts.job;
                // Nobody comes back with a key of the OS that is gone.
                self.after.identity_epoch += 1;
            }
            StatusEvent::Enrolled
            | StatusEvent::DrainDone
            | StatusEvent::StopRetirement
            | StatusEvent::StopRemoval
            | StatusEvent::CleanupFailed => self.after.owning_job = None,
            StatusEvent::Block
            | StatusEvent::WentOffline
            | StatusEvent::CameBack
            | StatusEvent::Quarantine
            | StatusEvent::Recover => {}
        }
    }

    fn availability(&mut self, node: &Node, event: AvailabilityEvent, facts: &Facts) -> Result<(), Refused> {
        let refused_event = NodeEvent::Availability(event);
        let mut need = None;
        for edge in availability_edges(node.state.availability, event) {
            match availability_need(node, edge.guard, facts) {
                Some(unmet) => need = Some(unmet),
                None => {
                    self.leave_for(edge.to, event, facts);
                    // What was lost before is not lost again; what a brake holds back is.
                    let was_lost =
                        node.state.availability == Availability::Down && node.ownership.braked_until.is_none();
                    let again = |effect: &Effect| matches!(effect, Effect::EvaluateRequeue | Effect::ReleaseOwnership);
                    for effect in edge.effects.iter().filter(|effect| !was_lost || !again(effect)) {
                        self.apply(*effect, facts);
                    }
                    self.couple_to_availability(node, edge.to);
                    return Ok(());
                }
            }
        }
        Err(need.map_or_else(|| no_edge(node, refused_event), |need| guard_failed(node, refused_event, need)))
    }

    fn leave_for(&mut self, to: Availability, event: AvailabilityEvent, facts: &Facts) {
        self.enter_availability(to);
        match event {
            AvailabilityEvent::GraceExpired => self.after.down_cause = Some(DownCause::HeartbeatLost),
            AvailabilityEvent::CriticalHardware => self.after.down_cause = Some(DownCause::CriticalHardware),
            AvailabilityEvent::WipeFailed => self.after.down_cause = Some(DownCause::WipeFailed),
            AvailabilityEvent::Disable => self.after.down_cause = Some(DownCause::Disabled),
            AvailabilityEvent::BootFailed => self.after.boot_failures += 1,
            AvailabilityEvent::HealthPassed | AvailabilityEvent::Reset => self.after.boot_failures = 0,
            AvailabilityEvent::MinorIssue => self.after.minor_issue = Some(facts.reason.clone()),
            AvailabilityEvent::BootStarted
            | AvailabilityEvent::AgentRegistered
            | AvailabilityEvent::BootDeadline
            | AvailabilityEvent::HeartbeatMissed
            | AvailabilityEvent::HeartbeatBack
            | AvailabilityEvent::Drain
            | AvailabilityEvent::DrainUrgently
            | AvailabilityEvent::ConformanceDrift
            | AvailabilityEvent::Emptied
            | AvailabilityEvent::Undrain
            | AvailabilityEvent::Enable
            | AvailabilityEvent::Reboot => {}
        }
    }

    fn apply(&mut self, effect: Effect, facts: &Facts) {
        match effect {
            Effect::StartDeadline => self.start_deadline(facts),
            Effect::SetDrainIntent => self.after.drain_intent = true,
            Effect::ClearDrainIntent => self.after.drain_intent = false,
            Effect::HoldDisabled => self.set_hold(HoldKind::Disabled, facts),
            Effect::ClearDisabled => self.after.holds.retain(|hold| hold.kind != HoldKind::Disabled),
            Effect::HoldWipeFailed => self.set_hold(HoldKind::WipeFailed, facts),
            Effect::ReleaseOwnership => self.release_ownership(facts),
            Effect::Alert
            | Effect::BmcCheck
            | Effect::EvaluateRequeue
            | Effect::RequestCheckpoint
            | Effect::BootAgain
            | Effect::ProviderBoots
            | Effect::Deprioritise => {}
        }
        // The detector raises no alert for what was taken out of service on purpose.
        let quiet = effect == Effect::Alert && matches!(self.after.state.status, Status::Retired | Status::Removing);
        if !quiet {
            self.effects.push(effect);
        }
    }

    /// Active follows availability in the same commit. design: 2-state-model "Which pairs may stand together"
    fn couple_to_availability(&mut self, node: &Node, to: Availability) {
        let lost = matches!(to, Availability::Down | Availability::Failed);
        let recovered = to == Availability::Ready
            || (matches!(to, Availability::Drained | Availability::Draining)
                && matches!(node.state.availability, Availability::Down | Availability::Booting));
        match self.after.state.status {
            Status::Active if lost => self.enter_status(Status::Offline),
            Status::Offline if recovered => self.enter_status(Status::Active),
            Status::Active
            | Status::Offline
            | Status::BootstrapIssued
            | Status::Enrolling
            | Status::Quarantined
            | Status::Draining
            | Status::Retired
            | Status::Removing
            | Status::Deleted => {}
        }
    }

    fn enter_status(&mut self, status: Status) {
        if self.after.state.status != status {
            self.after.state.status = status;
            self.after.status_since = self.now;
        }
    }

    fn enter_availability(&mut self, availability: Availability) {
        if self.after.state.availability != availability {
            self.after.state.availability = availability;
            self.after.availability_since = self.now;
        }
        if availability != Availability::Booting {
            self.after.deadline = None;
        }
        if availability != Availability::Down {
            self.after.down_cause = None;
            self.after.ownership.braked_until = None;
        }
        if availability != Availability::Degraded {
            self.after.minor_issue = None;
        }
    }

    /// Down ends whatever ownership there was; the brake puts that off. spec: S1 "Degraded → Down"
    fn release_ownership(&mut self, facts: &Facts) {
        let ownership = &self.after.ownership;
        match facts.braked_until.filter(|_| ownership.allocations > 0) {
            Some(until) => self.after.ownership.braked_until = Some(until),
            None => self.after.set_ownership(ownership.lost(), &facts.actor, self.now),
        }
    }

    fn start_deadline(&mut self, facts: &Facts) {
        self.after.deadline = Some(self.now + facts.boot_timeout);
    }

    fn clear_intent(&mut self) {
        self.after.drain_intent = false;
        self.effects.push(Effect::ClearDrainIntent);
    }

    fn set_hold(&mut self, kind: HoldKind, facts: &Facts) {
        self.after.holds.retain(|hold| hold.kind != kind);
        self.after.holds.push(Hold {
            kind,
            by: facts.actor.clone(),
            reason: facts.reason.clone(),
            since: self.now,
            until: None,
            // No job may take one of these away when it ends.
            job: None,
        });
    }
}

fn no_edge(node: &Node, event: NodeEvent) -> Refused {
    Refused::NoEdge { hostname: node.hostname.clone(), state: node.state, event }
}

fn guard_failed(node: &Node, event: NodeEvent, need: String) -> Refused {
    Refused::GuardFailed { hostname: node.hostname.clone(), state: node.state, event, need }
}

fn health_need(health: &Health) -> Option<String> {
    match health {
        Health::Passed => None,
        Health::Failed(reasons) => Some(format!("a passed health check: {}", reasons.join("; "))),
        Health::NotReported => Some("a passed health check: its agent reported nothing fresh".to_owned()),
    }
}

/// What it ran when it was taken down has ended, and it is well.
fn return_need(node: &Node, health: &Health) -> Option<String> {
    const ENDED: &str = "that its agent registers again: what it lost may still run until then";
    unless(node.ownership.is_confirmed(), ENDED).or_else(|| health_need(health))
}

fn unless(met: bool, need: &str) -> Option<String> {
    (!met).then(|| need.to_owned())
}

/// What is missing for a status edge, in words; none when its guard holds.
fn status_need(node: &Node, guard: StatusGuard, to: Status, facts: &Facts) -> Option<String> {
    use Availability::{Booting, Down, Drained, Draining, Failed, Unknown};
    let fits = NodeState::new(to, node.state.availability).is_allowed();
    let fits_need = || unless(fits, &format!("an availability that may stand beside {to}"));
    match guard {
        StatusGuard::None => None,
        StatusGuard::Healthy => fits_need().or_else(|| health_need(&facts.health)),
        StatusGuard::HealthyAndWiped => {
            unless(!node.owes_wipe(), "a confirmed wipe: it may still hold what sensitive work left")
                .or_else(fits_need)
                .or_else(|| health_need(&facts.health))
        }
        StatusGuard::AvailabilityFits => fits_need(),
        StatusGuard::NotDraining => {
            unless(!matches!(node.state.availability, Draining | Drained), "that it is not draining or drained")
        }
        StatusGuard::NotDeployed => unless(!facts.deployed, "that no deploy was started"),
        StatusGuard::DrainedAndHealthy => {
            unless(node.state.availability == Drained, "that it is drained").or_else(|| health_need(&facts.health))
        }
        StatusGuard::Emptied => {
            let is_empty = node.state.availability != Draining && node.ownership.braked_until.is_none();
            unless(is_empty, "that nothing is draining any more, and no brake keeps what runs on it")
        }
        StatusGuard::NothingRuns => unless(
            matches!(node.state.availability, Unknown | Booting | Drained | Down | Failed)
                && node.ownership.braked_until.is_none(),
            "that nothing runs on it: drain it first",
        ),
        StatusGuard::ProvenGone => {
            unless(facts.proven_gone, "proof that the agent is uninstalled or that the OS or instance is gone")
        }
        StatusGuard::OwningJob => unless(facts.job.is_some(), "a job that owns it"),
    }
}

/// What is missing for an availability edge, in words; none when its guard holds.
fn availability_need(node: &Node, guard: AvailabilityGuard, facts: &Facts) -> Option<String> {
    let known = !matches!(node.state.status, Status::BootstrapIssued | Status::Deleted);
    let leaving = matches!(node.state.status, Status::Draining | Status::Retired | Status::Removing);
    let may_drain = known && !leaving && node.state.status != Status::Enrolling;
    let drained = recovers_drained(node);
    let silent = node.down_cause == Some(DownCause::HeartbeatLost);
    let disabled = node.down_cause == Some(DownCause::Disabled);
    let back = if node.state.status == Status::Offline { Status::Active } else { node.state.status };
    let kept = node.ownership.allocations > 0 && NodeState::new(back, Availability::Draining).is_allowed();
    match guard {
        AvailabilityGuard::None => None,
        AvailabilityGuard::NoDrainIntent => unless(!drained, "no drain intent"),
        AvailabilityGuard::DrainIntent => unless(drained, "a drain intent"),
        AvailabilityGuard::FewBootFailures => {
            unless(node.boot_failures + 1 < BOOT_FAILURES, "fewer than three failed boots in a row")
        }
        AvailabilityGuard::ThreeBootFailures => {
            unless(node.boot_failures + 1 >= BOOT_FAILURES, "three failed boots in a row")
        }
        AvailabilityGuard::BootFailedBefore => unless(node.boot_failures > 0, "a boot that failed before"),
        AvailabilityGuard::Sensitive => unless(facts.class == NodeClass::Sensitive && may_drain, "a sensitive node"),
        AvailabilityGuard::NotSensitive => unless(facts.class != NodeClass::Sensitive, "a node that is not sensitive"),
        AvailabilityGuard::NoMinorIssue => unless(node.minor_issue.is_none(), "that no minor issue is left"),
        AvailabilityGuard::MayDrain => unless(may_drain, "a node that is not enrolling and not being retired"),
        AvailabilityGuard::MayUndrain => unless(known && !leaving, "a node that is not being retired or removed")
            .or_else(|| health_need(&facts.health)),
        AvailabilityGuard::PastBootstrap => unless(known, "a node that was heard of"),
        AvailabilityGuard::NothingKept => unless(known, "a node that was heard of").or_else(|| {
            let braked = node.ownership.braked_until.is_some();
            unless(!braked, "that no brake holds back the loss of what runs on it: let go of its site's brake first")
        }),
        AvailabilityGuard::Enrolling => {
            unless(node.state.status == Status::Enrolling, "a node that is being onboarded")
        }
        AvailabilityGuard::DownSilent => unless(silent && !drained, "that it was down for its silence"),
        AvailabilityGuard::DownSilentDrainIntent => unless(silent && drained, "that it was down for its silence")
            .or_else(|| unless(!kept, "that nothing runs on it")),
        AvailabilityGuard::DownSilentDrainIntentBusy => {
            unless(silent && drained && kept, "that it was down for its silence, and a brake kept what runs on it")
        }
        AvailabilityGuard::DisabledHealthy => {
            unless(disabled && !drained, "that it is disabled").or_else(|| return_need(node, &facts.health))
        }
        AvailabilityGuard::DisabledHealthyDrainIntent => {
            unless(disabled && drained, "that it is disabled").or_else(|| return_need(node, &facts.health))
        }
        AvailabilityGuard::NewBoot => unless(facts.new_boot, "another boot of the machine than the one that failed"),
        AvailabilityGuard::NoAllocations => {
            unless(facts.live_allocations == 0, &format!("that its {} allocations end", facts.live_allocations))
        }
    }
}
