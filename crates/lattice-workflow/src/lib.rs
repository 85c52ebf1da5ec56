//! Runs durable jobs stage by stage; the only crate of the control plane that changes the outside world.
//!
//! [`runner::Runner`] makes one turn of a job: observe, decide by the engine of `lattice-core`, commit, act.
//! [`driver::embedded`] decides when, from the rows alone. Each stage is one file in `stages`. design: 3-jobs

pub mod batches;
pub mod bootstrap;
pub mod cloud_init;
pub mod components;
pub mod crash;
mod deployed_host;
pub mod driver;
pub mod enrollment;
mod evidence;
pub mod first_boot;
pub mod host_key;
mod node_change;
mod power;
pub mod preflight;
pub mod providers;
pub mod runner;
pub mod site_clients;
pub mod stage;
mod stages;
pub mod tools;
pub mod wipe_keys;
