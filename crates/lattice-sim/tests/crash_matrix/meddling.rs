//! Somebody else acts in MAAS while an onboarding runs, and a site lacks what an onboarding needs. spec: S5 4.13, 4.14

use lattice_core::failure::FailureClass;
use lattice_core::job::{Job, JobStatus, StageName};
use lattice_core::node::Status;
use lattice_core::site::MaasSite;
use lattice_sim::maas::faults::MachineFault;

use crate::checks;
use crate::life::Death;
use crate::operators::typed;
use crate::region::Lie;
use crate::world::{Kind, World};

/// The onboarding, waiting at that stage since its first look.
async fn waiting_at(world: &World, stage: StageName) -> Job {
    let job = world.drive_until(|job| job.state.stage == stage && job.state.wait.is_some()).await;
    assert_eq!((job.state.stage, job.state.status), (stage, JobStatus::Running), "{:?}", job.state);
    job
}

/// It stops and says so, with what MAAS was seen to say; the printed action recovers it.
async fn stops_and_recovers(world: &World, stage: StageName, case: &str) {
    let stopped = world.drive(Death::Never).await.job;
    let failure = stopped.state.failure.clone().unwrap_or_else(|| panic!("{case}: {:?}", stopped.state));
    assert_eq!((failure.class, failure.stage), (FailureClass::StateAmbiguity, stage), "{case}: {failure:?}");
    assert_eq!(failure.error_code, "changed_out_of_band", "{case}");
    assert_eq!(stopped.state.status, JobStatus::FailedManualIntervention, "{case}");
    let seen = stopped.observed.as_ref().expect("what MAAS said");
    assert!(failure.message.contains(&seen.status), "{case}: {} beside {failure:?}", seen.status);
    world.heal();
    world.operate(&typed(&stopped)).await.unwrap_or_else(|refused| panic!("{case}: {refused}"));
    let driven = world.drive(Death::Never).await;
    assert_eq!(driven.job.state.status, JobStatus::Completed, "{case}: {:?}", driven.job.state);
    checks::onboarded(world, Kind::Maas, &driven.job).await.expect(case);
}

#[tokio::test]
async fn a_machine_that_somebody_releases_stops_its_onboarding_wherever_it_is() {
    let rows = [
        (StageName::WaitForDeployed, None),
        (StageName::WaitForHardwareSyncHealthy, Some(MachineFault::HwSyncUnhealthy)),
        (StageName::WaitForAgentEnrollment, None),
    ];
    for (stage, fault) in rows {
        let world = World::open(Kind::Maas).await;
        world.region.agents_come(None);
        if let Some(fault) = fault {
            world.machine_fault(fault, None);
        }
        waiting_at(&world, stage).await;
        world.meddle("release").await;
        stops_and_recovers(&world, stage, &format!("released at {stage}")).await;
    }
}

/// A site that lacks something, and what the first failure names.
async fn lacking(change: fn(&mut MaasSite), code: &str, named: &str) -> (World, Job) {
    let world = World::opened(Kind::Maas, Lie::None, change).await;
    let stopped = world.drive(Death::Never).await.job;
    let failure = stopped.state.failure.clone().expect(code);
    assert_eq!((failure.class, failure.error_code.as_str()), (FailureClass::SiteCapabilityMissing, code));
    assert!(failure.message.contains(named), "{failure:?}");
    assert!(stopped.outputs.provider_ref.is_none(), "nothing was done");
    let report = world.region.with(|world| world.report());
    assert!(report.calls.keys().all(|call| call.starts_with("GET")), "{:?}", report.calls);
    assert_eq!(world.node_row().await.state.status, Status::Enrolling);
    (world, stopped)
}

#[tokio::test]
async fn what_the_site_lacks_is_said_before_anything_is_done() {
    lacking(|site| site.distro_series = "rhel/9".to_owned(), "image_missing", "ubuntu/noble").await;
    let password: fn(&mut MaasSite) = |site| site.deploy_password_path = "maas/nowhere".to_owned();
    let (world, stopped) = lacking(password, "secret_missing", "maas/nowhere").await;
    world.keep_secret("maas/nowhere", &[("pass", "hunter22-of-the-site")]).await;
    world.operate(&typed(&stopped)).await.unwrap();
    let driven = world.drive(Death::Never).await;
    assert_eq!(driven.job.state.status, JobStatus::Completed, "{:?}", driven.job.state);
}

/// A first deployment that fails, and then a release that fails once.
async fn whose_release_fails(change: fn(&mut MaasSite)) -> (World, Job) {
    let world = World::opened(Kind::Maas, Lie::None, change).await;
    world.machine_fault(MachineFault::DeployNoDatasource, Some(1));
    world.machine_fault(MachineFault::ReleaseFails, Some(1));
    let job = world.drive(Death::Never).await.job;
    (world, job)
}

#[tokio::test]
async fn a_release_that_fails_is_made_again_without_erasing_if_the_policy_lets_it() {
    let (world, job) = whose_release_fails(|_| {}).await;
    assert_eq!(job.state.status, JobStatus::Completed, "{:?}", job.state);
    checks::onboarded(&world, Kind::Maas, &job).await.expect("it was released and deployed again");
    let (world, stopped) = whose_release_fails(|site| site.policy.release_fallback_no_erase = false).await;
    let failure = stopped.state.failure.clone().expect("it waits for an operator");
    assert_eq!((failure.error_code.as_str(), failure.class), ("release_failed", FailureClass::StateAmbiguity));
    assert!(failure.message.contains("release_fallback_no_erase"), "{failure:?}");
    world.meddle("release").await;
    world.operate(&typed(&stopped)).await.unwrap();
    let driven = world.drive(Death::Never).await;
    assert_eq!(driven.job.state.status, JobStatus::Completed, "{:?}", driven.job.state);
}
