//! What must be true once nothing goes wrong any more and time has passed; and that the store tells what the commits told.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use lattice_core::agent::task::Task;
use lattice_core::allocation::{AllocationStatus, Candidate, place};
use lattice_core::change::HistoryRow;
use lattice_core::command::conformance::JUDGE;
use lattice_core::ids::{EventSeq, NodeId};
use lattice_core::job::{Job, JobKind, JobStatus};
use lattice_core::node::{Availability, DownCause, HoldKind, Node, NodeClass, NodeState, Status};
use lattice_core::site::Governor;
use lattice_core::time::{Clock, Timestamp};
use lattice_store::{EventFilter, PAGE_MAX, PageRequest, Store, StoreError};

use super::check::{must_run, running};
use super::cloud::Cloud;
use super::ground::Ground;
use super::host::{GPUS, Host};
use super::model::Model;

/// How long something may stand without a step once everything works.
pub const STUCK: Duration = Duration::from_secs(900);

/// What does not stand still as it should, or stands still and should not.
pub fn at_rest(ground: &Ground, cloud: &Cloud) -> Vec<String> {
    let now = ground.clock.now();
    let model = ground.model();
    let hosts: BTreeMap<NodeId, Arc<Host>> =
        cloud.hosts().into_iter().filter_map(|host| Some((host.node()?, host))).collect();
    let mut wrong = Vec::new();
    wrong.extend(model.jobs.values().filter_map(|job| stuck_job(job, now)));
    for node in model.nodes.values() {
        let host = hosts.get(&node.id);
        let is_healthy = host.is_some_and(|host| host.has_agent() && !host.broken());
        wrong.extend(unused(node, is_healthy, now));
        wrong.extend(host.and_then(|host| lost_agent(node, host)));
        wrong.extend(undrained(&model, node, now));
        wrong.extend(held_for_nothing(node, now));
        if is_healthy && is_ready(node) {
            wrong.extend(idle_tasks(&model, node, now));
        }
    }
    wrong.extend(allocations(&model, &hosts, now));
    wrong.extend(strays(&model, cloud));
    wrong
}

/// What drifted is drained, as the site can spare it.
fn undrained(model: &Model, node: &Node, now: Timestamp) -> Option<String> {
    let since = node.deviates_since.filter(|since| now.since(*since) > STUCK)?;
    let is_owned = model.jobs.values().any(|job| job.node == node.id && !job.state.status.is_terminal());
    let is_due = node.effective_class() == NodeClass::Sensitive
        && node.state.status == Status::Active
        && matches!(node.state.availability, Availability::Ready | Availability::Degraded);
    if !is_due || is_owned || now.since(node.availability_since) < STUCK {
        return None;
    }
    // A drain whose job is over without it, or a wipe of another: whatever takes room is counted there.
    let taken = model.nodes.values().filter(|one| one.site == node.site && may_take_room(model, one)).count() as u64;
    let in_service = |one: &&Node| matches!(one.state.status, Status::Active | Status::Offline);
    let all = model.nodes.values().filter(|one| one.site == node.site).filter(in_service).count() as u64;
    let room = Governor::new(&model.automation, all, taken).room();
    room.is_ok()
        .then(|| format!("what drifted is drained: {} is {} and deviates since {since}", node.hostname, node.state))
}

/// What is sensitive no more, or conforms, is not held for its fingerprint.
fn held_for_nothing(node: &Node, now: Timestamp) -> Option<String> {
    let hold = node.hold(HoldKind::ConformanceDrift).filter(|hold| hold.by.name == JUDGE)?;
    let is_judged = match node.state.status {
        Status::Active | Status::Offline | Status::Quarantined | Status::Enrolling => true,
        Status::BootstrapIssued | Status::Draining | Status::Retired | Status::Removing | Status::Deleted => false,
    };
    let has_reason = node.effective_class() == NodeClass::Sensitive && node.deviates_since.is_some();
    let is_old = now.since(node.updated_at) > STUCK;
    (is_judged && !has_reason && is_old)
        .then(|| format!("a hold has a reason: {} is held for its fingerprint since {}", node.hostname, hold.since))
}

fn may_take_room(model: &Model, node: &Node) -> bool {
    let by_itself = |job: &Job| job.node == node.id && job.takes_by_itself();
    let owns = model.jobs.values().any(|job| by_itself(job) && !job.state.status.is_terminal());
    owns || (node.drain_intent && model.jobs.values().any(|job| by_itself(job) && job.kind == JobKind::Drain))
}

fn is_ready(node: &Node) -> bool {
    match node.state.availability {
        Availability::Ready | Availability::Degraded | Availability::Draining | Availability::Drained => true,
        Availability::Unknown | Availability::Booting | Availability::Down | Availability::Failed => false,
    }
}

/// A job runs, is over, or waits for an operator; it does not stand.
fn stuck_job(job: &Job, now: Timestamp) -> Option<String> {
    let stands = match job.state.status {
        JobStatus::Pending => job.batch.is_none(),
        JobStatus::Running | JobStatus::Compensating => {
            job.state.wait.is_none() || job.state.deadline.is_some_and(|at| now.since(at) > STUCK)
        }
        JobStatus::FailedRetryable | JobStatus::FailedManualIntervention => job.state.failure.is_none(),
        JobStatus::Completed | JobStatus::Cancelled | JobStatus::Reconciled => false,
    };
    let (kind, status, stage) = (job.kind, job.state.status, job.state.stage);
    let is_old = now.since(job.updated_at) > STUCK;
    (stands && is_old).then(|| {
        let since = job.updated_at;
        format!("nothing is stuck: {kind} of {} is {status} at {stage} without a word since {since}", job.hostname)
    })
}

/// A node whose host is well is not taken for lost.
fn unused(node: &Node, is_healthy: bool, now: Timestamp) -> Option<String> {
    let is_forgotten = is_healthy
        && node.state.availability == Availability::Down
        && node.down_cause == Some(DownCause::HeartbeatLost)
        && node.hold(HoldKind::Disabled).is_none();
    let is_late =
        node.state.availability == Availability::Booting && node.deadline.is_none_or(|at| now.since(at) > STUCK);
    let is_silent = is_healthy && node.state.availability == Availability::Degraded;
    (is_forgotten || is_late || is_silent)
        .then(|| format!("nodes come back: {} is {} since {}", node.hostname, node.state, node.availability_since))
}

/// An agent ends by itself only when its node is gone or its certificates were revoked.
fn lost_agent(node: &Node, host: &Host) -> Option<String> {
    let why = host.agent_ended()?;
    let is_gone = matches!(node.state.status, Status::Deleted | Status::Removing);
    // A node that was never enrolled may have had its token revoked or expired: a new one is needed.
    let was_known = node.boot_id.is_some();
    (was_known && !is_gone).then(|| format!("agents live on: that of {}, {}, ended: {why}", node.hostname, node.state))
}

fn idle_tasks(model: &Model, node: &Node, now: Timestamp) -> Vec<String> {
    let open = model.tasks.values().filter(|task| task.node == node.id && !task.status.is_final());
    // A wipe that hangs is given up by its agent at the end of its time.
    let patience =
        |task: &Task| STUCK.max(task.input.kind().term().start_within + task.input.kind().term().finish_within);
    let old = open.filter(|task| now.since(task.updated_at) > patience(task));
    old.map(|task| format!("tasks end: {} of {} is {}", task.input.kind(), node.hostname, task.status)).collect()
}

fn allocations(model: &Model, hosts: &BTreeMap<NodeId, Arc<Host>>, now: Timestamp) -> Vec<String> {
    let candidates: Vec<Candidate> =
        model.nodes.values().map(|node| Candidate { node: node.clone(), gpus: GPUS }).collect();
    let mut wrong = Vec::new();
    for one in model.allocations.values() {
        let waits = now.since(one.status_since) > Duration::from_secs(60);
        if one.status == AllocationStatus::Requested
            && waits
            && let Ok(node) = place(one, &candidates, now)
        {
            wrong.push(format!("what fits is placed: {} waits and {} is free", one.id, node.node.hostname));
        }
        let Some(node) = one.placed_on().and_then(|id| model.nodes.get(&id)) else { continue };
        let host = hosts.get(&node.id).filter(|host| host.has_agent());
        let Some(host) = host.filter(|_| is_ready(node)) else { continue };
        let runs = host.running().iter().any(|running| running.allocation == one.id);
        if must_run(one.status) && !runs && now.since(one.status_since) > STUCK {
            wrong.push(format!("what is active runs: {} does not run on {}", one.id, node.hostname));
        }
        let moves = matches!(one.status, AllocationStatus::Provisioning | AllocationStatus::Releasing);
        if moves && now.since(one.status_since) > STUCK {
            let since = one.status_since;
            wrong.push(format!("allocations move: {} on {} is {} since {since}", one.id, node.hostname, one.status));
        }
    }
    wrong
}

/// Nothing runs on a node in use that nobody placed there.
fn strays(model: &Model, cloud: &Cloud) -> Vec<String> {
    let mut wrong = Vec::new();
    for (id, running) in running(cloud) {
        let Some(node) = model.nodes.get(&id).filter(|node| is_ready(node)) else { continue };
        for one in running {
            let row = model.allocations.get(&one.allocation);
            let is_owned = row.is_some_and(|row| row.placed_on() == Some(id) && row.epoch == Some(one.ownership_epoch));
            if !is_owned {
                let status = row.map_or("unknown".to_owned(), |row| row.status.to_string());
                wrong.push(format!(
                    "nothing runs that nobody placed: {} ({status}) runs on {}",
                    one.allocation, node.hostname
                ));
            }
        }
    }
    wrong
}

/// The store says what the commits said; history, audit and outbox tell the same story.
///
/// # Errors
/// The store cannot be read.
pub async fn replayed(ground: &Ground, store: &Store) -> Result<Vec<String>, StoreError> {
    let mut wrong = Vec::new();
    let (nodes, allocations, jobs) = {
        let model = ground.model();
        (model.nodes.clone(), model.allocations.clone(), model.jobs.clone())
    };
    for (id, told) in &nodes {
        if store.node(*id).await?.as_ref() != Some(told) {
            wrong.push(format!("history equals replay: the row of {} is not what the commits made", told.hostname));
        }
        wrong.extend(history(store, told).await?);
    }
    for (id, told) in &allocations {
        if store.allocation(*id).await?.as_ref() != Some(told) {
            wrong.push(format!("history equals replay: the row of allocation {id} is not what the commits made"));
        }
    }
    for (id, told) in &jobs {
        if store.job(*id).await?.as_ref() != Some(told) {
            wrong.push(format!("history equals replay: the row of job {id} is not what the commits made"));
        }
    }
    wrong.extend(outbox(store, &nodes).await?);
    let mut export = Vec::new();
    store.audit_export(&mut export).await?;
    if let Err(broken) = lattice_store::audit_verify(export.as_slice()) {
        wrong.push(format!("the audit is whole: {broken}"));
    }
    Ok(wrong)
}

/// Each line of a node's history begins where the one before ended, and the last one ends where the node stands.
async fn history(store: &Store, node: &Node) -> Result<Vec<String>, StoreError> {
    let mut page = PageRequest::first(PAGE_MAX);
    let mut rows: Vec<HistoryRow> = Vec::new();
    loop {
        let found = store.history(node.id, &page).await?;
        rows.extend(found.items.into_iter().map(|entry| entry.row));
        match found.next {
            Some(next) => page.cursor = Some(next),
            None => break,
        }
    }
    rows.reverse();
    Ok(broken_chain(&rows, node.state)
        .map(|why| format!("history equals replay: {}: {why}", node.hostname))
        .into_iter()
        .collect())
}

/// Where a history has a gap, if it has one.
pub fn broken_chain(rows: &[HistoryRow], stands: NodeState) -> Option<String> {
    let mut state: Option<NodeState> = None;
    for row in rows {
        if row.before != state {
            return Some(format!("`{}` at {} begins elsewhere than the line before it ended", row.cause, row.at));
        }
        state = Some(row.after);
    }
    (state != Some(stands)).then(|| format!("it ends elsewhere than at {stands}"))
}

/// The outbox has no gap, and tells of every node.
async fn outbox(store: &Store, nodes: &BTreeMap<NodeId, Node>) -> Result<Vec<String>, StoreError> {
    let mut wrong = Vec::new();
    let (mut seen, mut told) = (EventSeq(0), BTreeSet::new());
    loop {
        let events = store.events(seen, &EventFilter::default(), PAGE_MAX).await?;
        let Some(last) = events.last() else { break };
        for (event, expected) in events.iter().zip(seen.0 + 1..) {
            if event.seq.0 != expected {
                wrong.push(format!("the outbox has no gap: {} comes where {expected} was due", event.seq.0));
            }
            told.extend(event.row.node);
        }
        seen = last.seq;
    }
    let untold = nodes.values().filter(|node| !told.contains(&node.id));
    wrong.extend(untold.map(|node| format!("the outbox tells all: it does not tell of {}", node.hostname)));
    Ok(wrong)
}
