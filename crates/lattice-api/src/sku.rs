//! SKUs: what a machine of one kind must have. Answers are the rows themselves.

pub use lattice_core::sku::{DiskRule, NicRule, Sku};
use serde::{Deserialize, Serialize};

/// Creates a SKU. A rule that is absent is not checked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateSku {
    /// Unique name: `mi300x.192g.8gpu`.
    pub name: String,
    /// How many GPUs must be on the bus.
    #[serde(default)]
    pub gpus: u32,
    /// Vendor of each GPU: `nvidia`, `amd`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu_vendor: Option<String>,
    /// What each GPU's model must contain.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu_model: Option<String>,
    /// Interfaces that must be there.
    #[serde(default)]
    pub nics: Vec<NicRule>,
    /// Disks that must be there.
    #[serde(default)]
    pub disks: Vec<DiskRule>,
}

/// Changes a SKU: a field that is absent stays as it is; a list replaces the whole list.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PatchSku {
    /// How many GPUs must be on the bus.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpus: Option<u32>,
    /// Vendor of each GPU; empty: any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu_vendor: Option<String>,
    /// What each GPU's model must contain; empty: anything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu_model: Option<String>,
    /// Interfaces that must be there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nics: Option<Vec<NicRule>>,
    /// Disks that must be there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disks: Option<Vec<DiskRule>>,
}
