//! Each onboarding dies after every commit, before every act and within every call of a provider, alone and with
//! each fault that heals; each that failed is taken up by each action of an operator. design: 7 "workflow"
//!
//! Time is virtual and the store is in memory. `LATTICE_MATRIX=N` bounds the deaths of each case; without it, all.
#![allow(clippy::unwrap_used, reason = "a test stops at what it cannot do")]

mod checks;
mod generated;
mod life;
mod meddling;
mod operators;
mod reboot;
mod region;
mod reimage;
mod secrets;
mod world;

use std::collections::BTreeSet;
use std::time::Duration;

use lattice_core::job::{JobStatus, OperatorAction, StageName};
use lattice_sim::maas::faults::{MachineFault, SiteFault};
use life::Death;
use region::Lie;
use secrets::Outage;
use world::{Driven, Kind, World};

/// What befalls an onboarding that heals by itself.
#[derive(Debug, Clone, Copy)]
enum Mishap {
    None,
    Machine(MachineFault, u32),
    /// From the first call of that name on, for so many calls.
    Site(&'static str, SiteFault, u32),
    AgentLate(Duration),
}

/// Deaths of one case: all, or so many, spread over the whole.
fn spread(count: u64, most: u64) -> Vec<u64> {
    let bound = std::env::var("LATTICE_MATRIX").ok().and_then(|text| text.parse().ok()).unwrap_or(u64::MAX);
    let most = most.min(bound).max(1);
    if count <= most {
        return (0..count).collect();
    }
    let chosen: BTreeSet<u64> = (0..most).map(|at| at * count / most).collect();
    chosen.into_iter().collect()
}

async fn run(kind: Kind, mishap: Mishap, death: Death) -> (World, Driven) {
    let world = World::open(kind).await;
    match mishap {
        Mishap::None => {}
        Mishap::Machine(what, hits) => world.machine_fault(what, Some(hits)),
        Mishap::Site(call, what, hits) => world.region.strike_at(call, what, hits),
        Mishap::AgentLate(after) => world.region.agents_come(Some(after)),
    }
    let driven = world.drive(death).await;
    (world, driven)
}

/// The case without a death, then with each of at most `most` of either sort. Gives the number of runs.
async fn survives(kind: Kind, mishap: Mishap, most: u64) -> u64 {
    let (world, alone) = run(kind, mishap, Death::Never).await;
    judge(&world, kind, &alone, &format!("{kind:?} {mishap:?}, no death")).await;
    let (places, calls) = (alone.places, alone.calls.len());
    assert!(kind == Kind::Manual || places + calls as u64 >= 50, "{places} places and {calls} calls are too few");
    let places = spread(alone.places, most).into_iter().map(Death::AtPlace);
    let calls = spread(alone.calls.len() as u64, most).into_iter().map(Death::AfterCall);
    let mut runs = 1;
    for death in places.chain(calls) {
        let (world, driven) = run(kind, mishap, death).await;
        let case = format!("{kind:?} {mishap:?} {death:?} of {} places, {} calls", alone.places, alone.calls.len());
        assert_eq!(driven.deaths, 1, "{case}");
        judge(&world, kind, &driven, &case).await;
        runs += 1;
    }
    runs
}

async fn judge(world: &World, kind: Kind, driven: &Driven, case: &str) {
    if let Err(found) = checks::onboarded(world, kind, &driven.job).await {
        panic!("{case}: {found}");
    }
    assert_eq!(driven.job.state.status, JobStatus::Completed, "{case}");
    if driven.deaths == 0 && driven.job.state.round == 0 {
        checks::told_once(world).await.expect(case);
    }
}

#[tokio::test]
async fn a_maas_onboarding_survives_a_death_at_every_place_and_in_every_call() {
    let runs = survives(Kind::Maas, Mishap::None, u64::MAX).await;
    println!("matrix: {runs} cases");
}

#[tokio::test]
async fn a_manual_onboarding_survives_a_death_at_every_place() {
    let mut runs = survives(Kind::Manual, Mishap::None, u64::MAX).await;
    runs += survives(Kind::Manual, Mishap::AgentLate(Duration::from_secs(3_600)), u64::MAX).await;
    println!("matrix: {runs} cases");
}

#[tokio::test]
async fn each_fault_that_heals_heals_across_deaths() {
    let mishaps = [
        Mishap::Machine(MachineFault::DeployNoDatasource, 1),
        Mishap::Machine(MachineFault::DeployRejected, 1),
        Mishap::Machine(MachineFault::TokenNeverEmitted, 2),
        Mishap::Machine(MachineFault::NoSshAddress, 2),
        Mishap::Machine(MachineFault::HwSyncUnhealthy, 1),
        Mishap::Machine(MachineFault::AbsentNic, 1),
        Mishap::AgentLate(Duration::from_secs(35 * 60)),
        Mishap::Site("machines.deploy", SiteFault::GatewayTimeout, 4),
        Mishap::Site("machines.deploy", SiteFault::Down, 4),
    ];
    let mut runs = 0;
    for mishap in mishaps {
        runs += survives(Kind::Maas, mishap, 12).await;
    }
    println!("matrix: {runs} cases");
}

#[tokio::test]
async fn a_site_that_fails_from_any_call_on_delays_and_spoils_nothing() {
    // A call that is told to come back is made by the next attempt, and a stage has three. spec: S5 4.6
    let faults = [
        (SiteFault::Down, 4),
        (SiteFault::Slow { delay_ms: 400_000 }, 4),
        (SiteFault::Html, 4),
        (SiteFault::GatewayTimeout, 4),
        (SiteFault::NoRack, 2),
        (SiteFault::SerializationConflict, 2),
    ];
    let mut runs = 0;
    let (_, alone) = run(Kind::Maas, Mishap::Machine(MachineFault::DeployNoDatasource, 1), Death::Never).await;
    let names: BTreeSet<&'static str> = alone.calls.into_iter().filter(|name| *name != "ssh exec").collect();
    for name in names {
        for (what, most) in faults {
            for hits in [1, most] {
                let world = World::open(Kind::Maas).await;
                world.machine_fault(MachineFault::DeployNoDatasource, Some(1));
                world.region.strike_at(name, what, hits);
                let driven = world.drive(Death::Never).await;
                judge(&world, Kind::Maas, &driven, &format!("{name} {what:?} {hits}")).await;
                runs += 1;
            }
        }
    }
    println!("matrix: {runs} cases");
}

/// What the checks say of a world in which the wire lies, when its first server dies of the deploy call.
async fn judged_lie(lie: Lie) -> (JobStatus, checks::Found) {
    let (_, alone) = run(Kind::Maas, Mishap::None, Death::Never).await;
    let deploy = alone.calls.iter().position(|name| *name == "machines.deploy").expect("it deploys") as u64;
    let world = World::lying(Kind::Maas, lie).await;
    let driven = world.drive(Death::AfterCall(deploy)).await;
    let found = checks::intact(&world, Kind::Maas).await;
    (driven.job.state.status, found)
}

#[tokio::test]
async fn the_checks_find_a_deployment_that_is_asked_for_twice() {
    for lie in [Lie::DeploysTwice, Lie::HidesDeployment] {
        let (status, found) = judged_lie(lie).await;
        assert_eq!(status, JobStatus::Completed, "{lie:?}: without the checks nobody would notice");
        let found = found.unwrap_err();
        assert!(found.contains("deploy was asked for 2 times"), "{lie:?}: {found}");
    }
    assert_eq!(judged_lie(Lie::None).await, (JobStatus::Completed, Ok(())));
}

#[tokio::test]
async fn a_missing_boot_card_is_decided_by_an_operator_across_deaths() {
    let mut runs = 0;
    for death in spread(24, 24).into_iter().map(Death::AtPlace) {
        let world = World::open(Kind::Maas).await;
        world.machine_fault(MachineFault::MissingBootDisk, None);
        let stopped = world.drive(death).await.job;
        let failure = stopped.state.failure.expect("it waits for a person");
        assert_eq!(failure.stage, StageName::ConfigureStorage);
        world.operate(&operators::decided(&failure.message)).await.unwrap();
        let driven = world.drive(Death::Never).await;
        judge(&world, Kind::Maas, &Driven { deaths: 1, ..driven }, &format!("{death:?}")).await;
        runs += 1;
    }
    println!("matrix: {runs} cases");
}

#[tokio::test]
async fn a_secret_store_that_is_gone_for_a_moment_delays_and_spoils_nothing() {
    let mut runs = 0;
    for kind in [Kind::Maas, Kind::Manual] {
        let (alone, _) = run(kind, Mishap::None, Death::Never).await;
        for from in 0..=alone.secrets.requests() {
            for hits in [1, 2] {
                let world = World::open(kind).await;
                world.secrets.befalls(Some(Outage { from, hits }));
                let driven = world.drive(Death::Never).await;
                assert_eq!(driven.job.state.status, JobStatus::Completed, "{kind:?} {from} {hits}");
                checks::onboarded(&world, kind, &driven.job).await.expect("it was onboarded");
                runs += 1;
            }
        }
    }
    println!("matrix: {runs} cases");
}

#[tokio::test]
async fn a_job_that_a_sealed_secret_store_stopped_goes_on_by_itself_or_by_its_printed_command() {
    let mut runs = 0;
    let (alone, _) = run(Kind::Maas, Mishap::None, Death::Never).await;
    for from in 3..alone.secrets.requests() {
        for by_itself in [true, false] {
            let case = format!("request {from}, by itself {by_itself}");
            let world = World::open(Kind::Maas).await;
            world.secrets.befalls(Some(Outage { from, hits: u64::MAX }));
            let stopped = world.drive(Death::Never).await.job;
            let failure = stopped.state.failure.clone().expect("it waits");
            assert_eq!(stopped.state.status, JobStatus::FailedRetryable, "{case}: {failure:?}");
            assert_eq!(failure.error_code, "secret_store_unavailable", "{case}");
            assert!(failure.message.contains("is sealed; unseal it"), "{case}: {}", failure.message);
            let printed = format!("{:?}", failure.next_action);
            assert!(printed.contains(&format!("lattice job resume {}", stopped.id)), "{case}: {printed}");
            assert!(world.watch_secrets().await.outage.is_some(), "{case}");
            world.secrets.befalls(None);
            if by_itself {
                let seen = world.watch_secrets().await;
                assert_eq!((seen.outage, seen.resumed.as_slice()), (None, [world.job].as_slice()), "{case}");
                assert!(world.watch_secrets().await.resumed.is_empty(), "{case}: once");
            } else {
                world.operate(&operators::plain(OperatorAction::Resume)).await.unwrap();
            }
            let driven = world.drive(Death::Never).await;
            judge(&world, Kind::Maas, &Driven { deaths: 1, ..driven }, &case).await;
            runs += 1;
        }
    }
    println!("matrix: {runs} cases");
}

#[tokio::test]
async fn a_cancelled_job_that_cannot_forget_its_secrets_is_cancelled_once_it_can() {
    let world = World::open(Kind::Maas).await;
    world.region.agents_come(None);
    let waiting = world.drive(Death::Never).await.job;
    assert!(waiting.state.status.is_failed(), "its agent never came: {:?}", waiting.state.status);
    world.secrets.befalls(Some(Outage { from: 0, hits: u64::MAX }));
    world.operate(&operators::plain(OperatorAction::Cancel)).await.unwrap();
    let stopped = world.drive(Death::Never).await.job;
    assert_eq!(stopped.state.status, JobStatus::FailedManualIntervention, "{:?}", stopped.state.failure);
    world.secrets.befalls(None);
    assert_eq!(world.watch_secrets().await.resumed, [world.job]);
    let ended = world.drive(Death::Never).await.job;
    assert_eq!(ended.state.status, JobStatus::Cancelled, "{:?}", ended.state.failure);
    assert_eq!(world.secrets.paths().iter().filter(|path| path.starts_with("jobs/")).count(), 0);
}
