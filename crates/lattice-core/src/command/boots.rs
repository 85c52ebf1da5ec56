//! A boot that came up ill is tried again, where something can switch the machine and nobody is at it. Pure.
//! spec: S1 "Booting → Failed"; design: 2-state-model "Availability"

use super::Request;
use super::agent::Chained;
use super::remedy::{NO_SWITCH, left_alone};
use crate::actor::Actor;
use crate::change::{Change, Guard, NodeChange, Resource};
use crate::job::{Job, JobInput, NewJob};
use crate::node::availability::Effect;
use crate::node::{Node, Status};
use crate::site::Site;
use crate::time::Timestamp;

/// Name of whoever does it, in history, audit and jobs.
pub const BOOTS: &str = "boots";

/// What else must be known of a node whose boot came up ill.
#[derive(Debug, Clone, Copy)]
pub struct Standing<'a> {
    /// Its site.
    pub site: &'a Site,
    /// A live or failed job that owns it.
    pub job: Option<&'a Job>,
    /// Whether it has a BMC that can be asked.
    pub has_bmc: bool,
}

/// Whether Lattice itself boots a node again that came up ill.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Again {
    /// It does, now.
    Due,
    /// The job that owns it sees to it, or waits for an operator.
    ByItsJob,
    /// An operator must act: why.
    Never(String),
}

/// Judges whether a node whose boot came up ill is booted again by itself at `now`.
pub fn again(node: &Node, owned: bool, can_switch: bool, now: Timestamp) -> Again {
    if owned {
        return Again::ByItsJob;
    }
    let status = node.state.status;
    match status {
        Status::Active | Status::Offline | Status::Quarantined => {}
        Status::BootstrapIssued
        | Status::Enrolling
        | Status::Draining
        | Status::Retired
        | Status::Removing
        | Status::Deleted => return Again::Never(format!("it is {status}, and no job owns it")),
    }
    if let Some(why) = left_alone(node, now) {
        return Again::Never(why);
    }
    if can_switch { Again::Due } else { Again::Never(NO_SWITCH.to_owned()) }
}

/// What an operator does about a node that is not booted again by itself.
pub fn by_hand(hostname: &str) -> String {
    format!("put {hostname} right, and power-cycle it by hand: its agent registers with the new boot")
}

/// Carries out [`Effect::BootAgain`] in the very commit that says so: a reboot job, or a word on why there is none.
pub fn carried_out(request: &Request, mut chained: Chained, standing: &Standing) -> Chained {
    if !chained.effects.contains(&Effect::BootAgain) {
        return chained;
    }
    let Some(last) = chained.commits.last_mut() else { return chained };
    let Some(change) = last.changes.iter_mut().find_map(node_change) else { return chained };
    let node = &mut change.after;
    match again(node, standing.job.is_some(), standing.site.can_switch(standing.has_bmc), request.now) {
        Again::ByItsJob => {}
        Again::Due => {
            let request = Request {
                actor: Actor::system(BOOTS),
                reason: change.detail.clone(),
                now: request.now,
                ids: request.ids,
                op: request.op,
                correlation: request.correlation,
            };
            let job = NewJob { node, site: standing.site, input: JobInput::Reboot { boot: None }, batch: None }
                .build(&request);
            node.owning_job = Some(job.id);
            let unowned = Guard::NoLiveJob { node: node.id };
            chained.after = Some(node.clone());
            last.changes.push(job.created());
            // The chain stands only as a whole: a boot counts once.
            chained.commits[0].guards.push(unowned);
        }
        Again::Never(why) => {
            let detail =
                format!("{}; it is not booted again by itself: {why}; {}", change.detail, by_hand(&node.hostname));
            let resource = Resource::Node(node.id);
            last.changes.push(Change::Note { name: "node.boot_not_repeated".to_owned(), resource, detail });
        }
    }
    chained
}

fn node_change(change: &mut Change) -> Option<&mut NodeChange> {
    if let Change::Node(change) = change { Some(change) } else { None }
}
