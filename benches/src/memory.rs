//! Memory of a node's record in the registry of heartbeats.

use std::time::Instant;

use lattice_core::heartbeat::{Registry, Silence};
use lattice_core::time::Timestamp;

use crate::accounts::used;
use crate::failure::Failure;
use crate::figure::{Report, Target};
use crate::heartbeats::identities::{T0, node};

const NODES: u32 = 100_000;

/// Counts what the registry says it takes, and what the process grew by.
pub fn run() -> Result<Report, Failure> {
    let before = used()?;
    let registry = Registry::new();
    for number in 0..NODES {
        registry.admit(node(number), 1, T0);
    }
    let grown = used()?.rss_kib - before.rss_kib;
    let mut silent: Vec<Silence> = Vec::new();
    let started = Instant::now();
    registry.silent(Timestamp::from_millis(T0.as_millis() + 60_000), &mut silent);
    let scan = started.elapsed();
    let nodes = f64::from(NODES);
    Ok(Report::new("memory", format!("{NODES} nodes in the registry of heartbeats"))
        .figure("record", registry.bytes() as f64 / nodes / 1000.0, "kB per node", Target::AtMost(0.1))
        .figure("process grew by", grown * 1.024 / nodes, "kB per node", Target::Informative)
        .figure("scan for silence", scan.as_secs_f64() * 1e9 / nodes, "ns per node", Target::Informative)
        .peer("Nomad ≈ 200 kB per client, its connection included")
        .note("the connection with its TLS is in `heartbeats`"))
}
