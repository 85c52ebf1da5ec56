//! Which request a printed command makes. A command without a row makes none, or more than one.

use lattice_core::job::OperatorAction;
use serde_json::{Map, Value, json};
use strum::VariantArray;

use super::ApiCall;
use crate::allocation::AllocationVerb;
use crate::batch::BatchAction;
use crate::node::NodeVerb;

/// One command. Words in capitals stand for any word of the line, or for the verbs of [`fits`]; `a|b` for either.
struct Row {
    command: &'static str,
    method: &'static str,
    /// Below the API's root, with the command's words in capitals.
    path: &'static str,
    options: Options,
}

/// Where the options of a command go.
#[derive(Clone, Copy)]
enum Options {
    /// It takes none.
    None,
    /// Into the query, those of these names; `option:field` where the field has another name.
    Query(&'static [&'static str]),
    /// Into the body, those of these names.
    Body(&'static [&'static str]),
    /// Into a body that says what a job's stage asked for.
    Decisions(&'static [&'static str]),
    /// The body is always the same: this field with this value.
    Fixed(&'static str, &'static str),
}

/// Fields whose option may be repeated.
const LISTS: [&str; 1] = ["drives"];

const ROOT: &str = "/api/v1/admin";

const fn row(command: &'static str, method: &'static str, path: &'static str, options: Options) -> Row {
    Row { command, method, path, options }
}

const fn read(command: &'static str, path: &'static str) -> Row {
    row(command, "GET", path, Options::None)
}

const REASON: Options = Options::Body(&["reason"]);

const ROWS: &[Row] = &[
    read("explain node NODE", "nodes/NODE/explain"),
    read("explain job JOB", "jobs/JOB/explain"),
    read("explain allocation ID", "allocations/ID/explain"),
    read("explain batch BATCH", "onboardings/batch/BATCH/explain"),
    read("fleet", "fleet"),
    // Nodes.
    row(
        "node list",
        "GET",
        "nodes",
        Options::Query(&[
            "state",
            "status",
            "availability",
            "site",
            "sku",
            "label",
            "prefix:hostname_prefix",
            "cursor",
            "limit",
        ]),
    ),
    read("node status|show|get NODE", "nodes/NODE"),
    read("node timeline NODE", "nodes/NODE/timeline"),
    read("node history NODE", "nodes/NODE/history"),
    read("node tasks NODE", "nodes/NODE/tasks"),
    read("node task TASK", "tasks/TASK"),
    read("node bmc show NODE", "nodes/NODE/bmc"),
    row("node bmc check NODE", "POST", "nodes/NODE/bmc/check", Options::None),
    row("node bmc reset-breaker NODE", "POST", "nodes/NODE/bmc/reset-breaker", REASON),
    row("node check NODE", "POST", "nodes/NODE/check", REASON),
    row("node bootstrap NODE", "POST", "nodes/NODE/bootstrap", REASON),
    row("node revoke-certificate|revoke NODE", "POST", "nodes/NODE/revoke-certificate", REASON),
    row(
        "node NODE_VERB NODE",
        "POST",
        "nodes/NODE/NODE_VERB",
        Options::Body(&[
            "reason",
            "urgent",
            "image",
            "boot",
            "disposal",
            "deadline:deadline_ms",
            "no_deadline",
            "drive:drives",
            "powered_on",
        ]),
    ),
    row("admin node wipe NODE", "POST", "nodes/NODE/wipe", Options::Body(&["reason", "force"])),
    read("hold list", "holds"),
    read("hold list NODE", "nodes/NODE/holds"),
    row("hold clear NODE KIND", "DELETE", "nodes/NODE/holds/KIND", Options::None),
    // Work.
    row("job list", "GET", "jobs", Options::Query(&["status", "kind", "cursor", "limit"])),
    read("job show|get|watch JOB", "jobs/JOB"),
    row(
        "job resume JOB",
        "POST",
        "jobs/JOB/resume",
        Options::Decisions(&["boot_disk", "machine", "release_deployed", "os_gone"]),
    ),
    row("job restart-clean JOB", "POST", "jobs/JOB/restart-clean", Options::Decisions(&["release_deployed"])),
    row("job JOB_ACTION JOB", "POST", "jobs/JOB/JOB_ACTION", REASON),
    row("allocation list", "GET", "allocations", Options::Query(&["status", "node", "user", "cursor", "limit"])),
    read("allocation show ID", "allocations/ID"),
    row("allocation ALLOCATION_VERB ID", "POST", "allocations/ID/ALLOCATION_VERB", REASON),
    row("onboard list", "GET", "onboardings", Options::Query(&["batch:batch_id", "status", "cursor", "limit"])),
    read("onboard show|get|watch ID", "onboardings/ID"),
    read("onboard batch list", "onboardings/batch"),
    read("onboard batch show|get|watch BATCH", "onboardings/batch/BATCH"),
    read("onboard batch explain BATCH", "onboardings/batch/BATCH/explain"),
    read("onboard batch log BATCH", "onboardings/batch/BATCH/log"),
    row("onboard batch BATCH_ACTION BATCH", "POST", "onboardings/batch/BATCH/BATCH_ACTION", REASON),
    // Sites.
    read("site list", "sites"),
    read("site show|get SITE", "sites/SITE"),
    read("site calls SITE", "sites/SITE/calls"),
    row("site probe SITE", "POST", "sites/SITE/probe", Options::None),
    row("site enable SITE", "PATCH", "sites/SITE", Options::Fixed("status", "active")),
    row("site disable SITE", "PATCH", "sites/SITE", Options::Fixed("status", "disabled")),
    row("site brake SITE --release", "DELETE", "sites/SITE/brake", Options::None),
    read("site conformance list SITE", "sites/SITE/conformance"),
    row(
        "site conformance approve SITE",
        "POST",
        "sites/SITE/conformance/approve",
        Options::Body(&["node", "sku", "fingerprint", "reason"]),
    ),
    read("site profile list SITE", "sites/SITE/profiles"),
    read("site profile show|get SITE PROFILE", "sites/SITE/profiles/PROFILE"),
    row("site profile enable SITE PROFILE", "PATCH", "sites/SITE/profiles/PROFILE", Options::Fixed("status", "active")),
    read("site override list SITE", "sites/SITE/power-overrides"),
    row("site roce list SITE", "GET", "sites/SITE/roce-assignments", Options::Query(&["hostname", "cursor", "limit"])),
    read("sku list", "skus"),
    read("sku show|get SKU", "skus/SKU"),
    // The rest.
    read("webhook list", "webhooks"),
    read("webhook show|get WEBHOOK", "webhooks/WEBHOOK"),
    read("webhook deliveries WEBHOOK", "webhooks/WEBHOOK/deliveries"),
    row("webhook test WEBHOOK", "POST", "webhooks/WEBHOOK/test", Options::None),
    row("webhook enable WEBHOOK", "POST", "webhooks/WEBHOOK/enable", REASON),
    row("webhook disable WEBHOOK", "POST", "webhooks/WEBHOOK/disable", REASON),
    row("webhook rotate-secret WEBHOOK", "POST", "webhooks/WEBHOOK/rotate-secret", REASON),
    read("silence list", "silences"),
    row("silence lift ID", "DELETE", "silences/ID", Options::None),
    read("token list", "tokens"),
    row("wipe list", "GET", "wipes", Options::None),
    read("wipe keys", "wipe-signing-keys"),
    read("audit verify", "audit/verify"),
];

/// The request that a printed command makes, for commands that make exactly one.
///
/// The command line is the contract (an operator copies it), the request follows from it: one place knows both. A
/// command or an option that is not known here has no request: none is better than a wrong one.
pub fn call_of(command: &str) -> Option<ApiCall> {
    let mut words: Vec<&str> = command.split_whitespace().collect();
    if words.first() != Some(&"lattice") {
        return None;
    }
    words.remove(0);
    if words.first() == Some(&"onboarding") {
        words[0] = "onboard";
    }
    // How the command asks and waits is no part of its request.
    words.retain(|word| !["--yes", "--watch", "--wait"].contains(word));
    ROWS.iter().find_map(|row| row.call(&words))
}

impl Row {
    fn call(&self, words: &[&str]) -> Option<ApiCall> {
        let pattern: Vec<&str> = self.command.split(' ').collect();
        let (line, options) = words.split_at_checked(pattern.len())?;
        if !pattern.iter().zip(line).all(|(pattern, word)| fits(pattern, word)) {
            return None;
        }
        let filled = |part: &str| {
            let at = pattern.iter().position(|pattern| *pattern == part);
            at.map_or_else(|| part.to_owned(), |at| line[at].to_owned())
        };
        let parts: Vec<String> = self.path.split('/').map(filled).collect();
        let mut path = format!("{ROOT}/{}", parts.join("/"));
        let body = match self.options {
            Options::None if options.is_empty() => None,
            Options::None => return None,
            Options::Query(names) => {
                let fields = fields(options, names)?;
                let pairs: Vec<String> =
                    fields.iter().map(|(name, value)| format!("{name}={}", plain(value))).collect();
                if !pairs.is_empty() {
                    path = format!("{path}?{}", pairs.join("&"));
                }
                None
            }
            Options::Body(names) => Some(fields(options, names)?.into()),
            Options::Decisions(names) => {
                let decided = fields(options, names)?;
                Some(if decided.is_empty() { json!({}) } else { json!({"decisions": decided}) })
            }
            Options::Fixed(name, value) if options.is_empty() => Some(json!({name: value})),
            Options::Fixed(_, _) => return None,
        };
        Some(ApiCall { method: self.method.to_owned(), path, body })
    }
}

/// Whether a word of a line is what the pattern stands for.
fn fits(pattern: &str, word: &str) -> bool {
    match pattern {
        "NODE_VERB" => word.parse::<NodeVerb>().is_ok_and(|verb| verb != NodeVerb::Wipe),
        "JOB_ACTION" => OperatorAction::VARIANTS.iter().any(|action| action.verb() == word),
        "BATCH_ACTION" => word.parse::<BatchAction>().is_ok(),
        "ALLOCATION_VERB" => word.parse::<AllocationVerb>().is_ok(),
        _ if pattern.starts_with(|first: char| first.is_ascii_uppercase()) => !word.starts_with('-'),
        _ => pattern.split('|').any(|pattern| pattern == word),
    }
}

/// `--boot-disk nvme0n1 --urgent` is `{"boot_disk": "nvme0n1", "urgent": true}`; none when a name is not among these.
fn fields(options: &[&str], names: &[&str]) -> Option<Map<String, Value>> {
    let mut fields = Map::new();
    let mut rest = options;
    while let [option, tail @ ..] = rest {
        let option = option.strip_prefix("--")?;
        let (name, value, after) = match (option.split_once('='), tail) {
            (Some((name, value)), _) => (name, value.into(), tail),
            (None, [value, after @ ..]) if !value.starts_with("--") => (option, (*value).into(), after),
            (None, _) => (option, true.into(), tail),
        };
        let name = name.replace('-', "_");
        let mut known = names.iter().map(|name| name.split_once(':').unwrap_or((name, name)));
        let (_, field) = known.find(|(option, _)| *option == name)?;
        let value = if field.ends_with("_ms") { milliseconds(value) } else { value };
        match fields.get_mut(field) {
            Some(Value::Array(several)) => several.push(value),
            Some(_) => return None,
            None if LISTS.contains(&field) => drop(fields.insert(field.to_owned(), json!([value]))),
            None => drop(fields.insert(field.to_owned(), value)),
        }
        rest = after;
    }
    Some(fields)
}

/// `30m` in milliseconds; what is no span, as a blank, stays as it is.
fn milliseconds(value: Value) -> Value {
    let ms = value.as_str().and_then(crate::span::parse).and_then(|span| u64::try_from(span.as_millis()).ok());
    ms.map_or(value, Value::from)
}

fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}
