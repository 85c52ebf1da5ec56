//! Settings of an OpenCHAMI system: its services, what its machines boot, and its policy. spec: S1 "Down → Booting"

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::check::{BadValue, bad};
use crate::ids::NodeId;

/// The kernel parameter that names where a booted agent goes. Nobody but Lattice writes parameters that begin so.
pub const SERVER_PARAMETER: &str = "lattice.server";
/// The kernel parameter that names the node.
pub const NODE_PARAMETER: &str = "lattice.node";
/// The kernel parameter that names the boot profile: the boot parameters are the record of what a node boots.
pub const PROFILE_PARAMETER: &str = "lattice.profile";

/// The kernel parameter that names the interface that it boots from.
pub const MAC_PARAMETER: &str = "lattice.mac";

/// Settings of an OpenCHAMI system.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct OpenchamiSite {
    /// State Manager: `https://smd.dc1:27779`.
    pub smd_url: String,
    /// Boot Script Service: `https://bss.dc1:27778`.
    pub bss_url: String,
    /// Power Control; none: nodes are switched through BMCs of their own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pcs_url: Option<String>,
    /// Authorities of the services' certificates, in PEM; none: those that the server's host trusts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub authority_pem: Option<String>,
    /// Whether the services ask for a bearer token.
    #[serde(default = "yes")]
    pub needs_token: bool,
    /// Where the bearer token is kept in the secret store.
    pub token_path: String,
    /// What machines boot, by name.
    pub boot_profiles: BTreeMap<String, BootProfile>,
    /// What a node boots that nobody gave another one.
    #[serde(default = "default_boot_profile")]
    pub boot_profile: String,
    /// Where State Manager reaches this server's API, to tell of changes: `https://lattice.dc1:7440`; none: it is only
    /// asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub notices_url: Option<String>,
    /// Behaviour.
    #[serde(default)]
    pub policy: OpenchamiPolicy,
}

/// What a machine boots.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct BootProfile {
    /// URL of the kernel.
    pub kernel: String,
    /// URL of the initial file system; it, or the image that it mounts, holds the agent and the CA of this server.
    pub initrd: String,
    /// The kernel's parameters, to which Lattice adds its own. Anybody may read a boot script: no secret belongs here.
    #[serde(default)]
    pub params: String,
}

/// Limits and timeouts of an OpenCHAMI site. The defaults are ours.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct OpenchamiPolicy {
    /// Onboardings of one batch that run at once.
    pub batch_max_parallel: u32,
    /// Onboardings of the whole site that run at once before machines of batches wait.
    pub site_max_parallel: u32,
    /// Life of an enrolment token, in seconds; each boot has its own.
    pub enrollment_token_ttl_seconds: u64,
    /// Longest wait for a component to be known to State Manager, in milliseconds.
    pub discovery_timeout_ms: u64,
    /// Longest wait for the power to be as it was told, in milliseconds.
    pub power_timeout_ms: u64,
    /// Longest wait for a machine that was switched on to ask for its boot script, in milliseconds.
    pub netboot_timeout_ms: u64,
    /// Longest wait for the agent, in milliseconds; there are two.
    pub enrollment_timeout_ms: u64,
    /// How often State Manager is asked for its components, in milliseconds, whatever it tells by itself.
    pub component_interval_ms: u64,
    /// Whether State Manager is told the state of each node.
    pub publish_states: bool,
    /// Whether nodes without a BMC get the one that State Manager has for them.
    pub import_bmcs: bool,
}

impl Default for OpenchamiPolicy {
    fn default() -> Self {
        Self {
            batch_max_parallel: 10,
            site_max_parallel: 100,
            enrollment_token_ttl_seconds: 7_200,
            discovery_timeout_ms: 15 * 60_000,
            power_timeout_ms: 5 * 60_000,
            // A server with much memory tests it for minutes before it asks.
            netboot_timeout_ms: 20 * 60_000,
            enrollment_timeout_ms: 15 * 60_000,
            component_interval_ms: 60_000,
            publish_states: true,
            import_bmcs: true,
        }
    }
}

const fn yes() -> bool {
    true
}
fn default_boot_profile() -> String {
    "default".to_owned()
}

impl OpenchamiSite {
    /// The boot profile of that name, else the site's own choice.
    pub fn profile(&self, name: Option<&str>) -> Option<(&str, &BootProfile)> {
        let name = name.unwrap_or(&self.boot_profile);
        self.boot_profiles.get_key_value(name).map(|(name, profile)| (name.as_str(), profile))
    }

    /// Longest boot, from the moment at which the power is off to a healthy agent.
    pub const fn boot_timeout(&self) -> Duration {
        let policy = &self.policy;
        Duration::from_millis(policy.power_timeout_ms + policy.netboot_timeout_ms + policy.enrollment_timeout_ms)
    }
}

/// What the parameters of a node say besides its profile.
#[derive(Debug, Clone, Copy)]
pub struct NodeParameters<'a> {
    /// Base address of the agent listener.
    pub server: &'a str,
    /// Which node.
    pub node: NodeId,
    /// Hardware address of the interface that it boots from.
    pub mac: &'a str,
}

impl BootProfile {
    /// The kernel's parameters of a node: the profile's, and where its agent goes. None of them is a secret.
    pub fn params_of(&self, name: &str, own: &NodeParameters<'_>) -> String {
        let NodeParameters { server, node, mac } = own;
        let own = format!(
            "{SERVER_PARAMETER}={server} {NODE_PARAMETER}={node} {PROFILE_PARAMETER}={name} {MAC_PARAMETER}={mac}"
        );
        if self.params.is_empty() { own } else { format!("{} {own}", self.params) }
    }
}

/// The value of a kernel parameter; the last one counts, as for the kernel.
pub fn parameter<'a>(params: &'a str, name: &str) -> Option<&'a str> {
    params.split_whitespace().rev().find_map(|word| word.strip_prefix(name)?.strip_prefix('='))
}

/// The settings of an OpenCHAMI site, but for the addresses of its services.
///
/// # Errors
/// The first value that would not work.
pub fn check(site: &OpenchamiSite) -> Result<(), BadValue> {
    if site.authority_pem.as_ref().is_some_and(|pem| !pem.contains("-----BEGIN CERTIFICATE-----")) {
        return Err(bad("authority_pem", "must be a certificate in PEM"));
    }
    if site.boot_profiles.is_empty() {
        let what = "must name what machines boot: {\"default\": {\"kernel\": URL, \"initrd\": URL, \"params\": \"…\"}}";
        return Err(bad("boot_profiles", what));
    }
    for (name, profile) in &site.boot_profiles {
        check_profile(name, profile)?;
    }
    if !site.boot_profiles.contains_key(&site.boot_profile) {
        let there: Vec<&str> = site.boot_profiles.keys().map(String::as_str).collect();
        return Err(bad("boot_profile", format!("must be one of boot_profiles: {}", there.join(", "))));
    }
    check_policy(&site.policy)
}

fn check_profile(name: &str, profile: &BootProfile) -> Result<(), BadValue> {
    let fine = (1..=63).contains(&name.len())
        && name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
    if !fine {
        let what = "must have names of 1 to 63 lower-case letters, digits and hyphens, such as compute";
        return Err(bad("boot_profiles", what));
    }
    for (field, url) in [("kernel", &profile.kernel), ("initrd", &profile.initrd)] {
        if !is_image_url(url) {
            let what = "must be an address such as http://images.dc1/vmlinuz, without a login and without spaces";
            return Err(bad(format!("boot_profiles.{name}.{field}"), what));
        }
    }
    check_params(&profile.params).map_err(|what| bad(format!("boot_profiles.{name}.params"), what))
}

fn is_image_url(url: &str) -> bool {
    let rest = ["http://", "https://", "tftp://"].iter().find_map(|scheme| url.strip_prefix(scheme));
    let host = rest.map(|rest| rest.split('/').next().unwrap_or_default());
    host.is_some_and(|host| !host.is_empty() && !host.contains('@'))
        && url.len() <= 1_024
        && url.bytes().all(|b| b.is_ascii_graphic())
}

/// The kernel takes 2,048 characters in all on most machines; ours need about 150.
const LONGEST_PARAMS: usize = 1_800;

fn check_params(params: &str) -> Result<(), String> {
    if params.len() > LONGEST_PARAMS || !params.bytes().all(|b| b.is_ascii_graphic() || b == b' ') {
        return Err(format!("must be one line of at most {LONGEST_PARAMS} printable characters"));
    }
    for name in params.split_whitespace().map(|word| word.split('=').next().unwrap_or_default()) {
        if name.starts_with("lattice.") {
            return Err(format!("must not set `{name}`: Lattice adds what begins with `lattice.` itself"));
        }
        let lower = name.to_ascii_lowercase();
        if ["password", "passwd", "secret", "token", "apikey"].iter().any(|word| lower.contains(word)) {
            return Err(format!("must not set `{name}`: anybody may read a boot script, so no secret belongs there"));
        }
    }
    Ok(())
}

fn check_policy(policy: &OpenchamiPolicy) -> Result<(), BadValue> {
    const WAIT: (u64, u64) = (1_000, 86_400_000);
    let bounds = [
        ("batch_max_parallel", u64::from(policy.batch_max_parallel), (1, 1_000), ""),
        ("site_max_parallel", u64::from(policy.site_max_parallel), (1, 10_000), ""),
        ("enrollment_token_ttl_seconds", policy.enrollment_token_ttl_seconds, (60, 86_400), " s"),
        ("discovery_timeout_ms", policy.discovery_timeout_ms, WAIT, " ms"),
        ("power_timeout_ms", policy.power_timeout_ms, WAIT, " ms"),
        ("netboot_timeout_ms", policy.netboot_timeout_ms, WAIT, " ms"),
        ("enrollment_timeout_ms", policy.enrollment_timeout_ms, WAIT, " ms"),
        ("component_interval_ms", policy.component_interval_ms, WAIT, " ms"),
    ];
    for (name, value, (least, most), unit) in bounds {
        if !(least..=most).contains(&value) {
            return Err(bad(format!("policy.{name}"), format!("must be {least} to {most}{unit}, not {value}")));
        }
    }
    // The token is made while the machine is off, and used at the end of its boot.
    let boot_ms = policy.power_timeout_ms.saturating_add(policy.netboot_timeout_ms);
    if policy.enrollment_token_ttl_seconds.saturating_mul(1_000) <= boot_ms {
        let what = format!(
            "must be longer than power_timeout_ms and netboot_timeout_ms together, {} s: the token is made before the boot",
            boot_ms / 1_000
        );
        return Err(bad("policy.enrollment_token_ttl_seconds", what));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    type Spoil = fn(&mut OpenchamiSite);

    fn site() -> OpenchamiSite {
        serde_json::from_value(serde_json::json!({
            "smd_url": "https://smd.dc1:27779", "bss_url": "https://bss.dc1:27778", "token_path": "kv/openchami-sites/1/token",
            "boot_profiles": {"default": {"kernel": "http://images.dc1/vmlinuz", "initrd": "http://images.dc1/initrd"}},
        }))
        .unwrap()
    }

    #[test]
    fn what_would_not_work_is_refused_by_its_field() {
        assert_eq!(check(&site()), Ok(()));
        let change = |change: Spoil| {
            let mut site = site();
            change(&mut site);
            check(&site).unwrap_err().field
        };
        fn first(site: &mut OpenchamiSite) -> &mut BootProfile {
            site.boot_profiles.values_mut().next().unwrap()
        }
        let rows: [(Spoil, &str); 9] = [
            (|site| site.boot_profiles.clear(), "boot_profiles"),
            (|site| site.boot_profile = "gpu".to_owned(), "boot_profile"),
            (|site| first(site).kernel = "http://root:hush@images/k".to_owned(), "boot_profiles.default.kernel"),
            (|site| first(site).initrd = "/srv/initrd".to_owned(), "boot_profiles.default.initrd"),
            (|site| first(site).params = "quiet\nlattice".to_owned(), "boot_profiles.default.params"),
            (|site| first(site).params = "lattice.node=x".to_owned(), "boot_profiles.default.params"),
            (|site| first(site).params = "root_password=hush".to_owned(), "boot_profiles.default.params"),
            (|site| site.policy.power_timeout_ms = 5, "policy.power_timeout_ms"),
            (|site| site.policy.enrollment_token_ttl_seconds = 60, "policy.enrollment_token_ttl_seconds"),
        ];
        for (spoil, field) in rows {
            assert_eq!(change(spoil), field);
        }
    }

    #[test]
    fn parameters_of_a_node_say_where_its_agent_goes_and_nothing_secret() {
        let mut site = site();
        site.boot_profiles.values_mut().for_each(|profile| profile.params = "console=ttyS0".to_owned());
        let (name, profile) = site.profile(None).unwrap();
        let node = NodeId::new(uuid::Uuid::nil());
        let own = NodeParameters { server: "https://lattice:7443", node, mac: "52:54:00:00:00:01" };
        let params = profile.params_of(name, &own);
        let expected = "console=ttyS0 lattice.server=https://lattice:7443 \
                        lattice.node=00000000-0000-0000-0000-000000000000 lattice.profile=default \
                        lattice.mac=52:54:00:00:00:01";
        assert_eq!(params, expected);
        assert_eq!(parameter(&params, PROFILE_PARAMETER), Some("default"));
        assert_eq!(parameter("a=1 a=2 ab=3", "a"), Some("2"));
        assert_eq!(parameter("quiet", "quiet"), None);
    }
}
