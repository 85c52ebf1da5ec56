//! Jobs: durable work of the control plane, with its stages, attempts, failure and what may be done.

use lattice_core::actor::Actor;
use lattice_core::failure::FailureClass;
use lattice_core::ids::{BatchId, CorrelationId, Generation, JobId, NodeId, SiteId};
use lattice_core::job::{
    Decisions, JobInput, JobKind, JobLease, JobOutputs, JobStatus, Observed, StageEventStatus, StageName, Wait, Warning,
};
use lattice_core::time::Timestamp;
use serde::{Deserialize, Serialize};

use crate::error::NextStep;

/// What an operator asks of a job; `verb()` is its word on the command line and in paths.
pub use lattice_core::job::OperatorAction as JobAction;

/// Last path segment of an action under `/onboardings/{id}`. spec: S5 4.15
pub const fn onboarding_segment(action: JobAction) -> &'static str {
    match action {
        JobAction::RetryStage => "retry",
        JobAction::Resume
        | JobAction::Rerun
        | JobAction::RestartClean
        | JobAction::Cancel
        | JobAction::AdoptObservedState
        | JobAction::MarkManualInterventionRequired => action.verb(),
    }
}

/// An operator action on a job.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ActOnJob {
    /// Why.
    #[serde(default)]
    pub reason: String,
    /// Decisions that the failed stage asked for: `{"boot_disk": "nvme0n1"}`.
    #[serde(default)]
    pub decisions: Decisions,
    /// The stage that a fresh observation proves to be done; only for `adopt`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proves: Option<StageName>,
}

/// What an operator action came to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct JobActionAnswer {
    /// Whether something changed; false: the job already was where the action leads.
    pub changed: bool,
    /// The job after it.
    pub job: JobView,
}

/// A job in a list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct JobRow {
    /// Identity; also the id of the onboarding that it is.
    pub id: JobId,
    /// What it is for.
    pub kind: JobKind,
    /// On which node.
    pub node_id: NodeId,
    /// The node's name.
    pub hostname: String,
    /// At which site.
    pub site_id: SiteId,
    /// Part of which batch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batch_id: Option<BatchId>,
    /// Where it stands.
    pub status: JobStatus,
    /// At which stage.
    pub stage: StageName,
    /// Attempts of that stage that ended with an error or a timeout.
    pub attempt: u32,
    /// Class of its failure, when it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure_class: Option<FailureClass>,
    /// What failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error_code: Option<String>,
    /// When it was asked for.
    pub created_at: Timestamp,
    /// When its row changed last.
    pub updated_at: Timestamp,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<Timestamp>,
    /// Version of the row: `If-Match`.
    pub generation: Generation,
}

/// A job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct JobView {
    /// What a list shows of it.
    #[serde(flatten)]
    pub row: JobRow,
    /// What it was asked.
    pub input: JobInput,
    /// Pass over the flow's back edge, from 0.
    pub round: u32,
    /// Grows with each clean restart.
    pub epoch: u32,
    /// When it moves next by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_at: Option<Timestamp>,
    /// What it waits for, and until when it looks again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait: Option<Wait>,
    /// When the time of its stage ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Timestamp>,
    /// When the time of all of it ends: of a wipe, once it began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit_at: Option<Timestamp>,
    /// Why it stopped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<FailureView>,
    /// What its stages found out.
    pub outputs: JobOutputs,
    /// What operators decided.
    pub decisions: Decisions,
    /// Failures that did not stop it.
    pub warnings: Vec<Warning>,
    /// What the provider was last seen to say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed: Option<Observed>,
    /// Who runs it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease: Option<JobLease>,
    /// Who asked for it.
    pub requested_by: Actor,
    /// Why.
    pub reason: String,
    /// Ties together all it caused.
    #[schema(value_type = String)]
    pub correlation_id: CorrelationId,
    /// When it was started first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Timestamp>,
    /// Its stages in order, with what became of them and how long they usually take.
    pub stages: Vec<StageView>,
    /// What may be asked of it now.
    pub actions: Vec<JobAction>,
    /// What happened in its stages, oldest first; at most 200, the newest.
    pub events: Vec<StageEventView>,
}

/// Why a job stopped. spec: S5 4.7, 4.12
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct FailureView {
    /// Which stage failed.
    pub stage: StageName,
    /// Class of the failure.
    pub class: FailureClass,
    /// What failed: `boot_disk_not_found`.
    pub error_code: String,
    /// For people.
    pub message: String,
    /// When.
    pub at: Timestamp,
    /// What to do.
    pub next_actions: Vec<NextStep>,
}

/// Where a stage of a job stands.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, utoipa::ToSchema, strum::Display,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum StageProgress {
    /// Not reached.
    Pending,
    /// Being run, or waiting.
    Running,
    /// Done.
    Succeeded,
    /// It had nothing to do.
    Skipped,
    /// It failed.
    Failed,
    /// It was undone.
    Compensated,
}

/// One stage of a job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct StageView {
    /// Which.
    pub stage: StageName,
    /// Where it stands.
    pub progress: StageProgress,
    /// How often it was tried.
    pub attempts: u32,
    /// When it was begun first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Timestamp>,
    /// How long it took, or has taken so far, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub took_ms: Option<u64>,
    /// How long it usually takes (half of all runs), in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usual_ms: Option<u64>,
    /// What it said last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// What happened in a stage. spec: S5 4.2.1
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct StageEventView {
    /// When.
    pub at: Timestamp,
    /// Which stage.
    pub stage: StageName,
    /// Which attempt, from 1.
    pub attempt: u32,
    /// Which round, from 0.
    pub round: u32,
    /// What happened.
    pub status: StageEventStatus,
    /// For people.
    pub message: String,
}

/// Which jobs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
pub struct JobQuery {
    /// `next` of the page before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
    /// At most so many rows, 1 to 1000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
    /// Only jobs in this status; `failed` means both failed ones, `live` all that are not finished.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<String>,
    /// Only jobs of this kind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<JobKind>,
    /// Only jobs on this node, by its id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_id: Option<NodeId>,
    /// Only jobs at this site, by its id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub site_id: Option<SiteId>,
    /// Only jobs of this batch, by its id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batch_id: Option<BatchId>,
    /// Only jobs at this stage.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stage: Option<StageName>,
    /// Only jobs whose failure is of this class.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure_class: Option<FailureClass>,
    /// Only jobs of hosts whose names begin so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hostname_prefix: Option<String>,
}
