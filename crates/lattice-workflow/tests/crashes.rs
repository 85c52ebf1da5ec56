//! Each job, with a crash after every commit and before every act: the end is the same, and nothing is done twice.
#![allow(clippy::unwrap_used, reason = "a test stops at what it cannot do")]

mod harness;

use std::collections::BTreeMap;

use std::time::Duration;

use harness::{Driven, World};
use lattice_core::agent::task::{CheckpointResult, Progress, StopResult, TaskInput, TaskOutput, TaskReport};
use lattice_core::allocation::{AllocationStatus, RequeuePolicy, Wanted, Workload};
use lattice_core::change::Change;
use lattice_core::command::allocation::{self, NewAllocation};
use lattice_core::command::drain::{Deadline, Drain, Redrain, redrain};
use lattice_core::command::job::{Asked, act};
use lattice_core::command::{node as commands, task};
use lattice_core::failure::FailureClass;
use lattice_core::ids::{AllocationId, NodeId};
use lattice_core::job::{Decisions, Disposal, Job, JobInput, JobStatus, OperatorAction, StageEventStatus};
use lattice_core::node::availability::AvailabilityEvent;
use lattice_core::node::machine::{Health, NodeEvent};
use lattice_core::node::status::Owner;
use lattice_core::node::{Availability, NodeClass, NodeState, Status};
use lattice_providers::machine::fake::FakeCall;
use lattice_providers::provider::{MachineProvider, NewInstance};
use lattice_store::{PageRequest, TaskFilter};
use lattice_workflow::crash::CrashPlan;
use serde_json::json;

const NAME: &str = "c07u43";

fn lxd() -> JobInput {
    JobInput::OnboardLxd { hostname: NAME.to_owned() }
}

async fn onboarded(world: &World, crash: CrashPlan) -> Driven {
    let job = world.onboard(NAME, lxd()).await;
    world.drive(job.id, crash, async |world| world.agent_tries(job.id).await).await
}

async fn run_on(world: &World, node: NodeId, input: JobInput, crash: CrashPlan) -> Driven {
    let job = world.job_on(node, input).await;
    world.drive(job.id, crash, async |_| {}).await
}

/// Create, start and delete happened at most once each, whatever died in between.
fn check_once(world: &World) {
    let mut counts: BTreeMap<(FakeCall, String), u32> = BTreeMap::new();
    for effect in world.fake.effects() {
        if matches!(effect.call, FakeCall::Create | FakeCall::Start | FakeCall::Delete) {
            *counts.entry((effect.call, effect.machine)).or_default() += 1;
        }
    }
    assert!(counts.values().all(|count| *count == 1), "{counts:?}");
}

/// Runs `job` with a crash at each of its places and hands each end to `check`.
async fn at_every_place(run: impl AsyncFn(CrashPlan) -> Driven) -> u64 {
    let places = run(CrashPlan::never()).await.places;
    for place in 0..places {
        let driven = run(CrashPlan::at(place)).await;
        assert_eq!(driven.crashes, 1, "place {place} of {places}");
    }
    places
}

#[tokio::test]
async fn an_onboarding_survives_a_crash_at_every_place() {
    let places = at_every_place(async |crash| {
        let world = World::lxd().await;
        let driven = onboarded(&world, crash).await;
        assert_eq!(driven.job.state.status, JobStatus::Completed, "{:?}", driven.job.state);
        let node = world.node(driven.job.node).await;
        assert_eq!(node.state, NodeState::new(Status::Active, Availability::Ready));
        assert_eq!((node.provider_ref.as_deref(), node.owning_job), (Some(NAME), None));
        assert!(world.secrets.paths().is_empty(), "what was kept secret is forgotten");
        check_once(&world);
        driven
    })
    .await;
    assert!(places >= 6, "an onboarding has at least so many places to die at, not {places}");
}

#[tokio::test]
async fn a_retirement_and_a_removal_survive_a_crash_at_every_place() {
    for which in 0..2 {
        at_every_place(async |crash| {
            let mut crash = [Some(crash)];
            let mut plan = |now: usize| if now == which { crash[0].take().unwrap() } else { CrashPlan::never() };
            let world = World::lxd().await;
            let node = onboarded(&world, CrashPlan::never()).await.job.node;
            let retired = run_on(&world, node, JobInput::Retire { disposal: Disposal::Keep }, plan(0)).await;
            assert_eq!(retired.job.state.status, JobStatus::Completed, "{:?}", retired.job.state);
            assert_eq!(world.node(node).await.state, NodeState::new(Status::Retired, Availability::Drained));
            let removed = run_on(&world, node, JobInput::Remove, plan(1)).await;
            assert_eq!(removed.job.state.status, JobStatus::Completed, "{:?}", removed.job.state);
            assert_eq!(world.node(node).await.state, NodeState::new(Status::Deleted, Availability::Unknown));
            check_once(&world);
            [retired, removed].into_iter().nth(which).unwrap()
        })
        .await;
    }
}

/// One allocation that runs on the node, of each policy given.
async fn running(world: &World, node: NodeId, policies: &[RequeuePolicy]) -> Vec<AllocationId> {
    let mut all = Vec::new();
    for policy in policies {
        let workload: Workload = serde_json::from_value(json!({
            "argv": ["/usr/bin/train"],
            "checkpoint": if *policy == RequeuePolicy::Never { json!("none") } else { json!({"signal": {"number": 10}}) },
        }))
        .unwrap();
        let class = NodeClass::Standard;
        let new = NewAllocation { user: "ada".into(), class, wanted: Wanted::default(), workload, requeue: *policy };
        let (one, commit) = allocation::request(&world.request(), new).unwrap();
        world.store.commit_one(commit).await.unwrap();
        let place = allocation::place(&world.request(), &one, &world.node(node).await, [1; 16]).unwrap();
        world.store.commit_one(place).await.unwrap();
        all.push(one.id);
    }
    agent_works(world, node).await;
    all
}

/// The agent does what it was asked, and the allocator follows.
async fn agent_works(world: &World, node: NodeId) {
    for open in world.store.open_tasks(node, 100).await.unwrap() {
        let output = match &open.input {
            TaskInput::AllocationStart(_) => {
                TaskOutput::Started { pid: 7, start_ticks: 1, cgroup: "a.scope".into(), not_limited: Vec::new() }
            }
            TaskInput::AllocationStop(_) => TaskOutput::Stopped { how: StopResult::Graceful, exit: None },
            TaskInput::AllocationCheckpoint(_) => TaskOutput::Checkpoint { result: CheckpointResult::Done },
            other => panic!("not asked here: {other:?}"),
        };
        let (at, progress) = (world.request().now, Progress::Succeeded { output });
        let reported = task::reported(&world.request(), &open, &TaskReport { task: open.id, at, progress }).unwrap();
        world.commit(vec![Change::Task(Box::new(reported.unwrap()))], vec![]).await;
        let done = world.store.task(open.id).await.unwrap().unwrap();
        for one in world.store.placed_on(node).await.unwrap() {
            let row = world.node(node).await;
            if let Some(commit) = allocation::settle(&world.request(), &one, &row, std::slice::from_ref(&done), [2; 16])
            {
                world.store.commit_one(commit).await.unwrap();
            }
        }
    }
    let left = world.store.placed_on(node).await.unwrap().len();
    world.work.live.lock().unwrap().insert(node, u32::try_from(left).unwrap());
}

#[tokio::test]
async fn past_its_deadline_a_drain_stops_what_runs_once_and_its_policy_says_whether_it_goes_on() {
    at_every_place(async |crash| {
        let world = World::lxd().await;
        let node = onboarded(&world, CrashPlan::never()).await.job.node;
        let all = running(&world, node, &[RequeuePolicy::OnNodeFailure, RequeuePolicy::Never]).await;
        let job =
            world.job_on(node, JobInput::Drain { urgent: false, deadline_ms: Some(60_000), allocations: 2 }).await;
        let deadline = job.created_at + Duration::from_secs(60);
        let driven = world
            .drive(job.id, crash, async |world| {
                if world.request().now < deadline {
                    let placed = world.store.placed_on(node).await.unwrap();
                    assert!(placed.iter().all(|one| one.status == AllocationStatus::Active), "not before the deadline");
                } else {
                    agent_works(world, node).await;
                }
            })
            .await;
        assert_eq!(driven.job.state.status, JobStatus::Completed, "{:?}", driven.job.state);
        assert_eq!(world.node(node).await.state.availability, Availability::Drained);
        let mut ends = Vec::new();
        for id in &all {
            ends.push(world.store.allocation(*id).await.unwrap().unwrap().status);
        }
        assert_eq!(ends, [AllocationStatus::Requested, AllocationStatus::Released]);
        driven
    })
    .await;
}

/// `lattice node drain NODE --urgent --deadline 60s`, of a drain that runs.
async fn change_drain(world: &World, job: &Job, how: Drain) -> Redrain {
    let (node, placed) = (world.node(job.node).await, world.store.placed_on(job.node).await.unwrap());
    let (job, health) = (world.job(job.id).await, Health::NotReported);
    let known = commands::Known {
        node: &node,
        job: Some(&job),
        health,
        live_allocations: 2,
        site: &world.site,
        placed: &placed,
        has_bmc: false,
    };
    let changed = redrain(&known, &world.request(), how, &|| [3; 16]).unwrap().expect("it runs");
    if let Redrain::Changed(changed) = &changed {
        world.commit(changed.planned.commit.changes.clone(), changed.planned.commit.guards.clone()).await;
    }
    changed
}

#[tokio::test]
async fn a_drain_that_runs_becomes_urgent_and_gets_a_deadline_wherever_the_server_dies() {
    at_every_place(async |crash| {
        let world = World::lxd().await;
        let node = onboarded(&world, CrashPlan::never()).await.job.node;
        let all = running(&world, node, &[RequeuePolicy::OnNodeFailure, RequeuePolicy::Never]).await;
        let job = world.job_on(node, JobInput::Drain { urgent: false, deadline_ms: None, allocations: 2 }).await;
        let urgent = Drain { urgent: true, deadline: Deadline::Unsaid };
        let mut deadline = None;
        let mut turns = 0;
        let driven = world
            .drive(job.id, crash, async |world| {
                turns += 1;
                if turns == 3 {
                    let how = Drain { deadline: Deadline::After(Duration::from_secs(60)), ..urgent };
                    assert!(matches!(change_drain(world, &job, how).await, Redrain::Changed(_)));
                    assert!(matches!(change_drain(world, &job, urgent).await, Redrain::AlreadySo(_)));
                    deadline = Some(world.request().now + Duration::from_secs(60));
                }
                agent_works(world, node).await;
                let never = world.store.allocation(all[1]).await.unwrap().unwrap();
                if deadline.is_none_or(|at| world.request().now < at) {
                    assert_eq!(never.status, AllocationStatus::Active, "not before the deadline");
                }
            })
            .await;
        assert_eq!(driven.job.state.status, JobStatus::Completed, "{:?}", driven.job.state);
        assert_eq!(driven.job.drain_deadline(), deadline);
        assert_eq!(world.node(node).await.state.availability, Availability::Drained);
        let filter = TaskFilter { node: Some(node), ..TaskFilter::default() };
        let tasks = world.store.tasks(&filter, &PageRequest::first(100)).await.unwrap().items;
        let asked = tasks.iter().filter(|task| matches!(task.input, TaskInput::AllocationCheckpoint(_))).count();
        assert_eq!(asked, 1, "who can save its state is asked once");
        let mut ends = Vec::new();
        for id in &all {
            ends.push(world.store.allocation(*id).await.unwrap().unwrap().status);
        }
        assert_eq!(ends, [AllocationStatus::Requested, AllocationStatus::Released]);
        driven
    })
    .await;
}

#[tokio::test]
async fn a_drain_survives_a_crash_at_every_place_and_waits_for_the_last_allocation() {
    at_every_place(async |crash| {
        let world = World::lxd().await;
        let node = onboarded(&world, CrashPlan::never()).await.job.node;
        world.work.live.lock().unwrap().insert(node, 2);
        let job = world.job_on(node, JobInput::Drain { urgent: false, deadline_ms: None, allocations: 0 }).await;
        let mut turns = 0;
        let driven = world
            .drive(job.id, crash, async |world| {
                turns += 1;
                if turns == 4 {
                    world.work.live.lock().unwrap().insert(node, 0);
                }
            })
            .await;
        assert_eq!(driven.job.state.status, JobStatus::Completed, "{:?}", driven.job.state);
        assert_eq!(world.node(node).await.state, NodeState::new(Status::Active, Availability::Drained));
        driven
    })
    .await;
}

#[tokio::test]
async fn a_manual_onboarding_waits_for_its_agent_and_ends_active() {
    let world = World::manual().await;
    let job = world.onboard(NAME, JobInput::OnboardManual { hostname: NAME.to_owned() }).await;
    let mut turns = 0;
    let driven = world
        .drive(job.id, CrashPlan::never(), async |world| {
            turns += 1;
            if turns == 5 {
                assert_eq!(world.node(job.node).await.state.status, Status::BootstrapIssued);
                let wait = world.job(job.id).await.state.wait.unwrap();
                assert_eq!(wait.reason, "the agent of c07u43 to enrol");
                assert!(world.agent_comes(job.id).await);
            }
        })
        .await;
    assert_eq!(driven.job.state.status, JobStatus::Completed, "{:?}", driven.job.state);
    assert_eq!(world.node(job.node).await.state, NodeState::new(Status::Active, Availability::Ready));
}

#[tokio::test]
async fn a_look_that_finds_nothing_new_is_not_written() {
    let world = World::manual().await;
    let job = world.onboard(NAME, JobInput::OnboardManual { hostname: NAME.to_owned() }).await;
    let mut generations = Vec::new();
    let mut turns = 0;
    world
        .drive(job.id, CrashPlan::never(), async |world| {
            turns += 1;
            generations.push(world.job(job.id).await.generation);
            if turns == 20 {
                world.agent_comes(job.id).await;
            }
        })
        .await;
    generations.dedup();
    assert_eq!(generations.len(), 2, "created, waiting: {generations:?}");
}

#[tokio::test]
async fn a_token_that_nobody_used_is_extended_twice_and_the_job_asks_for_help_then() {
    let world = World::lxd().await;
    let job = world.onboard(NAME, lxd()).await;
    let driven = world.drive(job.id, CrashPlan::never(), async |_| {}).await;
    assert_eq!(driven.job.state.status, JobStatus::FailedManualIntervention, "{:?}", driven.job.state);
    let failure = driven.job.state.failure.as_ref().unwrap();
    assert_eq!(failure.error_code, "failed_enrollment");
    let token = world.store.enrollment_token(driven.job.outputs.token.unwrap()).await.unwrap().unwrap();
    assert_eq!(token.refreshes, 1, "the second window extends it; it did not run out");
    assert_eq!(world.node(job.node).await.state.status, Status::Enrolling, "its OS is left alone");
}

#[tokio::test]
async fn late_enrolment_is_adopted_after_failure() {
    let world = World::lxd().await;
    let job = world.onboard(NAME, lxd()).await;
    world.drive(job.id, CrashPlan::never(), async |_| {}).await;
    assert!(world.agent_comes(job.id).await);
    let driven = world.drive(job.id, CrashPlan::never(), async |_| {}).await;
    assert_eq!(driven.job.state.status, JobStatus::Reconciled, "{:?}", driven.job.state);
    assert_eq!(world.node(job.node).await.state, NodeState::new(Status::Active, Availability::Ready));
}

#[tokio::test]
async fn a_manual_node_is_removed_only_when_it_is_silent_revoked_and_declared_gone() {
    let world = World::manual().await;
    let job = world.onboard(NAME, JobInput::OnboardManual { hostname: NAME.to_owned() }).await;
    let onboarded = world.drive(job.id, CrashPlan::never(), async |world| world.agent_tries(job.id).await).await;
    let node = onboarded.job.node;
    run_on(&world, node, JobInput::Retire { disposal: Disposal::Keep }, CrashPlan::never()).await;
    world.work.heard.lock().unwrap().insert(node, harness::START + std::time::Duration::from_secs(3_600 * 24));
    let removal = world.job_on(node, JobInput::Remove).await;
    let mut reasons: Vec<String> = Vec::new();
    let stuck = world
        .drive(removal.id, CrashPlan::never(), async |world| {
            reasons.extend(world.job(removal.id).await.state.wait.map(|wait| wait.reason));
        })
        .await;
    assert!(reasons.iter().any(|reason| reason.contains("systemctl disable --now lattice-agent")), "{reasons:?}");
    assert_eq!(stuck.job.state.failure.unwrap().error_code, "uninstall_timeout");
    assert_eq!(world.node(node).await.state.status, Status::Retired, "a failed removal keeps the identity");
}

#[tokio::test]
async fn the_history_of_stages_tells_each_stage_once() {
    let world = World::lxd().await;
    let driven = onboarded(&world, CrashPlan::never()).await;
    let events = world.store.stage_events(driven.job.id).await.unwrap();
    let started: Vec<_> =
        events.iter().filter(|one| one.event.status == StageEventStatus::Started).map(|one| one.event.stage).collect();
    let mut unique = started.clone();
    unique.dedup();
    assert_eq!(started, unique);
    assert_eq!(started.len(), 5, "{started:?}");
}

#[tokio::test]
async fn a_cancelled_onboarding_leaves_nothing_behind() {
    let world = World::lxd().await;
    let job = world.onboard(NAME, lxd()).await;
    world.drive(job.id, CrashPlan::never(), async |_| {}).await;
    let stopped: Job = world.job(job.id).await;
    let node = world.node(job.node).await;
    let asked = Asked { action: OperatorAction::Cancel, decisions: Decisions::default(), observed: None };
    let planned = act(&world.request(), &stopped, &node, &world.site, &asked).unwrap().unwrap();
    world.commit(planned.commit.changes, planned.commit.guards).await;
    let driven = world.drive(job.id, CrashPlan::never(), async |_| {}).await;
    assert_eq!(driven.job.state.status, JobStatus::Cancelled, "{:?}", driven.job.state);
    assert_eq!(world.node(job.node).await.state.status, Status::Deleted);
    assert_eq!(world.fake.effects().last().map(|effect| effect.call), Some(FakeCall::Delete));
    assert!(world.secrets.paths().is_empty());
}

/// The node's heartbeat is lost.
async fn lose(world: &World, node: NodeId) {
    use AvailabilityEvent::{GraceExpired, HeartbeatMissed};
    let events = [HeartbeatMissed, GraceExpired].map(NodeEvent::Availability);
    world.move_node(node, Owner::Detector, &events).await;
}

/// Asks for a reboot as the server does, and gives the job.
async fn reboot(world: &World, node: NodeId) -> Job {
    let row = world.node(node).await;
    let health = Health::NotReported;
    let known = commands::Known {
        node: &row,
        job: None,
        health,
        live_allocations: 0,
        site: &world.site,
        placed: &[],
        has_bmc: false,
    };
    let planned = commands::reboot(&known, &world.request(), None).unwrap();
    let job = planned.job.expect("a job reboots it");
    world.commit(planned.commit.changes, planned.commit.guards).await;
    assert_eq!(world.node(node).await.state, row.state, "it moves when its power is off, not before");
    world.job(job).await
}

#[tokio::test]
async fn a_reboot_survives_a_crash_at_every_place_and_switches_once() {
    at_every_place(async |crash| {
        let world = World::lxd().await;
        let node = onboarded(&world, CrashPlan::never()).await.job.node;
        lose(&world, node).await;
        let before = world.fake.effects().len();
        let job = reboot(&world, node).await;
        let driven = world
            .drive(job.id, crash, async |world| {
                let switched = world.fake.effects()[before..].iter().any(|effect| effect.call == FakeCall::Exec);
                if switched && world.node(node).await.state.availability == Availability::Booting {
                    let healthy = [NodeEvent::Availability(AvailabilityEvent::HealthPassed)];
                    world.move_node(node, Owner::Detector, &healthy).await;
                }
            })
            .await;
        assert_eq!(driven.job.state.status, JobStatus::Completed, "{:?}", driven.job.state);
        let row = world.node(node).await;
        assert_eq!((row.state, row.owning_job), (NodeState::new(Status::Active, Availability::Ready), None));
        let calls: Vec<FakeCall> = world.fake.effects()[before..].iter().map(|effect| effect.call).collect();
        let switched: Vec<_> = calls.into_iter().filter(|call| *call != FakeCall::Exec).collect();
        assert_eq!(switched, [FakeCall::Stop, FakeCall::Start]);
        driven
    })
    .await;
}

#[tokio::test]
async fn a_node_that_came_back_by_itself_is_not_switched_off() {
    let world = World::lxd().await;
    let node = onboarded(&world, CrashPlan::never()).await.job.node;
    lose(&world, node).await;
    let before = world.fake.effects().len();
    let job = reboot(&world, node).await;
    world.move_node(node, Owner::Detector, &[NodeEvent::Availability(AvailabilityEvent::HealthPassed)]).await;
    let driven = world.drive(job.id, CrashPlan::never(), async |_| {}).await;
    assert_eq!(driven.job.state.status, JobStatus::Completed, "{:?}", driven.job.state);
    assert_eq!(world.fake.effects().len(), before, "it was left on");
}

#[tokio::test]
async fn an_instance_that_another_job_made_is_neither_stopped_nor_deleted() {
    let world = World::lxd().await;
    let node = onboarded(&world, CrashPlan::never()).await.job.node;
    run_on(&world, node, JobInput::Retire { disposal: Disposal::Keep }, CrashPlan::never()).await;
    // Somebody replaced the instance by another one of the same name.
    world.fake.vanish(NAME);
    let new = NewInstance {
        name: NAME.to_owned(),
        image: "busybox".to_owned(),
        profiles: Vec::new(),
        config: BTreeMap::new(),
        user_data: None,
        loopback_port: None,
    };
    world.fake.create(&new, "onboarding_lxd/somebody-else/g0/r0/create_lxd_instance").await.unwrap();
    let removed = run_on(&world, node, JobInput::Remove, CrashPlan::never()).await;
    let failure = removed.job.state.failure.unwrap();
    assert_eq!((failure.error_code.as_str(), failure.class), ("instance_not_ours", FailureClass::StateAmbiguity));
    assert!(world.fake.effects().iter().all(|effect| effect.call != FakeCall::Delete));
    assert_eq!(world.node(node).await.state.status, Status::Retired);
}
