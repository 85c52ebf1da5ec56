//! RoCE addresses of hosts, made before their onboarding. spec: S5 3.3, 3.4

pub use lattice_core::site::RoceRow as RoceView;
pub use lattice_core::site::roce::RoceItem;
use serde::{Deserialize, Serialize};

/// Assigns addresses: creates what is new, changes what differs, leaves alone what stands already. All or nothing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PutRoce {
    /// 1 to 10,000 assignments.
    #[serde(default)]
    pub items: Vec<RoceItem>,
}

/// What a list came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct RoceAnswer {
    /// Assignments that are new.
    pub created: u64,
    /// Assignments that have another address now.
    pub changed: u64,
    /// Assignments that stood already as asked.
    pub unchanged: u64,
}

/// Which assignments.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
pub struct RoceQuery {
    /// Of this host alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hostname: Option<String>,
    /// Where the page begins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
    /// How long it is at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
}
