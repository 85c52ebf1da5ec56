//! Allocations from request to end, over the real store: placed, started, lost with their node, held back by the brake,
//! saved for a drain, never twice and never forgotten.
#![allow(clippy::unwrap_used, reason = "a test stops at what it cannot do")]

mod world;

use lattice_core::agent::task::{CheckpointHow, Progress, Running, Task, TaskErrorCode, TaskKind, TaskOutput};
use lattice_core::allocation::{Allocation, AllocationStatus, RequeuePolicy};
use lattice_core::change::{Change, NodeAction, NodeChange, Outcome};
use lattice_core::command::allocation;
use lattice_core::command::drain::{Drain, drain};
use lattice_core::command::node::Known;
use lattice_core::explain::NextAction;
use lattice_core::node::machine::Health;
use lattice_core::node::{Availability, DownCause, HoldKind, NodeClass, NodeState, Status};
use world::{World, at, obedient};

#[tokio::test]
async fn an_allocation_gets_a_node_runs_and_gives_it_back() {
    let world = World::new().await;
    let nodes = world.add_nodes(1).await;
    let id = world.ask("ada", 4, |_| {}).await;
    let running = world.started(id, at(1)).await;
    assert_eq!((running.node, running.placements), (Some(nodes[0]), 1));
    let owned = world.node(nodes[0]).await.ownership;
    assert_eq!((owned.owner.as_deref(), owned.allocations, owned.gpus), (Some("ada"), 1, 4));

    let row = world.node(nodes[0]).await;
    let release = allocation::release(&world.request(at(2)), &running, Some(&row), [9; 16]).unwrap().unwrap();
    assert!(matches!(world.store.commit_one(release).await.unwrap(), Outcome::Applied { .. }));
    world.agents(at(2), obedient).await;
    world.tick(at(3)).await;
    assert_eq!(world.allocation(id).await.status, AllocationStatus::Released);
    let row = world.node(nodes[0]).await;
    assert_eq!((row.ownership.owner.clone(), row.ownership.allocations), (None, 0));
    assert!(row.is_schedulable(at(3)), "standard work leaves nothing to wipe");
    let story = world.names("allocation.").await;
    assert_eq!(
        story,
        ["requested", "placed", "active", "releasing", "released"].map(|last| format!("allocation.{last}"))
    );
}

/// Another server may have another clock: an answer from before it was set back says nothing of what was started since.
#[tokio::test]
async fn what_was_started_since_the_question_has_not_ended_though_the_clock_was_set_back() {
    let world = World::new().await;
    world.add_nodes(1).await;
    let first = world.ask("ada", 1, |_| {}).await;
    let one = world.started(first, at(1)).await;
    let running = vec![Running { allocation: first, ownership_epoch: one.epoch.unwrap() }];
    let counts = |task: &Task| {
        let counted = TaskOutput::HeartbeatCheck {
            boot_id: "boot-1".into(),
            agent_version: "1".into(),
            gpu_count: 8,
            minor_issue: None,
            running: running.clone(),
        };
        (task.input.kind() == TaskKind::HeartbeatCheck).then_some(Progress::Succeeded { output: counted })
    };
    world.tick(at(10)).await;
    world.agents(at(10), counts).await;
    world.tick(at(11)).await;
    assert_eq!(world.allocation(first).await.status, AllocationStatus::Active);
    let second = world.ask("ada", 1, |_| {}).await;
    world.started(second, at(5)).await;
    world.tick(at(12)).await;
    assert_eq!(world.allocation(second).await.status, AllocationStatus::Active);
    assert_eq!(world.allocation(first).await.status, AllocationStatus::Active);
}

#[tokio::test]
async fn one_user_at_a_time_fills_a_node_and_the_others_are_told_why_they_wait() {
    let world = World::new().await;
    world.add_nodes(1).await;
    let first = world.ask("ada", 6, |_| {}).await;
    world.started(first, at(1)).await;
    let big = world.ask("ada", 4, |_| {}).await;
    let fits = world.ask("ada", 2, |_| {}).await;
    let other = world.ask("bob", 1, |_| {}).await;
    let nowhere = world.ask("bob", 0, |new| new.wanted.sku = Some("h200".into())).await;
    let huge = world.ask("bob", 99, |_| {}).await;
    let elsewhere = world.ask("bob", 1, |new| drop(new.wanted.labels.insert("rack".into(), "c99".into()))).await;
    world.tick(at(2)).await;
    assert_eq!(world.allocation(fits).await.status, AllocationStatus::Provisioning);
    let why = |allocation: Allocation| (allocation.status, allocation.why);
    let waits = |text: &str| (AllocationStatus::Requested, format!("a node that fits: {text}"));
    assert_eq!(why(world.allocation(big).await), waits("of 1, 1 has too few free GPUs"));
    assert_eq!(why(world.allocation(other).await), waits("of 1, 1 belongs to another user or class"));
    let none = |text: &str| (AllocationStatus::Requested, format!("a node that fits, and there is none{text}"));
    assert_eq!(why(world.allocation(nowhere).await), none(" of SKU h200"));
    let largest = none(": it asks for 99 GPUs, and the largest node that it allows has 8 (mi300x.192g.8gpu)");
    assert_eq!(why(world.allocation(huge).await), largest);
    assert_eq!(why(world.allocation(elsewhere).await), none(" with rack=c99"));
}

#[tokio::test]
async fn what_runs_on_a_lost_node_is_queued_again_by_its_policy_under_the_next_epoch() {
    let world = World::new().await;
    let nodes = world.add_nodes(1).await;
    let again = world.ask("ada", 1, |_| {}).await;
    let never = world.ask("ada", 1, |new| new.requeue = RequeuePolicy::Never).await;
    world.started(again, at(1)).await;
    assert_eq!(world.allocation(never).await.status, AllocationStatus::Active);
    world.tick(at(30)).await;
    assert_eq!(world.node(nodes[0]).await.state.availability, Availability::Degraded);
    assert_eq!(world.allocation(again).await.status, AllocationStatus::Active, "degraded disturbs nothing");
    world.tick(at(91)).await;
    let node = world.node(nodes[0]).await;
    assert_eq!(node.state, NodeState::new(Status::Offline, Availability::Down));
    assert_eq!((node.ownership.epoch.0, node.ownership.allocations), (1, 0));
    let queued = world.allocation(again).await;
    assert_eq!((queued.status, queued.node), (AllocationStatus::Requested, None));
    let failed = world.allocation(never).await;
    assert_eq!((failed.status, failed.why.as_str()), (AllocationStatus::Failed, "c00 was lost"));
    assert!(world.names("allocation.").await.contains(&"allocation.requeued".to_owned()));
    let requeue = allocation::requeue(&world.request(at(92)), &failed).unwrap();
    assert!(matches!(world.store.commit_one(requeue).await.unwrap(), Outcome::Applied { .. }));
    assert_eq!(world.allocation(never).await.status, AllocationStatus::Requested);
}

#[tokio::test]
async fn sensitive_work_on_a_lost_node_waits_for_an_operator_and_its_node_for_a_wipe() {
    let world = World::new().await;
    let nodes = world.add_nodes(1).await;
    let id = world.ask("ada", 1, |new| new.class = NodeClass::Sensitive).await;
    world.started(id, at(1)).await;
    assert_eq!(world.node(nodes[0]).await.effective_class(), NodeClass::Sensitive);
    world.tick(at(100)).await;
    let state = world.node(nodes[0]).await.state.availability;
    assert_eq!(state, Availability::Ready, "the claim has the sensitive window of two minutes");
    world.tick(at(121)).await;
    world.tick(at(422)).await;
    let node = world.node(nodes[0]).await;
    assert_eq!(node.state.availability, Availability::Down);
    assert!(
        node.hold(HoldKind::WipeRequired).is_some(),
        "the very commit that ends sensitive ownership holds the node"
    );
    let allocation = world.allocation(id).await;
    assert_eq!(allocation.status, AllocationStatus::Failed);
    assert!(allocation.why.contains("waits for an operator"), "{}", allocation.why);
}

#[tokio::test]
async fn when_most_of_a_site_falls_silent_states_move_and_work_is_not_given_up_until_the_brake_lets_go() {
    let world = World::new().await;
    let nodes = world.add_nodes(12).await;
    let id = world.ask("ada", 8, |_| {}).await;
    let running = world.started(id, at(1)).await;
    let lost = running.node.unwrap();
    world.tick(at(30)).await;
    world.tick(at(91)).await;
    for node in &nodes {
        assert_eq!(world.node(*node).await.state.availability, Availability::Down, "states move on time");
    }
    let node = world.node(lost).await;
    assert_eq!((node.ownership.epoch.0, node.ownership.allocations), (0, 1));
    assert_eq!(node.ownership.braked_until, Some(at(691)));
    assert_eq!(world.allocation(id).await.status, AllocationStatus::Active, "its loss is held back");
    world.tick(at(690)).await;
    assert_eq!(world.allocation(id).await.status, AllocationStatus::Active);
    world.tick(at(691)).await;
    assert_eq!(world.allocation(id).await.status, AllocationStatus::Requested);
    assert_eq!(world.node(lost).await.ownership.epoch.0, 1);
}

#[tokio::test]
async fn nodes_of_several_classes_that_fall_silent_together_are_one_mass_failure_for_the_first_of_them() {
    let world = World::new().await;
    let nodes = world.add_nodes(20).await;
    for node in &nodes[8..] {
        world.change(*node, |node| node.class = NodeClass::Sensitive).await;
    }
    let id = world.ask("ada", 8, |new| new.wanted.node = Some(nodes[0])).await;
    world.started(id, at(1)).await;
    world.tick(at(30)).await;
    assert_eq!(world.node(nodes[8]).await.state.availability, Availability::Ready, "its window is longer");
    world.tick(at(91)).await;
    let lost = world.node(nodes[0]).await;
    assert_eq!((lost.state.availability, lost.ownership.braked_until), (Availability::Down, Some(at(691))));
}

#[tokio::test]
async fn nodes_that_are_down_when_the_server_starts_did_not_fall_silent_then() {
    let world = World::new().await;
    let nodes = world.add_nodes(20).await;
    for node in &nodes[1..] {
        world
            .change(*node, |node| {
                node.state = NodeState::new(Status::Offline, Availability::Down);
                node.down_cause = Some(DownCause::HeartbeatLost);
            })
            .await;
    }
    let id = world.ask("ada", 8, |new| new.wanted.node = Some(nodes[0])).await;
    world.started(id, at(1)).await;
    world.fleet.load(at(3600)).await.unwrap();
    world.tick(at(3630)).await;
    world.tick(at(3691)).await;
    let lost = world.node(nodes[0]).await;
    assert_eq!((lost.state.availability, lost.ownership.braked_until), (Availability::Down, None));
}

#[tokio::test]
async fn an_urgent_drain_saves_what_can_be_saved_and_it_goes_on_elsewhere() {
    let world = World::new().await;
    let nodes = world.add_nodes(2).await;
    let save = CheckpointHow::Signal { number: 10, done_file: None };
    let saved = world.ask("ada", 4, |new| new.workload.checkpoint = save).await;
    let stays = world.ask("ada", 4, |_| {}).await;
    let first = world.started(saved, at(1)).await.node.unwrap();
    assert_eq!(world.allocation(stays).await.node, Some(first), "the fuller node is taken first");
    let (node, placed) = (world.node(first).await, world.store.placed_on(first).await.unwrap());
    let known = Known {
        node: &node,
        job: None,
        health: Health::Passed,
        live_allocations: 2,
        site: &world.site,
        placed: &placed,
        has_bmc: false,
    };
    let planned =
        drain(&known, &world.request(at(2)), Drain { urgent: true, ..Drain::default() }, &|| [5; 16]).unwrap();
    assert!(matches!(world.store.commit_one(planned.commit).await.unwrap(), Outcome::Applied { .. }));
    world.agents(at(3), obedient).await;
    world.tick(at(3)).await;
    assert_eq!(world.allocation(saved).await.status, AllocationStatus::Releasing);
    world.agents(at(4), obedient).await;
    world.tick(at(4)).await;
    let moved = world.allocation(saved).await;
    assert_eq!((moved.status, moved.node), (AllocationStatus::Provisioning, nodes.into_iter().find(|id| *id != first)));
    assert_eq!(world.allocation(stays).await.status, AllocationStatus::Active, "it ends in its own time");
    assert_eq!(world.node(first).await.ownership.allocations, 1);
}

#[tokio::test]
async fn what_cannot_be_started_fails_and_says_why_unless_its_policy_queues_it_again() {
    let world = World::new().await;
    let nodes = world.add_nodes(2).await;
    let fails = world.ask("ada", 1, |_| {}).await;
    let always = world.ask("ada", 1, |new| new.requeue = RequeuePolicy::Always).await;
    world.tick(at(1)).await;
    let refuses = |_: &Task| Some(Progress::failed(TaskErrorCode::EffectFailed, "no such program"));
    world.agents(at(1), refuses).await;
    world.allocator.tick(at(2)).await.unwrap();
    let failed = world.allocation(fails).await;
    assert_eq!(failed.status, AllocationStatus::Failed);
    assert_eq!(failed.why, "c00 did not start it: effect_failed: no such program");
    let again = world.allocation(always).await;
    assert_eq!((again.status, again.placements, again.node), (AllocationStatus::Requested, 1, None), "after a pause");
    assert_eq!(again.why, "its next try, 5.0 s after c00 did not start it: effect_failed: no such program");
    assert_eq!(world.node(nodes[0]).await.ownership.allocations, 0);
    let explained = lattice_core::explanation::allocation(&again, None, &[], at(3));
    let next_try = NextAction::WaitUntil { until: at(7), waiting_for: "its next try".to_owned() };
    assert!(explained.next.contains(&next_try), "{explained:?}");
    world.allocator.tick(at(6)).await.unwrap();
    assert_eq!(world.allocation(always).await.placements, 1);
    world.allocator.tick(at(7)).await.unwrap();
    let again = world.allocation(always).await;
    assert_eq!((again.status, again.placements), (AllocationStatus::Provisioning, 2), "it is tried anew");
    assert_eq!(again.node, Some(nodes[1]), "elsewhere, if that can be");
}

/// Tasks are named by their time: the newest of a clock that was set back does not look so.
#[tokio::test]
async fn a_start_that_succeeds_is_seen_though_the_clock_of_the_servers_was_set_back() {
    let world = World::new().await;
    world.add_nodes(1).await;
    let id = world.ask("ada", 1, |new| new.requeue = RequeuePolicy::Always).await;
    let refuses = |_: &Task| Some(Progress::failed(TaskErrorCode::EffectFailed, "no such program"));
    for second in (0..10).map(|nth| 20 + 70 * nth) {
        world.allocator.tick(at(second)).await.unwrap();
        world.agents(at(second), refuses).await;
        world.allocator.tick(at(second + 1)).await.unwrap();
    }
    world.allocator.tick(at(2)).await.unwrap();
    assert_eq!(world.allocation(id).await.placements, 11, "nor does it wait for a time that is far away now");
    world.agents(at(3), obedient).await;
    world.allocator.tick(at(4)).await.unwrap();
    assert_eq!(world.allocation(id).await.status, AllocationStatus::Active);
}

#[tokio::test]
async fn work_finds_room_behind_a_thousand_nodes_in_use() {
    let world = World::new().await;
    let nodes = world.add_nodes(1_002).await;
    // The last two by name.
    let (free, shared) = (nodes[998], nodes[999]);
    for id in nodes.iter().filter(|id| **id != free) {
        let node = world.node(*id).await;
        let mut after = node.successor(at(1));
        after.ownership = node.ownership.with("bob", NodeClass::Standard, if *id == shared { 6 } else { 8 });
        let (action, cause) = (NodeAction::Updated, "test".to_owned());
        let change = NodeChange { after, before: Some(node.state), action, cause, detail: String::new() };
        world.commit(vec![Change::Node(Box::new(change))], at(1)).await;
    }
    let big = world.ask("ada", 8, |_| {}).await;
    world.tick(at(2)).await;
    assert_eq!(world.allocation(big).await.node, Some(free), "an idle one is always seen");
    let small = world.ask("bob", 2, |_| {}).await;
    world.tick(at(3)).await;
    assert_eq!(world.allocation(small).await.status, AllocationStatus::Requested);
    world.tick(at(33)).await;
    assert_eq!(world.allocation(small).await.node, Some(shared), "all of those in use are looked at now and then");
}

#[tokio::test]
async fn what_waits_in_vain_keeps_nobody_behind_it_from_a_node() {
    let world = World::new().await;
    let nodes = world.add_nodes(1).await;
    for _ in 0..2_001 {
        world.ask("bob", 9, |_| {}).await;
    }
    let fits = world.ask("ada", 8, |_| {}).await;
    world.tick(at(2)).await;
    assert_eq!(world.allocation(fits).await.status, AllocationStatus::Requested);
    world.tick(at(3)).await;
    assert_eq!(world.allocation(fits).await.node, Some(nodes[0]), "the queue is looked at page after page");
}

#[tokio::test]
async fn an_allocation_that_is_being_ended_is_not_started_any_more() {
    let world = World::new().await;
    let nodes = world.add_nodes(1).await;
    let id = world.ask("ada", 1, |_| {}).await;
    world.tick(at(1)).await;
    let (one, row) = (world.allocation(id).await, world.node(nodes[0]).await);
    assert_eq!(one.status, AllocationStatus::Provisioning);
    let current = async || {
        let (tasks, placed) = tokio::join!(world.store.open_tasks(nodes[0], 10), world.store.placed_on(nodes[0]));
        let placed = placed.unwrap();
        tasks.unwrap().iter().map(|task| (task.input.kind(), allocation::is_current(task, &placed))).collect::<Vec<_>>()
    };
    assert_eq!(current().await, [(TaskKind::AllocationStart, true)]);
    let release = allocation::release(&world.request(at(1)), &one, Some(&row), [9; 16]).unwrap().unwrap();
    assert!(matches!(world.store.commit_one(release).await.unwrap(), Outcome::Applied { .. }));
    let mut both = current().await;
    both.sort();
    assert_eq!(both, [(TaskKind::AllocationStart, false), (TaskKind::AllocationStop, true)]);
}
