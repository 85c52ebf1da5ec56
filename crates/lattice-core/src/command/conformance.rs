//! Conformance: a node's fingerprint against those that are approved for its SKU at its site. Pure.
//! spec: S1 "Sensitive Node Lifecycle Extensions"; design: 2-state-model "Availability"

use super::{Planned, Request};
use crate::change::{Change, Commit, Guard, NodeAction, NodeChange, Resource};
use crate::job::{JobInput, NewJob};
use crate::node::availability::AvailabilityEvent;
use crate::node::machine::{Facts, NodeEvent, decide};
use crate::node::status::Owner;
use crate::node::{Availability, Hold, HoldKind, Node, NodeClass, Status};
use crate::site::Site;

/// Name of whoever judges, in history, audit and holds.
pub const JUDGE: &str = "conformance";

/// Whether a node deviates; none: it cannot be judged, because nothing is approved or nothing was reported.
pub fn deviates(node: &Node, site: &Site) -> Option<bool> {
    let mut approved = site.approved.iter().filter(|one| one.sku == node.sku).peekable();
    approved.peek()?;
    let reported = node.fingerprint.as_deref().filter(|reported| !reported.is_empty())?;
    Some(!approved.any(|one| one.fingerprint == reported))
}

/// Whether a hold is the judgement's, and ends with its reason; one that an operator set is cleared by hand.
pub fn is_ours(hold: &Hold) -> bool {
    hold.kind == HoldKind::ConformanceDrift && hold.by.name == JUDGE
}

/// Judges a node anew; none when nothing changes.
///
/// One that deviates is told once. A sensitive one is held at once, so that nothing new comes to it, and is drained as the
/// governor has room ([`drain`]); another one gets work last, and so does one that is sensitive no more.
pub fn judge(request: &Request, node: &Node, site: &Site) -> Option<Commit> {
    match node.state.status {
        Status::Active | Status::Offline | Status::Quarantined | Status::Enrolling => {}
        Status::BootstrapIssued | Status::Draining | Status::Retired | Status::Removing | Status::Deleted => {
            return None;
        }
    }
    let own_hold = node.hold(HoldKind::ConformanceDrift).is_some_and(is_ours);
    match (deviates(node, site).unwrap_or(false), node.deviates_since) {
        (false, None) if !own_hold => None,
        (false, _) => Some(conforms(request, node)),
        (true, since) => {
            let is_sensitive = node.effective_class() == NodeClass::Sensitive;
            let needs_hold = is_sensitive && node.hold(HoldKind::ConformanceDrift).is_none();
            let needs_none = !is_sensitive && own_hold;
            (since.is_none() || needs_hold || needs_none).then(|| drifted(request, node, site))
        }
    }
}

/// Whether a node is one that Lattice drains for its fingerprint, and it is not drained yet.
pub fn is_to_be_drained(node: &Node, site: &Site) -> bool {
    // What was approved since is no reason any more, whether the node was judged anew yet or not.
    node.deviates_since.is_some()
        && deviates(node, site) == Some(true)
        && node.effective_class() == NodeClass::Sensitive
        && node.state.status == Status::Active
        && matches!(node.state.availability, Availability::Ready | Availability::Degraded)
}

/// Drains a sensitive node for its fingerprint, by a job that owns it: nothing that runs is disturbed. None: the node is
/// none of those.
pub fn drain(request: &Request, node: &Node, site: &Site) -> Option<Planned> {
    if !is_to_be_drained(node, site) {
        return None;
    }
    let input = JobInput::Drain { urgent: false, deadline_ms: None, allocations: node.ownership.allocations };
    let job = NewJob { node, site, input, batch: None }.build(request);
    let facts = Facts {
        reason: unapproved(node, site),
        class: node.effective_class(),
        job: Some(job.id),
        ..Facts::of(Owner::Detector, request.actor.clone())
    };
    let event = NodeEvent::Availability(AvailabilityEvent::ConformanceDrift);
    let mut moved = decide(node, event, &facts, request.now).ok()?;
    moved.change.after.owning_job = Some(job.id);
    let id = job.id;
    let changes = vec![Change::Node(Box::new(moved.change)), job.created()];
    let commit = request.commit(vec![Guard::NoLiveJob { node: node.id }], changes);
    Some(Planned { commit, node: node.id, job: Some(id), effects: moved.effects })
}

fn unapproved(node: &Node, site: &Site) -> String {
    let reported = node.fingerprint.as_deref().unwrap_or_default();
    format!("its fingerprint {reported} is none of those approved for {} at {}", node.sku, site.name)
}

fn conforms(request: &Request, node: &Node) -> Commit {
    let mut after = node.successor(request.now);
    after.deviates_since = None;
    after.holds.retain(|hold| !is_ours(hold));
    let change = NodeChange {
        after,
        before: Some(node.state),
        action: NodeAction::Updated,
        cause: "conforms".to_owned(),
        detail: "its fingerprint is approved, or is not judged any more".to_owned(),
    };
    request.commit(Vec::new(), vec![Change::Node(Box::new(change))])
}

fn drifted(request: &Request, node: &Node, site: &Site) -> Commit {
    let detail = unapproved(node, site);
    let class = node.effective_class();
    let facts = Facts { reason: detail.clone(), class, ..Facts::of(Owner::Detector, request.actor.clone()) };
    let event = NodeEvent::Availability(AvailabilityEvent::ConformanceDrift);
    // Where the table has no edge (down, booting) the row alone remembers it.
    let moves = class != NodeClass::Sensitive;
    let moved = moves.then(|| decide(node, event, &facts, request.now).ok()).flatten();
    let mut change = moved.map_or_else(
        || NodeChange {
            after: node.successor(request.now),
            before: Some(node.state),
            action: NodeAction::Updated,
            cause: "conformance_drift".to_owned(),
            detail: detail.clone(),
        },
        |moved| moved.change,
    );
    let after = &mut change.after;
    after.deviates_since = node.deviates_since.or(Some(request.now));
    if class != NodeClass::Sensitive {
        after.holds.retain(|hold| !is_ours(hold));
    } else if after.hold(HoldKind::ConformanceDrift).is_none() {
        after.holds.push(Hold {
            kind: HoldKind::ConformanceDrift,
            by: request.actor.clone(),
            reason: detail.clone(),
            since: request.now,
            until: None,
            job: None,
        });
    }
    let mut changes = vec![Change::Node(Box::new(change))];
    if node.deviates_since.is_none() {
        changes.push(Change::Note {
            name: "node.conformance_drift".to_owned(),
            resource: Resource::Node(node.id),
            detail: format!("{}: {detail}", node.hostname),
        });
    }
    request.commit(Vec::new(), changes)
}
