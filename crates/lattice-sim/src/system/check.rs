//! Looks at every commit, at what hosts really run, and at what is left in the end.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use lattice_core::agent::task::Running;
use lattice_core::allocation::AllocationStatus;
use lattice_core::bmc::BmcCause;
use lattice_core::change::{Change, Commit, Outcome};
use lattice_core::command::conformance::JUDGE;
use lattice_core::command::remedy::REMEDIATOR;
use lattice_core::ids::{AllocationId, NodeId};
use lattice_core::job::JobKind;
use lattice_core::node::{Availability, Node, Status};

use super::acts::{RULE, is_made_for};
use super::cloud::Cloud;
use super::faults::Fault;
use super::ground::Ground;
use super::host::Host;
use super::metal::Left;
use super::model::{Model, Moved};
use super::rules::{RULES, begun, is_let_off};

/// A clock that jumps by no more than this may make a silence look longer.
const UNNOTICED: Duration = Duration::from_secs(3);

/// Commits were made: they are told, applied, judged; and hosts are looked at.
pub fn at_commits(ground: &Arc<Ground>, cloud: &Cloud, commits: &[Commit], outcomes: &[Outcome]) {
    let mut wrong = Vec::new();
    for (commit, outcome) in commits.iter().zip(outcomes) {
        if !matches!(outcome, Outcome::Applied { .. }) {
            continue;
        }
        ground.committed();
        let mut model = ground.model();
        let moved = model.apply(commit);
        tell(ground, &model, &moved);
        let opened = |change: &&Change| matches!(change, Change::Bmc { cause: BmcCause::BreakerOpened, .. });
        commit.changes.iter().filter(opened).for_each(|_| ground.faults.befell(Fault::BreakerOpened));
        for rule in RULES {
            wrong.extend((rule.judge)(&model, &moved).into_iter().map(|what| format!("{}: {what}", rule.name)));
        }
        let hosts = running(cloud);
        wrong.extend(returned(&model, &moved, &hosts));
        wrong.extend(twice(&model, &hosts));
        wrong.extend(let_off(&model, &moved, cloud));
        wrong.extend(ended(&model, &moved, cloud));
        wrong.extend(unheard(ground, &model, &moved));
        befell(ground, &moved);
    }
    wrong.into_iter().for_each(|what| ground.wrong(what));
}

/// What Lattice did by itself is counted.
fn befell(ground: &Ground, moved: &Moved<'_>) {
    let reboots = begun(moved, JobKind::Reboot, REMEDIATOR).map(|_| Fault::RebootedByItself);
    let drains = begun(moved, JobKind::Drain, JUDGE).map(|_| Fault::DrainedForDrift);
    let drifted = moved.nodes.iter().filter(|(before, after)| {
        after.deviates_since.is_some() && before.as_ref().is_some_and(|before| before.deviates_since.is_none())
    });
    reboots.chain(drains).chain(drifted.map(|_| Fault::Drifted)).for_each(|what| ground.faults.befell(what));
}

/// What each node's host runs.
pub fn running(cloud: &Cloud) -> BTreeMap<NodeId, Vec<Running>> {
    let of = |host: &Arc<Host>| host.node().map(|node| (node, host.running()));
    cloud.hosts().iter().filter_map(of).collect()
}

/// Whether what runs on a node counts: nobody declared it lost.
const fn is_trusted(node: &Node) -> bool {
    match node.state.availability {
        Availability::Ready | Availability::Degraded | Availability::Draining | Availability::Drained => true,
        Availability::Unknown | Availability::Booting | Availability::Down | Availability::Failed => false,
    }
}

/// No allocation runs twice: what still runs on a node that is down may, until that node comes back.
pub fn twice(model: &Model, hosts: &BTreeMap<NodeId, Vec<Running>>) -> Vec<String> {
    let mut places: BTreeMap<AllocationId, Vec<String>> = BTreeMap::new();
    for (node, running) in hosts {
        let Some(node) = model.nodes.get(node).filter(|node| is_trusted(node)) else { continue };
        for one in running {
            places.entry(one.allocation).or_default().push(node.hostname.clone());
        }
    }
    let twice = places.into_iter().filter(|(_, places)| places.len() > 1);
    twice.map(|(one, places)| format!("no allocation runs twice: {one} runs on {}", places.join(" and "))).collect()
}

/// A node that comes back runs nothing but what it owns.
pub fn returned(model: &Model, moved: &Moved<'_>, hosts: &BTreeMap<NodeId, Vec<Running>>) -> Vec<String> {
    let mut wrong = Vec::new();
    for (before, after) in moved.nodes.iter().filter_map(|(before, after)| Some((before.as_ref()?, after))) {
        if before.state.availability != Availability::Down || !is_trusted(after) {
            continue;
        }
        for one in hosts.get(&after.id).into_iter().flatten() {
            if !is_owned(model, after.id, *one) {
                let what = format!("{} came back and runs {}, which it does not own", after.hostname, one.allocation);
                wrong.push(format!("what a node lost is ended before it is used again: {what}"));
            }
        }
    }
    wrong
}

/// Nothing is left of sensitive work on a node that need not be wiped any more: the host itself is looked at.
fn let_off(model: &Model, moved: &Moved<'_>, cloud: &Cloud) -> Vec<String> {
    let changed = moved.nodes.iter().filter_map(|(before, after)| Some((before.as_ref()?, after)));
    let mut wrong = Vec::new();
    for (_, node) in changed.filter(|(before, after)| is_let_off(before, after)) {
        let host = cloud.hosts().into_iter().find(|host| host.node() == Some(node.id));
        wrong.extend(unclean(node, host.map(|host| host.left(model.keeps_system_drive))));
    }
    wrong
}

/// What is wrong with a node that is said to be wiped, by what is left on its host; none: nobody finds it.
pub fn unclean(node: &Node, left: Option<Left>) -> Option<String> {
    let why = match left {
        None => "there is no host of it".to_owned(),
        Some(Left { soiled, .. }) if !soiled.is_empty() => {
            format!("not erased: {}", soiled.into_iter().collect::<Vec<_>>().join(", "))
        }
        Some(Left { same_boot: true, .. }) => "it was not restarted since it was erased".to_owned(),
        Some(_) => return None,
    };
    Some(format!("only a wipe ends the need of one: {}: {why}", node.hostname))
}

/// An identity ends only when the machine that carried it is gone.
fn ended(model: &Model, moved: &Moved<'_>, cloud: &Cloud) -> Vec<String> {
    let mut wrong = Vec::new();
    for (_, node) in moved.nodes.iter().filter(|(before, after)| {
        let was = before.as_ref().is_some_and(|before| before.state.status == Status::Deleted);
        after.state.status == Status::Deleted && !was
    }) {
        let left = cloud.host(&node.hostname).filter(|host| is_made_for(model, node, &host.stamp()));
        wrong.extend(left.map(|_| format!("{RULE}: {} is deleted and its machine is there", node.hostname)));
    }
    wrong
}

/// Who is called silent was not heard, however the clocks of the servers jumped.
fn unheard(ground: &Ground, model: &Model, moved: &Moved<'_>) -> Vec<String> {
    let mut wrong = Vec::new();
    for change in &moved.commit.changes {
        let Change::Node(change) = change else { continue };
        // Its loss may end the claim that its times came from.
        let before =
            moved.nodes.iter().find_map(|(before, after)| before.as_ref().filter(|_| after.id == change.after.id));
        let Some(before) = before else { continue };
        let times = model.policy.times(before.effective_class());
        let least = match change.cause.as_str() {
            "heartbeat_missed" => times.window(),
            "grace_expired" => times.window() + times.grace(),
            _ => continue,
        };
        let host = &change.after.hostname;
        if let Some(silent) = ground.silent_for(host, moved.commit.at).filter(|silent| *silent + UNNOTICED < least) {
            wrong.push(format!("who is heard is not called silent: {host} was silent for {} s", silent.as_secs()));
        }
    }
    wrong
}

/// Whether that node has it, under that ownership.
pub fn is_owned(model: &Model, node: NodeId, one: Running) -> bool {
    let row = model.allocations.get(&one.allocation);
    row.is_some_and(|row| row.placed_on() == Some(node) && row.epoch == Some(one.ownership_epoch))
}

/// Writes down what a commit changed.
fn tell(ground: &Ground, model: &Model, moved: &Moved<'_>) {
    let by = &moved.commit.actor.name;
    let by = by.parse::<NodeId>().map_or_else(|_| by.clone(), |node| model.name(node));
    for (before, after) in &moved.nodes {
        let was = before.as_ref().map_or_else(String::new, |before| format!("{} → ", before.state));
        let cause = moved.commit.changes.iter().find_map(|change| {
            let Change::Node(change) = change else { return None };
            (change.after.id == after.id).then(|| change.cause.clone())
        });
        let owned = &after.ownership;
        let holds: Vec<String> = after.holds.iter().map(|hold| hold.kind.to_string()).collect();
        ground.log.say(format!(
            "node {} {was}{} ({}) by {by}, epoch {}, {} allocations, holds [{}]",
            after.hostname,
            after.state,
            cause.unwrap_or_default(),
            owned.epoch.0,
            owned.allocations,
            holds.join(" "),
        ));
    }
    for (before, after) in &moved.allocations {
        let was = before.as_ref().map_or_else(String::new, |before| format!("{} → ", before.status));
        let place = after.node.map(|node| model.name(node)).unwrap_or_default();
        ground.log.say(format!("allocation {} {was}{} {place} by {by}: {}", after.id, after.status, after.why));
    }
    for (before, after) in &moved.jobs {
        let was = before.as_ref().map_or_else(String::new, |before| format!("{} → ", before.state.status));
        let failure = after.state.failure.as_ref().map(|failure| format!("; {}", failure.message)).unwrap_or_default();
        let (kind, stage) = (after.kind, after.state.stage);
        ground.log.say(format!(
            "job {} {kind} of {} {was}{} at {stage} by {by}{failure}",
            after.id, after.hostname, after.state.status
        ));
    }
    for (before, after) in &moved.tasks {
        let was = before.as_ref().map_or_else(String::new, |before| format!("{} → ", before.status));
        let (kind, node) = (after.input.kind(), model.name(after.node));
        ground.log.say(format!("task {} {kind} of {node} {was}{} by {by}", after.id, after.status));
    }
}

/// An allocation whose process must be there.
pub const fn must_run(status: AllocationStatus) -> bool {
    match status {
        AllocationStatus::Active => true,
        AllocationStatus::Requested
        | AllocationStatus::Provisioning
        | AllocationStatus::Releasing
        | AllocationStatus::Released
        | AllocationStatus::Failed => false,
    }
}
