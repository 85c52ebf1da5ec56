//! A control plane without HTTP: store, job driver, detection's feed, agents' decisions, over hosts in memory.
//!
//! Put together as the server's wiring does, but for the listeners: what jobs cost is measured, not what TLS costs.

pub mod hosts;

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use lattice_controllers::Fleet;
use lattice_core::actor::Actor;
use lattice_core::agent::task::SigningKey;
use lattice_core::change::{Commit, Outcome};
use lattice_core::command::node::{self, Known};
use lattice_core::command::{Planned, Request, create};
use lattice_core::heartbeat::Registry;
use lattice_core::ids::{CorrelationId, EventSeq, JobId, NodeId, OpId};
use lattice_core::job::Disposal;
use lattice_core::node::machine::Health;
use lattice_core::node::{Node, NodeClass, NodeState};
use lattice_core::secret::Secret;
use lattice_core::site::{LxdSite, Site, SiteProvider};
use lattice_core::time::{Clock, Timestamp};
use lattice_providers::error::ProviderError;
use lattice_providers::machine::maas::MaasObserver;
use lattice_providers::secret::file::FileSecretStore;
use lattice_server::agents::{Agents, WakeJob};
use lattice_server::clock::{SystemClock, SystemIds};
use lattice_server::task_keys::TaskKeys;
use lattice_store::{EventFilter, Store, StoreConfig, StoreError};
use lattice_workflow::bootstrap::BootstrapConfig;
use lattice_workflow::crash::CrashPlan;
use lattice_workflow::driver::embedded::{DriverLimits, EmbeddedDriver, Waker};
use lattice_workflow::providers::{InstanceHost, Providers, Shell, ShellTarget};
use lattice_workflow::runner::Runner;
use lattice_workflow::tools::{Limits, LiveWork, SiteCache, SystemEntropy, Tools};
use tokio::task::JoinSet;

use crate::failure::{Failure, at, wrong};
use crate::fleet;
use hosts::{HostTimes, Hosts};

/// Commands handed over at once: as many clients at a time.
const AT_ONCE: usize = 250;
/// How often the states are counted while the plane works.
const LOOK: Duration = Duration::from_millis(50);
/// Longest wait for the whole fleet to get somewhere.
const PATIENCE: Duration = Duration::from_secs(110);
/// Events taken from the feed at once, as the server does.
const FEED_PAGE: usize = 1_000;

/// A running control plane.
pub struct Plane {
    store: Store,
    waker: Waker,
    site: Site,
    _driver: EmbeddedDriver,
    _feed: JoinSet<()>,
}

struct Wake(Waker);

impl WakeJob for Wake {
    fn wake(&self, job: JobId) {
        let waker = self.0.clone();
        tokio::spawn(async move { waker.job(job).await });
    }
}

struct Doors(Arc<Hosts>);

#[async_trait]
impl Providers for Doors {
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

/// Nothing is scheduled on the nodes.
struct Idle(Arc<Registry>);

#[async_trait]
impl LiveWork for Idle {
    async fn live_allocations(&self, _: NodeId) -> Option<u32> {
        Some(0)
    }
    async fn last_heard(&self, node: NodeId) -> Option<Timestamp> {
        self.0.last_heard(node)
    }
}

impl Plane {
    /// Starts with an empty SQLite file and an empty secret store in `folder`.
    ///
    /// # Errors
    /// A part does not start.
    pub async fn start(folder: &Path, times: HostTimes) -> Result<Self, Failure> {
        let config = StoreConfig::sqlite(folder.join("lattice.db"));
        let store = Store::open(config).await.map_err(at("open a store"))?;
        let secrets = FileSecretStore::open(folder, &folder.join("secrets.key")).map_err(at("open the secrets"))?;
        let site = fleet::site(1, SiteProvider::Lxd(lxd_site()));
        fleet::fill(&store, std::slice::from_ref(&site), 0, fleet::node).await?;
        let registry = Arc::new(Registry::new());
        let fleet = Arc::new(Fleet::new(store.clone(), Arc::clone(&registry)));
        fleet.load(SystemClock.now()).await.map_err(at("load the fleet"))?;
        let hosts = Arc::new(Hosts::new(times));
        let tools = Tools {
            store: store.reading_beside_commits(),
            clock: Arc::new(SystemClock),
            ids: Arc::new(SystemIds),
            entropy: Arc::new(SystemEntropy),
            secrets: Arc::new(secrets),
            providers: Arc::new(Doors(Arc::clone(&hosts))),
            live_work: Arc::new(Idle(registry)),
            bootstrap: BootstrapConfig {
                server: "https://127.0.0.1:7443".to_owned(),
                ca_pem: "CA".to_owned(),
                agent_url: "https://127.0.0.1:7443/agent".to_owned(),
                agent_sha256: None,
                task_keys_pem: "KEY".to_owned(),
            },
            holder: "bench".to_owned(),
            limits: Limits::default(),
            crash: CrashPlan::never(),
            sites: SiteCache::default(),
        };
        let driver = EmbeddedDriver::start(Runner::new(Arc::new(tools)), DriverLimits::default());
        let waker = driver.waker();
        let wake = Arc::new(Wake(waker.clone()));
        let day = Duration::from_secs(86_400);
        let signer = SigningKey::from_seed(&Secret::new(vec![5; 32])).expect("32 bytes");
        let task_keys = Arc::new(TaskKeys::new(signer));
        let beside = store.reading_beside_commits();
        hosts.serve(Agents::new(beside, Arc::clone(&fleet), Arc::new(SystemIds), wake, task_keys, day));
        let mut feed = JoinSet::new();
        feed.spawn(follow(store.clone(), fleet));
        Ok(Self { store, waker, site, _driver: driver, _feed: feed })
    }

    /// Asks for `count` onboardings; answers as soon as they are accepted.
    ///
    /// # Errors
    /// One is refused; the store fails.
    pub async fn onboard(&self, count: u32) -> Result<Vec<NodeId>, Failure> {
        let (site, sku) = (&self.site, fleet::sku());
        let numbers: Vec<u32> = (0..count).collect();
        let mut nodes = Vec::with_capacity(numbers.len());
        for some in numbers.chunks(AT_ONCE) {
            let planned = some.iter().map(|number| {
                let hostname = format!("n{number:05}");
                create::lxd(
                    &request(),
                    &create::NewNode { site, sku: &sku, hostname, class: NodeClass::Standard, batch: None },
                )
            });
            let planned = planned.collect::<Result<Vec<_>, _>>().map_err(at("plan an onboarding"))?;
            nodes.extend(planned.iter().map(|planned| planned.node));
            self.accept(planned).await?;
        }
        Ok(nodes)
    }

    /// Retires all of them: drained, out of scheduling for good.
    ///
    /// # Errors
    /// One is refused; the store fails.
    pub async fn retire(&self, nodes: &[NodeId]) -> Result<(), Failure> {
        self.each(nodes, |known| node::retire(known, &request(), Disposal::Keep)).await
    }

    /// Removes all of them with their instances.
    ///
    /// # Errors
    /// One is refused; the store fails.
    pub async fn remove(&self, nodes: &[NodeId]) -> Result<(), Failure> {
        self.each(nodes, |known| node::remove(known, &request())).await
    }

    /// Waits until that many nodes stand where `there` says; answers how long it took.
    ///
    /// # Errors
    /// They do not get there in time; the store fails.
    pub async fn until(&self, count: u32, there: impl Fn(NodeState) -> bool) -> Result<Duration, Failure> {
        let started = Instant::now();
        loop {
            let counts = self.store.node_counts().await.map_err(at("count the nodes"))?;
            let arrived: u64 = counts.iter().filter(|count| there(count.state)).map(|count| count.nodes).sum();
            if arrived >= u64::from(count) {
                return Ok(started.elapsed());
            }
            if started.elapsed() > PATIENCE {
                let jobs = self.store.job_counts().await.map_err(at("count the jobs"))?;
                return Err(wrong("wait for the fleet", format!("nodes: {counts:?}; jobs: {jobs:?}")));
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    async fn each(
        &self,
        nodes: &[NodeId],
        plan: impl Fn(&Known<'_>) -> Result<Planned, lattice_core::command::Refused>,
    ) -> Result<(), Failure> {
        for some in nodes.chunks(AT_ONCE) {
            let rows: Vec<Node> = self.store.nodes_by_id(some).await.map_err(at("read nodes"))?;
            let planned = rows.iter().map(|node| {
                plan(&Known {
                    node,
                    job: None,
                    health: Health::Passed,
                    live_allocations: 0,
                    site: &self.site,
                    placed: &[],
                    has_bmc: false,
                })
            });
            let planned = planned.collect::<Result<Vec<_>, _>>().map_err(at("plan"))?;
            self.accept(planned).await?;
        }
        Ok(())
    }

    async fn accept(&self, planned: Vec<Planned>) -> Result<(), Failure> {
        let jobs: Vec<JobId> = planned.iter().filter_map(|planned| planned.job).collect();
        let commits: Vec<Commit> = planned.into_iter().map(|planned| planned.commit).collect();
        let outcomes = self.store.commit(commits).await.map_err(at("commit"))?;
        if let Some(refused) = outcomes.iter().find(|outcome| !matches!(outcome, Outcome::Applied { .. })) {
            return Err(wrong("commit", format!("{refused:?}")));
        }
        for job in jobs {
            self.waker.job(job).await;
        }
        Ok(())
    }
}

fn request() -> Request<'static> {
    let now = SystemClock.now();
    Request {
        actor: Actor::system("bench"),
        reason: String::new(),
        now,
        ids: &SystemIds,
        op: OpId::generate(&SystemIds, now),
        correlation: CorrelationId::generate(&SystemIds, now),
    }
}

fn lxd_site() -> LxdSite {
    LxdSite {
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
    }
}

/// Keeps the registry in step with the store, as the server does.
async fn follow(store: Store, fleet: Arc<Fleet>) {
    let mut follower = store.follow();
    let mut seen = EventSeq(0);
    while follower.after(seen).await.is_ok() {
        match take_in(&store, &fleet, seen).await {
            Ok(last) => seen = last,
            Err(error) => return eprintln!("the feed ended: {error}"),
        }
    }
}

async fn take_in(store: &Store, fleet: &Fleet, seen: EventSeq) -> Result<EventSeq, StoreError> {
    let events = store.events(seen, &EventFilter::default(), FEED_PAGE).await?;
    fleet.take_in(&events, SystemClock.now()).await?;
    Ok(events.last().map_or(seen, |event| event.seq))
}
