//! What may be wrong with a configuration: unknown keys, wrong types, values that cannot work together.

use std::net::SocketAddr;

use lattice_core::webhook::address::AddressPolicy;
use toml::{Table, Value};

use super::{BackendKind, Config, ConfigProblem, SecretRef};

fn problem(key: &str, problem: impl Into<String>, remedy: impl Into<String>) -> ConfigProblem {
    ConfigProblem { key: key.to_owned(), problem: problem.into(), remedy: remedy.into() }
}

/// Sections and keys that are not known, and values of another type than their default.
pub(super) fn shape(table: &Table, known: &Table) -> Vec<ConfigProblem> {
    let mut problems = Vec::new();
    for (section, keys) in table {
        let Some(known) = known.get(section).and_then(Value::as_table) else {
            let sections: Vec<&str> = known.keys().map(String::as_str).collect();
            problems.push(problem(section, "there is no such section", format!("use {}", sections.join(", "))));
            continue;
        };
        let Some(keys) = keys.as_table() else {
            problems.push(problem(section, "must be a section", format!("write [{section}] and its keys below")));
            continue;
        };
        for (key, value) in keys {
            let path = format!("{section}.{key}");
            match known.get(key) {
                None => {
                    let keys: Vec<&str> = known.keys().map(String::as_str).collect();
                    problems.push(problem(&path, "there is no such key", format!("use {}", keys.join(", "))));
                }
                Some(default) if default.type_str() != value.type_str() => problems.push(problem(
                    &path,
                    format!("is a {}, not a {}", value.type_str(), default.type_str()),
                    format!("give a value such as {default}"),
                )),
                Some(_) => {}
            }
        }
    }
    problems
}

/// Values that have the right type and cannot work.
pub(super) fn values(config: &Config) -> Vec<ConfigProblem> {
    let mut problems = Vec::new();
    server(config, &mut problems);
    http(config, &mut problems);
    problems.extend(super::secrets::check(&config.secrets));
    agents(config, &mut problems);
    if let Err(range) = AddressPolicy::of_ranges(&config.webhooks.allow) {
        problems.push(problem("webhooks.allow", format!("`{range}` is not a range"), "give some such as 10.1.0.0/16"));
    }
    problems
}

fn server(config: &Config, problems: &mut Vec<ConfigProblem>) {
    if !config.server.data_dir.is_absolute() {
        problems.push(problem("server.data_dir", "is not an absolute path", "give one such as /var/lib/lattice"));
    }
    let is_postgres = config.store.backend == BackendKind::Postgres;
    let url = &config.store.postgres_url;
    if (is_postgres || !url.is_empty()) && url.parse::<SecretRef>().is_err() {
        problems.push(problem(
            "store.postgres_url",
            "is not a reference to a secret",
            "put the address into a file of mode 0600 and write file:/path, or write env:NAME",
        ));
    }
}

fn http(config: &Config, problems: &mut Vec<ConfigProblem>) {
    let http = &config.http;
    let has_tls = !http.tls_certificate.as_os_str().is_empty();
    match http.listen.parse::<SocketAddr>() {
        Err(_) => problems.push(listen("http.listen")),
        Ok(address) if !address.ip().is_loopback() && !has_tls => problems.push(problem(
            "http.tls_certificate",
            format!("is empty, and {address} can be reached from other hosts"),
            "give a certificate and its key, or listen at 127.0.0.1 behind something that speaks TLS",
        )),
        Ok(_) => {}
    }
    if has_tls && http.tls_key.parse::<SecretRef>().is_err() {
        problems.push(problem("http.tls_key", "is not a reference to a secret", "write file:/path or env:NAME"));
    }
    if http.max_body_bytes < 64 * 1024 {
        problems.push(problem("http.max_body_bytes", "is less than 64 KiB", "leave room for a batch: 1048576"));
    }
    let positive = [
        ("http.requests_per_second", http.requests_per_second),
        ("http.burst", http.burst),
        ("http.max_event_streams", http.max_event_streams),
    ];
    for (key, value) in positive {
        if value == 0 {
            problems.push(problem(key, "is 0: every request would be refused", "give at least 1"));
        }
    }
}

const NO_SERVER: &str = "is not an https address of a host, without a user and a path";

/// Agents are told it, and whoever asks a server that stands by: it holds nothing but a host and a port.
fn is_server(address: &str) -> bool {
    let Ok(uri) = address.parse::<http::Uri>() else { return false };
    let has_user = uri.authority().is_some_and(|authority| authority.as_str().contains('@'));
    uri.scheme_str() == Some("https") && uri.host().is_some() && !has_user && matches!(uri.path(), "" | "/")
}

fn agents(config: &Config, problems: &mut Vec<ConfigProblem>) {
    let agents = &config.agents;
    if agents.listen.parse::<SocketAddr>().is_err() {
        problems.push(listen("agents.listen"));
    }
    if !is_server(&agents.address) {
        problems.push(problem("agents.address", NO_SERVER, "give what agents reach: https://lattice.dc1:7443"));
    }
    if !(1..=24 * 90).contains(&agents.certificate_hours) {
        problems.push(problem("agents.certificate_hours", "is not 1 to 2160 (90 days)", "24 is a day"));
    }
    let server = &config.bootstrap.server;
    if !server.is_empty() && !is_server(server) {
        problems.push(problem("bootstrap.server", NO_SERVER, "give what new hosts reach: https://lattice.dc1:7443"));
    }
    let digest = &config.bootstrap.agent_sha256;
    if !digest.is_empty() && (digest.len() != 64 || hex::decode(digest).is_err()) {
        problems.push(problem(
            "bootstrap.agent_sha256",
            "is not a SHA-256 in hex",
            "give the 64 digits that `sha256sum` prints",
        ));
    }
}

fn listen(key: &str) -> ConfigProblem {
    problem(key, "is not an address and a port", "give one such as 127.0.0.1:7440")
}
