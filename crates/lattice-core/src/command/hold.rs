//! Setting and clearing holds by hand.

use super::{Planned, Refused, Request};
use crate::change::{Change, NodeAction, NodeChange};
use crate::node::{Hold, HoldKind, Node, Status};
use crate::time::Timestamp;

/// Sets a hold; one of the same kind is replaced.
///
/// # Errors
/// The kind is not set by hand, the end is not in the future, or the node is deleted.
pub fn set(node: &Node, request: &Request, kind: HoldKind, until: Option<Timestamp>) -> Result<Planned, Refused> {
    if !kind.is_manual() || node.hold(kind).is_some_and(|hold| hold.job.is_some()) {
        return Err(Refused::HoldNotManual { hostname: node.hostname.clone(), kind });
    }
    if until.is_some_and(|until| until <= request.now) {
        return Err(Refused::Invalid { field: "until", problem: "must lie in the future".to_owned() });
    }
    if node.state.status == Status::Deleted {
        return Err(Refused::Invalid { field: "node", problem: "is deleted and takes no holds".to_owned() });
    }
    let mut after = node.successor(request.now);
    after.holds.retain(|hold| hold.kind != kind);
    after.holds.push(Hold {
        kind,
        by: request.actor.clone(),
        reason: request.reason.clone(),
        since: request.now,
        until,
        job: None,
    });
    Ok(changed(node, request, after, NodeAction::HoldSet, kind))
}

/// Clears a hold.
///
/// # Errors
/// There is none of that kind, or it belongs to a job or to `enable`.
pub fn clear(node: &Node, request: &Request, kind: HoldKind) -> Result<Planned, Refused> {
    let Some(hold) = node.hold(kind) else {
        return Err(Refused::NoSuchHold { hostname: node.hostname.clone(), kind });
    };
    if !kind.is_manual() || hold.job.is_some() {
        return Err(Refused::HoldNotManual { hostname: node.hostname.clone(), kind });
    }
    Ok(cleared(node, request, kind))
}

/// The row without the hold, whoever it belongs to.
pub(super) fn cleared(node: &Node, request: &Request, kind: HoldKind) -> Planned {
    let mut after = node.successor(request.now);
    after.holds.retain(|hold| hold.kind != kind);
    changed(node, request, after, NodeAction::HoldCleared, kind)
}

fn changed(node: &Node, request: &Request, after: Node, action: NodeAction, kind: HoldKind) -> Planned {
    let change =
        NodeChange { before: Some(node.state), action, cause: kind.to_string(), detail: request.reason.clone(), after };
    Planned {
        commit: request.commit(Vec::new(), vec![Change::Node(Box::new(change))]),
        node: node.id,
        job: None,
        effects: Vec::new(),
    }
}
