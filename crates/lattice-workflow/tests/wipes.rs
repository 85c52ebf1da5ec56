//! The wipe of a node, with a crash after every commit and before every act, and with each thing that can go wrong.
#![allow(clippy::unwrap_used, reason = "a test stops at what it cannot do")]

#[allow(dead_code, reason = "each test program uses a part of it")]
mod harness;

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU32, Ordering};

use harness::{Driven, World};
use lattice_core::actor::Actor;
use lattice_core::agent::task::{
    Progress, Task, TaskErrorCode, TaskInput, TaskKind, TaskOutput, TaskReport, WipeEvidence, WipeOutput,
};
use lattice_core::change::{Change, NodeAction, NodeChange};
use lattice_core::command::job::{Asked, act};
use lattice_core::command::node::{Known, ResumeNode};
use lattice_core::command::{Refused, task, wipe};
use lattice_core::ids::{EventSeq, JobId, NodeId};
use lattice_core::job::{Decisions, JobInput, JobStatus, OperatorAction, StageName};
use lattice_core::node::availability::AvailabilityEvent;
use lattice_core::node::machine::{Health, NodeEvent};
use lattice_core::node::status::Owner;
use lattice_core::node::{Availability, DiskFact, DownCause, GpuFact, HoldKind, HostFacts, Node, NodeState, Status};
use lattice_core::site::{SensitivePolicy, Site};
use lattice_core::sku::Sku;
use lattice_core::wipe::{CertificateFile, WipeTarget};
use lattice_providers::machine::fake::FakeCall;
use lattice_store::{EventFilter, PageRequest, TaskFilter, WipeFilter};
use lattice_workflow::crash::CrashPlan;

const NAME: &str = "c07u43";
const READY: NodeState = NodeState::new(Status::Active, Availability::Ready);
const GIVEN_UP: NodeState = NodeState::new(Status::Quarantined, Availability::Down);

/// How the host behaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Play {
    Good,
    /// A device of this kind refuses.
    Refuses(TaskKind),
    /// A device of this kind says that it is done, and shows nothing for it.
    WithoutEvidence(TaskKind),
    /// One GPU is gone from the bus.
    GpuGone,
    /// Its agent says nothing about tasks of this kind.
    SilentAbout(TaskKind),
    /// It comes back in the same boot.
    SameBoot,
    /// It never comes back.
    StaysAway,
}

struct Host {
    node: NodeId,
    gpus: u32,
    drives: u32,
    /// Calls of the provider before the wipe.
    before: usize,
    boots: AtomicU32,
}

impl Host {
    async fn onboarded(world: &World, gpus: u32, drives: u32) -> Self {
        let sku = Sku { gpus, ..sku() };
        world.commit(vec![Change::Sku(sku)], vec![]).await;
        let job = world.onboard(NAME, JobInput::OnboardLxd { hostname: NAME.to_owned() }).await;
        let driven = world.drive(job.id, CrashPlan::never(), async |world| world.agent_tries(job.id).await).await;
        let node = driven.job.node;
        let facts = facts(gpus, drives, false);
        world.commit(vec![Change::HostFacts { node, facts }], vec![]).await;
        let host = Self { node, gpus, drives, before: world.fake.effects().len(), boots: AtomicU32::new(1) };
        host.boot(world, 1).await;
        host
    }

    async fn change(&self, world: &World, change: impl FnOnce(&mut Node)) {
        let node = world.node(self.node).await;
        let mut after = node.successor(world.request().now);
        change(&mut after);
        let change = NodeChange {
            after,
            before: Some(node.state),
            action: NodeAction::Updated,
            cause: "test".to_owned(),
            detail: String::new(),
        };
        world.commit(vec![Change::Node(Box::new(change))], vec![]).await;
    }

    async fn boot(&self, world: &World, number: u32) {
        self.change(world, |node| node.boot_id = Some(format!("boot-{number}"))).await;
    }

    /// Sensitive work on it ended.
    async fn released(&self, world: &World) {
        let now = world.request().now;
        self.change(world, |node| node.require_wipe("it ended".to_owned(), &Actor::system("test"), now)).await;
    }

    /// Its wipe, as the watch creates it.
    async fn wipe(&self, world: &World) -> JobId {
        let node = world.node(self.node).await;
        let planned = wipe::due(&world.request(), &node, &world.site, false).expect("it is due");
        let job = planned.job.unwrap();
        world.commit(planned.commit.changes, planned.commit.guards).await;
        let node = world.node(self.node).await;
        assert!(wipe::due(&world.request(), &node, &world.site, false).is_none(), "one at a time");
        job
    }

    fn known<'a>(&self, node: &'a Node, job: Option<&'a lattice_core::job::Job>, site: &'a Site) -> Known<'a> {
        Known { node, job, health: Health::NotReported, live_allocations: 0, site, placed: &[], has_bmc: false }
    }

    /// `lattice admin node wipe --force`.
    async fn forced(&self, world: &World) -> JobId {
        let (node, request) = (world.node(self.node).await, world.request());
        let live = world.store.live_job(self.node).await.unwrap();
        let known = self.known(&node, live.as_ref(), &world.site);
        let due = wipe::asked(&known, &request, wipe::Urge::AsDue);
        assert!(matches!(due, Err(Refused::WipeNeedsForce { .. })), "{due:?}");
        match wipe::asked(&known, &request, wipe::Urge::Forced).unwrap() {
            ResumeNode::Job(job) => {
                let asked =
                    Asked { action: OperatorAction::RestartClean, decisions: Decisions::default(), observed: None };
                let planned = act(&request, &live.unwrap(), &node, &world.site, &asked).unwrap().unwrap();
                world.commit(planned.commit.changes, planned.commit.guards).await;
                job
            }
            ResumeNode::Created(planned) => {
                world.commit(planned.commit.changes, planned.commit.guards).await;
                planned.job.unwrap()
            }
            ResumeNode::Live(job) => panic!("{job} is live"),
        }
    }

    async fn drive(&self, world: &World, job: JobId, crash: CrashPlan, play: Play) -> Driven {
        world.drive(job, crash, async |world| self.lives(world, play).await).await
    }

    /// What the host, its agent and the server's loops do meanwhile.
    async fn lives(&self, world: &World, play: Play) {
        let now = world.request().now;
        world.work.heard.lock().unwrap().insert(self.node, now);
        for task in world.store.overdue_tasks(now).await.unwrap() {
            let change = task::expired(&world.request(), &task).unwrap();
            world.commit(vec![Change::Task(Box::new(change))], vec![]).await;
        }
        for task in world.store.open_tasks(self.node, 10).await.unwrap() {
            if let Some(progress) = self.says(&task, play) {
                let report = TaskReport { task: task.id, at: now, progress };
                let change = task::reported(&world.request(), &task, &report).unwrap().unwrap();
                world.commit(vec![Change::Task(Box::new(change))], vec![]).await;
            }
        }
        let starts = world.fake.effects()[self.before..].iter().filter(|one| one.call == FakeCall::Start).count();
        let is_on = starts as u32 >= self.boots.load(Ordering::SeqCst);
        if is_on && world.node(self.node).await.state.availability == Availability::Booting && play != Play::StaysAway {
            let number = self.boots.fetch_add(1, Ordering::SeqCst) + 1;
            if play != Play::SameBoot {
                self.boot(world, number).await;
            }
            let passed = [NodeEvent::Availability(AvailabilityEvent::HealthPassed)];
            world.move_node(self.node, Owner::Detector, &passed).await;
        }
    }

    fn says(&self, task: &Task, play: Play) -> Option<Progress> {
        let kind = task.input.kind();
        match play {
            Play::SilentAbout(silent) if silent == kind => return None,
            Play::Refuses(refused) if refused == kind => {
                return Some(Progress::failed(TaskErrorCode::EffectFailed, "nvme0n1: media error"));
            }
            Play::WithoutEvidence(weak) if weak == kind => {
                return Some(Progress::failed(TaskErrorCode::NoEvidence, "nothing proves that it was wiped"));
            }
            Play::GpuGone if kind == TaskKind::GpuScrub => {
                return Some(Progress::failed(TaskErrorCode::NoEvidence, "the host shows 1 devices, 2 were expected"));
            }
            Play::Good
            | Play::GpuGone
            | Play::SameBoot
            | Play::StaysAway
            | Play::Refuses(_)
            | Play::WithoutEvidence(_)
            | Play::SilentAbout(_) => {}
        }
        let (devices, kept): (BTreeSet<String>, BTreeSet<String>) = match &task.input {
            TaskInput::GpuScrub(_) => ((0..self.gpus).map(|n| format!("0000:2{n}:00.0")).collect(), BTreeSet::new()),
            TaskInput::NvmeErase(erase) => {
                assert_eq!(erase.devices.len() + erase.keep.len(), self.drives as usize);
                (erase.devices.clone(), erase.keep.clone())
            }
            _ => (BTreeSet::from(["memory".to_owned()]), BTreeSet::new()),
        };
        let inventory = devices.union(&kept).cloned().collect();
        let wiped = WipeOutput { inventory, evidence: devices.iter().map(|name| evidence(name, task)).collect() };
        let output = match kind {
            TaskKind::GpuScrub => TaskOutput::GpuScrub(wiped),
            TaskKind::NvmeErase => TaskOutput::NvmeErase(wiped),
            _ => TaskOutput::RamScrub(wiped),
        };
        Some(Progress::Succeeded { output })
    }
}

fn evidence(device: &str, task: &Task) -> WipeEvidence {
    WipeEvidence {
        device: device.to_owned(),
        model: "lab".to_owned(),
        serial: format!("S-{device}"),
        bytes: Some(1 << 30),
        method: "crypto".to_owned(),
        tool: "/usr/sbin/nvme".to_owned(),
        tool_version: "2.8".to_owned(),
        exit_code: 0,
        status_before: "nuse 7".to_owned(),
        status_after: "nuse 0".to_owned(),
        started_at: task.issued_at,
        finished_at: task.issued_at,
    }
}

fn sku() -> Sku {
    serde_json::from_value(serde_json::json!({
        "name": "any", "gpus": 0, "nics": [], "disks": [], "created_at": harness::START, "updated_at": harness::START, "generation": 1,
    }))
    .unwrap()
}

fn facts(gpus: u32, drives: u32, in_use: bool) -> HostFacts {
    let gpu = |n| GpuFact { address: format!("0000:2{n}:00.0"), vendor: "amd".to_owned(), model: "MI300X".to_owned() };
    let disk = |n| DiskFact {
        name: format!("nvme{n}n1"),
        model: "lab".to_owned(),
        size_bytes: 1 << 30,
        in_use: in_use && n == 0,
    };
    HostFacts { gpus: (0..gpus).map(gpu).collect(), disks: (0..drives).map(disk).collect(), ..HostFacts::default() }
}

async fn told(world: &World, name: &str) -> usize {
    let events = world.store.events(EventSeq(0), &EventFilter::default(), 10_000).await.unwrap();
    events.iter().filter(|event| event.row.name == name).count()
}

async fn certificates(world: &World, node: NodeId) -> Vec<CertificateFile> {
    let filter = WipeFilter { node: Some(node), serial: None };
    world.store.wipe_certificates(&filter, &PageRequest::first(100)).await.unwrap().items
}

async fn tasks(world: &World, job: JobId) -> Vec<Task> {
    let filter = TaskFilter { job: Some(job), ..TaskFilter::default() };
    world.store.tasks(&filter, &PageRequest::first(100)).await.unwrap().items
}

fn holds(node: &Node) -> Vec<HoldKind> {
    node.holds.iter().map(|hold| hold.kind).collect()
}

#[tokio::test]
async fn a_wipe_survives_a_crash_at_every_place_and_does_each_step_once() {
    let run = async |crash: CrashPlan| {
        let world = World::lxd().await;
        let host = Host::onboarded(&world, 2, 2).await;
        host.released(&world).await;
        let job = host.wipe(&world).await;
        let driven = host.drive(&world, job, crash, Play::Good).await;
        assert_eq!(driven.job.state.status, JobStatus::Completed, "{:?}", driven.job.state);
        let node = world.node(host.node).await;
        assert_eq!((node.state, holds(&node), node.owning_job), (READY, vec![], None));
        assert!(!node.drain_intent && node.boot_id.as_deref() == Some("boot-2"));
        let kinds: BTreeSet<_> = tasks(&world, job).await.iter().map(|task| task.input.kind()).collect();
        assert_eq!((tasks(&world, job).await.len(), kinds.len()), (3, 3), "one task for each step");
        let files = certificates(&world, host.node).await;
        assert_eq!(files.len(), 5, "two GPUs, two drives, the memory");
        for file in &files {
            assert_eq!(CertificateFile::verify(file.text().as_bytes()).as_ref(), Ok(file));
            let one = &file.certificate;
            assert_eq!((one.boot_before.as_str(), one.boot_after.as_str()), ("boot-1", "boot-2"));
        }
        assert_eq!(told(&world, "node.wipe_began").await, 1);
        assert_eq!(told(&world, "node.wipe_step_proven").await, 3);
        assert_eq!(told(&world, "node.wipe_certified").await, 5);
        assert_eq!(told(&world, "node.wipe_confirmed").await, 1);
        assert_eq!(told(&world, "node.wipe_failed").await, 0);
        let switched: Vec<_> = world.fake.effects()[host.before..].iter().map(|effect| effect.call).collect();
        let count = |call| switched.iter().filter(|one| **one == call).count();
        assert_eq!((count(FakeCall::Stop), count(FakeCall::Start)), (1, 1));
        driven
    };
    let places = run(CrashPlan::never()).await.places;
    for place in 0..places {
        assert_eq!(run(CrashPlan::at(place)).await.crashes, 1, "place {place} of {places}");
    }
    assert!(places >= 10, "{places}");
}

const FAILURES: &[(Play, &str, StageName)] = &[
    (Play::Refuses(TaskKind::GpuScrub), "wipe_step_failed", StageName::ClearGpuMemory),
    (Play::Refuses(TaskKind::NvmeErase), "wipe_step_failed", StageName::EraseNvme),
    (Play::WithoutEvidence(TaskKind::NvmeErase), "wipe_without_evidence", StageName::EraseNvme),
    (Play::WithoutEvidence(TaskKind::RamScrub), "wipe_without_evidence", StageName::ScrubMemory),
    (Play::GpuGone, "wipe_without_evidence", StageName::ClearGpuMemory),
    (Play::SilentAbout(TaskKind::GpuScrub), "agent_silent", StageName::ClearGpuMemory),
    (Play::SilentAbout(TaskKind::RamScrub), "agent_silent", StageName::ScrubMemory),
    (Play::SameBoot, "wipe_timeout", StageName::ConfirmWipe),
    (Play::StaysAway, "boot_timeout", StageName::WaitForBoot),
];

/// A wipe that fails so, and what must stand then.
async fn failed(play: Play, code: &str, stage: StageName, crash: CrashPlan) -> (World, Host, Driven) {
    let world = World::lxd().await;
    let host = Host::onboarded(&world, 2, 2).await;
    host.released(&world).await;
    let job = host.wipe(&world).await;
    let driven = host.drive(&world, job, crash, play).await;
    let failure = driven.job.state.failure.clone().unwrap_or_else(|| panic!("{play:?}: {:?}", driven.job.state));
    assert_eq!((failure.error_code.as_str(), failure.stage), (code, stage), "{play:?}: {}", failure.message);
    assert_eq!(driven.job.state.status, JobStatus::FailedManualIntervention);
    let node = world.node(host.node).await;
    assert_eq!((node.state, node.down_cause), (GIVEN_UP, Some(DownCause::WipeFailed)), "{play:?}");
    assert_eq!(holds(&node), [HoldKind::WipeRequired, HoldKind::WipeFailed], "{play:?}");
    assert!(certificates(&world, host.node).await.is_empty(), "{play:?}");
    assert_eq!(told(&world, "node.wipe_failed").await, 1, "{play:?}");
    assert!(wipe::due(&world.request(), &node, &world.site, false).is_none(), "not by itself");
    (world, host, driven)
}

#[tokio::test]
async fn each_failure_quarantines_the_node_and_a_forced_wipe_gives_it_back() {
    for (play, code, stage) in FAILURES {
        let (world, host, _) = failed(*play, code, *stage, CrashPlan::never()).await;
        let events = world.store.events(EventSeq(0), &EventFilter::default(), 10_000).await.unwrap();
        let event = events.iter().find(|event| event.row.name == "node.wipe_failed").unwrap();
        for field in ["severity", "wipe_started_at", "reason", "operator_action", "job"] {
            assert!(event.row.payload.get(field).is_some_and(|value| !value.is_null()), "{play:?}: {field}");
        }
        let job = host.forced(&world).await;
        let again = host.drive(&world, job, CrashPlan::never(), Play::Good).await;
        assert_eq!(again.job.state.status, JobStatus::Completed, "{play:?}: {:?}", again.job.state);
        let node = world.node(host.node).await;
        assert_eq!((node.state, holds(&node)), (READY, vec![]), "{play:?}");
        assert_eq!(certificates(&world, host.node).await.len(), 5, "{play:?}");
    }
}

#[tokio::test]
async fn a_failing_wipe_fails_once_wherever_the_server_dies() {
    for (play, code, stage) in [FAILURES[2], FAILURES[7]] {
        let (_, _, alone) = failed(play, code, stage, CrashPlan::never()).await;
        for place in 0..alone.places {
            let (_, _, driven) = failed(play, code, stage, CrashPlan::at(place)).await;
            assert_eq!(driven.crashes, 1, "{play:?} at place {place}");
        }
    }
}

#[tokio::test]
async fn a_wipe_that_failed_is_also_taken_up_where_it_stopped_with_another_task() {
    let (play, code, stage) = FAILURES[1];
    let (world, host, driven) = failed(play, code, stage, CrashPlan::never()).await;
    let (job, node) = (driven.job, world.node(host.node).await);
    let asked = Asked { action: OperatorAction::Resume, decisions: Decisions::default(), observed: None };
    let planned = act(&world.request(), &job, &node, &world.site, &asked).unwrap().unwrap();
    world.commit(planned.commit.changes, planned.commit.guards).await;
    let again = host.drive(&world, job.id, CrashPlan::never(), Play::Good).await;
    assert_eq!(again.job.state.status, JobStatus::Completed, "{:?}", again.job.state);
    let kinds: Vec<_> = tasks(&world, job.id).await.iter().map(|task| task.input.kind()).collect();
    assert_eq!(kinds, [TaskKind::RamScrub, TaskKind::NvmeErase, TaskKind::NvmeErase, TaskKind::GpuScrub]);
    assert_eq!(world.node(host.node).await.state, READY);
}

#[tokio::test]
async fn a_second_failure_is_told_again() {
    let (play, code, stage) = FAILURES[0];
    let (world, host, _) = failed(play, code, stage, CrashPlan::never()).await;
    let job = host.forced(&world).await;
    let again = host.drive(&world, job, CrashPlan::never(), play).await;
    assert_eq!(again.job.state.status, JobStatus::FailedManualIntervention);
    assert_eq!(told(&world, "node.wipe_failed").await, 2);
    assert_eq!(holds(&world.node(host.node).await), [HoldKind::WipeRequired, HoldKind::WipeFailed]);
}

#[tokio::test]
async fn a_host_without_gpus_and_drives_has_its_memory_certified() {
    let world = World::lxd().await;
    let host = Host::onboarded(&world, 0, 0).await;
    host.released(&world).await;
    let job = host.wipe(&world).await;
    let driven = host.drive(&world, job, CrashPlan::never(), Play::Good).await;
    assert_eq!(driven.job.state.status, JobStatus::Completed, "{:?}", driven.job.state);
    let erased: Vec<_> = certificates(&world, host.node).await.iter().map(|file| file.certificate.erased).collect();
    assert_eq!(erased, [WipeTarget::MainMemory]);
}

#[tokio::test]
async fn a_drive_that_the_system_uses_stops_the_wipe_unless_the_site_lets_it_stay() {
    let mut world = World::lxd().await;
    let host = Host::onboarded(&world, 0, 2).await;
    world.commit(vec![Change::HostFacts { node: host.node, facts: facts(0, 2, true) }], vec![]).await;
    host.released(&world).await;
    let job = host.wipe(&world).await;
    let driven = host.drive(&world, job, CrashPlan::never(), Play::Good).await;
    let failure = driven.job.state.failure.unwrap();
    assert_eq!(failure.error_code, "system_drive_in_use");
    assert!(
        failure.message.contains("nvme0n1") && failure.message.contains("keep_system_drive"),
        "{}",
        failure.message
    );
    let keeps = SensitivePolicy { keep_system_drive: true, ..SensitivePolicy::default() };
    world.site = Site { sensitive: keeps, generation: world.site.generation.next(), ..world.site.clone() };
    world.commit(vec![Change::Site(Box::new(world.site.clone()))], vec![]).await;
    world.clock.set(world.request().now + std::time::Duration::from_secs(60));
    let job = host.forced(&world).await;
    let driven = host.drive(&world, job, CrashPlan::never(), Play::Good).await;
    assert_eq!(driven.job.state.status, JobStatus::Completed, "{:?}", driven.job.state);
    let drive =
        certificates(&world, host.node).await.into_iter().find(|one| one.certificate.erased == WipeTarget::NvmeDrive);
    let drive = drive.unwrap().certificate;
    assert_eq!((drive.evidence.device.as_str(), drive.kept), ("nvme1n1", BTreeSet::from(["nvme0n1".to_owned()])));
}

#[tokio::test]
async fn nothing_is_erased_before_the_last_allocation_ended_and_a_cancelled_wait_changes_nothing() {
    let world = World::lxd().await;
    let host = Host::onboarded(&world, 1, 1).await;
    host.released(&world).await;
    world.work.live.lock().unwrap().insert(host.node, 1);
    let job = host.wipe(&world).await;
    let mut turns = 0;
    let driven = world
        .drive(job, CrashPlan::never(), async |world| {
            turns += 1;
            host.lives(world, Play::Good).await;
            if turns == 10 {
                assert!(tasks(world, job).await.is_empty(), "nothing was asked of the agent");
                assert_eq!(world.node(host.node).await.state.availability, Availability::Draining);
                let wait = world.job(job).await.state.wait.unwrap();
                assert_eq!(wait.reason, "its last allocation to end");
                world.work.live.lock().unwrap().insert(host.node, 0);
            }
        })
        .await;
    assert_eq!(driven.job.state.status, JobStatus::Completed, "{:?}", driven.job.state);
    assert_eq!(world.node(host.node).await.state, READY);
}

#[tokio::test]
async fn a_wipe_that_an_operator_stops_halfway_is_a_wipe_that_failed() {
    let world = World::lxd().await;
    let host = Host::onboarded(&world, 1, 1).await;
    host.released(&world).await;
    let job = host.wipe(&world).await;
    let mut turns = 0;
    world
        .drive(job, CrashPlan::never(), async |world| {
            turns += 1;
            if turns < 4 {
                return host.lives(world, Play::SilentAbout(TaskKind::NvmeErase)).await;
            }
            if turns == 4 {
                let (row, node) = (world.job(job).await, world.node(host.node).await);
                assert!(row.state.limit_at.is_some(), "it began: {:?}", row.state);
                let asked = Asked { action: OperatorAction::Cancel, decisions: Decisions::default(), observed: None };
                let planned = act(&world.request(), &row, &node, &world.site, &asked).unwrap().unwrap();
                world.commit(planned.commit.changes, planned.commit.guards).await;
            }
        })
        .await;
    assert_eq!(world.job(job).await.state.status, JobStatus::Cancelled);
    let node = world.node(host.node).await;
    assert_eq!((node.state, node.owning_job), (GIVEN_UP, None));
    assert_eq!(holds(&node), [HoldKind::WipeRequired, HoldKind::WipeFailed]);
    assert_eq!(told(&world, "node.wipe_failed").await, 1);
    let job = host.forced(&world).await;
    let again = host.drive(&world, job, CrashPlan::never(), Play::Good).await;
    assert_eq!(again.job.state.status, JobStatus::Completed, "{:?}", again.job.state);
    assert_eq!(world.node(host.node).await.state, READY);
}

#[tokio::test]
async fn a_node_that_an_operator_drained_stays_drained_after_its_wipe() {
    let world = World::lxd().await;
    let host = Host::onboarded(&world, 0, 1).await;
    let events = [AvailabilityEvent::Drain, AvailabilityEvent::Emptied].map(NodeEvent::Availability);
    world.move_node(host.node, Owner::Operator, &events).await;
    host.released(&world).await;
    let job = host.wipe(&world).await;
    let driven = host.drive(&world, job, CrashPlan::never(), Play::Good).await;
    assert_eq!(driven.job.state.status, JobStatus::Completed, "{:?}", driven.job.state);
    let node = world.node(host.node).await;
    assert_eq!((node.state, holds(&node)), (NodeState::new(Status::Active, Availability::Drained), vec![]));
}

#[tokio::test]
async fn who_needs_no_wipe_is_wiped_only_when_forced_and_who_is_away_never() {
    let world = World::lxd().await;
    let host = Host::onboarded(&world, 0, 1).await;
    let node = world.node(host.node).await;
    let known = host.known(&node, None, &world.site);
    let refused = wipe::asked(&known, &world.request(), wipe::Urge::AsDue).unwrap_err();
    assert!(matches!(refused, Refused::NothingToWipe { .. }), "{refused}");
    let asked = wipe::asked(&known, &world.request(), wipe::Urge::Forced).unwrap();
    let ResumeNode::Created(planned) = asked else { panic!("{asked:?}") };
    let job = planned.job.unwrap();
    world.commit(planned.commit.changes, planned.commit.guards).await;
    assert_eq!(holds(&world.node(host.node).await), [HoldKind::WipeRequired]);
    assert_eq!(host.drive(&world, job, CrashPlan::never(), Play::Good).await.job.state.status, JobStatus::Completed);
    use AvailabilityEvent::{GraceExpired, HeartbeatMissed};
    world.move_node(host.node, Owner::Detector, &[HeartbeatMissed, GraceExpired].map(NodeEvent::Availability)).await;
    host.released(&world).await;
    let node = world.node(host.node).await;
    assert!(wipe::due(&world.request(), &node, &world.site, false).is_none(), "nobody is there who could wipe it");
    let refused = wipe::asked(&host.known(&node, None, &world.site), &world.request(), wipe::Urge::Forced).unwrap_err();
    assert!(matches!(refused, Refused::CannotWipe { .. }), "{refused}");
    world.move_node(host.node, Owner::Detector, &[NodeEvent::Availability(AvailabilityEvent::HealthPassed)]).await;
    let job = host.wipe(&world).await;
    assert_eq!(host.drive(&world, job, CrashPlan::never(), Play::Good).await.job.state.status, JobStatus::Completed);
}
