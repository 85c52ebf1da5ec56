//! Whole lives of nodes over hosts in memory: created, active, drained and retired, removed.

use std::time::Instant;

use lattice_core::node::{Availability, NodeState, Status};
use serde::{Deserialize, Serialize};

use crate::accounts::{Span, Took, used};
use crate::failure::{Failure, at};
use crate::figure::{Report, Target};
use crate::measured::{Measured, configuration, reply};
use crate::plane::Plane;
use crate::plane::hosts::HostTimes;

/// Role of the measured process.
pub const ROLE: &str = "lifecycle";

#[derive(Serialize, Deserialize)]
struct Lived {
    onboarded: Took,
    retired: Took,
    removed: Took,
    rss_mib: f64,
}

/// Measures `nodes` lives.
pub fn run(nodes: u32) -> Result<Report, Failure> {
    let (_process, lived): (_, Lived) = Measured::start(ROLE, &nodes)?;
    let Lived { onboarded, retired, removed, rss_mib } = lived;
    let all = f64::from(nodes);
    let (wall, cpu) = [onboarded, retired, removed]
        .iter()
        .fold((0.0, 0.0), |(wall, cpu), took| (wall + took.wall_s, cpu + took.cpu_us));
    let conditions =
        format!("{nodes} nodes at once, hosts and agents in memory, SQLite file and secret file, all synced");
    Ok(Report::new("lifecycle", conditions)
        .figure("lives", all / wall, "nodes/s", Target::AtLeast(300.0))
        .figure("CPU", cpu / 1e3 / all, "ms per node", Target::AtMost(3.0))
        .figure("create → active", onboarded.cpu_us / 1e3 / all, "ms of CPU", Target::Informative)
        .figure("at", all / onboarded.wall_s, "nodes/s", Target::Informative)
        .figure("active → retired", retired.cpu_us / 1e3 / all, "ms of CPU", Target::Informative)
        .figure("retired → removed", removed.cpu_us / 1e3 / all, "ms of CPU", Target::Informative)
        .figure("memory", rss_mib, "MiB", Target::Informative)
        .peer("Ironic 0.9–2.8 nodes/s, 293–667 ms of CPU per node")
        .note("instances are not reimaged: it is not in the figure"))
}

/// Plays the measured process.
///
/// # Errors
/// A node does not get through.
pub fn serve() -> Result<(), Failure> {
    let nodes: u32 = configuration()?;
    let runtime = tokio::runtime::Runtime::new().map_err(at("start a runtime"))?;
    let lived = runtime.block_on(live(nodes))?;
    reply(&lived)
}

async fn live(count: u32) -> Result<Lived, Failure> {
    let folder = tempfile::tempdir().map_err(at("make a folder"))?;
    let plane = Plane::start(folder.path(), HostTimes::AT_ONCE).await?;
    let began = Instant::now();
    let span = Span::start()?;
    let nodes = plane.onboard(count).await?;
    let ready = NodeState::new(Status::Active, Availability::Ready);
    plane.until(count, |state| state == ready).await?;
    let onboarded = span.end()?;
    let span = Span::start()?;
    plane.retire(&nodes).await?;
    plane.until(count, |state| state.status == Status::Retired).await?;
    let retired = span.end()?;
    let span = Span::start()?;
    plane.remove(&nodes).await?;
    plane.until(count, |state| state.status == Status::Deleted).await?;
    let removed = span.end()?;
    eprintln!("lifecycle: {count} lives in {:.1} s", began.elapsed().as_secs_f64());
    Ok(Lived { onboarded, retired, removed, rss_mib: used()?.rss_kib / 1024.0 })
}
