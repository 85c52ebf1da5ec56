//! What the control plane makes of a BMC: nodes that go down by its evidence, checks of those that went down, reboots.

use std::time::Duration;

use lattice_core::bmc::{BootDevice, BreakerState, PowerSaid};
use lattice_core::command::agent::{Verdict, judged};
use lattice_core::command::bmc as commands;
use lattice_core::command::node::reboot;
use lattice_core::job::{JobKind, JobStatus, StageName};
use lattice_core::node::availability::AvailabilityEvent;
use lattice_core::node::{Availability, DownCause, NodeState, Status};
use lattice_providers::machine::bmc::{BmcReaders, Caller};
use lattice_sim::bmc::{BmcFault, Resets};
use lattice_store::EventFilter;
use lattice_workflow::crash::CrashPlan;

use crate::plane::Plane;

const DOWN: NodeState = NodeState::new(Status::Offline, Availability::Down);

async fn events(plane: &Plane, name: &str) -> usize {
    let events = plane.store.events(lattice_core::ids::EventSeq(0), &EventFilter::default(), 1_000).await.unwrap();
    events.iter().filter(|event| event.row.name == name).count()
}

#[tokio::test]
async fn a_well_machine_is_polled_and_left_alone() {
    let mut plane = Plane::new().await;
    for _ in 0..3 {
        let watched = plane.poll().await;
        assert_eq!((watched.begun, watched.kept), (1, 1), "{watched:?}");
    }
    let report = plane.store.bmc_report(plane.node).await.unwrap().unwrap();
    assert_eq!(report.power.as_ref().map(|power| &power.said), Some(&PowerSaid::On));
    assert!(report.critical.is_empty() && report.failure.is_none(), "{report:?}");
    assert_eq!(plane.node().await.state, NodeState::new(Status::Active, Availability::Ready));
    let watched = plane.watch.tick(lattice_core::time::Clock::now(&*plane.clock)).await.unwrap();
    assert_eq!(watched.begun, 0, "nothing is due again within its interval");
}

#[tokio::test]
async fn of_two_servers_one_looks_and_the_other_takes_over_when_its_lease_has_run_out() {
    let mut plane = Plane::new().await;
    let (mut beside, _) = plane.beside();
    assert_eq!(plane.poll().await.begun, 1);
    let now = || lattice_core::time::Clock::now(&*plane.clock);
    assert_eq!(beside.tick(now()).await.unwrap().begun, 0, "every BMC is asked once");
    plane.clock.pass(Duration::from_secs(31));
    assert_eq!(beside.tick(now()).await.unwrap().begun, 1, "the first one is gone");
    assert_eq!(beside.settle(now()).await.unwrap().kept, 1);
    assert_eq!(plane.poll().await.begun, 1, "and this one then");
}

#[tokio::test]
async fn a_server_that_stops_in_good_order_is_not_waited_for() {
    let mut plane = Plane::new().await;
    let (mut beside, _) = plane.beside();
    let now = lattice_core::time::Clock::now(&*plane.clock);
    assert_eq!(beside.tick(now).await.unwrap().begun, 1);
    beside.end().await;
    assert_eq!(plane.poll().await.begun, 1);
}

#[tokio::test]
async fn what_a_server_saw_before_it_lost_the_lease_changes_nothing() {
    let mut plane = Plane::new().await;
    plane.bmc.add(BmcFault::PowerSupplyFailed);
    plane.clock.pass(Duration::from_secs(61));
    let now = lattice_core::time::Clock::now(&*plane.clock);
    assert_eq!(plane.watch.tick(now).await.unwrap().begun, 1);
    let later = now + Duration::from_secs(31);
    let taken = plane.store.acquire("bmcs", "lattice-2", later, Duration::from_secs(30)).await.unwrap();
    assert!(taken.is_some(), "the first one's lease has run out by that clock");
    let watched = plane.watch.settle(now).await.unwrap();
    assert_eq!((watched.kept, watched.down.len()), (0, 0), "{watched:?}");
    assert_eq!(plane.node().await.state.availability, Availability::Ready);
    assert!(plane.store.bmc_report(plane.node).await.unwrap().is_none());
}

#[tokio::test]
async fn a_breaker_that_a_job_opened_is_kept_by_a_server_that_does_not_poll() {
    let mut plane = Plane::new().await;
    plane.poll().await;
    let (mut beside, clients) = plane.beside();
    plane.keep_login("wrong-password").await;
    let row = plane.store.bmc(plane.node).await.unwrap().unwrap();
    for _ in 0..3 {
        let caller = Caller { who: "job".to_owned(), why: "reboot".to_owned() };
        let reader = clients.bmcs().reader(&row, &plane.site().bmc, caller).await.unwrap();
        assert!(reader.power().await.is_err());
        plane.clock.pass(Duration::from_secs(2));
    }
    let now = lattice_core::time::Clock::now(&*plane.clock);
    assert_eq!(beside.tick(now).await.unwrap().begun, 0, "the other one polls");
    let row = plane.store.bmc(plane.node).await.unwrap().unwrap();
    assert!(matches!(&row.breaker, BreakerState::Open { by, .. } if by.starts_with("job")), "{row:?}");
}

#[tokio::test]
async fn a_server_with_one_refusal_does_not_close_what_another_opened() {
    let mut plane = Plane::new().await;
    plane.poll().await;
    let (mut beside, clients) = plane.beside();
    plane.keep_login("wrong-password").await;
    let ask = async |plane: &Plane| {
        let row = plane.store.bmc(plane.node).await.unwrap().unwrap();
        let caller = Caller { who: "job".to_owned(), why: "reboot".to_owned() };
        let reader = clients.bmcs().reader(&row, &plane.site().bmc, caller).await.unwrap();
        reader.power().await.unwrap_err()
    };
    ask(&plane).await;
    for _ in 0..3 {
        plane.poll().await;
    }
    assert_eq!(plane.bmc.refused_logins(), 4);
    let opened = plane.store.bmc(plane.node).await.unwrap().unwrap();
    beside.tick(lattice_core::time::Clock::now(&*plane.clock)).await.unwrap();
    let row = plane.store.bmc(plane.node).await.unwrap().unwrap();
    assert!(matches!(row.breaker, BreakerState::Open { .. }), "{row:?}");
    assert_eq!(row, opened);
    let locked = ask(&plane).await;
    assert!(locked.to_string().contains("not tried any more"), "{locked}");
    assert_eq!(plane.bmc.refused_logins(), 4, "no login more");
}

#[tokio::test]
async fn critical_evidence_takes_a_ready_node_down_at_once_and_only_once() {
    for fault in [BmcFault::PowerSupplyFailed, BmcFault::UncorrectableMemory, BmcFault::GpuOffBus, BmcFault::GpuAbsent]
    {
        let mut plane = Plane::new().await;
        plane.bmc.add(fault.clone());
        let watched = plane.poll().await;
        assert_eq!(watched.down, [plane.node], "{fault:?}");
        let node = plane.node().await;
        assert_eq!((node.state, node.down_cause), (DOWN, Some(DownCause::CriticalHardware)), "{fault:?}");
        assert_eq!(events(&plane, "node.alert.raised").await, 1, "{fault:?}");
        let report = plane.store.bmc_report(plane.node).await.unwrap().unwrap();
        assert!(!report.critical.is_empty() && report.critical_at.is_some(), "{fault:?}");
        for _ in 0..3 {
            assert!(plane.poll().await.down.is_empty(), "{fault:?}");
        }
        assert_eq!(events(&plane, "node.alert.raised").await, 1, "the same evidence is told once: {fault:?}");
    }
}

#[tokio::test]
async fn a_warning_is_told_and_moves_nothing() {
    let mut plane = Plane::new().await;
    plane.bmc.add(BmcFault::FanSlow);
    assert!(plane.poll().await.down.is_empty());
    plane.poll().await;
    assert_eq!(plane.node().await.state.availability, Availability::Ready);
    assert_eq!(events(&plane, "node.bmc.evidence").await, 1);
}

#[tokio::test]
async fn a_node_that_went_down_is_checked_out_of_band_once_and_the_check_owns_nothing() {
    let mut plane = Plane::new().await;
    plane.poll().await;
    let request = plane.request();
    let node = plane.node().await;
    for event in [AvailabilityEvent::HeartbeatMissed, AvailabilityEvent::GraceExpired] {
        let chained = judged(
            &request,
            &plane.node().await,
            Verdict { event, detail: "silent".to_owned(), placed: &[], braked_until: None },
        );
        let mut commit = chained.commits.into_iter().next().unwrap();
        commit.op = plane.request().op;
        plane.commit(commit).await;
    }
    plane.bmc.switch(false);
    let watched = plane.poll().await;
    let [job] = watched.investigations.as_slice() else { panic!("{watched:?}") };
    assert!(plane.store.live_job(node.id).await.unwrap().is_none(), "it stands beside any other job");
    let done = plane.drive(*job, None).await;
    assert_eq!((done.kind, done.state.status), (JobKind::BmcInvestigation, JobStatus::Completed), "{:?}", done.state);
    assert!(done.observed.unwrap().status.starts_with("off, says redfish"), "the result is shown");
    for _ in 0..3 {
        assert!(plane.poll().await.investigations.is_empty(), "once for each time that it is down");
    }
    assert_eq!(
        plane.node().await.down_cause,
        Some(DownCause::HeartbeatLost),
        "a power that is off is no hardware failure"
    );
}

#[tokio::test]
async fn a_silent_bmc_leaves_the_node_alone_and_its_check_fails_with_the_bmc_s_own_class() {
    let mut plane = Plane::new().await;
    plane.poll().await;
    let before = plane.store.bmc_report(plane.node).await.unwrap().unwrap();
    plane.bmc.add(BmcFault::AnswersHtml);
    plane.poll().await;
    let report = plane.store.bmc_report(plane.node).await.unwrap().unwrap();
    assert_eq!(plane.node().await.state.availability, Availability::Ready, "silence of a BMC is no evidence");
    assert!(report.failure.is_some());
    assert_eq!(report.power, before.power, "what was read keeps its own time");
    assert!(report.looked_at > before.looked_at);
}

#[tokio::test]
async fn a_breaker_that_opened_outlives_the_process_until_an_operator_resets_it() {
    let mut plane = Plane::new().await;
    plane.keep_login("wrong-password").await;
    for _ in 0..5 {
        plane.poll().await;
    }
    assert_eq!(plane.bmc.refused_logins(), 3);
    let row = plane.store.bmc(plane.node).await.unwrap().unwrap();
    assert!(matches!(&row.breaker, BreakerState::Open { by, .. } if by.starts_with("health poll")), "{row:?}");
    assert_eq!(events(&plane, "node.bmc.breaker_opened").await, 1);
    plane.restart();
    plane.poll().await;
    assert_eq!(plane.bmc.refused_logins(), 3, "a restart gives no three more tries");
    plane.keep_login(crate::target::PASSWORD).await;
    let row = plane.store.bmc(plane.node).await.unwrap().unwrap();
    plane.commit(commands::reset_breaker(&plane.request(), &row)).await;
    plane.poll().await;
    plane.poll().await;
    let report = plane.store.bmc_report(plane.node).await.unwrap().unwrap();
    assert_eq!(report.failure, None);
    assert_eq!(plane.store.bmc(plane.node).await.unwrap().unwrap().breaker, BreakerState::Closed);
}

async fn rebooting(plane: &mut Plane, boot: Option<BootDevice>) -> lattice_core::job::Job {
    plane.bmc.add(BmcFault::PowerSupplyFailed);
    plane.poll().await;
    plane.bmc.repair();
    let (node, request) = (plane.node().await, plane.request());
    let planned = reboot(&plane.known(&node), &request, boot).unwrap();
    let job = planned.job.expect("a job reboots a node that has a BMC");
    plane.commit(planned.commit).await;
    plane.store.job(job).await.unwrap().unwrap()
}

#[tokio::test]
async fn a_reboot_goes_through_the_node_s_bmc_off_seen_off_on_seen_on() {
    let mut plane = Plane::new().await;
    plane.bmc.set_resets(Resets::After(Duration::from_secs(15)));
    let job = rebooting(&mut plane, None).await;
    let job = plane.drive(job.id, Some(StageName::WaitForBoot)).await;
    assert_eq!(job.state.stage, StageName::WaitForBoot, "{:?}", job.state);
    // An order is repeated until its effect is seen.
    let mut orders: Vec<String> = plane.bmc.orders().into_iter().map(|order| order.what).collect();
    orders.dedup();
    assert_eq!(orders, ["ForceOff", "On"]);
    assert!(plane.bmc.is_on());
    assert_eq!(plane.node().await.state.availability, Availability::Booting);
}

/// What the machine started from since it was found on, and how often its BMC was told.
fn starts(plane: &Plane) -> (Vec<Option<String>>, usize) {
    let told = plane.bmc.orders().into_iter().filter(|order| order.what == "boot Pxe").count();
    (plane.bmc.starts().split_off(1), told)
}

/// Told before it is switched on, and however often the job dies: one start goes that way, and no other one.
#[tokio::test]
async fn a_reboot_starts_once_from_what_it_was_asked_to_with_a_death_at_every_place() {
    let pxe = || vec![Some("Pxe".to_owned())];
    let mut places = 0;
    for place in 0.. {
        let mut plane = Plane::new().await;
        plane.bmc.set_resets(Resets::After(Duration::from_secs(15)));
        let job = rebooting(&mut plane, Some(BootDevice::Pxe)).await;
        plane.restart_to_die(CrashPlan::at(place));
        let lived = plane.drive_to_die(job.id, Some(StageName::WaitForBoot)).await;
        plane.restart();
        let ended = plane.drive(job.id, Some(StageName::WaitForBoot)).await;
        assert_eq!(ended.state.stage, StageName::WaitForBoot, "death at {place}: {:?}", ended.state);
        let (from, told) = starts(&plane);
        assert_eq!(from, pxe(), "death at {place}");
        assert!(told <= 2 && plane.bmc.is_on(), "death at {place}: told {told} times");
        if lived.is_some() {
            assert_eq!(told, 1, "a slow BMC is not told again");
            break;
        }
        places = place + 1;
    }
    assert!(places > 4, "{places} places");
}

#[tokio::test]
async fn a_reboot_without_a_device_tells_the_bmc_nothing_of_it() {
    let mut plane = Plane::new().await;
    let job = rebooting(&mut plane, None).await;
    plane.drive(job.id, Some(StageName::WaitForBoot)).await;
    assert_eq!(starts(&plane), (vec![None], 0));
}

#[tokio::test]
async fn a_bmc_that_cannot_start_from_there_says_so_before_the_power_goes() {
    let mut plane = Plane::new().await;
    let job = rebooting(&mut plane, Some(BootDevice::Pxe)).await;
    plane.bmc.add(BmcFault::BootsFromDisk);
    let ended = plane.drive(job.id, Some(StageName::WaitForBoot)).await;
    let failure = ended.state.failure.expect("it failed");
    assert_eq!(failure.stage, StageName::PowerOff);
    assert!(failure.message.contains("the BMC can start from None, Hdd only"), "{}", failure.message);
    assert!(plane.bmc.is_on() && starts(&plane) == (Vec::new(), 0), "it was not touched");
    assert_eq!(plane.node().await.state.availability, Availability::Down);
}

#[tokio::test]
async fn a_bmc_that_says_it_did_and_did_not_fails_the_reboot_as_a_power_failure() {
    let mut plane = Plane::new().await;
    let job = rebooting(&mut plane, None).await;
    plane.bmc.add(BmcFault::IgnoresOrders);
    let job = plane.drive(job.id, Some(StageName::WaitForBoot)).await;
    let failure = job.state.failure.expect("it failed");
    assert_eq!(failure.error_code, "power_off_timeout");
    assert_eq!(failure.class, lattice_core::failure::FailureClass::BmcPowerFailure);
    assert_eq!(plane.node().await.state.availability, Availability::Down, "the node did not boot");
}

#[tokio::test]
async fn a_bmc_that_does_not_say_whether_it_is_on_switches_nothing() {
    let mut plane = Plane::new().await;
    let job = rebooting(&mut plane, None).await;
    plane.bmc.add(BmcFault::SaysNonsense);
    let job = plane.drive(job.id, Some(StageName::WaitForBoot)).await;
    let failure = job.state.failure.expect("it failed");
    assert_eq!(failure.error_code, "power_unknown", "{failure:?}");
    assert!(plane.bmc.orders().is_empty(), "{:?}", plane.bmc.orders());
}

#[tokio::test]
async fn a_brake_lets_go_of_a_machine_that_is_seen_to_be_off_and_of_no_other() {
    let mut plane = Plane::new().await;
    let until = plane.request().now + Duration::from_secs(600);
    plane
        .change(|node| {
            node.state = DOWN;
            node.down_cause = Some(DownCause::HeartbeatLost);
            node.ownership.braked_until = Some(until);
        })
        .await;
    plane.poll().await;
    assert_eq!(plane.node().await.ownership.braked_until, Some(until), "it is on: its work may run");
    plane.bmc.add(BmcFault::SaysNonsense);
    plane.bmc.switch(false);
    plane.poll().await;
    assert_eq!(plane.node().await.ownership.braked_until, Some(until), "nobody knows");
    plane.bmc.repair();
    plane.poll().await;
    let now = plane.request().now;
    assert_eq!(plane.node().await.ownership.braked_until, Some(now), "what ran there has ended");
    plane.poll().await;
    assert_eq!(plane.node().await.ownership.braked_until, Some(now), "told once");
}
