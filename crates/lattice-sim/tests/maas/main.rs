//! The simulated region against its contract.
#![allow(clippy::unwrap_used, reason = "a test stops at what it cannot do")]

mod body;
mod client;
mod http_walk;
mod machines;
mod provider;
mod quirks;
mod real_agent;
mod refusals;
mod site;
mod transitions;
mod walk;
