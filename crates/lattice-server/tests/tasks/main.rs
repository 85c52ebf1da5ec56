//! Tasks end to end: a whole server, the agent's own code over TLS, hands that only remember.
#![allow(clippy::unwrap_used, reason = "a test stops at what it cannot do")]

mod wipes;
mod world;

use std::time::Duration;

use lattice_agent::Item;
use lattice_core::agent::task::{
    AllocationStart, AllocationStop, DrainMode, GpuScrub, HeartbeatCheck, Limits, NodeDrain, NodeReboot, Progress,
    StopResult, TaskErrorCode, TaskInput, TaskKind, TaskOutput, TaskStatus,
};
use lattice_core::ids::{AllocationId, OwnershipEpoch, uuid_v7};
use lattice_core::time::Timestamp;
use lattice_store::TaskFilter;
use world::{World, until};

fn allocation(number: u8) -> AllocationId {
    AllocationId::new(uuid_v7(Timestamp::from_millis(1), [number; 10]))
}

fn start(number: u8) -> TaskInput {
    TaskInput::AllocationStart(AllocationStart {
        allocation: allocation(number),
        ownership_epoch: OwnershipEpoch(1),
        argv: vec!["/bin/work".to_owned()],
        env: [("SECRETISH".to_owned(), "hush".to_owned())].into(),
        directory: None,
        user: None,
        limits: Limits::default(),
        mounts: Vec::new(),
    })
}

fn stop(number: u8) -> TaskInput {
    TaskInput::AllocationStop(AllocationStop {
        allocation: allocation(number),
        ownership_epoch: OwnershipEpoch(1),
        grace_ms: 10,
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_is_delivered_done_and_reported_and_shown() {
    let world = World::start().await;
    world.ready().await;
    let begun = std::time::Instant::now();
    let check = world.issue("check", TaskInput::HeartbeatCheck(HeartbeatCheck {})).await;
    let done = world.over(check).await;
    assert_eq!(done.status, TaskStatus::Succeeded, "{done:?}");
    // One that nobody wakes is parked for 9 s.
    assert!(begun.elapsed() < Duration::from_secs(5), "the parked heartbeat was woken");
    let Some(Progress::Succeeded { output: TaskOutput::HeartbeatCheck { boot_id, running, .. } }) =
        done.report.map(|report| report.progress)
    else {
        panic!("another report")
    };
    assert_eq!((boot_id.as_str(), running.len()), ("boot-1", 0));
    let started = world.over(world.issue("start", start(1)).await).await;
    assert_eq!(started.status, TaskStatus::Succeeded);
    assert_eq!(world.hands.running(), [allocation(1)]);
    let stopped = world.over(world.issue("stop", stop(1)).await).await;
    let report = stopped.report.unwrap().progress;
    let graceful = TaskOutput::Stopped { how: StopResult::Graceful, exit: None };
    assert_eq!(report, Progress::Succeeded { output: graceful });
    assert!(world.hands.running().is_empty());
    let list = world.get(&format!("nodes/{}/tasks", world.node.id)).await;
    let kinds: Vec<_> = list["items"].as_array().unwrap().iter().map(|row| row["kind"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["allocation.stop", "allocation.start", "node.heartbeat_check"]);
    let shown = world.get(&format!("tasks/{}", started.id)).await;
    assert_eq!(shown["report"]["state"], "succeeded");
    assert!(!shown.to_string().contains("hush") && shown.to_string().contains("SECRETISH"), "{shown}");
    let timeline = world.get(&format!("nodes/{}/timeline", world.node.id)).await;
    assert!(timeline.to_string().contains("allocation.start succeeded"), "{timeline}");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_host_cannot_do_is_refused_with_its_code() {
    let world = World::start().await;
    let wipe = world.over(world.issue("wipe", TaskInput::GpuScrub(GpuScrub { gpus: 1 })).await).await;
    assert_eq!(world::code(&wipe), Some(TaskErrorCode::MissingCapability));
    world.over(world.issue("drain", TaskInput::NodeDrain(NodeDrain { mode: DrainMode::Begin })).await).await;
    let refused = world.over(world.issue("start", start(1)).await).await;
    assert_eq!(world::code(&refused), Some(TaskErrorCode::Draining));
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crash_between_effect_and_report_is_settled_by_looking() {
    let mut world = World::start().await;
    for (key, number, happened) in [("done", 1, true), ("not-done", 2, false)] {
        world.hands.hang_after_start(happened);
        world.own(allocation(number)).await;
        let task = world.issue(key, start(number)).await;
        until("it is begun", || world.hands.hangs()).await;
        world.kill_agent().await;
        world.hands.hang_after_start(false);
        world.hands.release();
        world.start_agent().await;
        let over = world.over(task).await;
        let starts = world.hands.starts(allocation(number));
        match happened {
            true => assert_eq!((over.status, starts), (TaskStatus::Succeeded, 1), "{over:?}"),
            false => {
                assert_eq!((world::code(&over), starts), (Some(TaskErrorCode::Interrupted), 0), "{over:?}");
            }
        }
    }
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_node_does_not_own_is_ended_before_it_is_heard_and_what_ended_is_over() {
    let mut world = World::start().await;
    world.own(allocation(1)).await;
    for number in [1, 2] {
        assert_eq!(
            world.over(world.issue(&format!("start-{number}"), start(number)).await).await.status,
            TaskStatus::Succeeded
        );
    }
    world.kill_agent().await;
    world.start_agent().await;
    until("the one that nobody owns is ended", || world.hands.running() == [allocation(1)]).await;
    world.hands.end(allocation(1));
    let over = world.allocation_over(allocation(1)).await;
    assert!(over.why.contains("ended by itself"), "{over:?}");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reboot_is_reported_by_the_agent_of_the_next_boot() {
    let mut world = World::start().await;
    let task = world.issue("reboot", TaskInput::NodeReboot(NodeReboot { boot_id: "boot-1".to_owned() })).await;
    until("it is asked for", || world.hands.reboots() == 1).await;
    world.kill_agent().await;
    world.boot("boot-2");
    world.start_agent().await;
    let over = world.over(task).await;
    let rebooted = TaskOutput::Rebooted { before: "boot-1".to_owned(), after: "boot-2".to_owned() };
    assert_eq!(over.report.unwrap().progress, Progress::Succeeded { output: rebooted });
    assert_eq!(world.hands.reboots(), 1, "once");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tasks_wait_for_an_agent_that_is_away_and_expire_when_it_stays_away() {
    let mut world = World::start().await;
    world.kill_agent().await;
    let waits = world.issue("waits", TaskInput::HeartbeatCheck(HeartbeatCheck {})).await;
    world.start_agent().await;
    assert_eq!(world.over(waits).await.status, TaskStatus::Succeeded);
    world.kill_agent().await;
    let short = world.issue_for("short", TaskInput::HeartbeatCheck(HeartbeatCheck {}), Duration::from_millis(50)).await;
    assert_eq!(world.over(short).await.status, TaskStatus::Expired);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_are_replaced_while_agents_run_and_the_one_before_is_trusted_as_long_as_it_must() {
    let world = World::start().await;
    let before = world.get("task-signing-keys").await;
    assert_eq!(before["retired"].as_array().unwrap().len(), 0);
    let after = world.post("task-signing-keys/rotate", serde_json::json!({"reason": "yearly"})).await;
    assert_ne!(after["current"]["key_id"], before["current"]["key_id"]);
    assert_eq!(after["retired"][0]["key_id"], before["current"]["key_id"]);
    let task = world.over(world.issue("check", TaskInput::HeartbeatCheck(HeartbeatCheck {})).await).await;
    assert_eq!(task.status, TaskStatus::Succeeded, "the agent heard of the new key: {task:?}");
    let kept = world.agent_storage().read(Item::Identity).await.unwrap().unwrap();
    let kept: serde_json::Value = serde_json::from_slice(&kept).unwrap();
    assert_eq!(kept["issued"]["task_signing_keys"][0]["key_id"], after["current"]["key_id"]);
    assert_eq!(kept["issued"]["task_signing_keys"].as_array().unwrap().len(), 2);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operator_asks_for_a_look_and_withdraws_what_waits() {
    let mut world = World::start().await;
    let asked = world.post(&format!("nodes/{}/check", world.node.hostname), serde_json::json!({})).await;
    let id = asked["id"].as_str().unwrap().parse().unwrap();
    assert_eq!(world.over(id).await.status, TaskStatus::Succeeded);
    world.kill_agent().await;
    let asked = world.post(&format!("nodes/{}/check", world.node.hostname), serde_json::json!({})).await;
    let id = asked["id"].as_str().unwrap();
    let gone = world.post(&format!("tasks/{id}/cancel"), serde_json::json!({"reason": "no need"})).await;
    assert_eq!(gone["status"], "cancelled");
    let over = world.refused(&format!("tasks/{}/cancel", world.last(TaskStatus::Succeeded).await)).await;
    assert_eq!((over.0, over.1.as_str()), (409, "LAT0070"));
    let metrics = world.text("/metrics").await;
    assert!(metrics.contains("lattice_tasks_total{kind=\"node.heartbeat_check\",event=\"succeeded\"}"), "{metrics}");
    let filter = TaskFilter { kinds: vec![TaskKind::HeartbeatCheck], ..TaskFilter::default() };
    assert_eq!(world.store().tasks(&filter, &lattice_store::PageRequest::first(10)).await.unwrap().items.len(), 2);
    world.stop().await;
}
