//! What a job's commit does to its node: asks of the stage and moves of the engine, decided by the node's tables.

use std::time::Duration;

use lattice_core::actor::Actor;
use lattice_core::change::{NodeAction, NodeChange};
use lattice_core::command::job::edge;
use lattice_core::job::flows::RELEASE;
use lattice_core::job::{Job, JobInput};
use lattice_core::node::availability::AvailabilityEvent;
use lattice_core::node::machine::{Facts, Health, NodeEvent, Refused, decide};
use lattice_core::node::status::{Owner, StatusEvent};
use lattice_core::node::{Availability, Hold, HoldKind, Node, Status};
use lattice_core::time::Timestamp;

use crate::stage::NodeAsk;

/// What is folded into one change of one row.
pub struct Wish<'a> {
    /// The job that asks.
    pub job: &'a Job,
    /// What its stage asks, in order.
    pub asks: &'a [NodeAsk],
    /// The statuses that the engine moves it through, in order.
    pub moves: &'a [Status],
    /// Work that still runs on it.
    pub live_allocations: u32,
    /// Who the history names.
    pub actor: &'a Actor,
}

/// The one change of the node's row, or none when nothing changes.
///
/// # Errors
/// A move of the engine, or what the stage's result relies on, is refused by the node's table as the node stands now.
pub fn fold(node: &Node, wish: &Wish<'_>, now: Timestamp) -> Result<Option<NodeChange>, Refused> {
    let mut folding = Folding { after: node.clone(), cause: None, detail: String::new(), moved: false };
    for ask in wish.asks {
        folding.ask(ask, wish, now)?;
    }
    for to in wish.moves {
        folding.to(*to, wish, now)?;
    }
    let is_over = wish.job.state.status.is_terminal();
    if is_over && folding.after.leave_job(wish.job.id) {
        folding.cause.get_or_insert("job_ended");
    }
    let Some(cause) = folding.cause else { return Ok(None) };
    let after = Node { generation: node.generation.next(), updated_at: now, ..folding.after };
    let action = if folding.moved { NodeAction::Moved } else { NodeAction::Updated };
    Ok(Some(NodeChange { after, before: Some(node.state), action, cause: cause.to_owned(), detail: folding.detail }))
}

struct Folding {
    after: Node,
    cause: Option<&'static str>,
    detail: String,
    moved: bool,
}

impl Folding {
    fn ask(&mut self, ask: &NodeAsk, wish: &Wish<'_>, now: Timestamp) -> Result<(), Refused> {
        match ask {
            NodeAsk::Availability { event, boot_timeout } => {
                let facts = Facts { boot_timeout: *boot_timeout, ..facts(&self.after, wish, wish.job.kind.owner()) };
                // Where the event does nothing any more, somebody else brought the node further: that is no error.
                if let Ok(moved) = decide(&self.after, NodeEvent::Availability(*event), &facts, now) {
                    self.moved(NodeEvent::Availability(*event), moved.change.after);
                }
            }
            NodeAsk::Require(event) => {
                let event = NodeEvent::Availability(*event);
                let moved = decide(&self.after, event, &facts(&self.after, wish, wish.job.kind.owner()), now)?;
                self.moved(event, moved.change.after);
            }
            NodeAsk::ProviderRef(name) => {
                if self.after.provider_ref.as_ref() != Some(name) {
                    self.after.provider_ref = Some(name.clone());
                    self.cause = Some("machine_found");
                }
            }
            NodeAsk::Address(address) => {
                if self.after.address.as_ref() != Some(address) {
                    self.after.address = Some(address.clone());
                    self.cause = Some("address_known");
                }
            }
            NodeAsk::Wiped => self.wiped(wish, now)?,
            NodeAsk::StaysInMaintenance(why) => self.stays_in_maintenance(why, wish, now),
            // Read by `facts` when the move is decided.
            NodeAsk::ProvenGone => {}
        }
        Ok(())
    }

    fn to(&mut self, to: Status, wish: &Wish<'_>, now: Timestamp) -> Result<(), Refused> {
        if self.after.state.status == to {
            return Ok(());
        }
        let Some((event, asks_as)) = edge(self.after.state.status, to, wish.job.kind) else { return Ok(()) };
        let event = NodeEvent::Status(event);
        let moved = decide(&self.after, event, &facts(&self.after, wish, asks_as), now)?;
        self.moved(event, moved.change.after);
        Ok(())
    }

    /// It is given back: the drain of its wipe ends, and the quarantine that a failed one put it into.
    fn wiped(&mut self, wish: &Wish<'_>, now: Timestamp) -> Result<(), Refused> {
        // It booted since, and is drained or ready by its health check alone.
        let facts = Facts { health: Health::Passed, ..facts(&self.after, wish, wish.job.kind.owner()) };
        let was_quarantined = self.after.hold(HoldKind::WipeFailed).is_some();
        self.after.wiped();
        if wish.job.outputs.drained && self.after.state.availability == Availability::Drained {
            let undrain = NodeEvent::Availability(AvailabilityEvent::Undrain);
            self.moved(undrain, decide(&self.after, undrain, &facts, now)?.change.after);
        }
        if was_quarantined && self.after.state.status == Status::Quarantined {
            let recover = NodeEvent::Status(StatusEvent::Recover);
            self.moved(recover, decide(&self.after, recover, &facts, now)?.change.after);
        }
        self.cause = Some("wiped");
        Ok(())
    }

    fn stays_in_maintenance(&mut self, why: &str, wish: &Wish<'_>, now: Timestamp) {
        let kind = HoldKind::Maintenance;
        let of_others = self.after.hold(kind).is_some_and(|hold| hold.job != Some(wish.job.id));
        if !of_others {
            self.after.holds.retain(|hold| hold.kind != kind);
            let (by, reason) = (wish.job.requested_by.clone(), why.to_owned());
            self.after.holds.push(Hold { kind, by, reason, since: now, until: None, job: None });
        }
    }

    fn moved(&mut self, event: NodeEvent, after: Node) {
        self.after = after;
        self.cause = Some(event.name());
        self.moved = true;
    }
}

fn facts(node: &Node, wish: &Wish<'_>, owner: Owner) -> Facts {
    // A node is ready only after a passed health check, and stays so only while it is heard.
    let health = if node.state.availability == Availability::Ready { Health::Passed } else { Health::NotReported };
    let facts = Facts::of(owner, wish.actor.clone());
    Facts {
        reason: wish.job.reason.clone(),
        boot_timeout: boot_timeout(wish.job).unwrap_or(facts.boot_timeout),
        health,
        live_allocations: wish.live_allocations,
        job: Some(wish.job.id),
        deployed: wish.job.outputs.deployed,
        proven_gone: wish.asks.contains(&NodeAsk::ProvenGone),
        ..facts
    }
}

/// A machine that is reimaged through MAAS is released and deployed before it boots.
fn boot_timeout(job: &Job) -> Option<Duration> {
    let JobInput::ReimageMaas { settings } = &job.input else { return None };
    let policy = &settings.policy;
    Some(RELEASE + Duration::from_millis(policy.deploy_timeout_ms + policy.enrollment_timeout_ms))
}
