//! A host that comes up ill is booted again, and after the third time by nobody; with a crash at every place.
#![allow(clippy::unwrap_used, reason = "a test stops at what it cannot do")]

#[allow(dead_code, reason = "each test program uses a part of it")]
mod harness;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use harness::{Driven, World};
use lattice_core::change::{Change, Outcome};
use lattice_core::command::agent::{self, Registration};
use lattice_core::command::boots;
use lattice_core::command::node::{Known, reboot};
use lattice_core::ids::{EventSeq, Generation, JobId, NodeId};
use lattice_core::job::{JobInput, JobStatus, StageName};
use lattice_core::node::availability::{AvailabilityEvent, BOOT_FAILURES};
use lattice_core::node::machine::{Health, NodeEvent};
use lattice_core::node::status::Owner;
use lattice_core::node::{Availability, GpuFact, HostFacts, NodeState, Status};
use lattice_core::sku::Sku;
use lattice_providers::machine::fake::FakeCall;
use lattice_store::EventFilter;
use lattice_workflow::crash::CrashPlan;

const NAME: &str = "c07u43";
const READY: NodeState = NodeState::new(Status::Active, Availability::Ready);
const FAILED: NodeState = NodeState::new(Status::Offline, Availability::Failed);

/// A host of two GPUs, which shows both or one in the boots after its onboarding.
struct Host {
    node: NodeId,
    well: Vec<bool>,
    /// Starts of the instance before.
    started: usize,
    booted: AtomicUsize,
}

impl Host {
    async fn onboarded(world: &World, well: &[bool]) -> Self {
        let job = world.onboard(NAME, JobInput::OnboardLxd { hostname: NAME.to_owned() }).await;
        let driven = world.drive(job.id, CrashPlan::never(), async |world| world.agent_tries(job.id).await).await;
        let node = driven.job.node;
        assert_eq!(world.node(node).await.state, READY);
        Self { node, well: well.to_vec(), started: starts(world), booted: AtomicUsize::new(0) }
    }

    /// Its boot failed once, and nobody saw to it.
    async fn fails(&self, world: &World) {
        use AvailabilityEvent::{BootDeadline, GraceExpired, HeartbeatMissed, Reboot};
        let events = [HeartbeatMissed, GraceExpired, Reboot, BootDeadline].map(NodeEvent::Availability);
        world.move_node(self.node, Owner::Detector, &events).await;
        assert_eq!(world.node(self.node).await.state, FAILED);
    }

    /// Its agent registers with its latest boot, as the server takes it.
    async fn registers(&self, world: &World) {
        let node = world.node(self.node).await;
        let boot = self.booted.load(Ordering::SeqCst);
        let gpus = if self.well.get(boot).copied().unwrap_or(true) { 2 } else { 1 };
        let gpu = |n| GpuFact { address: format!("0000:{n:02x}:00.0"), vendor: "amd".into(), model: "MI300X".into() };
        let facts = HostFacts { gpus: (0..gpus).map(gpu).collect(), ..HostFacts::default() };
        let boot_id = format!("boot-{boot}");
        let said = Registration {
            facts: &facts,
            fingerprint: "f1",
            boot_id: &boot_id,
            agent_version: "0.1.0",
            ecc_uncorrected: 0,
            minor_issue: None,
            address: None,
        };
        let request = world.request();
        let boot_timeout = world.site.heartbeat.boot_timeout();
        let chained = agent::registered(&request, &node, &sku(), &said, boot_timeout);
        let job = world.store.live_job(node.id).await.unwrap();
        let standing = boots::Standing { site: &world.site, job: job.as_ref(), has_bmc: false };
        let chained = boots::carried_out(&request, chained, &standing);
        for outcome in world.store.commit(chained.commits).await.unwrap() {
            assert!(matches!(outcome, Outcome::Applied { .. }), "{outcome:?}");
        }
    }

    /// Drives its reboot; each start of the instance is a boot whose agent registers.
    async fn drive(&self, world: &World, job: JobId, crash: CrashPlan) -> Driven {
        let comes = async |world: &World| {
            let boots = starts(world) - self.started;
            let job = world.job(job).await;
            let is_booting = job.state.stage == StageName::WaitForBoot;
            if is_booting && self.booted.swap(boots, Ordering::SeqCst) < boots {
                let deadline = world.node(self.node).await.deadline;
                let takes = Duration::from_secs(300) + world.site.heartbeat.boot_timeout();
                assert_eq!(deadline, job.outputs.off_at.map(|off| off + takes), "each boot has its own time");
                self.registers(world).await;
            }
        };
        world.drive(job, crash, comes).await
    }

    /// `lattice node reboot`.
    async fn reboot(&self, world: &World) -> JobId {
        let node = world.node(self.node).await;
        let (health, site) = (Health::NotReported, &world.site);
        let known = Known { node: &node, job: None, health, live_allocations: 0, site, placed: &[], has_bmc: false };
        let planned = reboot(&known, &world.request(), None).unwrap();
        world.commit(planned.commit.changes, planned.commit.guards).await;
        planned.job.unwrap()
    }
}

fn starts(world: &World) -> usize {
    world.fake.effects().iter().filter(|effect| effect.call == FakeCall::Start).count()
}

fn sku() -> Sku {
    Sku {
        name: "any".to_owned(),
        gpus: 2,
        gpu_vendor: None,
        gpu_model: None,
        nics: Vec::new(),
        disks: Vec::new(),
        created_at: harness::START,
        updated_at: harness::START,
        generation: Generation::FIRST,
    }
}

async fn told(world: &World, name: &str) -> usize {
    let events = world.store.events(EventSeq(0), &EventFilter::default(), 10_000).await.unwrap();
    events.iter().filter(|event| event.row.name == name).count()
}

async fn world() -> World {
    let world = World::lxd().await;
    world.commit(vec![Change::Sku(sku())], vec![]).await;
    world
}

#[tokio::test]
async fn an_ill_boot_that_nobody_asked_for_is_tried_again_until_it_is_well_wherever_the_server_dies() {
    let run = async |crash: CrashPlan| {
        let world = world().await;
        let host = Host::onboarded(&world, &[false, false]).await;
        host.fails(&world).await;
        host.registers(&world).await;
        let job = world.store.live_job(host.node).await.unwrap().expect("it is booted again");
        assert!(job.reason.starts_with("boot 1 of 3 came up ill: "), "{}", job.reason);
        assert_eq!(world.store.taken_at(world.site.id).await.unwrap(), (1, 0), "it was out already");
        let driven = host.drive(&world, job.id, crash).await;
        assert_eq!(driven.job.state.status, JobStatus::Completed, "{:?}", driven.job.state);
        let node = world.node(host.node).await;
        assert_eq!((node.state, node.boot_failures, node.owning_job), (READY, 0, None));
        assert_eq!(starts(&world) - host.started, 2, "boot 2 was ill, boot 3 is well");
        assert_eq!(told(&world, "node.alert.raised").await, 0, "it did not fail");
        driven
    };
    let places = run(CrashPlan::never()).await.places;
    for place in 0..places {
        assert_eq!(run(CrashPlan::at(place)).await.crashes, 1, "place {place} of {places}");
    }
    assert!(places >= 8, "{places}");
}

#[tokio::test]
async fn a_reboot_whose_host_comes_up_ill_three_times_fails_its_node_once_and_boots_it_no_more() {
    let run = async |crash: CrashPlan| {
        let world = world().await;
        let host = Host::onboarded(&world, &[true, false, false, false]).await;
        host.fails(&world).await;
        let job = host.reboot(&world).await;
        let driven = host.drive(&world, job, crash).await;
        let failure = driven.job.state.failure.clone().expect("it failed");
        assert_eq!((failure.error_code.as_str(), failure.stage), ("boots_failed", StageName::WaitForBoot));
        assert_eq!(driven.job.state.status, JobStatus::FailedManualIntervention);
        let node = world.node(host.node).await;
        assert_eq!((node.state, node.boot_failures), (FAILED, BOOT_FAILURES));
        assert_eq!(starts(&world) - host.started, BOOT_FAILURES as usize);
        assert_eq!(told(&world, "node.alert.raised").await, 1, "of the third one");
        assert_eq!(told(&world, "node.boot_not_repeated").await, 0);
        driven
    };
    let places = run(CrashPlan::never()).await.places;
    for place in 0..places {
        assert_eq!(run(CrashPlan::at(place)).await.crashes, 1, "place {place} of {places}");
    }
}
