//! What a failure class means: try again, stop, or ask; and what to do then. spec: S5 4.7

use super::flow::Flow;
use super::operator_action::{DecisionKind, OperatorAction};
use super::stage::StageName;
use super::state::{Failure, JobState, StageError};
use crate::explain::NextAction;
use crate::failure::FailureClass;
use crate::ids::JobId;

/// Where a job stops.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// `failed_retryable`.
    Retryable,
    /// `failed_manual_intervention`.
    Manual,
}

/// What a failure class leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Disposition {
    /// Try again as often as the stage says, then stop.
    Retry {
        /// Where, when the attempts are used up.
        then: Stop,
    },
    /// Stop; trying the same again does not help by itself, but a safe way on exists.
    FailRetryable,
    /// Stop; a person must decide.
    Manual,
}

impl Disposition {
    /// Where a job stops when nothing is tried again any more.
    pub const fn stop(self) -> Stop {
        match self {
            Self::Retry { then } => then,
            Self::FailRetryable => Stop::Retryable,
            Self::Manual => Stop::Manual,
        }
    }
}

/// What a failure of that class leads to. spec: S5 4.7
pub const fn disposition(class: FailureClass) -> Disposition {
    match class {
        FailureClass::InputConfigError | FailureClass::SiteCapabilityMissing => Disposition::FailRetryable,
        FailureClass::UpstreamTransient => Disposition::Retry { then: Stop::Retryable },
        // Its bounded recovery is the flow's way back, taken only for the code that the flow names.
        FailureClass::DeployCloudInitFailure => Disposition::FailRetryable,
        FailureClass::BmcPowerFailure
        | FailureClass::PxeDiscoveryFailure
        | FailureClass::PostDeployConnectivityFailure
        | FailureClass::HardwareSyncFailure
        | FailureClass::AgentEnrollmentFailure => Disposition::Retry { then: Stop::Manual },
        FailureClass::HardwareMismatch | FailureClass::StateAmbiguity => Disposition::Manual,
    }
}

/// What an operator should do about a failure at that stage, as a command that recovers the job as it is printed.
///
/// The action is allowed from the status that [`disposition`] leads to, whatever the stage makes of it.
pub fn recommended_next_action(flow: &Flow, job: &JobState, stage: StageName, error: &StageError) -> NextAction {
    let (action, effect) = match error.recovery {
        Some(action) => (action, effect_of(action, stage)),
        None => by_class(flow, error, stage),
    };
    let mut command = command(action, job.id);
    if action == OperatorAction::RestartClean && flow.keeps_effects(job.highest_stage) {
        command = format!("{command} {}", DecisionKind::ReleaseDeployed.flag(None));
    }
    if error.recovery.is_none() {
        command = with_decision(command, flow, error.class, stage, &error.choices);
    }
    NextAction::Run { command, effect }
}

fn effect_of(action: OperatorAction, stage: StageName) -> String {
    match action {
        OperatorAction::RetryStage => format!("run {stage} again"),
        OperatorAction::Resume => format!("once that is put right: continue at {stage}"),
        OperatorAction::Rerun => "once that is put right: from the top, adopting what is there".to_owned(),
        OperatorAction::RestartClean => "undo what is left of it, and begin anew, with a machine found anew".to_owned(),
        OperatorAction::Cancel => "stop, and undo what can be undone".to_owned(),
        OperatorAction::AdoptObservedState => "look again, and go on from what is proven".to_owned(),
        OperatorAction::MarkManualInterventionRequired => "freeze it".to_owned(),
    }
}

fn by_class(flow: &Flow, error: &StageError, stage: StageName) -> (OperatorAction, String) {
    let offers = !decisions(flow, stage).is_empty() && !error.choices.is_empty();
    match error.class {
        FailureClass::InputConfigError => {
            (OperatorAction::Rerun, "once the input is put right: from the top, adopting what is there".to_owned())
        }
        FailureClass::SiteCapabilityMissing => {
            (OperatorAction::Resume, format!("once the site has the capability: continue at {stage}"))
        }
        FailureClass::UpstreamTransient => (OperatorAction::Resume, format!("continue at {stage}")),
        FailureClass::BmcPowerFailure => (OperatorAction::Resume, format!("once the BMC answers: continue at {stage}")),
        FailureClass::PxeDiscoveryFailure => {
            (OperatorAction::Resume, "once the machine boots by PXE: continue from the last safe stage".to_owned())
        }
        FailureClass::HardwareMismatch if !offers => (OperatorAction::Resume, put_right()),
        FailureClass::HardwareMismatch => (OperatorAction::Resume, format!("go on with this choice at {stage}")),
        FailureClass::DeployCloudInitFailure => {
            (OperatorAction::Resume, "release the machine and deploy it once more".to_owned())
        }
        FailureClass::PostDeployConnectivityFailure => {
            (OperatorAction::Resume, format!("once the host can be reached: continue at {stage}"))
        }
        FailureClass::HardwareSyncFailure => (OperatorAction::Resume, "seed the hardware sync again".to_owned()),
        FailureClass::AgentEnrollmentFailure => {
            (OperatorAction::Resume, "wait again with a fresh enrolment token".to_owned())
        }
        FailureClass::StateAmbiguity if !offers => {
            (OperatorAction::Resume, "once it is put right in the provider: look again, and go on".to_owned())
        }
        FailureClass::StateAmbiguity => (OperatorAction::Resume, "go on with this choice".to_owned()),
    }
}

fn put_right() -> String {
    "once the hardware is put right: it is looked at again, and goes on".to_owned()
}

/// What helps besides the next action of a failure: a choice is not the only way out of missing hardware.
pub fn other_way(job: JobId, failure: &Failure) -> Option<NextAction> {
    let plain = command(OperatorAction::Resume, job);
    let asks =
        matches!(&failure.next_action, NextAction::Run { command, .. } if command.starts_with(&format!("{plain} --")));
    (asks && failure.class == FailureClass::HardwareMismatch).then(|| NextAction::run(plain, put_right()))
}

/// The command line of an action.
pub fn command(action: OperatorAction, job: JobId) -> String {
    format!("lattice job {} {job}", action.verb())
}

fn with_decision(command: String, flow: &Flow, class: FailureClass, stage: StageName, choices: &[String]) -> String {
    let asks = match class {
        FailureClass::HardwareMismatch | FailureClass::StateAmbiguity => decisions(flow, stage),
        FailureClass::InputConfigError
        | FailureClass::SiteCapabilityMissing
        | FailureClass::UpstreamTransient
        | FailureClass::BmcPowerFailure
        | FailureClass::PxeDiscoveryFailure
        | FailureClass::DeployCloudInitFailure
        | FailureClass::PostDeployConnectivityFailure
        | FailureClass::HardwareSyncFailure
        | FailureClass::AgentEnrollmentFailure => &[],
    };
    // Without a choice to offer, the command looks again: it runs as printed.
    match (asks.first(), choices.first()) {
        (Some(decision), Some(choice)) => format!("{command} {}", decision.flag(Some(choice))),
        (Some(_) | None, Some(_) | None) => command,
    }
}

fn decisions(flow: &Flow, stage: StageName) -> &'static [DecisionKind] {
    flow.stage(stage).map_or(&[], |stage| stage.decisions)
}
