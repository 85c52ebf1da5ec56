//! The simulated region against its contract.

mod body;
mod client;
mod http_walk;
mod quirks;
mod refusals;
mod transitions;
mod walk;
