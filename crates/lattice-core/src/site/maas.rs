//! Settings of a MAAS region, and every policy knob with its unit and its bounds. spec: S5 3.1, 3.6, 4.14

use serde::{Deserialize, Serialize};

use crate::ids::ProfileId;

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
    /// Behaviour; the site's implicit profile. spec: S5 3.7
    #[serde(default)]
    pub policy: MaasPolicy,
    /// Profile of onboardings that name none; absent: the site's own settings. spec: S5 3.7 `default_profile_id`
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default_profile_id: Option<ProfileId>,
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
    /// Onboardings of the whole site that run at once before machines of batches wait.
    pub site_max_parallel: u32,
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
            site_max_parallel: 100,
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

/// What a knob's value is, and what it may be. Both bounds belong to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KnobKind {
    /// `true` or `false`.
    Flag,
    /// A count.
    Count {
        /// Least.
        least: u64,
        /// Most.
        most: u64,
    },
    /// Seconds.
    Seconds {
        /// Least.
        least: u64,
        /// Most.
        most: u64,
    },
    /// Milliseconds.
    Millis {
        /// Least.
        least: u64,
        /// Most.
        most: u64,
    },
    /// A time span of hours, minutes and seconds, such as `1h30m`, from a minute to a day.
    Span,
    /// A text, or nothing.
    Text,
}

impl KnobKind {
    /// Its unit, in a word; empty where a value needs none.
    pub const fn unit(self) -> &'static str {
        match self {
            Self::Flag | Self::Count { .. } | Self::Text => "",
            Self::Seconds { .. } => "s",
            Self::Millis { .. } => "ms",
            Self::Span => "time span",
        }
    }

    /// The bounds of a number.
    pub const fn bounds(self) -> Option<(u64, u64)> {
        match self {
            Self::Count { least, most } | Self::Seconds { least, most } | Self::Millis { least, most } => {
                Some((least, most))
            }
            Self::Flag | Self::Span | Self::Text => None,
        }
    }
}

/// Whose a knob is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KnobScope {
    /// The site's, and any profile's.
    Profile,
    /// The site's alone: one poller serves all its jobs.
    Site,
}

/// One knob of [`MaasPolicy`]: how it is spelled, what it may be, who reads it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Knob {
    /// Its name, as in JSON.
    pub name: &'static str,
    /// What it may be.
    pub kind: KnobKind,
    /// Whose it is.
    pub scope: KnobScope,
    /// What reads it, in a few words for people.
    pub about: &'static str,
}

const fn knob(name: &'static str, kind: KnobKind, about: &'static str) -> Knob {
    Knob { name, kind, scope: KnobScope::Profile, about }
}

/// A second at least, so that a slip of the unit is noticed; a day at most, after which a person should look.
const WAIT: KnobKind = KnobKind::Millis { least: 1_000, most: 86_400_000 };

/// Every knob, in the order of S5 3.6, then ours. A test compares their names with the type's.
pub const KNOBS: [Knob; 19] = [
    knob("strict_pxe_preflight", KnobKind::Flag, "without a subnet on the PXE interface the onboarding stops"),
    knob("enable_phase2_roce", KnobKind::Flag, "RoCE addresses are applied, and routed on the host"),
    knob("require_hw_sync", KnobKind::Flag, "a node is onboarded only when MAAS receives its hardware sync"),
    knob("hardware_sync_interval", KnobKind::Span, "how often a host reports its hardware to MAAS"),
    knob("release_fallback_no_erase", KnobKind::Flag, "a release whose erase fails is made again without it"),
    knob("enable_deploy_retry_on_datasource_failure", KnobKind::Flag, "a datasource failure is deployed again"),
    knob("max_deploy_retry_attempts", KnobKind::Count { least: 0, most: 5 }, "how often it is deployed again"),
    knob("auto_claim_single_new_machine", KnobKind::Flag, "the only New machine is taken when nothing else matches"),
    knob("batch_max_parallel", KnobKind::Count { least: 1, most: 1_000 }, "onboardings of one batch at once"),
    Knob {
        scope: KnobScope::Site,
        ..knob(
            "site_max_parallel",
            KnobKind::Count { least: 1, most: 10_000 },
            "onboardings of the whole site at once, before machines of batches wait",
        )
    },
    knob("site_bootstrap_bundle_ref", KnobKind::Text, "the site's own first-boot bundle, run before ours"),
    knob(
        "enrollment_token_ttl_seconds",
        KnobKind::Seconds { least: 60, most: 86_400 },
        "life of an enrolment token; longer than a deployment takes",
    ),
    knob("discovery_timeout_ms", WAIT, "longest wait for a machine to appear in MAAS"),
    knob("commission_timeout_ms", WAIT, "longest commissioning"),
    knob("deploy_timeout_ms", WAIT, "longest deployment"),
    knob("hw_sync_seed_timeout_ms", WAIT, "longest wait for the credentials of the hardware sync"),
    knob("hw_sync_health_timeout_ms", WAIT, "longest wait for a healthy hardware sync"),
    knob("enrollment_timeout_ms", WAIT, "longest wait for the agent; there are two"),
    Knob {
        scope: KnobScope::Site,
        ..knob(
            "poll_interval_ms",
            KnobKind::Millis { least: 50, most: 600_000 },
            "how often MAAS is asked for news while a job waits for it",
        )
    },
];

impl MaasPolicy {
    /// Each knob with its value as JSON shows it.
    pub fn values(&self) -> Vec<(Knob, serde_json::Value)> {
        let mut fields = serde_json::to_value(self).expect("a policy has only text keys");
        KNOBS.iter().map(|knob| (*knob, fields[knob.name].take())).collect()
    }
}

/// The version of MAAS whose answers this version of Lattice knows: major and minor.
pub const KNOWN_VERSION: (u32, u32) = (3, 7);

/// What to say of a region's version, where it is another than the known one. Others are used all the same.
pub fn version_note(version: &str) -> Option<String> {
    let mut parts = version.split('.').map(|part| part.parse::<u32>().ok());
    if (parts.next().flatten(), parts.next().flatten()) == (Some(KNOWN_VERSION.0), Some(KNOWN_VERSION.1)) {
        return None;
    }
    let (given, (major, minor)) = (version.chars().take(40).collect::<String>(), KNOWN_VERSION);
    Some(format!(
        "MAAS {given} is another version than {major}.{minor}, whose answers Lattice knows: try one machine first"
    ))
}

/// Length of a time span of hours, minutes and seconds, in seconds: `1h30m`. `None` when it is none.
pub fn span_seconds(text: &str) -> Option<u64> {
    let mut total: u64 = 0;
    let mut rest = text;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit()).filter(|length| (1..=6).contains(length))?;
        let (number, unit) = rest.split_at(digits);
        let factor = match unit.chars().next()? {
            'h' => 3_600,
            'm' => 60,
            's' => 1,
            // Days, months and words: MAAS takes none of them here.
            _ => return None,
        };
        total = total.checked_add(number.parse::<u64>().ok()?.checked_mul(factor)?)?;
        rest = &unit[1..];
    }
    (!text.is_empty()).then_some(total)
}
