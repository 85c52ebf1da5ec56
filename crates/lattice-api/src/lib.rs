//! The wire contract: requests, answers, errors, events, and a typed client that brings no transport of its own.
//!
//! Requests refuse fields that they do not know; answers may grow, so readers ignore what they do not know.

pub mod agent;
pub mod allocation;
pub mod audit;
pub mod batch;
pub mod bmc;
pub mod client;
pub mod error;
pub mod event;
pub mod explanation;
pub mod fleet;
pub mod hold;
pub mod job;
pub mod node;
pub mod onboarding;
pub mod page;
pub mod power_override;
pub mod profile;
pub mod roce;
pub mod server;
pub mod silence;
pub mod site;
pub mod sku;
pub mod span;
pub mod sse;
pub mod task;
pub mod token;
pub mod webhook;
pub mod wipe;

use lattice_core::secret::Secret;

/// Something is gone.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize, utoipa::ToSchema)]
pub struct Gone {
    /// What was removed: its id or name, as the request gave it.
    pub removed: String,
}

/// Writes a secret into the one body that is meant to carry it.
pub(crate) fn expose<S: serde::Serializer>(secret: &Secret<String>, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(secret.expose())
}
