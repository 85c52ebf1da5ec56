//! Durable work of the control plane: its row here, its engine beside it.

pub mod row;

pub use row::{
    BootDisk, Disposal, Job, JobInput, JobKind, JobLease, JobOutputs, Observed, StageEvent, StageEventStatus,
};

use serde::{Deserialize, Serialize};

use crate::explain::NextAction;
use crate::failure::FailureClass;
use crate::time::Timestamp;

/// Provisional: the engine brings the full list.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    utoipa::ToSchema,
    strum::Display,
    strum::EnumString,
    strum::IntoStaticStr,
    strum::VariantArray,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum StageName {
    LoadSiteConfig,
    WaitForAgentEnrollment,
}

/// Status of a job. spec: S2 4.1
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    utoipa::ToSchema,
    strum::Display,
    strum::EnumString,
    strum::IntoStaticStr,
    strum::VariantArray,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum JobStatus {
    Pending,
    Running,
    Completed,
    FailedRetryable,
    FailedManualIntervention,
    Cancelled,
    Compensating,
    Reconciled,
}

/// Provisional.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    pub class: FailureClass,
    pub error_code: String,
    pub message: String,
    pub at: Timestamp,
    pub next_action: NextAction,
}

/// Provisional.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobState {
    pub status: JobStatus,
    pub stage: StageName,
    pub attempt: u32,
    pub round: u32,
    pub epoch: u32,
    pub fence: u64,
    pub next_at: Option<Timestamp>,
    pub failure: Option<Failure>,
}
