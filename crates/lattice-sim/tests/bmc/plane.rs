//! A control plane without agents: rows, the watch over BMCs, a runner of jobs, and one simulated BMC over HTTP.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use lattice_controllers::{BmcWatch, BmcsWatched, Fleet};
use lattice_core::actor::{Actor, Role};
use lattice_core::bmc::{BmcEndpoint, BmcPolicy, BmcTls, BmcWay};
use lattice_core::change::{Change, Commit, NodeAction, NodeChange, Outcome};
use lattice_core::command::node::Known;
use lattice_core::command::{Request, bmc as commands};
use lattice_core::heartbeat::Registry;
use lattice_core::ids::{CorrelationId, Generation, IdSource, JobId, NodeId, OpId, SiteId, uuid_v7};
use lattice_core::job::{Job, StageName};
use lattice_core::node::class::HeartbeatPolicy;
use lattice_core::node::machine::Health;
use lattice_core::node::{Availability, Node, NodeClass, NodeState, OnboardingMode, Status};
use lattice_core::secret::Secret;
use lattice_core::site::{Site, SiteProvider, SiteStatus};
use lattice_core::sku::Sku;
use lattice_core::time::{Clock, Timestamp};
use lattice_providers::secret::{SecretError, SecretObject, SecretPath, SecretStore};
use lattice_sim::bmc::{SimBmc, serve};
use lattice_sim::stop::Stop;
use lattice_store::{Store, StoreConfig};
use lattice_workflow::bootstrap::BootstrapConfig;
use lattice_workflow::crash::CrashPlan;
use lattice_workflow::runner::{Occasion, Runner, Turn, TurnError};
use lattice_workflow::site_clients::SiteClients;
use lattice_workflow::tools::{Entropy, Limits, LiveWork, SiteCache, Tools};
use tokio::net::TcpListener;

use crate::target::PASSWORD;

/// A clock that moves only when it is told to.
pub struct HandClock(AtomicI64);

impl HandClock {
    pub fn at_start() -> Arc<Self> {
        Arc::new(Self(AtomicI64::new(1_763_712_000_000)))
    }

    pub fn pass(&self, time: Duration) {
        self.0.fetch_add(i64::try_from(time.as_millis()).unwrap(), Ordering::SeqCst);
    }
}

impl Clock for HandClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(self.0.load(Ordering::SeqCst))
    }
}

#[derive(Default)]
struct Ids(AtomicU64);

impl IdSource for Ids {
    fn uuid(&self, at: Timestamp) -> uuid::Uuid {
        let mut random = [0; 10];
        random[2..].copy_from_slice(&self.0.fetch_add(1, Ordering::SeqCst).to_be_bytes());
        uuid_v7(at, random)
    }
}

impl Entropy for Ids {
    fn bytes32(&self) -> [u8; 32] {
        [7; 32]
    }
}

#[derive(Default)]
struct Secrets(Mutex<BTreeMap<String, SecretObject>>);

#[async_trait]
impl SecretStore for Secrets {
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

struct NoWork;

#[async_trait]
impl LiveWork for NoWork {
    async fn live_allocations(&self, _: NodeId) -> Option<u32> {
        Some(0)
    }
    async fn last_heard(&self, _: NodeId) -> Option<Timestamp> {
        None
    }
}

pub struct Plane {
    pub store: Store,
    pub clock: Arc<HandClock>,
    pub bmc: Arc<SimBmc>,
    pub watch: BmcWatch,
    pub runner: Runner,
    pub node: NodeId,
    clients: Arc<SiteClients>,
    fleet: Arc<Fleet>,
    ids: Arc<Ids>,
    secrets: Arc<Secrets>,
    site: Site,
    _server: Stop,
}

impl Plane {
    /// One active, ready node of two GPUs with a simulated BMC, at a manual site that lets BMCs of loopback be called.
    pub async fn new() -> Self {
        let clock = HandClock::at_start();
        let now = clock.now();
        let ids = Arc::new(Ids::default());
        let bmc = SimBmc::new("admin", PASSWORD, clock.clone());
        bmc.switch(true);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let server = serve(listener, Arc::clone(&bmc));
        let networks = vec!["127.0.0.0/8".parse().unwrap()];
        let site = Site {
            id: SiteId::generate(&*ids, now),
            name: "dc1".to_owned(),
            region_code: "eu".to_owned(),
            provider: SiteProvider::Manual,
            heartbeat: HeartbeatPolicy::default(),
            bmc: BmcPolicy { networks, ..BmcPolicy::default() },
            automation: lattice_core::site::AutomationPolicy::default(),
            brake: None,
            let_go_at: None,
            approved: Vec::new(),
            sensitive: lattice_core::site::SensitivePolicy::default(),
            status: SiteStatus::Active,
            created_at: now,
            updated_at: now,
            generation: Generation::FIRST,
        };
        let store = Store::open(StoreConfig::memory()).await.unwrap();
        let fleet = Arc::new(Fleet::new(store.clone(), Arc::new(Registry::new())));
        let secrets = Arc::new(Secrets::default());
        let clients = Arc::new(SiteClients::new(secrets.clone(), clock.clone(), ids.clone()));
        let runner = runner(&store, &clock, &ids, (&secrets, CrashPlan::never()), Arc::clone(&clients));
        let watch = watch(&store, &fleet, &clients, &ids, "lattice-1");
        let node = NodeId::generate(&*ids, now);
        let plane =
            Self { store, clock, bmc, watch, runner, node, clients, fleet, ids, secrets, site, _server: server };
        plane.keep_login(PASSWORD).await;
        plane.first_rows(port).await;
        plane
    }

    async fn first_rows(&self, port: u16) {
        let now = self.clock.now();
        let node = active_node(self.node, self.site.id, now);
        let created = NodeChange {
            after: node.clone(),
            before: None,
            action: NodeAction::Created,
            cause: "test".to_owned(),
            detail: String::new(),
        };
        let changes = vec![
            Change::Site(Box::new(self.site.clone())),
            Change::Sku(two_gpus(now)),
            Change::Node(Box::new(created)),
        ];
        self.commit(self.request().commit(Vec::new(), changes)).await;
        let way = BmcWay::Redfish { tls: BmcTls::Plain, system: None };
        let credential_path = "kv/nodes/n1/bmc".to_owned();
        let endpoint = BmcEndpoint { address: "127.0.0.1".parse().unwrap(), port: Some(port), way, credential_path };
        let set = commands::set(&self.request(), &node, &self.site, None, endpoint).unwrap();
        self.commit(set).await;
    }

    pub async fn keep_login(&self, password: &str) {
        let object = [
            ("user".to_owned(), Secret::new("admin".to_owned())),
            ("pass".to_owned(), Secret::new(password.to_owned())),
        ];
        self.secrets.write(&"kv/nodes/n1/bmc".parse().unwrap(), SecretObject::from(object)).await.unwrap();
    }

    pub fn request(&self) -> Request<'_> {
        let now = self.clock.now();
        Request {
            actor: Actor { name: "ada".to_owned(), role: Role::PlatformAdmin },
            reason: "test".to_owned(),
            now,
            ids: &*self.ids,
            op: OpId::generate(&*self.ids, now),
            correlation: CorrelationId::generate(&*self.ids, now),
        }
    }

    pub async fn commit(&self, commit: Commit) {
        let outcome = self.store.commit_one(commit).await.unwrap();
        assert!(matches!(outcome, Outcome::Applied { .. }), "{outcome:?}");
    }

    pub async fn change(&self, change: impl FnOnce(&mut Node)) {
        let node = self.node().await;
        let mut after = node.successor(self.clock.now());
        change(&mut after);
        let (before, cause, detail) = (Some(node.state), "test".to_owned(), String::new());
        let changed = NodeChange { after, before, action: NodeAction::Moved, cause, detail };
        self.commit(self.request().commit(Vec::new(), vec![Change::Node(Box::new(changed))])).await;
    }

    pub async fn node(&self) -> Node {
        self.store.node(self.node).await.unwrap().unwrap()
    }

    /// What a command knows of that row of the node: nothing runs on it, and no job owns it.
    pub fn known<'a>(&'a self, node: &'a Node) -> Known<'a> {
        Known {
            node,
            job: None,
            health: Health::NotReported,
            live_allocations: 0,
            site: &self.site,
            placed: &[],
            has_bmc: true,
        }
    }

    pub const fn site(&self) -> &Site {
        &self.site
    }

    /// A minute passes, and every look that is due then is made and kept.
    pub async fn poll(&mut self) -> BmcsWatched {
        self.clock.pass(Duration::from_secs(61));
        let begun = self.watch.tick(self.clock.now()).await.unwrap();
        let mut kept = self.watch.settle(self.clock.now()).await.unwrap();
        kept.begun = begun.begun;
        kept.investigations.extend(begun.investigations);
        kept
    }

    /// The process dies and another one takes its place: nothing but the rows and the secrets is left.
    pub fn restart(&mut self) {
        self.restart_to_die(CrashPlan::never());
    }

    /// The same, and the new one dies as planned.
    pub fn restart_to_die(&mut self, crash: CrashPlan) {
        self.clients = Arc::new(SiteClients::new(self.secrets.clone(), self.clock.clone(), self.ids.clone()));
        self.watch = watch(&self.store, &self.fleet, &self.clients, &self.ids, "lattice-1");
        let clients = Arc::clone(&self.clients);
        self.runner = runner(&self.store, &self.clock, &self.ids, (&self.secrets, crash), clients);
    }

    /// The watch of another server over the same rows, with its own connections to BMCs.
    pub fn beside(&self) -> (BmcWatch, Arc<SiteClients>) {
        let clients = Arc::new(SiteClients::new(self.secrets.clone(), self.clock.clone(), self.ids.clone()));
        (watch(&self.store, &self.fleet, &clients, &self.ids, "lattice-2"), clients)
    }

    /// Turns of a job, time passing between them, until it is over, or waits in `stage`.
    pub async fn drive(&self, job: JobId, stage: Option<StageName>) -> Job {
        self.drive_to_die(job, stage).await.expect("it dies nowhere")
    }

    /// The same; none when the process died.
    pub async fn drive_to_die(&self, job: JobId, stage: Option<StageName>) -> Option<Job> {
        for _ in 0..200 {
            match self.runner.turn(job, Occasion { woken: true, permitted: true }).await {
                Err(TurnError::Crashed(_)) => return None,
                Err(other) => panic!("{other}"),
                Ok(Turn::Over { job } | Turn::Parked { job, .. }) => return Some((*job).clone()),
                Ok(Turn::Sleep { until, job }) => {
                    if Some(job.state.stage) == stage {
                        return Some((*job).clone());
                    }
                    self.clock.pass(until.since(self.clock.now()));
                }
                Ok(Turn::Held { .. } | Turn::Missing) => panic!("the job is not ours"),
            }
        }
        panic!("the job does not end")
    }
}

fn watch(store: &Store, fleet: &Arc<Fleet>, clients: &Arc<SiteClients>, ids: &Arc<Ids>, server: &str) -> BmcWatch {
    BmcWatch::new(store.clone(), fleet.clone(), clients.bmcs().clone(), ids.clone(), server.to_owned())
}

fn runner(
    store: &Store,
    clock: &Arc<HandClock>,
    ids: &Arc<Ids>,
    (secrets, crash): (&Arc<Secrets>, CrashPlan),
    providers: Arc<SiteClients>,
) -> Runner {
    Runner::new(Arc::new(Tools {
        store: store.clone(),
        clock: clock.clone(),
        ids: ids.clone(),
        entropy: ids.clone(),
        secrets: secrets.clone(),
        providers,
        live_work: Arc::new(NoWork),
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
    }))
}

fn active_node(id: NodeId, site: SiteId, now: Timestamp) -> Node {
    Node {
        id,
        hostname: "n1".to_owned(),
        site,
        sku: "two".to_owned(),
        class: NodeClass::Standard,
        mode: OnboardingMode::Manual,
        state: NodeState::new(Status::Active, Availability::Ready),
        status_since: now,
        availability_since: now,
        down_cause: None,
        deadline: None,
        boot_failures: 0,
        drain_intent: false,
        minor_issue: None,
        identity_epoch: 1,
        boot_id: Some("boot-1".to_owned()),
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

fn two_gpus(now: Timestamp) -> Sku {
    Sku {
        name: "two".to_owned(),
        gpus: 2,
        gpu_vendor: None,
        gpu_model: None,
        nics: Vec::new(),
        disks: Vec::new(),
        created_at: now,
        updated_at: now,
        generation: Generation::FIRST,
    }
}
