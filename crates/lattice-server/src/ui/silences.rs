//! What is silenced, folded: who hides it, until when, why; a node's silences; and the buttons that silence and lift.

use askama::Template;
use askama::filters::HtmlSafe;
use lattice_api::error::ApiCall;
use lattice_api::fleet::{Fleet, Incident, Severity};
use lattice_api::silence::SilenceView;
use serde_json::json;

use super::action::{Button, Manner};
use super::fleet::{Card, card};
use super::shell::Shell;
use super::words::{When, ago};

/// How long one may be silenced, as the page offers it; any span up to 30 days may be typed.
const SPANS: [&str; 4] = ["1h", "4h", "1d", "7d"];

/// The silences and what they hide. A critical incident keeps its own line; warnings fold into one.
#[derive(Template)]
#[template(path = "silences.html")]
pub struct Silenced {
    critical: Vec<Hidden>,
    warnings: Vec<Hidden>,
    silences: Vec<SilenceLine>,
}
impl HtmlSafe for Silenced {}

/// An incident that raises no attention.
#[derive(Template)]
#[template(path = "silenced.html")]
struct Hidden {
    card: Card,
    by: String,
    reason: String,
    until: When,
}
impl HtmlSafe for Hidden {}

/// A silence in force, with the button that lifts it.
#[derive(Template)]
#[template(path = "silence.html")]
pub struct SilenceLine {
    whom: String,
    by: String,
    reason: String,
    until: When,
    lift: Button,
}
impl HtmlSafe for SilenceLine {}

impl Silenced {
    /// Of a fleet.
    pub fn of(fleet: &Fleet, shell: &Shell) -> Self {
        let hidden = |severity: Severity| {
            let of_it = fleet.silenced.iter().filter(move |one| one.incident.severity == severity);
            let silence = |id| fleet.silences.iter().find(|silence| silence.id == id);
            of_it.filter_map(|one| Some(Hidden::of(&one.incident, silence(one.silence)?, shell))).collect()
        };
        Self {
            critical: hidden(Severity::Critical),
            warnings: hidden(Severity::Warning),
            silences: fleet.silences.iter().map(|silence| SilenceLine::of(silence, shell)).collect(),
        }
    }
}

impl Hidden {
    fn of(incident: &Incident, silence: &SilenceView, shell: &Shell) -> Self {
        Self {
            card: card(incident, shell),
            by: silence.by.name.clone(),
            reason: silence.reason.clone(),
            until: ago(&silence.until, &shell.at),
        }
    }
}

impl SilenceLine {
    /// Of a silence, for whoever looks.
    pub fn of(silence: &SilenceView, shell: &Shell) -> Self {
        Self {
            whom: silence.whom(),
            by: silence.by.name.clone(),
            reason: silence.reason.clone(),
            until: ago(&silence.until, &shell.at),
            lift: lift_button(silence, shell),
        }
    }
}

fn lift_button(silence: &SilenceView, shell: &Shell) -> Button {
    Button {
        label: "Lift".to_owned(),
        command: format!("lattice silence lift {}", silence.id),
        call: ApiCall {
            method: "DELETE".to_owned(),
            path: format!("/api/v1/admin/silences/{}", silence.id),
            body: None,
        },
        effect: "what it hides needs attention again".to_owned(),
        manner: Manner::Plain,
        blanks: Vec::new(),
        choices: Vec::new(),
        allowed: shell.may_act(),
    }
}

/// Silences an incident of nodes; none: what is not about nodes is never silenced.
pub fn silence_button(incident: &Incident, shell: &Shell) -> Option<Button> {
    let of_nodes = incident.subjects.iter().filter(|subject| subject.kind == "node");
    let nodes: Vec<&str> = of_nodes.map(|subject| subject.name.as_str()).collect();
    if nodes.is_empty() || !incident.kind.is_about_nodes() {
        return None;
    }
    let kind = incident.kind;
    // More nodes than it names: their site.
    let (command, body) = match incident.site.as_ref().filter(|_| incident.more > 0) {
        Some(site) => (
            format!("lattice silence create --site {site} --kind {kind} --for <for> --reason <reason>"),
            json!({"kind": kind, "site": site, "for_ms": "<for>"}),
        ),
        None => {
            let names = nodes.join(",");
            (
                format!("lattice silence create --node {names} --kind {kind} --for <for> --reason <reason>"),
                json!({"kind": kind, "nodes": nodes, "for_ms": "<for>"}),
            )
        }
    };
    Some(Button {
        label: "Silence".to_owned(),
        command,
        call: ApiCall { method: "POST".to_owned(), path: "/api/v1/admin/silences".to_owned(), body: Some(body) },
        effect: format!(
            "It raises no attention until then, and {} owns that. Nothing else changes: not its state, not what Lattice \
             does about it, no metric and no alert of Prometheus. At most 30d.",
            shell.caller
        ),
        manner: Manner::Plain,
        blanks: vec!["for".to_owned()],
        choices: SPANS.map(str::to_owned).to_vec(),
        allowed: shell.may_act(),
    })
}
