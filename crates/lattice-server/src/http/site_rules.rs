//! What a site must look like, and where its secrets are kept: pure.

use lattice_api::site::PatchSite;
use lattice_core::bmc::BmcPolicy;
use lattice_core::ids::SiteId;
use lattice_core::site::{AutomationPolicy, Site, SiteProvider, check as core_check};
use lattice_core::time::Timestamp;
use serde_json::Value;

use crate::error::{Answer, Refusal};

/// The fields of each kind that name where a secret is kept, and the last part of that path. spec: S5 3.2
const MAAS_PATHS: [(&str, &str); 3] = [
    ("api_token_path", "api-token"),
    ("default_power_creds_path", "power/default"),
    ("deploy_password_path", "deploy-password"),
];
const LXD_PATHS: [(&str, &str); 3] =
    [("client_cert_path", "client-cert"), ("client_key_path", "client-key"), ("server_cert_path", "server-cert")];

const OPENCHAMI_PATHS: [(&str, &str); 1] = [("token_path", "token")];

/// A provider from a request: settings as given, paths of secrets as the server keeps them.
pub fn provider(id: SiteId, given: &Value) -> Answer<SiteProvider> {
    let Some(fields) = given.as_object() else {
        return Err(Refusal::malformed("provider", "must be an object with a `kind`"));
    };
    let kind = fields.get("kind").and_then(Value::as_str);
    let (root, paths): (_, &[(&str, &str)]) = match kind {
        Some("maas") => ("kv/maas-sites", &MAAS_PATHS),
        Some("lxd") => ("kv/lxd-sites", &LXD_PATHS),
        Some("openchami") => ("kv/openchami-sites", &OPENCHAMI_PATHS),
        Some("manual") => {
            return Err(Refusal::invalid(
                "provider.kind",
                "cannot be `manual`: the one such site, `local`, is built in",
            ));
        }
        Some(_) | None => return Err(Refusal::malformed("provider.kind", KINDS)),
    };
    let mut fields = fields.clone();
    for (field, tail) in paths {
        if fields.contains_key(*field) {
            return Err(Refusal::invalid(&format!("provider.{field}"), "is chosen by the server: leave it out"));
        }
        fields.insert((*field).to_owned(), format!("{root}/{id}/{tail}").into());
    }
    parse(Value::Object(fields))
}

/// What an operator may create.
const KINDS: &str = "must be `maas`, `lxd` or `openchami`";

/// Parsed by its kind, so that an error names the field within it.
fn parse(mut value: Value) -> Answer<SiteProvider> {
    let kind = value.as_object_mut().and_then(|fields| fields.remove("kind"));
    match kind.as_ref().and_then(Value::as_str) {
        Some("maas") => settings("provider", value).map(SiteProvider::Maas),
        Some("lxd") => settings("provider", value).map(SiteProvider::Lxd),
        Some("openchami") => settings("provider", value).map(SiteProvider::Openchami),
        Some("manual") => Ok(SiteProvider::Manual),
        Some(_) | None => Err(Refusal::malformed("provider.kind", KINDS)),
    }
}

/// Settings under that field of the body, parsed; an error names the field within them.
pub fn settings<T: serde::de::DeserializeOwned>(root: &str, value: Value) -> Answer<T> {
    serde_path_to_error::deserialize(value).map_err(|error| {
        let message = error.inner().to_string();
        let leaf = ["missing field `", "unknown field `"]
            .iter()
            .find_map(|prefix| message.strip_prefix(prefix).and_then(|rest| rest.split('`').next()).map(str::to_owned));
        let path = error.path().to_string();
        let field = match (path.as_str(), leaf) {
            (".", Some(leaf)) => format!("{root}.{leaf}"),
            (path, Some(leaf)) if path != leaf => format!("{root}.{path}.{leaf}"),
            (path, _) => format!("{root}.{path}"),
        };
        Refusal::malformed(&field, format!("is not right: {message}"))
    })
}

/// The site after a patch.
pub fn patched(site: Site, patch: &PatchSite, now: Timestamp) -> Answer<Site> {
    let provider = match &patch.provider {
        Some(changes) => merged(&site.provider, changes)?,
        None => site.provider,
    };
    let after = Site {
        provider,
        region_code: patch.region_code.clone().unwrap_or(site.region_code),
        status: patch.status.unwrap_or(site.status),
        heartbeat: patch.heartbeat.unwrap_or(site.heartbeat),
        bmc: patch.bmc.clone().unwrap_or(site.bmc),
        automation: patch.automation.unwrap_or(site.automation),
        brake: site.brake,
        let_go_at: site.let_go_at,
        approved: site.approved,
        sensitive: patch.sensitive.unwrap_or(site.sensitive),
        updated_at: now,
        generation: site.generation.next(),
        id: site.id,
        name: site.name,
        created_at: site.created_at,
    };
    check(&after)?;
    Ok(after)
}

/// JSON merge patch (RFC 7396) of a provider's settings.
fn merged(provider: &SiteProvider, changes: &Value) -> Answer<SiteProvider> {
    let Some(fields) = changes.as_object() else {
        return Err(Refusal::malformed("provider", "must be an object"));
    };
    if let Some(kind) = fields.get("kind").filter(|kind| kind.as_str() != Some(provider.kind())) {
        return Err(Refusal::invalid("provider.kind", format!("is {} and cannot become {kind}", provider.kind())));
    }
    let paths = MAAS_PATHS.iter().chain(&LXD_PATHS).chain(&OPENCHAMI_PATHS);
    if let Some((field, _)) = paths.into_iter().find(|(field, _)| fields.contains_key(*field)) {
        return Err(Refusal::invalid(&format!("provider.{field}"), "is chosen by the server and does not change"));
    }
    let mut value = serde_json::to_value(provider).expect("a provider has only text keys");
    merge(&mut value, changes);
    parse(value)
}

/// Applies a JSON merge patch (RFC 7396).
pub fn merge(target: &mut Value, patch: &Value) {
    let (Some(fields), Some(changes)) = (target.as_object_mut(), patch.as_object()) else {
        *target = patch.clone();
        return;
    };
    for (name, change) in changes {
        if change.is_null() {
            fields.remove(name);
        } else {
            merge(fields.entry(name.clone()).or_insert(Value::Null), change);
        }
    }
}

/// Values that are well formed and would not work.
pub fn check(site: &Site) -> Answer<()> {
    check_name(&site.name, "dc1")?;
    if !(1..=63).contains(&site.region_code.len()) {
        return Err(Refusal::invalid("region_code", "must have 1 to 63 characters"));
    }
    let heartbeat = &site.heartbeat;
    for (name, times) in
        [("standard", heartbeat.standard), ("sensitive", heartbeat.sensitive), ("borrowed", heartbeat.borrowed)]
    {
        if times.window_ms <= heartbeat.interval_ms {
            let field = format!("heartbeat.{name}.window_ms");
            return Err(Refusal::invalid(&field, "must be longer than `interval_ms`: else every node is degraded"));
        }
    }
    check_bmc(&site.bmc)?;
    check_automation(&site.automation)?;
    // A minute lets a slip of the unit be seen; a day is longer than any drive takes.
    if !(60_000..=86_400_000).contains(&site.sensitive.wipe_timeout_ms) {
        return Err(Refusal::invalid("sensitive.wipe_timeout_ms", "must be 60000 to 86400000 ms"));
    }
    match &site.provider {
        SiteProvider::Manual => Ok(()),
        SiteProvider::Maas(maas) => {
            check_url("provider.api_base_url", &maas.api_base_url)?;
            core_check::maas_site(maas).map_err(|bad| refused("provider", &bad))
        }
        SiteProvider::Lxd(lxd) => check_url("provider.api_url", &lxd.api_url),
        SiteProvider::Openchami(site) => {
            check_url("provider.smd_url", &site.smd_url)?;
            check_url("provider.bss_url", &site.bss_url)?;
            if let Some(pcs) = &site.pcs_url {
                check_url("provider.pcs_url", pcs)?;
            }
            if let Some(url) = &site.notices_url {
                check_url("provider.notices_url", url)?;
            }
            core_check::openchami_site(site).map_err(|bad| refused("provider", &bad))
        }
    }
}

fn check_automation(policy: &AutomationPolicy) -> Answer<()> {
    if policy.max_unavailable_percent > 100 {
        return Err(Refusal::invalid("automation.max_unavailable_percent", "must be 0 to 100"));
    }
    if !(10_000..=86_400_000).contains(&policy.remediate_after_ms) {
        return Err(Refusal::invalid("automation.remediate_after_ms", "must be 10000 to 86400000 ms"));
    }
    Ok(())
}

/// A second at least, so that no slip of the unit floods BMCs; a day at most.
fn check_bmc(policy: &BmcPolicy) -> Answer<()> {
    let pause = policy.health_interval_ms;
    if pause != 0 && !(1_000..=86_400_000).contains(&pause) {
        return Err(Refusal::invalid("bmc.health_interval_ms", "must be 0 (never) or 1000 to 86400000 ms"));
    }
    if !(1..=256).contains(&policy.health_parallel) {
        return Err(Refusal::invalid("bmc.health_parallel", "must be 1 to 256"));
    }
    if policy.authority_pem.as_ref().is_some_and(|pem| !pem.contains("-----BEGIN CERTIFICATE-----")) {
        return Err(Refusal::invalid("bmc.authority_pem", "must be a certificate in PEM"));
    }
    Ok(())
}

/// A value that core refused, under that field of the body.
pub fn refused(root: &str, bad: &core_check::BadValue) -> Refusal {
    Refusal::invalid(&format!("{root}.{}", bad.field), &bad.problem)
}

/// A name that stands in paths and commands, and is no id.
pub fn check_name(name: &str, example: &str) -> Answer<()> {
    let fine = (1..=63).contains(&name.len())
        && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')
        && uuid::Uuid::parse_str(name).is_err();
    if fine {
        return Ok(());
    }
    let what = format!("must be 1 to 63 lower-case letters, digits and hyphens and no id, such as {example}");
    Err(Refusal::invalid("name", what))
}

fn check_url(field: &str, text: &str) -> Answer<()> {
    let uri = text.parse::<http::Uri>().ok();
    let fine = uri.as_ref().is_some_and(|uri| {
        matches!(uri.scheme_str(), Some("http" | "https"))
            && uri.host().is_some_and(|host| !host.is_empty())
            && uri.query().is_none()
            && uri.authority().is_some_and(|authority| !authority.as_str().contains('@'))
    });
    if fine {
        return Ok(());
    }
    let problem = "must be an address such as https://10.0.0.1:5240/MAAS, without a login and without a query";
    Err(Refusal::invalid(field, problem))
}
