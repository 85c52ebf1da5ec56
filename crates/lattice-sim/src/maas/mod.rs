//! A simulated MAAS site: the region API 2.0 with its quirks, and the machines behind it.

mod body;
pub mod config;
pub mod faults;
pub mod handle;
pub mod inline;
pub mod mishaps;
mod node;
pub mod oauth;
mod power_type;
pub mod quirk;
pub mod report;
mod route;
pub mod server;
pub mod site;
pub mod status;
pub mod wire;
pub mod world;
