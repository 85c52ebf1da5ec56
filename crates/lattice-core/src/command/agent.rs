//! What agents bring about: enrolment, registration, being heard, falling silent. Pure decisions.

use std::time::Duration;

use super::Request;
use crate::allocation::Allocation;
use crate::change::{Change, Commit, Guard, NodeAction, NodeChange};
use crate::credential::EnrollmentToken;
use crate::heartbeat::Vitals;
use crate::ids::OpId;
use crate::node::availability::{AvailabilityEvent, BOOT_FAILURES, Effect};
use crate::node::health;
use crate::node::machine::{Facts, Health, NodeEvent, decide};
use crate::node::status::{Owner, StatusEvent};
use crate::node::{Availability, DownCause, HostFacts, Node, Status};
use crate::sku::Sku;
use crate::time::Timestamp;

/// A row that went through several transitions, each with its own commit.
///
/// Each commit builds on the one before and stands only with it: hand them over together, in order.
pub struct Chain<'a, 'b> {
    request: &'b Request<'a>,
    node: Node,
    /// What is placed on it.
    placed: &'b [Allocation],
    commits: Vec<Commit>,
    effects: Vec<Effect>,
}

/// The commits of a chain and what they ask of others.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Chained {
    /// To be committed together, in order.
    pub commits: Vec<Commit>,
    /// What the transitions ask of others.
    pub effects: Vec<Effect>,
    /// The row after all of them.
    pub after: Option<Node>,
}

impl<'a, 'b> Chain<'a, 'b> {
    fn new(request: &'b Request<'a>, node: &Node) -> Self {
        Self { request, node: node.clone(), placed: &[], commits: Vec::new(), effects: Vec::new() }
    }

    fn push(&mut self, change: NodeChange, mut others: Vec<Change>) {
        self.node = change.after.clone();
        let mut changes = vec![Change::Node(Box::new(change))];
        changes.append(&mut others);
        let mut commit = self.request.commit(Vec::new(), changes);
        if let Some(before) = self.commits.last() {
            commit.op = OpId::generate(self.request.ids, self.request.now);
            commit.guards.push(Guard::After { op: before.op });
        }
        self.commits.push(commit);
    }

    /// Takes the edge if there is one; without one nothing happens.
    fn try_event(&mut self, event: NodeEvent, facts: &Facts) -> bool {
        match decide(&self.node, event, facts, self.request.now) {
            Ok(moved) => {
                let alert = super::alert(&moved);
                let lost = super::allocation::follow(self.request, &self.node, &moved, self.placed);
                self.effects.extend(moved.effects);
                self.push(moved.change, alert.into_iter().chain(lost).collect());
                true
            }
            Err(_) => false,
        }
    }

    fn done(self) -> Chained {
        Chained { after: (!self.commits.is_empty()).then_some(self.node), commits: self.commits, effects: self.effects }
    }
}

/// A token was accepted: the node is known from now on.
///
/// The token is used for that key, and a node that only had its bootstrap issued begins to enrol: in one commit, so a
/// token is never used twice.
pub fn enrolled(
    request: &Request,
    node: &Node,
    token: &EnrollmentToken,
    key_hash: &str,
    boot_timeout: Duration,
) -> Chained {
    let facts = Facts { boot_timeout, ..Facts::of(Owner::AgentContact, request.actor.clone()) };
    let used = EnrollmentToken {
        used_at: Some(request.now),
        key_hash: Some(key_hash.to_owned()),
        generation: token.generation.next(),
        ..token.clone()
    };
    let credentials = vec![Change::EnrollmentToken(used)];
    let mut chain = Chain::new(request, node);
    let first_contact = decide(node, NodeEvent::Status(StatusEvent::FirstContact), &facts, request.now);
    let change = first_contact.map_or_else(
        |_| NodeChange {
            after: node.successor(request.now),
            before: Some(node.state),
            action: NodeAction::Updated,
            cause: "enrolled".to_owned(),
            detail: String::new(),
        },
        |moved| moved.change,
    );
    chain.push(change, credentials);
    chain.done()
}

/// What an agent says when it registers.
#[derive(Debug, Clone)]
pub struct Registration<'a> {
    /// What the host has.
    pub facts: &'a HostFacts,
    /// Conformance fingerprint.
    pub fingerprint: &'a str,
    /// Kernel boot id.
    pub boot_id: &'a str,
    /// Version of the agent.
    pub agent_version: &'a str,
    /// Uncorrectable memory errors since boot.
    pub ecc_uncorrected: u64,
    /// A minor issue it found on itself.
    pub minor_issue: Option<&'a str>,
    /// Address it speaks from, when the connection tells.
    pub address: Option<&'a str>,
}

/// An agent registered: its facts are recorded, and the health check decides where the node goes.
///
/// Booting becomes ready; down for its silence becomes ready again; failed with another boot id boots once more.
/// A node that is disabled stays down. What [`Effect::BootAgain`] asks is carried out by [`super::boots::carried_out`].
/// spec: S1 "Booting → Ready"; design: 2-state-model "Re-registration"
///
/// What it runs must be what the node owns: the caller sees to it.
///
/// A node that is well and says what it said before is not worth a row: after a restart of the server the whole fleet
/// registers again at once.
pub fn registered(
    request: &Request,
    node: &Node,
    sku: &Sku,
    registration: &Registration,
    boot_timeout: Duration,
) -> Chained {
    let new_boot = node.boot_id.as_deref() != Some(registration.boot_id);
    let health = health::check(sku, registration.facts, Some(registration.fingerprint));
    let facts =
        Facts { health: health.clone(), boot_timeout, new_boot, ..Facts::of(Owner::Detector, request.actor.clone()) };
    let mut chain = Chain::new(request, node);
    let mut after = node.successor(request.now);
    after.boot_id = Some(registration.boot_id.to_owned());
    after.agent_version = Some(registration.agent_version.to_owned());
    after.fingerprint = Some(registration.fingerprint.to_owned());
    after.ownership = node.ownership.registered();
    if let Some(address) = registration.address {
        after.address = Some(address.to_owned());
    }
    let detail = match &health {
        Health::Passed => "health check passed".to_owned(),
        Health::Failed(reasons) => format!("health check failed: {}", reasons.join("; ")),
        Health::NotReported => String::new(),
    };
    let change = NodeChange {
        after,
        before: Some(node.state),
        action: NodeAction::Registered,
        cause: if new_boot { "new_boot".to_owned() } else { "same_boot".to_owned() },
        detail,
    };
    if health != Health::Passed || !is_well(node) || says_something_new(node, &change.after) {
        chain.push(change, vec![Change::HostFacts { node: node.id, facts: registration.facts.clone() }]);
    }
    let availability = NodeEvent::Availability;
    if matches!(chain.node.state.availability, Availability::Unknown | Availability::Failed) {
        chain.try_event(availability(AvailabilityEvent::AgentRegistered), &facts);
    }
    match &health {
        Health::Passed => {
            chain.try_event(availability(AvailabilityEvent::HealthPassed), &facts);
        }
        // This boot came up, and not well; its agent may register again within it.
        Health::Failed(reasons) if new_boot => {
            let boot = match node.boot_failures + 1 {
                nth @ 1..=BOOT_FAILURES => format!("boot {nth} of {BOOT_FAILURES}"),
                nth => format!("boot {nth} in a row"),
            };
            let facts = Facts { reason: format!("{boot} came up ill: {}", reasons.join("; ")), ..facts.clone() };
            chain.try_event(availability(AvailabilityEvent::BootFailed), &facts);
        }
        Health::Failed(_) | Health::NotReported => {}
    }
    let gpus = u32::try_from(registration.facts.gpus.len()).unwrap_or(u32::MAX);
    // What heartbeats cannot see goes on until a registration passes.
    let failed = || match &health {
        Health::Failed(reasons) => Some(format!("{CHECK_FAILED}{}", reasons.join("; "))),
        Health::Passed | Health::NotReported => None,
    };
    let issue = minor_issue(registration.minor_issue, (gpus, registration.ecc_uncorrected), Some(sku)).or_else(failed);
    if issue.is_some() || health == Health::Passed {
        judge_issue(&mut chain, issue.as_deref(), &facts);
    }
    chain.done()
}

/// Its agent registered before, was not lost since, and nothing is wrong with it.
fn is_well(node: &Node) -> bool {
    match node.state.availability {
        Availability::Ready | Availability::Draining | Availability::Drained => true,
        Availability::Unknown
        | Availability::Booting
        | Availability::Degraded
        | Availability::Down
        | Availability::Failed => false,
    }
}

/// The fingerprint stands for the facts: it is computed from them. That what was lost is ended is news too.
fn says_something_new(before: &Node, after: &Node) -> bool {
    fn said(node: &Node) -> [Option<&str>; 4] {
        [node.boot_id.as_deref(), node.agent_version.as_deref(), node.fingerprint.as_deref(), node.address.as_deref()]
    }
    said(before) != said(after) || before.ownership != after.ownership
}

/// A heartbeat that says something new, or that somebody waited for.
#[derive(Debug, Clone, Copy)]
pub struct Heartbeat<'a> {
    /// What the node must have; none when its SKU is gone: then nothing is compared.
    pub sku: Option<&'a Sku>,
    /// GPUs on the bus.
    pub gpu_count: u32,
    /// Uncorrectable memory errors since boot.
    pub ecc_uncorrected: u64,
    /// A minor issue that the agent found on itself.
    pub minor_issue: Option<&'a str>,
    /// Conformance fingerprint, if it was recomputed.
    pub fingerprint: Option<&'a str>,
}

/// Begins the minor issue of a node whose agent registered, and whose health check failed.
const CHECK_FAILED: &str = "health check failed: ";

/// A heartbeat said something new: the node is heard again, its GPUs, its minor issue or its fingerprint changed.
///
/// A count of GPUs other than the SKU's degrades a ready node, and lets it recover when it is right again: the node
/// keeps what runs on it, and gets nothing new. spec: S1 "Ready → Degraded" (minor issue)
pub fn heard(request: &Request, node: &Node, beat: &Heartbeat) -> Chained {
    let facts = Facts::of(Owner::Detector, request.actor.clone());
    let mut chain = Chain::new(request, node);
    if let Some(fingerprint) = beat.fingerprint.filter(|new| node.fingerprint.as_deref() != Some(new)) {
        let mut after = node.successor(request.now);
        after.fingerprint = Some(fingerprint.to_owned());
        let change = NodeChange {
            after,
            before: Some(node.state),
            action: NodeAction::Updated,
            cause: "fingerprint".to_owned(),
            detail: String::new(),
        };
        chain.push(change, Vec::new());
    }
    if !chain.node.minor_issue.as_ref().is_some_and(|issue| issue.starts_with(CHECK_FAILED)) {
        let issue = minor_issue(beat.minor_issue, (beat.gpu_count, beat.ecc_uncorrected), beat.sku);
        judge_issue(&mut chain, issue.as_deref(), &facts);
    }
    chain.done()
}

/// What is wrong with a host that lives: what its agent says, else a count of GPUs that is not its SKU's, else memory
/// errors that were not corrected. spec: S1 "Heartbeat Protocol" (health summary), "Ready → Degraded" (minor issue)
///
/// The agent's own words go first: when its sensors do not answer, its counts mean nothing.
fn minor_issue(said: Option<&str>, (gpus, errors): (u32, u64), sku: Option<&Sku>) -> Option<String> {
    let counted = || {
        let wanted = sku?.gpus;
        (wanted > 0 && gpus != wanted).then(|| format!("{gpus} of {wanted} GPUs on the bus"))
    };
    let uncorrected = || (errors > 0).then(|| format!("{errors} uncorrectable memory errors since its boot"));
    said.map(str::to_owned).or_else(counted).or_else(uncorrected)
}

/// The health check of a host that was checked when it registered, with what its last heartbeat said.
pub fn health_now(checked: Health, heard: &Vitals, sku: &Sku) -> Health {
    let said = (heard.issue != 0).then_some("its agent reports a minor issue");
    let counts = (u32::from(heard.gpu_count), u64::from(heard.ecc_uncorrected));
    match (checked, minor_issue(said, counts, Some(sku))) {
        (Health::Passed, Some(issue)) => Health::Failed(vec![issue]),
        (checked, _) => checked,
    }
}

/// Ready and an issue: degraded. Degraded and none: ready. Degraded and another one: the row says the present one.
fn judge_issue(chain: &mut Chain, issue: Option<&str>, facts: &Facts) {
    match (chain.node.state.availability, issue) {
        (Availability::Ready, Some(issue)) => {
            let facts = Facts { reason: issue.to_owned(), ..facts.clone() };
            chain.try_event(NodeEvent::Availability(AvailabilityEvent::MinorIssue), &facts);
        }
        (Availability::Degraded, None) => recover_degraded(chain, facts),
        (Availability::Degraded, Some(issue)) if chain.node.minor_issue.as_deref() != Some(issue) => {
            let mut after = chain.node.successor(chain.request.now);
            after.minor_issue = Some(issue.to_owned());
            let change = NodeChange {
                after,
                before: Some(chain.node.state),
                action: NodeAction::Updated,
                cause: "minor_issue".to_owned(),
                detail: issue.to_owned(),
            };
            chain.push(change, Vec::new());
        }
        (Availability::Ready, None)
        | (Availability::Degraded, Some(_))
        | (
            Availability::Unknown
            | Availability::Booting
            | Availability::Down
            | Availability::Failed
            | Availability::Draining
            | Availability::Drained,
            _,
        ) => {}
    }
}

/// No minor issue is left: the row forgets it in the very decision that lets the node recover.
fn recover_degraded(chain: &mut Chain, facts: &Facts) {
    let clean = Node { minor_issue: None, ..chain.node.clone() };
    if let Ok(moved) =
        decide(&clean, NodeEvent::Availability(AvailabilityEvent::HeartbeatBack), facts, chain.request.now)
    {
        chain.effects.extend(moved.effects);
        chain.push(moved.change, Vec::new());
    }
}

/// A verdict: silence, a late boot, what a BMC says.
#[derive(Debug, Clone)]
pub struct Verdict<'a> {
    /// What it says.
    pub event: AvailabilityEvent,
    /// For people.
    pub detail: String,
    /// What is placed on the node.
    pub placed: &'a [Allocation],
    /// The mass-failure brake holds what Down does to that back until then.
    pub braked_until: Option<Timestamp>,
}

/// What a verdict does to its node, and to what is placed on it: one commit. spec: S1 "Degraded → Down"
pub fn judged(request: &Request, node: &Node, verdict: Verdict<'_>) -> Chained {
    let Verdict { event, detail, placed, braked_until } = verdict;
    let class = node.effective_class();
    let facts = Facts { reason: detail, class, braked_until, ..Facts::of(Owner::Detector, request.actor.clone()) };
    let mut chain = Chain { placed, ..Chain::new(request, node) };
    chain.try_event(NodeEvent::Availability(event), &facts);
    chain.done()
}

/// Whether an agent of this node has to register again before it may be heard: it was down for its silence, so its
/// ownership is lost. design: 2-state-model "Re-registration"
pub fn must_register_again(node: &Node) -> bool {
    node.state.status == Status::Deleted || node.down_cause == Some(DownCause::HeartbeatLost)
}

/// Whether a node waits for a health check to pass, which only a registration brings: it failed the one before.
pub fn awaits_health_check(node: &Node) -> bool {
    match node.state.availability {
        Availability::Booting => true,
        Availability::Down => node.down_cause == Some(DownCause::HeartbeatLost),
        Availability::Unknown
        | Availability::Ready
        | Availability::Degraded
        | Availability::Draining
        | Availability::Drained
        | Availability::Failed => false,
    }
}
