//! A slice of its own for each test, with the agent's workloads over it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use lattice_agent::{AgentState, AllocationState, Hands, Host, LinuxHost, Loaded, Storage, Workloads, Workplace};
use lattice_core::agent::task::{AllocationStart, AllocationStop, Limits, Running, TaskOutput};
use lattice_core::ids::{AllocationId, NodeId, OwnershipEpoch, uuid_v7};
use lattice_core::time::{Clock, Timestamp};

pub const PATIENCE: Duration = Duration::from_secs(20);
pub const BOOT: &str = "boot-1";
const T0: Timestamp = Timestamp::from_millis(1_763_712_764_000);

static PLACES: AtomicU64 = AtomicU64::new(1);

pub struct FixedClock;

impl Clock for FixedClock {
    fn now(&self) -> Timestamp {
        T0
    }
}

/// A slice and a state folder; all that is left in it is killed at the end.
pub struct Place {
    pub folder: tempfile::TempDir,
    pub root: PathBuf,
    pub slice: String,
}

impl Place {
    /// None, said aloud, where cgroups cannot be made.
    pub fn new(test: &str) -> Option<Self> {
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
        let root = mounts.lines().find_map(|line| {
            let (mount, kind) = line.split_once(" - ")?;
            kind.starts_with("cgroup2 ").then(|| PathBuf::from(mount.split(' ').nth(4).unwrap()))
        });
        let slice = format!("lattice-test-{}-{}.slice", std::process::id(), PLACES.fetch_add(1, Ordering::Relaxed));
        let made = root.as_ref().map(|root| std::fs::create_dir(root.join(&slice)).is_ok());
        match (root, made) {
            (Some(root), Some(true)) => Some(Self { folder: tempfile::tempdir().unwrap(), root, slice }),
            (Some(_) | None, _) => {
                println!("skipped: {test} (no cgroup2 file system that can be written to)");
                None
            }
        }
    }

    pub fn storage(&self) -> Storage {
        Storage::folder(self.folder.path().join("state"), None)
    }

    pub fn state_file(&self) -> PathBuf {
        self.folder.path().join("state/agent-state.json")
    }

    pub fn workplace(&self) -> Workplace {
        Workplace {
            cgroup_root: Some(self.root.clone()),
            slice: self.slice.clone(),
            agent: PathBuf::from(env!("CARGO_BIN_EXE_lattice-agent")),
            ..Workplace::default()
        }
    }

    pub fn hands(&self) -> Arc<dyn Hands> {
        LinuxHost::new().working_at(self.workplace()).hands()
    }

    /// What an agent finds that starts now, in a boot.
    pub async fn recover_in(&self, boot: &str) -> Workloads {
        let whose = (node(1), boot.to_owned());
        Workloads::recover(whose, self.hands(), self.storage(), Arc::new(FixedClock)).await.unwrap()
    }

    pub async fn recover(&self) -> Workloads {
        self.recover_in(BOOT).await
    }

    pub async fn state(&self) -> AgentState {
        match AgentState::load(&self.storage()).await.unwrap() {
            Loaded::Whole(state) => state,
            other => panic!("{other:?}"),
        }
    }

    pub fn scopes(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.root.join(&self.slice)).unwrap().flatten();
        let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
        let mut names: Vec<_> = names.filter(|name| name.ends_with(".scope")).collect();
        names.sort();
        names
    }

    /// Processes of a scope.
    pub fn procs(&self, scope: &str) -> Vec<u32> {
        let text = std::fs::read_to_string(self.root.join(scope).join("cgroup.procs")).unwrap_or_default();
        text.lines().map(|line| line.parse().unwrap()).collect()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let slice = self.root.join(&self.slice);
        let deadline = Instant::now() + PATIENCE;
        while slice.exists() && Instant::now() < deadline {
            let _ = std::fs::write(slice.join("cgroup.kill"), "1");
            for entry in std::fs::read_dir(&slice).into_iter().flatten().flatten() {
                let _ = std::fs::remove_dir(entry.path());
            }
            let _ = std::fs::remove_dir(&slice);
        }
    }
}

pub fn node(number: u8) -> NodeId {
    NodeId::new(uuid_v7(T0, [number; 10]))
}

pub fn running(number: u8, epoch: u64) -> Running {
    let allocation = AllocationId::new(uuid_v7(T0, [number; 10]));
    Running { allocation, ownership_epoch: OwnershipEpoch(epoch) }
}

/// A start of `/bin/sh -c SCRIPT`: the only shell here, and it is the test's workload.
pub fn start(number: u8, epoch: u64, script: &str) -> AllocationStart {
    let running = running(number, epoch);
    AllocationStart {
        allocation: running.allocation,
        ownership_epoch: running.ownership_epoch,
        argv: ["/bin/sh", "-c", script].map(str::to_owned).into(),
        env: BTreeMap::from([("PATH".to_owned(), "/usr/bin:/bin".to_owned())]),
        directory: None,
        user: None,
        limits: Limits::default(),
        mounts: Vec::new(),
    }
}

pub fn stop(number: u8, epoch: u64, grace_ms: u64) -> AllocationStop {
    let running = running(number, epoch);
    AllocationStop { allocation: running.allocation, ownership_epoch: running.ownership_epoch, grace_ms }
}

/// Process and scope of a start that worked.
pub fn born(output: &TaskOutput) -> (u32, String) {
    match output {
        TaskOutput::Started { pid, cgroup, .. } => (*pid, cgroup.clone()),
        other => panic!("{other:?}"),
    }
}

pub fn is_alive(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.trim_start().starts_with('Z'))
}

/// Whether a process has a handler for a signal.
pub fn catches(pid: u32, signal: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:\t")).unwrap_or("0");
    u64::from_str_radix(caught, 16).unwrap() & (1 << (signal - 1)) != 0
}

pub async fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    let mut ticks = tokio::time::interval(Duration::from_millis(2));
    while !condition() {
        assert!(Instant::now() < deadline, "{what} did not happen");
        ticks.tick().await;
    }
}

pub fn one(state: &AgentState) -> &AllocationState {
    assert_eq!(state.allocations.len(), 1, "{state:?}");
    &state.allocations[0]
}

/// What the host has mounted at a path and below it.
pub fn mounts_below(path: &Path) -> Vec<String> {
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    let is_below = |line: &&str| line.split(' ').nth(4).is_some_and(|target| Path::new(target).starts_with(path));
    mounts.lines().filter(is_below).map(str::to_owned).collect()
}
