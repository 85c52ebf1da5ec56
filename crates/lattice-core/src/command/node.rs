//! Commands on one node: the operator's verbs of S1 and S2.

use super::{Planned, Refused, Request, conformance};
use crate::allocation::Allocation;
use crate::bmc::BootDevice;
use crate::change::{Change, Guard, NodeAction, NodeChange};
use crate::job::{Disposal, Job, JobInput, JobKind, JobStatus, NewJob};
use crate::node::availability::{AvailabilityEvent, Effect};
use crate::node::machine::{self, Facts, Health, Moved, NodeEvent, decide};
use crate::node::status::{Owner, StatusEvent};
use crate::node::{DownCause, Hold, HoldKind, Node, NodeClass, Status};
use crate::site::{MaasSettings, Site, SiteProfile, SiteProvider};

/// What is known about a node when a command comes in.
#[derive(Debug, Clone)]
pub struct Known<'a> {
    /// Its row.
    pub node: &'a Node,
    /// Its unfinished or failed owning job, if one stands.
    pub job: Option<&'a Job>,
    /// Fresh health, judged against its SKU.
    pub health: Health,
    /// Work that still runs on it, as its agent reported last.
    pub live_allocations: u32,
    /// Its site.
    pub site: &'a Site,
    /// What is placed on it.
    pub placed: &'a [Allocation],
    /// Whether it has a BMC that can be asked.
    pub has_bmc: bool,
}

impl Known<'_> {
    fn facts(&self, request: &Request) -> Facts {
        Facts {
            reason: request.reason.clone(),
            health: self.health.clone(),
            class: self.node.effective_class(),
            live_allocations: self.live_allocations,
            boot_timeout: self.site.heartbeat.boot_timeout(),
            ..Facts::of(Owner::Operator, request.actor.clone())
        }
    }

    fn moved(&self, request: &Request, event: NodeEvent) -> Result<Moved, Refused> {
        Ok(decide(self.node, event, &self.facts(request), request.now)?)
    }

    /// Refuses while a job that is not finished owns the node.
    pub(super) fn not_busy(&self) -> Result<(), Refused> {
        match self.job.filter(|job| !job.state.status.is_terminal()) {
            None => Ok(()),
            Some(job) => Err(Refused::Busy {
                hostname: self.node.hostname.clone(),
                job: job.id,
                kind: job.kind,
                status: job.state.status,
            }),
        }
    }

    /// Refuses while the owning job may still move by itself, or has a safe way on: it expects the node where it is.
    fn job_is_stopped(&self) -> Result<(), Refused> {
        match self.job {
            Some(job) if job.state.status != JobStatus::FailedManualIntervention => self.not_busy(),
            Some(_) | None => Ok(()),
        }
    }

    fn simple(&self, request: &Request, event: NodeEvent) -> Result<Planned, Refused> {
        let moved = self.moved(request, event)?;
        Ok(planned(self, request, moved, None))
    }

    /// Moves the node and creates the job that owns it, in one commit.
    pub(super) fn with_job(&self, request: &Request, event: NodeEvent, input: JobInput) -> Result<Planned, Refused> {
        self.not_busy()?;
        let job = NewJob { node: self.node, site: self.site, input, batch: None }.build(request);
        let facts = Facts { job: Some(job.id), ..self.facts(request) };
        let mut moved = decide(self.node, event, &facts, request.now)?;
        moved.change.after.owning_job = Some(job.id);
        Ok(planned(self, request, moved, Some(job)))
    }

    /// Creates the job that owns the node, which stays where it is.
    pub(super) fn owned(&self, request: &Request, input: JobInput, cause: &str, detail: &str) -> Planned {
        let job = NewJob { node: self.node, site: self.site, input, batch: None }.build(request);
        let mut after = self.node.successor(request.now);
        after.owning_job = Some(job.id);
        let change = NodeChange {
            after,
            before: Some(self.node.state),
            action: NodeAction::Updated,
            cause: cause.to_owned(),
            detail: detail.to_owned(),
        };
        planned(self, request, Moved { change, effects: Vec::new() }, Some(job))
    }
}

impl Planned {
    /// With the hold `maintenance` of its job, as long as that is not over. One that stands already stays.
    pub(super) fn held(mut self, request: &Request, why: &str) -> Self {
        let (kind, job) = (HoldKind::Maintenance, self.job);
        for change in &mut self.commit.changes {
            if let Change::Node(change) = change
                && change.after.hold(kind).is_none()
            {
                let (by, reason) = (request.actor.clone(), why.to_owned());
                change.after.holds.push(Hold { kind, by, reason, since: request.now, until: None, job });
            }
        }
        self
    }
}

fn planned(known: &Known, request: &Request, moved: Moved, job: Option<Job>) -> Planned {
    let node = known.node;
    let lost = super::allocation::follow(request, node, &moved, known.placed);
    let alert = super::alert(&moved);
    let mut changes = vec![Change::Node(Box::new(moved.change))];
    let mut guards = Vec::new();
    let id = job.as_ref().map(|job| job.id);
    if let Some(job) = job {
        guards.push(Guard::NoLiveJob { node: node.id });
        changes.push(job.created());
    }
    changes.extend(lost);
    changes.extend(alert);
    // Without a BMC there is nobody to be asked out of band.
    let effects = moved.effects.into_iter().filter(|effect| *effect != Effect::BmcCheck || known.has_bmc).collect();
    Planned { commit: request.commit(guards, changes), node: node.id, job: id, effects }
}

/// Takes a draining or drained node back. Its health check must pass. A drain that is not over is cancelled in the same
/// commit; what it asked to save its state, or stopped, goes on as it was told.
///
/// # Errors
/// Not draining or drained, being retired or removed, unhealthy, owned by a job that is no drain; or a sensitive node that
/// deviates from the approved fingerprints: it would be drained again at once.
pub fn undrain(known: &Known, request: &Request) -> Result<Planned, Refused> {
    let node = known.node;
    if node.effective_class() == NodeClass::Sensitive && conformance::deviates(node, known.site) == Some(true) {
        return Err(Refused::Deviates { hostname: node.hostname.clone(), site: known.site.name.clone() });
    }
    let mut planned = known.simple(request, NodeEvent::Availability(AvailabilityEvent::Undrain))?;
    let Some(job) = known.job.filter(|job| !job.state.status.is_terminal()) else { return Ok(planned) };
    if job.kind != JobKind::Drain {
        known.not_busy()?;
    }
    if let Some(cancelled) = super::job::cancelled(request, job, known.site) {
        planned.commit.changes.push(cancelled);
        planned.job = Some(job.id);
    }
    Ok(planned)
}

/// Down at once; heartbeats do not undo it.
///
/// # Errors
/// Never heard of, or deleted.
pub fn disable(known: &Known, request: &Request) -> Result<Planned, Refused> {
    known.simple(request, NodeEvent::Availability(AvailabilityEvent::Disable))
}

/// Gives a disabled node back: to ready when it is down for that and healthy, else only the hold is cleared.
///
/// # Errors
/// Not disabled, or down for it and not healthy.
pub fn enable(known: &Known, request: &Request) -> Result<Planned, Refused> {
    let node = known.node;
    if node.down_cause == Some(DownCause::Disabled) {
        return known.simple(request, NodeEvent::Availability(AvailabilityEvent::Enable));
    }
    if node.hold(HoldKind::Disabled).is_none() {
        return Err(Refused::NoSuchHold { hostname: node.hostname.clone(), kind: HoldKind::Disabled });
    }
    Ok(super::hold::cleared(node, request, HoldKind::Disabled))
}

/// Blocks it from scheduling until it is proven healthy.
///
/// # Errors
/// Neither active nor offline, or an enrolling node whose onboarding still runs: stop that first.
pub fn quarantine(known: &Known, request: &Request) -> Result<Planned, Refused> {
    let event = match known.node.state.status {
        Status::Enrolling => {
            known.job_is_stopped()?;
            StatusEvent::Block
        }
        Status::Draining => StatusEvent::CleanupFailed,
        Status::BootstrapIssued
        | Status::Active
        | Status::Offline
        | Status::Quarantined
        | Status::Retired
        | Status::Removing
        | Status::Deleted => StatusEvent::Quarantine,
    };
    known.simple(request, NodeEvent::Status(event))
}

/// Takes a quarantined node back once it is proven healthy.
///
/// # Errors
/// Not quarantined, not healthy, or its availability forbids it.
pub fn recover(known: &Known, request: &Request) -> Result<Planned, Refused> {
    known.simple(request, NodeEvent::Status(StatusEvent::Recover))
}

/// Takes it out of scheduling for good and keeps its identity; a job drains it.
///
/// # Errors
/// Not active, offline or quarantined; or owned by another job.
pub fn retire(known: &Known, request: &Request, disposal: Disposal) -> Result<Planned, Refused> {
    known.with_job(request, NodeEvent::Status(StatusEvent::Retire), JobInput::Retire { disposal })
}

/// Takes a retired node back, same identity.
///
/// # Errors
/// Not retired, not drained, or not healthy.
pub fn reactivate(known: &Known, request: &Request) -> Result<Planned, Refused> {
    known.simple(request, NodeEvent::Status(StatusEvent::Reactivate))
}

/// Removes a retired node: its OS or instance goes, then its identity ends.
///
/// # Errors
/// Not retired, or owned by another job.
pub fn remove(known: &Known, request: &Request) -> Result<Planned, Refused> {
    known.with_job(request, NodeEvent::Status(StatusEvent::Remove), JobInput::Remove)
}

/// Withdraws a bootstrap that nobody used.
///
/// # Errors
/// The node was heard already.
pub fn withdraw(known: &Known, request: &Request) -> Result<Planned, Refused> {
    known.simple(request, NodeEvent::Status(StatusEvent::Withdraw))
}

/// Boots it again. A job power-cycles it through its provider, and the node boots once its power is seen to be off; a node
/// that an operator bootstrapped is power-cycled by hand, and boots from now on: it fails unless its agent registers in
/// time. `boot`: what its BMC has it start from, this once.
///
/// # Errors
/// Not unknown, drained, down or failed; or owned by another job; or it has no BMC that could be told what to boot from.
pub fn reboot(known: &Known, request: &Request, boot: Option<BootDevice>) -> Result<Planned, Refused> {
    if boot.is_some() && !known.has_bmc {
        return Err(Refused::NoBmc { hostname: known.node.hostname.clone() });
    }
    let event = NodeEvent::Availability(AvailabilityEvent::Reboot);
    if !known.site.can_switch(known.has_bmc) {
        return known.simple(request, event);
    }
    known.moved(request, event)?;
    known.not_busy()?;
    Ok(known.owned(request, JobInput::Reboot { boot }, "reboot", &request.reason))
}

/// Gives up on a boot that failed: the node is as one whose agent was never heard, until that registers or the node is
/// booted. The row of failed boots ends; its holds, the wipe it owes and its drain intent stay.
///
/// # Errors
/// Not failed, or owned by a job.
pub fn reset(known: &Known, request: &Request) -> Result<Planned, Refused> {
    let planned = known.simple(request, NodeEvent::Availability(AvailabilityEvent::Reset))?;
    known.not_busy()?;
    Ok(planned)
}

/// What a node gets in place of its OS; the one of new nodes where nothing is named.
#[derive(Debug, Clone, Copy, Default)]
pub struct Image<'a> {
    /// The name that its site knows: a boot profile, or a profile.
    pub name: Option<&'a str>,
    /// The profile of a MAAS site that it means; none: the site's own settings.
    pub profile: Option<&'a SiteProfile>,
}

/// Replaces its OS; its identity is kept. A job gives it another image and leads it through enrolment again; until then
/// the hold `maintenance` of that job stands. design: 2-state-model "Reimage"
///
/// # Errors
/// Its site's provider cannot do it, or has no such image; something runs on it, or it is owned by another job.
pub fn reimage(known: &Known, request: &Request, image: Image<'_>) -> Result<Planned, Refused> {
    let node = known.node;
    let input = match &known.site.provider {
        SiteProvider::Openchami(site) => {
            super::create::check_boot_profile(site, image.name)?;
            JobInput::Reimage { image: image.name.map(str::to_owned) }
        }
        SiteProvider::Maas(site) => {
            super::create::check_profile(known.site, image.profile)?;
            JobInput::ReimageMaas { settings: Box::new(MaasSettings::of(site, image.profile)) }
        }
        other @ (SiteProvider::Manual | SiteProvider::Lxd(_)) => {
            let (site, kind) = (known.site.name.clone(), other.kind());
            return Err(Refused::WrongSiteKind { site, kind, needed: "openchami or maas" });
        }
    };
    if known.live_allocations > 0 {
        let need = format!("that its {} allocations end: drain it first", known.live_allocations);
        let event = NodeEvent::Status(StatusEvent::Reimage);
        return Err(
            machine::Refused::GuardFailed { hostname: node.hostname.clone(), state: node.state, event, need }.into()
        );
    }
    // The job moves it once its power is off; that it may then be moved is judged now.
    let facts = Facts { owner: Owner::Reimage, ..known.facts(request) };
    decide(node, NodeEvent::Status(StatusEvent::Reimage), &facts, request.now)?;
    known.not_busy()?;
    Ok(known.owned(request, input, "reimage", &request.reason).held(request, "its OS is replaced"))
}

/// Resumes, or creates anew, the job that owns a draining or removing node; a live one is success without a duplicate.
/// spec: S2 8
///
/// # Errors
/// Nothing of the node is in progress.
pub fn resume(known: &Known, request: &Request) -> Result<ResumeNode, Refused> {
    let node = known.node;
    let wanted = match node.state.status {
        Status::Draining => Some(JobInput::Retire { disposal: Disposal::Keep }),
        Status::Removing => Some(JobInput::Remove),
        Status::BootstrapIssued
        | Status::Enrolling
        | Status::Active
        | Status::Offline
        | Status::Quarantined
        | Status::Retired
        | Status::Deleted => None,
    };
    if let Some(job) = known.job {
        match job.state.status {
            JobStatus::Pending | JobStatus::Running | JobStatus::Compensating => return Ok(ResumeNode::Live(job.id)),
            JobStatus::FailedRetryable | JobStatus::FailedManualIntervention => return Ok(ResumeNode::Job(job.id)),
            JobStatus::Completed | JobStatus::Cancelled | JobStatus::Reconciled => {}
        }
    }
    let Some(input) = wanted else {
        return Err(Refused::NothingToResume { hostname: node.hostname.clone(), state: node.state });
    };
    let planned = known.owned(request, input, "resume", "its owning job was lost and is created anew");
    Ok(ResumeNode::Created(Box::new(planned)))
}

/// What resuming a node came to.
#[derive(Debug, Clone, PartialEq)]
pub enum ResumeNode {
    /// Its job is live: nothing to do.
    Live(crate::ids::JobId),
    /// Its job failed: resume that job.
    Job(crate::ids::JobId),
    /// Its job was lost: this commit creates another.
    Created(Box<Planned>),
}

/// Revokes every certificate of the node issued so far, at once.
pub fn revoke_certificates(known: &Known, request: &Request) -> Planned {
    let mut after = known.node.successor(request.now);
    after.identity_epoch += 1;
    let change = NodeChange {
        after,
        before: Some(known.node.state),
        action: NodeAction::Revoked,
        cause: "revoke_certificates".to_owned(),
        detail: request.reason.clone(),
    };
    planned(known, request, Moved { change, effects: Vec::new() }, None)
}
