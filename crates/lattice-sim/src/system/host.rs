//! Hosts: power, boots, disks, and the production agent in them. What their processes do outlives the agent.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use lattice_agent::{AgentConfig, AgentError, Hands, Host as AgentHost, Item, MemoryDisk, Pace, Storage, VERSION};
use lattice_api::agent::{Bootstrap, HealthSummary};
use lattice_core::agent::task::Running;
use lattice_core::ids::NodeId;
use lattice_core::node::HostFacts;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::faults::Fault;
use super::ground::{Ground, LifeClock};
use super::metal::{Left, Metal};
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
    /// Its devices.
    metal: Arc<Metal>,
    /// The disk on which its agent keeps what must survive it.
    disk: Arc<MemoryDisk>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    power: Power,
    /// Whose it is, as its creator stamped it.
    stamp: String,
    /// Its disk.
    files: BTreeMap<String, Vec<u8>>,
    boot: Option<Boot>,
    boots: u64,
    agent: Option<JoinHandle<()>>,
    /// Why the agent ended by itself.
    ended: Option<String>,
    minor_issue: Option<String>,
    /// A power supply failed: only its BMC knows.
    broken: bool,
    /// Its BMC takes another login than the one that is known.
    locked: bool,
    /// Writes that its agent's disk had refused when that was told last.
    refused_writes: u64,
    /// What its BMC erases or erased, by the task, and when that ends.
    erasures: BTreeMap<String, tokio::time::Instant>,
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

/// When an agent that ended by itself is started again, as its service says.
const RESTART: Duration = Duration::from_secs(5);
/// Where the bootstrap lies, and what says which token it holds.
pub const BOOTSTRAP_PATH: &str = lattice_workflow::bootstrap::BOOTSTRAP_PATH;

impl Host {
    /// One without power, with an empty disk.
    pub fn new(name: &str, stamp: &str, ground: &Arc<Ground>, network: &Arc<Network>) -> Self {
        let state = State { stamp: stamp.to_owned(), ..State::default() };
        Self {
            name: name.to_owned(),
            clock: Arc::new(ground.clock.another()),
            disk: Arc::default(),
            metal: Arc::new(Metal::new(&ground.hosts)),
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

    /// What work left on its devices.
    pub fn left(&self, keeps_system_drive: bool) -> Left {
        let boot = self.state().boot.as_ref().map(|boot| boot.id.clone());
        self.metal.left(keeps_system_drive, boot.as_deref())
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
            let hands = Arc::new(SimulatedHands::new(self.metal.facts()));
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

    /// Loses something that the agent kept, or tears it at that byte.
    pub async fn spoil(&self, item: Item, torn_at: Option<u64>) {
        let storage = Storage::Memory(Arc::clone(&self.disk));
        let kept = storage.read(item).await.ok().flatten();
        let Some(mut kept) = kept.filter(|kept| kept.len() > 1) else { return };
        let fault = match (item, torn_at) {
            (Item::State, None) => Fault::StateLost,
            (Item::State, Some(_)) => Fault::StateTorn,
            (Item::Tasks | Item::Identity | Item::PendingKey, None) => Fault::JournalLost,
            (Item::Tasks | Item::Identity | Item::PendingKey, Some(_)) => Fault::JournalTorn,
        };
        let spoilt = match torn_at {
            Some(at) => {
                kept.truncate(usize::try_from(at % (kept.len() as u64 - 1)).unwrap_or_default());
                storage.write(item, kept).await
            }
            None => storage.remove(item).await,
        };
        if spoilt.is_ok() {
            self.ground.faults.befell(fault);
            self.ground.log.say(format!("{} {fault}", self.name));
        }
    }

    /// Starts the agent that is installed, if it runs and none does.
    pub fn start_agent(self: &Arc<Self>) {
        let Some(bootstrap) = self.bootstrap() else { return };
        if self.state().boot.is_none() || self.has_agent() {
            return;
        }
        let storage = Storage::Memory(Arc::clone(&self.disk));
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
            let is_restarted = matches!(ended, Err(AgentError::Storage(_)));
            let why = ended.map_or_else(|error| error.to_string(), |()| "shutdown".to_owned());
            host.ground.log.say(format!("{} agent ended: {why}", host.name));
            host.state().ended = Some(why);
            if is_restarted {
                later(&host, RESTART, Self::start_agent);
            }
        });
        let mut state = self.state();
        state.ended = None;
        state.agent = Some(agent);
    }

    /// How ill it is from now on.
    pub fn ail(&self, lost_gpus: u32, minor_issue: Option<String>) {
        self.metal.lose_gpus(lost_gpus);
        self.state().minor_issue = minor_issue;
    }

    /// A power supply fails, or is replaced.
    pub fn set_broken(&self, broken: bool) {
        self.state().broken = broken;
    }

    /// The disk of its agent cannot be written from now on, or can be again.
    pub fn set_disk_failing(&self, fails: bool) {
        let refused = self.disk.refused();
        self.disk.set_failing(fails);
        let told = std::mem::replace(&mut self.state().refused_writes, refused);
        if refused > told {
            self.ground.faults.befell(Fault::DiskFailed);
        }
    }

    /// Its BMC takes another login from now on, or the known one again.
    pub fn set_locked(&self, locked: bool) {
        self.state().locked = locked;
    }

    /// Whether its BMC takes another login than the one that is known.
    pub fn is_locked(&self) -> bool {
        self.state().locked
    }

    /// Whether a power supply failed.
    pub fn broken(&self) -> bool {
        self.state().broken
    }

    /// Its BMC begins to erase a drive: the task, if there is such a drive. A host whose system is gone boots nothing.
    pub fn begin_erase(&self, drive: &str) -> Option<String> {
        let had_system = self.metal.erase(drive)?;
        let takes = self.ground.hosts.millis(500, 90_000);
        let mut state = self.state();
        if had_system {
            state.files.clear();
        }
        let task = format!("task-{}", state.erasures.len());
        state.erasures.insert(task.clone(), tokio::time::Instant::now() + takes);
        Some(task)
    }

    /// Whether what its BMC was told to erase is; none: it knows of no such task.
    pub fn is_erased(&self, task: &str) -> Option<bool> {
        self.state().erasures.get(task).map(|until| tokio::time::Instant::now() >= *until)
    }

    /// Its BMC restarts: it knows of no task any more.
    pub fn forget_erasures(&self) {
        self.state().erasures.clear();
    }

    /// Its drives, by name.
    pub fn drives(&self) -> Vec<String> {
        self.metal.drives()
    }

    /// It comes up with another system, or with the first one again.
    pub fn renew(self: &Arc<Self>) {
        self.metal.renew();
        self.reboot();
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
        self.metal.facts()
    }

    async fn health(&self) -> HealthSummary {
        let state = self.state();
        HealthSummary {
            gpu_count: self.metal.gpus(),
            max_temperature_c: Some(54),
            ecc_uncorrected: 0,
            minor_issue: state.minor_issue.clone(),
        }
    }

    fn hands(&self) -> Arc<dyn Hands> {
        let boot = self.state().boot.as_ref().map(|boot| (boot.id.clone(), Arc::clone(&boot.hands)));
        let (boot, hands) =
            boot.unwrap_or_else(|| (String::new(), Arc::new(SimulatedHands::new(HostFacts::default()))));
        Arc::new(SlowHands::new(hands, self.node(), (Arc::clone(&self.metal), boot), &self.ground))
    }
}

/// Somebody does that to a host, after a while.
pub fn later(host: &Arc<Host>, pause: Duration, what: fn(&Arc<Host>)) {
    let host = Arc::clone(host);
    tokio::spawn(async move {
        tokio::time::sleep(pause).await;
        what(&host);
    });
}

/// Production's pace, but that the hardware is looked at within the life.
fn pace() -> Pace {
    Pace { inspect_every: Duration::from_secs(600), ..Pace::default() }
}
