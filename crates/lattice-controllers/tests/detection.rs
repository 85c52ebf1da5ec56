//! Ready → Degraded → Down → registered again → Ready, over the real store, for all three classes, at S1's times.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use lattice_controllers::{Detector, Fleet, expire_bootstraps};
use lattice_core::actor::Actor;
use lattice_core::change::{Change, NodeAction, NodeChange, Outcome};
use lattice_core::command::{Request, agent};
use lattice_core::credential::EnrollmentToken;
use lattice_core::heartbeat::{Beat, Registry, Vitals};
use lattice_core::ids::{
    CorrelationId, EventSeq, Generation, IdSource, NodeId, OpId, SessionId, SiteId, TokenId, uuid_v7,
};
use lattice_core::node::availability::AvailabilityEvent;
use lattice_core::node::class::{HeartbeatPolicy, SilenceTimes};
use lattice_core::node::machine::{Facts, NodeEvent, decide};
use lattice_core::node::status::Owner;
use lattice_core::node::{Availability, DownCause, HostFacts, Node, NodeClass, NodeState, OnboardingMode, Status};
use lattice_core::sku::Sku;
use lattice_core::time::Timestamp;
use lattice_store::{EventFilter, PageRequest, Store, StoreConfig};

const START: Timestamp = Timestamp::from_millis(1_700_000_000_000);
const VITALS: Vitals =
    Vitals { ecc_uncorrected: 0, allocations: 0, issue: 0, gpu_count: 0, max_temperature_c: i16::MIN };

#[derive(Default)]
struct Counter(AtomicU64);

impl IdSource for Counter {
    fn uuid(&self, at: Timestamp) -> uuid::Uuid {
        let mut random = [0; 10];
        random[2..].copy_from_slice(&self.0.fetch_add(1, Ordering::Relaxed).to_be_bytes());
        uuid_v7(at, random)
    }
}

struct World {
    store: Store,
    fleet: Arc<Fleet>,
    detector: Detector,
    ids: Arc<Counter>,
}

impl World {
    async fn new() -> Self {
        let store = Store::open(StoreConfig::memory()).await.expect("a store in memory");
        let fleet = Arc::new(Fleet::new(store.clone(), Arc::new(Registry::new())));
        let ids = Arc::new(Counter::default());
        let detector = Detector::new(store.clone(), Arc::clone(&fleet), ids.clone());
        Self { store, fleet, detector, ids }
    }

    fn request(&self, now: Timestamp) -> Request<'_> {
        Request {
            actor: Actor::system("test"),
            reason: String::new(),
            now,
            ids: &*self.ids,
            op: OpId::generate(&*self.ids, now),
            correlation: CorrelationId::generate(&*self.ids, now),
        }
    }

    async fn add(&self, class: NodeClass, state: NodeState) -> NodeId {
        let id = NodeId::generate(&*self.ids, START);
        let node = Node {
            id,
            hostname: format!("n{}", self.ids.0.load(Ordering::Relaxed)),
            site: SiteId::new(uuid_v7(START, [7; 10])),
            sku: "any".into(),
            class,
            mode: OnboardingMode::Manual,
            state,
            status_since: START,
            availability_since: START,
            down_cause: None,
            deadline: (state.availability == Availability::Booting).then(|| START + Duration::from_secs(600)),
            boot_failures: 0,
            drain_intent: false,
            minor_issue: None,
            identity_epoch: 1,
            boot_id: None,
            agent_version: None,
            fingerprint: None,
            deviates_since: None,
            labels: lattice_core::node::Labels::new(),
            address: None,
            bmc_address: None,
            provider_ref: None,
            owning_job: None,
            holds: Vec::new(),
            ownership: lattice_core::allocation::Ownership::default(),
            created_at: START,
            updated_at: START,
            generation: Generation::FIRST,
        };
        let change = NodeChange {
            after: node,
            before: None,
            action: NodeAction::Created,
            cause: "test".into(),
            detail: String::new(),
        };
        let commit = self.request(START).commit(Vec::new(), vec![Change::Node(Box::new(change))]);
        let outcome = self.store.commit_one(commit).await.expect("committed");
        assert!(matches!(outcome, Outcome::Applied { .. }), "{outcome:?}");
        id
    }

    async fn state(&self, id: NodeId) -> NodeState {
        self.node(id).await.state
    }

    async fn node(&self, id: NodeId) -> Node {
        self.store.node(id).await.expect("readable").expect("there")
    }

    async fn tick(&self, at: Timestamp) {
        self.detector.tick(at, None).await.expect("ticked");
    }

    async fn register(&self, id: NodeId, now: Timestamp) {
        let node = self.node(id).await;
        let sku = Sku {
            name: "any".into(),
            gpus: 0,
            gpu_vendor: None,
            gpu_model: None,
            nics: Vec::new(),
            disks: Vec::new(),
            created_at: START,
            updated_at: START,
            generation: Generation::FIRST,
        };
        let facts = HostFacts::default();
        let registration = agent::Registration {
            facts: &facts,
            fingerprint: "f",
            boot_id: "b",
            agent_version: "1",
            ecc_uncorrected: 0,
            minor_issue: None,
            address: None,
        };
        let chained = agent::registered(&self.request(now), &node, &sku, &registration, Duration::from_secs(600));
        self.store.commit(chained.commits).await.expect("committed");
        let handle = self.fleet.registry().handle(id).expect("admitted");
        handle.open_session(SessionId::new(uuid_v7(now, [1; 10])), VITALS, now).expect("opened");
        self.fleet.sync(&self.node(id).await, now);
    }
}

#[tokio::test]
async fn a_node_that_was_reset_is_heard_again_once_its_agent_registered() {
    let world = World::new().await;
    let id = world.add(NodeClass::Standard, NodeState::new(Status::Offline, Availability::Failed)).await;
    world.fleet.load(START).await.expect("loaded");
    let handle = world.fleet.registry().handle(id).expect("admitted");
    handle.open_session(SessionId::new(uuid_v7(START, [1; 10])), VITALS, START).expect("opened");
    assert!(world.fleet.registry().vitals_now(id).is_some(), "its agent is heard, and nothing comes of it");
    let node = world.node(id).await;
    let facts = Facts::of(Owner::Operator, Actor::system("test"));
    let moved = decide(&node, NodeEvent::Availability(AvailabilityEvent::Reset), &facts, START).expect("it failed");
    let commit = world.request(START).commit(Vec::new(), vec![Change::Node(Box::new(moved.change))]);
    world.store.commit_one(commit).await.expect("committed");
    world.fleet.sync(&world.node(id).await, START);
    assert!(world.fleet.registry().vitals_now(id).is_none(), "it is told to register");
    world.register(id, START).await;
    assert_eq!(world.state(id).await, READY);
    assert!(world.fleet.registry().vitals_now(id).is_some());
}

const READY: NodeState = NodeState::new(Status::Active, Availability::Ready);

fn after(secs: u64) -> Timestamp {
    START + Duration::from_secs(secs)
}

#[tokio::test]
async fn silence_degrades_then_downs_each_class_at_its_own_time() {
    // Class, degraded after, down after; in seconds. spec: S1 "Timeouts"
    let rows = [(NodeClass::Standard, 30, 90), (NodeClass::Sensitive, 120, 420), (NodeClass::Borrowed, 30, 60)];
    for (class, degraded, down) in rows {
        let world = World::new().await;
        let id = world.add(class, READY).await;
        world.fleet.load(START).await.expect("loaded");
        let expect = [
            (degraded - 1, Status::Active, Availability::Ready),
            (degraded, Status::Active, Availability::Degraded),
            (down - 1, Status::Active, Availability::Degraded),
            (down, Status::Offline, Availability::Down),
        ];
        for (secs, status, availability) in expect {
            world.tick(after(secs)).await;
            assert_eq!(world.state(id).await, NodeState::new(status, availability), "{class} after {secs} s");
        }
        let node = world.node(id).await;
        assert_eq!(node.down_cause, Some(DownCause::HeartbeatLost));
        let history = world.store.history(id, &PageRequest::first(10)).await.expect("readable").items;
        assert_eq!(history.len(), 3, "created, degraded, down: {history:?}");
        let events = world.store.events(EventSeq(0), &EventFilter::default(), 100).await.expect("readable");
        assert!(events.iter().any(|event| event.row.name == "node.alert.raised"), "{events:?}");
    }
}

#[tokio::test]
async fn a_node_that_is_heard_within_its_grace_is_ready_again_without_an_alert() {
    let world = World::new().await;
    let id = world.add(NodeClass::Standard, READY).await;
    world.fleet.load(START).await.expect("loaded");
    world.tick(after(30)).await;
    assert_eq!(world.state(id).await.availability, Availability::Degraded);
    let session = SessionId::new(uuid_v7(START, [1; 10]));
    let handle = world.fleet.registry().handle(id).expect("admitted");
    handle.open_session(session, VITALS, after(40)).expect("opened");
    let heard = handle.beat(&Beat { session, sequence: 1, vitals: VITALS }, after(41)).expect("accepted");
    assert!(heard.returned, "the detector asked to be told");
    let beat = agent::Heartbeat { sku: None, gpu_count: 0, ecc_uncorrected: 0, minor_issue: None, fingerprint: None };
    let chained = agent::heard(&world.request(after(41)), &world.node(id).await, &beat);
    world.store.commit(chained.commits).await.expect("committed");
    assert_eq!(world.state(id).await, READY);
    let events = world.store.events(EventSeq(0), &EventFilter::default(), 100).await.expect("readable");
    assert!(!events.iter().any(|event| event.row.name == "node.alert.raised"));
}

#[tokio::test]
async fn a_node_that_was_down_registers_again_before_it_is_ready() {
    let world = World::new().await;
    let id = world.add(NodeClass::Standard, READY).await;
    world.fleet.load(START).await.expect("loaded");
    let session = SessionId::new(uuid_v7(START, [1; 10]));
    let handle = world.fleet.registry().handle(id).expect("admitted");
    handle.open_session(session, VITALS, START).expect("opened");
    world.tick(after(30)).await;
    world.tick(after(90)).await;
    assert_eq!(world.state(id).await, NodeState::new(Status::Offline, Availability::Down));
    let refused = handle.beat(&Beat { session, sequence: 1, vitals: VITALS }, after(91));
    assert!(refused.is_err(), "its session ended when it went down");
    world.register(id, after(92)).await;
    assert_eq!(world.state(id).await, READY);
}

#[tokio::test]
async fn a_fleet_larger_than_one_batch_is_judged_whole_in_one_tick() {
    const NODES: u64 = 4_500;
    let world = World::new().await;
    for _ in 0..NODES {
        world.add(NodeClass::Standard, NodeState::new(Status::Active, Availability::Ready)).await;
    }
    world.fleet.load(START).await.expect("loaded");
    let degraded = world.detector.tick(after(30), None).await.expect("ticked");
    assert_eq!(degraded.applied.values().sum::<u64>(), NODES);
    let down = world.detector.tick(after(90), None).await.expect("ticked");
    assert_eq!((down.applied.values().sum::<u64>(), down.lost_races), (NODES, 0));
    let counts = world.store.node_counts().await.expect("counted");
    assert!(counts.iter().all(|count| count.state.availability == Availability::Down), "{counts:?}");
}

#[tokio::test]
async fn a_start_never_makes_a_node_down() {
    let world = World::new().await;
    let id = world.add(NodeClass::Standard, READY).await;
    // The server was away for an hour.
    world.fleet.load(after(3_600)).await.expect("loaded");
    world.tick(after(3_629)).await;
    assert_eq!(world.state(id).await, READY);
    world.tick(after(3_630)).await;
    assert_eq!(world.state(id).await.availability, Availability::Degraded);
}

#[tokio::test]
async fn a_boot_that_takes_too_long_fails() {
    let world = World::new().await;
    let id = world.add(NodeClass::Standard, NodeState::new(Status::Active, Availability::Booting)).await;
    world.fleet.load(START).await.expect("loaded");
    world.tick(after(599)).await;
    assert_eq!(world.state(id).await.availability, Availability::Booting);
    world.tick(after(600)).await;
    assert_eq!(world.state(id).await, NodeState::new(Status::Offline, Availability::Failed));
}

/// Its host may have come up meanwhile, and its agent had nobody to register with.
#[tokio::test]
async fn a_boot_whose_time_ended_while_no_server_listened_fails_once_agents_could_have_come_back() {
    let world = World::new().await;
    let id = world.add(NodeClass::Standard, NodeState::new(Status::Active, Availability::Booting)).await;
    world.fleet.load(after(3_600)).await.expect("loaded");
    world.tick(after(3_614)).await;
    assert_eq!(world.state(id).await.availability, Availability::Booting);
    assert_eq!(world.fleet.registry().listens(after(3_614)), None);
    assert_eq!(world.fleet.registry().listens(after(3_700)), Some(86_000), "and it stood still");
    world.tick(after(3_714)).await;
    assert_eq!(world.state(id).await.availability, Availability::Booting);
    world.tick(after(3_715)).await;
    assert_eq!(world.state(id).await.availability, Availability::Failed);
}

/// The agent still beats every ten seconds: it is told of the new pace when it does.
#[tokio::test]
async fn shorter_times_take_nobody_down_before_its_agent_could_learn_of_them() {
    let world = World::new().await;
    let site = lattice_core::site::Site {
        id: SiteId::new(uuid_v7(START, [7; 10])),
        name: "dc1".into(),
        region_code: "lab".into(),
        provider: lattice_core::site::SiteProvider::Manual,
        heartbeat: HeartbeatPolicy::default(),
        bmc: lattice_core::bmc::BmcPolicy::default(),
        sensitive: lattice_core::site::SensitivePolicy::default(),
        automation: lattice_core::site::AutomationPolicy::default(),
        brake: None,
        let_go_at: None,
        approved: Vec::new(),
        status: lattice_core::site::SiteStatus::Active,
        created_at: START,
        updated_at: START,
        generation: Generation::FIRST,
    };
    let put = |site: &lattice_core::site::Site| {
        let change = Change::Site(Box::new(site.clone()));
        world.store.commit_one(world.request(START).commit(Vec::new(), vec![change]))
    };
    put(&site).await.expect("committed");
    let id = world.add(NodeClass::Standard, READY).await;
    assert_eq!(world.node(id).await.site, site.id);
    world.fleet.load(START).await.expect("loaded");
    let seen = world.store.last_event().await.expect("readable");
    let second = SilenceTimes { window_ms: 1_000, grace_ms: 1_000 };
    let heartbeat = HeartbeatPolicy { interval_ms: 250, standard: second, ..HeartbeatPolicy::default() };
    put(&lattice_core::site::Site { heartbeat, generation: Generation(2), ..site }).await.expect("committed");
    let events = world.store.events(seen, &EventFilter::default(), 100).await.expect("readable");
    world.fleet.take_in(&events, after(5)).await.expect("taken in");
    world.tick(after(15)).await;
    assert_eq!(world.state(id).await, READY, "its next heartbeat may come as late as that");
    world.tick(after(17)).await;
    assert_eq!(world.state(id).await.availability, Availability::Degraded);
}

#[tokio::test]
async fn changes_made_elsewhere_reach_the_detector_through_the_feed() {
    let world = World::new().await;
    world.fleet.load(START).await.expect("loaded");
    let id = world.add(NodeClass::Standard, READY).await;
    let events = world.store.events(EventSeq(0), &EventFilter::default(), 100).await.expect("readable");
    world.fleet.take_in(&events, START).await.expect("taken in");
    world.tick(after(30)).await;
    assert_eq!(world.state(id).await.availability, Availability::Degraded);
}

#[tokio::test]
async fn a_bootstrap_that_nobody_used_in_time_is_withdrawn() {
    let world = World::new().await;
    let id = world.add(NodeClass::Standard, NodeState::new(Status::BootstrapIssued, Availability::Unknown)).await;
    let token = EnrollmentToken {
        id: TokenId::generate(&*world.ids, START),
        node: id,
        job: None,
        hash: "h".into(),
        issued_at: START,
        expires_at: after(60),
        used_at: None,
        key_hash: None,
        refreshes: 0,
        revoked_at: None,
        generation: Generation::FIRST,
    };
    let commit = world.request(START).commit(Vec::new(), vec![Change::EnrollmentToken(token)]);
    world.store.commit_one(commit).await.expect("committed");
    assert_eq!(expire_bootstraps(&world.store, &*world.ids, after(59)).await.expect("ran"), 0);
    assert_eq!(expire_bootstraps(&world.store, &*world.ids, after(60)).await.expect("ran"), 1);
    assert_eq!(world.state(id).await.status, Status::Deleted);
}
