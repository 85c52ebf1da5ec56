//! The list of jobs.

use askama::Template;
use lattice_api::job::{JobQuery, JobRow};
use lattice_core::job::{JobKind, JobStatus};
use strum::VariantArray;

use super::fleet::{Choice, choices};
use super::shell::{Shell, given, query};

/// The page.
#[derive(Template)]
#[template(path = "jobs.html", blocks = ["main"])]
pub struct JobsPage {
    shell: Shell,
    jobs: Vec<JobRow>,
    statuses: Vec<Choice>,
    kinds: Vec<Choice>,
    is_filtered: bool,
    next: Option<String>,
}

/// What the list is narrowed to.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(default)]
pub struct JobsFilter {
    /// A status, `failed` or `live`; empty: any.
    pub status: String,
    /// A kind; empty: any.
    pub kind: String,
    /// Where the page begins.
    pub cursor: String,
}

impl JobsFilter {
    /// The same question to the API.
    pub fn query(&self) -> JobQuery {
        JobQuery {
            cursor: given(&self.cursor),
            status: given(&self.status),
            kind: self.kind.parse().ok(),
            ..JobQuery::default()
        }
    }
}

impl JobsPage {
    /// The page of this answer.
    pub fn of(shell: Shell, filter: &JobsFilter, jobs: Vec<JobRow>, next: Option<String>) -> Self {
        let words = ["live", "failed"].into_iter().map(str::to_owned);
        let statuses = words.chain(JobStatus::VARIANTS.iter().map(ToString::to_string));
        let href = |cursor: String| {
            format!("/ui/jobs{}", query(&[("status", &filter.status), ("kind", &filter.kind), ("cursor", &cursor)]))
        };
        Self {
            statuses: choices(statuses, &filter.status),
            kinds: choices(JobKind::VARIANTS, &filter.kind),
            is_filtered: !filter.status.is_empty() || !filter.kind.is_empty(),
            next: next.map(href),
            jobs,
            shell,
        }
    }
}
