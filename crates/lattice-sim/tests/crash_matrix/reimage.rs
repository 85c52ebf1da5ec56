//! A node that gets another OS through MAAS: with a death at every place and in every call, a machine that others took,
//! and a release that fails.

use std::collections::BTreeMap;

use lattice_core::failure::FailureClass;
use lattice_core::job::{JobStatus, StageName};
use lattice_core::node::{Availability, HoldKind, NodeState, Status};
use lattice_sim::maas::faults::MachineFault;

use crate::checks;
use crate::life::Death;
use crate::operators::typed;
use crate::spread;
use crate::world::{Kind, World};

/// A node that was onboarded, whose heartbeat is lost since: nothing runs on it. It is to be reimaged.
async fn to_be_reimaged() -> World {
    let mut world = World::open(Kind::Maas).await;
    world.drive(Death::Never).await;
    world.lose().await;
    world.reimage().await;
    let node = world.node_row().await;
    assert_eq!(node.state, NodeState::new(Status::Offline, Availability::Down), "the job moves it");
    assert_eq!(node.hold(HoldKind::Maintenance).and_then(|hold| hold.job), Some(world.job));
    world
}

async fn judge(world: &World, case: &str) {
    let job = world.job_row().await;
    assert_eq!(job.state.status, JobStatus::Completed, "{case}: {:?}", job.state);
    let node = world.node_row().await;
    assert_eq!(node.state, NodeState::new(Status::Active, Availability::Ready), "{case}");
    assert!(node.owning_job.is_none() && node.holds.is_empty(), "{case}: {:?}", node.holds);
    assert_eq!(node.identity_epoch, 2, "{case}: certificates of the OS that is gone are refused");
    let tokens = world.store.enrollment_tokens_of(world.node).await.unwrap();
    assert_eq!(tokens.iter().filter(|token| token.used_at.is_some()).count(), 2, "{case}: each system had its own");
    let is_open =
        |token: &&lattice_core::credential::EnrollmentToken| token.used_at.is_none() && token.revoked_at.is_none();
    assert_eq!(tokens.iter().filter(is_open).count(), 0, "{case}");
    let kept: Vec<String> = world.secrets.paths().into_iter().filter(|path| path.starts_with("jobs/")).collect();
    assert!(kept.is_empty(), "{case}: {kept:?}");
    checks::told_once(world).await.expect(case);
    checks::intact(world, Kind::Maas).await.expect(case);
}

fn count(calls: &BTreeMap<String, u64>, call: &str) -> u64 {
    calls.iter().filter(|(name, _)| name.ends_with(call)).map(|(_, count)| count).sum()
}

#[tokio::test]
async fn a_reimage_through_maas_survives_a_death_at_every_place_and_in_every_call() {
    let world = to_be_reimaged().await;
    let machine = world.node_row().await.provider_ref;
    let before = world.region.with(|world| world.report().calls);
    let alone = world.drive(Death::Never).await;
    judge(&world, "no death").await;
    assert_eq!(world.node_row().await.provider_ref, machine, "the same machine, by its system id");
    let after = world.region.with(|world| world.report().calls);
    // A deployment by its system id allocates it.
    for call in ["op=release", "op=deploy"] {
        assert_eq!(count(&after, call) - count(&before, call), 1, "{call}");
    }
    let mut runs = 1;
    let places = spread(alone.places, u64::MAX).into_iter().map(Death::AtPlace);
    let calls = spread(alone.calls.len() as u64, u64::MAX).into_iter().map(Death::AfterCall);
    for death in places.chain(calls) {
        let world = to_be_reimaged().await;
        world.drive(death).await;
        judge(&world, &format!("{death:?}")).await;
        runs += 1;
    }
    println!("matrix: {runs} cases");
}

#[tokio::test]
async fn a_machine_that_no_job_of_the_node_deployed_is_not_released() {
    let world = to_be_reimaged().await;
    let machine = world.node_row().await.provider_ref.unwrap();
    // Somebody released it, and deployed it for himself.
    world.meddle_with(&machine, "release");
    world.let_pass(std::time::Duration::from_secs(3_600)).await;
    world.meddle_with(&machine, "deploy");
    let before = world.region.with(|world| world.report().calls);
    let stopped = world.drive(Death::Never).await.job;
    let failure = stopped.state.failure.clone().expect("it is another's");
    assert_eq!((failure.class, failure.stage), (FailureClass::StateAmbiguity, StageName::ReleaseMachine));
    let after = world.region.with(|world| world.report().calls);
    assert_eq!(count(&after, "op=release"), count(&before, "op=release"));
}

#[tokio::test]
async fn a_reimage_whose_deployment_fails_leaves_the_node_out_and_is_recovered_as_printed() {
    let world = to_be_reimaged().await;
    world.machine_fault(MachineFault::DeployFails, None);
    let stopped = world.drive(Death::Never).await.job;
    assert!(stopped.state.status.is_failed(), "{:?}", stopped.state);
    assert_eq!(world.node_row().await.state.status, Status::Enrolling);
    world.heal();
    world.operate(&typed(&stopped)).await.unwrap();
    world.drive(Death::Never).await;
    let job = world.job_row().await;
    assert_eq!(job.state.status, JobStatus::Completed, "{:?}", job.state);
    assert_eq!(world.node_row().await.state, NodeState::new(Status::Active, Availability::Ready));
}
