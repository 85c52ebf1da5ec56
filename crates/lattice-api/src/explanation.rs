//! Why something is not moving, and what would unblock it. design: 8-interfaces "A refusal and an explanation"

use lattice_core::failure::FailureClass;
use lattice_core::time::Timestamp;
use serde::{Deserialize, Serialize};

use crate::error::NextStep;

/// An explanation of one node or job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Explanation {
    /// What it is about.
    pub subject: Subject,
    /// Where it stands, in a few words: `enrolling / unknown`.
    pub state: String,
    /// What surrounds it, for the headline: site, SKU, kind of job.
    pub context: Vec<String>,
    /// Whether nothing is wrong: schedulable, or a job that ended well or moves.
    pub ok: bool,
    /// One sentence: what is the matter.
    pub summary: String,
    /// The facts, most important first.
    pub because: Vec<Reason>,
    /// Class of the failure, when one is behind it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure_class: Option<FailureClass>,
    /// What would unblock it, best first.
    pub next_actions: Vec<NextStep>,
    /// For which moment this was said.
    pub at: Timestamp,
}

/// What an explanation, an event or an incident is about.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Subject {
    /// `node`, `job`, `site` …
    pub kind: String,
    /// Its id.
    pub id: String,
    /// What people call it: a hostname.
    pub name: String,
}

/// One condition that is not met.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Reason {
    /// The condition and its value.
    pub fact: String,
    /// Who must act for it to change: `agent`, `operator`, `job …`, `provider`, `detector`.
    pub owner: String,
    /// Class, when it is a failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<FailureClass>,
    /// Since when it is so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    /// For how long it is so, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub age_ms: Option<u64>,
}
