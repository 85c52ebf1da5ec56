//! A lost node, power-cycled through MAAS: with a death at every place and in every call, and with a BMC that is silent.

use lattice_core::failure::FailureClass;
use lattice_core::job::{JobStatus, StageName};
use lattice_core::node::{Availability, NodeState, Status};
use lattice_sim::maas::faults::MachineFault;

use crate::checks;
use crate::life::Death;
use crate::operators::typed;
use crate::spread;
use crate::world::{Kind, World};

/// A node that was onboarded and whose heartbeat is lost since.
async fn lost() -> World {
    let world = World::open(Kind::Maas).await;
    world.drive(Death::Never).await;
    world.lose().await;
    assert_eq!(world.node_row().await.state, NodeState::new(Status::Offline, Availability::Down));
    world
}

async fn judge(world: &World, case: &str) {
    let job = world.job_row().await;
    assert_eq!(job.state.status, JobStatus::Completed, "{case}: {:?}", job.state);
    let node = world.node_row().await;
    assert_eq!(node.state, NodeState::new(Status::Active, Availability::Ready), "{case}");
    assert!(node.owning_job.is_none(), "{case}");
    let switched = world.region.with(|world| {
        let kinds = world.events().iter().map(|event| event.kind).filter(|kind| kind.starts_with("Node powered"));
        kinds.collect::<Vec<_>>()
    });
    let last_two = &switched[switched.len() - 2..];
    assert_eq!(last_two, ["Node powered off", "Node powered on"], "{case}: {switched:?}");
    checks::intact(world, Kind::Maas).await.expect(case);
}

#[tokio::test]
async fn a_reboot_through_maas_survives_a_death_at_every_place_and_in_every_call() {
    let mut world = lost().await;
    world.reboot().await;
    let before = world.region.with(|world| world.report().calls);
    let alone = world.drive(Death::Never).await;
    judge(&world, "no death").await;
    let after = world.region.with(|world| world.report().calls);
    for call in ["op=power_off", "op=power_on"] {
        let count = |calls: &std::collections::BTreeMap<String, u64>| {
            calls.iter().filter(|(name, _)| name.ends_with(call)).map(|(_, count)| count).sum::<u64>()
        };
        assert_eq!(count(&after) - count(&before), 1, "{call}");
    }
    let mut runs = 1;
    let places = spread(alone.places, u64::MAX).into_iter().map(Death::AtPlace);
    let calls = spread(alone.calls.len() as u64, u64::MAX).into_iter().map(Death::AfterCall);
    for death in places.chain(calls) {
        let mut world = lost().await;
        world.reboot().await;
        world.drive(death).await;
        judge(&world, &format!("{death:?}")).await;
        runs += 1;
    }
    println!("matrix: {runs} cases");
}

#[tokio::test]
async fn a_silent_bmc_stops_the_reboot_leaves_the_node_as_it_was_and_is_recovered_as_printed() {
    for fault in [MachineFault::BmcUnreachable, MachineFault::BmcLoginRefused] {
        let mut world = lost().await;
        world.machine_fault(fault, None);
        world.reboot().await;
        let stopped = world.drive(Death::Never).await.job;
        let failure = stopped.state.failure.clone().expect("it cannot be switched");
        assert_eq!((failure.class, failure.stage), (FailureClass::BmcPowerFailure, StageName::PowerOff));
        assert_eq!(stopped.state.status, JobStatus::FailedManualIntervention);
        assert_eq!(world.node_row().await.state.availability, Availability::Down, "nothing was switched");
        world.heal();
        world.operate(&typed(&stopped)).await.unwrap();
        world.drive(Death::Never).await;
        judge(&world, &format!("{fault:?}")).await;
    }
}
