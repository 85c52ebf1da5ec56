//! The vocabulary of Lattice, its state tables and every decision that needs no IO.
//!
//! Nothing in this crate reads a clock, draws a random number or touches the outside world: time and ids are
//! arguments. `docs/state-model.md` is drawn from the tables here.

pub mod actor;
pub mod agent;
pub mod allocation;
pub mod batch;
pub mod bmc;
pub mod change;
pub mod command;
pub mod component;
pub mod credential;
pub mod explain;
pub mod explanation;
pub mod failure;
pub mod heartbeat;
pub mod ids;
pub mod job;
pub mod node;
pub mod secret;
pub mod silence;
pub mod site;
pub mod sku;
pub mod time;
pub mod webhook;
pub mod wipe;
