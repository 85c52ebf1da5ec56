//! Starts the node agent's own code for simulated machines, many in one process, each over its own connection.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use lattice_agent::{AgentConfig, Hands, Host, Pace, Storage, VERSION};
use lattice_api::agent::HealthSummary;
use lattice_core::node::HostFacts;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::agent::{AgentLauncher, MachineBoot, RunningAgent};
use super::hands::{SimulatedHands, WipeFate};
use crate::clock::SystemClock;

/// The agents of a site. Clones share them.
#[derive(Clone)]
pub struct RealAgents {
    shared: Arc<Shared>,
}

struct Shared {
    pace: Pace,
    hosts: Mutex<HashMap<String, Arc<SimulatedHost>>>,
    /// Of machines by their labels: a fate outlives a boot.
    wipes: Mutex<HashMap<String, WipeFate>>,
}

/// What is wrong with a running machine, beside what MAAS knows.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Ailment {
    /// GPUs that are gone from the bus.
    pub lost_gpus: usize,
    /// Uncorrectable memory errors.
    pub ecc_uncorrected: u64,
    /// An issue that the host reports about itself.
    pub minor_issue: Option<String>,
}

/// A machine as its agent sees it.
struct SimulatedHost {
    boot: MachineBoot,
    storage: Storage,
    hands: Arc<SimulatedHands>,
    state: Mutex<HostState>,
}

#[derive(Default)]
struct HostState {
    ailment: Ailment,
    /// The process, unless it was killed.
    process: Option<JoinHandle<()>>,
    /// Why the agent ended by itself.
    ended: Option<String>,
}

impl RealAgents {
    /// Agents that go at this pace.
    pub fn new(pace: Pace) -> Self {
        Self { shared: Arc::new(Shared { pace, hosts: Mutex::default(), wipes: Mutex::default() }) }
    }

    /// Makes a machine ill, or well again with the default. False when it runs no agent.
    pub fn ail(&self, label: &str, ailment: Ailment) -> bool {
        self.shared.host(label).map(|host| host.state().ailment = ailment).is_some()
    }

    /// Kills the agent of a machine as `kill -9` does; it stays dead until revived or rebooted. False when none runs.
    pub fn kill(&self, label: &str) -> bool {
        let process = self.shared.host(label).and_then(|host| host.state().process.take());
        process.map(|process| process.abort()).is_some()
    }

    /// Starts the agent of a machine again, with what it left on its disk. False when there is no such machine.
    pub fn revive(&self, label: &str) -> bool {
        let Some(host) = self.shared.host(label) else { return false };
        let running = host.state().process.as_ref().is_some_and(|process| !process.is_finished());
        if !running {
            host.start(self.shared.pace);
        }
        true
    }

    /// What wipes of a machine come to from now on, over boots.
    pub fn set_wipe(&self, label: &str, fate: WipeFate) {
        self.shared.wipes.lock().unwrap_or_else(PoisonError::into_inner).insert(label.to_owned(), fate);
        if let Some(host) = self.shared.host(label) {
            host.hands.set_wipe(fate);
        }
    }

    /// What runs on a machine, and what its wipes come to. None when there is no such machine.
    pub fn hands(&self, label: &str) -> Option<Arc<SimulatedHands>> {
        self.shared.host(label).map(|host| Arc::clone(&host.hands))
    }

    /// Why the agent of a machine ended by itself, if it did.
    pub fn ended(&self, label: &str) -> Option<String> {
        self.shared.host(label).and_then(|host| host.state().ended.clone())
    }
}

impl Shared {
    fn hosts(&self) -> MutexGuard<'_, HashMap<String, Arc<SimulatedHost>>> {
        self.hosts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn host(&self, label: &str) -> Option<Arc<SimulatedHost>> {
        self.hosts().get(label).cloned()
    }
}

impl SimulatedHost {
    fn state(&self) -> MutexGuard<'_, HostState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn start(self: &Arc<Self>, pace: Pace) {
        let config = AgentConfig {
            bootstrap: self.boot.bootstrap.clone(),
            version: VERSION.to_owned(),
            storage: self.storage.clone(),
            pace,
        };
        let host = Arc::clone(self);
        let task = tokio::spawn(async move {
            let seen: Arc<dyn Host> = host.clone();
            // Never cancelled: power cuts and kills abort the task, as nothing in them is orderly.
            let ended = lattice_agent::run(config, seen, Arc::new(SystemClock), CancellationToken::new()).await;
            if let Err(error) = ended {
                tracing::warn!(label = host.boot.label, %error, "the agent of a simulated machine ended");
                host.state().ended = Some(error.to_string());
            }
        });
        let mut state = self.state();
        state.ended = None;
        if let Some(before) = state.process.replace(task) {
            before.abort();
        }
    }
}

#[async_trait]
impl AgentLauncher for RealAgents {
    async fn launch(&self, boot: MachineBoot) -> Result<Box<dyn RunningAgent>, String> {
        let label = boot.label.clone();
        // What an earlier boot of the same deployment wrote is still on the disk.
        let before = self.shared.host(&label).filter(|host| host.boot.deployment == boot.deployment);
        let storage = before.map_or_else(Storage::memory, |host| host.storage.clone());
        // Nothing that ran survives a boot.
        let hands = Arc::new(SimulatedHands::new(boot.facts.clone()));
        let fate = self.shared.wipes.lock().unwrap_or_else(PoisonError::into_inner).get(&label).copied();
        hands.set_wipe(fate.unwrap_or_default());
        let host = Arc::new(SimulatedHost { boot, storage, hands, state: Mutex::default() });
        self.shared.hosts().insert(label, host.clone());
        host.start(self.shared.pace);
        Ok(Box::new(Process(host)))
    }

    async fn wipe(&self, label: &str) {
        self.shared.hosts().remove(label);
    }
}

struct Process(Arc<SimulatedHost>);

#[async_trait]
impl RunningAgent for Process {
    async fn stop(self: Box<Self>) {
        let process = self.0.state().process.take();
        if let Some(process) = process {
            process.abort();
            let _aborted = process.await;
        }
    }
}

#[async_trait]
impl Host for SimulatedHost {
    async fn boot_id(&self) -> std::io::Result<String> {
        Ok(self.boot.boot_id.clone())
    }

    async fn facts(&self) -> HostFacts {
        let mut facts = self.boot.facts.clone();
        let kept = facts.gpus.len().saturating_sub(self.state().ailment.lost_gpus);
        facts.gpus.truncate(kept);
        facts
    }

    async fn health(&self) -> HealthSummary {
        let Ailment { lost_gpus, ecc_uncorrected, minor_issue } = self.state().ailment.clone();
        let gpus = self.boot.facts.gpus.len().saturating_sub(lost_gpus);
        HealthSummary {
            gpu_count: u32::try_from(gpus).unwrap_or(u32::MAX),
            max_temperature_c: Some(54),
            ecc_uncorrected,
            minor_issue,
        }
    }

    fn hands(&self) -> Arc<dyn Hands> {
        self.hands.clone()
    }
}
