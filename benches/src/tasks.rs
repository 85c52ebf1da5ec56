//! A task's way: committed, woken for, signed, sent, verified, written down, begun on the agent. design: 7
//!
//! Server and agent share one process, so that both ends are timed by one clock; between them are real TLS on loopback,
//! the store's file and the agent's journal on the disk.

use std::net::TcpListener;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use lattice_agent::{
    AgentConfig, AllocationState, Born, Found, HandError, Hands, Host, NoHands, Pace, Storage, VERSION,
};
use lattice_api::agent::{Bootstrap, HealthSummary, HeartbeatConfig};
use lattice_controllers::Fleet;
use lattice_core::actor::Actor;
use lattice_core::agent::task::{
    AllocationStart, CheckpointHow, CheckpointResult, ExitStatus, RamScrub, Running, SigningKey, StopResult, TaskInput,
    TaskOwner, WipeOutput,
};
use lattice_core::change::{Change, Commit};
use lattice_core::command::Request;
use lattice_core::command::task::{NewTask, issue};
use lattice_core::credential::EnrollmentToken;
use lattice_core::heartbeat::Registry;
use lattice_core::ids::{CorrelationId, EventSeq, Generation, IdSource, JobId, OpId, TokenId};
use lattice_core::node::{HostFacts, Node};
use lattice_core::secret::{Secret, token_hash};
use lattice_core::site::SiteProvider;
use lattice_core::time::{Clock, Timestamp};
use lattice_server::agent_api::{AgentListener, AgentPolicy, AgentService, Limits, Parts, TaskDesk, server_tls};
use lattice_server::agents::{Agents, WakeJob};
use lattice_server::clock::{SystemClock, SystemIds};
use lattice_server::task_keys::TaskKeys;
use lattice_sim::machine::hands::SimulatedHands;
use lattice_store::{EventFilter, Store, StoreConfig};

use crate::failure::{Failure, at, wrong};
use crate::figure::{Report, Target};
use crate::fleet;
use crate::heartbeats::identities::ThrowawayCa;

/// Tasks that are timed, one after the other.
const TASKS: u32 = 300;
/// Tasks before that, which are not: the first ones pay for the connection.
const WARM: u32 = 20;
const TOKEN: &str = "lat_enroll_bench";
const PATIENCE: Duration = Duration::from_secs(20);
const DAY: Duration = Duration::from_secs(86_400);

/// Remembers when each task was begun, one after the other. They are wipes: a task that begins an allocation is handed over
/// only to the node where it is placed.
struct Stopwatches {
    begun: Mutex<Vec<Instant>>,
    hands: SimulatedHands,
}

struct NoJobs;

impl WakeJob for NoJobs {
    fn wake(&self, _: JobId) {}
}

#[async_trait]
impl Hands for Stopwatches {
    fn lacks(&self, _: &TaskInput) -> Option<String> {
        None
    }
    fn scope(&self, running: Running) -> String {
        NoHands.scope(running)
    }
    async fn start(&self, start: &AllocationStart, scope: &str) -> Result<Born, HandError> {
        NoHands.start(start, scope).await
    }
    async fn first_process(&self, one: &AllocationState) -> Result<(), Option<ExitStatus>> {
        NoHands.first_process(one).await
    }
    async fn stop(&self, one: &AllocationState, grace: Duration) -> Result<StopResult, HandError> {
        NoHands.stop(one, grace).await
    }
    async fn checkpoint(
        &self,
        one: &AllocationState,
        how: &CheckpointHow,
        timeout: Duration,
    ) -> Result<CheckpointResult, HandError> {
        NoHands.checkpoint(one, how, timeout).await
    }
    async fn clean(&self, cgroup: &str) -> Result<(), HandError> {
        NoHands.clean(cgroup).await
    }
    async fn scopes(&self) -> Vec<Found> {
        Vec::new()
    }
    async fn wipe(&self, input: &TaskInput, clock: &dyn Clock) -> Result<WipeOutput, HandError> {
        self.begun.lock().unwrap_or_else(PoisonError::into_inner).push(Instant::now());
        self.hands.wipe(input, clock).await
    }
    async fn reboot(&self) -> Result<(), HandError> {
        NoHands.reboot().await
    }
}

struct Machine(Arc<Stopwatches>);

#[async_trait]
impl Host for Machine {
    async fn boot_id(&self) -> std::io::Result<String> {
        Ok("boot".to_owned())
    }
    async fn facts(&self) -> HostFacts {
        HostFacts::default()
    }
    async fn health(&self) -> HealthSummary {
        HealthSummary::default()
    }
    fn hands(&self) -> Arc<dyn Hands> {
        self.0.clone()
    }
}

/// Measures the way of a task.
///
/// # Errors
/// A part does not start, or a task does not arrive.
pub fn run() -> Result<Report, Failure> {
    tokio::runtime::Runtime::new().map_err(at("start a runtime"))?.block_on(measure())
}

async fn measure() -> Result<Report, Failure> {
    let folder = tempfile::tempdir().map_err(at("make a folder"))?;
    let store = Store::open(StoreConfig::sqlite(folder.path().join("lattice.db"))).await.map_err(at("open a store"))?;
    let site = fleet::site(1, SiteProvider::Manual);
    let shape = |number, site: &_| Node { sku: fleet::SKU.to_owned(), ..fleet::node(number, site) };
    fleet::fill(&store, std::slice::from_ref(&site), 1, shape).await?;
    let node = shape(0, &site);
    store.commit_one(token(&node)).await.map_err(at("issue a token"))?;
    let (ca, desk) = (ThrowawayCa::create()?, Arc::new(TaskDesk::new()));
    let listener = listen(&store, &ca, &desk).await?;
    let follower = tokio::spawn(ring(store.clone(), desk));
    let hands = SimulatedHands::new(HostFacts::default());
    let begun = Arc::new(Stopwatches { begun: Mutex::default(), hands });
    let config = AgentConfig {
        bootstrap: Bootstrap {
            server: format!("https://{}", listener.address()),
            node_id: node.id,
            token: Secret::new(TOKEN.to_owned()),
            ca_pem: ca.certificate_pem().to_owned(),
        },
        version: VERSION.to_owned(),
        storage: Storage::folder(folder.path().join("agent"), None),
        pace: Pace::default(),
    };
    let machine = Arc::new(Machine(Arc::clone(&begun)));
    let agent = tokio::spawn(lattice_agent::run(config, machine, Arc::new(SystemClock), Default::default()));
    let mut millis = Vec::with_capacity(TASKS as usize);
    for number in 0..WARM + TASKS {
        let took = one(&store, &node, number, &begun).await?;
        if number >= WARM {
            millis.push(took.as_secs_f64() * 1e3);
        }
    }
    agent.abort();
    follower.abort();
    millis.sort_by(f64::total_cmp);
    let at_share = |share: f64| millis[((millis.len() - 1) as f64 * share).round() as usize];
    let conditions = format!("{TASKS} tasks one after the other, TLS on loopback, SQLite and journal synced to disk");
    Ok(Report::new("tasks", conditions)
        .figure("issue to running p99", at_share(0.99), "ms", Target::AtMost(50.0))
        .figure("p50", at_share(0.5), "ms", Target::Informative))
}

/// The time from before the commit of a task until its effect begins.
async fn one(store: &Store, node: &Node, number: u32, begun: &Stopwatches) -> Result<Duration, Failure> {
    let now = SystemClock.now();
    let input = TaskInput::RamScrub(RamScrub { reserve_mib: 0 });
    let key = format!("bench/{number}");
    let new = NewTask { node, owner: TaskOwner::Request, key: key.clone(), input, term: None };
    let nonce = *SystemIds.uuid(now).as_bytes();
    let (_, commit) = issue(&request(now), new, nonce).map_err(at("issue a task"))?;
    let issued = Instant::now();
    store.commit_one(commit).await.map_err(at("issue a task"))?;
    let mut ticks = tokio::time::interval(Duration::from_millis(1));
    while issued.elapsed() < PATIENCE {
        let found = begun.begun.lock().unwrap_or_else(PoisonError::into_inner).get(number as usize).copied();
        if let Some(at) = found {
            return Ok(at.duration_since(issued));
        }
        ticks.tick().await;
    }
    let became = match store.task_by_key(&key).await.map_err(at("read a task"))? {
        None => "it is gone".to_owned(),
        Some(task) => format!("it is {}, {:?}", task.status, task.report.map(|report| report.progress)),
    };
    Err(wrong("run a task", format!("its agent did not begin it: {became}")))
}

async fn listen(store: &Store, ca: &ThrowawayCa, desk: &Arc<TaskDesk>) -> Result<AgentListener, Failure> {
    let (clock, ids) = (Arc::new(SystemClock), Arc::new(SystemIds));
    let registry = Arc::new(Registry::new());
    let fleet = Arc::new(Fleet::new(store.clone(), Arc::clone(&registry)));
    fleet.load(clock.now()).await.map_err(at("load the fleet"))?;
    let signer = SigningKey::from_seed(&Secret::new(vec![5; 32])).expect("32 bytes");
    let task_keys = Arc::new(TaskKeys::new(signer));
    let beside = store.reading_beside_commits();
    let events = Agents::new(beside, fleet, ids.clone(), Arc::new(NoJobs), Arc::clone(&task_keys), DAY);
    let authority = Arc::new(ca.authority()?);
    let names = vec!["127.0.0.1".to_owned()];
    let tls = server_tls(Arc::clone(&authority), names, clock.clone(), ids.clone(), Secret::new(vec![7; 32]));
    let service = Arc::new(AgentService::new(Parts {
        registry,
        events: Arc::new(events),
        authority,
        task_keys,
        desk: Arc::clone(desk),
        clock,
        ids,
        policy: AgentPolicy { heartbeat: HeartbeatConfig::default() },
    }));
    let socket = TcpListener::bind("127.0.0.1:0").map_err(at("bind"))?;
    let limits = Limits { connections: 100, ..Limits::default() };
    AgentListener::start(socket, service, tls.map_err(at("configure TLS"))?, limits).map_err(at("listen"))
}

/// As the server's own loop: what was committed rings.
async fn ring(store: Store, desk: Arc<TaskDesk>) {
    let (mut follower, mut seen) = (store.follow(), EventSeq(0));
    while follower.after(seen).await.is_ok() {
        let Ok(events) = store.events(seen, &EventFilter::default(), 1_000).await else { return };
        for event in events.iter().filter(|event| event.row.name == "task.issued") {
            event.row.node.into_iter().for_each(|node| desk.ring(node));
        }
        seen = events.last().map_or(seen, |event| event.seq);
    }
}

fn request(now: Timestamp) -> Request<'static> {
    Request {
        actor: Actor::system("bench"),
        reason: String::new(),
        now,
        ids: &SystemIds,
        op: OpId::generate(&SystemIds, now),
        correlation: CorrelationId::generate(&SystemIds, now),
    }
}

fn token(node: &Node) -> Commit {
    let now = SystemClock.now();
    let token = EnrollmentToken {
        id: TokenId::generate(&SystemIds, now),
        node: node.id,
        job: None,
        hash: token_hash(TOKEN),
        issued_at: now,
        expires_at: now + DAY,
        used_at: None,
        key_hash: None,
        refreshes: 0,
        revoked_at: None,
        generation: Generation::FIRST,
    };
    request(now).commit(Vec::new(), vec![Change::EnrollmentToken(token)])
}
