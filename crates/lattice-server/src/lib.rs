//! Process, configuration, authentication, HTTP, SSE, web page.

pub mod agent_api;
pub mod agent_source;
pub mod agents;
pub mod auth;
mod bmc_watch;
pub mod clock;
mod component_loop;
pub mod config;
pub mod error;
mod hearing;
pub mod http;
pub mod https;
pub mod keys;
pub mod launch;
mod live_work;
pub mod metrics;
pub mod openapi;
pub mod pki;
pub mod plane;
mod prober;
pub mod secrets;
pub mod sse;
mod standing;
pub mod task_keys;
mod task_loop;
pub mod ui;
pub mod webhooks;
mod wipe_watch;
pub mod wiring;

pub use lattice_store::{AuditBroken, AuditSummary, BackendConfig, StoreConfig, audit_verify, check_backup, restore};
