//! Status of a job. spec: S2 4.1, 5.1

use serde::{Deserialize, Serialize};

/// Status of a job: what its workflow is doing, never what its node is. spec: S2 4.1, 5.1
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
    /// Accepted, not started.
    Pending,
    /// Its stages are being run, or one of them waits.
    Running,
    /// Every stage succeeded.
    Completed,
    /// Stopped; a safe way to go on exists.
    FailedRetryable,
    /// Stopped; automation must not go on before an operator decided.
    FailedManualIntervention,
    /// Stopped for good by an operator, compensation done.
    Cancelled,
    /// What it did is being undone.
    Compensating,
    /// Had failed, then was found to be where it should be.
    Reconciled,
}

impl JobStatus {
    /// Whether nothing changes the job any more.
    pub const fn is_terminal(self) -> bool {
        match self {
            Self::Completed | Self::Cancelled | Self::Reconciled => true,
            Self::Pending
            | Self::Running
            | Self::FailedRetryable
            | Self::FailedManualIntervention
            | Self::Compensating => false,
        }
    }

    /// Whether it is one of the two failed statuses; the filter alias `?status=failed`.
    pub const fn is_failed(self) -> bool {
        match self {
            Self::FailedRetryable | Self::FailedManualIntervention => true,
            Self::Pending
            | Self::Running
            | Self::Completed
            | Self::Cancelled
            | Self::Compensating
            | Self::Reconciled => false,
        }
    }

    /// Whether it may still change: its node is not free for another job.
    pub const fn is_live(self) -> bool {
        !self.is_terminal()
    }

    /// Whether a driver has something to do for it, now or at its next time.
    pub const fn is_driven(self) -> bool {
        match self {
            Self::Running | Self::Compensating => true,
            Self::Pending
            | Self::Completed
            | Self::FailedRetryable
            | Self::FailedManualIntervention
            | Self::Cancelled
            | Self::Reconciled => false,
        }
    }
}
