//! Labels of nodes: what operators say of them. design: 2-state-model "Brake", "Allocations"

use super::{Planned, Refused, Request};
use crate::change::{Change, NodeAction, NodeChange};
use crate::node::label::{self, Labels};
use crate::node::{Node, Status};

/// Sets some labels of a node and takes others away. None: it has just those already.
///
/// # Errors
/// A name or value cannot be right, there are too many, or the node is deleted.
pub fn change(node: &Node, request: &Request, set: &Labels, remove: &[String]) -> Result<Option<Planned>, Refused> {
    if node.state.status == Status::Deleted {
        return Err(Refused::Invalid { field: "node", problem: "is deleted and takes no labels".to_owned() });
    }
    let mut labels = node.labels.clone();
    labels.retain(|name, _| !remove.contains(name));
    labels.extend(set.clone());
    label::check(&labels).map_err(|problem| Refused::Invalid { field: "labels", problem })?;
    if labels == node.labels {
        return Ok(None);
    }
    let detail = labels.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(", ");
    let change = NodeChange {
        after: Node { labels, ..node.successor(request.now) },
        before: Some(node.state),
        action: NodeAction::Updated,
        cause: "labels".to_owned(),
        detail,
    };
    let commit = request.commit(Vec::new(), vec![Change::Node(Box::new(change))]);
    Ok(Some(Planned { commit, node: node.id, job: None, effects: Vec::new() }))
}
