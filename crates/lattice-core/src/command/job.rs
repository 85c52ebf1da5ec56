//! What operators ask of jobs: the engine decides, the node follows in the same commit. design: 3-jobs

use super::{Planned, Request, wipe};
use crate::change::{Change, JobChange, NodeAction, NodeChange, Resource};
use crate::explain::{Code, Explain, NextAction};
use crate::job::{
    self, Decisions, Flow, Input, Job, JobInput, JobKind, JobState, NotProven, Op, OperatorAction, Proof,
    allowed_node_statuses, flow_for, node_moves, step,
};
use crate::node::machine::{self, Facts, NodeEvent, decide};
use crate::node::status::{Owner, STATUS_EDGES};
use crate::node::{Node, Status};
use crate::site::{MaasSettings, Site};
use crate::time::Timestamp;

/// An operator's request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asked {
    /// What is asked.
    pub action: OperatorAction,
    /// What the operator decided with it.
    pub decisions: Decisions,
    /// For `adopt_observed_state`: a fresh observation.
    pub observed: Option<Proof>,
}

/// Why an action was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ActRefused {
    /// The engine does not take it.
    #[error(transparent)]
    Job(#[from] job::Refused),
    /// The node would have to move with the job, and its table forbids it.
    #[error(transparent)]
    Node(#[from] machine::Refused),
}

impl Explain for ActRefused {
    fn code(&self) -> Code {
        match self {
            Self::Job(refused) => refused.code(),
            Self::Node(refused) => refused.code(),
        }
    }
    fn because(&self) -> Vec<String> {
        match self {
            Self::Job(refused) => refused.because(),
            Self::Node(refused) => refused.because(),
        }
    }
    fn next_actions(&self) -> Vec<NextAction> {
        match self {
            Self::Job(refused) => refused.next_actions(),
            Self::Node(refused) => refused.next_actions(),
        }
    }
}

/// Decides an operator's action; none when the job already is where the action leads.
///
/// # Errors
/// The job's status does not allow it, a decision is missing or unknown, or its node cannot follow.
pub fn act(
    request: &Request,
    job: &Job,
    node: &Node,
    site: &Site,
    asked: &Asked,
) -> Result<Option<Planned>, ActRefused> {
    let flow = flow_for(&job.input, site);
    let Some(state) = asked_state(request, job, &flow, asked)? else { return Ok(None) };
    let fails = wipe::fails(job.kind, &job.state, &state);
    let follows = match fails {
        true => Some(wipe::failed(request, node, job, &state)?.change),
        false => follow(request, &flow, job, &state, node)?,
    };
    let stands = follows.as_ref().map_or(node, |change| &change.after).state.status;
    // What was observed does not prove an end that the node cannot stand beside. spec: S2 4.3
    if asked.action == OperatorAction::AdoptObservedState
        && !allowed_node_statuses(flow.name, state.status).contains(&stands)
    {
        return Err(job::Refused::NothingObserved { job: job.id, why: NotProven::Absent }.into());
    }
    let mut changes = Vec::new();
    if let Some(change) = follows {
        changes.push(Change::Node(Box::new(change)));
    }
    if fails {
        changes.extend(wipe::told_of_failure(node, job, &state, request.now));
    }
    changes.push(acted(request, job, state, asked.action));
    let commit = request.commit(Vec::new(), changes);
    Ok(Some(Planned { commit, node: node.id, job: Some(job.id), effects: Vec::new() }))
}

/// The cancellation of a job, as a part of a commit that moves its node too; none: it does nothing any more.
pub(super) fn cancelled(request: &Request, job: &Job, site: &Site) -> Option<Change> {
    let asked = Asked { action: OperatorAction::Cancel, observed: None, decisions: Decisions::default() };
    let state = asked_state(request, job, &flow_for(&job.input, site), &asked).ok()??;
    Some(acted(request, job, state, asked.action))
}

/// Where an operator's action brings a job; none when it is there already.
fn asked_state(request: &Request, job: &Job, flow: &Flow, asked: &Asked) -> Result<Option<JobState>, job::Refused> {
    let op = Op {
        request_id: request.op,
        action: asked.action,
        observed: asked.observed,
        decisions: asked.decisions.clone(),
        lease_until: job.lease.as_ref().map(|lease| lease.until),
    };
    step(flow, &job.state, &Input::Op(op), request.now)
}

fn acted(request: &Request, job: &Job, state: JobState, action: OperatorAction) -> Change {
    Change::Job(Box::new(JobChange {
        after: successor(job, state, request.now),
        before: Some(job.state.status),
        cause: action.to_string(),
        stage_events: Vec::new(),
        visible: true,
    }))
}

/// The job with the settings that stand now in place of those that it was accepted with, and what the audit says of it;
/// none where nothing differs. For the actions that begin anew: what runs on keeps what it began with. spec: S5 3.7, 4.9
pub fn renewed(job: &Job, settings: MaasSettings) -> Option<(Job, Change)> {
    let mut after = job.clone();
    let (JobInput::OnboardMaas { settings: frozen, .. } | JobInput::ReimageMaas { settings: frozen }) =
        &mut after.input
    else {
        return None;
    };
    let differences = settings.differences(frozen);
    if differences.is_empty() {
        return None;
    }
    **frozen = settings;
    let note = Change::Note {
        name: "job.settings_renewed".to_owned(),
        resource: Resource::Job(job.id),
        detail: differences.join("; "),
    };
    Some((after, note))
}

/// Starts a job that waited for permits; none when it was started, or is over.
///
/// # Errors
/// Its node cannot follow.
pub fn start(request: &Request, job: &Job, node: &Node, site: &Site) -> Result<Option<Vec<Change>>, ActRefused> {
    let flow = flow_for(&job.input, site);
    let Some(state) = step(&flow, &job.state, &Input::Start, request.now)? else { return Ok(None) };
    let mut changes = Vec::new();
    if let Some(change) = follow(request, &flow, job, &state, node)? {
        changes.push(Change::Node(Box::new(change)));
    }
    changes.push(Change::Job(Box::new(JobChange {
        after: Job { started_at: Some(request.now), ..successor(job, state, request.now) },
        before: Some(job.state.status),
        cause: "started".to_owned(),
        stage_events: Vec::new(),
        visible: true,
    })));
    Ok(Some(changes))
}

pub(super) fn successor(job: &Job, state: JobState, now: Timestamp) -> Job {
    let finished_at = state.status.is_terminal().then_some(now);
    // An action on a live job fences its turn off, but the lease stays until it ends: what follows begins after it.
    let mut after = Job { finished_at, updated_at: now, generation: job.generation.next(), ..job.clone() };
    after.take_state(state);
    after
}

/// The node's moves that go with the job's, folded into one change.
fn follow(
    request: &Request,
    flow: &Flow,
    job: &Job,
    state: &JobState,
    node: &Node,
) -> Result<Option<NodeChange>, machine::Refused> {
    let mut after = node.clone();
    let mut cause = None;
    for to in node_moves(flow, &job.state, state, node.state.status) {
        let Some((event, owner)) = edge(after.state.status, to, job.kind) else { continue };
        let facts = Facts {
            reason: request.reason.clone(),
            job: Some(job.id),
            deployed: job.outputs.deployed,
            ..Facts::of(owner, request.actor.clone())
        };
        after = decide(&after, NodeEvent::Status(event), &facts, request.now)?.change.after;
        cause = Some((NodeEvent::Status(event).name(), NodeAction::Moved));
    }
    if state.status.is_terminal() && after.leave_job(job.id) {
        cause = cause.or(Some(("job_ended", NodeAction::Updated)));
    }
    Ok(cause.map(|(cause, action)| NodeChange {
        after: Node { generation: node.generation.next(), updated_at: request.now, ..after },
        before: Some(node.state),
        action,
        cause: cause.to_owned(),
        detail: request.reason.clone(),
    }))
}

/// The edge between two statuses, asked for as the job where the table lets it, else as the operator.
pub fn edge(from: Status, to: Status, kind: JobKind) -> Option<(crate::node::status::StatusEvent, Owner)> {
    let edges = || STATUS_EDGES.iter().filter(move |edge| edge.from == from && edge.to == to);
    let found = |owner: Owner| edges().find(|edge| edge.owners.contains(&owner)).map(|edge| (edge.event, owner));
    found(kind.owner()).or_else(|| found(Owner::Operator))
}
