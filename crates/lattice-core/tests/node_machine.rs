//! The two state machines of a node: every (state, event) pair enumerated, every pair of states reachable and alive.
#![allow(clippy::unwrap_used, reason = "a test stops at what it cannot do")]

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use lattice_core::actor::Actor;
use lattice_core::allocation::Ownership;
use lattice_core::heartbeat::brake;
use lattice_core::heartbeat::detector::silence_verdict;
use lattice_core::ids::{Generation, JobId, NodeId, SiteId, uuid_v7};
use lattice_core::node::availability::{AVAILABILITY_EDGES, AvailabilityEvent};
use lattice_core::node::class::HeartbeatPolicy;
use lattice_core::node::machine::{Facts, Health, NodeEvent, Refused, decide, possible_events};
use lattice_core::node::status::{Owner, STATUS_EDGES, StatusEvent};
use lattice_core::node::{Availability, DownCause, Hold, HoldKind, Node, NodeClass, NodeState, OnboardingMode, Status};
use lattice_core::time::Timestamp;
use proptest::prelude::*;
use strum::VariantArray;

const NOW: Timestamp = Timestamp::from_millis(1_000_000);

fn node(status: Status, availability: Availability) -> Node {
    Node {
        id: NodeId::new(uuid_v7(NOW, [1; 10])),
        hostname: "c07u31".into(),
        site: SiteId::new(uuid_v7(NOW, [2; 10])),
        sku: "mi300x.192g.8gpu".into(),
        class: NodeClass::Standard,
        mode: OnboardingMode::Maas,
        state: NodeState::new(status, availability),
        status_since: NOW,
        availability_since: NOW,
        down_cause: (availability == Availability::Down).then_some(DownCause::HeartbeatLost),
        deadline: None,
        boot_failures: 0,
        drain_intent: false,
        minor_issue: None,
        identity_epoch: 1,
        boot_id: None,
        agent_version: None,
        fingerprint: None,
        deviates_since: None,
        labels: lattice_core::node::Labels::new(),
        address: None,
        bmc_address: None,
        provider_ref: None,
        owning_job: None,
        holds: Vec::new(),
        ownership: Ownership::default(),
        created_at: NOW,
        updated_at: NOW,
        generation: Generation::FIRST,
    }
}

/// Facts under which every guard that evidence can satisfy is satisfied.
fn best(owner: Owner) -> Facts {
    Facts {
        health: Health::Passed,
        job: Some(JobId::new(uuid_v7(NOW, [3; 10]))),
        deployed: false,
        proven_gone: true,
        new_boot: true,
        ..Facts::of(owner, Actor::system("test"))
    }
}

fn owner_of(event: NodeEvent, from: Status) -> Owner {
    match event {
        NodeEvent::Status(event) => STATUS_EDGES
            .iter()
            .find(|edge| edge.event == event && edge.from == from)
            .map_or(Owner::Operator, |edge| edge.owners[0]),
        NodeEvent::Availability(_) => Owner::Detector,
    }
}

fn all_events() -> Vec<NodeEvent> {
    let status = StatusEvent::VARIANTS.iter().map(|event| NodeEvent::Status(*event));
    status.chain(AvailabilityEvent::VARIANTS.iter().map(|event| NodeEvent::Availability(*event))).collect()
}

fn all_pairs() -> Vec<NodeState> {
    Status::VARIANTS
        .iter()
        .flat_map(|status| Availability::VARIANTS.iter().map(|availability| NodeState::new(*status, *availability)))
        .filter(|state| state.is_allowed())
        .collect()
}

/// The coarse part of a row that decides where it can go.
type Key = (NodeState, bool, Option<DownCause>, u32, bool);

fn key(node: &Node) -> Key {
    (node.state, node.drain_intent, node.down_cause, node.boot_failures.min(3), node.hold(HoldKind::Disabled).is_some())
}

fn successors(from: &Node) -> Vec<(NodeEvent, Node)> {
    let mut found = Vec::new();
    for event in all_events() {
        for class in NodeClass::VARIANTS {
            for health in [Health::Passed, Health::NotReported] {
                let facts = Facts { class: *class, health, ..best(owner_of(event, from.state.status)) };
                if let Ok(moved) = decide(from, event, &facts, NOW) {
                    found.push((event, moved.change.after));
                }
            }
        }
    }
    found
}

/// Everything that can be reached from the two ways in which a node is created.
fn reachable() -> BTreeMap<Key, Node> {
    let mut seen = BTreeMap::new();
    let mut queue = VecDeque::from([
        node(Status::BootstrapIssued, Availability::Unknown),
        node(Status::Enrolling, Availability::Unknown),
    ]);
    while let Some(next) = queue.pop_front() {
        if seen.insert(key(&next), next.clone()).is_none() {
            queue.extend(
                successors(&next).into_iter().map(|(_, node)| node).filter(|node| !seen.contains_key(&key(node))),
            );
        }
    }
    seen
}

/// The table of inventory status in the design, row by row: (from, to).
#[test]
fn the_status_table_is_the_designs() {
    use Status::*;
    let expected: BTreeSet<(Status, Status)> = [
        (BootstrapIssued, Enrolling),
        (BootstrapIssued, Deleted),
        (Enrolling, Active),
        (Enrolling, Quarantined),
        (Enrolling, Deleted),
        (Active, Offline),
        (Offline, Active),
        (Active, Quarantined),
        (Offline, Quarantined),
        (Quarantined, Active),
        (Quarantined, Enrolling),
        (Active, Draining),
        (Offline, Draining),
        (Quarantined, Draining),
        (Draining, Retired),
        (Draining, Offline),
        (Draining, Quarantined),
        (Retired, Active),
        (Retired, Removing),
        (Removing, Retired),
        (Removing, Deleted),
        (Active, Enrolling),
        (Offline, Enrolling),
        (Retired, Enrolling),
    ]
    .into();
    let found: BTreeSet<(Status, Status)> = STATUS_EDGES.iter().map(|edge| (edge.from, edge.to)).collect();
    assert_eq!(found, expected);
}

#[test]
fn every_state_and_event_pair_has_one_answer() {
    let mut answers = 0;
    for state in all_pairs() {
        for event in all_events() {
            let from = node(state.status, state.availability);
            let facts = best(owner_of(event, state.status));
            let possible = possible_events(state).any(|other| other == event);
            match decide(&from, event, &facts, NOW) {
                Ok(moved) => {
                    assert!(possible, "{state}: {event:?} is not announced");
                    assert!(
                        moved.change.after.state.is_allowed(),
                        "{state} --{event:?}--> {}",
                        moved.change.after.state
                    );
                    assert_eq!(moved.change.after.generation, from.generation.next());
                }
                Err(Refused::NoEdge { .. }) => {}
                Err(Refused::GuardFailed { need, .. }) => assert!(!need.is_empty()),
                Err(Refused::NotOwner { .. }) => panic!("{state}: the table's own owner was refused {event:?}"),
            }
            answers += 1;
        }
    }
    assert_eq!(answers, all_pairs().len() * all_events().len());
    assert_eq!(all_pairs().len(), 43);
}

#[test]
fn only_owners_may_ask_for_a_status_edge() {
    for edge in STATUS_EDGES {
        for owner in Owner::VARIANTS {
            let availabilities = lattice_core::node::state::allowed_availabilities(edge.from);
            let refused = availabilities.iter().all(|availability| {
                let from = node(edge.from, *availability);
                matches!(
                    decide(&from, NodeEvent::Status(edge.event), &best(*owner), NOW),
                    Err(Refused::NotOwner { .. })
                )
            });
            assert_eq!(refused, !edge.owners.contains(owner), "{edge:?} asked for by {owner}");
        }
    }
}

/// The same, while a brake holds back the loss of what runs on it.
fn braked(node: &Node) -> Node {
    let ownership = Ownership { allocations: 1, braked_until: Some(NOW), ..Ownership::default() };
    Node { ownership, ..node.clone() }
}

#[test]
fn what_a_brake_keeps_is_neither_drained_nor_rebooted_nor_retired() {
    let down = Node { drain_intent: true, ..node(Status::Offline, Availability::Down) };
    let back = NodeEvent::Availability(AvailabilityEvent::HealthPassed);
    let facts = best(Owner::Detector);
    let drained = decide(&down, back, &facts, NOW).unwrap().change.after;
    assert_eq!(drained.state, NodeState::new(Status::Active, Availability::Drained));
    let draining = decide(&braked(&down), back, &facts, NOW).unwrap().change.after;
    assert_eq!(draining.state, NodeState::new(Status::Active, Availability::Draining), "its work still runs");
    assert_eq!((draining.ownership.allocations, draining.ownership.braked_until), (1, None));
    let reboot = NodeEvent::Availability(AvailabilityEvent::Reboot);
    assert!(decide(&down, reboot, &facts, NOW).is_ok());
    let refused = decide(&braked(&down), reboot, &facts, NOW).unwrap_err();
    assert!(refused.to_string().contains("let go of its site's brake"), "{refused}");
    let retires = node(Status::Draining, Availability::Down);
    let done = NodeEvent::Status(StatusEvent::DrainDone);
    assert!(decide(&retires, done, &best(owner_of(done, Status::Draining)), NOW).is_ok());
    assert!(decide(&braked(&retires), done, &best(owner_of(done, Status::Draining)), NOW).is_err());
}

#[test]
fn every_status_edge_and_every_availability_row_can_be_taken() {
    let mut status_taken = BTreeSet::new();
    let mut rows_taken = BTreeSet::new();
    for from in reachable().values() {
        let mut found = successors(from);
        if from.state.availability == Availability::Down {
            found.extend(successors(&braked(from)));
        }
        for (event, to) in found {
            match event {
                NodeEvent::Status(event) => {
                    status_taken.insert((from.state.status, event));
                }
                NodeEvent::Availability(event) => {
                    rows_taken.insert((from.state.availability, event, to.state.availability));
                }
            }
        }
    }
    for edge in STATUS_EDGES {
        // An offline node never stands as unknown unless it was reset after a failed boot; every edge is reachable.
        assert!(status_taken.contains(&(edge.from, edge.event)), "never taken: {edge:?}");
    }
    for edge in AVAILABILITY_EDGES {
        for from in edge.from {
            assert!(rows_taken.contains(&(*from, edge.event, edge.to)), "never taken: {from} {edge:?}");
        }
    }
}

#[test]
fn each_reachable_pair_can_reach_deleted_and_unless_deleted_active_and_ready() {
    let all = reachable();
    let index: BTreeMap<Key, BTreeSet<Key>> = all
        .iter()
        .map(|(key_of, node)| (*key_of, successors(node).iter().map(|(_, next)| key(next)).collect()))
        .collect();
    let reaches = |goal: &dyn Fn(&Key) -> bool| -> BTreeSet<Key> {
        let mut good: BTreeSet<Key> = index.keys().copied().filter(|key| goal(key)).collect();
        loop {
            let more: Vec<Key> = index
                .iter()
                .filter(|(key, next)| !good.contains(key) && next.iter().any(|next| good.contains(next)))
                .map(|(key, _)| *key)
                .collect();
            if more.is_empty() {
                return good;
            }
            good.extend(more);
        }
    };
    let can_be_deleted = reaches(&|key| key.0.status == Status::Deleted);
    let can_be_ready = reaches(&|key| key.0 == NodeState::new(Status::Active, Availability::Ready));
    for key in index.keys() {
        assert!(can_be_deleted.contains(key), "{} can never be deleted: {key:?}", key.0);
        assert!(key.0.status == Status::Deleted || can_be_ready.contains(key), "{} can never be ready: {key:?}", key.0);
    }
    let pairs: BTreeSet<NodeState> = index.keys().map(|key| key.0).collect();
    assert!(pairs.len() > 35, "only {} pairs are reachable", pairs.len());
}

#[test]
fn nothing_leaves_deleted() {
    let deleted = node(Status::Deleted, Availability::Unknown);
    for event in all_events() {
        for owner in Owner::VARIANTS {
            assert!(decide(&deleted, event, &best(*owner), NOW).is_err(), "{event:?}");
        }
    }
}

/// Walks of the design: name, start, events, end.
#[test]
fn the_walks_of_the_design_arrive() {
    use AvailabilityEvent as A;
    use NodeEvent::{Availability as Av, Status as St};
    use StatusEvent as S;
    let ready = "active / ready";
    let walks: &[(&str, &str, &[NodeEvent], &str)] = &[
        ("manual", "bootstrap_issued/unknown", &[St(S::FirstContact), Av(A::HealthPassed), St(S::Enrolled)], ready),
        ("maas", "enrolling/unknown", &[Av(A::BootStarted), Av(A::HealthPassed), St(S::Enrolled)], ready),
        ("deployed again", "enrolling/ready", &[Av(A::BootStarted), Av(A::HealthPassed), St(S::Enrolled)], ready),
        ("silence", "active/ready", &[Av(A::HeartbeatMissed), Av(A::GraceExpired)], "offline / down"),
        ("recovery", "active/ready", &[Av(A::HeartbeatMissed), Av(A::GraceExpired), Av(A::HealthPassed)], ready),
        ("drain", "active/ready", &[Av(A::Drain), Av(A::Emptied), Av(A::Undrain)], ready),
        (
            "drained and lost",
            "active/ready",
            &[Av(A::Drain), Av(A::Emptied), Av(A::GraceExpired), Av(A::HealthPassed)],
            "active / drained",
        ),
        ("disable", "active/ready", &[Av(A::Disable)], "offline / down"),
        ("enable", "active/ready", &[Av(A::Disable), Av(A::Enable)], ready),
        ("boot failure", "active/drained", &[Av(A::Reboot), Av(A::BootDeadline)], "offline / failed"),
        ("late success", "offline/failed", &[Av(A::AgentRegistered), Av(A::HealthPassed)], ready),
        ("reimage", "active/drained", &[St(S::Reimage), Av(A::HealthPassed), St(S::Enrolled)], ready),
        (
            "full decommission",
            "active/ready",
            &[St(S::Retire), Av(A::Emptied), St(S::DrainDone), St(S::Remove), St(S::Removed)],
            "deleted / unknown",
        ),
        ("reactivate", "active/ready", &[St(S::Retire), Av(A::Emptied), St(S::DrainDone), St(S::Reactivate)], ready),
        (
            "retired and rebooted stays drained",
            "retired/drained",
            &[Av(A::Reboot), Av(A::HealthPassed)],
            "retired / drained",
        ),
    ];
    for (name, start, events, end) in walks {
        let (status, availability) = start.split_once('/').unwrap();
        let mut at = node(status.parse().unwrap(), availability.parse().unwrap());
        for event in *events {
            let facts = best(owner_of(*event, at.state.status));
            at = decide(&at, *event, &facts, NOW).unwrap_or_else(|refused| panic!("{name}: {refused}")).change.after;
        }
        assert_eq!(at.state.to_string(), *end, "{name}");
    }
}

#[test]
fn a_reboot_never_clears_the_disabled_hold_and_heartbeats_do_not_undo_it() {
    let facts = best(Owner::Operator);
    let step = |node: &Node, event| decide(node, NodeEvent::Availability(event), &facts, NOW);
    let disabled = step(&node(Status::Active, Availability::Ready), AvailabilityEvent::Disable).unwrap().change.after;
    assert!(step(&disabled, AvailabilityEvent::HealthPassed).is_err(), "a heartbeat undid the disable");
    let booting = step(&disabled, AvailabilityEvent::Reboot).unwrap().change.after;
    let back = step(&booting, AvailabilityEvent::HealthPassed).unwrap().change.after;
    assert!(back.hold(HoldKind::Disabled).is_some());
    assert!(!back.is_schedulable(NOW));
}

#[test]
fn an_expired_hold_no_longer_keeps_a_node_from_scheduling() {
    let mut held = node(Status::Active, Availability::Ready);
    held.holds.push(Hold {
        kind: HoldKind::Maintenance,
        by: Actor::system("test"),
        reason: String::new(),
        since: NOW,
        until: Some(Timestamp::from_millis(NOW.as_millis() + 10)),
        job: None,
    });
    assert!(!held.is_schedulable(NOW));
    assert!(held.is_schedulable(Timestamp::from_millis(NOW.as_millis() + 10)));
}

#[test]
fn a_third_failed_boot_in_a_row_fails_the_node() {
    let facts = best(Owner::Detector);
    let mut at = node(Status::Active, Availability::Booting);
    for expected in [Availability::Booting, Availability::Booting, Availability::Failed] {
        at = decide(&at, NodeEvent::Availability(AvailabilityEvent::BootFailed), &facts, NOW).unwrap().change.after;
        assert_eq!(at.state.availability, expected);
    }
    assert_eq!(at.state.status, Status::Offline);
}

proptest! {
    /// Random event sequences with random facts never leave the allowed pairs.
    #[test]
    fn every_commit_leaves_an_allowed_pair(steps in prop::collection::vec((0usize..38, 0usize..11, any::<[bool; 5]>()), 1..60)) {
        let events = all_events();
        let mut at = node(Status::Enrolling, Availability::Unknown);
        for (event, owner, [healthy, deployed, gone, boot, sensitive]) in steps {
            let facts = Facts {
                health: if healthy { Health::Passed } else { Health::NotReported },
                deployed,
                proven_gone: gone,
                new_boot: boot,
                class: if sensitive { NodeClass::Sensitive } else { NodeClass::Standard },
                ..best(Owner::VARIANTS[owner % Owner::VARIANTS.len()])
            };
            if let Ok(moved) = decide(&at, events[event % events.len()], &facts, NOW) {
                at = moved.change.after;
                prop_assert!(at.state.is_allowed(), "{}", at.state);
                prop_assert_eq!(at.down_cause.is_some(), at.state.availability == Availability::Down);
                prop_assert_eq!(at.deadline.is_some(), at.state.availability == Availability::Booting);
            }
        }
    }
}

#[test]
fn who_drains_or_has_an_issue_was_silent_for_window_and_grace_and_who_degraded_for_its_window_before() {
    let times = HeartbeatPolicy::default().times(NodeClass::Standard);
    let began = |availability, issue: Option<&str>| {
        let minor_issue = issue.map(str::to_owned);
        let silent = Node { minor_issue, ..node(Status::Active, availability) };
        NOW.since(brake::silence_began(&silent, times, NOW + Duration::from_secs(80)))
    };
    assert_eq!(began(Availability::Degraded, None), Duration::from_secs(30));
    for (availability, issue) in
        [(Availability::Degraded, Some("a fan is slow")), (Availability::Draining, None), (Availability::Drained, None)]
    {
        assert_eq!(began(availability, issue), Duration::from_secs(10));
    }
}

#[test]
fn a_clock_that_was_set_back_by_an_hour_postpones_no_loss() {
    let times = HeartbeatPolicy::default().times(NodeClass::Standard);
    let degraded = node(Status::Active, Availability::Degraded);
    // It degraded at a time that is not yet: the server's clock was set back, and what it heard last with it.
    let back = |seconds: u64| Timestamp::from_millis(NOW.as_millis() - 3_600_000) + Duration::from_secs(seconds);
    let whole = times.window() + times.grace();
    let verdict = |now| silence_verdict(&degraded, times, back(0), now);
    assert_eq!(verdict(back(whole.as_secs() - 1)), None);
    assert_eq!(verdict(back(whole.as_secs())), Some(AvailabilityEvent::GraceExpired));
}
