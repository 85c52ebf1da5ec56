//! Sites: one provider endpoint with its network and policy; secrets only by path. spec: S5 3

pub mod automation;
pub mod check;
pub mod credentials;
pub mod discovery;
pub mod disks;
pub mod maas;
pub mod openchami;
pub mod power_credentials;
pub mod profile;
pub mod roce;
pub mod sensitive;

pub use automation::{ApprovedFingerprint, AutomationPolicy, Governor, SiteBrake};
pub use maas::{MaasPolicy, MaasSite};
pub use openchami::{BootProfile, OpenchamiPolicy, OpenchamiSite};
pub use power_credentials::{PowerOverride, PowerSelector};
pub use profile::{MaasSettings, ProfileSettings, SiteProfile};
pub use roce::{RoceAssignment, RoceRow};
pub use sensitive::SensitivePolicy;

use serde::{Deserialize, Serialize};

use crate::bmc::BmcPolicy;
use crate::ids::{Generation, SiteId};
use crate::node::class::HeartbeatPolicy;
use crate::time::Timestamp;

/// Whether new work may start at a site. spec: S5 3.5
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    utoipa::ToSchema,
    strum::Display,
    strum::EnumString,
    strum::IntoStaticStr,
    strum::VariantArray,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum SiteStatus {
    /// Onboardings are accepted.
    Active,
    /// New onboardings are refused; those in flight go on.
    Disabled,
}

/// What kind of provider a site is, with what only that kind needs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum SiteProvider {
    /// Nodes that an operator bootstraps by hand; built in, named `local`.
    Manual,
    /// A MAAS region.
    Maas(MaasSite),
    /// An LXD server.
    Lxd(LxdSite),
    /// An OpenCHAMI system.
    Openchami(OpenchamiSite),
}

impl SiteProvider {
    /// The kind's name, as in JSON.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Manual => "manual",
            Self::Maas(_) => "maas",
            Self::Lxd(_) => "lxd",
            Self::Openchami(_) => "openchami",
        }
    }
}

/// One provider endpoint.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Site {
    /// Identity.
    pub id: SiteId,
    /// Unique name.
    pub name: String,
    /// Region that its nodes belong to.
    pub region_code: String,
    /// Provider and its settings.
    pub provider: SiteProvider,
    /// Heartbeat times of its nodes.
    #[serde(default)]
    pub heartbeat: HeartbeatPolicy,
    /// Which BMCs of its nodes may be called, and how often they are asked.
    #[serde(default)]
    pub bmc: BmcPolicy,
    /// What Lattice may do there by itself.
    #[serde(default)]
    pub automation: AutomationPolicy,
    /// The brake that an operator pulled, if one did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub brake: Option<SiteBrake>,
    /// When an operator let go of everything that a brake held back, last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub let_go_at: Option<Timestamp>,
    /// Fingerprints that its nodes may have; a SKU that has none here is not judged.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub approved: Vec<ApprovedFingerprint>,
    /// How its nodes are wiped after sensitive work.
    #[serde(default)]
    pub sensitive: SensitivePolicy,
    /// Whether new work may start.
    pub status: SiteStatus,
    /// When it was created.
    pub created_at: Timestamp,
    /// When its row changed last.
    pub updated_at: Timestamp,
    /// Version of the row.
    pub generation: Generation,
}

impl Site {
    /// Whether anything can switch a node of it off and on: its provider, or the node's own BMC.
    pub const fn can_switch(&self, has_bmc: bool) -> bool {
        match self.provider {
            SiteProvider::Manual => has_bmc,
            SiteProvider::Maas(_) | SiteProvider::Lxd(_) | SiteProvider::Openchami(_) => true,
        }
    }
}

/// Settings of an LXD server. spec: S5 10
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct LxdSite {
    /// `https://127.0.0.1:18443`.
    pub api_url: String,
    /// Where the client certificate is kept in the secret store.
    pub client_cert_path: String,
    /// Where the client key is kept.
    pub client_key_path: String,
    /// Where the server's certificate is kept; it is pinned.
    pub server_cert_path: String,
    /// Project of its instances.
    #[serde(default = "default_project")]
    pub project: String,
    /// Profile of its instances.
    #[serde(default = "default_project")]
    pub default_profile: String,
    /// Image alias.
    pub image: String,
    /// Path of the agent's static binary that is pushed where the image has no cloud-init.
    pub agent_binary: Option<String>,
    /// Longest wait for the agent, in milliseconds.
    #[serde(default = "default_lxd_enrollment_timeout_ms")]
    pub enrollment_timeout_ms: u64,
    /// Life of an enrolment token, in seconds.
    #[serde(default = "default_token_ttl_seconds")]
    pub enrollment_token_ttl_seconds: u64,
}

fn default_project() -> String {
    "default".to_owned()
}
const fn default_lxd_enrollment_timeout_ms() -> u64 {
    5 * 60_000
}
const fn default_token_ttl_seconds() -> u64 {
    7_200
}
