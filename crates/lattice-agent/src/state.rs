//! What runs on the host, as it must survive the agent. spec: S1 "Agent Restart and State Recovery"

use lattice_core::agent::task::{Running, User};
use lattice_core::ids::{AllocationId, NodeId, OwnershipEpoch};
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
    /// Whether the host takes no new allocations.
    #[serde(default)]
    pub draining: bool,
    /// Ownership that the node had when its agent registered last: nothing is started under an earlier one.
    #[serde(default)]
    pub ownership_epoch: OwnershipEpoch,
    /// What runs.
    #[serde(default)]
    pub allocations: Vec<AllocationState>,
}

/// What reading the state file brought.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Loaded {
    /// As it was written.
    Whole(AgentState),
    /// It could not be read, and was set aside.
    Torn,
    /// There is none.
    Missing,
}

/// One allocation that runs, or is about to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AllocationState {
    /// Which one.
    pub allocation: AllocationId,
    /// Ownership under which it was started.
    pub ownership_epoch: OwnershipEpoch,
    /// Its first process; 0: it is about to be started.
    pub pid: u32,
    /// When that process started, in clock ticks since boot: tells it from a later one with the same pid.
    pub start_ticks: u64,
    /// Its cgroup scope, below the cgroup root.
    pub cgroup: String,
    /// What runs it: `process`, `containerd` …
    pub runtime: String,
    /// Where its task had things mounted, in the order of the task; empty when it is known by its scope alone.
    ///
    /// A record for people: nothing acts on it. The mounts are in a namespace of the workload and end with its last
    /// process. spec: S1 "Agent Restart and State Recovery"
    #[serde(default)]
    pub mounts: Vec<String>,
    /// User and group it runs as; none: the agent's.
    #[serde(default)]
    pub user: Option<User>,
}

impl AgentState {
    /// A host on which nothing runs.
    pub fn empty(node_id: NodeId, boot_id: String, written_at: Timestamp) -> Self {
        Self {
            node_id,
            boot_id,
            written_at,
            draining: false,
            ownership_epoch: OwnershipEpoch::default(),
            allocations: Vec::new(),
        }
    }

    /// What is left of it in another boot, or for another node: nothing runs any more.
    pub fn in_boot(self, node_id: NodeId, boot_id: String) -> Self {
        let empty = Self::empty(node_id, boot_id, self.written_at);
        match self.node_id == node_id {
            true => Self { draining: self.draining, ownership_epoch: self.ownership_epoch, ..empty },
            false => empty,
        }
    }

    /// What registration reports.
    pub fn running(&self) -> Vec<Running> {
        let report =
            |one: &AllocationState| Running { allocation: one.allocation, ownership_epoch: one.ownership_epoch };
        self.allocations.iter().map(report).collect()
    }

    /// Reads the state file; a torn one is set aside.
    ///
    /// # Errors
    /// What the file system says.
    pub async fn load(storage: &Storage) -> std::io::Result<Loaded> {
        let Some(bytes) = storage.read(Item::State).await? else { return Ok(Loaded::Missing) };
        match serde_json::from_slice(&bytes) {
            Ok(state) => Ok(Loaded::Whole(state)),
            Err(error) => {
                warn!(%error, "state file is torn: set aside");
                storage.set_aside(Item::State).await?;
                Ok(Loaded::Torn)
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

    fn allocation_id(number: u32) -> AllocationId {
        AllocationId::new(uuid_v7(Timestamp::from_millis(1), [number as u8; 10]))
    }

    fn state() -> AgentState {
        let allocation = |pid| AllocationState {
            allocation: allocation_id(pid),
            ownership_epoch: OwnershipEpoch(3),
            pid,
            start_ticks: 1000,
            cgroup: format!("workload.slice/alloc-{pid}.scope"),
            runtime: "process".into(),
            mounts: Vec::new(),
            user: None,
        };
        let allocations = vec![allocation(10), allocation(11)];
        AgentState { allocations, ..AgentState::empty(node(1), "boot-1".into(), Timestamp::from_millis(5)) }
    }

    #[tokio::test]
    async fn a_torn_or_missing_state_file_counts_as_none() {
        let storage = Storage::memory();
        assert_eq!(AgentState::load(&storage).await.unwrap(), Loaded::Missing);
        state().save(&storage).await.unwrap();
        assert_eq!(AgentState::load(&storage).await.unwrap(), Loaded::Whole(state()));
        let whole = storage.read(Item::State).await.unwrap().unwrap();
        for end in 0..whole.len() {
            storage.write(Item::State, whole[..end].to_vec()).await.unwrap();
            assert_eq!(AgentState::load(&storage).await.unwrap(), Loaded::Torn, "cut at byte {end}");
            assert_eq!(storage.read(Item::State).await.unwrap(), None, "set aside");
        }
    }
}
