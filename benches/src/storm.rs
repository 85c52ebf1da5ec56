//! A fleet that falls silent at once: every node to Down, with its history, audit and outbox; then every agent registers
//! again, and every node is ready. In a SQLite file, and in PostgreSQL where there is one.

use std::sync::Arc;
use std::time::Duration;

use lattice_controllers::{Detector, Fleet};
use lattice_core::agent::task::SigningKey;
use lattice_core::heartbeat::Registry;
use lattice_core::ids::NodeId;
use lattice_core::node::availability::AvailabilityEvent;
use lattice_core::node::{Availability, Node, NodeState, Status};
use lattice_core::secret::Secret;
use lattice_core::site::SiteProvider;
use lattice_core::time::Timestamp;
use lattice_server::agents::Agents;
use lattice_server::clock::SystemIds;
use lattice_server::task_keys::TaskKeys;
use lattice_store::{Store, StoreConfig};
use serde::{Deserialize, Serialize};
use tokio::task::JoinSet;

use crate::accounts::{Span, Took};
use crate::failure::{Failure, at, wrong};
use crate::figure::{Report, Target};
use crate::fleet;
use crate::heartbeats::identities::{T0, node as node_id};
use crate::measured::{Measured, configuration, reply};
use crate::plane::hosts::register;
use crate::reconnects::server::NoJobs;

/// Role of the measured process.
pub const ROLE: &str = "storm";
/// Names the address of an empty PostgreSQL database; `./bench` sets it where PostgreSQL is installed.
const POSTGRES: &str = "LATTICE_BENCH_POSTGRES";
const NODES: u32 = 10_000;
/// Registrations that the server answers at once; the listener lets so many wait for the store.
const AT_ONCE: u32 = 500;

#[derive(Serialize, Deserialize)]
struct Judged {
    fill: Took,
    degraded: Took,
    down: Took,
    back: Took,
}

/// Measures both verdicts of the whole fleet, each in one tick of the detector, and its way back.
pub fn run() -> Result<Report, Failure> {
    let conditions = format!(
        "{NODES} nodes silent at once, then all registered again; without TLS; SQLite file with \
        synchronous=FULL"
    );
    let report = figures(Report::new("storm", conditions), "", None)?.peer("Nomad 1.2 ms of CPU per node");
    match std::env::var(POSTGRES) {
        Ok(url) => figures(report, ", PostgreSQL", Some(url)),
        Err(_) => Ok(report.note("PostgreSQL is not installed and was not measured")),
    }
}

fn figures(report: Report, store: &str, postgres: Option<String>) -> Result<Report, Failure> {
    let (_process, judged): (_, Judged) = Measured::start(ROLE, &postgres)?;
    let per_node = |took: &Took| took.cpu_us / f64::from(NODES);
    let on = |what: &str| format!("{what}{store}");
    Ok(report
        .figure(on("all Down within"), judged.down.wall_s, "s of their deadline", Target::AtMost(1.0))
        .figure(on("server CPU"), per_node(&judged.down), "µs per node", Target::AtMost(100.0))
        .figure(on("all Ready again within"), judged.back.wall_s, "s", Target::AtMost(2.0))
        .figure(on("server CPU"), per_node(&judged.back), "µs per node", Target::Informative)
        .figure(on("all Degraded within"), judged.degraded.wall_s, "s", Target::Informative)
        .figure(on("creation of such a node"), per_node(&judged.fill), "µs of CPU", Target::Informative))
}

/// Plays the measured process.
///
/// # Errors
/// The store fails.
pub fn serve() -> Result<(), Failure> {
    let postgres: Option<String> = configuration()?;
    let runtime = tokio::runtime::Runtime::new().map_err(at("start a runtime"))?;
    let judged = runtime.block_on(judge(postgres))?;
    reply(&judged)
}

async fn judge(postgres: Option<String>) -> Result<Judged, Failure> {
    let folder = tempfile::tempdir().map_err(at("make a folder"))?;
    let config = match postgres {
        Some(url) => StoreConfig::postgres(url),
        None => StoreConfig::sqlite(folder.path().join("lattice.db")),
    };
    let store = Store::open(config).await.map_err(at("open a store"))?;
    let span = Span::start()?;
    let ready = NodeState::new(Status::Active, Availability::Ready);
    let site = fleet::site(1, SiteProvider::Manual);
    let all_ready = |number, site: &_| Node { state: ready, sku: fleet::SKU.to_owned(), ..fleet::node(number, site) };
    fleet::fill(&store, &[site], NODES, all_ready).await?;
    let fill = span.end()?;
    let registry = Arc::new(Registry::new());
    let fleet = Arc::new(Fleet::new(store.clone(), registry));
    fleet.load(T0).await.map_err(at("load the fleet"))?;
    let detector = Detector::new(store.clone(), Arc::clone(&fleet), Arc::new(SystemIds));
    let degraded = tick(&detector, T0 + Duration::from_secs(30), AvailabilityEvent::HeartbeatMissed).await?;
    let down = tick(&detector, T0 + Duration::from_secs(90), AvailabilityEvent::GraceExpired).await?;
    let back = come_back(&store, fleet, T0 + Duration::from_secs(95)).await?;
    Ok(Judged { fill, degraded, down, back })
}

async fn tick(detector: &Detector, now: Timestamp, event: AvailabilityEvent) -> Result<Took, Failure> {
    let span = Span::start()?;
    let judged = detector.tick(now, None).await.map_err(at("judge the fleet"))?;
    let took = span.end()?;
    match judged.applied.get(&event) {
        Some(count) if *count == u64::from(NODES) => Ok(took),
        Some(_) | None => Err(wrong("judge the fleet", format!("{event} was applied as {:?}", judged.applied))),
    }
}

/// Every agent registers: the same boots, healthy.
async fn come_back(store: &Store, fleet: Arc<Fleet>, now: Timestamp) -> Result<Took, Failure> {
    let signer = SigningKey::from_seed(&Secret::new(vec![5; 32])).expect("32 bytes");
    let (keys, day) = (Arc::new(TaskKeys::new(signer)), Duration::from_secs(86_400));
    let beside = store.reading_beside_commits();
    let agents = Arc::new(Agents::new(beside, fleet, Arc::new(SystemIds), Arc::new(NoJobs), keys, day));
    let span = Span::start()?;
    let mut coming = JoinSet::new();
    for first in 0..AT_ONCE {
        let agents = Arc::clone(&agents);
        coming.spawn(async move {
            for number in (first..NODES).step_by(AT_ONCE as usize) {
                register(&agents, node_id(number), fleet::BOOT_ID.to_owned(), now).await?;
            }
            Ok::<_, lattice_api::error::Problem>(())
        });
    }
    while let Some(joined) = coming.join_next().await {
        let registered = joined.map_err(at("register an agent"))?;
        registered.map_err(|problem| wrong("register an agent", problem.detail))?;
    }
    let took = span.end()?;
    let ids: Vec<NodeId> = (0..NODES).map(node_id).collect();
    let rows = store.nodes_by_id(&ids).await.map_err(at("read the fleet"))?;
    match rows.iter().filter(|node| node.state.availability == Availability::Ready).count() {
        ready if ready == NODES as usize => Ok(took),
        ready => Err(wrong("take the fleet back", format!("{ready} of {NODES} nodes are ready"))),
    }
}
