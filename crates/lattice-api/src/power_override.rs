//! BMC logins that stand over their site's default for single machines. Logins go in and never come out. spec: S5 3.2.1

use lattice_core::ids::{Generation, OverrideId, SiteId};
pub use lattice_core::site::{PowerSelector, SiteStatus};
use lattice_core::time::Timestamp;
use serde::{Deserialize, Serialize};

use crate::site::PowerLogin;

/// Creates an override.
#[derive(Clone, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreatePowerOverride {
    /// What is compared; `pxe_mac` is stronger than `ipmi_ip`, that than `hostname`.
    pub selector_type: PowerSelector,
    /// With what: at a site, no two overrides may compare the same.
    pub selector_value: String,
    /// The login; it is kept in the secret store.
    pub login: PowerLogin,
}

/// Changes an override: a field that is absent stays as it is. What it compares cannot change: create another.
#[derive(Clone, Default, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PatchPowerOverride {
    /// `disabled`: it is not looked at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<SiteStatus>,
    /// Another login; what reads it next uses it. spec: S5 3.5
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub login: Option<PowerLogin>,
}

/// An override.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct PowerOverrideView {
    /// Identity.
    pub id: OverrideId,
    /// Whose.
    pub site_id: SiteId,
    /// What is compared.
    pub selector_type: PowerSelector,
    /// With what.
    pub selector_value: String,
    /// Where the login is kept in the secret store.
    pub vault_path: String,
    /// Only an active one is looked at.
    pub status: SiteStatus,
    /// When it was created.
    pub created_at: Timestamp,
    /// When it, or its login, changed last.
    pub updated_at: Timestamp,
    /// Version of the row: `If-Match`.
    pub generation: Generation,
}
