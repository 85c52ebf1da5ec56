//! The audit with its verification.

use askama::Template;
use lattice_api::audit::{AuditEntry, AuditVerification};

use super::shell::{Shell, query};
use super::words::short_id;

/// The page.
#[derive(Template)]
#[template(path = "audit.html", blocks = ["main"])]
pub struct AuditPage {
    shell: Shell,
    entries: Vec<Row>,
    verification: AuditVerification,
    next: Option<String>,
}

struct Row {
    name: String,
    href: Option<String>,
    before: String,
    after: String,
    entry: AuditEntry,
}

impl AuditPage {
    /// The page of these answers.
    pub fn of(shell: Shell, entries: Vec<AuditEntry>, next: Option<String>, verification: AuditVerification) -> Self {
        let next = next.map(|cursor| format!("/ui/audit{}", query(&[("cursor", &cursor)])));
        Self { shell, entries: entries.into_iter().map(row).collect(), verification, next }
    }
}

fn row(entry: AuditEntry) -> Row {
    let pretty = |value: &serde_json::Value| serde_json::to_string_pretty(value).unwrap_or_default();
    let known = |picture: &serde_json::Value| picture.get("hostname")?.as_str().map(str::to_owned);
    let href = match entry.resource_kind.as_str() {
        "node" => Some(format!("/ui/nodes/{}", entry.resource_id)),
        "job" => Some(format!("/ui/jobs/{}", entry.resource_id)),
        "site" => Some("/ui/sites".to_owned()),
        _ => None,
    };
    Row {
        name: known(&entry.after).or_else(|| known(&entry.before)).unwrap_or_else(|| short_id(&entry.resource_id)),
        href,
        before: pretty(&entry.before),
        after: pretty(&entry.after),
        entry,
    }
}
