//! Machines in memory whose agents come by themselves, without a network.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use lattice_api::agent::{Bootstrap, HealthSummary, RegisterRequest};
use lattice_api::error::Problem;
use lattice_core::ids::{NodeId, OwnershipEpoch, SessionId};
use lattice_core::node::{DiskFact, GpuFact, HostFacts, NicFact};
use lattice_core::time::{Clock, Timestamp};
use lattice_providers::error::ProviderError;
use lattice_providers::machine::fake::{FakeLatency, FakeProvider};
use lattice_providers::observer::{MachineObservation, MachineObserver, MachineState};
use lattice_providers::provider::{
    CommandOutput, Creation, GuestAccess, GuestFile, MachineProvider, NewInstance, Stop,
};
use lattice_server::agent_api::{AgentEvents, Enrolment, Registered, Registration};
use lattice_server::agents::Agents;
use lattice_server::clock::{SystemClock, SystemIds};
use lattice_workflow::bootstrap::BOOTSTRAP_PATH;

const FROM: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 1);

/// How long hosts take, in milliseconds; each draws its own time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostTimes {
    /// From its start until it runs.
    pub boot_ms: Range<u64>,
    /// From the agent's start until it enrols.
    pub agent_ms: Range<u64>,
}

impl HostTimes {
    /// Nothing takes any time.
    pub const AT_ONCE: Self = Self { boot_ms: 0..1, agent_ms: 0..1 };
}

/// The fake provider, with agents.
pub struct Hosts {
    fake: FakeProvider,
    times: HostTimes,
    agents: OnceLock<Arc<Agents>>,
    known: Mutex<HashMap<String, Known>>,
}

#[derive(Default)]
struct Known {
    runs_from: Option<Instant>,
    bootstrap: Option<Bootstrap>,
}

impl Hosts {
    /// None yet.
    pub fn new(times: HostTimes) -> Self {
        let fake = FakeProvider::new(Arc::new(SystemClock), FakeLatency::default());
        Self { fake, times, agents: OnceLock::new(), known: Mutex::default() }
    }

    /// Whom their agents speak to.
    pub fn serve(&self, agents: Agents) {
        // Called once: a second server would have hosts of its own.
        let _ = self.agents.set(Arc::new(agents));
    }

    fn known(&self) -> MutexGuard<'_, HashMap<String, Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn start_agent(&self, machine: &str) {
        let bootstrap = self.known().get(machine).and_then(|known| known.bootstrap.clone());
        let (Some(bootstrap), Some(agents)) = (bootstrap, self.agents.get().cloned()) else { return };
        let pause = drawn(&self.times.agent_ms);
        tokio::spawn(async move {
            tokio::time::sleep(pause).await;
            if let Err(problem) = enrol(&agents, bootstrap).await {
                eprintln!("an agent was refused: {}", problem.detail);
            }
        });
    }
}

fn drawn(range: &Range<u64>) -> Duration {
    Duration::from_millis(rand::random_range(range.clone()))
}

async fn enrol(agents: &Agents, bootstrap: Bootstrap) -> Result<(), Problem> {
    let (node, boot_id) = (bootstrap.node_id, bootstrap.node_id.to_string());
    agents
        .enroll(Enrolment {
            node,
            token: bootstrap.token,
            key_hash: "e".repeat(64),
            boot_id: boot_id.clone(),
            agent_version: "0.1.0".to_owned(),
            facts: facts(),
            peer: FROM,
            at: SystemClock.now(),
        })
        .await?;
    register(agents, node, boot_id, SystemClock.now()).await
}

/// Registers the agent of a healthy host with eight GPUs; once more when it is told of an ownership that its node lost.
pub async fn register(agents: &Agents, node: NodeId, boot_id: String, at: Timestamp) -> Result<(), Problem> {
    let mut said = registration(node, boot_id, at);
    loop {
        match agents.register(said.clone()).await? {
            Registered::Open { .. } => return Ok(()),
            Registered::NotYet { ownership_epoch, .. } => said.request.ownership_epoch = ownership_epoch,
        }
    }
}

fn registration(node: NodeId, boot_id: String, at: Timestamp) -> Registration {
    let request = RegisterRequest {
        boot_id,
        agent_version: "0.1.0".to_owned(),
        facts: facts(),
        fingerprint: "f".repeat(64),
        health: HealthSummary { gpu_count: 8, max_temperature_c: Some(61), ..HealthSummary::default() },
        running: Vec::new(),
        ownership_epoch: OwnershipEpoch::default(),
    };
    Registration { node, session: SessionId::generate(&SystemIds, at), request, peer: FROM, at }
}

/// What a host with eight GPUs reports.
pub fn facts() -> HostFacts {
    let gpu = |number| GpuFact {
        address: format!("0000:{number:02x}:00.0"),
        vendor: "amd".to_owned(),
        model: "MI300X".to_owned(),
    };
    let nic = |number| NicFact {
        name: format!("rdma{number}"),
        mac: format!("52:54:00:00:00:{number:02x}"),
        firmware: "28.39.1002".to_owned(),
        speed_mbps: 400_000,
    };
    let disk = |number| DiskFact {
        name: format!("nvme{number}n1"),
        model: "KCD8XRUG7T68".to_owned(),
        size_bytes: 7_681_501_126_656,
        in_use: false,
    };
    HostFacts {
        gpus: (0..8).map(gpu).collect(),
        nics: (0..10).map(nic).collect(),
        disks: (0..6).map(disk).collect(),
        memory_mib: 2_321_920,
        cpus: 192,
        kernel: "6.8.0-45-generic".to_owned(),
        os: "Ubuntu 24.04.1 LTS".to_owned(),
    }
}

#[async_trait]
impl MachineObserver for Hosts {
    async fn observe(&self, provider_ref: &str) -> Result<Option<MachineObservation>, ProviderError> {
        let mut found = self.fake.observe(provider_ref).await?;
        if let Some(found) = found.as_mut().filter(|found| found.state == MachineState::Running) {
            let runs_from = self.known().get(provider_ref).and_then(|known| known.runs_from);
            if runs_from.is_some_and(|from| from > Instant::now()) {
                (found.state, found.status) = (MachineState::Changing, "Starting".to_owned());
            }
        }
        Ok(found)
    }

    async fn observe_all(&self) -> Result<Vec<MachineObservation>, ProviderError> {
        self.fake.observe_all().await
    }
}

#[async_trait]
impl MachineProvider for Hosts {
    async fn create(&self, new: &NewInstance, key: &str) -> Result<Creation, ProviderError> {
        self.fake.create(new, key).await
    }

    async fn start(&self, provider_ref: &str, key: &str) -> Result<(), ProviderError> {
        self.fake.start(provider_ref, key).await?;
        let runs_from = Instant::now() + drawn(&self.times.boot_ms);
        self.known().entry(provider_ref.to_owned()).or_default().runs_from.get_or_insert(runs_from);
        Ok(())
    }

    async fn stop(&self, provider_ref: &str, how: Stop, key: &str) -> Result<(), ProviderError> {
        self.fake.stop(provider_ref, how, key).await
    }

    async fn delete(&self, provider_ref: &str, key: &str) -> Result<(), ProviderError> {
        self.fake.delete(provider_ref, key).await?;
        self.known().remove(provider_ref);
        Ok(())
    }
}

#[async_trait]
impl GuestAccess for Hosts {
    async fn push_file(&self, provider_ref: &str, file: &GuestFile) -> Result<(), ProviderError> {
        self.fake.push_file(provider_ref, file).await?;
        if file.path == BOOTSTRAP_PATH {
            let bootstrap = serde_json::from_slice(file.content.expose())
                .map_err(|error| ProviderError::unusable("push_file", error.to_string()))?;
            self.known().entry(provider_ref.to_owned()).or_default().bootstrap = Some(bootstrap);
        }
        Ok(())
    }

    async fn exec(
        &self,
        provider_ref: &str,
        command: &[&str],
        limit: Duration,
    ) -> Result<CommandOutput, ProviderError> {
        let output = self.fake.exec(provider_ref, command, limit).await?;
        if command.first() == Some(&"/bin/sh") {
            self.start_agent(provider_ref);
        }
        Ok(output)
    }
}
