//! Why an operator's action was refused: what, because, next.

use super::operator_action::{DecisionKind, OperatorAction};
use super::retry::command;
use super::stage::StageName;
use super::status::JobStatus;
use crate::explain::{Code, Explain, NextAction};
use crate::ids::JobId;
use crate::time::Timestamp;

/// An operator's action that was refused. Nothing changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// The job's status does not allow it.
    #[error("job {job} does not take `{action}` while it is {status}")]
    Status {
        /// Which job.
        job: JobId,
        /// What was asked.
        action: OperatorAction,
        /// Its status.
        status: JobStatus,
    },
    /// Its compensation began: there is no way forward any more.
    #[error("job {job} does not take `{action}`: its compensation began")]
    CompensationBegan {
        /// Which job.
        job: JobId,
        /// What was asked.
        action: OperatorAction,
        /// Stage whose undo failed.
        stage: StageName,
    },
    /// The stage does not take that decision.
    #[error("stage `{stage}` of job {job} takes no decision `{decision}`")]
    DecisionUnknown {
        /// Which job.
        job: JobId,
        /// Where it stands.
        stage: StageName,
        /// What was given.
        decision: DecisionKind,
    },
    /// The machine's OS runs; releasing it needs to be said.
    #[error("job {job} cannot restart cleanly: its machine is deployed, and is not released unasked")]
    ReleaseNotDecided {
        /// Which job.
        job: JobId,
        /// Furthest stage that it entered.
        highest: StageName,
    },
    /// No fresh observation that proves more than the job knows.
    #[error("job {job} cannot adopt: {why}")]
    NothingObserved {
        /// Which job.
        job: JobId,
        /// What is missing.
        why: NotProven,
    },
}

/// What an observation lacks.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotProven {
    /// None was attached.
    #[error("no observation proves a stage")]
    Absent,
    /// Too old.
    #[error("the observation of {at} is too old")]
    Old {
        /// When it was made.
        at: Timestamp,
    },
    /// It proves less than what is done.
    #[error("the observation proves `{proves}`, which was done before `{stage}`")]
    Behind {
        /// What it proves.
        proves: StageName,
        /// Where the job stands.
        stage: StageName,
    },
}

impl Explain for Refused {
    fn code(&self) -> Code {
        match self {
            Self::Status { .. } | Self::CompensationBegan { .. } => Code::JobNotResumable,
            Self::DecisionUnknown { .. } => Code::Invalid,
            Self::ReleaseNotDecided { .. } => Code::DecisionNeeded,
            Self::NothingObserved { .. } => Code::NothingObserved,
        }
    }

    fn because(&self) -> Vec<String> {
        match self {
            Self::Status { action, status, .. } => {
                let from: Vec<_> = action.statuses().iter().map(ToString::to_string).collect();
                vec![format!("`{action}` is allowed from {}; the job is {status}", from.join(", "))]
            }
            Self::CompensationBegan { stage, .. } => {
                vec![format!("undoing `{stage}` failed; it must be finished first")]
            }
            Self::DecisionUnknown { stage, decision, .. } => {
                vec![format!("the job stands at `{stage}`, which does not ask for `{decision}`")]
            }
            Self::ReleaseNotDecided { highest, .. } => {
                vec![format!("it reached `{highest}`: an operating system runs, and a release destroys it")]
            }
            Self::NothingObserved { why, .. } => vec![why.to_string()],
        }
    }

    fn next_actions(&self) -> Vec<NextAction> {
        match self {
            Self::Status { job, status, .. } => after_status(*job, *status),
            Self::CompensationBegan { job, .. } => {
                vec![NextAction::run(command(OperatorAction::Cancel, *job), "finish undoing, then stop")]
            }
            Self::DecisionUnknown { job, .. } => {
                vec![NextAction::run(command(OperatorAction::Resume, *job), "continue without the decision")]
            }
            Self::ReleaseNotDecided { job, .. } => vec![
                NextAction::run(
                    command(OperatorAction::Resume, *job),
                    "keep the OS, continue from the last safe stage",
                ),
                NextAction::run(
                    format!(
                        "{} {}",
                        command(OperatorAction::RestartClean, *job),
                        DecisionKind::ReleaseDeployed.flag(None)
                    ),
                    "release the machine, its OS and data are lost, and begin again",
                ),
            ],
            Self::NothingObserved { job, .. } => {
                vec![NextAction::run(command(OperatorAction::Resume, *job), "continue from the last safe stage")]
            }
        }
    }
}

fn after_status(job: JobId, status: JobStatus) -> Vec<NextAction> {
    let show = |effect: &str| vec![NextAction::run(format!("lattice job get {job} --watch"), effect)];
    match status {
        JobStatus::Pending => show("it starts by itself; watch it"),
        JobStatus::Running => show("it runs; watch it"),
        JobStatus::Compensating => show("it is being undone; watch it"),
        JobStatus::Completed | JobStatus::Cancelled | JobStatus::Reconciled => show("it is over; look at its history"),
        JobStatus::FailedRetryable | JobStatus::FailedManualIntervention => {
            vec![NextAction::run(command(OperatorAction::Resume, job), "continue from the last safe stage")]
        }
    }
}
