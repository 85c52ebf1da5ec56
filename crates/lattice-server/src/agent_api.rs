//! What agents talk to: enrolment, renewal, registration and heartbeats over mTLS. design: 4 "Identity and transport"
//!
//! Bare hyper on a thread of its own. [`AgentService`] answers, [`AgentEvents`] decides and commits, the registry of
//! `lattice-core` judges each identity and heartbeat.

mod allowance;
mod desk;
mod events;
mod listener;
mod refusal;
mod request;
mod service;
mod tasks;
#[cfg(test)]
mod tests;
mod tickets;
mod tls;

pub use desk::TaskDesk;
pub use events::{
    AgentEvents, BootClaim, Enrolment, Granted, Handed, IdentityRefusal, Registered, Registration, Report,
    nothing_waits,
};
pub use listener::{AgentListener, Limits, StartError};
pub use request::Sent;
pub use service::{AgentPolicy, AgentService, Connection, Parts};
pub use tls::{TlsError, server_tls};
