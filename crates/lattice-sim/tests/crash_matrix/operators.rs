//! Each failed onboarding, taken up by each action that an operator may take, with the cause healed before.

use std::time::Duration;

use lattice_core::command::job::Asked;
use lattice_core::explain::NextAction;
use lattice_core::failure::FailureClass;
use lattice_core::job::{Allowed, Decisions, Job, JobStatus, OperatorAction, Proof, StageName};
use lattice_sim::maas::faults::{MachineFault, SiteFault};
use strum::VariantArray;

use crate::checks;
use crate::life::Death;
use crate::spread;
use crate::world::{Kind, World};

/// Time enough for an agent that may come.
const AGENT_COMES: Duration = Duration::from_secs(60);

/// What keeps an onboarding from its end.
#[derive(Debug, Clone, Copy)]
enum Cause {
    Machine(MachineFault),
    Site(&'static str, SiteFault),
    NoAgent,
}

/// How an onboarding fails.
struct Failing {
    kind: Kind,
    cause: Cause,
    class: FailureClass,
    stage: StageName,
    /// Actions that lead to a stop again though the cause is healed: what it left behind must be put right first.
    stops_again: &'static [OperatorAction],
}

const fn machine(cause: MachineFault, class: FailureClass, stage: StageName) -> Failing {
    Failing { kind: Kind::Maas, cause: Cause::Machine(cause), class, stage, stops_again: &[] }
}

const fn no_agent(kind: Kind, stops_again: &'static [OperatorAction]) -> Failing {
    let (class, stage) = (FailureClass::AgentEnrollmentFailure, StageName::WaitForAgentEnrollment);
    Failing { kind, cause: Cause::NoAgent, class, stage, stops_again }
}

const FAILING: [Failing; 21] = {
    use FailureClass::{
        AgentEnrollmentFailure, BmcPowerFailure, DeployCloudInitFailure, HardwareMismatch, HardwareSyncFailure,
        PostDeployConnectivityFailure, PxeDiscoveryFailure, StateAmbiguity, UpstreamTransient,
    };
    use OperatorAction::{Rerun, RestartClean, Resume, RetryStage};
    /// The failed deployment is still there, and is adopted with its failure.
    const ADOPTED: &[OperatorAction] = &[Rerun, RetryStage];
    [
        machine(MachineFault::CommissioningFailure, PxeDiscoveryFailure, StageName::WaitForReady),
        machine(MachineFault::CommissioningHangs, PxeDiscoveryFailure, StageName::WaitForReady),
        machine(MachineFault::BmcUnreachable, BmcPowerFailure, StageName::CommissionNode),
        machine(MachineFault::BmcLoginRefused, BmcPowerFailure, StageName::CommissionNode),
        machine(MachineFault::MissingBootDisk, HardwareMismatch, StageName::ConfigureStorage),
        machine(MachineFault::AbsentPxeNic, HardwareMismatch, StageName::EnsurePxeInterfaceAuto),
        Failing {
            stops_again: &[Resume, Rerun],
            ..machine(MachineFault::MachineDeletedEarly, StateAmbiguity, StageName::WaitForReady)
        },
        machine(MachineFault::DeployRejected, UpstreamTransient, StageName::DeployViaMaas),
        Failing {
            stops_again: ADOPTED,
            ..machine(MachineFault::DeployFails, DeployCloudInitFailure, StageName::ClassifyDeployFailure)
        },
        Failing {
            stops_again: ADOPTED,
            ..machine(MachineFault::DeployHangs, DeployCloudInitFailure, StageName::ClassifyDeployFailure)
        },
        Failing {
            stops_again: ADOPTED,
            ..machine(MachineFault::DeployNoDatasource, DeployCloudInitFailure, StageName::ClassifyDeployFailure)
        },
        // The job goes on with the machine it found; only a clean restart looks for another.
        Failing {
            stops_again: &[Resume, Rerun],
            ..machine(MachineFault::MachineDeleted, StateAmbiguity, StageName::WaitForDeployed)
        },
        machine(MachineFault::TokenNeverEmitted, HardwareSyncFailure, StageName::EnsureHardwareSyncConfigured),
        machine(MachineFault::NoSshAddress, PostDeployConnectivityFailure, StageName::EnsureHardwareSyncConfigured),
        machine(MachineFault::SshRefused, PostDeployConnectivityFailure, StageName::EnsureHardwareSyncConfigured),
        Failing {
            stops_again: &[Resume, Rerun],
            ..machine(MachineFault::SiteBootstrapFails, AgentEnrollmentFailure, StageName::WaitForAgentEnrollment)
        },
        Failing {
            stops_again: &[Resume, Rerun],
            ..machine(MachineFault::AgentNeverStarts, AgentEnrollmentFailure, StageName::WaitForAgentEnrollment)
        },
        machine(MachineFault::HwSyncUnhealthy, HardwareSyncFailure, StageName::WaitForHardwareSyncHealthy),
        no_agent(Kind::Maas, &[]),
        // Its token is withdrawn; an operator has to hand out another bootstrap command.
        no_agent(Kind::Manual, &[RestartClean]),
        Failing {
            cause: Cause::Site("machines.commission", SiteFault::Down),
            ..machine(MachineFault::BmcUnreachable, UpstreamTransient, StageName::CommissionNode)
        },
    ]
};

/// Resumes with the first disk that the failure names.
pub fn decided(message: &str) -> Asked {
    let disk = message.split("there are: ").nth(1).and_then(|list| list.split(' ').next()).expect("a list of disks");
    let decisions = Decisions { boot_disk: Some(disk.to_owned()), ..Decisions::default() };
    Asked { action: OperatorAction::Resume, decisions, observed: None }
}

/// An action without a decision.
pub fn plain(action: OperatorAction) -> Asked {
    Asked { action, decisions: Decisions::default(), observed: None }
}

/// The onboarding, failed, and everything put right since.
async fn failed(failing: &Failing) -> (World, Job) {
    let world = World::open(failing.kind).await;
    match failing.cause {
        Cause::Machine(what) => world.machine_fault(what, None),
        Cause::Site(call, what) => world.region.strike_at(call, what, u32::MAX),
        Cause::NoAgent => {}
    }
    // No agent saves the job before the operator comes.
    world.region.agents_come(None);
    let job = world.drive(Death::Never).await.job;
    let failure = job.state.failure.clone().unwrap_or_else(|| panic!("{:?}: {:?}", failing.cause, job.state));
    assert!(job.state.status.is_failed(), "{:?}: {:?}", failing.cause, job.state);
    assert_eq!((failure.class, failure.stage), (failing.class, failing.stage), "{:?}: {failure:?}", failing.cause);
    world.heal();
    (world, job)
}

/// What an operator sends with the action; the provider's last word is the observation, and is fresh.
pub fn asked(action: OperatorAction, job: &Job, proves: StageName) -> Asked {
    let observed = match action {
        OperatorAction::AdoptObservedState => job.observed.as_ref().map(|_| Proof { proves, at: job.updated_at }),
        OperatorAction::RetryStage
        | OperatorAction::Resume
        | OperatorAction::Rerun
        | OperatorAction::RestartClean
        | OperatorAction::Cancel
        | OperatorAction::MarkManualInterventionRequired => None,
    };
    let release_deployed = action == OperatorAction::RestartClean;
    Asked { action, decisions: Decisions { release_deployed, ..Decisions::default() }, observed }
}

/// The next action of a failure, as an operator types it.
pub fn typed(job: &Job) -> Asked {
    let failure = job.state.failure.as_ref().expect("it failed");
    let NextAction::Run { command, .. } = &failure.next_action else { panic!("no command: {failure:?}") };
    let words: Vec<&str> = command.split(' ').collect();
    let (["lattice", "job", verb, id], rest) = words.split_at(4) else { panic!("not a job's command: {command}") };
    assert_eq!(*id, job.id.to_string(), "{command}");
    let action = OperatorAction::VARIANTS.iter().find(|action| action.verb() == *verb).expect("a verb of a job");
    let mut decisions = Decisions::default();
    match rest {
        [] => {}
        ["--release-deployed"] => decisions.release_deployed = true,
        ["--boot-disk", disk] => decisions.boot_disk = Some((*disk).to_owned()),
        ["--machine", machine] => decisions.machine = Some((*machine).to_owned()),
        other => panic!("{other:?}"),
    }
    Asked { action: *action, decisions, observed: None }
}

#[tokio::test]
async fn the_printed_next_action_recovers_each_failed_onboarding() {
    for failing in &FAILING {
        let (world, stopped) = failed(failing).await;
        let asked = typed(&stopped);
        world.operate(&asked).await.unwrap_or_else(|refused| panic!("{:?}: {asked:?}: {refused}", failing.cause));
        let driven = world.drive(Death::Never).await;
        assert_eq!(
            driven.job.state.status,
            JobStatus::Completed,
            "{:?}: {asked:?}: {:?}",
            failing.cause,
            driven.job.state
        );
        checks::onboarded(&world, failing.kind, &driven.job).await.unwrap();
    }
}

/// Where an action may lead once the cause is healed.
fn ends(failing: &Failing, action: OperatorAction) -> &'static [JobStatus] {
    use JobStatus::{Cancelled, Completed, FailedManualIntervention, FailedRetryable, Reconciled};
    match action {
        OperatorAction::Cancel => &[Cancelled],
        OperatorAction::MarkManualInterventionRequired => &[FailedManualIntervention],
        OperatorAction::RetryStage | OperatorAction::Resume | OperatorAction::Rerun | OperatorAction::RestartClean => {
            if failing.stops_again.contains(&action) {
                &[FailedManualIntervention, FailedRetryable]
            } else {
                &[Completed]
            }
        }
        // What an operator says to have seen may be wrong: the stages that follow find out.
        OperatorAction::AdoptObservedState => &[Reconciled, FailedManualIntervention, FailedRetryable],
    }
}

/// Every action that is allowed, alone and with a few deaths on its way. Gives the number of runs.
async fn follow_all(failing: &Failing) -> u64 {
    let (_, job) = failed(failing).await;
    let mut runs = 0;
    for action in OperatorAction::VARIANTS {
        if action.allowed_from(job.state.status) == Allowed::Yes {
            runs += follow(failing, *action).await;
        }
    }
    runs
}

async fn follow(failing: &Failing, action: OperatorAction) -> u64 {
    let (world, stopped) = failed(failing).await;
    let before = (world.job_row().await, world.node_row().await);
    if let Err(refused) = world.operate(&asked(action, &stopped, stopped.state.stage)).await {
        assert_eq!(action, OperatorAction::AdoptObservedState, "{:?}: {refused}", failing.cause);
        assert_eq!((world.job_row().await, world.node_row().await), before, "a refusal changes nothing");
        return 1;
    }
    let alone = world.drive(Death::Never).await;
    judge(&world, failing, action, &alone.job, "no death").await;
    let mut runs = 1;
    let places = spread(alone.places, 2).into_iter().map(Death::AtPlace);
    let calls = spread(alone.calls.len() as u64, 2).into_iter().map(Death::AfterCall);
    for death in places.chain(calls) {
        let (world, stopped) = failed(failing).await;
        world.operate(&asked(action, &stopped, stopped.state.stage)).await.expect("it was not refused before");
        let driven = world.drive(death).await;
        let (status, case) = (driven.job.state.status, format!("{:?}, {action}, {death:?}", failing.cause));
        assert_eq!(status, alone.job.state.status, "{case}: {:?}", driven.job.state);
        judge(&world, failing, action, &driven.job, &case).await;
        runs += 1;
    }
    runs
}

#[tokio::test]
async fn each_failed_onboarding_follows_each_action_of_an_operator_to_an_allowed_end() {
    let mut runs = 0;
    for failing in &FAILING {
        runs += follow_all(failing).await;
    }
    println!("matrix: {runs} cases");
}

#[tokio::test]
async fn an_agent_that_comes_after_the_failure_ends_the_job_and_leaves_no_secret() {
    let (world, stopped) = failed(&no_agent(Kind::Maas, &[])).await;
    assert!(stopped.state.status.is_failed());
    world.let_pass(AGENT_COMES).await;
    let driven = world.drive(Death::Never).await;
    assert_eq!(driven.job.state.status, JobStatus::Reconciled);
    checks::onboarded(&world, Kind::Maas, &driven.job).await.unwrap();
}

async fn judge(world: &World, failing: &Failing, action: OperatorAction, job: &Job, case: &str) {
    let case = format!("{:?}, {action}, {case}", failing.cause);
    let status = job.state.status;
    assert!(ends(failing, action).contains(&status), "{case}: {:?}", job.state);
    checks::ended(world, failing.kind, job).await.unwrap_or_else(|found| panic!("{case}: {found}"));
}
