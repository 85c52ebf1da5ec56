//! What runs on the host, as it must survive the agent. spec: S1 "Agent Restart and State Recovery"

use lattice_api::agent::RunningAllocation;
use lattice_core::ids::NodeId;
use lattice_core::time::Timestamp;
use serde::{Deserialize, Serialize};
use tracing::warn;

use crate::storage::{Item, Storage};

/// The state file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentState {
    /// Whose state.
    pub node_id: NodeId,
    /// Boot in which it was written: processes of another boot are gone.
    pub boot_id: String,
    /// When it was written.
    pub written_at: Timestamp,
    /// What runs.
    #[serde(default)]
    pub allocations: Vec<AllocationState>,
}

/// One allocation that runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AllocationState {
    /// Which one.
    pub allocation: String,
    /// Epoch of the ownership under which it was started.
    pub ownership_epoch: u64,
    /// Its first process.
    pub pid: u32,
    /// When that process started, in clock ticks since boot: tells it from a later one with the same pid.
    pub start_ticks: u64,
    /// Its cgroup scope, below the cgroup root.
    pub cgroup: String,
    /// What runs it: `process`, `containerd` …
    pub runtime: String,
    /// What is mounted for it.
    #[serde(default)]
    pub mounts: Vec<String>,
}

impl AgentState {
    /// A host on which nothing runs.
    pub fn empty(node_id: NodeId, boot_id: String, written_at: Timestamp) -> Self {
        Self { node_id, boot_id, written_at, allocations: Vec::new() }
    }

    /// What of it still lives: nothing of another node or boot, and no process that ended.
    #[must_use]
    pub fn survivors(self, node_id: NodeId, boot_id: &str, lives: impl Fn(u32, u64) -> bool) -> Self {
        let same_boot = self.node_id == node_id && self.boot_id == boot_id;
        let allocations = self.allocations.into_iter();
        let allocations = allocations.filter(|one| same_boot && lives(one.pid, one.start_ticks)).collect();
        Self { node_id, boot_id: boot_id.to_owned(), allocations, ..self }
    }

    /// What registration reports.
    pub fn running(&self) -> Vec<RunningAllocation> {
        let report = |one: &AllocationState| RunningAllocation {
            allocation: one.allocation.clone(),
            ownership_epoch: one.ownership_epoch,
        };
        self.allocations.iter().map(report).collect()
    }

    /// Reads the state file; a torn one is set aside and counts as missing.
    ///
    /// # Errors
    /// What the file system says.
    pub async fn load(storage: &Storage) -> std::io::Result<Option<Self>> {
        let Some(bytes) = storage.read(Item::State).await? else { return Ok(None) };
        match serde_json::from_slice(&bytes) {
            Ok(state) => Ok(Some(state)),
            Err(error) => {
                warn!(%error, "state file is torn: set aside");
                storage.set_aside(Item::State).await?;
                Ok(None)
            }
        }
    }

    /// Writes the state file.
    ///
    /// # Errors
    /// What the file system says; the file before stands then.
    pub async fn save(&self, storage: &Storage) -> std::io::Result<()> {
        storage.write(Item::State, serde_json::to_vec_pretty(self).map_err(std::io::Error::other)?).await
    }
}

#[cfg(test)]
mod tests {
    use lattice_core::ids::uuid_v7;

    use super::*;

    fn node(number: u8) -> NodeId {
        NodeId::new(uuid_v7(Timestamp::from_millis(1), [number; 10]))
    }

    fn state() -> AgentState {
        let allocation = |pid| AllocationState {
            allocation: format!("alloc-{pid}"),
            ownership_epoch: 3,
            pid,
            start_ticks: 1000,
            cgroup: format!("workload.slice/alloc-{pid}.scope"),
            runtime: "process".into(),
            mounts: Vec::new(),
        };
        let allocations = vec![allocation(10), allocation(11)];
        AgentState { allocations, ..AgentState::empty(node(1), "boot-1".into(), Timestamp::from_millis(5)) }
    }

    #[test]
    fn only_processes_of_this_boot_and_start_survive() {
        let lives = |pid: u32, ticks: u64| pid == 10 && ticks == 1000;
        for (node_id, boot, reused, left) in [
            (node(1), "boot-1", 1000, vec!["alloc-10"]),
            (node(1), "boot-2", 1000, vec![]),
            (node(2), "boot-1", 1000, vec![]),
            (node(1), "boot-1", 2000, vec![]),
        ] {
            let mut state = state();
            state.allocations[0].start_ticks = reused;
            let survivors = state.survivors(node_id, boot, lives);
            let names: Vec<_> = survivors.running().into_iter().map(|one| one.allocation).collect();
            assert_eq!(names, left);
            assert_eq!((survivors.node_id, survivors.boot_id.as_str()), (node_id, boot));
        }
    }

    #[tokio::test]
    async fn a_torn_or_missing_state_file_counts_as_none() {
        let storage = Storage::memory();
        assert_eq!(AgentState::load(&storage).await.unwrap(), None);
        state().save(&storage).await.unwrap();
        assert_eq!(AgentState::load(&storage).await.unwrap(), Some(state()));
        let whole = storage.read(Item::State).await.unwrap().unwrap();
        for end in 0..whole.len() {
            storage.write(Item::State, whole[..end].to_vec()).await.unwrap();
            assert_eq!(AgentState::load(&storage).await.unwrap(), None, "cut at byte {end}");
            assert_eq!(storage.read(Item::State).await.unwrap(), None, "set aside");
        }
    }
}
