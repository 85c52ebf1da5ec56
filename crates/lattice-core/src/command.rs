//! What people and programs ask for, decided purely: rows come in, a commit or a refusal comes out.

pub mod agent;
pub mod allocation;
pub mod batch;
pub mod bmc;
pub mod boots;
pub mod bootstrap;
pub mod claim;
pub mod conformance;
pub mod create;
pub mod drain;
pub mod hold;
pub mod job;
pub mod label;
pub mod node;
mod refused;
pub mod remedy;
pub mod secure_erase;
pub mod silence;
pub mod site;
pub mod task;
pub mod wipe;

pub use refused::Refused;

use crate::actor::Actor;
use crate::change::{Change, Commit, Guard, Resource};
use crate::ids::{CorrelationId, IdSource, JobId, NodeId, OpId};
use crate::node::availability::Effect;
use crate::node::machine::Moved;
use crate::time::Timestamp;

/// Who asks, when, why, and where new ids come from.
pub struct Request<'a> {
    /// Who.
    pub actor: Actor,
    /// Why, in the asker's words; may be empty.
    pub reason: String,
    /// When.
    pub now: Timestamp,
    /// Source of new ids.
    pub ids: &'a dyn IdSource,
    /// Makes a repeat of the same request safe.
    pub op: OpId,
    /// What it belongs to.
    pub correlation: CorrelationId,
}

impl<'a> Request<'a> {
    /// What a part of the control plane asks for by itself; the reason is empty.
    pub fn of_system(component: &str, ids: &'a dyn IdSource, now: Timestamp, correlation: CorrelationId) -> Self {
        let op = OpId::generate(ids, now);
        Self { actor: Actor::system(component), reason: String::new(), now, ids, op, correlation }
    }

    /// A commit of this request.
    pub fn commit(&self, guards: Vec<Guard>, changes: Vec<Change>) -> Commit {
        Commit {
            op: self.op,
            guards,
            changes,
            actor: self.actor.clone(),
            reason: self.reason.clone(),
            at: self.now,
            correlation: self.correlation,
        }
    }
}

/// The alert that a transition asks for.
fn alert(moved: &Moved) -> Option<Change> {
    let node = &moved.change.after;
    moved.effects.contains(&Effect::Alert).then(|| Change::Note {
        name: "node.alert.raised".to_owned(),
        resource: Resource::Node(node.id),
        detail: format!("{} is {}: {}", node.hostname, node.state, moved.change.cause),
    })
}

/// What a command decided: the commit, what it is about, what the transition asks of others.
#[derive(Debug, Clone, PartialEq)]
pub struct Planned {
    /// To be committed as it is.
    pub commit: Commit,
    /// The node it is about.
    pub node: NodeId,
    /// The job that it created or resumed: wake its driver after the commit.
    pub job: Option<JobId>,
    /// What the transition asks of others.
    pub effects: Vec<Effect>,
}
