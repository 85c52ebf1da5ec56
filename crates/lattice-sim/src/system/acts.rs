//! What destroys, at the moment at which it is asked for: is it a live job's to do, at a stage that does it, of a node on
//! which nothing counts any more; and has whoever asks looked just before? Unknown is not off. design: 7-tests-and-benchmarks
//!
//! Nobody is believed: the job and its stage are those of the rows that were committed, what runs is what the host runs,
//! and what was seen is what the world answered to this server.

use std::time::Duration;

use lattice_core::actor::Role;
use lattice_core::agent::task::Running;
use lattice_core::ids::{JobId, NodeId};
use lattice_core::job::{Job, JobKind, JobStatus, StageName};
use lattice_core::node::{Availability, HoldKind, Node, PowerFact, Status};
use lattice_core::time::Timestamp;

use super::check::is_owned;
use super::model::Model;

/// The name under which it is told.
pub const RULE: &str = "no destructive step without fresh evidence";

/// How old what was seen may be: no longer than a single act may take.
pub const FRESH: Duration = Duration::from_secs(120);

/// What is done to a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Deed {
    /// It is deleted.
    Delete,
    /// Its power goes.
    Off,
    /// Its power comes.
    On,
    /// One of its drives is erased, by its BMC.
    Erase,
}

/// In whose name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct For {
    /// Of which job.
    pub job: JobId,
    /// Which stage of it.
    pub stage: StageName,
    /// The stage is undone.
    pub undo: bool,
}

impl For {
    /// By the key of the effect: `flow/job/epoch/round/stage`, with `/undo` behind it for the undoing.
    pub fn of_key(key: &str) -> Option<Self> {
        let mut parts = key.split('/').skip(1);
        let job = parts.next()?.parse().ok()?;
        let stage = parts.nth(2)?.parse().ok()?;
        Some(Self { job, stage, undo: parts.next() == Some("undo") })
    }

    /// By what a BMC is told of its caller: `job ID`, and the stage.
    pub fn of_caller(who: &str, why: &str) -> Option<Self> {
        let job = who.strip_prefix("job ")?.parse().ok()?;
        Some(Self { job, stage: why.parse().ok()?, undo: false })
    }
}

/// What a server saw of a machine last.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    /// When it was answered.
    pub at: Timestamp,
    /// What.
    pub power: PowerFact,
    /// It is the end of what was asked for under this key: it proves something to that alone.
    pub key: Option<String>,
}

/// Something that is asked for.
pub struct Act<'a> {
    /// What.
    pub deed: Deed,
    /// Under which key or name.
    pub key: &'a str,
    /// In whose name; none: in nobody's.
    pub whose: Option<For>,
    /// By which server.
    pub server: &'a str,
    /// When.
    pub at: Timestamp,
    /// What the servers' clock would say, had it not been set in these minutes: no lease runs out early by that, and
    /// nothing that was seen is old.
    pub unset: Timestamp,
    /// What the server saw of the machine since it did something to it last.
    pub seen: Option<Seen>,
    /// Whose the machine is, as its creator stamped it; none: there is no such machine.
    pub stamp: Option<String>,
    /// What runs on it.
    pub running: Vec<Running>,
}

/// What may do it: the kind of job, the stage, and whether that stage is undone.
const fn may(kind: JobKind) -> &'static [(Deed, StageName, bool)] {
    const CYCLE: &[(Deed, StageName, bool)] =
        &[(Deed::Off, StageName::PowerOff, false), (Deed::On, StageName::PowerOn, false)];
    match kind {
        JobKind::Onboarding => &[
            (Deed::On, StageName::CreateLxdInstance, false),
            (Deed::On, StageName::WaitForRunning, false),
            (Deed::Off, StageName::CreateLxdInstance, true),
            (Deed::Delete, StageName::CreateLxdInstance, true),
        ],
        JobKind::Remove => {
            &[(Deed::Off, StageName::StopInstance, false), (Deed::Delete, StageName::DeleteInstance, false)]
        }
        JobKind::Reboot | JobKind::SensitiveWipe => CYCLE,
        JobKind::SecureErase => {
            &[(Deed::Off, StageName::SwitchOff, false), (Deed::Erase, StageName::EraseDrives, false)]
        }
        JobKind::Drain | JobKind::Retire | JobKind::Reimage | JobKind::BmcInvestigation => &[],
    }
}

/// What is wrong with it.
pub fn misdeeds(model: &Model, act: &Act<'_>) -> Vec<String> {
    let Some(whose) = act.whose else { return vec![format!("{:?} under {} is no job's", act.deed, act.key)] };
    let Some(job) = model.jobs.get(&whose.job) else {
        return vec![format!("{:?} is of no job that is known", act.deed)];
    };
    let Some(node) = model.nodes.get(&job.node) else {
        return vec![format!("{:?} is of no node that is known", act.deed)];
    };
    let mut wrong: Vec<String> =
        [of_job(job, whose, act), of_node(job, node, act), of_machine(model, node, act), unseen(act)]
            .into_iter()
            .flatten()
            .collect();
    // What a brake holds back is given up by an operator who has a lost node switched off.
    let is_given_up = node.state.availability == Availability::Down
        && job.requested_by.role != Role::System
        && act.deed != Deed::Erase;
    if act.deed != Deed::On && !is_given_up {
        wrong.extend(of_work(model, node, &act.running));
    }
    wrong
        .into_iter()
        .map(|why| format!("{:?} of {} by {} at {}: {why}", act.deed, node.hostname, job.kind, whose.stage))
        .collect()
}

/// It is that job's to do, now.
fn of_job(job: &Job, whose: For, act: &Act<'_>) -> Option<String> {
    if !may(job.kind).contains(&(act.deed, whose.stage, whose.undo)) {
        return Some("no such job does that there".to_owned());
    }
    let status = if whose.undo { JobStatus::Compensating } else { JobStatus::Running };
    // A start that was decided just before its job was cancelled destroys nothing, and is undone with the rest.
    let is_late_start = act.deed == Deed::On && !whose.undo && job.state.status == JobStatus::Compensating;
    let is_status = job.state.status == status || is_late_start;
    if !is_status || (!whose.undo && job.state.stage != whose.stage) {
        return Some(format!("the job is {} at {}", job.state.status, job.state.stage));
    }
    let holds =
        job.lease.as_ref().is_some_and(|lease| lease.holder == act.server && lease.until > act.at.min(act.unset));
    (!holds).then(|| format!("{} does not hold the job", act.server))
}

/// The node is where that may be done to it.
fn of_node(job: &Job, node: &Node, act: &Act<'_>) -> Option<String> {
    if node.owning_job.is_some_and(|owner| owner != job.id) {
        return Some("another job owns the node".to_owned());
    }
    if job.kind == JobKind::Remove && node.state.status != Status::Removing {
        return Some(format!("the node is {}", node.state));
    }
    let in_use = match node.state.availability {
        Availability::Ready | Availability::Degraded | Availability::Draining => job.kind != JobKind::Onboarding,
        Availability::Unknown
        | Availability::Booting
        | Availability::Down
        | Availability::Drained
        | Availability::Failed => false,
    };
    if in_use && act.deed != Deed::On {
        return Some(format!("the node is {}", node.state));
    }
    let proven = job.outputs.wipe.as_ref().is_some_and(|run| run.unproven().is_none());
    (job.kind == JobKind::SensitiveWipe && !proven).then(|| "nothing proves yet that it is erased".to_owned())
}

/// The machine was made for that node.
fn of_machine(model: &Model, node: &Node, act: &Act<'_>) -> Option<String> {
    let stamp = act.stamp.as_ref().filter(|stamp| !is_made_for(model, node, stamp))?;
    Some(format!("the machine was made for another, {stamp}"))
}

/// Whether a machine of that stamp was made by a job of that node.
pub fn is_made_for(model: &Model, node: &Node, stamp: &str) -> bool {
    let makers = stamp.split('/').filter_map(|part| part.parse::<JobId>().ok());
    makers.filter_map(|maker| model.jobs.get(&maker)).any(|maker| maker.node == node.id)
}

/// The server looked, and what it saw is new and says so.
fn unseen(act: &Act<'_>) -> Option<String> {
    let Some(seen) = act.seen.as_ref().filter(|seen| seen.key.as_deref().is_none_or(|key| key == act.key)) else {
        return Some("nobody looked since something was done to it last".to_owned());
    };
    if act.at.min(act.unset).since(seen.at) > FRESH {
        return Some(format!("what was seen is of {}", seen.at));
    }
    let wanted = match act.deed {
        Deed::Delete => return None,
        // What is unmade goes whether it runs or not.
        Deed::Off if act.whose.is_some_and(|whose| whose.undo) => return None,
        Deed::Off => PowerFact::On,
        // Nobody here has drives erased of a machine that is on.
        Deed::On | Deed::Erase => PowerFact::Off,
    };
    (seen.power != wanted).then(|| format!("its power was seen to be {:?}", seen.power))
}

/// Nothing that counts is lost by it.
fn of_work(model: &Model, node: &Node, running: &[Running]) -> Option<String> {
    if let Some(one) = model.placed_on(node.id).next() {
        return Some(format!("{} is placed there, {}", one.id, one.status));
    }
    running.iter().find(|one| is_owned(model, node.id, **one)).map(|one| format!("{} runs there", one.allocation))
}

/// What is wrong with a step of a wipe that a host begins now: the node needs none, or something runs.
pub fn miswipes(model: &Model, node: Option<NodeId>, running: &[Running]) -> Vec<String> {
    let Some(node) = node.and_then(|id| model.nodes.get(&id)) else {
        return vec!["a host that is no node is wiped".to_owned()];
    };
    let mut wrong = Vec::new();
    if node.hold(HoldKind::WipeRequired).is_none() {
        wrong.push(format!("{}, {}, is wiped and needs no wipe", node.hostname, node.state));
    }
    wrong.extend(of_work(model, node, &[]).map(|why| format!("{} is wiped: {why}", node.hostname)));
    wrong.extend(running.first().map(|one| format!("{} is wiped while {} runs", node.hostname, one.allocation)));
    wrong
}
