//! SKUs: what a machine of one kind must have. design: 8-interfaces

use serde::{Deserialize, Serialize};

use crate::ids::Generation;
use crate::time::Timestamp;

/// One kind of machine. A rule that is absent is not checked: an LXD SKU asks for none.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Sku {
    /// Unique name: `mi300x.192g.8gpu`.
    pub name: String,
    /// How many GPUs must be on the bus; 0: none is asked for, and what is there is not counted. A container sees the
    /// GPUs of its host, and is no worse for them.
    pub gpus: u32,
    /// Vendor of each GPU: `nvidia`, `amd`.
    pub gpu_vendor: Option<String>,
    /// What each GPU's model must contain.
    pub gpu_model: Option<String>,
    /// Interfaces with these firmware versions must be there.
    pub nics: Vec<NicRule>,
    /// Disks that must be there.
    pub disks: Vec<DiskRule>,
    /// When it was created.
    pub created_at: Timestamp,
    /// When its row changed last.
    pub updated_at: Timestamp,
    /// Version of the row.
    pub generation: Generation,
}

/// At least this many interfaces at this speed, each with an accepted firmware.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NicRule {
    /// How many.
    pub count: u32,
    /// Least link speed in Mbit/s.
    #[serde(default)]
    pub min_speed_mbps: u32,
    /// Accepted firmware versions; empty: any that can be read or not.
    #[serde(default)]
    pub firmware: Vec<String>,
}

/// At least this many disks of this size.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DiskRule {
    /// How many.
    pub count: u32,
    /// Least size in bytes.
    #[serde(default)]
    pub min_size_bytes: u64,
    /// What the model must contain, in any case; empty: any.
    #[serde(default)]
    pub model: String,
}
