//! A fleet that falls silent at once: every node to Down, with its history, audit and outbox, in a SQLite file.

use std::sync::Arc;
use std::time::Duration;

use lattice_controllers::{Detector, Fleet};
use lattice_core::heartbeat::Registry;
use lattice_core::node::availability::AvailabilityEvent;
use lattice_core::node::{Availability, NodeState, Status};
use lattice_core::site::SiteProvider;
use lattice_core::time::Timestamp;
use lattice_server::clock::SystemIds;
use lattice_store::{Store, StoreConfig};
use serde::{Deserialize, Serialize};

use crate::accounts::{Span, Took};
use crate::failure::{Failure, at, wrong};
use crate::figure::{Report, Target};
use crate::fleet;
use crate::heartbeats::identities::T0;
use crate::measured::{Measured, configuration, reply};

/// Role of the measured process.
pub const ROLE: &str = "storm";
const NODES: u32 = 10_000;

#[derive(Serialize, Deserialize)]
struct Judged {
    fill: Took,
    degraded: Took,
    down: Took,
}

/// Measures both verdicts of the whole fleet, each in one tick of the detector.
pub fn run() -> Result<Report, Failure> {
    let (_process, judged): (_, Judged) = Measured::start(ROLE, &())?;
    let nodes = f64::from(NODES);
    Ok(Report::new("storm", format!("{NODES} nodes silent at once, SQLite file with synchronous=FULL"))
        .figure("all Down within", judged.down.wall_s, "s of their deadline", Target::AtMost(1.0))
        .figure("server CPU", judged.down.cpu_us / nodes, "µs per node", Target::AtMost(100.0))
        .figure("all Degraded within", judged.degraded.wall_s, "s", Target::Informative)
        .figure("server CPU", judged.degraded.cpu_us / nodes, "µs per node", Target::Informative)
        .figure("creation of such a node", judged.fill.cpu_us / nodes, "µs of CPU", Target::Informative)
        .peer("Nomad 1.2 ms of CPU per node"))
}

/// Plays the measured process.
///
/// # Errors
/// The store fails.
pub fn serve() -> Result<(), Failure> {
    let () = configuration()?;
    let runtime = tokio::runtime::Runtime::new().map_err(at("start a runtime"))?;
    let judged = runtime.block_on(judge())?;
    reply(&judged)
}

async fn judge() -> Result<Judged, Failure> {
    let folder = tempfile::tempdir().map_err(at("make a folder"))?;
    let store = Store::open(StoreConfig::sqlite(folder.path().join("lattice.db"))).await.map_err(at("open a store"))?;
    let span = Span::start()?;
    let ready = NodeState::new(Status::Active, Availability::Ready);
    let site = fleet::site(1, SiteProvider::Manual);
    let all_ready = |number, site: &_| lattice_core::node::Node { state: ready, ..fleet::node(number, site) };
    fleet::fill(&store, &[site], NODES, all_ready).await?;
    let fill = span.end()?;
    let registry = Arc::new(Registry::new());
    let fleet = Arc::new(Fleet::new(store.clone(), registry));
    fleet.load(T0).await.map_err(at("load the fleet"))?;
    let detector = Detector::new(store, fleet, Arc::new(SystemIds));
    let degraded = tick(&detector, T0 + Duration::from_secs(30), AvailabilityEvent::HeartbeatMissed).await?;
    let down = tick(&detector, T0 + Duration::from_secs(90), AvailabilityEvent::GraceExpired).await?;
    Ok(Judged { fill, degraded, down })
}

async fn tick(detector: &Detector, now: Timestamp, event: AvailabilityEvent) -> Result<Took, Failure> {
    let span = Span::start()?;
    let judged = detector.tick(now).await.map_err(at("judge the fleet"))?;
    let took = span.end()?;
    match judged.applied.get(&event) {
        Some(count) if *count == u64::from(NODES) => Ok(took),
        Some(_) | None => Err(wrong("judge the fleet", format!("{event} was applied as {:?}", judged.applied))),
    }
}
