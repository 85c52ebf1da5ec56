//! Conformance: a node's fingerprint against those that are approved for its SKU at its site. Pure.
//! spec: S1 "Sensitive Node Lifecycle Extensions"; design: 2-state-model "Availability"

use super::Request;
use crate::change::{Change, Commit, Guard, NodeAction, NodeChange, Resource};
use crate::ids::JobId;
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

/// What the judgement of a node leads to.
#[derive(Debug, Clone, PartialEq)]
pub struct Judged {
    /// To be committed as it is.
    pub commit: Commit,
    /// The drain that it created: wake its driver after the commit.
    pub job: Option<JobId>,
}

/// Judges a node anew; none when nothing changes.
///
/// A sensitive node that deviates is drained at once, whatever else Lattice has made unavailable: nothing that runs is
/// disturbed by it, and nothing new may come. Another one gets work last. `is_busy`: a job owns the node, and a drain waits
/// for its end.
pub fn judge(request: &Request, node: &Node, site: &Site, is_busy: bool) -> Option<Judged> {
    match node.state.status {
        Status::Active | Status::Offline | Status::Quarantined | Status::Enrolling => {}
        Status::BootstrapIssued | Status::Draining | Status::Retired | Status::Removing | Status::Deleted => {
            return None;
        }
    }
    let own_hold = node.hold(HoldKind::ConformanceDrift).is_some_and(|hold| hold.by.name == JUDGE);
    match (deviates(node, site).unwrap_or(false), node.deviates_since) {
        (false, None) if !own_hold => None,
        (false, _) => Some(conforms(request, node)),
        (true, since) => {
            let is_sensitive = node.effective_class() == NodeClass::Sensitive;
            let needs_hold = is_sensitive && node.hold(HoldKind::ConformanceDrift).is_none();
            let needs_drain = is_sensitive
                && !is_busy
                && node.state.status == Status::Active
                && matches!(node.state.availability, Availability::Ready | Availability::Degraded);
            (since.is_none() || needs_hold || needs_drain).then(|| drifted(request, node, site, needs_drain))
        }
    }
}

fn conforms(request: &Request, node: &Node) -> Judged {
    let mut after = node.successor(request.now);
    after.deviates_since = None;
    after.holds.retain(|hold| hold.kind != HoldKind::ConformanceDrift || hold.by.name != JUDGE);
    let change = NodeChange {
        after,
        before: Some(node.state),
        action: NodeAction::Updated,
        cause: "conforms".to_owned(),
        detail: "its fingerprint is approved, or is not judged any more".to_owned(),
    };
    Judged { commit: request.commit(Vec::new(), vec![Change::Node(Box::new(change))]), job: None }
}

fn drifted(request: &Request, node: &Node, site: &Site, drain: bool) -> Judged {
    let reported = node.fingerprint.as_deref().unwrap_or_default();
    let detail = format!("its fingerprint {reported} is none of those approved for {} at {}", node.sku, site.name);
    let event = NodeEvent::Availability(AvailabilityEvent::ConformanceDrift);
    let class = node.effective_class();
    let allocations = node.ownership.allocations;
    let input = JobInput::Drain { urgent: false, deadline_ms: None, allocations };
    let job = drain.then(|| NewJob { node, site, input, batch: None }.build(request));
    let facts = Facts {
        reason: detail.clone(),
        class,
        job: job.as_ref().map(|job| job.id),
        ..Facts::of(Owner::Detector, request.actor.clone())
    };
    // Where the table has no edge (down, booting, busy) the row alone remembers it.
    let moves = drain || class != NodeClass::Sensitive;
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
    if class == NodeClass::Sensitive && after.hold(HoldKind::ConformanceDrift).is_none() {
        after.holds.push(Hold {
            kind: HoldKind::ConformanceDrift,
            by: request.actor.clone(),
            reason: detail.clone(),
            since: request.now,
            until: None,
            job: None,
        });
    }
    let id = job.as_ref().map(|job| job.id);
    after.owning_job = id.or(after.owning_job);
    let note = Change::Note {
        name: "node.conformance_drift".to_owned(),
        resource: Resource::Node(node.id),
        detail: format!("{}: {detail}", node.hostname),
    };
    let mut changes = vec![Change::Node(Box::new(change))];
    let mut guards = Vec::new();
    if let Some(job) = job {
        guards.push(Guard::NoLiveJob { node: node.id });
        changes.push(job.created());
    }
    if node.deviates_since.is_none() {
        changes.push(note);
    }
    Judged { commit: request.commit(guards, changes), job: id }
}
