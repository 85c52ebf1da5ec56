//! Bootstraps that nobody used in time are withdrawn. spec: S2 3.2; design: 2-state-model

use lattice_core::actor::Actor;
use lattice_core::change::{Change, Commit, Outcome};
use lattice_core::command::Request;
use lattice_core::ids::{CorrelationId, IdSource, OpId};
use lattice_core::node::machine::{Facts, NodeEvent, decide};
use lattice_core::node::status::{Owner, StatusEvent};
use lattice_core::node::{Node, Status};
use lattice_core::time::Timestamp;
use lattice_store::{NodeFilter, NodeSort, PageRequest, Store, StoreError};

/// Bootstraps looked at in one tick.
const PER_TICK: usize = 1_000;

/// Ends the nodes whose every bootstrap token is expired, used or revoked at `now`; answers how many.
///
/// # Errors
/// The store fails: the next tick finds the same.
pub async fn expire_bootstraps(store: &Store, ids: &dyn IdSource, now: Timestamp) -> Result<usize, StoreError> {
    let filter = NodeFilter { statuses: vec![Status::BootstrapIssued], ..NodeFilter::default() };
    let page = store.nodes(&filter, NodeSort::Oldest, &PageRequest::first(PER_TICK)).await?;
    let mut commits = Vec::new();
    for summary in page.items {
        let tokens = store.enrollment_tokens_of(summary.id).await?;
        if tokens.iter().any(|token| token.check(summary.id, now).is_ok()) {
            continue;
        }
        if let Some(node) = store.node(summary.id).await? {
            commits.extend(withdrawal(&node, ids, now));
        }
    }
    let outcomes = store.commit(commits).await?;
    Ok(outcomes.iter().filter(|outcome| matches!(outcome, Outcome::Applied { .. })).count())
}

fn withdrawal(node: &Node, ids: &dyn IdSource, now: Timestamp) -> Option<Commit> {
    let actor = Actor::system("deadlines");
    let facts =
        Facts { reason: "its bootstrap token expired unused".to_owned(), ..Facts::of(Owner::Deadlines, actor.clone()) };
    let moved = decide(node, NodeEvent::Status(StatusEvent::Withdraw), &facts, now).ok()?;
    let request = Request {
        actor,
        reason: facts.reason,
        now,
        ids,
        op: OpId::generate(ids, now),
        correlation: CorrelationId::generate(ids, now),
    };
    Some(request.commit(Vec::new(), vec![Change::Node(Box::new(moved.change))]))
}
