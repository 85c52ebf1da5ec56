//! What runs on the host and what the agent knows of it, kept in step with the state file.
//!
//! Every change is written before it counts: an allocation is in the file before its process is started, and leaves it
//! after its scope is gone. So whatever an agent's death leaves behind is either in the file or a stray.
//! spec: S1 "Agent Restart and State Recovery"; design: 4 "On the host"

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lattice_api::agent::EndedAllocation;
use lattice_core::agent::task::{
    AllocationCheckpoint, AllocationStart, AllocationStop, CheckpointResult, DrainMode, ExitStatus, Running,
    StopResult, TaskErrorCode, TaskOutput,
};
use lattice_core::ids::{AllocationId, NodeId, OwnershipEpoch};
use lattice_core::time::Clock;
use tracing::{info, warn};

use crate::hands::{HandError, Hands};
use crate::state::{AgentState, AllocationState, Loaded};
use crate::storage::Storage;

/// How long what a node does not own any more has to end by itself.
const DISOWNED_GRACE: Duration = Duration::from_secs(10);

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
        let mut ended = Vec::new();
        let mut living = Vec::new();
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
                    tidy(&*hands, &one.cgroup, &one.mounts).await;
                    ended.push(ended_of(&one, exit));
                }
            }
        }
        for scope in found {
            if living.iter().any(|one| one.cgroup == scope.cgroup) {
                continue;
            }
            match (scope.running, scope.process) {
                (Some(running), Some((pid, start_ticks))) if !strays_are_known => {
                    info!(allocation = %running.allocation, pid, "found without a state file");
                    living.push(AllocationState {
                        allocation: running.allocation,
                        ownership_epoch: running.ownership_epoch,
                        pid,
                        start_ticks,
                        cgroup: scope.cgroup,
                        runtime: "process".to_owned(),
                        mounts: Vec::new(),
                        user: None,
                    });
                }
                (Some(_) | None, Some(_) | None) => {
                    info!(cgroup = scope.cgroup, "stray scope removed");
                    tidy(&*hands, &scope.cgroup, &[]).await;
                }
            }
        }
        state.allocations = living;
        let known = Mutex::new(Known { state, busy: BTreeSet::new(), ended });
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

    /// Looks for what ended by itself, and cleans up after it.
    ///
    /// # Errors
    /// The state file cannot be written.
    pub async fn sweep(&self) -> std::io::Result<()> {
        let candidates = self.known().state.allocations.clone();
        for one in candidates {
            let Some(_claim) = self.claim(one.allocation) else { continue };
            let Err(exit) = self.hands.first_process(&one).await else { continue };
            info!(allocation = %one.allocation, pid = one.pid, "ended");
            tidy(&*self.hands, &one.cgroup, &one.mounts).await;
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
                tidy(&*self.hands, &one.cgroup, &one.mounts).await;
                self.forget(one.allocation).await.map_err(unwritten)?;
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
        self.hands.clean(&one.cgroup, &one.mounts).await?;
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
        self.known().state.allocations.retain(|one| one.allocation != allocation);
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

/// What cannot be removed now is a stray at the next start: it is tried again then.
async fn tidy(hands: &dyn Hands, cgroup: &str, mounts: &[String]) {
    if let Err(error) = hands.clean(cgroup, mounts).await {
        warn!(cgroup, %error, "not cleaned up");
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
