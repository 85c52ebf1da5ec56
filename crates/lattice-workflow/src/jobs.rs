//! New jobs as commits, and what operators do to jobs.

use lattice_core::actor::Actor;
use lattice_core::change::{Change, JobChange};
use lattice_core::ids::{BatchId, CorrelationId, Generation, JobId, TokenId};
use lattice_core::job::{Flow, Input, Job, JobInput, JobKind, JobOutputs, JobState, Op, Refused, step};
use lattice_core::node::Node;
use lattice_core::site::Site;
use lattice_core::time::Timestamp;

use crate::flow_of::flow_of_input;
use crate::tools::Limits;

/// What a new job is made of.
#[derive(Debug, Clone)]
pub struct NewJob {
    /// Identity.
    pub id: JobId,
    /// What it is asked.
    pub input: JobInput,
    /// Part of which batch.
    pub batch: Option<BatchId>,
    /// The token that was issued with it: a manual onboarding hands it out at once.
    pub token: Option<TokenId>,
    /// Who asks.
    pub requested_by: Actor,
    /// Why.
    pub reason: String,
    /// Ties together all it causes.
    pub correlation: CorrelationId,
}

/// The job of `new` on `node`, accepted at `now` and not started; none when the site cannot have such a job.
///
/// The caller commits it with the node's own change, under [`lattice_core::change::Guard::NoLiveJob`], and wakes the
/// driver.
pub fn new_job(new: NewJob, node: &Node, site: &Site, limits: &Limits, now: Timestamp) -> Option<Job> {
    let flow = flow_of_input(&new.input, site, limits)?;
    let kind = match new.input {
        JobInput::OnboardMaas { .. } | JobInput::OnboardLxd { .. } | JobInput::OnboardManual { .. } => {
            JobKind::Onboarding
        }
        JobInput::Drain { .. } => JobKind::Drain,
        JobInput::Retire { .. } => JobKind::Retire,
        JobInput::Remove => JobKind::Remove,
    };
    Some(Job {
        id: new.id,
        kind,
        node: node.id,
        site: site.id,
        batch: new.batch,
        hostname: node.hostname.clone(),
        input: new.input,
        state: JobState::pending(new.id, flow.first().name, now),
        outputs: JobOutputs { token: new.token, ..JobOutputs::default() },
        observed: None,
        lease: None,
        requested_by: new.requested_by,
        reason: new.reason,
        correlation: new.correlation,
        created_at: now,
        started_at: None,
        finished_at: None,
        updated_at: now,
        generation: Generation::FIRST,
    })
}

/// The change that creates a job.
pub fn created(job: Job) -> Change {
    Change::Job(Box::new(JobChange {
        after: job,
        before: None,
        cause: "created".to_owned(),
        stage_events: Vec::new(),
        visible: true,
    }))
}

/// The change that an operator's action makes; none when it was applied before, or nothing changes.
///
/// The caller commits it and wakes the driver.
///
/// # Errors
/// The action is refused.
pub fn operated(job: &Job, flow: &Flow, op: &Op, now: Timestamp) -> Result<Option<Change>, Refused> {
    let lease_until = job.lease.as_ref().map(|lease| lease.until);
    let op = Op { lease_until, ..op.clone() };
    let cause = op.action.to_string();
    let Some(state) = step(flow, &job.state, &Input::Op(op), now)? else { return Ok(None) };
    let after = Job {
        finished_at: state.status.is_terminal().then_some(now),
        state,
        generation: job.generation.next(),
        updated_at: now,
        ..job.clone()
    };
    Ok(Some(Change::Job(Box::new(JobChange {
        after,
        before: Some(job.state.status),
        cause,
        stage_events: Vec::new(),
        visible: true,
    }))))
}
