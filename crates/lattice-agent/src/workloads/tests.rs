//! A scope that cannot be emptied, on hands that do what a test says.

use async_trait::async_trait;
use lattice_core::agent::task::{CheckpointHow, Limits, Mount, TaskInput, WipeOutput};
use lattice_core::ids::uuid_v7;
use lattice_core::time::Timestamp;
use tokio::time::Instant;

use super::*;
use crate::hands::Born;

const BOOT: &str = "boot-1";

struct FixedClock;

impl Clock for FixedClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(1)
    }
}

/// How cleaning a scope ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cleaning {
    Works,
    Fails,
    Hangs,
}

/// By scope: whether its first process lives, and how cleaning it ends. Scopes are there until they are cleaned.
#[derive(Default)]
struct Scripted {
    alive: Mutex<BTreeSet<String>>,
    there: Mutex<BTreeMap<String, Cleaning>>,
    unstartable: Mutex<bool>,
    saves: tokio::sync::Notify,
}

impl Scripted {
    fn dies(&self, number: u8, cleaning: Cleaning) {
        self.alive.lock().unwrap().remove(&scope(number));
        self.there.lock().unwrap().insert(scope(number), cleaning);
    }
}

#[async_trait]
impl Hands for Scripted {
    fn lacks(&self, _: &TaskInput) -> Option<String> {
        None
    }
    fn scope(&self, running: Running) -> String {
        format!("alloc-{}-{}.scope", running.allocation, running.ownership_epoch.0)
    }
    async fn start(&self, _: &AllocationStart, scope: &str) -> Result<Born, HandError> {
        if *self.unstartable.lock().unwrap() {
            return Err(HandError::failed("it does not start"));
        }
        self.alive.lock().unwrap().insert(scope.to_owned());
        self.there.lock().unwrap().insert(scope.to_owned(), Cleaning::Works);
        Ok(Born { pid: 7, start_ticks: 7, not_limited: Vec::new() })
    }
    async fn first_process(&self, one: &AllocationState) -> Result<(), Option<ExitStatus>> {
        match self.alive.lock().unwrap().contains(&one.cgroup) {
            true => Ok(()),
            false => Err(Some(ExitStatus::Code(3))),
        }
    }
    async fn stop(&self, _: &AllocationState, _: Duration) -> Result<StopResult, HandError> {
        Ok(StopResult::Killed)
    }
    async fn checkpoint(
        &self,
        _: &AllocationState,
        _: &CheckpointHow,
        _: Duration,
    ) -> Result<CheckpointResult, HandError> {
        self.saves.notified().await;
        Ok(CheckpointResult::Done)
    }
    async fn clean(&self, cgroup: &str) -> Result<(), HandError> {
        let cleaning = self.there.lock().unwrap().get(cgroup).copied().unwrap_or(Cleaning::Works);
        match cleaning {
            Cleaning::Works => drop(self.there.lock().unwrap().remove(cgroup)),
            Cleaning::Fails => return Err(HandError::failed("processes [9] cannot be killed")),
            Cleaning::Hangs => std::future::pending().await,
        }
        Ok(())
    }
    async fn scopes(&self) -> Vec<Found> {
        let there = self.there.lock().unwrap();
        let number = |cgroup: &String| (1..9).find(|number| scope(*number) == *cgroup);
        let found = |cgroup: &String| Found {
            running: number(cgroup).map(running),
            process: Some((9, 9)),
            cgroup: cgroup.clone(),
        };
        there.keys().map(found).collect()
    }
    async fn wipe(&self, _: &TaskInput, _: &dyn Clock) -> Result<WipeOutput, HandError> {
        Err(HandError::lacks("nothing"))
    }
    async fn reboot(&self) -> Result<(), HandError> {
        Err(HandError::lacks("nothing"))
    }
}

fn running(number: u8) -> Running {
    let at = Timestamp::from_millis(1);
    Running { allocation: AllocationId::new(uuid_v7(at, [number; 10])), ownership_epoch: OwnershipEpoch(1) }
}

fn scope(number: u8) -> String {
    format!("alloc-{}-1.scope", running(number).allocation)
}

fn start(number: u8) -> AllocationStart {
    AllocationStart {
        allocation: running(number).allocation,
        ownership_epoch: OwnershipEpoch(1),
        argv: vec!["program".to_owned()],
        env: BTreeMap::new(),
        directory: None,
        user: None,
        limits: Limits::default(),
        mounts: Vec::new(),
    }
}

async fn recover(hands: &Arc<Scripted>, storage: &Storage) -> Workloads {
    let whose = (NodeId::new(uuid_v7(Timestamp::from_millis(1), [1; 10])), BOOT.to_owned());
    Workloads::recover(whose, hands.clone(), storage.clone(), Arc::new(FixedClock)).await.unwrap()
}

fn ended(workloads: &Workloads) -> Vec<AllocationId> {
    workloads.ended().iter().map(|one| one.allocation).collect()
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_cleaned_up_has_not_ended_and_delays_neither_others_nor_the_heartbeat() {
    let hands = Arc::new(Scripted::default());
    let workloads = recover(&hands, &Storage::memory()).await;
    for number in 1..=4 {
        workloads.start(&start(number)).await.unwrap();
    }
    hands.dies(1, Cleaning::Hangs);
    hands.dies(2, Cleaning::Hangs);
    hands.dies(3, Cleaning::Fails);
    hands.dies(4, Cleaning::Works);
    let begun = Instant::now();
    workloads.sweep().await.unwrap();
    assert!(begun.elapsed() <= SWEPT_WITHIN * 2, "{:?}", begun.elapsed());
    assert_eq!(ended(&workloads), [running(4).allocation]);
    assert_eq!(workloads.running(), [running(1), running(2), running(3)], "something of these lives");
    for number in 1..=3 {
        hands.dies(number, Cleaning::Works);
    }
    workloads.sweep().await.unwrap();
    assert_eq!(ended(&workloads), [4, 1, 2, 3].map(|number| running(number).allocation), "tried again");
    assert!(workloads.ended().iter().all(|one| one.exit == Some(ExitStatus::Code(3))));
    assert_eq!(workloads.count(), 0);
}

#[tokio::test]
async fn the_state_file_names_mount_points_as_the_task_does_and_over_a_restart() {
    let (hands, storage) = (Arc::new(Scripted::default()), Storage::memory());
    let workloads = recover(&hands, &storage).await;
    let mount = |target: &str| Mount { source: format!("/srv{target}"), target: target.to_owned(), read_only: true };
    let mounted = AllocationStart { mounts: vec![mount("/scratch"), mount("/data")], ..start(1) };
    workloads.start(&mounted).await.unwrap();
    let written = || async {
        let Loaded::Whole(state) = AgentState::load(&storage).await.unwrap() else { panic!("no state file") };
        state.allocations.into_iter().map(|one| (one.pid, one.runtime, one.mounts)).collect::<Vec<_>>()
    };
    let expected = [(7, "process".to_owned(), vec!["/scratch".to_owned(), "/data".to_owned()])];
    assert_eq!(written().await, expected);
    drop(workloads);
    recover(&hands, &storage).await;
    assert_eq!(written().await, expected, "it lives");
}

#[tokio::test]
async fn what_an_agent_that_starts_cannot_clean_up_is_kept_for_the_sweeps() {
    let (hands, storage) = (Arc::new(Scripted::default()), Storage::memory());
    let workloads = recover(&hands, &storage).await;
    workloads.start(&start(1)).await.unwrap();
    drop(workloads);
    hands.dies(1, Cleaning::Fails);
    // A stray, which the state file does not know.
    hands.dies(2, Cleaning::Fails);
    let workloads = recover(&hands, &storage).await;
    assert!(workloads.ended().is_empty());
    assert_eq!(workloads.running().len(), 2, "{:?}", workloads.running());
    hands.dies(1, Cleaning::Works);
    hands.dies(2, Cleaning::Works);
    workloads.sweep().await.unwrap();
    assert_eq!((ended(&workloads).len(), workloads.count()), (2, 0));
    assert!(hands.there.lock().unwrap().is_empty());
}

#[tokio::test]
async fn a_start_that_failed_is_kept_until_nothing_of_it_lives() {
    let hands = Arc::new(Scripted::default());
    let workloads = recover(&hands, &Storage::memory()).await;
    *hands.unstartable.lock().unwrap() = true;
    hands.dies(1, Cleaning::Fails);
    workloads.start(&start(1)).await.unwrap_err();
    assert_eq!(workloads.running(), [running(1)]);
    hands.dies(1, Cleaning::Works);
    workloads.sweep().await.unwrap();
    assert_eq!(workloads.count(), 0);
    workloads.start(&start(2)).await.unwrap_err();
    assert_eq!(workloads.count(), 0, "nothing of it was left");
}

#[tokio::test]
async fn a_scope_is_left_alone_while_a_checkpoint_runs_in_it() {
    let hands = Arc::new(Scripted::default());
    let workloads = recover(&hands, &Storage::memory()).await;
    workloads.start(&start(1)).await.unwrap();
    let checkpoint = AllocationCheckpoint {
        allocation: running(1).allocation,
        ownership_epoch: running(1).ownership_epoch,
        how: CheckpointHow::Command { argv: vec!["save".to_owned()] },
        timeout_ms: 1_000,
    };
    let mut saves = Box::pin(workloads.checkpoint(&checkpoint));
    tokio::select! {
        biased;
        done = &mut saves => panic!("{done:?}"),
        () = std::future::ready(()) => {}
    }
    // The command ended the first process, and writes on.
    hands.dies(1, Cleaning::Works);
    workloads.sweep().await.unwrap();
    assert_eq!((workloads.count(), ended(&workloads).len()), (1, 0));
    hands.saves.notify_one();
    saves.await.unwrap();
    workloads.sweep().await.unwrap();
    assert_eq!(ended(&workloads), [running(1).allocation]);
}
