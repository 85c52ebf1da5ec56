//! Profiles of a MAAS site: other images, networks and policies for some of its onboardings. spec: S5 3.7

use lattice_core::ids::{Generation, ProfileId, SiteId};
pub use lattice_core::site::{ProfileSettings, SiteStatus};
use lattice_core::time::Timestamp;
use serde::{Deserialize, Serialize};

/// Creates a profile.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateProfile {
    /// Unique at its site: `gpu-default`.
    pub name: String,
    /// For people.
    #[serde(default)]
    pub description: String,
    /// What it sets: `{"distro_series": …, "policy": {…}}`. Image and network that are absent are always the site's;
    /// a knob that is absent takes the value that the site has now.
    #[serde(default, skip_serializing_if = "serde_json::Value::is_null")]
    #[schema(value_type = Object)]
    pub settings: serde_json::Value,
}

/// Changes a profile: a field that is absent stays as it is. Jobs that were accepted keep what they have.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PatchProfile {
    /// For people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// `disabled`: no new onboarding may use it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<SiteStatus>,
    /// Settings that change, as a JSON merge patch (RFC 7396); `null` gives image and network back to the site, and a
    /// knob its default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub settings: Option<serde_json::Value>,
}

/// A profile.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct ProfileView {
    /// Identity.
    pub id: ProfileId,
    /// Whose.
    pub site_id: SiteId,
    /// Unique at its site.
    pub name: String,
    /// For people; may be empty.
    pub description: String,
    /// Whether new onboardings may use it.
    pub status: SiteStatus,
    /// Whether onboardings that name no profile use it.
    pub is_default: bool,
    /// What it sets.
    pub settings: ProfileSettings,
    /// When it was created.
    pub created_at: Timestamp,
    /// When its row changed last.
    pub updated_at: Timestamp,
    /// Version of the row: `If-Match`.
    pub generation: Generation,
}
