//! What a site is configured with reaches the machine: logins of single machines, profiles, RoCE addresses.

use lattice_core::change::Change;
use lattice_core::failure::FailureClass;
use lattice_core::ids::{Generation, OverrideId, ProfileId};
use lattice_core::job::{JobStatus, StageEventStatus, StageName};
use lattice_core::site::{
    MaasPolicy, PowerOverride, PowerSelector, ProfileSettings, SiteProfile, SiteProvider, SiteStatus,
};

use super::datacenter::Datacenter;
use super::stops;

async fn login_of(world: &Datacenter, index: usize, path: &str) {
    let (ids, now) = world.now();
    let bmc = &world.site.handle.machines()[index].hardware.bmc;
    let one = PowerOverride {
        id: OverrideId::generate(ids, now),
        site: world.row.id,
        selector: PowerSelector::IpmiIp,
        value: bmc.address.to_string(),
        path: path.to_owned(),
        status: SiteStatus::Active,
        created_at: now,
        updated_at: now,
        generation: Generation::FIRST,
    };
    world.commit(vec![Change::PowerOverride(one)]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_machine_with_a_login_of_its_own_is_powered_by_it() {
    let mut world = Datacenter::open(4, 2).await;
    world.keep_login("maas/power", "root", "not-the-password").await;
    let bmc = world.site.handle.machines()[0].hardware.bmc.clone();
    world.keep_login("maas/override", &bmc.user, &bmc.password).await;
    login_of(&world, 0, "maas/override").await;
    login_of(&world, 1, "maas/nothing-is-kept-here").await;
    let (own, missing) = (world.onboard(0).await, world.onboard(1).await);
    let done = world.until(own.id, stops).await;
    assert_eq!(done.state.status, JobStatus::Completed, "{:?}", done.state);
    assert_eq!(done.outputs.power_credentials.as_deref(), Some("override:ipmi_ip"));
    let stopped = world.until(missing.id, stops).await;
    let failure = stopped.state.failure.unwrap();
    assert_eq!(
        (failure.class, failure.stage),
        (FailureClass::SiteCapabilityMissing, StageName::ResolvePowerCredentials)
    );
    assert!(failure.message.contains("override:ipmi_ip"), "the default is not tried: {}", failure.message);
    world.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_profile_reaches_the_machine_and_a_later_edit_does_not() {
    let mut world = Datacenter::open(5, 1).await;
    let roce = world.assign_roce(0).await;
    let (ids, now) = world.now();
    let profile = SiteProfile {
        id: ProfileId::generate(ids, now),
        site: world.row.id,
        name: "jammy".to_owned(),
        description: String::new(),
        status: SiteStatus::Active,
        settings: ProfileSettings {
            distro_series: Some("ubuntu/jammy".to_owned()),
            policy: MaasPolicy { require_hw_sync: false, poll_interval_ms: 50, ..MaasPolicy::default() },
            ..ProfileSettings::default()
        },
        created_at: now,
        updated_at: now,
        generation: Generation::FIRST,
    };
    let job = world.onboard_with(0, Some(&profile)).await;
    let mut edited = world.row.clone();
    let SiteProvider::Maas(maas) = &mut edited.provider else { panic!("a MAAS site") };
    (maas.distro_series, maas.policy.enable_phase2_roce) = ("ubuntu/focal".to_owned(), false);
    edited.generation = edited.generation.next();
    world.commit(vec![Change::Site(Box::new(edited))]).await;
    let done = world.until(job.id, stops).await;
    assert_eq!(done.state.status, JobStatus::Completed, "{:?}", done.state);
    let machine = world.machine(&done).await;
    assert_eq!((machine.distro_series.as_str(), machine.enable_hw_sync), ("jammy", false));
    assert_eq!(done.outputs.roce_applied, u32::try_from(roce).ok(), "as it was accepted");
    let events = world.store.stage_events(job.id).await.unwrap();
    let skipped =
        |stage| events.iter().any(|one| one.event.stage == stage && one.event.status == StageEventStatus::Skipped);
    assert!(skipped(StageName::WaitForHardwareSyncHealthy), "{events:#?}");
    world.close().await;
}
