//! What runs on the host and what the agent knows of it, kept in step with the state file.
//!
//! Every change is written before it counts: an allocation is in the file before its process is started, and leaves it
//! after its scope is gone. So whatever an agent's death leaves behind is either in the file or a stray.
//! spec: S1 "Agent Restart and State Recovery"; design: 4 "On the host"

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lattice_api::agent::EndedAllocation;
use lattice_core::agent::task::{
    AllocationCheckpoint, AllocationStart, AllocationStop, CheckpointResult, DrainMode, ExitStatus, Running,
    StopResult, TaskErrorCode, TaskOutput,
};
use lattice_core::ids::{AllocationId, NodeId, OwnershipEpoch};
use lattice_core::time::Clock;
use tokio::task::JoinSet;
use tracing::{info, warn};

use crate::hands::{Found, HandError, Hands};
use crate::state::{AgentState, AllocationState, Loaded};
use crate::storage::Storage;

/// How long what a node does not own any more has to end by itself.
const DISOWNED_GRACE: Duration = Duration::from_secs(10);
/// How long one sweep waits for scopes to be cleaned up, all of them together: it delays a heartbeat.
const SWEPT_WITHIN: Duration = Duration::from_secs(1);
/// And how long an agent that starts does, whose first heartbeat is due: what is left goes to the sweeps.
const RECOVERED_WITHIN: Duration = Duration::from_secs(5);

/// What runs on the host.
pub struct Workloads {
    hands: Arc<dyn Hands>,
    storage: Storage,
    clock: Arc<dyn Clock>,
    known: Mutex<Known>,
    /// Held while the state file is written, so that an older state never replaces a newer one.
    writing: tokio::sync::Mutex<()>,
}

struct Known {
    state: AgentState,
    /// A task works on these: nobody else touches them.
    busy: BTreeSet<AllocationId>,
    /// Ended by themselves, and not told to the server yet.
    ended: Vec<EndedAllocation>,
    /// Checkpoints that run, and write in the scope: one entry for each.
    saving: Vec<AllocationId>,
    /// Could not be cleaned up, which was said once.
    stuck: BTreeSet<AllocationId>,
}

/// A claim on one allocation, given back when dropped.
struct Claim<'a> {
    workloads: &'a Workloads,
    allocation: AllocationId,
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        self.workloads.known().busy.remove(&self.allocation);
    }
}

/// A checkpoint that runs, until it is dropped. It is no claim: an allocation can be stopped meanwhile.
struct Saving<'a> {
    workloads: &'a Workloads,
    allocation: AllocationId,
}

impl Drop for Saving<'_> {
    fn drop(&mut self) {
        let mut known = self.workloads.known();
        if let Some(at) = known.saving.iter().position(|one| *one == self.allocation) {
            known.saving.swap_remove(at);
        }
    }
}

impl Workloads {
    /// Finds out what survived: reattaches the living, cleans up after the dead, removes strays.
    ///
    /// Without a usable state file everything that is found is kept and reported: the server says what is to be ended.
    ///
    /// # Errors
    /// The state file cannot be written.
    pub async fn recover(
        (node_id, boot_id): (NodeId, String),
        hands: Arc<dyn Hands>,
        storage: Storage,
        clock: Arc<dyn Clock>,
    ) -> std::io::Result<Self> {
        let loaded = AgentState::load(&storage).await?;
        let found = hands.scopes().await;
        let now = clock.now();
        let (mut state, strays_are_known) = match loaded {
            Loaded::Whole(state) if state.node_id == node_id && state.boot_id == boot_id => (state, true),
            // Processes of another boot are gone, and what another node's identity started is not ours to keep.
            Loaded::Whole(state) => (state.in_boot(node_id, boot_id), true),
            Loaded::Torn | Loaded::Missing => (AgentState::empty(node_id, boot_id, now), false),
        };
        let (mut living, mut dead) = (Vec::new(), Vec::new());
        for mut one in std::mem::take(&mut state.allocations) {
            let scope = found.iter().find(|scope| scope.cgroup == one.cgroup);
            if one.pid == 0
                && let Some((pid, start_ticks)) = scope.and_then(|scope| scope.process)
            {
                // The agent died between the start of the process and its record.
                (one.pid, one.start_ticks) = (pid, start_ticks);
            }
            match hands.first_process(&one).await {
                Ok(()) => {
                    info!(allocation = %one.allocation, pid = one.pid, "reattached");
                    living.push(one);
                }
                Err(exit) => {
                    info!(allocation = %one.allocation, pid = one.pid, "ended while no agent was there");
                    dead.push((one, exit));
                }
            }
        }
        let known_scopes: BTreeSet<String> =
            living.iter().chain(dead.iter().map(|(one, _)| one)).map(|one| one.cgroup.clone()).collect();
        let mut strays = Vec::new();
        for scope in found.into_iter().filter(|scope| !known_scopes.contains(&scope.cgroup)) {
            match (scope.running, scope.process) {
                (Some(running), Some(process)) if !strays_are_known => {
                    info!(allocation = %running.allocation, pid = process.0, "found without a state file");
                    living.push(of_scope(running, process, scope.cgroup));
                }
                (Some(_) | None, Some(_) | None) => strays.push(scope),
            }
        }
        let ended = clean_at_start(&hands, (dead, strays), &mut living).await;
        state.allocations = living;
        let known =
            Mutex::new(Known { state, busy: BTreeSet::new(), ended, saving: Vec::new(), stuck: BTreeSet::new() });
        let workloads = Self { hands, storage, clock, known, writing: tokio::sync::Mutex::default() };
        workloads.save().await?;
        Ok(workloads)
    }

    /// Writes the state file.
    ///
    /// # Errors
    /// What the file system says; the file before stands then.
    pub async fn save(&self) -> std::io::Result<()> {
        let _turn = self.writing.lock().await;
        let state = {
            let mut known = self.known();
            known.state.written_at = self.clock.now();
            known.state.clone()
        };
        state.save(&self.storage).await
    }

    /// The boot in which all of this runs.
    pub fn boot_id(&self) -> String {
        self.known().state.boot_id.clone()
    }

    /// What runs.
    pub fn running(&self) -> Vec<Running> {
        self.known().state.running()
    }

    /// The latest ownership of the node that was told of.
    pub fn ownership_epoch(&self) -> OwnershipEpoch {
        self.known().state.ownership_epoch
    }

    /// How much runs.
    pub fn count(&self) -> u32 {
        self.known().state.allocations.len() as u32
    }

    /// What ended by itself since [`Workloads::told`].
    pub fn ended(&self) -> Vec<EndedAllocation> {
        self.known().ended.clone()
    }

    /// The server knows that these ended.
    pub fn told(&self, ended: &[EndedAllocation]) {
        self.known().ended.retain(|one| !ended.contains(one));
    }

    /// Looks for what ended by itself, and cleans up after it, for [`SWEPT_WITHIN`] at most. What cannot be cleaned up
    /// by then has not ended yet: it goes on being reported as running, and the next sweep tries again. So does one whose
    /// checkpoint runs: its command may write on after the first process ended.
    ///
    /// # Errors
    /// The state file cannot be written.
    pub async fn sweep(&self) -> std::io::Result<()> {
        let candidates = self.known().state.allocations.clone();
        let mut dead = Vec::new();
        for one in candidates {
            let Some(claim) = self.claim(one.allocation) else { continue };
            let Err(exit) = self.hands.first_process(&one).await else { continue };
            if self.known().saving.contains(&one.allocation) {
                continue;
            }
            dead.push((one, exit, claim));
        }
        let scopes = dead.iter().map(|(one, ..)| one.cgroup.clone()).collect();
        let unclean = clean_all(&self.hands, scopes, SWEPT_WITHIN).await;
        for (one, exit, _claim) in dead {
            if let Some(error) = unclean.get(&one.cgroup) {
                if self.known().stuck.insert(one.allocation) {
                    warn!(allocation = %one.allocation, cgroup = one.cgroup, %error, "not cleaned up: tried again");
                }
                continue;
            }
            info!(allocation = %one.allocation, pid = one.pid, "ended");
            self.known().ended.push(ended_of(&one, exit));
            self.forget(one.allocation).await?;
        }
        Ok(())
    }

    /// Accepts nothing new, or accepts again.
    ///
    /// # Errors
    /// The state file cannot be written.
    pub async fn drain(&self, mode: DrainMode) -> Result<TaskOutput, HandError> {
        self.known().state.draining = mode == DrainMode::Begin;
        self.written().await?;
        Ok(TaskOutput::Drain { running: self.running() })
    }

    /// Starts an allocation. One that runs already under that ownership is what was asked for; one of an earlier
    /// ownership is ended first: a partition must never leave one allocation running twice.
    ///
    /// # Errors
    /// The host drains, a later ownership runs, or the process does not start.
    pub async fn start(&self, start: &AllocationStart) -> Result<TaskOutput, HandError> {
        let claim = self.claim(start.allocation);
        let _claim = claim.ok_or_else(|| HandError::failed("another task works on this allocation"))?;
        if let Some(one) = self.find(start.allocation) {
            if one.ownership_epoch > start.ownership_epoch {
                return Err(stale(&one));
            }
            let lives = self.hands.first_process(&one).await.is_ok();
            if lives && one.ownership_epoch == start.ownership_epoch {
                return Ok(started(&one, Vec::new()));
            }
            self.end(&one, DISOWNED_GRACE).await?;
        }
        self.not_fenced(start.ownership_epoch)?;
        if self.known().state.draining {
            let detail = "the host drains: it takes no new allocations".to_owned();
            return Err(HandError { code: TaskErrorCode::Draining, detail });
        }
        let running = Running { allocation: start.allocation, ownership_epoch: start.ownership_epoch };
        let mut one = AllocationState {
            allocation: start.allocation,
            ownership_epoch: start.ownership_epoch,
            pid: 0,
            start_ticks: 0,
            cgroup: self.hands.scope(running),
            runtime: "process".to_owned(),
            mounts: start.mounts.iter().map(|mount| mount.target.clone()).collect(),
            user: start.user,
        };
        self.known().state.allocations.push(one.clone());
        self.written().await?;
        let born = match self.hands.start(start, &one.cgroup).await {
            Ok(born) => born,
            Err(error) => {
                match self.hands.clean(&one.cgroup).await {
                    Ok(()) => self.forget(one.allocation).await.map_err(unwritten)?,
                    // Something of it may live: the sweeps go on.
                    Err(left) => {
                        warn!(allocation = %one.allocation, cgroup = one.cgroup, error = %left, "not cleaned up")
                    }
                }
                return Err(error);
            }
        };
        (one.pid, one.start_ticks) = (born.pid, born.start_ticks);
        {
            let mut known = self.known();
            known.state.allocations.retain(|other| other.allocation != one.allocation);
            known.state.allocations.push(one.clone());
        }
        self.written().await?;
        if let Err(stale) = self.not_fenced(one.ownership_epoch) {
            // Its node was lost while it was started.
            self.end(&one, DISOWNED_GRACE).await?;
            return Err(stale);
        }
        info!(allocation = %one.allocation, pid = one.pid, cgroup = one.cgroup, "started");
        Ok(started(&one, born.not_limited))
    }

    /// Ends an allocation.
    ///
    /// # Errors
    /// A later ownership runs, or it cannot be ended.
    pub async fn stop(&self, stop: &AllocationStop) -> Result<TaskOutput, HandError> {
        let claim = self.claim(stop.allocation);
        let _claim = claim.ok_or_else(|| HandError::failed("another task works on this allocation"))?;
        let Some(one) = self.find(stop.allocation) else {
            return Ok(TaskOutput::Stopped { how: StopResult::WasGone, exit: None });
        };
        if one.ownership_epoch > stop.ownership_epoch {
            return Err(stale(&one));
        }
        let (how, exit) = self.end(&one, Duration::from_millis(stop.grace_ms)).await?;
        Ok(TaskOutput::Stopped { how, exit })
    }

    /// Has an allocation save its state.
    ///
    /// # Errors
    /// It does not run here, or it did not save its state.
    pub async fn checkpoint(&self, checkpoint: &AllocationCheckpoint) -> Result<CheckpointResult, HandError> {
        self.known().saving.push(checkpoint.allocation);
        let _saving = Saving { workloads: self, allocation: checkpoint.allocation };
        let one = self.find(checkpoint.allocation).ok_or_else(|| HandError {
            code: TaskErrorCode::NotRunning,
            detail: "the allocation does not run on this host".to_owned(),
        })?;
        if one.ownership_epoch != checkpoint.ownership_epoch {
            return Err(stale(&one));
        }
        let timeout = Duration::from_millis(checkpoint.timeout_ms);
        self.hands.checkpoint(&one, &checkpoint.how, timeout).await
    }

    /// Whether a start that nobody reported about was done: the process, if it runs.
    pub async fn probe_start(&self, start: &AllocationStart) -> Option<TaskOutput> {
        let one = self.find(start.allocation).filter(|one| one.ownership_epoch == start.ownership_epoch)?;
        self.hands.first_process(&one).await.ok()?;
        Some(started(&one, Vec::new()))
    }

    /// Ends what the node does not own any more.
    ///
    /// # Errors
    /// Something cannot be ended.
    pub async fn disown(&self, disowned: &[Running]) -> Result<(), HandError> {
        for gone in disowned {
            let Some(one) = self.find(gone.allocation) else { continue };
            if one.ownership_epoch == gone.ownership_epoch {
                info!(allocation = %one.allocation, "ended: the node does not own it any more");
                self.end(&one, DISOWNED_GRACE).await?;
            }
        }
        Ok(())
    }

    /// The node has that ownership now: nothing is started under an earlier one, and what runs under one is ended.
    ///
    /// # Errors
    /// Something cannot be ended, or the state file cannot be written.
    pub async fn fence(&self, epoch: OwnershipEpoch) -> Result<(), HandError> {
        let earlier: Vec<AllocationState> = {
            let mut known = self.known();
            let is_news = epoch > known.state.ownership_epoch;
            known.state.ownership_epoch = epoch.max(known.state.ownership_epoch);
            let earlier: Vec<AllocationState> =
                known.state.allocations.iter().filter(|one| one.ownership_epoch < epoch).cloned().collect();
            if !is_news && earlier.is_empty() {
                return Ok(());
            }
            earlier
        };
        self.written().await?;
        for one in earlier {
            info!(allocation = %one.allocation, "ended: the node lost the ownership under which it was started");
            self.end(&one, DISOWNED_GRACE).await?;
        }
        Ok(())
    }

    fn not_fenced(&self, epoch: OwnershipEpoch) -> Result<(), HandError> {
        let present = self.known().state.ownership_epoch;
        if epoch >= present {
            return Ok(());
        }
        let detail = format!("it was asked for under ownership {}, the node is at {}", epoch.0, present.0);
        Err(HandError { code: TaskErrorCode::StaleOwnership, detail })
    }

    async fn end(&self, one: &AllocationState, grace: Duration) -> Result<(StopResult, Option<ExitStatus>), HandError> {
        let how = self.hands.stop(one, grace).await?;
        let exit = self.hands.first_process(one).await.err().flatten();
        self.hands.clean(&one.cgroup).await?;
        self.forget(one.allocation).await.map_err(unwritten)?;
        info!(allocation = %one.allocation, %how, "stopped");
        Ok((how, exit))
    }

    fn find(&self, allocation: AllocationId) -> Option<AllocationState> {
        self.known().state.allocations.iter().find(|one| one.allocation == allocation).cloned()
    }

    fn claim(&self, allocation: AllocationId) -> Option<Claim<'_>> {
        // A claim that is made in vain would give the other one's back when it is dropped, and wait for the lock held here.
        self.known().busy.insert(allocation).then(|| Claim { workloads: self, allocation })
    }

    async fn forget(&self, allocation: AllocationId) -> std::io::Result<()> {
        {
            let mut known = self.known();
            known.state.allocations.retain(|one| one.allocation != allocation);
            known.stuck.remove(&allocation);
        }
        self.save().await
    }

    async fn written(&self) -> Result<(), HandError> {
        self.save().await.map_err(unwritten)
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        // No change of what is known can panic half way.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Cleans up after the dead and removes strays; says which ended. What cannot be cleaned up is kept among the living,
/// if its scope says what it is: the sweeps try again.
async fn clean_at_start(
    hands: &Arc<dyn Hands>,
    (dead, strays): (Vec<(AllocationState, Option<ExitStatus>)>, Vec<Found>),
    living: &mut Vec<AllocationState>,
) -> Vec<EndedAllocation> {
    let of_the_dead = dead.iter().map(|(one, _)| one.cgroup.clone());
    let scopes = of_the_dead.chain(strays.iter().map(|scope| scope.cgroup.clone())).collect();
    let unclean = clean_all(hands, scopes, RECOVERED_WITHIN).await;
    for (cgroup, error) in &unclean {
        warn!(cgroup, %error, "not cleaned up");
    }
    for scope in strays {
        match (unclean.contains_key(&scope.cgroup), scope.running) {
            (false, _) => info!(cgroup = scope.cgroup, "stray scope removed"),
            (true, Some(running)) => living.push(of_scope(running, (0, 0), scope.cgroup)),
            (true, None) => {}
        }
    }
    let mut ended = Vec::new();
    for (one, exit) in dead {
        match unclean.contains_key(&one.cgroup) {
            true => living.push(one),
            false => ended.push(ended_of(&one, exit)),
        }
    }
    ended
}

/// Cleans scopes up, all at once, so that a stuck one delays no other; says which could not be, and why.
async fn clean_all(hands: &Arc<dyn Hands>, scopes: Vec<String>, within: Duration) -> BTreeMap<String, HandError> {
    let late = || HandError::failed(format!("not done within {} s", within.as_secs()));
    let mut left: BTreeMap<String, HandError> = scopes.iter().map(|cgroup| (cgroup.clone(), late())).collect();
    // What is not done in time is dropped with the set.
    let mut work = JoinSet::new();
    for cgroup in scopes {
        let hands = Arc::clone(hands);
        work.spawn(async move {
            let cleaned = hands.clean(&cgroup).await;
            (cgroup, cleaned)
        });
    }
    let all = async {
        while let Some(done) = work.join_next().await {
            match done {
                Ok((cgroup, Ok(()))) => drop(left.remove(&cgroup)),
                Ok((cgroup, Err(error))) => drop(left.insert(cgroup, error)),
                Err(_) => {}
            }
        }
    };
    let _ = tokio::time::timeout(within, all).await;
    left
}

/// What is known of an allocation by its scope alone.
fn of_scope(running: Running, (pid, start_ticks): (u32, u64), cgroup: String) -> AllocationState {
    AllocationState {
        allocation: running.allocation,
        ownership_epoch: running.ownership_epoch,
        pid,
        start_ticks,
        cgroup,
        runtime: "process".to_owned(),
        mounts: Vec::new(),
        user: None,
    }
}

fn unwritten(error: std::io::Error) -> HandError {
    HandError::failed(format!("the state file cannot be written: {error}"))
}

fn stale(one: &AllocationState) -> HandError {
    let detail = format!("it runs under ownership {}", one.ownership_epoch.0);
    HandError { code: TaskErrorCode::StaleOwnership, detail }
}

fn started(one: &AllocationState, not_limited: Vec<String>) -> TaskOutput {
    let cgroup = one.cgroup.clone();
    TaskOutput::Started { pid: one.pid, start_ticks: one.start_ticks, cgroup, not_limited }
}

const fn ended_of(one: &AllocationState, exit: Option<ExitStatus>) -> EndedAllocation {
    EndedAllocation { allocation: one.allocation, ownership_epoch: one.ownership_epoch, exit }
}

#[cfg(test)]
mod tests;
