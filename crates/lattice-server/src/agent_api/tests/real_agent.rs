//! The agent's own code against the listener, over real TLS.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use lattice_agent::{AgentConfig, AgentError, AgentState, Host, Item, Loaded, Pace, Storage};
use lattice_api::agent::{HealthSummary, HeartbeatConfig};
use lattice_core::heartbeat::registry::Watch;
use lattice_core::ids::NodeId;
use lattice_core::node::{GpuFact, HostFacts};
use lattice_core::secret::Secret;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::PATIENCE;
use super::fixture::{Fixture, LIFE};
use crate::agent_api::{AgentPolicy, Limits};

/// Heartbeats as fast as a test wants to see them, parked like real ones.
const FAST: AgentPolicy = AgentPolicy { heartbeat: HeartbeatConfig { interval_ms: 10, wait_ms: 5 } };
/// Every heartbeat of the node comes to the events.
const REPORT_ALL: Watch = Watch { silence: None, report_return: true };

struct QuietHost;

#[async_trait]
impl Host for QuietHost {
    async fn boot_id(&self) -> std::io::Result<String> {
        Ok("boot-1".into())
    }
    async fn facts(&self) -> HostFacts {
        HostFacts { kernel: "6.8.0".into(), ..HostFacts::default() }
    }
    async fn health(&self) -> HealthSummary {
        HealthSummary::default()
    }
}

/// The driver of its GPU comes up after the agent looked first.
#[derive(Default)]
struct SlowHost {
    looks: AtomicUsize,
    /// It is not up yet, however often it is looked for.
    late: AtomicBool,
}

#[async_trait]
impl Host for SlowHost {
    async fn boot_id(&self) -> std::io::Result<String> {
        Ok("boot-1".into())
    }
    async fn facts(&self) -> HostFacts {
        let gpu = GpuFact { address: "0000:05:00.0".into(), vendor: "amd".into(), model: "MI300X".into() };
        let is_late = self.looks.fetch_add(1, Ordering::SeqCst) < 2 || self.late.load(Ordering::SeqCst);
        let gpus = if is_late { Vec::new() } else { vec![gpu] };
        HostFacts { gpus, ..HostFacts::default() }
    }
    async fn health(&self) -> HealthSummary {
        HealthSummary::default()
    }
}

struct RunningAgent {
    node: NodeId,
    storage: Storage,
    shutdown: CancellationToken,
    task: JoinHandle<Result<(), AgentError>>,
}

impl RunningAgent {
    fn start(fixture: &Fixture, node: NodeId, storage: Storage) -> Self {
        Self::start_on(Arc::new(QuietHost), Pace::default(), fixture, node, storage)
    }

    fn start_on(host: Arc<dyn Host>, pace: Pace, fixture: &Fixture, node: NodeId, storage: Storage) -> Self {
        let config = AgentConfig {
            bootstrap: fixture.bootstrap(node),
            version: "0.1.0".into(),
            storage: storage.clone(),
            pace: Pace { backoff_base: Duration::from_millis(5), ..pace },
        };
        let shutdown = CancellationToken::new();
        let task = tokio::spawn(lattice_agent::run(config, host, fixture.clock.clone(), shutdown.clone()));
        Self { node, storage, shutdown, task }
    }

    async fn stop(self) -> Result<(), AgentError> {
        self.shutdown.cancel();
        tokio::time::timeout(PATIENCE, self.task).await.expect("it stops").unwrap()
    }

    async fn end(self) -> AgentError {
        tokio::time::timeout(PATIENCE, self.task).await.expect("it ends by itself").unwrap().unwrap_err()
    }
}

async fn until(what: &str, condition: impl Fn() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    let mut ticks = tokio::time::interval(Duration::from_millis(2));
    while !condition() {
        assert!(Instant::now() < deadline, "{what} did not happen");
        ticks.tick().await;
    }
}

async fn registered(fixture: &Fixture, times: usize) {
    until("a registration", || fixture.events.registrations.lock().unwrap().len() >= times).await;
}

/// Waits until `more` further heartbeats of `node` came in.
async fn heard(fixture: &Fixture, node: NodeId, more: usize) {
    let count = || fixture.events.reports.lock().unwrap().iter().filter(|report| report.node == node).count();
    let (before, _) = (count(), fixture.registry.watch(node, REPORT_ALL));
    until("a heartbeat", || count() >= before + more).await;
}

#[tokio::test]
async fn an_agent_enrols_registers_and_beats_and_goes_on_after_its_restart() {
    let fixture = Fixture::start_with(Limits::default(), FAST);
    let node = fixture.new_node();
    let agent = RunningAgent::start(&fixture, node, Storage::memory());
    registered(&fixture, 1).await;
    heard(&fixture, node, 3).await;
    let storage = agent.storage.clone();
    agent.stop().await.unwrap();
    let Loaded::Whole(state) = AgentState::load(&storage).await.unwrap() else { panic!("it wrote no state") };
    assert_eq!((state.node_id, state.boot_id.as_str()), (node, "boot-1"));
    assert_eq!(storage.read(Item::PendingKey).await.unwrap(), None);
    let identity = storage.read(Item::Identity).await.unwrap();

    let agent = RunningAgent::start(&fixture, node, storage);
    registered(&fixture, 2).await;
    heard(&fixture, node, 2).await;
    assert_eq!(agent.storage.read(Item::Identity).await.unwrap(), identity, "it did not enrol again");
    let registrations = fixture.events.registrations.lock().unwrap().clone();
    assert_ne!(registrations[0].session, registrations[1].session);
    assert_eq!(registrations[0].request.fingerprint.len(), 64);
    agent.stop().await.unwrap();
}

#[tokio::test]
async fn what_comes_up_after_the_agent_is_registered() {
    let fixture = Fixture::start_with(Limits::default(), FAST);
    let node = fixture.new_node();
    let pace = Pace { inspect_first: Duration::from_millis(5), ..Pace::default() };
    let agent = RunningAgent::start_on(Arc::<SlowHost>::default(), pace, &fixture, node, Storage::memory());
    registered(&fixture, 2).await;
    heard(&fixture, node, 3).await;
    let registrations = fixture.events.registrations.lock().unwrap().clone();
    let gpus: Vec<usize> = registrations.iter().map(|one| one.request.facts.gpus.len()).collect();
    assert_eq!(gpus, [0, 1], "looks that find nothing new register nothing");
    agent.stop().await.unwrap();
}

/// Whoever mends a host does so while it is empty: what changed is known before it is given back.
#[tokio::test]
async fn what_changes_on_an_empty_host_is_registered_long_before_the_next_usual_look() {
    let fixture = Fixture::start_with(Limits::default(), FAST);
    let node = fixture.new_node();
    let hour = Duration::from_secs(3_600);
    let pace = Pace { inspect_first: hour, inspect_idle: Duration::from_millis(5), ..Pace::default() };
    let host = Arc::<SlowHost>::default();
    host.late.store(true, Ordering::SeqCst);
    let agent = RunningAgent::start_on(host.clone(), pace, &fixture, node, Storage::memory());
    registered(&fixture, 1).await;
    host.late.store(false, Ordering::SeqCst);
    registered(&fixture, 2).await;
    heard(&fixture, node, 3).await;
    let registrations = fixture.events.registrations.lock().unwrap().clone();
    let gpus: Vec<usize> = registrations.iter().map(|one| one.request.facts.gpus.len()).collect();
    assert_eq!((gpus[0], gpus.last()), (0, Some(&1)));
    let told = |report: &crate::agent_api::Report| report.fingerprint.is_some();
    assert!(!fixture.events.reports.lock().unwrap().iter().any(told), "and tell nothing");
    agent.stop().await.unwrap();
}

#[tokio::test]
async fn agents_come_back_after_a_restart_of_the_server_and_register_again() {
    let fixture = Fixture::start_with(Limits::default(), FAST);
    let nodes: Vec<_> = (0..20).map(|_| fixture.new_node()).collect();
    let agents: Vec<_> = nodes.iter().map(|node| RunningAgent::start(&fixture, *node, Storage::memory())).collect();
    registered(&fixture, nodes.len()).await;
    let fixture = fixture.restart(Limits::default(), FAST).await;
    for node in &nodes {
        fixture.registry.admit(*node, 1, super::T0);
    }
    registered(&fixture, nodes.len()).await;
    for agent in agents {
        heard(&fixture, agent.node, 2).await;
        agent.stop().await.unwrap();
    }
}

#[tokio::test]
async fn an_agent_goes_to_the_server_that_hears_and_back_when_that_one_is_gone() {
    let first = Fixture::start_with(Limits::default(), FAST);
    let second = first.beside(FAST);
    let node = first.new_node();
    first.stands_by(Some(&second));
    second.registry.admit(node, 1, super::T0);
    let agent = RunningAgent::start(&first, node, Storage::memory());
    registered(&second, 1).await;
    heard(&second, node, 3).await;
    assert!(first.events.registrations.lock().unwrap().is_empty(), "it was told where to go before it enrolled");
    // They change places: the agent hears it from the one that it talks to.
    first.registry.stand_by(false);
    first.registry.admit(node, 1, super::T0);
    second.stands_by(Some(&first));
    registered(&first, 1).await;
    heard(&first, node, 3).await;
    // One that does not know where agents are heard sends them back to where they came from.
    first.stands_by(Some(&second));
    second.registry.stand_by(false);
    registered(&second, 2).await;
    first.registry.stand_by(false);
    second.stands_by(None);
    registered(&first, 2).await;
    // One that is gone says nothing.
    first.stands_by(Some(&second));
    second.registry.stand_by(false);
    registered(&second, 3).await;
    first.registry.stand_by(false);
    second.listener.drain().await;
    registered(&first, 3).await;
    heard(&first, node, 2).await;
    agent.stop().await.unwrap();
}

#[tokio::test]
async fn a_certificate_is_renewed_in_time_and_heartbeats_go_on() {
    let fixture = Fixture::start_with(Limits::default(), FAST);
    let node = fixture.new_node();
    let agent = RunningAgent::start(&fixture, node, Storage::memory());
    registered(&fixture, 1).await;
    let first = agent.storage.read(Item::Identity).await.unwrap();
    for _ in 0..4 {
        fixture.clock.advance(LIFE * 3 / 4);
        let identity = agent.storage.read(Item::Identity).await.unwrap();
        let storage = agent.storage.clone();
        let deadline = Instant::now() + PATIENCE;
        while storage.read(Item::Identity).await.unwrap() == identity {
            assert!(Instant::now() < deadline, "not renewed");
            heard(&fixture, node, 1).await;
        }
        heard(&fixture, node, 2).await;
    }
    assert_ne!(agent.storage.read(Item::Identity).await.unwrap(), first);
    assert_eq!(fixture.events.registrations.lock().unwrap().len(), 1, "the session outlives its connections");
    agent.stop().await.unwrap();
}

#[tokio::test]
async fn connections_are_replaced_without_a_gap() {
    let limits = Limits {
        connection_life: Duration::from_millis(50),
        connection_life_jitter: Duration::ZERO,
        ..Limits::default()
    };
    let fixture = Fixture::start_with(limits, FAST);
    let node = fixture.new_node();
    let agent = RunningAgent::start(&fixture, node, Storage::memory());
    registered(&fixture, 1).await;
    heard(&fixture, node, 40).await;
    assert_eq!(fixture.events.registrations.lock().unwrap().len(), 1);
    agent.stop().await.unwrap();
}

#[tokio::test]
async fn a_revoked_agent_stops_and_says_so() {
    let fixture = Fixture::start_with(Limits::default(), FAST);
    let node = fixture.new_node();
    let agent = RunningAgent::start(&fixture, node, Storage::memory());
    registered(&fixture, 1).await;
    fixture.registry.revoke_before(node, 2);
    let error = agent.end().await;
    assert!(matches!(&error, AgentError::IdentityRefused(_)), "{error}");
}

#[tokio::test]
async fn a_session_that_the_server_ended_is_opened_again() {
    let fixture = Fixture::start_with(Limits::default(), FAST);
    let node = fixture.new_node();
    let agent = RunningAgent::start(&fixture, node, Storage::memory());
    registered(&fixture, 1).await;
    assert!(fixture.registry.end_session(node));
    registered(&fixture, 2).await;
    heard(&fixture, node, 2).await;
    agent.stop().await.unwrap();
}

#[tokio::test]
async fn a_used_token_stops_the_agent_of_a_second_host() {
    let fixture = Fixture::start_with(Limits::default(), FAST);
    let node = fixture.new_node();
    let agent = RunningAgent::start(&fixture, node, Storage::memory());
    registered(&fixture, 1).await;
    let error = RunningAgent::start(&fixture, node, Storage::memory()).end().await;
    assert!(matches!(&error, AgentError::EnrolmentRefused(_)), "{error}");
    agent.stop().await.unwrap();
}

#[tokio::test]
async fn an_identity_that_expired_while_the_host_was_off_ends_with_the_tokens_refusal() {
    let fixture = Fixture::start_with(Limits::default(), FAST);
    let node = fixture.new_node();
    let agent = RunningAgent::start(&fixture, node, Storage::memory());
    registered(&fixture, 1).await;
    let storage = agent.storage.clone();
    agent.stop().await.unwrap();
    fixture.clock.advance(LIFE + Duration::from_secs(1));
    let error = RunningAgent::start(&fixture, node, storage).end().await;
    assert!(matches!(&error, AgentError::EnrolmentRefused(_)), "{error}");
}

#[tokio::test]
async fn a_server_with_another_authority_is_never_given_the_token() {
    let fixture = Fixture::start_with(Limits::default(), FAST);
    let mut bootstrap = fixture.bootstrap(fixture.new_node());
    bootstrap.ca_pem = super::new_ca().certificate_pem;
    bootstrap.token = Secret::new("lat_enroll_hush".into());
    let config = AgentConfig { bootstrap, version: "0.1.0".into(), storage: Storage::memory(), pace: Pace::default() };
    let run = lattice_agent::run(config, Arc::new(QuietHost), fixture.clock.clone(), CancellationToken::new());
    assert!(tokio::time::timeout(Duration::from_millis(200), run).await.is_err(), "it goes on trying");
    assert!(fixture.registry.is_empty());
}
