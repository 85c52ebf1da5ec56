//! Which benchmarks there are, and which roles their processes play.

use clap::Args;

use crate::failure::{Failure, wrong};
use crate::figure::Report;
use crate::{
    agent, cold_start, heartbeats, in_flight, lifecycle, listing, memory, onboarding, reconnects, storm, tasks,
};

/// Every benchmark, in the order of a whole run.
pub const NAMES: &[&str] = &[
    "heartbeats",
    "heartbeats-100k",
    "memory",
    "storm",
    "reconnects",
    "listing",
    "lifecycle",
    "in-flight",
    "onboarding",
    "cold-start",
    "tasks",
    "agent",
];

/// Connections of the largest fleet that is measured.
const LARGE_FLEET: u32 = 100_000;

/// How much load; each benchmark reads what concerns it.
#[derive(Debug, Clone, Args)]
pub struct Load {
    /// heartbeats: connections; each is another node's.
    #[arg(long, default_value_t = 10_000)]
    pub connections: u32,
    /// heartbeats: how many per second, all connections together.
    #[arg(long, default_value_t = 10_000)]
    pub rate: u32,
    /// heartbeats: how long each measurement takes, in seconds.
    #[arg(long, default_value_t = 15)]
    pub seconds: u32,
    /// reconnects, lifecycle, in-flight, onboarding: how many nodes; each has its own default.
    #[arg(long)]
    pub nodes: Option<u32>,
}

/// Runs one benchmark.
///
/// # Errors
/// There is none of that name, or it could not be measured.
pub fn run(name: &str, load: &Load) -> Result<Report, Failure> {
    match name {
        "heartbeats" => heartbeats::run(name, load),
        "heartbeats-100k" => heartbeats::run(name, &Load { connections: LARGE_FLEET, ..load.clone() }),
        "memory" => memory::run(),
        "storm" => storm::run(),
        "reconnects" => reconnects::run(load.nodes.unwrap_or(10_000)),
        "listing" => listing::run(),
        "lifecycle" => lifecycle::run(load.nodes.unwrap_or(3_000)),
        "in-flight" => in_flight::run(load.nodes.unwrap_or(10_000)),
        "onboarding" => onboarding::run(load.nodes.unwrap_or(100)),
        "cold-start" => cold_start::run(),
        "tasks" => tasks::run(),
        "agent" => agent::run(),
        other => Err(Failure::UnknownName(other.to_owned())),
    }
}

/// Plays a measured process's role until the parent is done.
///
/// # Errors
/// There is none of that name, or it fails.
pub fn serve(role: &str) -> Result<(), Failure> {
    match role {
        heartbeats::SERVER => heartbeats::server::serve(),
        heartbeats::LOAD => heartbeats::load::serve(),
        storm::ROLE => storm::serve(),
        reconnects::SERVER => reconnects::server::serve(),
        reconnects::LOAD => reconnects::load::serve(),
        lifecycle::ROLE => lifecycle::serve(),
        in_flight::ROLE => in_flight::serve(),
        onboarding::ROLE => onboarding::serve(),
        listing::ROLE => listing::serve(),
        other => Err(wrong("play a role", format!("there is no role `{other}`"))),
    }
}
