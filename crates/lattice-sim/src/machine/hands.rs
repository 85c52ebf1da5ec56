//! What an agent does to a simulated machine: processes that are only remembered, wipes that can be told to fail.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use lattice_agent::{AllocationState, Born, Found, HandError, Hands, NoHands};
use lattice_core::agent::task::{
    AllocationStart, CheckpointHow, CheckpointResult, ExitStatus, Running, StopResult, TaskInput, WipeEvidence,
    WipeOutput,
};
use lattice_core::node::HostFacts;
use lattice_core::time::Clock;

/// What a wipe of a simulated machine comes to.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    Default,
    serde::Serialize,
    serde::Deserialize,
    strum::Display,
    strum::EnumString,
    strum::VariantArray,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum WipeFate {
    /// It works, and each device says so.
    #[default]
    Works,
    /// The tool fails.
    Fails,
    /// The tool says that it worked, and the device says nothing.
    WithoutEvidence,
    /// It never ends.
    Hangs,
}

/// The hands of one simulated machine, for one boot.
pub struct SimulatedHands {
    facts: HostFacts,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    alive: BTreeMap<String, (Running, u32)>,
    pids: u32,
    wipe: WipeFate,
}

impl SimulatedHands {
    /// A machine that has these devices, and on which nothing runs.
    pub fn new(facts: HostFacts) -> Self {
        Self { facts, inner: Mutex::default() }
    }

    /// What wipes come to from now on.
    pub fn set_wipe(&self, fate: WipeFate) {
        self.inner().wipe = fate;
    }

    /// What runs.
    pub fn running(&self) -> Vec<Running> {
        self.inner().alive.values().map(|(running, _)| *running).collect()
    }

    /// Ends an allocation's process as a bug of its own would. False when it does not run.
    pub fn end(&self, running: Running) -> bool {
        self.inner().alive.remove(&NoHands.scope(running)).is_some()
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn devices(&self, input: &TaskInput) -> BTreeSet<String> {
        match input {
            TaskInput::GpuScrub(_) => self.facts.gpus.iter().map(|gpu| gpu.address.clone()).collect(),
            TaskInput::NvmeErase(_) => {
                let names = self.facts.disks.iter().map(|disk| disk.name.clone());
                names.filter(|name| name.starts_with("nvme")).collect()
            }
            TaskInput::RamScrub(_) => BTreeSet::from(["memory".to_owned()]),
            TaskInput::NodeDrain(_)
            | TaskInput::AllocationStart(_)
            | TaskInput::AllocationStop(_)
            | TaskInput::AllocationCheckpoint(_)
            | TaskInput::HeartbeatCheck(_)
            | TaskInput::NodeReboot(_) => BTreeSet::new(),
        }
    }
}

#[async_trait]
impl Hands for SimulatedHands {
    fn lacks(&self, input: &TaskInput) -> Option<String> {
        match input {
            TaskInput::NodeReboot(_) => Some("simulated machines are restarted by their provider".to_owned()),
            TaskInput::NodeDrain(_)
            | TaskInput::AllocationStart(_)
            | TaskInput::AllocationStop(_)
            | TaskInput::AllocationCheckpoint(_)
            | TaskInput::GpuScrub(_)
            | TaskInput::NvmeErase(_)
            | TaskInput::RamScrub(_)
            | TaskInput::HeartbeatCheck(_) => None,
        }
    }

    fn scope(&self, running: Running) -> String {
        NoHands.scope(running)
    }

    async fn start(&self, start: &AllocationStart, scope: &str) -> Result<Born, HandError> {
        let mut inner = self.inner();
        inner.pids += 1;
        let pid = 1_000 + inner.pids;
        let running = Running { allocation: start.allocation, ownership_epoch: start.ownership_epoch };
        inner.alive.insert(scope.to_owned(), (running, pid));
        Ok(Born { pid, start_ticks: u64::from(pid), not_limited: Vec::new() })
    }

    async fn first_process(&self, one: &AllocationState) -> Result<(), Option<ExitStatus>> {
        match self.inner().alive.get(&one.cgroup) {
            Some((_, pid)) if *pid == one.pid => Ok(()),
            Some(_) | None => Err(None),
        }
    }

    async fn stop(&self, one: &AllocationState, _: Duration) -> Result<StopResult, HandError> {
        match self.inner().alive.remove(&one.cgroup) {
            Some(_) => Ok(StopResult::Graceful),
            None => Ok(StopResult::WasGone),
        }
    }

    async fn checkpoint(
        &self,
        _: &AllocationState,
        how: &CheckpointHow,
        _: Duration,
    ) -> Result<CheckpointResult, HandError> {
        match how {
            CheckpointHow::None => Ok(CheckpointResult::Unsupported),
            CheckpointHow::Signal { .. } | CheckpointHow::Command { .. } => Ok(CheckpointResult::Done),
        }
    }

    async fn clean(&self, cgroup: &str) -> Result<(), HandError> {
        self.inner().alive.remove(cgroup);
        Ok(())
    }

    async fn scopes(&self) -> Vec<Found> {
        let inner = self.inner();
        let found = |(cgroup, (running, pid)): (&String, &(Running, u32))| Found {
            cgroup: cgroup.clone(),
            running: Some(*running),
            process: Some((*pid, u64::from(*pid))),
        };
        inner.alive.iter().map(found).collect()
    }

    async fn wipe(&self, input: &TaskInput, clock: &dyn Clock) -> Result<WipeOutput, HandError> {
        let fate = self.inner().wipe;
        match fate {
            WipeFate::Fails => return Err(HandError::failed("the device reports a media error")),
            WipeFate::Hangs => std::future::pending::<()>().await,
            WipeFate::Works | WipeFate::WithoutEvidence => {}
        }
        let inventory = self.devices(input);
        let kept = |device: &&String| match input {
            TaskInput::NvmeErase(erase) => erase.devices.contains(*device),
            TaskInput::GpuScrub(_) | TaskInput::RamScrub(_) => true,
            TaskInput::NodeDrain(_)
            | TaskInput::AllocationStart(_)
            | TaskInput::AllocationStop(_)
            | TaskInput::AllocationCheckpoint(_)
            | TaskInput::HeartbeatCheck(_)
            | TaskInput::NodeReboot(_) => false,
        };
        let status_after = if fate == WipeFate::WithoutEvidence { "" } else { "empty" };
        let record = |device: &String| WipeEvidence {
            device: device.clone(),
            model: "simulated".to_owned(),
            serial: format!("SIM-{device}"),
            bytes: Some(1 << 30),
            method: "simulated".to_owned(),
            tool: "simulated".to_owned(),
            tool_version: "1".to_owned(),
            exit_code: 0,
            status_before: "in use".to_owned(),
            status_after: status_after.to_owned(),
            started_at: clock.now(),
            finished_at: clock.now(),
        };
        let evidence = inventory.iter().filter(kept).map(record).collect();
        Ok(WipeOutput { inventory, evidence })
    }

    async fn reboot(&self) -> Result<(), HandError> {
        Err(HandError::lacks("simulated machines are restarted by their provider"))
    }
}
