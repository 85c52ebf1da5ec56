//! The fleet at a glance: counts, and what needs attention.

use lattice_core::ids::{EventSeq, SilenceId};
use lattice_core::job::StageName;
use lattice_core::node::{Availability, Status};
use lattice_core::time::Timestamp;
use serde::{Deserialize, Serialize};

use crate::error::NextStep;
use crate::explanation::Subject;
use crate::silence::{IncidentKind, SilenceView};

/// The fleet at one moment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Fleet {
    /// For which moment.
    pub at: Timestamp,
    /// Everything up to this event is counted.
    #[schema(value_type = u64)]
    pub seq: EventSeq,
    /// Nodes that are not deleted.
    pub nodes: u64,
    /// Nodes that may be given work: active, ready, no hold.
    pub schedulable: u64,
    /// Nodes of each pair of states that occurs.
    pub counts: Vec<FleetCount>,
    /// What needs a person, most urgent first; at most 100.
    pub attention: Vec<Incident>,
    /// What would need a person, were it not silenced; most urgent first, at most 100.
    #[serde(default)]
    pub silenced: Vec<SilencedIncident>,
    /// All silences in force, those that end first before the others.
    #[serde(default)]
    pub silences: Vec<SilenceView>,
}

/// An incident that raises no attention for a while.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct SilencedIncident {
    /// The incident, as it would stand among the others.
    pub incident: Incident,
    /// The silence that hides it: one of the fleet's.
    pub silence: SilenceId,
}

/// How many nodes stand in one pair of states.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct FleetCount {
    /// Inventory status.
    pub status: Status,
    /// Availability.
    pub availability: Availability,
    /// How many.
    pub nodes: u64,
}

/// How urgent an incident is.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, utoipa::ToSchema, strum::Display,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Severity {
    /// It waits, and may mend itself.
    Warning,
    /// Nothing moves until a person acts.
    Critical,
}

/// One thing that needs attention, with its evidence.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Incident {
    /// What it is about: a silence may mean it by that.
    pub kind: IncidentKind,
    /// How urgent.
    pub severity: Severity,
    /// What it is about; several when one cause explains them: then the first 64 of them.
    pub subjects: Vec<Subject>,
    /// How many nodes it is about besides those.
    #[serde(default, skip_serializing_if = "is_none")]
    pub more: u64,
    /// Where they are, when it is about several nodes of one site.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub site: Option<String>,
    /// What is the matter, in one line.
    pub title: String,
    /// A short mark: a failure class, an availability, a hold.
    pub mark: String,
    /// The facts that show it.
    pub evidence: Vec<String>,
    /// Since when.
    pub since: Timestamp,
    /// For how long, in milliseconds.
    pub age_ms: u64,
    /// The one thing to do.
    pub next: NextStep,
}

/// Whether a count needs no mention.
#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
const fn is_none(count: &u64) -> bool {
    *count == 0
}

/// How long a stage has taken, in all jobs that have it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct StageStats {
    /// Which stage.
    pub stage: StageName,
    /// How many runs this is drawn from.
    pub runs: u64,
    /// Half took at most so long, in milliseconds.
    pub p50_ms: u64,
    /// 95 of 100 took at most so long, in milliseconds.
    pub p95_ms: u64,
}

/// All stages that have times.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct StageStatsList {
    /// One row for each stage.
    pub stages: Vec<StageStats>,
}
