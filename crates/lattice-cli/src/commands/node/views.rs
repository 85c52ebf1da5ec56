//! Nodes as people see them.

use lattice_api::node::{ComponentReport, HistoryEntry, HoldKind, NodeRow, NodeView, Timeline};

use crate::commands::explain;
use crate::output::{self, Look, Row, Shown, facts, table};

impl Row for NodeRow {
    fn head(wide: bool) -> Vec<&'static str> {
        let mut head = vec!["NODE", "STATUS", "AVAILABILITY", "SINCE", "SITE", "SCHEDULABLE"];
        if wide {
            head.extend(["SKU", "CLASS", "MODE", "ADDRESS", "HEARD", "AGENT", "JOB", "ID"]);
        }
        head.push("WHY NOT");
        head
    }

    fn cells(&self, look: Look) -> Vec<String> {
        let since = self.status_since.as_millis().max(self.availability_since.as_millis());
        let mut cells = vec![
            self.hostname.clone(),
            self.status.to_string(),
            self.availability.to_string(),
            look.age(since),
            self.site.clone(),
            yes_no(self.schedulable),
        ];
        if look.wide {
            cells.extend([
                self.sku.clone(),
                self.class.to_string(),
                self.mode.to_string(),
                self.address.clone().unwrap_or_default(),
                self.heard_at.map(|at| format!("{} ago", look.age(at.as_millis()))).unwrap_or_default(),
                self.agent_version.clone().unwrap_or_default(),
                self.owning_job.map(|job| job.to_string()).unwrap_or_default(),
                self.id.to_string(),
            ]);
        }
        cells.push(self.why_not.clone().unwrap_or_default());
        cells
    }

    fn name(&self) -> String {
        self.hostname.clone()
    }
}

/// Its labels in one line.
pub fn labels(node: &NodeView) -> String {
    let pairs: Vec<String> = node.labels.iter().map(|(name, value)| format!("{name}={value}")).collect();
    if pairs.is_empty() { "no labels".to_owned() } else { pairs.join(", ") }
}

fn yes_no(value: bool) -> String {
    if value { "yes".to_owned() } else { "no".to_owned() }
}

/// That it deviates, and since when; empty when it does not.
fn deviation(node: &NodeView, look: Look) -> String {
    let is_held = node.row.holds.contains(&HoldKind::ConformanceDrift);
    let so = if is_held { "it gets no work" } else { "it gets work last" };
    node.deviates_since.map_or_else(String::new, |since| {
        format!("its fingerprint is not approved, for {}: {so}", look.age(since.as_millis()))
    })
}

/// How it is, as its heartbeats said, and how old that is.
fn health(node: &NodeView, look: Look) -> String {
    let health = &node.health;
    let said = health.said.as_ref();
    let of = |expected: Option<u32>| expected.map_or_else(String::new, |count| format!(" of {count}"));
    let issue = match (&node.minor_issue, said) {
        (Some(issue), _) => issue.clone(),
        (None, Some(said)) if said.minor_issue => "its agent reports one".to_owned(),
        (None, Some(_)) => "none".to_owned(),
        (None, None) => String::new(),
    };
    let now = said.filter(|_| health.caveat.is_none());
    facts(&[
        ("heard", now.map(|said| format!("{} ago", look.age(said.at.as_millis()))).unwrap_or_default()),
        ("heard", health.caveat.clone().unwrap_or_default()),
        ("gpus", said.map(|said| format!("{}{}", said.gpus, of(health.gpus_expected))).unwrap_or_default()),
        ("hottest gpu", said.map(|said| celsius(said.max_temperature_c)).unwrap_or_default()),
        ("memory errors", said.map(|said| format!("{} uncorrectable", said.ecc_uncorrected)).unwrap_or_default()),
        ("minor issue", issue),
        ("allocations run", said.map(|said| said.allocations.to_string()).unwrap_or_default()),
        ("fingerprint", node.fingerprint.clone().unwrap_or_default()),
        ("conformance", deviation(node, look)),
    ])
}

fn celsius(temperature: Option<i16>) -> String {
    temperature.map_or_else(|| "cannot be read".to_owned(), |celsius| format!("{celsius} °C"))
}

/// The short answer: states, allocations, health, holds, and why it is not schedulable.
pub fn status(node: &NodeView, look: Look) -> String {
    let row = &node.row;
    let states = [
        ("status", format!("{}, for {}", row.status, look.age(row.status_since.as_millis()))),
        ("availability", format!("{}, for {}", row.availability, look.age(row.availability_since.as_millis()))),
        ("down because", node.down_cause.map(|cause| cause.to_string()).unwrap_or_default()),
        ("schedulable", yes_no(row.schedulable)),
        ("drain intent", if node.drain_intent { "yes: recovery ends in drained".to_owned() } else { String::new() }),
        ("job", row.owning_job.map(|job| job.to_string()).unwrap_or_default()),
        ("allocations", if node.allocations.is_empty() { "none".to_owned() } else { String::new() }),
    ];
    let mut text = format!("{}  {}  {}\n", row.hostname, row.site, row.sku);
    text.push_str(&facts(&states));
    if !node.allocations.is_empty() {
        text.push_str("\nallocations\n");
        text.push_str(&output::rows(&node.allocations, look));
    }
    text.push_str("\nhealth\n");
    text.push_str(&health(node, look));
    if !node.hold_details.is_empty() {
        text.push_str("\nholds\n");
        text.push_str(&output::rows(&node.hold_details, look));
    }
    if !node.explanation.ok {
        text.push('\n');
        text.push_str(&explain::reasons(&node.explanation));
    }
    text
}

impl Shown for NodeView {
    fn text(&self, look: Look) -> String {
        let mut text = status(self, look);
        text.push_str("\nidentity\n");
        text.push_str(&identity(self));
        if let Some(host) = &self.host {
            text.push_str("\nhost\n");
            text.push_str(&facts(&[
                ("gpus", counted(host.gpus.iter().map(|gpu| format!("{} {}", gpu.vendor, gpu.model)))),
                ("nics", counted(host.nics.iter().map(|nic| format!("{} {}", nic.name, nic.firmware)))),
                (
                    "disks",
                    counted(
                        host.disks
                            .iter()
                            .map(|disk| format!("{} ({} GB)", disk.model, disk.size_bytes / 1_000_000_000)),
                    ),
                ),
                ("memory", format!("{} MiB", host.memory_mib)),
                ("cpus", host.cpus.to_string()),
                ("os", host.os.clone()),
                ("kernel", host.kernel.clone()),
            ]));
        }
        if let Some(provider) = &self.provider {
            text.push_str("\nprovider\n");
            text.push_str(&facts(&[
                ("says", format!("{}, power {}", provider.status, provider.power)),
                ("seen", format!("{} ago", look.age(provider.observed_at.as_millis()))),
                ("addresses", provider.addresses.join(", ")),
            ]));
        }
        if let Some(component) = &self.component {
            text.push_str("\ncomponent\n");
            text.push_str(&self::component(component, look));
        }
        let verbs: Vec<String> = self.verbs.iter().map(ToString::to_string).collect();
        text.push_str(&format!(
            "\nmay be asked: {}\n",
            if verbs.is_empty() { "nothing".to_owned() } else { verbs.join(", ") }
        ));
        text
    }

    fn names(&self) -> Vec<String> {
        vec![self.row.hostname.clone()]
    }
}

fn component(report: &ComponentReport, look: Look) -> String {
    let ago = |at_ms: i64| format!("{} ago", look.age(at_ms));
    let told = report.told.map_or_else(|| "nothing".to_owned(), |word| word.to_string());
    let raised = report.raised.map(|flag| format!("{flag}: another system's, and left as it is"));
    facts(&[
        ("xname", report.xname.clone()),
        ("says", report.said.map_or_else(|| "there is no such component".to_owned(), |word| word.to_string())),
        ("since", ago(report.said_since.as_millis())),
        ("looked at", ago(report.looked_at.as_millis())),
        ("told", report.told_at.map_or(told.clone(), |at| format!("{told}, {}", ago(at.as_millis())))),
        ("raised", raised.unwrap_or_default()),
        ("its bmc", report.bmc_problem.clone().unwrap_or_default()),
    ])
}

fn identity(node: &NodeView) -> String {
    facts(&[
        ("id", node.row.id.to_string()),
        ("class", node.row.class.to_string()),
        ("mode", node.row.mode.to_string()),
        ("address", node.row.address.clone().unwrap_or_default()),
        ("bmc", node.bmc_address.clone().unwrap_or_default()),
        ("provider ref", node.provider_ref.clone().unwrap_or_default()),
        ("agent", node.row.agent_version.clone().unwrap_or_default()),
        ("boot id", node.boot_id.clone().unwrap_or_default()),
        ("labels", if node.labels.is_empty() { String::new() } else { labels(node) }),
        ("identity epoch", node.identity_epoch.to_string()),
        ("created", node.created_at.to_string()),
        ("version", node.row.generation.0.to_string()),
    ])
}

/// `8 × amd MI300X`: equal ones are counted.
fn counted(names: impl Iterator<Item = String>) -> String {
    let mut counts: Vec<(String, u32)> = Vec::new();
    for name in names {
        match counts.iter_mut().find(|(known, _)| *known == name) {
            Some((_, count)) => *count += 1,
            None => counts.push((name, 1)),
        }
    }
    let parts: Vec<String> = counts.into_iter().map(|(name, count)| format!("{count} × {}", name.trim())).collect();
    parts.join(", ")
}

impl Shown for Timeline {
    fn text(&self, _: Look) -> String {
        let rows = self.entries.iter().map(|entry| {
            let mark = if entry.bad { "!" } else { "" };
            vec![
                entry.at.to_string(),
                mark.to_owned(),
                entry.source.to_string(),
                entry.title.clone(),
                entry.detail.clone(),
                entry.actor.clone(),
            ]
        });
        table(&["AT", "", "SOURCE", "WHAT", "DETAIL", "BY"], rows)
    }

    fn names(&self) -> Vec<String> {
        self.entries.iter().map(|entry| entry.title.clone()).collect()
    }
}

impl Row for HistoryEntry {
    fn head(_: bool) -> Vec<&'static str> {
        vec!["SEQ", "AT", "BEFORE", "AFTER", "BY EVENT", "BY", "DETAIL"]
    }

    fn cells(&self, _: Look) -> Vec<String> {
        vec![
            self.seq.to_string(),
            self.at.to_string(),
            self.before.map(|state| state.to_string()).unwrap_or_default(),
            self.after.to_string(),
            self.cause.clone(),
            self.actor.clone(),
            self.detail.clone(),
        ]
    }

    fn name(&self) -> String {
        self.seq.to_string()
    }
}
