//! Onboarding over HTTP to the simulated MAAS, with the real agents over TLS: all parts in one process.

use std::path::PathBuf;
use std::time::Duration;

use lattice_sim::dev::{Dev, DevConfig};
use lattice_sim::maas::mishaps::Mishaps;
use serde::{Deserialize, Serialize};

use crate::accounts::{Span, Took, used};
use crate::failure::{Failure, at, wrong};
use crate::figure::{Report, Target};
use crate::measured::{Measured, configuration, reply};

/// Role of the measured process.
pub const ROLE: &str = "onboarding";
/// Longest wait for all machines.
const PATIENCE: Duration = Duration::from_secs(100);
/// RoCE interfaces of the simulated machines get no addresses here, so no calls are allowed for them.
const CALLS: f64 = 40.0;

#[derive(Serialize, Deserialize)]
struct Config {
    nodes: u32,
    folder: PathBuf,
}

#[derive(Serialize, Deserialize)]
struct Onboarded {
    all: Took,
    seconds_to_first: f64,
    calls: u64,
    rss_mib: f64,
}

/// Measures `nodes` onboardings that run at once.
pub fn run(nodes: u32) -> Result<Report, Failure> {
    let folder = tempfile::tempdir().map_err(at("make a folder"))?;
    let config = Config { nodes, folder: folder.path().to_owned() };
    let (_process, onboarded): (_, Onboarded) = Measured::start(ROLE, &config)?;
    let Onboarded { all, seconds_to_first, calls, rss_mib } = onboarded;
    let count = f64::from(nodes);
    let conditions = format!(
        "{nodes} machines at once; server, simulated MAAS over HTTP, SSH and agents over TLS in one process, SQLite file; \
         phases of the machines take 1–3 s"
    );
    Ok(Report::new("onboarding", conditions)
        .figure("CPU, all parts", all.cpu_us / 1e3 / count, "ms per node", Target::AtMost(50.0))
        .figure("calls to MAAS, polls included", calls as f64 / count, "per onboarding", Target::AtMost(CALLS))
        .figure("first active after", seconds_to_first, "s", Target::Informative)
        .figure("all after", all.wall_s, "s", Target::Informative)
        .figure("memory, all parts", rss_mib, "MiB", Target::Informative))
}

/// Plays the measured process.
///
/// # Errors
/// A node does not get through.
pub fn serve() -> Result<(), Failure> {
    let config: Config = configuration()?;
    let runtime = tokio::runtime::Runtime::new().map_err(at("start a runtime"))?;
    let onboarded = runtime.block_on(onboard(config))?;
    reply(&onboarded)
}

async fn onboard(config: Config) -> Result<Onboarded, Failure> {
    let anywhere = std::net::SocketAddr::from(([127, 0, 0, 1], 0));
    let span = Span::start()?;
    let dev = Dev::start(DevConfig {
        nodes: config.nodes,
        seed: 1,
        mishaps: Mishaps::None,
        scenario: None,
        data_dir: config.folder,
        api_listen: anywhere,
        agent_listen: anywhere,
        agent_binary: None,
        maas: None,
    });
    let dev = dev.await.map_err(at("start everything"))?;
    let progress = dev.until_all_active(PATIENCE, |_| {}).await.map_err(at("wait for the machines"))?;
    let all = span.end()?;
    let (Some(seconds_to_first), Some(_)) = (progress.seconds_to_first, progress.seconds_to_all) else {
        return Err(wrong("wait for the machines", format!("{} of {} got active", progress.active, progress.nodes)));
    };
    let calls = dev.region().map_or(0, |region| region.report().total_calls());
    let rss_mib = used()?.rss_kib / 1024.0;
    dev.stop().await;
    Ok(Onboarded { all, seconds_to_first, calls, rss_mib })
}
