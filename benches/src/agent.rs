//! The agent at rest: its static binary, its memory, its CPU between heartbeats.

use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use lattice_api::agent::Bootstrap;
use lattice_core::secret::Secret;
use std::io::Write;
use std::net::SocketAddr;

use crate::accounts::{cpu_us_of, rss_kib};
use crate::failure::{Failure, at, wrong};
use crate::figure::{Report, Target};
use crate::heartbeats::SERVER;
use crate::heartbeats::identities::{ThrowawayCa, node};
use crate::heartbeats::server::ServerConfig;
use crate::measured::Measured;
use crate::programs::built;

/// Enrolment, registration and the first heartbeat are over by then.
const SETTLING: Duration = Duration::from_secs(5);
/// How long its rest is watched: four heartbeats at the default interval of 10 s.
const WATCHED: Duration = Duration::from_secs(40);

/// Ends with the measurement.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended by itself: then there is nothing to end.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs the real binary against a listener that says yes, at the default pace.
pub fn run() -> Result<Report, Failure> {
    let program = built("lattice-agent", "lattice-agent")?;
    let size = std::fs::metadata(&program).map_err(at("measure the agent's binary"))?.len();
    let folder = tempfile::tempdir().map_err(at("make a folder"))?;
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o700)).map_err(at("make a folder"))?;
    let ca = ThrowawayCa::create()?;
    let config = ServerConfig { ca: ca.clone(), first: 0, nodes: 10 };
    let (_server, address): (Measured, SocketAddr) = Measured::start(SERVER, &config)?;
    let bootstrap = folder.path().join("bootstrap.json");
    write_bootstrap(&bootstrap, &ca, address)?;
    let agent = Command::new(&program)
        .arg("run")
        .arg("--bootstrap")
        .arg(&bootstrap)
        .arg("--state-dir")
        .arg(folder.path())
        .env("LATTICE_LOG", "warn")
        .stdin(Stdio::null())
        .spawn()
        .map_err(at("start the agent"))?;
    let mut agent = Running(agent);
    std::thread::sleep(SETTLING);
    let (started, before) = (Instant::now(), cpu_us_of(agent.0.id())?);
    std::thread::sleep(WATCHED);
    if let Some(status) = agent.0.try_wait().map_err(at("watch the agent"))? {
        return Err(wrong("watch the agent", format!("it ended: {status}")));
    }
    let cpu = cpu_us_of(agent.0.id())? - before;
    let share = cpu / 1e6 / started.elapsed().as_secs_f64();
    let memory = rss_kib(&agent.0.id().to_string())?;
    let linking = if is_static(&program)? { "static" } else { "dynamic, not as shipped" };
    let conditions = format!(
        "{linking} release binary, mTLS to a listener on loopback, heartbeat each 10 s, {} s",
        WATCHED.as_secs()
    );
    Ok(Report::new("agent", conditions)
        .figure("binary", size as f64 / 1e6, "MB", Target::AtMost(15.0))
        .figure("memory", memory / 1024.0, "MiB", Target::AtMost(15.0))
        .figure("CPU at rest", share * 100.0, "% of a core", Target::AtMost(0.1)))
}

fn write_bootstrap(path: &Path, ca: &ThrowawayCa, server: SocketAddr) -> Result<(), Failure> {
    let bootstrap = Bootstrap {
        server: format!("https://{server}"),
        node_id: node(1),
        token: Secret::new("lat_enroll_bench".to_owned()),
        ca_pem: ca.certificate_pem().to_owned(),
    };
    let text = serde_json::to_vec(&bootstrap).map_err(at("write a bootstrap file"))?;
    let opened = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    opened.and_then(|mut file| file.write_all(&text)).map_err(at("write a bootstrap file"))
}

/// A dynamic program names its loader; a static one has none to name.
fn is_static(program: &Path) -> Result<bool, Failure> {
    let bytes = std::fs::read(program).map_err(at("read the agent's binary"))?;
    Ok(!bytes.windows(8).take(1 << 16).any(|eight| eight == b"ld-linux"))
}
