//! Batches of onboardings: the list, and one with its progress, what stopped and what holds the rest back.

use askama::Template;
use lattice_api::batch::{BatchQuery, BatchRow, BatchStatus, BatchView, TimeLeft};
use lattice_api::explanation::Explanation;
use strum::VariantArray;

use super::action::{Button, Remedy, batch_button};
use super::fleet::{Choice, choices};
use super::shell::{Shell, given, query};
use super::words::took;

/// The list.
#[derive(Template)]
#[template(path = "batches.html", blocks = ["main"])]
pub struct BatchesPage {
    shell: Shell,
    batches: Vec<BatchRow>,
    statuses: Vec<Choice>,
    is_filtered: bool,
    next: Option<String>,
}

/// What the list is narrowed to.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(default)]
pub struct BatchesFilter {
    /// A status, or `live`; empty: any.
    pub status: String,
    /// Where the page begins.
    pub cursor: String,
}

impl BatchesFilter {
    /// The same question to the API.
    pub fn query(&self) -> BatchQuery {
        BatchQuery { cursor: given(&self.cursor), status: given(&self.status), ..BatchQuery::default() }
    }
}

impl BatchesPage {
    /// The page of this answer.
    pub fn of(shell: Shell, filter: &BatchesFilter, batches: Vec<BatchRow>, next: Option<String>) -> Self {
        let words = ["live".to_owned()].into_iter();
        let statuses = words.chain(BatchStatus::VARIANTS.iter().map(ToString::to_string));
        let href = |cursor: String| format!("/ui/batches{}", query(&[("status", &filter.status), ("cursor", &cursor)]));
        Self {
            statuses: choices(statuses, &filter.status),
            is_filtered: !filter.status.is_empty(),
            next: next.map(href),
            batches,
            shell,
        }
    }
}

/// The page of one batch.
#[derive(Template)]
#[template(path = "batch.html", blocks = ["main"])]
pub struct BatchPage {
    shell: Shell,
    view: BatchView,
    explanation: Explanation,
    /// Where its machines stand: words and how many.
    counts: Vec<(&'static str, u64)>,
    /// What is left of it, in words; none when nothing is.
    left: Option<String>,
    remedies: Vec<Remedy>,
    buttons: Vec<Button>,
}

impl BatchPage {
    /// The page of these answers.
    pub fn of(mut shell: Shell, view: BatchView, explanation: Explanation) -> Self {
        shell.title = format!("Batch of {} at {}", view.row.machines, view.row.site);
        let children = &view.row.children;
        Self {
            counts: vec![
                ("done", children.succeeded),
                ("run", children.moving()),
                ("wait", children.pending),
                ("stopped", children.failed()),
                ("cancelled", children.cancelled),
            ],
            left: view.time_left.as_ref().map(left),
            remedies: Remedy::all(&explanation.next_actions, &shell),
            buttons: view.actions.iter().map(|action| batch_button(*action, view.row.id, &shell)).collect(),
            shell,
            view,
            explanation,
        }
    }
}

fn left(left: &TimeLeft) -> String {
    match (left.p50_ms, left.p95_ms) {
        (Some(p50), Some(p95)) => format!("about {}, rarely more than {}", took(p50), took(p95)),
        (Some(_) | None, _) => {
            let stages: Vec<&str> = left.not_known.iter().map(Into::into).collect();
            format!("not known yet: no machine of this SKU has finished {}", stages.join(", "))
        }
    }
}
