//! Why a command was refused.

use crate::agent::task::{NoEvidence, TaskStatus};
use crate::allocation::{AllocationEvent, AllocationStatus};
use crate::batch::BatchStatus;
use crate::explain::{Code, Explain, NextAction};
use crate::ids::{AllocationId, BatchId, JobId, TaskId};
use crate::job::{JobKind, JobStatus};
use crate::node::machine;
use crate::node::{HoldKind, NodeState};

/// A command that does nothing, and why.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// The node's state machine has no such edge, or its condition is not met.
    #[error(transparent)]
    State(#[from] machine::Refused),
    /// Another job is responsible for the node.
    #[error("{hostname} belongs to a {kind} job that is {status}")]
    Busy {
        /// Which node.
        hostname: String,
        /// The job.
        job: JobId,
        /// What it is for.
        kind: JobKind,
        /// Where it stands.
        status: JobStatus,
    },
    /// A sensitive node whose fingerprint is not approved.
    #[error("{hostname} is sensitive and deviates from the fingerprints that are approved at {site}")]
    Deviates {
        /// Which node.
        hostname: String,
        /// Its site's name.
        site: String,
    },
    /// The batch is over, or was cancelled: nothing more can be asked of it.
    #[error("batch {batch} is {status}: it cannot be asked to {asked}")]
    BatchOver {
        /// Which batch.
        batch: BatchId,
        /// Where it stands.
        status: BatchStatus,
        /// What was asked.
        asked: super::batch::BatchAction,
    },
    /// The task is over, or its agent has it already.
    #[error("task {task} is {status}")]
    TaskOver {
        /// Which task.
        task: TaskId,
        /// Where it stands.
        status: TaskStatus,
    },
    /// The allocation stands where that does nothing.
    #[error("allocation {allocation} is {status}: it cannot be asked to {asked}")]
    AllocationOver {
        /// Which allocation.
        allocation: AllocationId,
        /// Where it stands.
        status: AllocationStatus,
        /// What was asked.
        asked: AllocationEvent,
    },
    /// A wipe was reported as done, and nothing proves it.
    #[error("the wipe of task {task} is not proven: {why}")]
    NoEvidence {
        /// Which task.
        task: TaskId,
        /// What is missing.
        why: NoEvidence,
    },
    /// No sensitive work ended on it since it was wiped.
    #[error("{hostname} needs no wipe")]
    NothingToWipe {
        /// Which node.
        hostname: String,
    },
    /// The last wipe failed: somebody must have looked why.
    #[error("the last wipe of {hostname} failed: it is begun anew only when it is forced")]
    WipeNeedsForce {
        /// Which node.
        hostname: String,
    },
    /// Nobody is there who could wipe it.
    #[error("{hostname} is {state}: its agent cannot be reached, so nothing there can be wiped")]
    CannotWipe {
        /// Which node.
        hostname: String,
        /// Where it stands.
        state: NodeState,
    },
    /// Nobody can be asked out of band.
    #[error("{hostname} has no BMC")]
    NoBmc {
        /// Which node.
        hostname: String,
    },
    /// It may have work, or its OS is needed.
    #[error("{hostname} is {state} with {allocations} allocations: its drives are not erased")]
    NotIdle {
        /// Which node.
        hostname: String,
        /// Where it stands.
        state: NodeState,
        /// What is placed there or still runs.
        allocations: u32,
    },
    /// There is nothing to resume.
    #[error("{hostname} is {state}: no lifecycle job of it is in progress")]
    NothingToResume {
        /// Which node.
        hostname: String,
        /// Where it stands.
        state: NodeState,
    },
    /// The site takes no new work.
    #[error("site {site} is disabled")]
    SiteDisabled {
        /// Its name.
        site: String,
    },
    /// The profile takes no new work.
    #[error("profile {profile} of site {site} is disabled")]
    ProfileDisabled {
        /// The site's name.
        site: String,
        /// The profile's.
        profile: String,
    },
    /// The site is of another kind than the request needs.
    #[error("site {site} is a {kind} site: this needs a {needed} site")]
    WrongSiteKind {
        /// Its name.
        site: String,
        /// What it is.
        kind: &'static str,
        /// What is needed.
        needed: &'static str,
    },
    /// A text is not acceptable.
    #[error("`{field}` {problem}")]
    Invalid {
        /// Name of the field.
        field: &'static str,
        /// What is wrong with it, and what would be right.
        problem: String,
    },
    /// A provider's onboarding brings the host its token, or the node is being removed.
    #[error("{hostname} is {state}: it takes no bootstrap command")]
    NotBootstrapping {
        /// Which node.
        hostname: String,
        /// Where it stands.
        state: NodeState,
    },
    /// The hold belongs to the code that set it.
    #[error("hold `{kind}` on {hostname} is not set or cleared by hand")]
    HoldNotManual {
        /// Which node.
        hostname: String,
        /// Which hold.
        kind: HoldKind,
    },
    /// There is no such hold.
    #[error("{hostname} has no hold `{kind}`")]
    NoSuchHold {
        /// Which node.
        hostname: String,
        /// Which hold.
        kind: HoldKind,
    },
}

impl Explain for Refused {
    fn code(&self) -> Code {
        match self {
            Self::State(refused) => refused.code(),
            Self::Busy { .. } => Code::NodeBusy,
            Self::Deviates { .. } => Code::NodeState,
            Self::BatchOver { .. } => Code::BatchOver,
            Self::TaskOver { .. } => Code::TaskOver,
            Self::AllocationOver { .. } => Code::AllocationOver,
            Self::NoEvidence { .. } => Code::NoEvidence,
            Self::NothingToResume { .. }
            | Self::NotBootstrapping { .. }
            | Self::NothingToWipe { .. }
            | Self::NoBmc { .. }
            | Self::NotIdle { .. }
            | Self::CannotWipe { .. } => Code::NodeState,
            Self::WipeNeedsForce { .. } => Code::ConfirmationNeeded,
            Self::SiteDisabled { .. } | Self::ProfileDisabled { .. } => Code::SiteDisabled,
            Self::WrongSiteKind { .. } | Self::Invalid { .. } => Code::Invalid,
            Self::HoldNotManual { .. } | Self::NoSuchHold { .. } => Code::NodeHeld,
        }
    }

    fn because(&self) -> Vec<String> {
        match self {
            Self::State(refused) => refused.because(),
            Self::Busy { job, .. } => vec![format!("job {job} owns it until it ends or is cancelled")],
            Self::Deviates { .. } => vec!["it would be drained again at once".to_owned()],
            Self::BatchOver { status, .. } => {
                vec![format!("a batch that is {status} starts nothing more; what it did stays as it is")]
            }
            Self::TaskOver { .. } => vec!["a task ends once; one that its agent has cannot be taken back".to_owned()],
            Self::AllocationOver { status, .. } => vec![match status.is_over() {
                true => "what is over stays over; one that failed may be queued again".to_owned(),
                false => "it is under way".to_owned(),
            }],
            Self::NoEvidence { .. } => {
                vec!["a wipe that is reported as done without evidence for each device is not a wipe".to_owned()]
            }
            Self::NothingToWipe { .. } => {
                vec!["a node is wiped when sensitive work on it ends; a wipe destroys what is on its drives".to_owned()]
            }
            Self::WipeNeedsForce { .. } => {
                vec![
                    "it stays quarantined until a wipe is confirmed, so that nobody gets what is left on it".to_owned(),
                ]
            }
            Self::NoBmc { .. } => vec!["only its BMC can be told that, and none is set".to_owned()],
            Self::NotIdle { .. } => vec![
                "drives are erased while their node is drained, down or failed, and in or out of the fleet for good"
                    .to_owned(),
            ],
            Self::CannotWipe { .. } => vec!["the agent on the host does the wipe, by signed tasks".to_owned()],
            Self::NothingToResume { .. } => {
                vec!["only draining and removing nodes, and failed jobs, resume".to_owned()]
            }
            Self::NotBootstrapping { .. } => {
                vec![
                    "a provider's onboarding brings its hosts their token itself, and a node that leaves gets none"
                        .to_owned(),
                ]
            }
            Self::SiteDisabled { .. } => vec!["a disabled site accepts no new onboarding".to_owned()],
            Self::ProfileDisabled { .. } => vec!["a disabled profile accepts no new onboarding".to_owned()],
            Self::WrongSiteKind { .. } | Self::Invalid { .. } => Vec::new(),
            Self::HoldNotManual { kind, .. } => match kind {
                HoldKind::Disabled => vec!["`disable` sets it, `enable` clears it".to_owned()],
                HoldKind::WipeRequired | HoldKind::WipeFailed => {
                    vec!["only a committed wipe confirmation clears it".to_owned()]
                }
                HoldKind::Maintenance
                | HoldKind::ConformanceDrift
                | HoldKind::AgentUpgrade
                | HoldKind::Rollout
                | HoldKind::Drift => vec!["it belongs to the job that set it".to_owned()],
            },
            Self::NoSuchHold { .. } => Vec::new(),
        }
    }

    fn next_actions(&self) -> Vec<NextAction> {
        match self {
            Self::State(refused) => refused.next_actions(),
            Self::Busy { job, .. } => vec![
                NextAction::run(format!("lattice explain job {job}"), "says what that job waits for"),
                NextAction::run(format!("lattice job cancel {job}"), "stops it and undoes what can be undone"),
                NextAction::run(
                    format!("lattice job mark-manual-intervention {job}"),
                    "freezes it until a person decides",
                ),
            ],
            Self::Deviates { hostname, site } => vec![
                NextAction::run(format!("lattice node get {hostname}"), "shows its fingerprint"),
                NextAction::run(
                    format!("lattice site conformance approve {site} --node {hostname}"),
                    "approves the fingerprint that it has, for its SKU at its site",
                ),
            ],
            Self::BatchOver { batch, .. } => {
                vec![NextAction::run(
                    format!("lattice onboarding batch show {batch}"),
                    "shows its machines, and what may be asked of each",
                )]
            }
            Self::TaskOver { task, .. } | Self::NoEvidence { task, .. } => {
                vec![NextAction::run(format!("lattice node task {task}"), "shows what its agent said")]
            }
            Self::AllocationOver { allocation, .. } => {
                vec![NextAction::run(format!("lattice explain allocation {allocation}"), "says where it stands")]
            }
            Self::NothingToWipe { hostname } => vec![wipe(hostname, "wipes it nevertheless, once nothing runs on it")],
            Self::WipeNeedsForce { hostname } => vec![
                NextAction::run(format!("lattice explain node {hostname}"), "says which step failed, and why"),
                wipe(hostname, "begins anew"),
                NextAction::run(format!("lattice node disable {hostname} --yes"), "gives up on it"),
            ],
            Self::NoBmc { hostname } => vec![NextAction::run(
                format!("lattice node bmc set {hostname} --address ADDRESS --protocol redfish --from-stdin"),
                "gives it one",
            )],
            Self::NotIdle { hostname, .. } => vec![
                NextAction::run(format!("lattice node drain {hostname}"), "empties it"),
                NextAction::run(format!("lattice explain node {hostname}"), "says where it stands"),
            ],
            Self::CannotWipe { hostname, .. }
            | Self::NothingToResume { hostname, .. }
            | Self::NotBootstrapping { hostname, .. }
            | Self::NoSuchHold { hostname, .. } => {
                vec![NextAction::run(format!("lattice explain node {hostname}"), "says where it stands")]
            }
            Self::SiteDisabled { site } => {
                vec![NextAction::run(format!("lattice site enable {site}"), "lets new work start there")]
            }
            Self::ProfileDisabled { site, profile } => vec![
                NextAction::run(format!("lattice site profile enable {site} {profile}"), "lets new work use it"),
                NextAction::run(format!("lattice site profile list {site}"), "shows the others"),
            ],
            Self::WrongSiteKind { .. } => vec![NextAction::run("lattice site list", "shows the sites and their kinds")],
            Self::Invalid { field, problem } => {
                vec![NextAction::Fix { what: format!("give another `{field}`: it {problem}") }]
            }
            Self::HoldNotManual { hostname, kind } => vec![of_hold(hostname, *kind)],
        }
    }
}

/// Who sets and clears a hold that no operator does.
fn of_hold(hostname: &str, kind: HoldKind) -> NextAction {
    match kind {
        HoldKind::Disabled => NextAction::run(format!("lattice node enable {hostname}"), "clears the hold `disabled`"),
        HoldKind::Maintenance
        | HoldKind::ConformanceDrift
        | HoldKind::AgentUpgrade
        | HoldKind::Rollout
        | HoldKind::Drift
        | HoldKind::WipeRequired
        | HoldKind::WipeFailed => NextAction::run(format!("lattice explain node {hostname}"), "says who owns the hold"),
    }
}

fn wipe(hostname: &str, effect: &str) -> NextAction {
    NextAction::run(format!("lattice admin node wipe {hostname} --force"), effect)
}
