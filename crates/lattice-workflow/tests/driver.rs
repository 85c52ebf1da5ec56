//! What the driver survives: a defect that ends a turn by a panic, and a job of which nobody told it.
#![allow(clippy::unwrap_used, reason = "a test stops at what it cannot do")]

#[allow(dead_code, reason = "each test binary uses a part of the harness")]
mod harness;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use harness::{START, World};
use lattice_core::ids::JobId;
use lattice_core::job::{Job, JobInput, JobStatus};
use lattice_core::site::Site;
use lattice_core::time::{Clock, Timestamp};
use lattice_providers::error::ProviderError;
use lattice_providers::machine::fake::FakeProvider;
use lattice_providers::machine::maas::MaasObserver;
use lattice_workflow::crash::CrashPlan;
use lattice_workflow::driver::embedded::{DriverLimits, EmbeddedDriver};
use lattice_workflow::providers::{InstanceHost, Providers, Shell, ShellTarget};

/// Longest wait for something that must happen; a busy machine may need some of it.
const PATIENCE: Duration = Duration::from_secs(60);

/// Time as it passes, from the harness's beginning.
struct Passing(Instant);

impl Clock for Passing {
    fn now(&self) -> Timestamp {
        START + self.0.elapsed()
    }
}

/// Panics as often as it is told to, then works.
struct Defective {
    fake: Arc<FakeProvider>,
    panics_left: AtomicU32,
}

#[async_trait]
impl Providers for Defective {
    async fn instances(&self, _: &Site) -> Result<Arc<dyn InstanceHost>, ProviderError> {
        let left = self.panics_left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
        assert!(left.is_err(), "a planned panic");
        Ok(self.fake.clone())
    }
    async fn maas(&self, _: &Site) -> Result<Arc<MaasObserver>, ProviderError> {
        Err(ProviderError::unusable("maas", "there is none here"))
    }
    async fn shell(&self, _: &ShellTarget) -> Result<Box<dyn Shell>, ProviderError> {
        Err(ProviderError::unusable("ssh", "there is none here"))
    }
}

/// The job's row once `holds` of it.
async fn until(world: &World, job: JobId, holds: impl Fn(&Job) -> bool) -> Job {
    let patience = tokio::time::sleep(PATIENCE);
    let mut patience = std::pin::pin!(patience);
    let mut look = tokio::time::interval(Duration::from_millis(5));
    loop {
        tokio::select! {
            _ = look.tick() => {
                let row = world.job(job).await;
                if holds(&row) {
                    return row;
                }
            }
            () = &mut patience => panic!("never; {:?}", world.job(job).await.state),
        }
    }
}

#[tokio::test]
async fn a_turn_that_panics_is_made_again_after_the_pause_of_a_failure() {
    let world = World::lxd().await;
    let job = world.onboard("c07u43", JobInput::OnboardLxd { hostname: "c07u43".to_owned() }).await;
    let defective = Arc::new(Defective { fake: world.fake.clone(), panics_left: AtomicU32::new(3) });
    let runner = world.runner_with(CrashPlan::never(), Arc::new(Passing(Instant::now())), defective.clone());
    let limits = DriverLimits { after_failure: Duration::from_millis(20), turns_per_site: 1, ..Default::default() };
    let driver = EmbeddedDriver::start(runner, limits);
    driver.waker().job(job.id).await;
    // Three panics took neither the job nor the only place at its site.
    let waits = until(&world, job.id, |row| row.outputs.token.is_some()).await;
    assert_eq!(defective.panics_left.load(Ordering::SeqCst), 0);
    assert_eq!(waits.state.status, JobStatus::Running);
    assert!(world.agent_comes(job.id).await);
    driver.waker().node(job.node).await;
    let done = until(&world, job.id, |row| row.state.status.is_terminal()).await;
    assert_eq!(done.state.status, JobStatus::Completed, "{:?}", done.state);
    driver.drain().await;
}

/// Whoever committed it died before it could tell, or did not learn that its commit was made.
#[tokio::test]
async fn a_job_of_which_nobody_told_the_driver_is_taken_up() {
    let world = World::lxd().await;
    let clock = Arc::new(Passing(Instant::now()));
    let limits = DriverLimits { forgotten: Duration::from_millis(20), ..Default::default() };
    let driver = EmbeddedDriver::start(world.runner_with(CrashPlan::never(), clock, world.providers.clone()), limits);
    // The rows as they were at the start have been read once this one is driven.
    let known = world.onboard("c07u42", JobInput::OnboardLxd { hostname: "c07u42".to_owned() }).await;
    driver.waker().job(known.id).await;
    until(&world, known.id, |row| row.outputs.token.is_some()).await;
    let job = world.onboard("c07u43", JobInput::OnboardLxd { hostname: "c07u43".to_owned() }).await;
    until(&world, job.id, |row| row.outputs.token.is_some()).await;
    driver.drain().await;
}
