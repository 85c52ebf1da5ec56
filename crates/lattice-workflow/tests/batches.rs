//! Batches over the real store: permits, pauses, cancels, failures, and a death after each commit.
#![allow(clippy::unwrap_used, reason = "a test stops at what it cannot do")]

#[allow(dead_code, reason = "each test program uses a part of it")]
mod harness;

use std::time::Duration;

use harness::World;
use lattice_core::batch::{Batch, BatchStatus, Children, status};
use lattice_core::change::{Change, Outcome};
use lattice_core::command::batch::{BatchAction, InUse, NewBatch, NewMachine, control, create};
use lattice_core::ids::{BatchId, Generation, JobId};
use lattice_core::job::JobStatus;
use lattice_core::node::{NodeClass, Status};
use lattice_core::sku::Sku;
use lattice_core::time::Clock;
use lattice_store::{EventFilter, JobFilter, PageRequest};
use lattice_workflow::batches::Batches;
use lattice_workflow::crash::CrashPlan;
use lattice_workflow::driver::embedded::{DriverLimits, EmbeddedDriver};
use lattice_workflow::runner::{Occasion, Turn, TurnError};

struct Fleet {
    world: World,
    batch: BatchId,
    jobs: Vec<JobId>,
}

fn sku(world: &World) -> Sku {
    Sku {
        name: "any".to_owned(),
        gpus: 0,
        gpu_vendor: None,
        gpu_model: None,
        nics: Vec::new(),
        disks: Vec::new(),
        created_at: world.clock.now(),
        updated_at: world.clock.now(),
        generation: Generation::FIRST,
    }
}

impl Fleet {
    async fn of(machines: usize, max_parallel: Option<u32>) -> Self {
        let world = World::lxd().await;
        let (batch, jobs) = Self::more(&world, "m", machines, max_parallel).await;
        Self { world, batch, jobs }
    }

    async fn more(world: &World, prefix: &str, machines: usize, max: Option<u32>) -> (BatchId, Vec<JobId>) {
        let sku = sku(world);
        if world.store.sku(&sku.name).await.unwrap().is_none() {
            world.commit(vec![Change::Sku(sku.clone())], vec![]).await;
        }
        let machines = (0..machines).map(|n| NewMachine { hostname: format!("{prefix}{n}"), ipmi_ip: None });
        let new = NewBatch {
            site: &world.site,
            sku: &sku,
            profile: None,
            class: NodeClass::Standard,
            max_parallel: max,
            machines: machines.collect(),
        };
        let planned = create(&world.request(), &new, &InUse::default()).unwrap();
        let outcome = world.store.commit_one(planned.commit).await.unwrap();
        assert!(matches!(outcome, Outcome::Applied { .. }), "{outcome:?}");
        (planned.batch, planned.children.into_iter().map(|child| child.job).collect())
    }

    fn batches(&self, crash: CrashPlan) -> Batches {
        Batches::new(self.world.runner(crash).shared_tools())
    }

    async fn tick(&self) -> Vec<JobId> {
        self.batches(CrashPlan::never()).tick().await.unwrap()
    }

    async fn row(&self) -> Batch {
        self.world.store.batch(self.batch).await.unwrap().unwrap()
    }

    async fn children(&self) -> Children {
        self.world.store.children_of(&[self.batch]).await.unwrap().get(&self.batch).copied().unwrap_or_default()
    }

    async fn asks(&self, action: BatchAction) {
        let commit = control(&self.world.request(), &self.row().await, &self.children().await, action);
        let outcome = self.world.store.commit_one(commit.unwrap().unwrap()).await.unwrap();
        assert!(matches!(outcome, Outcome::Applied { .. }), "{outcome:?}");
    }

    /// Drives a child that was started to its end.
    async fn finish(&self, job: JobId) -> JobStatus {
        let driven = self.world.drive(job, CrashPlan::never(), async |world| world.agent_tries(job).await).await;
        driven.job.state.status
    }

    /// Lets a child that was started fail for good: its agent never comes.
    async fn fail(&self, job: JobId) -> JobStatus {
        self.world.drive(job, CrashPlan::never(), async |_| {}).await.job.state.status
    }

    async fn status_of(&self, job: JobId) -> JobStatus {
        self.world.job(job).await.state.status
    }

    /// Names of the batch's events, in order.
    async fn told(&self) -> Vec<String> {
        let mut names = Vec::new();
        let mut after = lattice_core::ids::EventSeq(0);
        loop {
            let page = self.world.store.events(after, &EventFilter::default(), 1_000).await.unwrap();
            let Some(last) = page.last() else { return names };
            after = last.seq;
            let ours = page.into_iter().filter(|event| event.row.resource_id == self.batch.to_string());
            names.extend(ours.map(|event| event.row.name));
        }
    }
}

#[tokio::test]
async fn children_start_as_permits_become_free_and_one_failure_blocks_nobody() {
    let fleet = Fleet::of(5, Some(2)).await;
    let first = fleet.tick().await;
    assert_eq!((first.len(), fleet.tick().await.len()), (2, 0), "two at once, and no more");
    assert_eq!(fleet.row().await.status, BatchStatus::Running);
    assert!(fleet.fail(first[0]).await.is_failed());
    let second = fleet.tick().await;
    assert_eq!(second.len(), 1, "a child that stopped holds no permit");
    assert_eq!(fleet.finish(first[1]).await, JobStatus::Completed);
    let mut started: Vec<JobId> = first.iter().chain(&second).copied().collect();
    while let Some(next) = fleet.tick().await.pop() {
        started.push(next);
        assert!(fleet.children().await.moving() <= 2);
        fleet.finish(next).await;
    }
    for job in &second {
        fleet.finish(*job).await;
    }
    fleet.tick().await;
    assert_eq!(fleet.row().await.status, BatchStatus::PartialFailure, "{:?}", fleet.children().await);
    assert_eq!(
        (fleet.children().await.succeeded, fleet.children().await.failed()),
        (4, 1),
        "the others are nodes, one needs an operator"
    );
    let expected = ["onboarding.batch.created", "onboarding.batch.started", "onboarding.batch.partial_failure"];
    assert_eq!(fleet.told().await, expected);
    assert!(fleet.world.agent_comes(first[0]).await);
    assert_eq!(fleet.finish(first[0]).await, JobStatus::Reconciled);
    fleet.tick().await;
    let row = fleet.row().await;
    assert_eq!((row.status, row.finished_at.is_some()), (BatchStatus::Completed, true));
}

#[tokio::test]
async fn a_site_gives_its_permits_to_the_oldest_batch_first_and_counts_single_onboardings() {
    let world = World::lxd().await;
    let (old, _) = Fleet::more(&world, "a", 200, None).await;
    let (young, jobs) = Fleet::more(&world, "b", 3, None).await;
    let fleet = Fleet { world, batch: young, jobs };
    // Ten of each batch may run, a hundred at the site.
    assert_eq!(fleet.tick().await.len(), 13);
    let counts = fleet.world.store.children_of(&[old, young]).await.unwrap();
    assert_eq!((counts[&old].moving(), counts[&young].moving()), (10, 3));
    assert_eq!(fleet.world.store.moving_onboardings(fleet.world.site.id).await.unwrap(), 13);
}

#[tokio::test]
async fn a_paused_batch_starts_nothing_and_goes_on_when_it_is_resumed() {
    let fleet = Fleet::of(3, Some(1)).await;
    let first = fleet.tick().await;
    fleet.asks(BatchAction::Pause).await;
    assert_eq!(fleet.finish(first[0]).await, JobStatus::Completed, "what runs goes on");
    assert_eq!(fleet.tick().await, []);
    assert_eq!(fleet.row().await.status, BatchStatus::Paused);
    fleet.asks(BatchAction::Resume).await;
    assert_eq!(fleet.tick().await.len(), 1);
    assert_eq!(fleet.row().await.status, BatchStatus::Running);
}

#[tokio::test]
async fn a_pause_between_look_and_start_wins() {
    let fleet = Fleet::of(2, None).await;
    let before = fleet.row().await;
    let job = fleet.world.job(fleet.jobs[0]).await;
    let node = fleet.world.node(job.node).await;
    let request = fleet.world.request();
    let start = lattice_core::command::job::start(&request, &job, &node, &fleet.world.site).unwrap().unwrap();
    let guard = lattice_core::change::Guard::BatchGeneration { batch: before.id, have: before.generation };
    let commit = request.commit(vec![guard], start);
    fleet.asks(BatchAction::Pause).await;
    let outcome = fleet.world.store.commit_one(commit).await.unwrap();
    assert!(matches!(outcome, Outcome::Conflict { .. }), "{outcome:?}");
    assert_eq!(fleet.status_of(job.id).await, JobStatus::Pending);
}

#[tokio::test]
async fn a_cancel_reaches_every_child_once() {
    let fleet = Fleet::of(5, Some(3)).await;
    let started = fleet.tick().await;
    assert_eq!(fleet.finish(started[0]).await, JobStatus::Completed);
    assert!(fleet.fail(started[1]).await.is_failed());
    fleet.asks(BatchAction::Cancel).await;
    let moved = fleet.tick().await;
    assert_eq!(moved.len(), 4, "all but the one that is a node");
    assert_eq!(fleet.tick().await, [], "nobody is asked twice");
    for job in &moved {
        fleet.finish(*job).await;
    }
    fleet.tick().await;
    let row = fleet.row().await;
    assert_eq!((row.status, row.finished_at.is_some()), (BatchStatus::Cancelled, true));
    let children = fleet.children().await;
    assert_eq!((children.succeeded, children.cancelled), (1, 4));
    for job in &fleet.jobs {
        let job = fleet.world.job(*job).await;
        let expected = if job.id == started[0] { Status::Active } else { Status::Deleted };
        assert_eq!(fleet.world.node(job.node).await.state.status, expected, "{}", job.hostname);
    }
    assert!(fleet.world.secrets.paths().is_empty(), "nothing secret is left behind");
}

/// A whole life: started, one fails, paused, resumed, cancelled. Gives how many places it passed.
async fn life(fleet: &Fleet, place: Option<u64>) -> u64 {
    let plan = place.map_or(CrashPlan::never(), CrashPlan::at);
    let mut batches = fleet.batches(plan);
    let mut passed = 0;
    let (mut asked, mut turns) = (0, 0);
    loop {
        turns += 1;
        assert!(turns < 400, "the batch does not end: {:?}", fleet.children().await);
        match batches.tick().await {
            Ok(_) => {}
            Err(TurnError::Crashed(_)) => {
                // All memory is lost; what woke jobs is lost too: the driver finds them in its rows.
                batches = fleet.batches(CrashPlan::never());
                passed = u64::MAX;
                continue;
            }
            Err(other) => panic!("{other}"),
        }
        let (row, children) = (fleet.row().await, fleet.children().await);
        assert!(children.moving() <= 2 || row.control == lattice_core::batch::BatchControl::Cancel, "{children:?}");
        if row.status.is_terminal() {
            assert_eq!(row.status, status(row.control, &children));
            return if passed == u64::MAX { passed } else { turns };
        }
        match (asked, children.over() + children.failed()) {
            (0, 1..) => fleet.asks(BatchAction::Pause).await,
            (1, _) => fleet.asks(BatchAction::Resume).await,
            (2, 3..) => fleet.asks(BatchAction::Cancel).await,
            (_, _) => {
                drive_runnable(fleet).await;
                continue;
            }
        }
        asked += 1;
    }
}

/// What the driver does: every job that its rows say is to be driven.
async fn drive_runnable(fleet: &Fleet) {
    for job in fleet.world.store.runnable_jobs(None).await.unwrap() {
        if job.hostname == "m1" {
            fleet.fail(job.id).await
        } else {
            fleet.finish(job.id).await
        };
    }
}

#[tokio::test]
async fn a_batch_survives_a_crash_after_each_of_its_commits() {
    life(&Fleet::of(6, Some(2)).await, None).await;
    let mut crashes = 0;
    for place in 0..64 {
        let fleet = Fleet::of(6, Some(2)).await;
        if life(&fleet, Some(place)).await != u64::MAX {
            break;
        }
        crashes += 1;
        let children = fleet.children().await;
        assert_eq!(children.total(), 6);
        assert_eq!(fleet.row().await.status, BatchStatus::Cancelled, "place {place}: {children:?}");
        for job in fleet.jobs.iter() {
            let job = fleet.world.job(*job).await;
            assert!(job.state.status.is_terminal(), "place {place}: {} is {}", job.hostname, job.state.status);
        }
    }
    assert!(crashes >= 6, "a batch has at least so many commits of its own, not {crashes}");
}

#[tokio::test]
async fn a_server_that_lost_the_lease_gives_no_permit() {
    let fleet = Fleet::of(9, Some(3)).await;
    fleet.asks(BatchAction::Pause).await;
    let mut one = fleet.batches(CrashPlan::never());
    assert_eq!(one.tick().await.unwrap(), []);
    let later = fleet.world.clock.now() + Duration::from_secs(60);
    let taken = fleet.world.store.acquire("batches", "lattice-2", later, Duration::from_secs(60)).await.unwrap();
    assert!(taken.is_some(), "the first one's lease has run out by that clock");
    fleet.asks(BatchAction::Resume).await;
    assert_eq!(one.tick().await.unwrap(), [], "its commits are fenced");
    assert_eq!((fleet.children().await.moving(), fleet.row().await.status), (0, BatchStatus::Pending));
}

#[tokio::test]
async fn a_driver_that_stops_in_good_order_gives_the_lease_back() {
    let fleet = Fleet::of(2, Some(1)).await;
    fleet.asks(BatchAction::Pause).await;
    let driver = EmbeddedDriver::start(fleet.world.runner(CrashPlan::never()), DriverLimits::default());
    let holder = async || fleet.world.store.lease("batches").await.unwrap().map(|lease| lease.holder);
    let looked = async {
        while holder().await.is_none() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), looked).await.expect("it looks at once");
    driver.drain().await;
    assert_eq!(holder().await, None);
}

#[tokio::test]
async fn a_child_that_waits_for_a_permit_is_nobodys_business() {
    let fleet = Fleet::of(2, Some(1)).await;
    let waiting = fleet.world.store.runnable_jobs(None).await.unwrap();
    assert_eq!(waiting.len(), 0, "a driver does not see it");
    let turn = fleet.world.runner(CrashPlan::never()).turn(fleet.jobs[0], Occasion::default()).await.unwrap();
    assert!(matches!(turn, Turn::Parked { .. }), "{turn:?}");
    let filter = JobFilter { batch: Some(fleet.batch), ..JobFilter::default() };
    let listed = fleet.world.store.jobs(&filter, &PageRequest::first(10)).await.unwrap();
    assert_eq!(listed.items.len(), 2);
}
