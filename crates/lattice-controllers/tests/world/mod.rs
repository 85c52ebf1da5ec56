//! A store with a site, its nodes, what is asked of them, and agents that answer.
#![allow(dead_code, reason = "each test uses a part of it")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use lattice_controllers::{Allocator, Detector, Fleet};
use lattice_core::actor::Actor;
use lattice_core::agent::task::{
    CheckpointHow, CheckpointResult, Limits, Progress, StopResult, Task, TaskInput, TaskOutput, TaskReport,
};
use lattice_core::allocation::{Allocation, AllocationStatus, Ownership, RequeuePolicy, Wanted, Workload};
use lattice_core::change::{Change, NodeAction, NodeChange, Outcome};
use lattice_core::command::allocation::{self, NewAllocation};
use lattice_core::command::{Request, task};
use lattice_core::heartbeat::Registry;
use lattice_core::ids::{AllocationId, CorrelationId, EventSeq, Generation, IdSource, NodeId, OpId, SiteId, uuid_v7};
use lattice_core::node::class::HeartbeatPolicy;
use lattice_core::node::{Availability, Node, NodeClass, NodeState, OnboardingMode, Status};
use lattice_core::site::{Site, SiteProvider, SiteStatus};
use lattice_core::sku::Sku;
use lattice_core::time::Timestamp;
use lattice_store::{EventFilter, Store, StoreConfig};

pub const START: Timestamp = Timestamp::from_millis(1_700_000_000_000);

pub fn at(seconds: u64) -> Timestamp {
    START + Duration::from_secs(seconds)
}

#[derive(Default)]
pub struct Counter(pub AtomicU64);

impl IdSource for Counter {
    fn uuid(&self, at: Timestamp) -> uuid::Uuid {
        let mut random = [0; 10];
        random[2..].copy_from_slice(&self.0.fetch_add(1, Ordering::Relaxed).to_be_bytes());
        uuid_v7(at, random)
    }
}

pub struct World {
    pub store: Store,
    pub fleet: Arc<Fleet>,
    pub detector: Detector,
    pub allocator: Allocator,
    pub ids: Arc<Counter>,
    pub site: Site,
}

impl World {
    pub async fn new() -> Self {
        let store = Store::open(StoreConfig::memory()).await.unwrap();
        let registry = Arc::new(Registry::new());
        let fleet = Arc::new(Fleet::new(store.clone(), Arc::clone(&registry)));
        let ids = Arc::new(Counter::default());
        let detector = Detector::new(store.clone(), Arc::clone(&fleet), ids.clone());
        let nonces = Arc::new(AtomicU64::new(0));
        let nonce = move || u128::from(nonces.fetch_add(1, Ordering::Relaxed)).to_be_bytes();
        let allocator = Allocator::new(store.clone(), registry, ids.clone(), Arc::new(nonce));
        let site = Site {
            id: SiteId::new(uuid_v7(START, [7; 10])),
            name: "dc1".into(),
            region_code: "lab".into(),
            provider: SiteProvider::Manual,
            heartbeat: HeartbeatPolicy::default(),
            bmc: lattice_core::bmc::BmcPolicy::default(),
            sensitive: lattice_core::site::SensitivePolicy::default(),
            automation: lattice_core::site::AutomationPolicy::default(),
            brake: None,
            let_go_at: None,
            approved: Vec::new(),
            status: SiteStatus::Active,
            created_at: START,
            updated_at: START,
            generation: Generation::FIRST,
        };
        let sku = Sku {
            name: "mi300x.192g.8gpu".into(),
            gpus: 8,
            gpu_vendor: None,
            gpu_model: None,
            nics: Vec::new(),
            disks: Vec::new(),
            created_at: START,
            updated_at: START,
            generation: Generation::FIRST,
        };
        let world = Self { store, fleet, detector, allocator, ids, site };
        world.commit(vec![Change::Site(Box::new(world.site.clone())), Change::Sku(sku)], START).await;
        world.fleet.load(START).await.unwrap();
        world
    }

    pub fn request(&self, now: Timestamp) -> Request<'_> {
        Request {
            actor: Actor::system("test"),
            reason: String::new(),
            now,
            ids: &*self.ids,
            op: OpId::generate(&*self.ids, now),
            correlation: CorrelationId::generate(&*self.ids, now),
        }
    }

    pub async fn commit(&self, changes: Vec<Change>, now: Timestamp) {
        let outcome = self.store.commit_one(self.request(now).commit(Vec::new(), changes)).await.unwrap();
        assert!(matches!(outcome, Outcome::Applied { .. }), "{outcome:?}");
    }

    pub async fn change(&self, id: NodeId, change: impl FnOnce(&mut Node)) {
        let node = self.node(id).await;
        let mut after = node.successor(START);
        change(&mut after);
        let (before, cause, detail) = (Some(node.state), "test".to_owned(), String::new());
        let change = NodeChange { after, before, action: NodeAction::Updated, cause, detail };
        self.commit(vec![Change::Node(Box::new(change))], START).await;
    }

    pub async fn add_nodes(&self, count: usize) -> Vec<NodeId> {
        let mut nodes = Vec::new();
        for index in 0..count {
            let id = NodeId::generate(&*self.ids, START);
            let after = Node {
                id,
                hostname: format!("c{index:02}"),
                site: self.site.id,
                sku: "mi300x.192g.8gpu".into(),
                class: NodeClass::Standard,
                mode: OnboardingMode::Manual,
                state: NodeState::new(Status::Active, Availability::Ready),
                status_since: START,
                availability_since: START,
                down_cause: None,
                deadline: None,
                boot_failures: 0,
                drain_intent: false,
                minor_issue: None,
                identity_epoch: 1,
                boot_id: Some("boot".into()),
                agent_version: None,
                fingerprint: None,
                deviates_since: None,
                labels: lattice_core::node::Labels::new(),
                address: None,
                bmc_address: None,
                provider_ref: None,
                owning_job: None,
                holds: Vec::new(),
                ownership: Ownership::default(),
                created_at: START,
                updated_at: START,
                generation: Generation::FIRST,
            };
            let (action, cause) = (NodeAction::Created, "test".to_owned());
            let change = NodeChange { after, before: None, action, cause, detail: String::new() };
            self.commit(vec![Change::Node(Box::new(change))], START).await;
            nodes.push(id);
        }
        self.fleet.load(START).await.unwrap();
        nodes
    }

    pub async fn ask(&self, user: &str, gpus: u32, change: impl FnOnce(&mut NewAllocation)) -> AllocationId {
        let workload = Workload {
            argv: vec!["/usr/bin/train".into()],
            env: Default::default(),
            directory: None,
            user: None,
            limits: Limits::default(),
            mounts: Vec::new(),
            checkpoint: CheckpointHow::None,
        };
        let mut new = NewAllocation {
            user: user.into(),
            class: NodeClass::Standard,
            wanted: Wanted { gpus, ..Wanted::default() },
            workload,
            requeue: RequeuePolicy::OnNodeFailure,
        };
        change(&mut new);
        let (allocation, commit) = allocation::request(&self.request(START), new).unwrap();
        assert!(matches!(self.store.commit_one(commit).await.unwrap(), Outcome::Applied { .. }));
        allocation.id
    }

    pub async fn allocation(&self, id: AllocationId) -> Allocation {
        self.store.allocation(id).await.unwrap().unwrap()
    }

    pub async fn node(&self, id: NodeId) -> Node {
        self.store.node(id).await.unwrap().unwrap()
    }

    /// The allocator and the detector each have a turn, and the fleet hears what was committed.
    pub async fn tick(&self, now: Timestamp) {
        self.allocator.tick(now).await.unwrap();
        self.detector.tick(now, None).await.unwrap();
        let events = self.store.events(EventSeq(0), &EventFilter::default(), 100_000).await.unwrap();
        self.fleet.take_in(&events, now).await.unwrap();
    }

    /// Agents answer each of their open tasks as `answer` says; none: they stay silent about it.
    pub async fn agents(&self, now: Timestamp, answer: impl Fn(&Task) -> Option<Progress>) {
        for node in self.store.nodes_with_tasks(None).await.unwrap() {
            for one in self.store.open_tasks(node, 100).await.unwrap() {
                let Some(progress) = answer(&one) else { continue };
                let report = TaskReport { task: one.id, at: now, progress };
                if let Some(change) = task::reported(&self.request(now), &one, &report).unwrap() {
                    self.commit(vec![Change::Task(Box::new(change))], now).await;
                }
            }
        }
    }

    pub async fn started(&self, id: AllocationId, now: Timestamp) -> Allocation {
        self.tick(now).await;
        self.agents(now, obedient).await;
        self.tick(now).await;
        let allocation = self.allocation(id).await;
        assert_eq!(allocation.status, AllocationStatus::Active, "{}", allocation.why);
        allocation
    }

    pub async fn names(&self, prefix: &str) -> Vec<String> {
        let events = self.store.events(EventSeq(0), &EventFilter::default(), 100_000).await.unwrap();
        events.into_iter().map(|event| event.row.name).filter(|name| name.starts_with(prefix)).collect()
    }
}

pub fn obedient(task: &Task) -> Option<Progress> {
    let output = match &task.input {
        TaskInput::AllocationStart(_) => {
            TaskOutput::Started { pid: 7, start_ticks: 1, cgroup: "alloc.scope".into(), not_limited: Vec::new() }
        }
        TaskInput::AllocationStop(_) => TaskOutput::Stopped { how: StopResult::Graceful, exit: None },
        TaskInput::AllocationCheckpoint(_) => TaskOutput::Checkpoint { result: CheckpointResult::Done },
        _ => return None,
    };
    Some(Progress::Succeeded { output })
}
