//! Process, configuration, authentication, HTTP, SSE, web page.

pub mod agent_api;
pub mod agents;
pub mod clock;
pub mod keys;
pub mod pki;

pub use lattice_store::{AuditBroken, AuditSummary, audit_verify};
