//! What an operator may do to a job, and from where. spec: S2 8, S5 4.9

use serde::{Deserialize, Serialize};

use super::stage::StageName;
use super::status::JobStatus;
use crate::ids::OpId;
use crate::time::Timestamp;

/// What an operator asks of a job. spec: S2 8
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
pub enum OperatorAction {
    /// Run the failed stage again: same key, attempts from zero.
    RetryStage,
    /// Continue from the last safe stage.
    Resume,
    /// From the top, in the same epoch: each stage adopts what it observes.
    Rerun,
    /// Undo what was done, then from the top in a new epoch.
    RestartClean,
    /// Stop, and undo as far as the compensation rule says.
    Cancel,
    /// Accept what a fresh observation proves, and go on from there.
    AdoptObservedState,
    /// Freeze until a person decides.
    MarkManualInterventionRequired,
}

/// Whether an action is allowed from a status.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Allowed {
    /// It changes the job.
    Yes,
    /// The job already is where the action leads: success, nothing changes.
    AlreadySo,
    /// Refused.
    No,
}

/// One row: an action and the statuses it is allowed from, or has already happened in.
struct Row {
    action: OperatorAction,
    from: &'static [JobStatus],
    already: &'static [JobStatus],
}

// design: 3-jobs "Operator actions"
const ROWS: [Row; 7] = {
    use JobStatus::{Cancelled, Compensating, FailedManualIntervention, FailedRetryable, Pending, Running};
    const ANY_FAILED: &[JobStatus] = &[FailedRetryable, FailedManualIntervention];
    [
        Row { action: OperatorAction::RetryStage, from: &[FailedRetryable], already: &[] },
        Row {
            action: OperatorAction::Resume,
            from: &[FailedRetryable, FailedManualIntervention, Running],
            already: &[],
        },
        Row { action: OperatorAction::Rerun, from: ANY_FAILED, already: &[] },
        Row { action: OperatorAction::RestartClean, from: ANY_FAILED, already: &[] },
        Row {
            action: OperatorAction::Cancel,
            from: &[Pending, Running, FailedRetryable, FailedManualIntervention],
            already: &[Cancelled, Compensating],
        },
        Row { action: OperatorAction::AdoptObservedState, from: ANY_FAILED, already: &[] },
        Row {
            action: OperatorAction::MarkManualInterventionRequired,
            from: &[Running, FailedRetryable],
            already: &[FailedManualIntervention],
        },
    ]
};

impl OperatorAction {
    /// Whether it is allowed from that status. A job that compensates in order to restart still refuses `cancel`.
    pub fn allowed_from(self, status: JobStatus) -> Allowed {
        let row = self.row();
        if row.from.contains(&status) {
            Allowed::Yes
        } else if row.already.contains(&status) {
            Allowed::AlreadySo
        } else {
            Allowed::No
        }
    }

    /// The statuses from which it changes a job.
    pub fn statuses(self) -> &'static [JobStatus] {
        self.row().from
    }

    /// Its verb on the command line: `lattice job <verb> <id>`.
    pub const fn verb(self) -> &'static str {
        match self {
            Self::RetryStage => "retry-stage",
            Self::Resume => "resume",
            Self::Rerun => "rerun",
            Self::RestartClean => "restart-clean",
            Self::Cancel => "cancel",
            Self::AdoptObservedState => "adopt",
            Self::MarkManualInterventionRequired => "mark-manual-intervention",
        }
    }

    fn row(self) -> &'static Row {
        ROWS.iter().find(|row| row.action == self).expect("every action has a row: a test walks them")
    }
}

/// What kind of decision a stage can be given. spec: design 3-jobs "typed decisions"
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
pub enum DecisionKind {
    /// Which disk to boot from.
    BootDisk,
    /// Which of the discovered machines it is.
    Machine,
    /// That a machine whose OS runs may be released, and its disks lost.
    ReleaseDeployed,
    /// That the OS of a host that nobody can ask is gone.
    OsGone,
}

impl DecisionKind {
    /// Its flag on the command line, with the choice; a placeholder where nothing can be chosen yet.
    pub fn flag(self, choice: Option<&str>) -> String {
        match self {
            Self::BootDisk => format!("--boot-disk {}", choice.unwrap_or("<disk>")),
            Self::Machine => format!("--machine {}", choice.unwrap_or("<system_id>")),
            Self::ReleaseDeployed => "--release-deployed".to_owned(),
            Self::OsGone => "--os-gone".to_owned(),
        }
    }
}

/// Decisions of an operator: kept in the job, read by the stage that declared them. Audited with their action.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Decisions {
    /// Disk to boot from, by its name in the provider.
    pub boot_disk: Option<String>,
    /// The discovered machine, by its id in the provider.
    pub machine: Option<String>,
    /// A machine whose OS runs may be released.
    pub release_deployed: bool,
    /// The OS of the host is gone, as an operator saw for himself.
    pub os_gone: bool,
}

impl Decisions {
    /// Which kinds are given.
    pub fn kinds(&self) -> Vec<DecisionKind> {
        let given = [
            (self.boot_disk.is_some(), DecisionKind::BootDisk),
            (self.machine.is_some(), DecisionKind::Machine),
            (self.release_deployed, DecisionKind::ReleaseDeployed),
            (self.os_gone, DecisionKind::OsGone),
        ];
        given.into_iter().filter(|(is_given, _)| *is_given).map(|(_, kind)| kind).collect()
    }

    /// These, with what `later` decides on top.
    #[must_use]
    pub fn updated(&self, later: &Self) -> Self {
        Self {
            boot_disk: later.boot_disk.clone().or_else(|| self.boot_disk.clone()),
            machine: later.machine.clone().or_else(|| self.machine.clone()),
            release_deployed: self.release_deployed || later.release_deployed,
            os_gone: self.os_gone || later.os_gone,
        }
    }
}

/// A fresh observation: the effect of that stage, and of all before it, is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Proof {
    /// The last stage whose effect was seen.
    pub proves: StageName,
    /// When the provider or the agent was asked.
    pub at: Timestamp,
}

/// One request of an operator. That its role allows it is checked before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Op {
    /// The second request with the same id changes nothing.
    pub request_id: OpId,
    /// What is asked.
    pub action: OperatorAction,
    /// For `adopt_observed_state`.
    pub observed: Option<Proof>,
    /// What the operator decided with it.
    pub decisions: Decisions,
    /// Until when a driver may still be acting for this job: the end of its lease, if one stands. What the
    /// action starts, starts after it.
    pub lease_until: Option<Timestamp>,
}
