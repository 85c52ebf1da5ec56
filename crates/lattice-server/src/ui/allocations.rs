//! The list of allocations: what waits and why, what runs where.

use askama::Template;
use lattice_api::allocation::{AllocationQuery, AllocationRow, AllocationStatus};
use strum::VariantArray;

use super::action::{Button, allocation_button};
use super::fleet::{Choice, choices};
use super::shell::{Shell, given, query};
use super::words::{Tone, of_allocation};

/// The page.
#[derive(Template)]
#[template(path = "allocations.html", blocks = ["main"])]
pub struct AllocationsPage {
    shell: Shell,
    lines: Vec<Line>,
    statuses: Vec<Choice>,
    user: String,
    is_filtered: bool,
    next: Option<String>,
}

struct Line {
    row: AllocationRow,
    tone: Tone,
    ask: Option<Button>,
}

/// What the list is narrowed to.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(default)]
pub struct AllocationsFilter {
    /// A status, or `live`; empty: any.
    pub status: String,
    /// Whose; empty: anybody's.
    pub user: String,
    /// Where the page begins.
    pub cursor: String,
}

impl AllocationsFilter {
    /// The same question to the API.
    pub fn query(&self) -> AllocationQuery {
        AllocationQuery {
            status: given(&self.status),
            user: given(&self.user),
            cursor: given(&self.cursor),
            ..AllocationQuery::default()
        }
    }
}

impl AllocationsPage {
    /// The page of this answer.
    pub fn of(shell: Shell, filter: &AllocationsFilter, rows: Vec<AllocationRow>, next: Option<String>) -> Self {
        let statuses = std::iter::once("live".to_owned());
        let statuses = statuses.chain(AllocationStatus::VARIANTS.iter().map(ToString::to_string));
        let href = |cursor: String| {
            let fields = [("status", filter.status.as_str()), ("user", &filter.user), ("cursor", &cursor)];
            format!("/ui/allocations{}", query(&fields))
        };
        let line =
            |row: AllocationRow| Line { tone: of_allocation(&row.status), ask: allocation_button(&row, &shell), row };
        Self {
            lines: rows.into_iter().map(line).collect(),
            statuses: choices(statuses, &filter.status),
            user: filter.user.clone(),
            is_filtered: !filter.status.is_empty() || !filter.user.is_empty(),
            next: next.map(href),
            shell,
        }
    }
}
