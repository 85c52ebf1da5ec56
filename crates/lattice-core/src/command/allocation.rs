//! Allocations: asking, placing, starting, ending, losing, queueing again. Pure decisions.
//!
//! Whoever places, ends or loses an allocation changes its node's row in the same commit: the generation of that row
//! keeps them apart.

use std::time::Duration;

use super::task::{self, NewTask};
use super::{Refused, Request};
use crate::agent::task::{
    AllocationCheckpoint, AllocationStop, CheckpointResult, Progress, Task, TaskErrorCode, TaskInput, TaskOutput,
    TaskOwner, TaskStatus,
};
use crate::allocation::{
    Allocation, AllocationCause, AllocationChange, AllocationEvent, AllocationStatus, RequeuePolicy, Retry, Wanted,
    Workload,
};
use crate::change::{Change, Commit, NodeAction, NodeChange};
use crate::ids::{AllocationId, Generation, JobId, OwnershipEpoch};
use crate::node::availability::Effect;
use crate::node::machine::Moved;
use crate::node::{Node, NodeClass};
use crate::time::human;

/// Time between SIGTERM and SIGKILL of an allocation that is released, in milliseconds.
const GRACE_MS: u64 = 30_000;
/// How long an allocation may take to save its state.
const CHECKPOINT: Duration = Duration::from_secs(300);
/// Longest name of a user.
const LONGEST_USER: usize = 128;

/// Work as a user asks for it.
#[derive(Debug, Clone)]
pub struct NewAllocation {
    /// Whose.
    pub user: String,
    /// Class of the claim.
    pub class: NodeClass,
    /// Where it may go.
    pub wanted: Wanted,
    /// What is started.
    pub workload: Workload,
    /// When it is queued again.
    pub requeue: RequeuePolicy,
}

/// Takes a request: it waits for a node from now on.
///
/// # Errors
/// The user's name or the workload cannot be right.
pub fn request(request: &Request, new: NewAllocation) -> Result<(Allocation, Commit), Refused> {
    let user = new.user.trim();
    if user.is_empty() || user.len() > LONGEST_USER || user.chars().any(char::is_control) {
        let problem = format!("must be 1 to {LONGEST_USER} bytes of printable text");
        return Err(Refused::Invalid { field: "user", problem });
    }
    let id = AllocationId::generate(request.ids, request.now);
    let start = TaskInput::AllocationStart(new.workload.start(id, OwnershipEpoch(0)));
    for input in [start, checkpoint_of(id, OwnershipEpoch(0), &new.workload)] {
        input.check().map_err(|invalid| Refused::Invalid { field: invalid.field, problem: invalid.problem })?;
    }
    let allocation = Allocation {
        id,
        user: user.to_owned(),
        class: new.class,
        wanted: new.wanted,
        workload: new.workload,
        requeue: new.requeue,
        status: AllocationStatus::Requested,
        status_since: request.now,
        why: "a node".to_owned(),
        node: None,
        epoch: None,
        saved: false,
        evicted: false,
        retry: None,
        placements: 0,
        requested_by: request.actor.clone(),
        requested_at: request.now,
        correlation: request.correlation,
        updated_at: request.now,
        generation: Generation::FIRST,
    };
    let change = AllocationChange { after: allocation.clone(), before: None, cause: AllocationCause::Requested };
    Ok((allocation, request.commit(Vec::new(), vec![Change::Allocation(Box::new(change))])))
}

/// Puts it on a node, and asks that node's agent to start it: one commit.
///
/// # Errors
/// It is not waiting, or the task cannot be issued.
pub fn place(request: &Request, allocation: &Allocation, node: &Node, nonce: [u8; 16]) -> Result<Commit, Refused> {
    let mut after = moved(request, allocation, AllocationEvent::Place)?;
    after.node = Some(node.id);
    after.epoch = Some(node.ownership.epoch);
    after.placements += 1;
    after.why = format!("the agent of {} to start it", node.hostname);
    let input = TaskInput::AllocationStart(after.workload.start(after.id, node.ownership.epoch));
    let key = format!("allocation/{}/p{}/start", after.id, after.placements);
    let task = issued(request, node, &after, key, input, nonce)?;
    let owned = node.ownership.with(&after.user, after.class, after.wanted.gpus);
    let node = owns(request, node, owned, "allocated", &after);
    Ok(request.commit(Vec::new(), vec![changed(allocation, after, AllocationCause::Placed), node, task]))
}

/// Notes what it waits for, if that is another thing than before.
pub fn waits(request: &Request, allocation: &Allocation, why: &str) -> Option<Commit> {
    if allocation.why == why {
        return None;
    }
    let after = Allocation { why: why.to_owned(), ..allocation.successor(request.now) };
    Some(request.commit(Vec::new(), vec![changed(allocation, after, AllocationCause::Waiting)]))
}

/// Ends it: at once when it has no node, else through its agent. One that is being ended to go on elsewhere ends for good.
/// None: it is being ended already.
///
/// # Errors
/// It is over.
pub fn release(
    request: &Request,
    allocation: &Allocation,
    node: Option<&Node>,
    nonce: [u8; 16],
) -> Result<Option<Commit>, Refused> {
    if allocation.status == AllocationStatus::Releasing {
        if !allocation.saved && !allocation.evicted {
            return Ok(None);
        }
        let why = said(request, "released while its node is drained");
        let after = Allocation { saved: false, evicted: false, why, ..allocation.successor(request.now) };
        return Ok(Some(request.commit(Vec::new(), vec![changed(allocation, after, AllocationCause::Waiting)])));
    }
    let mut after = moved(request, allocation, AllocationEvent::Release)?;
    let (Some(node), AllocationStatus::Releasing) = (node, after.status) else {
        after.why = said(request, "released before it had a node");
        return Ok(Some(request.commit(Vec::new(), vec![changed(allocation, after, AllocationCause::Released)])));
    };
    after.why = format!("the agent of {} to end it", node.hostname);
    let stop = stop_task(request, &after, node, nonce)?;
    Ok(Some(request.commit(Vec::new(), vec![changed(allocation, after, AllocationCause::Releasing), stop])))
}

/// Asks once more for the end of an allocation whose agent could not, or did not, end it.
///
/// # Errors
/// It is not being ended, or the task cannot be issued.
pub fn stop_again(request: &Request, allocation: &Allocation, node: &Node, nonce: [u8; 16]) -> Result<Commit, Refused> {
    match allocation.status {
        // Of one that is being started, when nobody knows whether it runs.
        AllocationStatus::Releasing | AllocationStatus::Provisioning => {}
        AllocationStatus::Requested
        | AllocationStatus::Active
        | AllocationStatus::Released
        | AllocationStatus::Failed => return Err(over(allocation, AllocationEvent::Stopped)),
    }
    let after = allocation.successor(request.now);
    let stop = stop_task(request, &after, node, nonce)?;
    Ok(request.commit(Vec::new(), vec![changed(allocation, after, AllocationCause::Waiting), stop]))
}

/// Queues one that failed again.
///
/// # Errors
/// It did not fail.
pub fn requeue(request: &Request, allocation: &Allocation) -> Result<Commit, Refused> {
    let after = queued(request, moved(request, allocation, AllocationEvent::Requeue)?, &said(request, "queued again"));
    Ok(request.commit(Vec::new(), vec![changed(allocation, after, AllocationCause::Requeued)]))
}

/// Asks it to save its state, because its node is drained urgently; once for each drain. None: it cannot.
///
/// # Errors
/// The task cannot be issued.
pub fn checkpoint(
    request: &Request,
    allocation: &Allocation,
    node: &Node,
    (drain, nonce): (JobId, [u8; 16]),
) -> Result<Option<Change>, Refused> {
    let (true, AllocationStatus::Active, Some(epoch)) =
        (allocation.is_checkpointable(), allocation.status, allocation.epoch)
    else {
        return Ok(None);
    };
    let input = checkpoint_of(allocation.id, epoch, &allocation.workload);
    let key = format!("allocation/{}/p{}/checkpoint/{drain}", allocation.id, allocation.placements);
    issued(request, node, allocation, key, input, nonce).map(Some)
}

/// Stops it because its node is drained past its deadline: it goes on elsewhere unless its policy is `never`. None: it is
/// being ended already, or it is sensitive, and only its user or an operator ends it.
///
/// # Errors
/// The task cannot be issued.
pub fn evict(
    request: &Request,
    allocation: &Allocation,
    node: &Node,
    nonce: [u8; 16],
) -> Result<Option<[Change; 2]>, Refused> {
    if !is_evictable(allocation, node) {
        return Ok(None);
    }
    let mut after = moved(request, allocation, AllocationEvent::Release)?;
    after.evicted = true;
    after.why = format!("the agent of {} to end it: its node is drained past its deadline", node.hostname);
    let stop = stop_task(request, &after, node, nonce)?;
    Ok(Some([changed(allocation, after, AllocationCause::Releasing), stop]))
}

/// Whether a drain's deadline stops it: it runs, and is not sensitive.
pub fn is_evictable(allocation: &Allocation, node: &Node) -> bool {
    let runs = matches!(allocation.status, AllocationStatus::Active | AllocationStatus::Provisioning);
    runs && NodeClass::Sensitive != allocation.class.max(node.effective_class())
}

/// Whether an evicted allocation is queued again.
fn goes_on(allocation: &Allocation) -> bool {
    allocation.evicted
        && match allocation.requeue {
            RequeuePolicy::Never => false,
            RequeuePolicy::OnNodeFailure | RequeuePolicy::Always => true,
        }
}

/// Whether a task is of the allocation's present placement: one of an earlier placement, be it on the same node and under
/// the same ownership, means nothing any more.
pub fn is_of_placement(allocation: &Allocation, task: &Task) -> bool {
    allocation.placed_on() == Some(task.node) && task.key.starts_with(&placement_key(allocation))
}

/// What the keys of its latest placement's tasks begin with. Not their time: clocks of servers are set back.
pub fn placement_key(allocation: &Allocation) -> String {
    format!("allocation/{}/p{}/", allocation.id, allocation.placements)
}

/// Whether a task that starts or saves an allocation may still be handed over: it is of the present placement of one of
/// those that are `placed` on its node, and nobody asked for its end. All others may always be.
///
/// An agent that is handed an end and a start made in the same moment may do the end first.
pub fn is_current(task: &Task, placed: &[Allocation]) -> bool {
    let TaskOwner::Allocation { .. } = task.owner else { return true };
    match &task.input {
        TaskInput::AllocationStart(_) | TaskInput::AllocationCheckpoint(_) => {
            placed.iter().any(|one| one.status != AllocationStatus::Releasing && is_of_placement(one, task))
        }
        TaskInput::AllocationStop(_)
        | TaskInput::NodeDrain(_)
        | TaskInput::GpuScrub(_)
        | TaskInput::NvmeErase(_)
        | TaskInput::RamScrub(_)
        | TaskInput::HeartbeatCheck(_)
        | TaskInput::NodeReboot(_) => true,
    }
}

/// What the ends of its tasks mean for an allocation; `tasks` are the newest about it, the newest first. None: nothing.
///
/// `node` is the allocation's node.
pub fn settle(
    request: &Request,
    allocation: &Allocation,
    node: &Node,
    tasks: &[Task],
    nonce: [u8; 16],
) -> Option<Commit> {
    let present = || tasks.iter().filter(|task| task.node == node.id && is_of_placement(allocation, task));
    let is_stopped = present().any(|task| matches!(task.input, TaskInput::AllocationStop(_)));
    let mut ended = present().filter(|task| task.status.is_final());
    ended.find_map(|task| settle_one(request, allocation, node, (task, is_stopped), nonce))
}

fn settle_one(
    request: &Request,
    allocation: &Allocation,
    node: &Node,
    (task, is_stopped): (&Task, bool),
    nonce: [u8; 16],
) -> Option<Commit> {
    match &task.input {
        TaskInput::AllocationStart(_) if may_run(task) => {
            if is_stopped || allocation.status != AllocationStatus::Provisioning {
                return None;
            }
            let why = format!("the agent of {} to end it: nobody knows whether it was started", node.hostname);
            let after = Allocation { why, ..allocation.successor(request.now) };
            let stop = stop_task(request, &after, node, nonce).ok()?;
            Some(request.commit(Vec::new(), vec![changed(allocation, after, AllocationCause::Waiting), stop]))
        }
        TaskInput::AllocationStart(_) => settle_start(request, allocation, node, task),
        TaskInput::AllocationStop(_)
            if task.status == TaskStatus::Succeeded && allocation.status == AllocationStatus::Provisioning =>
        {
            not_started(request, allocation, node, "its agent did not say so in time")
        }
        TaskInput::AllocationStop(_) if task.status == TaskStatus::Succeeded => {
            let after = moved(request, allocation, AllocationEvent::Stopped).ok()?;
            let after = if allocation.saved {
                queued(request, after, &format!("a node: it saved its state when {} was drained", node.hostname))
            } else if goes_on(allocation) {
                queued(request, after, &format!("a node: {} was drained past its deadline", node.hostname))
            } else {
                ended_after(after)
            };
            Some(leaves(request, allocation, node, after))
        }
        TaskInput::AllocationCheckpoint(_) => match task.report.as_ref().map(|report| &report.progress) {
            Some(Progress::Succeeded { output: TaskOutput::Checkpoint { result: CheckpointResult::Done } }) => {
                let mut after = moved(request, allocation, AllocationEvent::Checkpointed).ok()?;
                after.saved = true;
                after.why = format!("the agent of {} to end it: its state is saved", node.hostname);
                let stop = stop_task(request, &after, node, nonce).ok()?;
                let changes = vec![changed(allocation, after, AllocationCause::Releasing), stop];
                Some(request.commit(Vec::new(), changes))
            }
            Some(_) | None => None,
        },
        TaskInput::AllocationStop(_)
        | TaskInput::NodeDrain(_)
        | TaskInput::GpuScrub(_)
        | TaskInput::NvmeErase(_)
        | TaskInput::RamScrub(_)
        | TaskInput::HeartbeatCheck(_)
        | TaskInput::NodeReboot(_) => None,
    }
}

/// Whether a start that did not succeed may have taken effect all the same: its agent has it and said nothing in time, or
/// was cut off in the middle. Nothing may be placed elsewhere before that is known: it would run twice.
fn may_run(task: &Task) -> bool {
    let code = task.report.as_ref().and_then(|report| match &report.progress {
        Progress::Failed { code, .. } => Some(*code),
        Progress::Running | Progress::Succeeded { .. } => None,
    });
    match task.status {
        TaskStatus::Expired => task.delivered_at.is_some(),
        TaskStatus::Failed => code == Some(TaskErrorCode::TimedOut),
        TaskStatus::Pending
        | TaskStatus::Delivered
        | TaskStatus::Running
        | TaskStatus::Succeeded
        | TaskStatus::Cancelled => false,
    }
}

fn settle_start(request: &Request, allocation: &Allocation, node: &Node, task: &Task) -> Option<Commit> {
    if task.status == TaskStatus::Succeeded {
        let mut after = moved(request, allocation, AllocationEvent::Started).ok()?;
        after.why = format!("runs on {}", node.hostname);
        after.retry = None;
        return Some(request.commit(Vec::new(), vec![changed(allocation, after, AllocationCause::Active)]));
    }
    let said = match task.report.as_ref().map(|report| &report.progress) {
        Some(Progress::Failed { code, detail, .. }) => format!("{code}: {detail}"),
        Some(Progress::Running | Progress::Succeeded { .. }) | None => format!("its task is {}", task.status),
    };
    not_started(request, allocation, node, &said)
}

fn not_started(request: &Request, allocation: &Allocation, node: &Node, said: &str) -> Option<Commit> {
    let mut after = moved(request, allocation, AllocationEvent::StartFailed).ok()?;
    after.why = format!("{} did not start it: {said}", node.hostname);
    if allocation.requeue == RequeuePolicy::Always {
        let retry = Retry::after(allocation.retry, node.id);
        let nth = match retry.failures {
            1 => String::new(),
            times => format!(", {times} times in a row"),
        };
        let why = format!("its next try, {} after {}{nth}", human(retry.pause()), after.why);
        after = Allocation { retry: Some(retry), ..queued(request, after, &why) };
    }
    Some(leaves(request, allocation, node, after))
}

/// It ended by itself: its agent says that it does not run.
///
/// # Errors
/// It is not active.
pub fn ended(request: &Request, allocation: &Allocation, node: &Node) -> Result<Commit, Refused> {
    let mut after = moved(request, allocation, AllocationEvent::Ended)?;
    after.why = format!("ended by itself on {}", node.hostname);
    Ok(leaves(request, allocation, node, after))
}

/// What the loss of a node does to what is placed on it, beside the change of the node that ends its ownership.
///
/// `class` is the claim that was lost: a sensitive allocation is never queued again by itself.
pub fn lost(request: &Request, node: &Node, class: NodeClass, placed: &[Allocation]) -> Vec<Change> {
    let mut changes = Vec::with_capacity(placed.len());
    for allocation in placed.iter().filter(|allocation| allocation.placed_on() == Some(node.id)) {
        let Ok(mut after) = moved(request, allocation, AllocationEvent::NodeLost) else { continue };
        after.why = format!("{} was lost", node.hostname);
        let again = match allocation.requeue {
            RequeuePolicy::Never => false,
            RequeuePolicy::OnNodeFailure | RequeuePolicy::Always => {
                after.status == AllocationStatus::Failed || allocation.saved || allocation.evicted
            }
        };
        let is_sensitive = NodeClass::Sensitive == class.max(allocation.class);
        if again && is_sensitive {
            after.why = format!("{} was lost; sensitive work waits for an operator", node.hostname);
        } else if again {
            let why = format!("a node: {} was lost", node.hostname);
            after = queued(request, after, &why);
        }
        let cause = cause_of(after.status);
        changes.push(changed(allocation, after, cause));
    }
    changes
}

/// What a transition of a node does to what is placed on it: all of it is lost when the transition ends the ownership.
/// While the brake holds that back, nothing. Belongs into the commit of the transition.
pub fn follow(request: &Request, node: &Node, moved: &Moved, placed: &[Allocation]) -> Vec<Change> {
    let ends = moved.effects.contains(&Effect::EvaluateRequeue) && moved.change.after.ownership.allocations == 0;
    if ends { lost(request, node, node.effective_class(), placed) } else { Vec::new() }
}

/// The brake lets go of a node that is still down: its ownership ends, and what was placed on it is judged. None: it is
/// not braked.
pub fn let_go(request: &Request, node: &Node, placed: &[Allocation]) -> Option<Commit> {
    node.ownership.braked_until?;
    Some(loses(request, node, placed, ("brake_released", said(request, "what it ran counts as lost"))))
}

/// Whether what is placed on the node ended with its last boot: its host booted anew, and nobody had said that it was lost.
pub fn is_lost_by_boot(node: &Node, boot_id: &str) -> bool {
    node.ownership.allocations > 0 && node.boot_id.as_deref().is_some_and(|known| known != boot_id)
}

/// Under which ownership an agent registers that says so: one that this node was not under yet, so that no word of an
/// earlier boot, which comes late or again, is believed.
pub const fn epoch_after_boot(node: &Node) -> OwnershipEpoch {
    OwnershipEpoch(node.ownership.epoch.0 + 1)
}

/// What ran before the host booted anew is judged as if the node had been lost ([`is_lost_by_boot`]).
pub fn lost_by_boot(request: &Request, node: &Node, placed: &[Allocation]) -> Commit {
    loses(request, node, placed, ("host_rebooted", "the host booted anew: what it ran counts as lost".to_owned()))
}

fn loses(request: &Request, node: &Node, placed: &[Allocation], (cause, detail): (&str, String)) -> Commit {
    let mut changes = lost(request, node, node.effective_class(), placed);
    let mut after = node.successor(request.now);
    after.set_ownership(node.ownership.lost(), &request.actor, request.now);
    changes.push(Change::Node(Box::new(NodeChange {
        after,
        before: Some(node.state),
        action: NodeAction::Updated,
        cause: cause.to_owned(),
        detail,
    })));
    request.commit(Vec::new(), changes)
}

/// The change of an allocation that leaves its node, with that node's change.
fn leaves(request: &Request, allocation: &Allocation, node: &Node, after: Allocation) -> Commit {
    let owned = node.ownership.without(allocation.wanted.gpus);
    let node = owns(request, node, owned, "allocation_ended", &after);
    let cause = cause_of(after.status);
    request.commit(Vec::new(), vec![changed(allocation, after, cause), node])
}

fn cause_of(status: AllocationStatus) -> AllocationCause {
    match status {
        AllocationStatus::Requested => AllocationCause::Requeued,
        AllocationStatus::Provisioning => AllocationCause::Placed,
        AllocationStatus::Active => AllocationCause::Active,
        AllocationStatus::Releasing => AllocationCause::Releasing,
        AllocationStatus::Released => AllocationCause::Released,
        AllocationStatus::Failed => AllocationCause::Failed,
    }
}

fn over(allocation: &Allocation, asked: AllocationEvent) -> Refused {
    Refused::AllocationOver { allocation: allocation.id, status: allocation.status, asked }
}

fn moved(request: &Request, allocation: &Allocation, event: AllocationEvent) -> Result<Allocation, Refused> {
    let status = allocation.status.next(event).ok_or_else(|| over(allocation, event))?;
    Ok(Allocation { status, status_since: request.now, ..allocation.successor(request.now) })
}

fn queued(request: &Request, after: Allocation, why: &str) -> Allocation {
    let status = AllocationStatus::Requested;
    let why = why.to_owned();
    let (saved, evicted) = (false, false);
    let status_since = request.now;
    Allocation { status, status_since, node: None, epoch: None, saved, evicted, why, retry: None, ..after }
}

fn ended_after(after: Allocation) -> Allocation {
    Allocation { why: "ended, as it was asked to".to_owned(), ..after }
}

fn changed(before: &Allocation, after: Allocation, cause: AllocationCause) -> Change {
    Change::Allocation(Box::new(AllocationChange { after, before: Some(before.status), cause }))
}

fn said(request: &Request, what: &str) -> String {
    match request.reason.is_empty() {
        true => format!("{what} by {}", request.actor.name),
        false => format!("{what} by {}: {}", request.actor.name, request.reason),
    }
}

fn owns(
    request: &Request,
    node: &Node,
    ownership: crate::allocation::Ownership,
    cause: &str,
    allocation: &Allocation,
) -> Change {
    let mut after = node.successor(request.now);
    after.set_ownership(ownership, &request.actor, request.now);
    Change::Node(Box::new(NodeChange {
        after,
        before: Some(node.state),
        action: NodeAction::Updated,
        cause: cause.to_owned(),
        detail: format!("allocation {} of {}", allocation.id, allocation.user),
    }))
}

fn checkpoint_of(allocation: AllocationId, ownership_epoch: OwnershipEpoch, workload: &Workload) -> TaskInput {
    TaskInput::AllocationCheckpoint(AllocationCheckpoint {
        allocation,
        ownership_epoch,
        how: workload.checkpoint.clone(),
        timeout_ms: u64::try_from(CHECKPOINT.as_millis()).unwrap_or(u64::MAX),
    })
}

fn stop_task(request: &Request, after: &Allocation, node: &Node, nonce: [u8; 16]) -> Result<Change, Refused> {
    let input = TaskInput::AllocationStop(AllocationStop {
        allocation: after.id,
        ownership_epoch: after.epoch.unwrap_or_default(),
        grace_ms: GRACE_MS,
    });
    let key = format!("allocation/{}/p{}/stop/g{}", after.id, after.placements, after.generation.0);
    issued(request, node, after, key, input, nonce)
}

fn issued(
    request: &Request,
    node: &Node,
    allocation: &Allocation,
    key: String,
    input: TaskInput,
    nonce: [u8; 16],
) -> Result<Change, Refused> {
    let owner = TaskOwner::Allocation { allocation: allocation.id };
    let (task, _) = task::issue(request, NewTask { node, owner, key, input, term: None }, nonce)?;
    Ok(task.created())
}
