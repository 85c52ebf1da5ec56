//! Node agent: enrols with a one-time token, keeps its identity fresh, sends heartbeats, survives restarts.
//!
//! Any number of agents run in one process: none has a thread of its own. design: 4 "Agent and operations"

mod agent;
mod backoff;
mod claim;
mod config;
mod error;
mod hands;
mod host;
mod identity;
mod install;
mod link;
mod servers;
mod state;
mod storage;
mod tasks;
mod workloads;

pub use agent::{Chance, Ground, run, run_on};
pub use backoff::Backoff;
pub use claim::{BootPlace, claim, in_place, keep};
pub use config::{AgentConfig, Pace, VERSION, read_bootstrap};
pub use error::AgentError;
pub use hands::{Born, Found, HandError, Hands, NoHands};
pub use host::{Host, LinuxHost, Workplace, enter, fingerprint, scrub_memory};
pub use install::{Install, Installed, Keeper, install, read_given};
pub use link::{CallError, Line, Network, Peer, Reach};
pub use state::{AgentState, AllocationState, Loaded};
pub use storage::{Item, MemoryDisk, Storage};
pub use workloads::Workloads;
