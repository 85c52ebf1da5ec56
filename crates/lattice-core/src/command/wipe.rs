//! Wiping a node after sensitive work: begun by itself, begun by an operator, failed, confirmed. Pure decisions.
//! spec: S1 "Sensitive Release Sequence", "Wipe Failure Handling"

use super::node::{Known, ResumeNode};
use super::{Planned, Refused, Request};
use crate::change::{Change, Resource};
use crate::job::{Job, JobInput, JobKind, JobState, JobStatus};
use crate::node::machine::{self, Facts, Health, Moved, NodeEvent, decide};
use crate::node::status::{Owner, StatusEvent};
use crate::node::{Availability, DownCause, HoldKind, Node, Status};
use crate::site::{Site, SiteProvider};
use crate::time::Timestamp;
use crate::wipe::{WipeReboot, WipeTold};

/// The wipe that a node needs and that nobody has begun; none: it needs none, cannot be wiped now, or an operator must say
/// so because the last one failed.
pub fn due(request: &Request, node: &Node, site: &Site, has_bmc: bool) -> Option<Planned> {
    let needs = node.hold(HoldKind::WipeRequired).is_some() && node.hold(HoldKind::WipeFailed).is_none();
    let heard = match node.state.availability {
        Availability::Ready | Availability::Degraded | Availability::Draining | Availability::Drained => true,
        Availability::Unknown | Availability::Booting | Availability::Down | Availability::Failed => false,
    };
    if !needs || !heard || !has_wipes(node.state.status) || node.owning_job.is_some() {
        return None;
    }
    let known = Known { node, job: None, health: Health::NotReported, live_allocations: 0, site, placed: &[], has_bmc };
    Some(known.owned(request, input(site, has_bmc), "wipe", "its sensitive work ended"))
}

/// How hard an operator asks for a wipe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Urge {
    /// Only what would be begun anyway.
    AsDue,
    /// After a failure, and where none is needed, too.
    Forced,
}

/// What an operator's request for a wipe comes to: it is under way, the job that failed begins anew, or one is created.
///
/// # Errors
/// The node needs none and it was not forced; the last one failed and it was not forced; another job owns the node; its
/// agent cannot be reached.
pub fn asked(known: &Known, request: &Request, urge: Urge) -> Result<ResumeNode, Refused> {
    let node = known.node;
    let forced = urge == Urge::Forced;
    if !node.owes_wipe() && !forced {
        return Err(Refused::NothingToWipe { hostname: node.hostname.clone() });
    }
    if let Some(job) = known.job.filter(|job| job.kind == JobKind::SensitiveWipe) {
        match job.state.status {
            JobStatus::Pending | JobStatus::Running | JobStatus::Compensating => return Ok(ResumeNode::Live(job.id)),
            JobStatus::FailedRetryable | JobStatus::FailedManualIntervention => {
                let reached = may_be_reached(node);
                return if forced { reached.map(|()| ResumeNode::Job(job.id)) } else { Err(force_needed(node)) };
            }
            JobStatus::Completed | JobStatus::Cancelled | JobStatus::Reconciled => {}
        }
    }
    known.not_busy()?;
    if node.hold(HoldKind::WipeFailed).is_some() && !forced {
        return Err(force_needed(node));
    }
    may_be_reached(node)?;
    let mut planned = known.owned(request, input(known.site, known.has_bmc), "wipe", &request.reason);
    for change in &mut planned.commit.changes {
        if let Change::Node(change) = change
            && change.after.hold(HoldKind::WipeRequired).is_none()
        {
            let reason = format!("{} asked for a wipe", request.actor.name);
            change.after.require_wipe(reason, &request.actor, request.now);
        }
    }
    Ok(ResumeNode::Created(Box::new(planned)))
}

fn force_needed(node: &Node) -> Refused {
    Refused::WipeNeedsForce { hostname: node.hostname.clone() }
}

const fn has_wipes(status: Status) -> bool {
    match status {
        Status::Active | Status::Offline | Status::Quarantined => true,
        Status::BootstrapIssued
        | Status::Enrolling
        | Status::Draining
        | Status::Retired
        | Status::Removing
        | Status::Deleted => false,
    }
}

/// Its agent does the work: a node that lost it is brought back first.
fn may_be_reached(node: &Node) -> Result<(), Refused> {
    let reached = match node.state.availability {
        Availability::Ready | Availability::Degraded | Availability::Draining | Availability::Drained => true,
        Availability::Down => node.down_cause != Some(DownCause::HeartbeatLost),
        Availability::Unknown | Availability::Booting | Availability::Failed => false,
    };
    match reached && has_wipes(node.state.status) {
        true => Ok(()),
        false => Err(Refused::CannotWipe { hostname: node.hostname.clone(), state: node.state }),
    }
}

fn input(site: &Site, has_bmc: bool) -> JobInput {
    let reboot = match &site.provider {
        SiteProvider::Manual if !has_bmc => WipeReboot::Agent,
        SiteProvider::Manual | SiteProvider::Maas(_) | SiteProvider::Lxd(_) | SiteProvider::Openchami(_) => {
            WipeReboot::Power
        }
    };
    JobInput::WipeSensitive { reboot }
}

/// Whether this change of a job's state is the failure of a wipe: it began, and stops without being confirmed. A wipe that
/// failed and is then cancelled failed once.
pub fn fails(kind: JobKind, before: &JobState, after: &JobState) -> bool {
    let stopped = |state: &JobState| state.status.is_failed() || state.status == JobStatus::Cancelled;
    kind == JobKind::SensitiveWipe && after.limit_at.is_some() && stopped(after) && !stopped(before)
}

/// The node of a wipe that failed: down, quarantined, held; treated as down by whoever schedules.
///
/// # Errors
/// Its tables forbid it: it is not known any more.
pub fn failed(request: &Request, node: &Node, job: &Job, after: &JobState) -> Result<Moved, machine::Refused> {
    let facts =
        Facts { reason: why(job, after).1, job: Some(job.id), ..Facts::of(Owner::Cleanup, request.actor.clone()) };
    let down = NodeEvent::Availability(crate::node::availability::AvailabilityEvent::WipeFailed);
    let mut moved = decide(node, down, &facts, request.now)?;
    let quarantine = NodeEvent::Status(StatusEvent::Quarantine);
    if let Ok(quarantined) = decide(&moved.change.after, quarantine, &facts, request.now) {
        moved.change.after = quarantined.change.after;
    }
    // The drain was the wipe's own: the next one does not have to know of it.
    moved.change.after.drain_intent &= !job.outputs.drained;
    if after.status.is_terminal() {
        moved.change.after.leave_job(job.id);
    }
    moved.change.after.generation = node.generation.next();
    Ok(moved)
}

/// What is told of a wipe that failed: the critical entry of the audit with its event, and the alert.
pub fn told_of_failure(node: &Node, job: &Job, after: &JobState, now: Timestamp) -> Vec<Change> {
    let (error_code, reason) = why(job, after);
    let host = &node.hostname;
    let told = WipeTold::Failed {
        job: job.id,
        started_at: job.outputs.wipe.as_ref().map_or(now, |run| run.started_at),
        stage: after.stage,
        error_code,
        reason: reason.clone(),
        operator_action: format!(
            "needed: lattice admin node wipe {host} --force, or lattice node disable {host}, or replace it"
        ),
    };
    let alert = Change::Note {
        name: "node.alert.raised".to_owned(),
        resource: Resource::Node(node.id),
        detail: format!("critical: the wipe of {host} failed: {reason}"),
    };
    vec![Change::Wipe { node: node.id, told: Box::new(told) }, alert]
}

fn why(job: &Job, after: &JobState) -> (String, String) {
    match after.failure.as_ref().filter(|_| after.status.is_failed()) {
        Some(failure) => (failure.error_code.clone(), failure.message.clone()),
        None => ("cancelled".to_owned(), format!("an operator stopped it at {}", job.state.stage)),
    }
}
