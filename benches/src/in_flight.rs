//! Ten thousand onboardings in flight, over hosts in memory whose boot and whose agent take 2–6 s each.

use lattice_core::node::{Availability, NodeState, Status};
use serde::{Deserialize, Serialize};

use crate::accounts::{Span, Took, peak_mib};
use crate::failure::{Failure, at};
use crate::figure::{Report, Target};
use crate::measured::{Measured, configuration, reply};
use crate::plane::Plane;
use crate::plane::hosts::HostTimes;

/// Role of the measured process.
pub const ROLE: &str = "in-flight";
/// Stages of an onboarding over such hosts. spec: S5 10
const STAGES: f64 = 5.0;

#[derive(Serialize, Deserialize)]
struct Flown {
    accepted: Took,
    all: Took,
    peak_mib: f64,
}

/// Measures `jobs` onboardings that are accepted at once and run at the same time.
pub fn run(jobs: u32) -> Result<Report, Failure> {
    let (_process, flown): (_, Flown) = Measured::start(ROLE, &jobs)?;
    let Flown { accepted, all, peak_mib } = flown;
    let (count, wall) = (f64::from(jobs), all.wall_s);
    let conditions = format!(
        "{jobs} onboardings accepted within {:.1} s and run at once, hosts in memory, SQLite file",
        accepted.wall_s
    );
    Ok(Report::new("in-flight", conditions)
        .figure("of a core", all.cpu_us / 1e4 / wall, "%", Target::AtMost(25.0))
        .figure("peak memory", peak_mib, "MiB", Target::AtMost(512.0))
        .figure("all active after", wall, "s", Target::Informative)
        .figure("CPU", all.cpu_us / 1e3 / count, "ms per onboarding", Target::Informative)
        .figure("CPU", all.cpu_us / count / STAGES, "µs per stage", Target::Informative)
        .peer("Temporal's development server, not measured here"))
}

/// Plays the measured process.
///
/// # Errors
/// A node does not get through.
pub fn serve() -> Result<(), Failure> {
    let jobs: u32 = configuration()?;
    let runtime = tokio::runtime::Runtime::new().map_err(at("start a runtime"))?;
    let flown = runtime.block_on(fly(jobs))?;
    reply(&flown)
}

async fn fly(count: u32) -> Result<Flown, Failure> {
    let folder = tempfile::tempdir().map_err(at("make a folder"))?;
    let times = HostTimes { boot_ms: 2_000..6_000, agent_ms: 2_000..6_000 };
    let plane = Plane::start(folder.path(), times).await?;
    let (accepting, all) = (Span::start()?, Span::start()?);
    plane.onboard(count).await?;
    let accepted = accepting.end()?;
    let ready = NodeState::new(Status::Active, Availability::Ready);
    plane.until(count, |state| state == ready).await?;
    Ok(Flown { accepted, all: all.end()?, peak_mib: peak_mib()? })
}
