//! The simulated region against its contract.

mod body;
mod client;
mod http_walk;
mod machines;
mod quirks;
mod refusals;
mod site;
mod transitions;
mod walk;
