//! The server itself: alive, ready.

use serde::{Deserialize, Serialize};

/// Whom agents trust as their server: what an image that boots from the network must hold as `/etc/lattice/ca.pem`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct AgentCa {
    /// Certificates in PEM. They are no secret.
    pub ca_pem: String,
}

/// Answer of `/healthz` and `/readyz`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct ServerHealth {
    /// `ok`, or what is the matter.
    pub status: String,
    /// Version of the server.
    pub version: String,
    /// Whether it hears the agents; false: it stands by, and another server of the same database does.
    #[serde(default)]
    pub hears_agents: bool,
}
