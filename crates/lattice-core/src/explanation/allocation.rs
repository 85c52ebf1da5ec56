//! Why an allocation stands where it stands, and why a node is not empty yet.

use super::{Explanation, Unmet};
use crate::agent::task::Task;
use crate::allocation::{Allocation, AllocationStatus};
use crate::explain::NextAction;
use crate::node::{HoldKind, Node};
use crate::time::{Timestamp, human};

/// Explains an allocation. `on` is the node that it has and the name of its site; `tasks` are its latest tasks, the
/// newest first.
pub fn allocation(one: &Allocation, on: Option<(&Node, &str)>, tasks: &[Task], now: Timestamp) -> Explanation {
    let node = on.map(|(node, _)| node);
    let id = one.id;
    let age = human(now.since(one.status_since));
    let mut because = Vec::new();
    let mut next = Vec::new();
    let release = || NextAction::run(format!("lattice allocation release {id}"), "gives it up");
    let unmet =
        |what: String, owner: &str| Unmet { what, since: Some(one.status_since), owner: owner.to_owned(), class: None };
    let headline = match one.status {
        AllocationStatus::Requested => {
            because.push(unmet(one.why.clone(), "the fleet"));
            let (headline, first) = waits(one, now);
            next.extend([first, release()]);
            format!("{headline} for {age}")
        }
        AllocationStatus::Provisioning | AllocationStatus::Releasing => {
            because.push(unmet(one.why.clone(), "agent"));
            because.extend(tasks.first().map(of_task));
            if let Some(node) = node {
                next.push(NextAction::run(format!("lattice explain node {}", node.hostname), "says how its node is"));
            }
            if one.status == AllocationStatus::Provisioning {
                next.push(release());
                format!("is being started for {age}")
            } else {
                format!("is being ended for {age}")
            }
        }
        AllocationStatus::Active => match on.and_then(|(node, site)| Some((site, node.ownership.braked_until?))) {
            Some((site, until)) => {
                because.push(unmet(
                    "its node is silent, and a brake holds back what its loss would do".to_owned(),
                    "brake",
                ));
                next.extend(braked(site, until));
                "its node is down, and it is not given up yet".to_owned()
            }
            None => format!("runs for {age}"),
        },
        AllocationStatus::Released => format!("over: {}", one.why),
        AllocationStatus::Failed => {
            because.push(unmet(one.why.clone(), "operator"));
            next.push(NextAction::run(format!("lattice allocation requeue {id}"), "queues it again"));
            if node.is_some_and(|node| node.hold(HoldKind::WipeRequired).is_some()) {
                because.push(unmet("its node is not wiped yet".to_owned(), "wipe"));
            }
            "failed".to_owned()
        }
    };
    let fine = match one.status {
        AllocationStatus::Active => because.is_empty(),
        AllocationStatus::Released => true,
        AllocationStatus::Requested
        | AllocationStatus::Provisioning
        | AllocationStatus::Releasing
        | AllocationStatus::Failed => false,
    };
    Explanation { subject: id.to_string(), state: one.status.to_string(), headline, fine, because, next }
}

/// How one that has no node waits, and for what.
fn waits(one: &Allocation, now: Timestamp) -> (&'static str, NextAction) {
    match one.pauses_until(now) {
        Some(until) => (
            "could not be started, and is tried again",
            NextAction::WaitUntil { until, waiting_for: "its next try".to_owned() },
        ),
        None => (
            "waits for a node",
            NextAction::run(
                "lattice node list --status active",
                "shows which nodes there are, and why each is not schedulable",
            ),
        ),
    }
}

/// What ends the wait of what a brake holds back: its time, or an operator.
pub(super) fn braked(site: &str, until: Timestamp) -> [NextAction; 2] {
    [
        NextAction::WaitUntil { until, waiting_for: "the brake to let go".to_owned() },
        NextAction::run(
            format!("lattice site brake {site} --release --yes"),
            "counts what a brake holds back there as lost, now",
        ),
    ]
}

fn of_task(task: &Task) -> Unmet {
    Unmet {
        what: format!("its task {} is {}", task.input.kind(), task.status),
        since: Some(task.updated_at),
        owner: format!("task {}", task.id),
        class: None,
    }
}

/// Why an allocation still keeps its draining node from being empty, and what would end it.
pub fn holds_up(one: &Allocation, now: Timestamp) -> (Unmet, Option<NextAction>) {
    let age = human(now.since(one.status_since));
    let who = format!("allocation {} of {}", one.id, one.user);
    let what = match one.status {
        AllocationStatus::Provisioning => format!("{who} is being started for {age}"),
        AllocationStatus::Releasing => format!("{who} is being ended for {age}"),
        AllocationStatus::Active if one.is_checkpointable() => format!("{who} runs for {age}; it could save its state"),
        AllocationStatus::Active => format!("{who} runs for {age} and cannot save its state: it ends in its own time"),
        AllocationStatus::Requested | AllocationStatus::Released | AllocationStatus::Failed => {
            format!("{who} is {}", one.status)
        }
    };
    let next = match one.status {
        AllocationStatus::Active | AllocationStatus::Provisioning => Some(NextAction::run(
            format!("lattice allocation release {}", one.id),
            format!("ends it, for {}", one.user),
        )),
        AllocationStatus::Releasing
        | AllocationStatus::Requested
        | AllocationStatus::Released
        | AllocationStatus::Failed => None,
    };
    (Unmet { what, since: Some(one.status_since), owner: one.user.clone(), class: None }, next)
}
