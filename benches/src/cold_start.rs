//! `lattice dev` from an empty directory to its first active node, as the README has it.

use std::process::Command;
use std::time::Instant;

use serde::Deserialize;

use crate::accounts::children_cpu_us;
use crate::failure::{Failure, at, wrong};
use crate::figure::{Report, Target};
use crate::programs::built;

const NODES: &str = "20";

#[derive(Deserialize)]
struct Progress {
    nodes: u32,
    active: u32,
    seconds_to_first: Option<f64>,
    seconds_to_all: Option<f64>,
}

/// Runs the command once, on free ports.
pub fn run() -> Result<Report, Failure> {
    let program = built("lattice", "lattice-cli")?;
    let before = children_cpu_us()?;
    let started = Instant::now();
    let output = Command::new(program)
        .args(["dev", "--nodes", NODES, "--seed", "1", "--mishaps", "none"])
        .args(["--listen", "127.0.0.1:0", "--agent-listen", "127.0.0.1:0"])
        .args(["--until", "all-active", "--timeout", "60s", "-o", "json"])
        .output()
        .map_err(at("start `lattice dev`"))?;
    let whole = started.elapsed().as_secs_f64();
    let cpu = children_cpu_us()? - before;
    if !output.status.success() {
        return Err(wrong("run `lattice dev`", String::from_utf8_lossy(&output.stderr).into_owned()));
    }
    let progress: Progress = serde_json::from_slice(&output.stdout).map_err(at("read what `lattice dev` says"))?;
    let (Some(first), Some(all)) = (progress.seconds_to_first, progress.seconds_to_all) else {
        return Err(wrong("run `lattice dev`", format!("{} of {} got active", progress.active, progress.nodes)));
    };
    Ok(Report::new(
        "cold-start",
        format!("`lattice dev --nodes {NODES}`, real agents with TLS, simulated MAAS over HTTP"),
    )
    .figure("first node active after", first, "s", Target::AtMost(10.0))
    .figure("all after", all, "s", Target::Informative)
    .figure("process, start to end", whole, "s", Target::Informative)
    .figure("CPU", cpu / 1e3 / f64::from(progress.nodes), "ms per node, all parts", Target::Informative)
    .peer("Ironic 4–8 s to its first answer"))
}
