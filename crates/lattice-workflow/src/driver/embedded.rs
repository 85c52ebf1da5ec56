//! The driver within the server: timers in memory, turns with bounded concurrency. design: 3-jobs "Embedded driver"
//!
//! A waiting job is an entry of a heap, not a task. Everything in memory is rebuilt from the rows at the start.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use lattice_core::ids::{JobId, NodeId, SiteId};
use lattice_core::job::{Job, ParkedFor};
use lattice_core::time::Timestamp;
use lattice_store::{PAGE_MAX, StoreError};
use tokio::sync::{mpsc, oneshot};
use tokio::task::{Id, JoinError, JoinSet};
use tokio::time::MissedTickBehavior;
use tracing::{error, warn};

use super::ready::ReadyJobs;
use super::sites::{Followers, Watches, follow};
use crate::batches::Batches;
use crate::runner::{Occasion, Runner, Turn, TurnError};

/// How much a driver does at once.
#[derive(Debug, Clone, Copy)]
pub struct DriverLimits {
    /// Turns that run at once.
    pub turns: usize,
    /// Turns that run at once for one site: no provider is flooded.
    pub turns_per_site: usize,
    /// Pokes that wait to be read; senders wait beyond.
    pub pokes: usize,
    /// Pause before a job whose turn failed for a reason of our own, or panicked, is tried again.
    pub after_failure: Duration,
    /// Pause between two looks for jobs of which nobody told this driver: a server died, or could not tell whether its
    /// commit was made.
    pub forgotten: Duration,
}

impl Default for DriverLimits {
    fn default() -> Self {
        Self {
            turns: 256,
            turns_per_site: 128,
            pokes: 4_096,
            after_failure: Duration::from_secs(1),
            forgotten: Duration::from_secs(15),
        }
    }
}

/// What wakes a driver.
#[derive(Debug)]
pub(super) enum Poke {
    Job(JobId),
    Node(NodeId),
    Drain,
}

/// A running driver. Dropping it stops it without waiting; the rows know where each job stands.
pub struct EmbeddedDriver {
    pokes: mpsc::Sender<Poke>,
    stop: oneshot::Sender<()>,
    tasks: JoinSet<()>,
}

impl EmbeddedDriver {
    /// Starts to drive every job in the store that has something to be done.
    pub fn start(runner: Runner, limits: DriverLimits) -> Self {
        let (pokes, receiver) = mpsc::channel(limits.pokes);
        let (stop, stopped) = oneshot::channel();
        let mut tasks = JoinSet::new();
        tasks.spawn(Batches::new(runner.shared_tools()).run(Waker { pokes: pokes.clone() }, stopped));
        tasks.spawn(Driver::new(runner, limits, pokes.clone()).run(receiver));
        Self { pokes, stop, tasks }
    }

    /// A handle that wakes jobs, for those who must not own the driver.
    pub fn waker(&self) -> Waker {
        Waker { pokes: self.pokes.clone() }
    }

    /// Ends well: no new turn begins, those that run end.
    pub async fn drain(mut self) {
        // An error means that either ended before, which is as good.
        let _gone = self.stop.send(());
        let _gone = self.pokes.send(Poke::Drain).await;
        while self.tasks.join_next().await.is_some() {}
    }
}

/// Wakes jobs.
#[derive(Clone)]
pub struct Waker {
    pokes: mpsc::Sender<Poke>,
}

impl Waker {
    /// Something happened to a job: it was created, or an operator acted. The row is committed before.
    pub async fn job(&self, job: JobId) {
        self.send(Poke::Job(job)).await;
    }

    /// Something happened to a node that its job may wait for: its agent enrolled, its availability changed.
    pub async fn node(&self, node: NodeId) {
        self.send(Poke::Node(node)).await;
    }

    async fn send(&self, poke: Poke) {
        // Without a driver nobody has to be woken: the next one begins with the rows.
        let _gone = self.pokes.send(poke).await;
    }
}

/// What is known of a job that is not over.
struct Slot {
    node: NodeId,
    site: SiteId,
    /// Somebody else starts it: a child of a batch needs permits.
    is_child: bool,
    due: Timestamp,
    queued: bool,
    running: bool,
    woken: bool,
}

type Ended = (JobId, Result<Turn, TurnError>);

struct Driver {
    runner: Runner,
    limits: DriverLimits,
    pokes: mpsc::Sender<Poke>,
    slots: HashMap<JobId, Slot>,
    by_node: HashMap<NodeId, JobId>,
    timers: BinaryHeap<Reverse<(Timestamp, JobId)>>,
    ready: ReadyJobs,
    turns: JoinSet<Ended>,
    /// Whose turn a task is: a task that panics cannot say it.
    job_of_turn: HashMap<Id, JobId>,
    watches: Arc<Watches>,
    followers: Followers,
}

impl Driver {
    fn new(runner: Runner, limits: DriverLimits, pokes: mpsc::Sender<Poke>) -> Self {
        Self {
            runner,
            limits,
            pokes,
            slots: HashMap::new(),
            by_node: HashMap::new(),
            timers: BinaryHeap::new(),
            ready: ReadyJobs::default(),
            turns: JoinSet::new(),
            job_of_turn: HashMap::new(),
            watches: Arc::default(),
            followers: Followers::default(),
        }
    }

    async fn run(mut self, mut pokes: mpsc::Receiver<Poke>) {
        while let Err(failed) = self.rebuild().await {
            error!(error = %failed, "jobs cannot be read, trying again");
            tokio::time::sleep(self.limits.after_failure).await;
        }
        let mut forgotten = tokio::time::interval(self.limits.forgotten);
        forgotten.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            self.fire();
            self.start_turns();
            let pause = self.pause();
            tokio::select! {
                // What frees a place goes first; timers are looked at in each round, so nobody starves.
                biased;
                Some(joined) = self.turns.join_next_with_id(), if !self.turns.is_empty() => match joined {
                    Ok((_, (_, Err(TurnError::Crashed(_))))) => return,
                    Ok((task, (job, outcome))) => {
                        self.job_of_turn.remove(&task);
                        self.ended(job, outcome);
                    }
                    Err(panicked) => self.panicked(&panicked),
                },
                _ = forgotten.tick() => self.take_forgotten().await,
                poke = pokes.recv() => match poke {
                    Some(Poke::Job(job)) => self.poked(job).await,
                    Some(Poke::Node(node)) => self.node_poked(node).await,
                    Some(Poke::Drain) => {
                        while self.turns.join_next().await.is_some() {}
                        return;
                    }
                    None => return,
                },
                site = self.followers.lost() => self.follow(site, self.limits.after_failure),
                () = tokio::time::sleep(pause) => {}
            }
        }
    }

    /// Takes up every job that has something to be done, now or later.
    async fn rebuild(&mut self) -> Result<(), StoreError> {
        let mut after = None;
        loop {
            let jobs = self.store_page(after).await?;
            let is_last = jobs.len() < PAGE_MAX;
            after = jobs.last().map(|job| job.id);
            for job in &jobs {
                self.take(job);
            }
            if is_last {
                return Ok(());
            }
        }
    }

    async fn store_page(&self, after: Option<JobId>) -> Result<Vec<Job>, StoreError> {
        self.runner.tools().store.runnable_jobs(after).await
    }

    /// Takes up what is overdue and unknown here. Usually nothing is: who commits a job wakes the driver.
    async fn take_forgotten(&mut self) {
        let overdue = self.runner.tools().clock.now() - self.limits.forgotten;
        let jobs = match self.runner.tools().store.due_jobs(overdue, PAGE_MAX).await {
            Ok(jobs) => jobs,
            Err(failed) => return warn!(error = %failed, "overdue jobs cannot be read"),
        };
        for job in jobs {
            if !self.slots.contains_key(&job.id) {
                self.take(&job);
            }
        }
    }

    /// Knows a job from its row, and when it is due.
    fn take(&mut self, job: &Job) {
        let now = self.runner.tools().clock.now();
        let others = job.lease.as_ref().filter(|lease| lease.holder != self.runner.tools().holder);
        let due = job.state.next_at.into_iter().chain(others.map(|lease| lease.until)).max().unwrap_or(now);
        self.by_node.insert(job.node, job.id);
        self.watch(job);
        let slot = self.slots.entry(job.id).or_insert(Slot {
            node: job.node,
            site: job.site,
            is_child: job.batch.is_some(),
            due,
            queued: false,
            running: false,
            woken: false,
        });
        slot.due = due;
        if due <= now { self.queue(job.id) } else { self.timers.push(Reverse((due, job.id))) }
    }

    fn watch(&mut self, job: &Job) {
        if self.watches.watch(job) {
            self.follow(job.site, Duration::ZERO);
        }
    }

    fn follow(&mut self, site: SiteId, after: Duration) {
        let (tools, watches, pokes) = (self.runner.shared_tools(), Arc::clone(&self.watches), self.pokes.clone());
        self.followers.start(site, async move {
            tokio::time::sleep(after).await;
            follow(tools, watches, site, pokes).await;
        });
    }

    async fn poked(&mut self, job: JobId) {
        if !self.slots.contains_key(&job) {
            match self.runner.tools().store.job(job).await {
                Ok(Some(row)) if !row.state.status.is_terminal() => self.take(&row),
                Ok(Some(_) | None) => return,
                Err(failed) => return warn!(job_id = %job, error = %failed, "job cannot be read"),
            }
        }
        if let Some(slot) = self.slots.get_mut(&job) {
            slot.woken = true;
        }
        self.queue(job);
    }

    async fn node_poked(&mut self, node: NodeId) {
        if let Some(job) = self.by_node.get(&node) {
            return self.poked(*job).await;
        }
        // A job that had failed is not driven, and may succeed late.
        match self.runner.tools().store.live_job(node).await {
            Ok(Some(job)) => self.poked(job.id).await,
            Ok(None) => {}
            Err(failed) => warn!(node_id = %node, error = %failed, "job of the node cannot be read"),
        }
    }

    fn queue(&mut self, job: JobId) {
        if let Some(slot) = self.slots.get_mut(&job).filter(|slot| !slot.queued && !slot.running) {
            slot.queued = true;
            self.ready.push(slot.site, job);
        }
    }

    /// Timers whose time has come. An entry that its job has outlived is dropped.
    fn fire(&mut self) {
        let now = self.runner.tools().clock.now();
        while let Some(Reverse((at, job))) = self.timers.peek().copied().filter(|Reverse((at, _))| *at <= now) {
            self.timers.pop();
            if self.slots.get(&job).is_some_and(|slot| slot.due == at) {
                self.queue(job);
            }
        }
    }

    fn pause(&self) -> Duration {
        /// Nothing is due: look now and then all the same, in case the clock was set.
        const LONGEST: Duration = Duration::from_secs(60);
        let now = self.runner.tools().clock.now();
        self.timers.peek().map_or(LONGEST, |Reverse((at, _))| at.since(now).min(LONGEST))
    }

    /// Starts the turns that the limits allow: of each site in the order in which they became ready.
    fn start_turns(&mut self) {
        while self.turns.len() < self.limits.turns {
            let Some((site, job)) = self.ready.start(self.limits.turns_per_site) else { break };
            let Some(slot) = self.slots.get_mut(&job) else {
                self.ready.ended(site);
                continue;
            };
            slot.queued = false;
            slot.running = true;
            let occasion = Occasion { woken: std::mem::take(&mut slot.woken), permitted: !slot.is_child };
            let runner = self.runner.clone();
            let turn = self.turns.spawn(async move { (job, runner.turn(job, occasion).await) });
            self.job_of_turn.insert(turn.id(), job);
        }
    }

    /// A defect of ours ended a turn: the job stands where its row says, and is tried again like after any failure of
    /// ours. It must not wait for the next start of the server.
    fn panicked(&mut self, panicked: &JoinError) {
        let Some(job) = self.job_of_turn.remove(&panicked.id()) else { return };
        error!(job_id = %job, error = %panicked, "a turn ended without a result");
        self.turn_over(job);
        self.try_later(job);
    }

    /// Its turn has ended: another one may begin.
    fn turn_over(&mut self, job: JobId) {
        let Some(slot) = self.slots.get_mut(&job) else { return };
        slot.running = false;
        self.ready.ended(slot.site);
    }

    fn try_later(&mut self, job: JobId) {
        let until = self.runner.tools().clock.now() + self.limits.after_failure;
        self.sleep(job, until);
    }

    fn ended(&mut self, job: JobId, outcome: Result<Turn, TurnError>) {
        self.turn_over(job);
        match outcome {
            Ok(Turn::Sleep { until, job: row }) => {
                self.watch(&row);
                self.sleep(job, until);
            }
            Ok(Turn::Held { until }) => self.sleep(job, until),
            Ok(Turn::Parked { why: ParkedFor::Start, .. }) => {}
            Ok(
                Turn::Parked { why: ParkedFor::Operator | ParkedFor::KnownStage, job: row } | Turn::Over { job: row },
            ) => {
                self.watches.forget(&row);
                self.release(job);
            }
            Ok(Turn::Missing) => self.release(job),
            Err(failed) => {
                warn!(job_id = %job, error = %failed, "turn failed");
                self.try_later(job);
            }
        }
    }

    fn sleep(&mut self, job: JobId, until: Timestamp) {
        let Some(slot) = self.slots.get_mut(&job) else { return };
        slot.due = until;
        // It was poked while its turn ran: the turn may not have seen what happened.
        if slot.woken || until <= self.runner.tools().clock.now() {
            self.queue(job);
        } else {
            self.timers.push(Reverse((until, job)));
        }
    }

    /// Nothing is left to do for the job. If it was poked while its turn ran, it is looked at once more.
    fn release(&mut self, job: JobId) {
        if self.slots.get(&job).is_some_and(|slot| slot.woken) {
            return self.queue(job);
        }
        let Some(slot) = self.slots.remove(&job) else { return };
        if self.by_node.get(&slot.node) == Some(&job) {
            self.by_node.remove(&slot.node);
        }
    }
}
