//! What the settings of a site and of a profile must be: each problem names its field and what would be right.

use std::net::IpAddr;

use super::maas::{KnobKind, span_seconds};
use super::{MaasPolicy, MaasSettings, MaasSite};

/// A value that is well formed and would not work.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{field}` {problem}")]
pub struct BadValue {
    /// Which field: `policy.deploy_timeout_ms`.
    pub field: String,
    /// What is wrong with it, and what would be right.
    pub problem: String,
}

pub(super) fn bad(field: impl Into<String>, problem: impl Into<String>) -> BadValue {
    BadValue { field: field.into(), problem: problem.into() }
}

/// The settings of a MAAS site, but for its address.
///
/// # Errors
/// The first value that would not work.
pub fn maas_site(site: &MaasSite) -> Result<(), BadValue> {
    settings(&MaasSettings::of(site, None))?;
    interface("deploy_ssh_iface", &site.deploy_ssh_iface)?;
    let user = &site.deploy_user;
    let is_user = (1..=32).contains(&user.len())
        && user.starts_with(|c: char| c.is_ascii_lowercase() || c == '_')
        && user.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '_' | '-'));
    if !is_user || user == "root" {
        return Err(bad("deploy_user", "must be a user's name in lower case other than root, such as hpcadmin"));
    }
    if site.deploy_ssh_port == 0 {
        return Err(bad("deploy_ssh_port", "must be 1 to 65535, usually 22"));
    }
    name_servers(&site.upstream_dns_servers)
}

pub use super::openchami::check as openchami_site;

/// What an onboarding would work with.
///
/// # Errors
/// The first value that would not work.
pub fn settings(settings: &MaasSettings) -> Result<(), BadValue> {
    interface("pxe_iface", &settings.pxe_iface)?;
    interface("node_pxe_iface", &settings.node_pxe_iface)?;
    if settings.pxe_vlan_vid > 4_094 {
        return Err(bad("pxe_vlan_vid", format!("must be 0 (untagged) to 4094, not {}", settings.pxe_vlan_vid)));
    }
    image("distro_series", &settings.distro_series, "ubuntu/noble or custom/gpuaas-noble")?;
    image("architecture", &settings.architecture, "amd64/generic")?;
    if !settings.architecture.contains('/') {
        return Err(bad("architecture", "must be an architecture and its kind, such as amd64/generic"));
    }
    policy(&settings.policy)
}

/// Every knob within its bounds, and those that depend on each other.
///
/// # Errors
/// The first knob that would not work.
pub fn policy(policy: &MaasPolicy) -> Result<(), BadValue> {
    for (knob, value) in policy.values() {
        let field = format!("policy.{}", knob.name);
        if let (Some((least, most)), Some(number)) = (knob.kind.bounds(), value.as_u64())
            && !(least..=most).contains(&number)
        {
            let unit = knob.kind.unit();
            return Err(bad(field, format!("must be {least} to {most} {unit}, not {number}").replace(" ,", ",")));
        }
        if knob.kind == KnobKind::Span {
            let text = value.as_str().unwrap_or_default();
            if !span_seconds(text).is_some_and(|seconds| (60..=86_400).contains(&seconds)) {
                let given: String = text.chars().take(40).collect();
                let what = "must be a time span from 1m to 24h in hours, minutes and seconds, such as 15m";
                return Err(bad(field, format!("{what}, not `{given}`")));
            }
        }
    }
    bundle(policy.site_bootstrap_bundle_ref.as_deref())?;
    // The token is made before the deployment begins. spec: S5 4.3 "must exceed expected deploy + first boot time"
    if policy.enrollment_token_ttl_seconds.saturating_mul(1_000) <= policy.deploy_timeout_ms {
        return Err(bad(
            "policy.enrollment_token_ttl_seconds",
            format!(
                "must be longer than policy.deploy_timeout_ms, {} s: the token is made before the deployment",
                policy.deploy_timeout_ms / 1_000
            ),
        ));
    }
    Ok(())
}

fn bundle(reference: Option<&str>) -> Result<(), BadValue> {
    let Some(text) = reference else { return Ok(()) };
    let is_word = text.chars().all(|c| c.is_ascii_graphic()) && !text.starts_with('-');
    if (1..=512).contains(&text.len()) && is_word {
        return Ok(());
    }
    let what = "must be one word of at most 512 characters that names a bundle, or null";
    Err(bad("policy.site_bootstrap_bundle_ref", what))
}

fn interface(field: &str, name: &str) -> Result<(), BadValue> {
    if is_interface(name) {
        return Ok(());
    }
    Err(bad(field, "must be an interface's name of 1 to 15 characters, such as eno8303"))
}

/// Whether an interface of Linux can have that name.
pub(super) fn is_interface(name: &str) -> bool {
    let fine = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | ':');
    (1..=15).contains(&name.len()) && name.chars().all(fine) && !matches!(name, "." | "..")
}

fn image(field: &str, text: &str, example: &str) -> Result<(), BadValue> {
    let fine = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | '/' | '+');
    if (1..=128).contains(&text.len()) && text.chars().all(fine) && !text.starts_with('/') && !text.ends_with('/') {
        return Ok(());
    }
    Err(bad(field, format!("must be a name as MAAS knows it, such as {example}")))
}

/// A resolver takes three name servers and leaves out the rest.
fn name_servers(servers: &[String]) -> Result<(), BadValue> {
    let field = "upstream_dns_servers";
    if !(1..=3).contains(&servers.len()) {
        return Err(bad(field, format!("must be 1 to 3 addresses, not {}", servers.len())));
    }
    for (index, server) in servers.iter().enumerate() {
        if server.parse::<IpAddr>().is_err() {
            return Err(bad(format!("{field}[{index}]"), "must be an IP address such as 1.1.1.1"));
        }
        if servers[..index].contains(server) {
            return Err(bad(format!("{field}[{index}]"), format!("is {server} once more: leave it out")));
        }
    }
    Ok(())
}
