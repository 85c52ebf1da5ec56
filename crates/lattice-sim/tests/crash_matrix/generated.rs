//! Generated from the tables: every stage fails with every class, before and after its effect, dies on the way, and is
//! taken up by every action of an operator. spec: S2 8, S5 4.6-4.11

use lattice_core::failure::FailureClass;
use lattice_core::job::flows::onboarding_maas;
use lattice_core::job::{
    Allowed, Enter, Failing, Flow, Job, JobStatus, OperatorAction, Stage, StageName, Stop, disposition,
};
use lattice_core::site::MaasPolicy;
use lattice_sim::maas::faults::MachineFault;
use lattice_workflow::crash::{Spoil, SpoilWhen};
use strum::VariantArray;

use crate::checks;
use crate::life::Death;
use crate::operators::asked;
use crate::world::{Driven, Kind, World};

/// Where a job must stand once a stage failed for good.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Expected {
    /// The stage is not needed: a warning, and the job goes on to its end.
    GoesOn,
    /// It stops there.
    Stops { status: JobStatus, stage: StageName },
}

/// What the tables say. spec: S5 4.6, 4.7
fn expected(flow: &Flow, stage: &Stage, class: FailureClass) -> Expected {
    let status = |stop| match stop {
        Stop::Retryable => JobStatus::FailedRetryable,
        Stop::Manual => JobStatus::FailedManualIntervention,
    };
    let by_class = status(disposition(class).stop());
    // A failed deployment is judged by the stage that classifies it, which stops the job.
    if let Some(detour) = flow.detour(stage.name, class) {
        return Expected::Stops { status: by_class, stage: detour.name };
    }
    match stage.failing {
        Failing::Continues if class != FailureClass::StateAmbiguity => Expected::GoesOn,
        Failing::Continues | Failing::ByClass => Expected::Stops { status: by_class, stage: stage.name },
        Failing::ForOperator => Expected::Stops { status: status(Stop::Manual), stage: stage.name },
    }
}

async fn world_with(spoil: Spoil, flow: &Flow) -> World {
    let world = World::open(Kind::Maas).await;
    let is_entered_after_failure = match flow.stage(spoil.stage).expect("it is in the flow").enter {
        Enter::OnFailure { .. } | Enter::BackEdge => true,
        Enter::InSequence => false,
    };
    if is_entered_after_failure {
        world.machine_fault(MachineFault::DeployNoDatasource, Some(1));
    }
    world.spoil(spoil);
    world
}

/// The onboarding as far as the spoiled stage lets it come.
async fn spoiled(spoil: Spoil, flow: &Flow, death: Death) -> (World, Driven) {
    let world = world_with(spoil, flow).await;
    let driven = world.drive(death).await;
    (world, driven)
}

/// One stage, one class, one moment: alone, with deaths, and with every action. Gives the number of runs.
async fn case(spoil: Spoil, flow: &Flow) -> u64 {
    let stage = flow.stage(spoil.stage).expect("it is in the flow");
    let expected = expected(flow, stage, spoil.class);
    let (world, alone) = spoiled(spoil, flow, Death::Never).await;
    // Whatever its last stage said: an agent that is there and well is the end that was wanted. spec: S5 4.13
    if alone.job.state.status == JobStatus::Reconciled {
        assert_eq!(spoil.stage, StageName::WaitForAgentEnrollment, "{spoil:?}");
        checks::onboarded(&world, Kind::Maas, &alone.job).await.unwrap_or_else(|found| panic!("{spoil:?}: {found}"));
        return 1;
    }
    // A stage that is done by looking has no effect to fail after.
    if spoil.when == SpoilWhen::AfterEffect && alone.job.state.status == JobStatus::Completed {
        let never_acted = expected != Expected::GoesOn || alone.job.state.warnings.is_empty();
        if never_acted {
            return 1;
        }
    }
    judge_failure(&world, &alone.job, expected, spoil, "no death").await;
    let mut runs = 1;
    for death in deaths(&alone, about(spoil)) {
        let (world, driven) = spoiled(spoil, flow, death).await;
        // Who comes after the dead sees the effect and asks for nothing: there is nothing to fail after.
        let came = expected != Expected::GoesOn && driven.job.state.status == JobStatus::Completed;
        if spoil.when == SpoilWhen::AfterEffect && came {
            checks::onboarded(&world, Kind::Maas, &driven.job)
                .await
                .unwrap_or_else(|found| panic!("{spoil:?}: {found}"));
            runs += 1;
            continue;
        }
        judge_failure(&world, &driven.job, expected, spoil, &format!("{death:?}")).await;
        runs += 1;
    }
    if expected == Expected::GoesOn {
        return runs;
    }
    for action in OperatorAction::VARIANTS {
        if action.allowed_from(alone.job.state.status) == Allowed::Yes {
            runs += follow(spoil, flow, *action).await;
        }
    }
    runs
}

/// One death of each sort, at another place for each case.
fn deaths(alone: &Driven, about: usize) -> Vec<Death> {
    let (places, calls) = (alone.places, alone.calls.len() as u64);
    let place = (places > 0).then(|| Death::AtPlace(about as u64 * 7 % places));
    let call = (calls > 0).then(|| Death::AfterCall(about as u64 * 11 % calls));
    place.into_iter().chain(call).collect()
}

async fn judge_failure(world: &World, job: &Job, expected: Expected, spoil: Spoil, case: &str) {
    let case = format!("{spoil:?}, {case}: {:?}", job.state);
    match expected {
        Expected::GoesOn => {
            assert_eq!(job.state.status, JobStatus::Completed, "{case}");
            assert!(job.state.warnings.iter().any(|warning| warning.stage == spoil.stage), "{case}");
        }
        Expected::Stops { status, stage } => {
            let failure = job.state.failure.as_ref().unwrap_or_else(|| panic!("{case}"));
            assert_eq!((job.state.status, failure.stage), (status, stage), "{case}");
            assert_eq!(failure.class, spoil.class, "{case}");
        }
    }
    checks::intact(world, Kind::Maas).await.unwrap_or_else(|found| panic!("{case}: {found}"));
}

/// A number for each pair of stage and class.
fn about(spoil: Spoil) -> usize {
    spoil.stage as usize * FailureClass::VARIANTS.len() + spoil.class as usize
}

/// The cause is gone, and an operator acts: alone, and with deaths on the way.
async fn follow(spoil: Spoil, flow: &Flow, action: OperatorAction) -> u64 {
    let alone = acted(spoil, flow, action, Death::Never).await;
    let Some(alone) = alone else { return 1 };
    let mut runs = 1;
    for death in deaths(&alone, about(spoil) + action as usize).into_iter().take(1) {
        let driven = acted(spoil, flow, action, death).await.expect("it was not refused before");
        assert_eq!(driven.job.state.status, alone.job.state.status, "{spoil:?}, {action}, {death:?}");
        runs += 1;
    }
    runs
}

/// None when the action is refused, which only an adoption may be.
async fn acted(spoil: Spoil, flow: &Flow, action: OperatorAction, death: Death) -> Option<Driven> {
    let (world, stopped) = spoiled(spoil, flow, Death::Never).await;
    world.heal();
    let before = (world.job_row().await, world.node_row().await);
    if let Err(refused) = world.operate(&asked(action, &stopped.job, stopped.job.state.stage)).await {
        assert_eq!(action, OperatorAction::AdoptObservedState, "{spoil:?}: {refused}");
        assert_eq!((world.job_row().await, world.node_row().await), before, "a refusal changes nothing");
        return None;
    }
    let driven = world.drive(death).await;
    judge_end(&world, &driven.job, spoil, action, death).await;
    Some(driven)
}

async fn judge_end(world: &World, job: &Job, spoil: Spoil, action: OperatorAction, death: Death) {
    use JobStatus::{Cancelled, Completed, FailedManualIntervention, FailedRetryable, Reconciled};
    let status = job.state.status;
    let case = format!("{spoil:?}, {action}, {death:?}: {:?}", job.state);
    let allowed: &[JobStatus] = match action {
        OperatorAction::Cancel => &[Cancelled],
        OperatorAction::MarkManualInterventionRequired => &[FailedManualIntervention],
        // The classification that is tried again says the same again.
        OperatorAction::RetryStage if job.state.stage == StageName::ClassifyDeployFailure => {
            &[Completed, FailedRetryable, FailedManualIntervention]
        }
        OperatorAction::RetryStage | OperatorAction::Resume | OperatorAction::Rerun | OperatorAction::RestartClean => {
            &[Completed]
        }
        // What an operator says to have seen may be wrong: the stages that follow find out.
        OperatorAction::AdoptObservedState => &[Completed, Reconciled, FailedManualIntervention, FailedRetryable],
    };
    assert!(allowed.contains(&status), "{case}");
    checks::ended(world, Kind::Maas, job).await.unwrap_or_else(|found| panic!("{case}: {found}"));
}

/// Stages `from` to `to` of the flow, in its order.
async fn stages(from: usize, to: usize) {
    let flow = onboarding_maas(&MaasPolicy::default());
    let (mut cases, mut runs) = (0, 0);
    for stage in flow.stages.iter().take(to).skip(from) {
        for class in FailureClass::VARIANTS {
            for when in [SpoilWhen::BeforeEffect, SpoilWhen::AfterEffect] {
                runs += case(Spoil { stage: stage.name, class: *class, when }, &flow).await;
                cases += 1;
            }
        }
    }
    println!("matrix: {cases} pairs of stage and failure, {runs} cases");
    assert!(runs > cases, "each pair is more than one run");
}

#[tokio::test]
async fn every_class_in_every_stage_before_the_storage_follows_every_action_across_deaths() {
    stages(0, 5).await;
}

#[tokio::test]
async fn every_class_in_every_stage_up_to_the_payload_follows_every_action_across_deaths() {
    stages(5, 9).await;
}

#[tokio::test]
async fn every_class_in_every_stage_of_the_deployment_follows_every_action_across_deaths() {
    stages(9, 13).await;
}

#[tokio::test]
async fn every_class_in_every_stage_after_the_deployment_follows_every_action_across_deaths() {
    stages(13, 16).await;
    assert_eq!(onboarding_maas(&MaasPolicy::default()).stages.len(), 16, "no stage is left out");
}
