//! The server that is killed: store, fleet, detector, what agents bring about, the listener. As the server puts them
//! together, but for jobs and operators.

use std::net::TcpListener;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use lattice_api::agent::HeartbeatConfig;
use lattice_controllers::{Detector, Fleet};
use lattice_core::agent::task::SigningKey;
use lattice_core::heartbeat::Registry;
use lattice_core::ids::JobId;
use lattice_core::node::{Availability, Node, NodeState, Status};
use lattice_core::secret::Secret;
use lattice_core::site::SiteProvider;
use lattice_core::time::Clock;
use lattice_server::agent_api::{AgentListener, AgentPolicy, AgentService, Limits, Parts, server_tls};
use lattice_server::agents::{Agents, WakeJob};
use lattice_server::clock::{SystemClock, SystemIds};
use lattice_server::task_keys::TaskKeys;
use lattice_store::{Store, StoreConfig};
use serde::{Deserialize, Serialize};

use crate::accounts::{Used, used};
use crate::failure::{Failure, at};
use crate::fleet;
use crate::heartbeats::identities::ThrowawayCa;
use crate::measured::{configuration, hear, reply};

/// How often silence is judged, as by the server.
const TICK: Duration = Duration::from_millis(250);

/// Where the server is, before and after.
#[derive(Clone, Serialize, Deserialize)]
pub struct Place {
    /// Signs its certificate and the nodes'.
    pub ca: ThrowawayCa,
    /// Its files.
    pub folder: PathBuf,
    /// Where it listens; 0 at first.
    pub port: u16,
    /// How many nodes there are.
    pub nodes: u32,
}

/// How it is.
#[derive(Serialize, Deserialize)]
pub struct State {
    /// What it used since it was started.
    pub used: Used,
    /// How many verdicts of silence it made since: all of them are false.
    pub verdicts: u64,
}

/// There is nobody to be woken.
pub struct NoJobs;

impl WakeJob for NoJobs {
    fn wake(&self, _: JobId) {}
}

/// Listens, and answers each command with how it is.
///
/// # Errors
/// A part does not start.
pub fn serve() -> Result<(), Failure> {
    let place: Place = configuration()?;
    let runtime = tokio::runtime::Runtime::new().map_err(at("start a runtime"))?;
    let verdicts = Arc::new(AtomicU64::new(0));
    let listener = runtime.block_on(start(&place, Arc::clone(&verdicts)))?;
    reply(&listener.address())?;
    while let Some(()) = hear()? {
        reply(&State { used: used()?, verdicts: verdicts.load(Ordering::Relaxed) })?;
    }
    Ok(())
}

async fn start(place: &Place, verdicts: Arc<AtomicU64>) -> Result<AgentListener, Failure> {
    let store = Store::open(StoreConfig::sqlite(place.folder.join("lattice.db"))).await.map_err(at("open a store"))?;
    if place.port == 0 {
        let ready = NodeState::new(Status::Active, Availability::Ready);
        let shape = |number, site: &_| Node { state: ready, sku: fleet::SKU.to_owned(), ..fleet::node(number, site) };
        fleet::fill(&store, &[fleet::site(1, SiteProvider::Manual)], place.nodes, shape).await?;
    }
    let (clock, ids) = (Arc::new(SystemClock), Arc::new(SystemIds));
    let registry = Arc::new(Registry::new());
    let fleet = Arc::new(Fleet::new(store.clone(), Arc::clone(&registry)));
    fleet.load(clock.now()).await.map_err(at("load the fleet"))?;
    let detector = Detector::new(store.clone(), Arc::clone(&fleet), ids.clone());
    tokio::spawn(judge(detector, verdicts));
    let day = Duration::from_secs(86_400);
    let signer = SigningKey::from_seed(&Secret::new(vec![5; 32])).expect("32 bytes");
    let task_keys = Arc::new(TaskKeys::new(signer));
    let beside = store.reading_beside_commits();
    let events = Agents::new(beside, fleet, ids.clone(), Arc::new(NoJobs), Arc::clone(&task_keys), day);
    let authority = Arc::new(place.ca.authority()?);
    let names = vec!["127.0.0.1".to_owned()];
    let tls = server_tls(Arc::clone(&authority), names, clock.clone(), ids.clone(), Secret::new(vec![7; 32]));
    let service = Arc::new(AgentService::new(Parts {
        registry,
        events: Arc::new(events),
        authority,
        task_keys,
        desk: Arc::default(),
        clock,
        ids,
        policy: AgentPolicy { heartbeat: HeartbeatConfig::default() },
    }));
    let socket = TcpListener::bind(("127.0.0.1", place.port)).map_err(at("bind"))?;
    let limits = Limits { connections: place.nodes as usize + 2_000, ..Limits::default() };
    AgentListener::start(socket, service, tls.map_err(at("configure TLS"))?, limits).map_err(at("listen"))
}

async fn judge(detector: Detector, verdicts: Arc<AtomicU64>) {
    let mut ticks = tokio::time::interval(TICK);
    loop {
        ticks.tick().await;
        match detector.tick(SystemClock.now(), None).await {
            Ok(judged) => drop(verdicts.fetch_add(judged.applied.values().sum(), Ordering::Relaxed)),
            Err(error) => eprintln!("silence was not judged: {error}"),
        }
    }
}
