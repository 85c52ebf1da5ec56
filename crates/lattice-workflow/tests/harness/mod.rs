//! A small world for jobs: a store in memory, machines in memory, a clock and ids by hand, and agents on request.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use lattice_core::actor::{Actor, Role};
use lattice_core::change::{Change, Guard, NodeAction, NodeChange, Outcome};
use lattice_core::command::Request;
use lattice_core::credential::EnrollmentToken;
use lattice_core::ids::{CorrelationId, Generation, IdSource, JobId, NodeId, OpId, SiteId, uuid_v7};
use lattice_core::job::{Job, JobInput, NewJob};
use lattice_core::node::availability::AvailabilityEvent;
use lattice_core::node::machine::{Facts, Health, NodeEvent, decide};
use lattice_core::node::status::{Owner, StatusEvent};
use lattice_core::node::{Availability, Node, NodeClass, NodeState, OnboardingMode, Status};
use lattice_core::site::{LxdSite, Site, SiteProvider, SiteStatus};
use lattice_core::time::{Clock, Timestamp};
use lattice_providers::error::ProviderError;
use lattice_providers::machine::fake::{FakeLatency, FakeProvider};
use lattice_providers::machine::maas::MaasObserver;
use lattice_providers::secret::{SecretError, SecretObject, SecretPath, SecretStore};
use lattice_store::{Store, StoreConfig};
use lattice_workflow::bootstrap::BootstrapConfig;
use lattice_workflow::crash::CrashPlan;
use lattice_workflow::providers::{InstanceHost, Providers, Shell, ShellTarget};
use lattice_workflow::runner::{Occasion, Runner, Turn, TurnError};
use lattice_workflow::tools::{Entropy, Limits, LiveWork, SiteCache, Tools};

/// A clock that moves only when it is told to.
pub struct HandClock(AtomicI64);

impl Clock for HandClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(self.0.load(Ordering::SeqCst))
    }
}

impl HandClock {
    pub fn at_start() -> Arc<Self> {
        Arc::new(Self(AtomicI64::new(START.as_millis())))
    }

    pub fn set(&self, at: Timestamp) {
        self.0.fetch_max(at.as_millis(), Ordering::SeqCst);
    }
}

/// Ids and secrets that are the same in each run.
#[derive(Default)]
pub struct Counter(AtomicU64);

impl IdSource for Counter {
    fn uuid(&self, at: Timestamp) -> uuid::Uuid {
        let next = self.0.fetch_add(1, Ordering::SeqCst).to_be_bytes();
        let mut random = [0; 10];
        random[2..].copy_from_slice(&next);
        uuid_v7(at, random)
    }
}

impl Entropy for Counter {
    fn bytes32(&self) -> [u8; 32] {
        let next = self.0.fetch_add(1, Ordering::SeqCst).to_be_bytes();
        let mut bytes = [7; 32];
        bytes[..8].copy_from_slice(&next);
        bytes
    }
}

/// Secrets in memory.
#[derive(Default)]
pub struct Memory(Mutex<BTreeMap<String, SecretObject>>);

impl Memory {
    pub fn paths(&self) -> Vec<String> {
        self.0.lock().unwrap().keys().cloned().collect()
    }
}

#[async_trait]
impl SecretStore for Memory {
    async fn read(&self, path: &SecretPath) -> Result<SecretObject, SecretError> {
        let found = self.0.lock().unwrap().get(path.as_str()).cloned();
        found.ok_or_else(|| SecretError::NotFound { path: path.clone() })
    }
    async fn write(&self, path: &SecretPath, object: SecretObject) -> Result<(), SecretError> {
        self.0.lock().unwrap().insert(path.as_str().to_owned(), object);
        Ok(())
    }
    async fn delete(&self, path: &SecretPath) -> Result<(), SecretError> {
        self.0.lock().unwrap().remove(path.as_str());
        Ok(())
    }
}

/// What runs where.
#[derive(Default)]
pub struct Work {
    pub live: Mutex<BTreeMap<NodeId, u32>>,
    pub heard: Mutex<BTreeMap<NodeId, Timestamp>>,
}

#[async_trait]
impl LiveWork for Work {
    async fn live_allocations(&self, node: NodeId) -> Option<u32> {
        Some(self.live.lock().unwrap().get(&node).copied().unwrap_or(0))
    }
    async fn last_heard(&self, node: NodeId) -> Option<Timestamp> {
        self.heard.lock().unwrap().get(&node).copied()
    }
}

pub struct Fakes(pub Arc<FakeProvider>);

#[async_trait]
impl Providers for Fakes {
    async fn instances(&self, _: &Site) -> Result<Arc<dyn InstanceHost>, ProviderError> {
        Ok(self.0.clone())
    }
    async fn maas(&self, _: &Site) -> Result<Arc<MaasObserver>, ProviderError> {
        Err(ProviderError::unusable("maas", "there is none here"))
    }
    async fn shell(&self, _: &ShellTarget) -> Result<Box<dyn Shell>, ProviderError> {
        Err(ProviderError::unusable("ssh", "there is none here"))
    }
}

/// The world: what outlives a crash of the server.
pub struct World {
    pub store: Store,
    pub clock: Arc<HandClock>,
    pub ids: Arc<Counter>,
    pub secrets: Arc<Memory>,
    pub fake: Arc<FakeProvider>,
    pub providers: Arc<dyn Providers>,
    pub work: Arc<Work>,
    pub site: Site,
}

pub const START: Timestamp = Timestamp::from_millis(1_763_712_000_000);

impl World {
    pub async fn lxd() -> Self {
        let provider = SiteProvider::Lxd(LxdSite {
            api_url: "https://127.0.0.1:8443".to_owned(),
            client_cert_path: "lxd/cert".to_owned(),
            client_key_path: "lxd/key".to_owned(),
            server_cert_path: "lxd/server".to_owned(),
            project: "default".to_owned(),
            default_profile: "default".to_owned(),
            image: "busybox".to_owned(),
            agent_binary: None,
            enrollment_timeout_ms: 300_000,
            enrollment_token_ttl_seconds: 7_200,
        });
        Self::with(provider).await
    }

    pub async fn manual() -> Self {
        Self::with(SiteProvider::Manual).await
    }

    /// At a site of that kind, reached through `providers` instead of the fake ones; `first_id` tells its ids from those
    /// of another world.
    #[allow(dead_code, reason = "not every test program has a provider of its own")]
    pub async fn at(
        provider: SiteProvider,
        providers: Arc<dyn Providers>,
        clock: Arc<HandClock>,
        first_id: u64,
    ) -> Self {
        let ids = Arc::new(Counter(AtomicU64::new(first_id)));
        Self { providers, ..Self::by(provider, clock, ids).await }
    }

    async fn with(provider: SiteProvider) -> Self {
        Self::by(provider, HandClock::at_start(), Arc::default()).await
    }

    async fn by(provider: SiteProvider, clock: Arc<HandClock>, ids: Arc<Counter>) -> Self {
        let site = Site {
            id: SiteId::generate(&*ids, START),
            name: "dc1".to_owned(),
            region_code: "eu".to_owned(),
            provider,
            heartbeat: lattice_core::node::class::HeartbeatPolicy::default(),
            bmc: lattice_core::bmc::BmcPolicy::default(),
            automation: lattice_core::site::AutomationPolicy::default(),
            brake: None,
            let_go_at: None,
            approved: Vec::new(),
            sensitive: lattice_core::site::SensitivePolicy::default(),
            status: SiteStatus::Active,
            created_at: START,
            updated_at: START,
            generation: Generation::FIRST,
        };
        let fake = Arc::new(FakeProvider::new(clock.clone(), FakeLatency::default()));
        let world = Self {
            store: Store::open(StoreConfig::memory()).await.unwrap(),
            providers: Arc::new(Fakes(fake.clone())),
            fake,
            clock,
            ids,
            secrets: Arc::default(),
            work: Arc::default(),
            site,
        };
        world.commit(vec![Change::Site(Box::new(world.site.clone()))], vec![]).await;
        world
    }

    pub fn runner(&self, crash: CrashPlan) -> Runner {
        self.runner_with(crash, self.clock.clone(), self.providers.clone())
    }

    pub fn runner_with(&self, crash: CrashPlan, clock: Arc<dyn Clock>, providers: Arc<dyn Providers>) -> Runner {
        Runner::new(Arc::new(self.tools_with(crash, clock, providers)))
    }

    pub fn tools_with(&self, crash: CrashPlan, clock: Arc<dyn Clock>, providers: Arc<dyn Providers>) -> Tools {
        Tools {
            store: self.store.clone(),
            clock,
            ids: self.ids.clone(),
            entropy: self.ids.clone(),
            secrets: self.secrets.clone(),
            providers,
            live_work: self.work.clone(),
            bootstrap: BootstrapConfig {
                server: "https://lattice:7443".to_owned(),
                ca_pem: "CA".to_owned(),
                agent_url: "https://lattice:7443/agent".to_owned(),
                agent_sha256: None,
                task_keys_pem: "KEY".to_owned(),
            },
            holder: "lattice-1".to_owned(),
            limits: Limits::default(),
            crash,
            sites: SiteCache::default(),
        }
    }

    pub async fn commit(&self, changes: Vec<Change>, guards: Vec<Guard>) {
        let commit = self.request().commit(guards, changes);
        let outcome = self.store.commit_one(commit).await.unwrap();
        assert!(matches!(outcome, Outcome::Applied { .. }), "{outcome:?}");
    }

    fn new_job(&self, node: &Node, input: JobInput) -> Job {
        NewJob { node, site: &self.site, input, batch: None }.build(&self.request())
    }

    pub fn request(&self) -> Request<'_> {
        let now = self.clock.now();
        Request {
            actor: Actor { name: "test".to_owned(), role: Role::PlatformAdmin },
            reason: "test".to_owned(),
            now,
            ids: &*self.ids,
            op: OpId::generate(&*self.ids, now),
            correlation: CorrelationId::generate(&*self.ids, now),
        }
    }

    /// A node as it is created: never heard.
    pub fn node_row(&self, hostname: &str, mode: OnboardingMode, status: Status) -> Node {
        let now = self.clock.now();
        Node {
            id: NodeId::generate(&*self.ids, now),
            hostname: hostname.to_owned(),
            site: self.site.id,
            sku: "any".to_owned(),
            class: NodeClass::Standard,
            mode,
            state: NodeState::new(status, Availability::Unknown),
            status_since: now,
            availability_since: now,
            down_cause: None,
            deadline: None,
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
            created_at: now,
            updated_at: now,
            generation: Generation::FIRST,
        }
    }

    /// An accepted onboarding: a node that is enrolling, and its job.
    pub async fn onboard(&self, hostname: &str, input: JobInput) -> Job {
        let now = self.clock.now();
        let is_manual = matches!(input, JobInput::OnboardManual { .. });
        let (status, mode) = match is_manual {
            true => (Status::BootstrapIssued, OnboardingMode::Manual),
            false => (Status::Enrolling, OnboardingMode::Lxd),
        };
        let node = self.node_row(hostname, mode, status);
        let mut job = self.new_job(&node, input);
        let mut changes = Vec::new();
        if is_manual {
            let whose = lattice_workflow::enrollment::TokenFor {
                node: node.id,
                job: job.id,
                now,
                life: Duration::from_secs(7_200),
            };
            let (row, _) = lattice_workflow::enrollment::issue(whose, &*self.ids, &*self.ids);
            job.outputs.token = Some(row.id);
            changes.push(Change::EnrollmentToken(row));
        }
        let node = Node { owning_job: Some(job.id), ..node };
        changes.push(Change::Node(Box::new(NodeChange {
            after: node,
            before: None,
            action: NodeAction::Created,
            cause: "created".to_owned(),
            detail: String::new(),
        })));
        changes.push(job.clone().created());
        self.commit(changes, vec![]).await;
        job
    }

    /// A job on a node that is there.
    pub async fn job_on(&self, node: NodeId, input: JobInput) -> Job {
        let node = self.node(node).await;
        let job = self.new_job(&node, input);
        self.commit(vec![job.clone().created()], vec![Guard::NoLiveJob { node: node.id }]).await;
        job
    }

    pub async fn node(&self, id: NodeId) -> Node {
        self.store.node(id).await.unwrap().unwrap()
    }

    pub async fn job(&self, id: JobId) -> Job {
        self.store.job(id).await.unwrap().unwrap()
    }

    /// Moves a node as the server would.
    pub async fn move_node(&self, id: NodeId, owner: Owner, events: &[NodeEvent]) {
        for event in events {
            let node = self.node(id).await;
            let facts = Facts { health: Health::Passed, ..Facts::of(owner, Actor::system("test")) };
            let moved = decide(&node, *event, &facts, self.clock.now()).unwrap();
            self.commit(vec![Change::Node(Box::new(moved.change))], vec![]).await;
        }
    }

    /// The agent of a node comes with the job's token, registers and is healthy: what enrolment and detection do.
    /// True when it could.
    pub async fn agent_comes(&self, job: JobId) -> bool {
        let job = self.job(job).await;
        let Some(token) = job.outputs.token else { return false };
        let token = self.store.enrollment_token(token).await.unwrap().unwrap();
        let node = self.node(job.node).await;
        if token.used_at.is_none() {
            if token.check(node.id, self.clock.now()).is_err() {
                return false;
            }
            let used =
                EnrollmentToken { used_at: Some(self.clock.now()), generation: token.generation.next(), ..token };
            self.commit(vec![Change::EnrollmentToken(used)], vec![]).await;
        }
        if node.state.status == Status::BootstrapIssued {
            self.move_node(node.id, Owner::AgentContact, &[NodeEvent::Status(StatusEvent::FirstContact)]).await;
        } else if node.state.availability == Availability::Unknown {
            self.move_node(
                node.id,
                Owner::AgentContact,
                &[NodeEvent::Availability(AvailabilityEvent::AgentRegistered)],
            )
            .await;
        }
        if self.node(job.node).await.state.availability == Availability::Booting {
            self.move_node(node.id, Owner::Detector, &[NodeEvent::Availability(AvailabilityEvent::HealthPassed)]).await;
        }
        true
    }

    /// The agent comes if it can; if it cannot yet, it tries again later.
    pub async fn agent_tries(&self, job: JobId) {
        let _could = self.agent_comes(job).await;
    }

    /// Drives a job by hand until it is over or waits for a person, letting time pass where it sleeps. `meanwhile` is
    /// called before each turn. A crash is survived by a new runner that never dies.
    pub async fn drive(&self, job: JobId, crash: CrashPlan, mut meanwhile: impl AsyncFnMut(&Self)) -> Driven {
        let mut runner = self.runner(crash);
        let mut crashes = 0;
        for _ in 0..400 {
            meanwhile(self).await;
            match runner.turn(job, Occasion { woken: true, permitted: true }).await {
                Ok(Turn::Sleep { until, .. } | Turn::Held { until }) => {
                    self.clock.set(until.min(self.clock.now() + Duration::from_secs(20)));
                }
                Ok(Turn::Over { .. } | Turn::Parked { .. }) => {
                    let places = runner.tools().crash.passed();
                    return Driven { job: self.job(job).await, places, crashes };
                }
                Ok(Turn::Missing) => panic!("the job is not there"),
                Err(TurnError::Crashed(_)) => {
                    crashes += 1;
                    runner = self.runner(CrashPlan::never());
                }
                Err(other) => panic!("{other}"),
            }
        }
        panic!("the job does not end: {:?}", self.job(job).await.state)
    }
}

pub struct Driven {
    pub job: Job,
    /// Places passed by the last runner.
    pub places: u64,
    pub crashes: u32,
}
