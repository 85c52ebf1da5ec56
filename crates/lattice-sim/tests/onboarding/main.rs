//! Onboarding through a simulated MAAS region, over HTTP and SSH, driven by the real driver.
#![allow(clippy::unwrap_used, reason = "a test stops at what it cannot do")]

mod datacenter;
mod settings;

use datacenter::Datacenter;
use lattice_core::batch::BatchStatus;
use lattice_core::command::job::{Asked, act};
use lattice_core::failure::FailureClass;
use lattice_core::job::{Decisions, Job, JobStatus, OperatorAction, StageEventStatus, StageName};
use lattice_core::node::{Availability, NodeState, Status};
use lattice_sim::maas::faults::{Fault, MachineFault};
use lattice_store::PageRequest;

fn stops(job: &Job) -> bool {
    job.state.status.is_terminal() || job.state.status.is_failed()
}

fn arm(world: &Datacenter, index: usize, what: MachineFault, hits: Option<u32>) {
    let name = world.site.handle.machines()[index].hardware.label.clone();
    world.site.handle.arm(Fault::Machine { name, what }, hits);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn machines_walk_through_all_stages_and_become_active() {
    let mut world = Datacenter::open(1, 3).await;
    let roce = world.assign_roce(0).await;
    let mut jobs = Vec::new();
    for index in 0..3 {
        jobs.push(world.onboard(index).await);
    }
    for job in &jobs {
        let done = world.until(job.id, stops).await;
        assert_eq!(done.state.status, JobStatus::Completed, "{:?}", done.state);
        let node = world.store.node(job.node).await.unwrap().unwrap();
        assert_eq!(node.state, NodeState::new(Status::Active, Availability::Ready));
        assert!(node.address.is_some() && node.provider_ref.is_some());
        let events = world.store.stage_events(job.id).await.unwrap();
        let ended = |one: &&lattice_store::StageRecord| {
            matches!(one.event.status, StageEventStatus::Succeeded | StageEventStatus::Skipped)
        };
        // Two of the sixteen are entered only when a deployment fails.
        assert_eq!(events.iter().filter(ended).count(), 14, "{events:#?}");
    }
    let first = world.store.job(jobs[0].id).await.unwrap().unwrap();
    assert_eq!(first.outputs.roce_applied, u32::try_from(roce).ok());
    assert!(first.outputs.warnings.is_empty(), "{:?}", first.outputs.warnings);
    let report = world.site.handle.report();
    assert!(report.unknown_requests.is_empty(), "{:?}", report.unknown_requests);
    for machine in world.site.handle.machines() {
        assert!(world.site.runner.refused_commands(&machine.hardware.label).is_empty());
    }
    let polls: u64 = report.calls.iter().filter(|(call, _)| call.contains("events")).map(|(_, count)| count).sum();
    let calls: u64 = report.calls.values().sum();
    assert!(calls - polls <= 3 * 40 + 2 * roce as u64 + 40, "{:#?}", report.calls);
    world.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_datasource_failure_is_deployed_once_more_by_itself() {
    let mut world = Datacenter::open(2, 1).await;
    arm(&world, 0, MachineFault::DeployNoDatasource, Some(1));
    let job = world.onboard(0).await;
    let done = world.until(job.id, stops).await;
    assert_eq!(done.state.status, JobStatus::Completed, "{:?}", done.state);
    assert_eq!(done.state.round, 1);
    assert_eq!(done.outputs.deploy_failure.as_deref(), Some("datasource_like"));
    world.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_machine_without_a_boot_card_waits_for_an_operators_choice() {
    let mut world = Datacenter::open(3, 1).await;
    arm(&world, 0, MachineFault::MissingBootDisk, None);
    let job = world.onboard(0).await;
    let stopped = world.until(job.id, stops).await;
    let failure = stopped.state.failure.clone().unwrap();
    assert_eq!((failure.class, failure.stage), (FailureClass::HardwareMismatch, StageName::ConfigureStorage));
    assert_eq!(stopped.state.status, JobStatus::FailedManualIntervention);
    assert!(failure.message.contains("nvme"), "{}", failure.message);
    assert_eq!(stopped.observed.as_ref().map(|seen| seen.status.as_str()), Some("Ready"));
    let disk = failure.message.split("there are: ").nth(1).unwrap().split(' ').next().unwrap().to_owned();
    let node = world.store.node(job.node).await.unwrap().unwrap();
    let decisions = Decisions { boot_disk: Some(disk.clone()), ..Decisions::default() };
    let asked = Asked { action: OperatorAction::Resume, decisions, observed: None };
    let planned = act(&world.request(), &stopped, &node, &world.row, &asked).unwrap().unwrap();
    world.commit(planned.commit.changes).await;
    world.waker.job(job.id).await;
    let done = world.until(job.id, stops).await;
    assert_eq!(done.state.status, JobStatus::Completed, "{:?}", done.state);
    assert_eq!(done.outputs.boot_disk.map(|boot| boot.name), Some(disk));
    world.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_goes_on_past_the_machines_that_stop_and_ends_when_they_are_put_right() {
    let mut world = Datacenter::open(4, 6).await;
    arm(&world, 0, MachineFault::MissingBootDisk, None);
    arm(&world, 3, MachineFault::DeployNoDatasource, Some(1));
    let planned = world.onboard_batch(6, 2).await;
    let most = world.until_batch(planned.batch, BatchStatus::PartialFailure).await;
    assert!((1..=2).contains(&most), "{most} at once");
    let children = world.store.children_of(&[planned.batch]).await.unwrap()[&planned.batch];
    assert_eq!((children.succeeded, children.failed()), (5, 1), "{children:?}");
    let stopped = world.store.job(planned.children[0].job).await.unwrap().unwrap();
    let failure = stopped.state.failure.clone().unwrap();
    assert_eq!(failure.class, FailureClass::HardwareMismatch);
    let log = world.store.batch_log(planned.batch, Some(&stopped.hostname), &PageRequest::first(100)).await.unwrap();
    assert!(log.items.iter().any(|line| line.record.event.status == StageEventStatus::Failed), "its own log is kept");
    let disk = failure.message.split("there are: ").nth(1).unwrap().split(' ').next().unwrap().to_owned();
    let asked = Asked {
        action: OperatorAction::Resume,
        decisions: Decisions { boot_disk: Some(disk), ..Decisions::default() },
        observed: None,
    };
    let node = world.store.node(stopped.node).await.unwrap().unwrap();
    let planned_resume = act(&world.request(), &stopped, &node, &world.row, &asked).unwrap().unwrap();
    world.commit(planned_resume.commit.changes).await;
    world.waker.job(stopped.id).await;
    world.until_batch(planned.batch, BatchStatus::Completed).await;
    world.close().await;
}
