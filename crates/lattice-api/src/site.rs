//! Sites: provider endpoints. `/api/v1/admin/maas-sites` shows only MAAS ones. spec: S5 3.4
//!
//! Secrets go in through `credentials` alone and never come out; where they are kept is decided by the server.

pub use lattice_core::bmc::BmcPolicy;
use lattice_core::ids::{Generation, SiteId};
use lattice_core::node::Labels;
pub use lattice_core::node::class::HeartbeatPolicy;
use lattice_core::secret::Secret;
pub use lattice_core::site::credentials::{CredentialName, SiteCredential};
pub use lattice_core::site::maas::{KNOBS, Knob, KnobKind, KnobScope};
pub use lattice_core::site::{
    ApprovedFingerprint, AutomationPolicy, Governor, MaasPolicy, OpenchamiSite, SensitivePolicy, SiteBrake,
    SiteProvider, SiteStatus,
};
use lattice_core::time::Timestamp;
use serde::{Deserialize, Serialize};

/// Creates a site.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateSite {
    /// Unique name: `dc1`.
    pub name: String,
    /// Region that its nodes belong to.
    pub region_code: String,
    /// Provider and its settings: `{"kind": "maas", "api_base_url": …}`. Paths of secrets are filled in by the server.
    #[schema(value_type = Object)]
    pub provider: serde_json::Value,
    /// Heartbeat times; the defaults when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub heartbeat: Option<HeartbeatPolicy>,
    /// Which BMCs may be called, and how often they are asked; the defaults when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bmc: Option<BmcPolicy>,
    /// What Lattice may do there by itself; the defaults when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub automation: Option<AutomationPolicy>,
    /// How its nodes are wiped after sensitive work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sensitive: Option<SensitivePolicy>,
}

/// Changes a site: a field that is absent stays as it is.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PatchSite {
    /// Region that its nodes belong to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub region_code: Option<String>,
    /// `disabled`: no new onboardings; those in flight go on. spec: S5 3.5
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<SiteStatus>,
    /// Heartbeat times.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub heartbeat: Option<HeartbeatPolicy>,
    /// Which BMCs may be called, and how often they are asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bmc: Option<BmcPolicy>,
    /// What Lattice may do there by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub automation: Option<AutomationPolicy>,
    /// How its nodes are wiped after sensitive work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sensitive: Option<SensitivePolicy>,
    /// Settings of the provider that change, as a JSON merge patch (RFC 7396); its kind cannot change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub provider: Option<serde_json::Value>,
}

/// A site.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct SiteView {
    /// Identity.
    pub id: SiteId,
    /// Unique name.
    pub name: String,
    /// Region that its nodes belong to.
    pub region_code: String,
    /// Provider and its settings; secrets only as paths.
    pub provider: SiteProvider,
    /// Heartbeat times of its nodes.
    pub heartbeat: HeartbeatPolicy,
    /// Which BMCs of its nodes may be called, and how often they are asked.
    #[serde(default)]
    pub bmc: BmcPolicy,
    /// What Lattice may do there by itself.
    #[serde(default)]
    pub automation: AutomationPolicy,
    /// How it stands towards the limit of that.
    pub governor: Governor,
    /// The brake that an operator pulled, while it holds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub brake: Option<SiteBrake>,
    /// How its nodes are wiped after sensitive work.
    #[serde(default)]
    pub sensitive: SensitivePolicy,
    /// Whether new work may start.
    pub status: SiteStatus,
    /// Whether every secret that the provider needs is there.
    pub credentials_complete: bool,
    /// What is known of each of them: where it is kept, when it was set, whether the provider took it. No values.
    pub credentials: Vec<SiteCredential>,
    /// When it was created.
    pub created_at: Timestamp,
    /// When its row changed last.
    pub updated_at: Timestamp,
    /// Version of the row: `If-Match`.
    pub generation: Generation,
}

/// Pulls the brake of a site: what Down does to running work is held back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PullBrake {
    /// For how long, in milliseconds; at most a day.
    pub for_ms: u64,
    /// Only for nodes with these labels; for all of the site when absent.
    #[serde(default, skip_serializing_if = "Labels::is_empty")]
    pub selector: Labels,
    /// Why.
    #[serde(default)]
    pub reason: String,
}

/// Which fingerprint: of a SKU, or the one that a node has now.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NameFingerprint {
    /// The SKU; with `fingerprint`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sku: Option<String>,
    /// As agents report it; with `sku`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fingerprint: Option<String>,
    /// Instead of both: the node that has it, by hostname or id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// Why.
    #[serde(default)]
    pub reason: String,
}

/// What nodes of a SKU report, and whether they may.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct FingerprintLine {
    /// The SKU.
    pub sku: String,
    /// The fingerprint.
    pub fingerprint: String,
    /// How many nodes of the site report it.
    pub nodes: u64,
    /// Who approved it, why and when; absent: nobody did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approved: Option<ApprovedFingerprint>,
    /// Whether nodes with it deviate: another one is approved for their SKU, and this is not.
    pub deviates: bool,
}

/// A site's fingerprints, approved and seen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct ConformanceView {
    /// Which site.
    pub site_id: SiteId,
    /// By SKU, the most frequent first.
    pub fingerprints: Vec<FingerprintLine>,
}

/// Secrets of a site. They are tried at the provider first, then written to the secret store. spec: S5 3.4
///
/// A MAAS site takes `api_token`, `power` and `deploy_password`, an LXD site the three texts in PEM. What is absent
/// stays as it is.
#[derive(Clone, Default, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SiteCredentials {
    /// MAAS: `consumer_key:token_key:token_secret`.
    #[serde(default, skip_serializing_if = "Option::is_none", serialize_with = "expose")]
    #[schema(value_type = Option<String>)]
    pub api_token: Option<Secret<String>>,
    /// MAAS: default BMC login.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub power: Option<PowerLogin>,
    /// MAAS: password of the deploy user.
    #[serde(default, skip_serializing_if = "Option::is_none", serialize_with = "expose")]
    #[schema(value_type = Option<String>)]
    pub deploy_password: Option<Secret<String>>,
    /// LXD: client certificate, in PEM.
    #[serde(default, skip_serializing_if = "Option::is_none", serialize_with = "expose")]
    #[schema(value_type = Option<String>)]
    pub client_certificate_pem: Option<Secret<String>>,
    /// LXD: client key, in PEM.
    #[serde(default, skip_serializing_if = "Option::is_none", serialize_with = "expose")]
    #[schema(value_type = Option<String>)]
    pub client_key_pem: Option<Secret<String>>,
    /// LXD: the server's certificate, in PEM; it is pinned.
    #[serde(default, skip_serializing_if = "Option::is_none", serialize_with = "expose")]
    #[schema(value_type = Option<String>)]
    pub server_certificate_pem: Option<Secret<String>>,
    /// OpenCHAMI: bearer token of its services.
    #[serde(default, skip_serializing_if = "Option::is_none", serialize_with = "expose")]
    #[schema(value_type = Option<String>)]
    pub bearer_token: Option<Secret<String>>,
}

/// A BMC login.
#[derive(Clone, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PowerLogin {
    /// User name.
    pub user: String,
    /// Password.
    #[serde(serialize_with = "crate::expose")]
    #[schema(value_type = String)]
    pub pass: Secret<String>,
}

/// What trying a site found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct ProbeAnswer {
    /// Whether it answered, and the credentials were accepted.
    pub ok: bool,
    /// Version that the provider names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// What else it said, line by line: rack controllers, capabilities; or why it failed.
    pub details: Vec<String>,
    /// When it was tried.
    pub at: Timestamp,
}

/// How often a site's provider was asked, against what is meant to be enough. design: 7-tests-and-benchmarks
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct SiteCalls {
    /// Which site.
    pub site_id: SiteId,
    /// Calls since the site's client was made: since the server's start, or the last change of its key.
    pub calls: u64,
    /// Of these, polls for news.
    pub polls: u64,
    /// Tries beyond the first.
    pub retries: u64,
    /// Calls that ended in an error.
    pub failures: u64,
    /// Least time between two polls, in milliseconds; they are made only while a job waits.
    pub poll_interval_ms: u64,
    /// Calls that one onboarding may take.
    pub budget_per_onboarding: u64,
    /// Calls that one RoCE interface may take besides.
    pub budget_per_roce_interface: u64,
    /// By their names.
    pub by_call: Vec<CallLine>,
}

/// One kind of call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct CallLine {
    /// `machines.list`.
    pub call: String,
    /// How often it was made.
    pub calls: u64,
    /// Tries beyond the first.
    pub retries: u64,
    /// How often it ended in an error.
    pub failures: u64,
}

fn expose<S: serde::Serializer>(secret: &Option<Secret<String>>, serializer: S) -> Result<S::Ok, S::Error> {
    match secret {
        Some(secret) => serializer.serialize_str(secret.expose()),
        None => serializer.serialize_none(),
    }
}
