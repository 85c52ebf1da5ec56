//! The server itself: alive, ready.

use serde::{Deserialize, Serialize};

/// Answer of `/healthz` and `/readyz`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct ServerHealth {
    /// `ok`, or what is the matter.
    pub status: String,
    /// Version of the server.
    pub version: String,
}
