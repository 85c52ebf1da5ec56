//! Hosts: power, boots, disks, and the production agent in them. What their processes do outlives the agent.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use lattice_agent::{AgentConfig, Hands, Host as AgentHost, Item, Pace, Storage, VERSION};
use lattice_api::agent::{Bootstrap, HealthSummary};
use lattice_core::agent::task::Running;
use lattice_core::ids::NodeId;
use lattice_core::node::{DiskFact, GpuFact, HostFacts};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::ground::{Ground, LifeClock};
use super::network::{HostNetwork, Network};
use super::slow_hands::SlowHands;
use crate::machine::hands::SimulatedHands;

/// GPUs of each host, and of its SKU.
pub const GPUS: u32 = 4;

/// One host, or instance.
pub struct Host {
    /// Its name.
    pub name: String,
    ground: Arc<Ground>,
    network: Arc<Network>,
    /// Its own clock.
    pub clock: Arc<LifeClock>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    power: Power,
    /// Whose it is, as its creator stamped it.
    stamp: String,
    /// Its disk.
    files: BTreeMap<String, Vec<u8>>,
    storage: Option<Storage>,
    boot: Option<Boot>,
    boots: u64,
    agent: Option<JoinHandle<()>>,
    /// Why the agent ended by itself.
    ended: Option<String>,
    lost_gpus: u32,
    minor_issue: Option<String>,
    /// A power supply failed: only its BMC knows.
    broken: bool,
}

/// Whether it has power.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Power {
    /// It has none.
    #[default]
    Off,
    /// It boots.
    Starting,
    /// It runs.
    On,
}

/// What lives as long as one boot.
struct Boot {
    id: String,
    hands: Arc<SimulatedHands>,
}

/// Where the bootstrap lies, and what says which token it holds.
pub const BOOTSTRAP_PATH: &str = lattice_workflow::bootstrap::BOOTSTRAP_PATH;

impl Host {
    /// One without power, with an empty disk.
    pub fn new(name: &str, stamp: &str, ground: &Arc<Ground>, network: &Arc<Network>) -> Self {
        let state = State { stamp: stamp.to_owned(), storage: Some(Storage::memory()), ..State::default() };
        Self {
            name: name.to_owned(),
            clock: Arc::new(ground.clock.another()),
            ground: Arc::clone(ground),
            network: Arc::clone(network),
            state: Mutex::new(state),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Who created it.
    pub fn stamp(&self) -> String {
        self.state().stamp.clone()
    }

    /// Whether it has power.
    pub fn power(&self) -> Power {
        self.state().power
    }

    /// A file of its disk.
    pub fn file(&self, path: &str) -> Option<Vec<u8>> {
        self.state().files.get(path).cloned()
    }

    /// Writes a file to its disk.
    pub fn write(&self, path: &str, content: Vec<u8>) {
        self.state().files.insert(path.to_owned(), content);
    }

    /// The node that its agent is, once it was given a bootstrap.
    pub fn node(&self) -> Option<NodeId> {
        self.bootstrap().map(|bootstrap| bootstrap.node_id)
    }

    fn bootstrap(&self) -> Option<Bootstrap> {
        serde_json::from_slice(&self.file(BOOTSTRAP_PATH)?).ok()
    }

    /// What its processes are.
    pub fn running(&self) -> Vec<Running> {
        self.state().boot.as_ref().map(|boot| boot.hands.running()).unwrap_or_default()
    }

    /// Its hands, while it runs.
    pub fn hands(&self) -> Option<Arc<SimulatedHands>> {
        self.state().boot.as_ref().map(|boot| Arc::clone(&boot.hands))
    }

    /// Whether an agent runs in it.
    pub fn has_agent(&self) -> bool {
        self.state().agent.as_ref().is_some_and(|agent| !agent.is_finished())
    }

    /// Why its agent ended by itself, if it did.
    pub fn agent_ended(&self) -> Option<String> {
        self.state().ended.clone()
    }

    /// It gets power: some seconds later it runs. An agent that is installed is started with it.
    pub fn switch_on(self: &Arc<Self>) {
        {
            let mut state = self.state();
            if state.power != Power::Off {
                return;
            }
            state.power = Power::Starting;
            state.boots += 1;
        }
        let boots = self.state().boots;
        let host = Arc::clone(self);
        let takes = self.ground.hosts.millis(2_000, 40_000);
        tokio::spawn(async move {
            tokio::time::sleep(takes).await;
            host.booted(boots);
        });
    }

    fn booted(self: &Arc<Self>, boots: u64) {
        {
            let mut state = self.state();
            if state.power != Power::Starting || state.boots != boots {
                return;
            }
            state.power = Power::On;
            let hands = Arc::new(SimulatedHands::new(facts(GPUS)));
            state.boot = Some(Boot { id: format!("{}-boot-{boots}", self.name), hands });
        }
        self.ground.log.say(format!("{} booted", self.name));
        self.start_agent();
    }

    /// Its power is cut: nothing in it survives but its disk.
    pub fn cut_power(&self) {
        self.kill_agent();
        let mut state = self.state();
        state.power = Power::Off;
        state.boot = None;
    }

    /// Ends its agent as `kill -9` does.
    pub fn kill_agent(&self) -> bool {
        let agent = self.state().agent.take();
        agent.is_some_and(|agent| {
            agent.abort();
            true
        })
    }

    /// Loses the agent's state file, or tears it.
    pub async fn spoil_state_file(&self, torn: bool) {
        let Some(storage) = self.state().storage.clone() else { return };
        // A disk in memory does not fail.
        let _spoiled = match torn {
            true => storage.write(Item::State, b"{\"node_id\":".to_vec()).await,
            false => storage.remove(Item::State).await,
        };
    }

    /// Starts the agent that is installed, if it runs and none does.
    pub fn start_agent(self: &Arc<Self>) {
        let Some(bootstrap) = self.bootstrap() else { return };
        let storage = {
            let state = self.state();
            let runs = state.agent.as_ref().is_some_and(|agent| !agent.is_finished());
            match (&state.boot, &state.storage) {
                (Some(_), Some(storage)) if !runs => storage.clone(),
                (Some(_) | None, Some(_) | None) => return,
            }
        };
        let config = AgentConfig { bootstrap, version: VERSION.to_owned(), storage, pace: pace() };
        let luck = Arc::clone(&self.ground.hosts);
        let ground = lattice_agent::Ground {
            host: Arc::clone(self) as Arc<dyn AgentHost>,
            clock: Arc::clone(&self.clock) as Arc<dyn lattice_core::time::Clock>,
            network: Arc::new(HostNetwork::new(&self.name, &self.network)),
            chance: Arc::new(move || luck.fraction()),
        };
        let host = Arc::clone(self);
        self.ground.log.say(format!("{} agent starts", self.name));
        let agent = tokio::spawn(async move {
            let ended = lattice_agent::run_on(config, ground, CancellationToken::new()).await;
            let why = ended.map_or_else(|error| error.to_string(), |()| "shutdown".to_owned());
            host.ground.log.say(format!("{} agent ended: {why}", host.name));
            host.state().ended = Some(why);
        });
        let mut state = self.state();
        state.ended = None;
        state.agent = Some(agent);
    }

    /// How ill it is from now on.
    pub fn ail(&self, lost_gpus: u32, minor_issue: Option<String>) {
        let mut state = self.state();
        (state.lost_gpus, state.minor_issue) = (lost_gpus, minor_issue);
    }

    /// A power supply fails, or is replaced.
    pub fn set_broken(&self, broken: bool) {
        self.state().broken = broken;
    }

    /// Whether a power supply failed.
    pub fn broken(&self) -> bool {
        self.state().broken
    }

    /// Restarts itself, with the power on.
    pub fn reboot(self: &Arc<Self>) {
        self.cut_power();
        self.switch_on();
    }
}

#[async_trait]
impl AgentHost for Host {
    async fn boot_id(&self) -> std::io::Result<String> {
        let id = self.state().boot.as_ref().map(|boot| boot.id.clone());
        id.ok_or_else(|| std::io::Error::other("it has no power"))
    }

    async fn facts(&self) -> HostFacts {
        facts(GPUS - self.state().lost_gpus)
    }

    async fn health(&self) -> HealthSummary {
        let state = self.state();
        HealthSummary {
            gpu_count: GPUS - state.lost_gpus,
            max_temperature_c: Some(54),
            ecc_uncorrected: 0,
            minor_issue: state.minor_issue.clone(),
        }
    }

    fn hands(&self) -> Arc<dyn Hands> {
        let hands = self.hands().unwrap_or_else(|| Arc::new(SimulatedHands::new(facts(0))));
        Arc::new(SlowHands::new(hands, Arc::clone(&self.ground.hosts)))
    }
}

fn facts(gpus: u32) -> HostFacts {
    let gpu = |index| GpuFact {
        address: format!("0000:{index:02x}:00.0"),
        vendor: "10de".to_owned(),
        model: "simulated".to_owned(),
    };
    let disk = |index| DiskFact {
        name: format!("nvme{index}n1"),
        model: "simulated".to_owned(),
        size_bytes: 1 << 40,
        in_use: index == 0,
    };
    HostFacts {
        gpus: (0..gpus).map(gpu).collect(),
        nics: Vec::new(),
        disks: (0..2).map(disk).collect(),
        memory_mib: 1 << 20,
        cpus: 64,
        kernel: "6.12".to_owned(),
        os: "simulated".to_owned(),
    }
}

/// Production's pace, but that the hardware is looked at within the life.
fn pace() -> Pace {
    Pace { inspect_every: Duration::from_secs(600), ..Pace::default() }
}
