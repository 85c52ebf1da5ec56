//! What every commit must leave true. spec: S1, S2; design: 2-state-model
//!
//! Each rule looks at one commit as it changed the rows, and at the rows after it; it says what is wrong.

use lattice_core::actor::Role;
use lattice_core::agent::task::{TaskKind, TaskStatus};
use lattice_core::allocation::{Allocation, AllocationStatus};
use lattice_core::command::conformance::JUDGE;
use lattice_core::command::remedy::REMEDIATOR;
use lattice_core::heartbeat::brake::{self, Silences};
use lattice_core::job::{Job, JobKind};
use lattice_core::node::{Availability, DownCause, HoldKind, Node, NodeClass, Status};
use lattice_core::site::Governor;
use lattice_core::time::Timestamp;

use super::host::GPUS;
use super::model::{Model, Moved};

/// A rule.
pub struct Rule {
    /// What it says.
    pub name: &'static str,
    /// What is wrong, if anything is.
    pub judge: fn(&Model, &Moved<'_>) -> Vec<String>,
}

const fn rule(name: &'static str, judge: fn(&Model, &Moved<'_>) -> Vec<String>) -> Rule {
    Rule { name, judge }
}

/// All of them.
pub const RULES: &[Rule] = &[
    rule("no forbidden pair", allowed_pairs),
    rule("rows change one generation at a time", generations),
    rule("nothing is placed on a node that must not be used", placements),
    rule("a node owns what is placed on it", ownership),
    rule("epochs never fall, and a lost ownership ends its epoch", epochs),
    rule("no draining or removing without a job", owned_work),
    rule("a drain intent survives all but an undrain", drain_intents),
    rule("sensitive work leaves a wipe behind", wipes_asked),
    rule("only a wipe ends the need of one", wipes_done),
    rule("the brake holds what silence does", brakes_hold),
    rule("a mass failure is braked", mass_failures),
    rule("a disabled node stays down", disabled_stay),
    rule("sensitive work is never queued again by itself", sensitive_requeues),
    rule("what is deleted stays deleted", deleted_stay),
    rule("what drifted gets nothing sensitive", drift_holds),
    rule("Lattice itself takes no more than the site can spare", governed),
    rule("Lattice itself reboots only what fell silent alone", remedies),
];

fn allowed_pairs(_: &Model, moved: &Moved<'_>) -> Vec<String> {
    let forbidden = moved.nodes.iter().filter(|(_, after)| !after.state.is_allowed());
    forbidden.map(|(_, after)| format!("{} is {}", after.hostname, after.state)).collect()
}

fn generations(_: &Model, moved: &Moved<'_>) -> Vec<String> {
    let nodes = moved
        .nodes
        .iter()
        .map(|(before, after)| (before.as_ref().map(|row| row.generation), after.generation, after.hostname.clone()));
    let allocations = moved
        .allocations
        .iter()
        .map(|(before, after)| (before.as_ref().map(|row| row.generation), after.generation, after.id.to_string()));
    let jobs = moved
        .jobs
        .iter()
        .map(|(before, after)| (before.as_ref().map(|row| row.generation), after.generation, after.id.to_string()));
    let wrong = nodes.chain(allocations).chain(jobs).filter(|(before, after, _)| match before {
        Some(before) => before.next() != *after,
        None => *after != lattice_core::ids::Generation::FIRST,
    });
    wrong.map(|(before, after, what)| format!("{what} went from {before:?} to {after:?}")).collect()
}

fn placements(model: &Model, moved: &Moved<'_>) -> Vec<String> {
    let mut wrong = Vec::new();
    for (before, after) in &moved.allocations {
        let was_placed = before.as_ref().is_some_and(|one| one.placed_on().is_some());
        let (Some(node), false) = (after.placed_on(), was_placed) else { continue };
        // As it stood when it was chosen: its row changes in the same commit.
        let Some((Some(node), _)) = moved.nodes.iter().find(|(_, row)| row.id == node) else {
            wrong.push(format!("{} is placed without a change of its node", after.id));
            continue;
        };
        wrong.extend(misfit(after, node, moved.commit.at).map(|why| {
            format!("{} of {} is placed on {}, {}: {why}", after.id, after.user, node.hostname, node.state)
        }));
        let gpus: u32 = model.placed_on(node.id).map(|one| one.wanted.gpus).sum();
        if gpus > GPUS {
            wrong.push(format!("{gpus} GPUs of {GPUS} are given away on {}", node.hostname));
        }
    }
    wrong
}

fn misfit(one: &Allocation, node: &Node, at: Timestamp) -> Option<String> {
    if (node.state.status, node.state.availability) != (Status::Active, Availability::Ready) {
        return Some("it is not active and ready".to_owned());
    }
    if let Some(hold) = node.holds.iter().find(|hold| hold.until.is_none_or(|until| at < until)) {
        return Some(format!("it has the hold {}", hold.kind));
    }
    if one.wanted.node.is_some_and(|named| named != node.id) {
        return Some("another node was named".to_owned());
    }
    let is_sensitive = NodeClass::Sensitive == one.class.max(node.class);
    if is_sensitive && node.deviates_since.is_some() {
        return Some("its fingerprint is not approved".to_owned());
    }
    let owner = node.ownership.owner.as_deref();
    let shares = owner == Some(one.user.as_str()) && node.ownership.class == Some(one.class);
    (owner.is_some() && !shares).then(|| "it belongs to another user or class".to_owned())
}

fn ownership(model: &Model, moved: &Moved<'_>) -> Vec<String> {
    let mut touched: Vec<_> = moved.nodes.iter().map(|(_, after)| after.id).collect();
    let of_allocations = moved.allocations.iter().flat_map(|(before, after)| {
        [before.as_ref().and_then(Allocation::placed_on), after.placed_on()].into_iter().flatten()
    });
    touched.extend(of_allocations);
    touched.sort_unstable();
    touched.dedup();
    let mut wrong = Vec::new();
    for node in touched.iter().filter_map(|id| model.nodes.get(id)) {
        let placed: Vec<&Allocation> = model.placed_on(node.id).collect();
        let owned = &node.ownership;
        let gpus: u32 = placed.iter().map(|one| one.wanted.gpus).sum();
        if owned.allocations as usize != placed.len() || owned.gpus != gpus {
            let (count, has) = (placed.len(), owned.allocations);
            wrong.push(format!("{} counts {has} allocations, {count} are placed on it", node.hostname));
        }
        let strangers = placed.iter().filter(|one| Some(one.user.as_str()) != owned.owner.as_deref());
        wrong.extend(strangers.map(|one| format!("{} is {}'s, on {} of another", one.id, one.user, node.hostname)));
        let stale = placed.iter().filter(|one| one.epoch != Some(owned.epoch));
        wrong.extend(stale.map(|one| format!("{} has another epoch than {}", one.id, node.hostname)));
    }
    wrong
}

fn epochs(_: &Model, moved: &Moved<'_>) -> Vec<String> {
    let mut wrong = Vec::new();
    for (before, after) in moved.nodes.iter().filter_map(|(before, after)| Some((before.as_ref()?, after))) {
        if after.ownership.epoch < before.ownership.epoch || after.identity_epoch < before.identity_epoch {
            wrong.push(format!("an epoch of {} fell", after.hostname));
        }
        let lost = before.ownership.allocations > 0 && after.ownership.allocations == 0;
        let went_down =
            before.state.availability != Availability::Down && after.state.availability == Availability::Down;
        if lost && went_down && after.ownership.epoch == before.ownership.epoch {
            wrong.push(format!("{} went down and lost its work, and its epoch stands", after.hostname));
        }
    }
    wrong
}

fn owned_work(model: &Model, moved: &Moved<'_>) -> Vec<String> {
    let nodes = moved.nodes.iter().map(|(_, after)| after.id);
    let of_jobs = moved.jobs.iter().map(|(_, after)| after.node);
    let touched: Vec<_> = nodes.chain(of_jobs).collect();
    let mut wrong = Vec::new();
    for node in touched.iter().filter_map(|id| model.nodes.get(id)) {
        if !matches!(node.state.status, Status::Draining | Status::Removing) {
            continue;
        }
        let owner = node.owning_job.and_then(|job| model.jobs.get(&job));
        if owner.is_none_or(|job| job.state.status.is_terminal()) {
            wrong.push(format!("{} is {} and no job owns it", node.hostname, node.state));
        }
    }
    wrong
}

fn drain_intents(_: &Model, moved: &Moved<'_>) -> Vec<String> {
    let mut wrong = Vec::new();
    for (before, after) in &moved.nodes {
        if after.drain_intent && matches!(after.state.availability, Availability::Ready | Availability::Degraded) {
            wrong.push(format!("{} is {} though it is to be empty", after.hostname, after.state));
        }
        let Some(before) = before.as_ref().filter(|before| before.drain_intent && !after.drain_intent) else {
            continue;
        };
        // An undrain, a reactivation or a recovery gives it back; a removal ends it.
        let is_asked = moved.commit.actor.role != Role::System || !moved.jobs.is_empty();
        let gives_back =
            after.state.availability == Availability::Ready && before.state.availability != Availability::Down;
        if !is_asked && !gives_back && after.state.status != Status::Deleted {
            wrong.push(format!("{} forgot that it is to be empty: {} → {}", after.hostname, before.state, after.state));
        }
    }
    wrong
}

fn wipes_asked(_: &Model, moved: &Moved<'_>) -> Vec<String> {
    let ended = moved.nodes.iter().filter(|(before, after)| {
        before.as_ref().is_some_and(|before| before.ownership.is_sensitive()) && !after.ownership.is_sensitive()
    });
    let unwiped = ended.filter(|(_, after)| after.hold(HoldKind::WipeRequired).is_none());
    unwiped.map(|(_, after)| format!("{} was sensitive and need not be wiped", after.hostname)).collect()
}

/// Whether a node that was to be wiped need not be any more.
pub fn is_let_off(before: &Node, after: &Node) -> bool {
    let needs = |node: &Node| node.hold(HoldKind::WipeRequired).is_some() || node.hold(HoldKind::WipeFailed).is_some();
    needs(before) && !needs(after) && after.state.status != Status::Deleted
}

fn wipes_done(model: &Model, moved: &Moved<'_>) -> Vec<String> {
    let mut wrong = Vec::new();
    for (before, after) in moved.nodes.iter().filter_map(|(before, after)| Some((before.as_ref()?, after))) {
        if !is_let_off(before, after) {
            continue;
        }
        // By a job of that kind alone, by whose tasks each kind of device was erased, with evidence. What the host has,
        // and what is left on it, is looked at beside.
        let job = moved.jobs.iter().find(|(_, job)| job.kind == JobKind::SensitiveWipe && job.node == after.id);
        let wipes = |id| model.tasks.values().filter(move |task| task.owner.job() == Some(id));
        let is_wiped = job.is_some_and(|(_, job)| {
            let done = |kind: TaskKind| {
                wipes(job.id).any(|task| task.input.kind() == kind && task.status == TaskStatus::Succeeded)
            };
            [TaskKind::GpuScrub, TaskKind::NvmeErase, TaskKind::RamScrub].into_iter().all(done)
        });
        if !is_wiped {
            wrong.push(format!("{} need not be wiped any more, and was not", after.hostname));
        }
    }
    wrong
}

fn brakes_hold(model: &Model, moved: &Moved<'_>) -> Vec<String> {
    let mut wrong = Vec::new();
    for (before, after) in moved.nodes.iter().filter_map(|(before, after)| Some((before.as_ref()?, after))) {
        let Some(until) = before.ownership.braked_until.filter(|until| moved.commit.at < *until) else { continue };
        let still = after.ownership.epoch == before.ownership.epoch;
        let asked = moved.commit.actor.role != Role::System;
        let let_go = brake::lets_go(before, model.let_go_at.get(&before.site).copied(), moved.commit.at);
        let evidence = after.down_cause == Some(DownCause::CriticalHardware);
        if !still && !asked && !let_go && !evidence {
            wrong.push(format!("{} lost what it owned though it is braked until {until}", after.hostname));
        }
        let placed = model.placed_on(after.id).count();
        if still && after.ownership.braked_until.is_some() && placed != after.ownership.allocations as usize {
            wrong.push(format!("{} is braked, and {placed} of its allocations are left", after.hostname));
        }
    }
    wrong
}

fn mass_failures(model: &Model, moved: &Moved<'_>) -> Vec<String> {
    let mut wrong = Vec::new();
    for (before, after) in moved.nodes.iter().filter_map(|(before, after)| Some((before.as_ref()?, after))) {
        let was_judged = [Availability::Degraded, Availability::Draining, Availability::Drained];
        let fell = was_judged.contains(&before.state.availability)
            && after.state.availability == Availability::Down
            && after.down_cause == Some(DownCause::HeartbeatLost);
        if !fell || before.ownership.allocations == 0 || after.ownership.braked_until.is_some() {
            continue;
        }
        let others = || model.nodes.values().filter(|node| node.id != before.id && node.site == before.site);
        let members = others().filter(|node| brake::is_member(node)).count() + 1;
        let times_of = |node: &Node| model.policy.times(node.effective_class());
        // Those who are judged together do not see each other fall: one that was drained, or had an issue, was not silent
        // for others before it.
        let is_earlier =
            |node: &&Node| node.state.availability != Availability::Down || node.availability_since < moved.commit.at;
        let silences = others().filter(is_earlier).filter_map(|node| brake::silent_since(node, times_of(node)));
        let (at, times) = (moved.commit.at, times_of(before));
        let since = brake::silence_began(before, times, at);
        let together = Silences::new(silences.chain([since])).around(since, times.window(), at);
        if model.policy.brake && brake::is_mass_failure(together, members) {
            wrong.push(format!("{} lost its work when most of its site fell silent", after.hostname));
        }
    }
    wrong
}

fn disabled_stay(_: &Model, moved: &Moved<'_>) -> Vec<String> {
    let mut wrong = Vec::new();
    for (before, after) in moved.nodes.iter().filter_map(|(before, after)| Some((before.as_ref()?, after))) {
        let was = before.hold(HoldKind::Disabled).is_some();
        let gone = after.hold(HoldKind::Disabled).is_none();
        if was && gone && moved.commit.actor.role == Role::System && after.state.status != Status::Deleted {
            wrong.push(format!("{} is not disabled any more, and nobody asked", after.hostname));
        }
        // A reboot leads past it, and keeps the hold: nothing is placed there, and silence ends as it does elsewhere.
        let came_back =
            before.down_cause == Some(DownCause::Disabled) && after.state.availability == Availability::Ready;
        if was && !gone && came_back {
            wrong.push(format!("{} is disabled and {}", after.hostname, after.state));
        }
    }
    wrong
}

fn sensitive_requeues(_: &Model, moved: &Moved<'_>) -> Vec<String> {
    let mut wrong = Vec::new();
    for (before, after) in moved.allocations.iter().filter_map(|(before, after)| Some((before.as_ref()?, after))) {
        let lost = before.placed_on().is_some() && after.status == AllocationStatus::Requested;
        let node_lost = moved.nodes.iter().any(|(was, now)| {
            was.as_ref().is_some_and(|was| was.ownership.epoch != now.ownership.epoch) && Some(now.id) == before.node
        });
        if lost && node_lost && after.class == NodeClass::Sensitive {
            wrong.push(format!("{} is sensitive and was queued again by itself", after.id));
        }
    }
    wrong
}

fn deleted_stay(_: &Model, moved: &Moved<'_>) -> Vec<String> {
    let left = moved.nodes.iter().filter(|(before, after)| {
        let was = before.as_ref().is_some_and(|before| before.state.status == Status::Deleted);
        was && after.state.status != Status::Deleted
    });
    left.map(|(_, after)| format!("{} was deleted and is {}", after.hostname, after.state)).collect()
}

fn drift_holds(_: &Model, moved: &Moved<'_>) -> Vec<String> {
    let drifted = moved.nodes.iter().filter(|(before, after)| {
        let is_news = before.as_ref().is_some_and(|before| before.deviates_since.is_none());
        is_news && after.deviates_since.is_some() && after.effective_class() == NodeClass::Sensitive
    });
    let loose = drifted.filter(|(_, after)| after.hold(HoldKind::ConformanceDrift).is_none());
    loose.map(|(_, after)| format!("{} drifted, and is not held", after.hostname)).collect()
}

/// The jobs that a commit begins by themselves: of that kind, for that reason.
pub fn begun<'a>(moved: &'a Moved<'_>, kind: JobKind, by: &'a str) -> impl Iterator<Item = &'a Job> {
    let jobs = moved.jobs.iter().filter(|(before, _)| before.is_none()).map(|(_, job)| job);
    jobs.filter(move |job| job.kind == kind && job.requested_by.role == Role::System && job.requested_by.name == by)
}

/// Whether Lattice took a node out by itself and it is not back.
fn is_taken(model: &Model, node: &Node) -> bool {
    let of_node = || model.jobs.values().filter(|job| job.node == node.id);
    let reboots = of_node().any(|job| {
        job.kind == JobKind::Reboot && job.requested_by.name == REMEDIATOR && !job.state.status.is_terminal()
    });
    let last_drain = of_node().filter(|job| job.kind == JobKind::Drain).max_by_key(|job| job.id);
    let is_drained = matches!(node.state.availability, Availability::Draining | Availability::Drained);
    let is_kept = node.state.status == Status::Active && node.drain_intent;
    reboots || (is_drained && is_kept && last_drain.is_some_and(|job| job.requested_by.name == JUDGE))
}

fn governed(model: &Model, moved: &Moved<'_>) -> Vec<String> {
    let taking = begun(moved, JobKind::Reboot, REMEDIATOR).chain(begun(moved, JobKind::Drain, JUDGE));
    let mut wrong = Vec::new();
    for job in taking {
        // Nodes that leave between the count and the commit are still counted here.
        let all = model.nodes.values().filter(|node| node.site == job.site);
        let taken = all.clone().filter(|node| node.id != job.node && is_taken(model, node)).count() as u64;
        let Governor { limit, .. } = Governor::new(&model.automation, all.count() as u64, taken);
        if taken >= limit {
            wrong.push(format!("{} of {} begins, and {taken} are out by itself, of {limit}", job.kind, job.hostname));
        }
    }
    wrong
}

fn remedies(model: &Model, moved: &Moved<'_>) -> Vec<String> {
    let mut wrong = Vec::new();
    for job in begun(moved, JobKind::Reboot, REMEDIATOR) {
        let before = moved.nodes.iter().find(|(_, after)| after.id == job.node).and_then(|(before, _)| before.as_ref());
        wrong.extend(
            before
                .and_then(|node| left_alone(model, node, moved.commit.at))
                .map(|why| format!("{} is rebooted by itself: {why}", job.hostname)),
        );
    }
    wrong
}

/// Why nothing reboots a node by itself.
fn left_alone(model: &Model, node: &Node, at: Timestamp) -> Option<String> {
    if !model.automation.auto_remediate {
        return Some("its site does not have that".to_owned());
    }
    if node.down_cause != Some(DownCause::HeartbeatLost) {
        return Some(format!("it is {} for {:?}", node.state, node.down_cause));
    }
    let stops = [HoldKind::Disabled, HoldKind::Maintenance, HoldKind::Rollout, HoldKind::WipeRequired];
    if let Some(hold) = stops.into_iter().find_map(|kind| node.hold(kind)) {
        return Some(format!("it has the hold {}", hold.kind));
    }
    if let Some(until) = node.ownership.braked_until {
        return Some(format!("it is braked until {until}"));
    }
    let (fell, members) = lately_silent(model, node, at);
    let let_go = model.let_go_at.get(&node.site).is_some_and(|let_go| *let_go >= node.availability_since);
    let is_recent = at < node.availability_since + brake::HOLDS;
    let braked = model.policy.brake && is_recent && !let_go && brake::is_mass_failure(fell, members);
    braked.then(|| format!("{fell} of {members} nodes of its site fell silent lately"))
}

/// How many nodes of a site are down for their silence since a brake would hold, and all whose silence is noticed. Those
/// that fell in the same moment may not have been seen yet.
fn lately_silent(model: &Model, node: &Node, at: Timestamp) -> (usize, usize) {
    let is_other = |one: &&Node| one.id != node.id && one.site == node.site && brake::is_member(one);
    let others = || model.nodes.values().filter(is_other);
    let fell = |one: &&Node| {
        one.down_cause == Some(DownCause::HeartbeatLost)
            && one.state.availability == Availability::Down
            && one.availability_since >= brake::silenced_since(at)
            && one.availability_since < at
    };
    // Its own row is booting by now.
    (others().filter(fell).count() + 1, others().count() + 1)
}
