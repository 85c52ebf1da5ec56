//! Sites: one provider endpoint with its network and policy; secrets only by path. spec: S5 3

pub mod discovery;
pub mod disks;
pub mod power_credentials;

use serde::{Deserialize, Serialize};

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
}

impl SiteProvider {
    /// The kind's name, as in JSON.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Manual => "manual",
            Self::Maas(_) => "maas",
            Self::Lxd(_) => "lxd",
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
    /// Whether new work may start.
    pub status: SiteStatus,
    /// When it was created.
    pub created_at: Timestamp,
    /// When its row changed last.
    pub updated_at: Timestamp,
    /// Version of the row.
    pub generation: Generation,
}

/// Settings of a MAAS region. spec: S5 3.1, 3.6
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct MaasSite {
    /// `http://10.176.46.1:5240/MAAS`.
    pub api_base_url: String,
    /// Where the API token is kept in the secret store.
    pub api_token_path: String,
    /// Where the default BMC login is kept.
    pub default_power_creds_path: String,
    /// Where the deploy user's password is kept.
    pub deploy_password_path: String,
    /// Interface of the MAAS server on the PXE network.
    pub pxe_iface: String,
    /// VLAN of the PXE network.
    pub pxe_vlan_vid: u16,
    /// Interface of a node on the PXE network.
    pub node_pxe_iface: String,
    /// Image to deploy.
    #[serde(default = "default_distro_series")]
    pub distro_series: String,
    /// Architecture of its machines.
    #[serde(default = "default_architecture")]
    pub architecture: String,
    /// User that each deployment creates.
    #[serde(default = "default_deploy_user")]
    pub deploy_user: String,
    /// Interface whose address is used for SSH.
    #[serde(default = "default_deploy_ssh_iface")]
    pub deploy_ssh_iface: String,
    /// Port of SSH on the deployed host.
    #[serde(default = "default_ssh_port")]
    pub deploy_ssh_port: u16,
    /// Name servers of deployed hosts.
    #[serde(default = "default_dns")]
    pub upstream_dns_servers: Vec<String>,
    /// Behaviour.
    #[serde(default)]
    pub policy: MaasPolicy,
}

fn default_distro_series() -> String {
    "ubuntu/noble".to_owned()
}
fn default_architecture() -> String {
    "amd64/generic".to_owned()
}
fn default_deploy_user() -> String {
    "hpcadmin".to_owned()
}
fn default_deploy_ssh_iface() -> String {
    "eno8303".to_owned()
}
const fn default_ssh_port() -> u16 {
    22
}
fn default_dns() -> Vec<String> {
    vec!["1.1.1.1".to_owned(), "8.8.8.8".to_owned()]
}

/// Policy knobs and timeouts of a MAAS site. spec: S5 3.6, 4.14
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct MaasPolicy {
    /// Fail when the PXE interface has no subnet link.
    pub strict_pxe_preflight: bool,
    /// Apply RoCE addresses.
    pub enable_phase2_roce: bool,
    /// A node is onboarded only when MAAS receives its hardware sync.
    pub require_hw_sync: bool,
    /// systemd time span.
    pub hardware_sync_interval: String,
    /// Release without erase when the erase fails.
    pub release_fallback_no_erase: bool,
    /// Deploy again after a datasource failure.
    pub enable_deploy_retry_on_datasource_failure: bool,
    /// How often.
    pub max_deploy_retry_attempts: u32,
    /// Claim the only New machine when nothing stronger matches.
    pub auto_claim_single_new_machine: bool,
    /// Onboardings of one batch that run at once.
    pub batch_max_parallel: u32,
    /// Infra-owned first-boot bundle.
    pub site_bootstrap_bundle_ref: Option<String>,
    /// Life of an enrolment token, in seconds.
    pub enrollment_token_ttl_seconds: u64,
    /// Longest wait for a machine to appear, in milliseconds.
    pub discovery_timeout_ms: u64,
    /// Longest commissioning, in milliseconds.
    pub commission_timeout_ms: u64,
    /// Longest deployment, in milliseconds.
    pub deploy_timeout_ms: u64,
    /// Longest wait for the sync's credentials to be in place, in milliseconds.
    pub hw_sync_seed_timeout_ms: u64,
    /// Longest wait for a healthy sync, in milliseconds.
    pub hw_sync_health_timeout_ms: u64,
    /// Longest wait for the agent, in milliseconds.
    pub enrollment_timeout_ms: u64,
    /// How often the site is polled while something waits for it, in milliseconds.
    pub poll_interval_ms: u64,
}

impl Default for MaasPolicy {
    /// S5 3.6's defaults; the timeouts are ours (S5 4.14 asks for them and names no values).
    fn default() -> Self {
        Self {
            strict_pxe_preflight: true,
            enable_phase2_roce: true,
            require_hw_sync: true,
            hardware_sync_interval: "15m".to_owned(),
            release_fallback_no_erase: true,
            enable_deploy_retry_on_datasource_failure: true,
            max_deploy_retry_attempts: 1,
            auto_claim_single_new_machine: false,
            batch_max_parallel: 10,
            site_bootstrap_bundle_ref: None,
            enrollment_token_ttl_seconds: 7_200,
            discovery_timeout_ms: 15 * 60_000,
            commission_timeout_ms: 45 * 60_000,
            deploy_timeout_ms: 60 * 60_000,
            hw_sync_seed_timeout_ms: 15 * 60_000,
            hw_sync_health_timeout_ms: 30 * 60_000,
            enrollment_timeout_ms: 30 * 60_000,
            poll_interval_ms: 5_000,
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

/// One RoCE address that an onboarding applies. spec: S5 3.3
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RoceAssignment {
    /// Host it belongs to.
    pub hostname: String,
    /// Interface of that host.
    pub interface: String,
    /// Address with its prefix: `172.30.9.61/31`.
    #[schema(value_type = String)]
    pub ipv4_cidr: ipnet::Ipv4Net,
}
