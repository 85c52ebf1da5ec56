//! Drives that a BMC erases: nothing before the machine is seen to be idle, each told once more after a death, and what the
//! BMC says of it told as its word.

use lattice_core::command::Refused;
use lattice_core::command::job::{Asked, act};
use lattice_core::command::secure_erase::secure_erase;
use lattice_core::failure::FailureClass;
use lattice_core::ids::{EventSeq, JobId};
use lattice_core::job::{Decisions, Job, JobStatus, OperatorAction, StageName};
use lattice_core::node::{Availability, DownCause, HoldKind, NodeState, Status};
use lattice_sim::bmc::{BmcFault, Resets};
use lattice_store::EventFilter;
use lattice_workflow::crash::CrashPlan;

use crate::plane::Plane;

const DRIVE: &str = "/redfish/v1/Systems/1/Storage/1/Drives/nvme0";

/// A node whose heartbeat was lost; its machine is on.
async fn down() -> Plane {
    let plane = Plane::new().await;
    plane
        .change(|node| {
            node.state = NodeState::new(Status::Offline, Availability::Down);
            node.down_cause = Some(DownCause::HeartbeatLost);
        })
        .await;
    plane
}

async fn ask(plane: &Plane, drives: &[&str], powered_on: bool) -> Result<JobId, Refused> {
    let node = plane.node().await;
    let drives: Vec<String> = drives.iter().map(|drive| (*drive).to_owned()).collect();
    let planned = secure_erase(&plane.known(&node), &plane.request(), &drives, powered_on)?;
    plane.commit(planned.commit).await;
    Ok(planned.job.expect("a job does it"))
}

fn orders(plane: &Plane) -> Vec<String> {
    let mut orders: Vec<String> = plane.bmc.orders().into_iter().map(|order| order.what).collect();
    orders.dedup();
    orders
}

async fn until_told(plane: &Plane, job: JobId) {
    while !orders(plane).contains(&"erase".to_owned()) {
        plane.drive(job, Some(StageName::EraseDrives)).await;
    }
}

async fn told(plane: &Plane, name: &str) -> Vec<String> {
    let events = plane.store.events(EventSeq(0), &EventFilter::default(), 1_000).await.unwrap();
    let of_name = events.into_iter().filter(|event| event.row.name == name);
    of_name.map(|event| event.row.payload.to_string()).collect()
}

async fn is_erased(plane: &Plane, job: &Job, case: &str) {
    assert_eq!(job.state.status, JobStatus::Completed, "{case}: {:?}", job.state);
    assert!(!plane.bmc.is_on(), "{case}: it stays off");
    let node = plane.node().await;
    let hold = node.hold(HoldKind::Maintenance).expect("nothing boots it by itself");
    assert_eq!((node.owning_job, hold.job, node.holds.len()), (None, None, 1), "{case}: {:?}", node.holds);
    let told = told(plane, "node.drive.erased").await;
    assert_eq!(told.len(), 1, "{case}: {told:?}");
    assert!(told[0].contains("nvme0 Simulated 7.7 TB S1") && told[0].contains("as its BMC says"), "{case}: {told:?}");
}

#[tokio::test]
async fn a_machine_is_switched_off_and_its_drives_are_erased_with_a_death_at_every_place() {
    let plane = down().await;
    plane.bmc.set_resets(Resets::After(std::time::Duration::from_secs(15)));
    let job = ask(&plane, &["all"], false).await.unwrap();
    let hold = plane.node().await.hold(HoldKind::Maintenance).cloned();
    assert_eq!(hold.and_then(|hold| hold.job), Some(job));
    let ended = plane.drive(job, None).await;
    is_erased(&plane, &ended, "no death").await;
    assert_eq!(orders(&plane), ["ForceOff", "erase"]);
    let mut places = 0;
    for place in 0.. {
        let mut plane = down().await;
        let job = ask(&plane, &[DRIVE], false).await.unwrap();
        plane.restart_to_die(CrashPlan::at(place));
        if plane.drive_to_die(job, None).await.is_some() {
            break;
        }
        plane.restart();
        let ended = plane.drive(job, None).await;
        is_erased(&plane, &ended, &format!("death at {place}")).await;
        assert_eq!(orders(&plane), ["ForceOff", "erase"], "death at {place}");
        places = place + 1;
    }
    assert!(places > 8, "{places} places");
}

async fn fails(plane: &Plane, job: JobId, stage: StageName, code: &str) -> Job {
    let ended = plane.drive(job, None).await;
    let failure = ended.state.failure.clone().unwrap_or_else(|| panic!("{code}: {:?}", ended.state));
    assert_eq!((failure.stage, failure.error_code.as_str()), (stage, code), "{}", failure.message);
    assert_eq!(ended.state.status, JobStatus::FailedManualIntervention, "{code}");
    ended
}

#[tokio::test]
async fn what_cannot_be_erased_is_said_before_the_machine_is_touched() {
    for (drive, fault, code) in [
        ("/redfish/v1/Systems/1/Storage/1/Drives/nvme9", None, "drive_unknown"),
        ("all", Some(BmcFault::ErasesNothing), "not_offered"),
    ] {
        let plane = down().await;
        if let Some(fault) = fault {
            plane.bmc.add(fault);
        }
        let job = ask(&plane, &[drive], false).await.unwrap();
        fails(&plane, job, StageName::FindDrives, code).await;
        assert!(plane.bmc.is_on() && plane.bmc.orders().is_empty(), "{code}");
    }
}

#[tokio::test]
async fn a_machine_that_is_not_seen_to_be_off_keeps_its_drives() {
    let plane = down().await;
    plane.bmc.add(BmcFault::IgnoresOrders);
    let job = ask(&plane, &["all"], false).await.unwrap();
    let ended = fails(&plane, job, StageName::SwitchOff, "not_seen_idle").await;
    assert_eq!(ended.state.failure.unwrap().class, FailureClass::BmcPowerFailure);
    assert!(!orders(&plane).contains(&"erase".to_owned()), "{:?}", orders(&plane));
}

#[tokio::test]
async fn a_node_that_comes_back_and_a_drive_that_was_exchanged_are_left_alone() {
    let plane = down().await;
    let job = ask(&plane, &["all"], false).await.unwrap();
    plane.drive(job, Some(StageName::SwitchOff)).await;
    plane
        .change(|node| {
            node.state = NodeState::new(Status::Active, Availability::Ready);
            node.down_cause = None;
        })
        .await;
    fails(&plane, job, StageName::SwitchOff, "came_back").await;
    let plane = down().await;
    plane.bmc.switch(false);
    let job = ask(&plane, &["all"], false).await.unwrap();
    until_told(&plane, job).await;
    let waiting = orders(&plane);
    plane.bmc.add(BmcFault::ForgetsTasks);
    fails(&plane, job, StageName::EraseDrives, "erasure_unknown").await;
    plane.bmc.repair();
    plane.bmc.add(BmcFault::DriveSwapped);
    operate_on(&plane, job, OperatorAction::Resume, false).await;
    fails(&plane, job, StageName::EraseDrives, "drive_changed").await;
    assert_eq!((waiting.clone(), orders(&plane)), (vec!["erase".to_owned()], waiting), "told once");
}

#[tokio::test]
async fn a_drive_that_refuses_is_looked_at_by_a_person_and_not_told_again() {
    let plane = down().await;
    let job = ask(&plane, &["all"], false).await.unwrap();
    plane.bmc.fail_tasks();
    let ended = fails(&plane, job, StageName::EraseDrives, "erase_failed").await;
    assert!(ended.state.failure.unwrap().message.contains("nvme0 Simulated 7.7 TB S1"));
    assert_eq!(plane.bmc.orders().iter().filter(|order| order.what == "erase").count(), 1);
    operate_on(&plane, job, OperatorAction::Rerun, false).await;
    fails(&plane, job, StageName::EraseDrives, "erase_failed").await;
}

#[tokio::test]
async fn a_job_that_is_cancelled_waits_for_the_drive_that_its_bmc_is_at() {
    let plane = down().await;
    let job = ask(&plane, &["all"], false).await.unwrap();
    until_told(&plane, job).await;
    assert_eq!(orders(&plane), ["ForceOff", "erase"]);
    let at = plane.request().now;
    operate_on(&plane, job, OperatorAction::Cancel, false).await;
    assert_eq!(plane.node().await.owning_job, Some(job), "nothing else has it yet");
    let ended = plane.drive(job, None).await;
    assert_eq!(ended.state.status, JobStatus::Cancelled);
    assert!(plane.request().now.since(at) >= std::time::Duration::from_secs(25), "it took the rest of its time");
    assert_eq!(told(&plane, "node.drive.erased").await.len(), 1);
    let node = plane.node().await;
    let hold = node.hold(HoldKind::Maintenance).expect("it is not given back as if nothing had been");
    assert_eq!((node.owning_job, hold.job), (None, None));
}

async fn operate_on(plane: &Plane, job: JobId, action: OperatorAction, os_gone: bool) {
    let job = plane.store.job(job).await.unwrap().unwrap();
    let node = plane.node().await;
    let asked = Asked { action, decisions: Decisions { os_gone, ..Decisions::default() }, observed: None };
    let planned = act(&plane.request(), &job, &node, plane.site(), &asked).unwrap();
    plane.commit(planned.expect("it is done").commit).await;
}

#[tokio::test]
async fn where_the_machine_stays_on_somebody_must_say_that_nothing_runs() {
    let plane = down().await;
    let job = ask(&plane, &["all"], true).await.unwrap();
    fails(&plane, job, StageName::SwitchOff, "not_seen_idle").await;
    assert!(plane.bmc.orders().is_empty(), "{:?}", orders(&plane));
    operate_on(&plane, job, OperatorAction::Resume, true).await;
    let ended = plane.drive(job, None).await;
    assert_eq!(ended.state.status, JobStatus::Completed, "{:?}", ended.state);
    assert_eq!((orders(&plane), plane.bmc.is_on()), (vec!["erase".to_owned()], true));
}

#[tokio::test]
async fn a_node_that_may_have_work_and_drives_that_nobody_names_are_refused() {
    let plane = Plane::new().await;
    let refused = ask(&plane, &["all"], false).await.unwrap_err();
    assert!(matches!(refused, Refused::NotIdle { .. }), "{refused}");
    let plane = down().await;
    for drives in [&[][..], &["all", DRIVE], &[DRIVE, DRIVE], &[""], &["a drive"]] {
        let refused = ask(&plane, drives, false).await.unwrap_err();
        assert!(matches!(refused, Refused::Invalid { field: "drives", .. }), "{drives:?}: {refused}");
    }
}

#[tokio::test]
async fn a_machine_that_somebody_switched_on_again_keeps_its_drives() {
    for place in 0..100 {
        let mut plane = down().await;
        let job = ask(&plane, &["all"], false).await.unwrap();
        plane.restart_to_die(CrashPlan::at(place));
        assert!(plane.drive_to_die(job, None).await.is_none(), "it never stands between the two");
        let stage = plane.store.job(job).await.unwrap().unwrap().state.stage;
        if stage != StageName::EraseDrives || plane.bmc.is_on() || orders(&plane).contains(&"erase".to_owned()) {
            continue;
        }
        plane.bmc.switch(true);
        plane.restart();
        fails(&plane, job, StageName::EraseDrives, "not_idle").await;
        assert_eq!(orders(&plane), ["ForceOff"]);
        return;
    }
    panic!("it never stands between the two");
}
