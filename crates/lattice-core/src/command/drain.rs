//! S1's drain, and what a drain that runs may still be asked: to be urgent, another deadline, none. Pure.

use std::time::Duration;

use super::job::successor;
use super::node::Known;
use super::{Planned, Refused, Request, allocation};
use crate::change::{Change, JobChange, Resource};
use crate::ids::JobId;
use crate::job::{Input, Job, JobInput, flow_for, step};
use crate::node::availability::{AvailabilityEvent, Effect};
use crate::node::machine::NodeEvent;
use crate::time::human;

/// How a node is drained.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Drain {
    /// What can save its state is asked to, and goes on elsewhere.
    pub urgent: bool,
    /// When what still runs is stopped.
    pub deadline: Deadline,
}

/// When what still runs on a node that is drained is stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Deadline {
    /// Nothing is said of it: never, or as a drain that runs was asked before.
    #[default]
    Unsaid,
    /// So long after now.
    After(Duration),
    /// Never: it ends in its own time.
    Never,
}

/// Shortest and longest deadline: work gets a moment to end, and a month is longer than any maintenance waits.
const DEADLINES: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(30 * 86_400)];

/// S1's drain: no new work; running work ends. What still runs at the deadline is stopped and, unless its policy is
/// `never`, queued again; sensitive work is never stopped by it.
///
/// `nonces` are for the tasks that ask work to save its state.
///
/// # Errors
/// Not ready or degraded, enrolling, being retired, or owned by another job; a deadline that makes no sense.
pub fn drain(known: &Known, request: &Request, how: Drain, nonces: &dyn Fn() -> [u8; 16]) -> Result<Planned, Refused> {
    let deadline = checked(how.deadline)?;
    let event = if how.urgent { AvailabilityEvent::DrainUrgently } else { AvailabilityEvent::Drain };
    let input = JobInput::Drain {
        urgent: how.urgent,
        deadline_ms: deadline.map(millis),
        allocations: u32::try_from(known.placed.len()).unwrap_or(u32::MAX),
    };
    let mut planned = known.with_job(request, NodeEvent::Availability(event), input)?;
    if let Some(job) = planned.job.filter(|_| planned.effects.contains(&Effect::RequestCheckpoint)) {
        planned.commit.changes.extend(checkpoints(known, request, job, nonces)?);
    }
    Ok(planned)
}

/// What a second drain of a node comes to, while the first one runs.
#[derive(Debug, Clone, PartialEq)]
pub enum Redrain {
    /// It runs so already.
    AlreadySo(JobId),
    /// This commit changes it.
    Changed(Box<Changed>),
}

/// A drain that runs on in another way.
#[derive(Debug, Clone, PartialEq)]
pub struct Changed {
    /// The commit.
    pub planned: Planned,
    /// How it runs from now on.
    pub how: Drain,
    /// What is other than before, for people.
    pub words: Vec<String>,
}

/// Changes a drain that runs: to urgent, or to another deadline, counted from now. None: no drain of this node runs, or
/// nothing is asked of it; [`drain`] has the answer then.
///
/// Urgency is never taken back: what was asked to save its state goes on elsewhere.
///
/// # Errors
/// A deadline that makes no sense.
pub fn redrain(
    known: &Known,
    request: &Request,
    how: Drain,
    nonces: &dyn Fn() -> [u8; 16],
) -> Result<Option<Redrain>, Refused> {
    let is_plain = !how.urgent && how.deadline == Deadline::Unsaid;
    let Some(job) = known.job.filter(|_| !is_plain) else { return Ok(None) };
    let JobInput::Drain { urgent, deadline_ms, allocations } = job.input else { return Ok(None) };
    let deadline = checked(how.deadline)?;
    let wanted = JobInput::Drain {
        urgent: urgent || how.urgent,
        deadline_ms: match how.deadline {
            Deadline::Unsaid => deadline_ms,
            Deadline::Never | Deadline::After(_) => {
                deadline.map(|after| millis(request.now.since(job.created_at) + after))
            }
        },
        allocations,
    };
    let lease_until = job.lease.as_ref().map(|lease| lease.until);
    let amended = step(&flow_for(&wanted, known.site), &job.state, &Input::Amended { lease_until }, request.now);
    // It failed, or is being taken back: that is for `undrain`, or for an operator's action on the job.
    let Ok(Some(state)) = amended else { return Ok(None) };
    if wanted == job.input {
        return Ok(Some(Redrain::AlreadySo(job.id)));
    }
    let after = Job { input: wanted, ..successor(job, state, request.now) };
    let raised = how.urgent && !urgent;
    let left = after.drain_deadline().map(|at| at.since(request.now));
    let words = in_words(raised, (how.deadline != Deadline::Unsaid).then_some(left));
    let now_so = Drain { urgent: urgent || how.urgent, deadline: left.map_or(Deadline::Never, Deadline::After) };
    let planned = changed(known, request, (job, after), &words, raised.then_some(nonces))?;
    Ok(Some(Redrain::Changed(Box::new(Changed { planned, how: now_so, words }))))
}

fn changed(
    known: &Known,
    request: &Request,
    (job, after): (&Job, Job),
    words: &[String],
    raised: Option<&dyn Fn() -> [u8; 16]>,
) -> Result<Planned, Refused> {
    let node = known.node.id;
    let mut changes = vec![
        Change::Job(Box::new(JobChange {
            after,
            before: Some(job.state.status),
            cause: "drain_changed".to_owned(),
            stage_events: Vec::new(),
            visible: true,
        })),
        Change::Note {
            name: "node.drain_changed".to_owned(),
            resource: Resource::Node(node),
            detail: words.join("; "),
        },
    ];
    if let Some(nonces) = raised {
        changes.extend(checkpoints(known, request, job.id, nonces)?);
    }
    let effects = if raised.is_some() { vec![Effect::RequestCheckpoint] } else { Vec::new() };
    Ok(Planned { commit: request.commit(Vec::new(), changes), node, job: Some(job.id), effects })
}

fn in_words(raised: bool, deadline: Option<Option<Duration>>) -> Vec<String> {
    let urgent = raised.then(|| "the drain is urgent from now on".to_owned());
    let deadline = deadline.map(|left| match left {
        Some(left) => format!("what still runs in {} is stopped", human(left)),
        None => "nothing is stopped: what runs ends in its own time".to_owned(),
    });
    urgent.into_iter().chain(deadline).collect()
}

/// The tasks that ask what can save its state to do it, once for each drain.
fn checkpoints(
    known: &Known,
    request: &Request,
    drain: JobId,
    nonces: &dyn Fn() -> [u8; 16],
) -> Result<Vec<Change>, Refused> {
    let ask = |one| allocation::checkpoint(request, one, known.node, (drain, nonces())).transpose();
    known.placed.iter().filter_map(ask).collect()
}

fn checked(deadline: Deadline) -> Result<Option<Duration>, Refused> {
    let Deadline::After(after) = deadline else { return Ok(None) };
    let [shortest, longest] = DEADLINES;
    if (shortest..=longest).contains(&after) {
        return Ok(Some(after));
    }
    let problem = format!("must be {} to {}", human(shortest), human(longest));
    Err(Refused::Invalid { field: "deadline_ms", problem })
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
