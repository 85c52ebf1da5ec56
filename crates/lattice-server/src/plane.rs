//! A control plane in one process, without its sockets: the loops that observe, decide and commit, the driver that acts,
//! what answers agents, the API. The server puts listeners before it; the simulation puts a network in memory there.

use std::sync::Arc;
use std::time::Duration;

use lattice_controllers::{Allocator, Conformance, Detector, Fleet, HEARS, expire_bootstraps, expire_silences};
use lattice_core::change::{Change, Outcome};
use lattice_core::heartbeat::Registry;
use lattice_core::ids::{EventSeq, Generation, IdSource, JobId, SiteId};
use lattice_core::node::class::HeartbeatPolicy;
use lattice_core::site::{SensitivePolicy, Site, SiteProvider, SiteStatus};
use lattice_core::time::Clock;
use lattice_providers::machine::bmc::BmcReaders;
use lattice_providers::secret::SecretStore;
use lattice_providers::webhook::WebhookSender;
use lattice_store::{EventFilter, Held, Store, StoreError};
use lattice_workflow::bootstrap::{BootstrapConfig, manual_command};
use lattice_workflow::components::Components;
use lattice_workflow::driver::embedded::{DriverLimits, EmbeddedDriver, Waker};
use lattice_workflow::providers::Providers;
use lattice_workflow::runner::Runner;
use lattice_workflow::tools::{Entropy, Tools};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::warn;

use crate::agent_api::{AgentPolicy, AgentService, Parts};
use crate::agent_source::AgentSource;
use crate::agents::{Agents, WakeJob};
use crate::bmc_watch;
use crate::component_loop;
use crate::hearing::Hearing;
use crate::http;
use crate::live_work::RegistryWork;
use crate::metrics::Metrics;
use crate::pki::Authority;
use crate::prober::Prober;
use crate::secrets;
use crate::standing;
use crate::task_keys::TaskKeys;
use crate::task_loop::TaskLoop;
use crate::webhooks::{self, Courier};
use crate::wipe_watch;
use crate::wiring::request;

/// Events taken from the feed at once.
const FEED_PAGE: usize = 1_000;

/// What a control plane stands on: everything outside it that it reads, changes, or draws from.
pub struct Ground {
    /// The rows.
    pub store: Store,
    /// Secrets.
    pub secrets: Arc<dyn SecretStore>,
    /// Systems that stages act on.
    pub providers: Arc<dyn Providers>,
    /// BMCs, read; in the same queues as the jobs.
    pub bmcs: Arc<dyn BmcReaders>,
    /// The way to receivers of events.
    pub webhooks: Arc<dyn WebhookSender>,
    /// Signs certificates of nodes.
    pub authority: Arc<Authority>,
    /// Sign tasks.
    pub task_keys: Arc<TaskKeys>,
    /// The present time.
    pub clock: Arc<dyn Clock>,
    /// New ids.
    pub ids: Arc<dyn IdSource>,
    /// What nobody can guess.
    pub entropy: Arc<dyn Entropy>,
    /// What is counted.
    pub metrics: Arc<Metrics>,
}

/// How it behaves.
pub struct Settings {
    /// This server's name in leases; the same after a restart.
    pub name: String,
    /// How agents reach this very server.
    pub agent_url: String,
    /// Life of a node's certificate.
    pub certificate_life: Duration,
    /// How agents are told to behave.
    pub agent_policy: AgentPolicy,
    /// Bounds of the API.
    pub http_limits: http::HttpLimits,
    /// How often it looks.
    pub pauses: Pauses,
}

/// Pauses between two looks of each loop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pauses {
    /// Of the detector.
    pub detector: Duration,
    /// Of the allocator.
    pub allocator: Duration,
    /// At bootstraps that nobody used, and at silences that are over.
    pub bootstraps: Duration,
    /// At BMCs: looks that ended are kept, those that are due begun.
    pub bmcs: Duration,
    /// At tasks that are overdue: it bounds how late one expires.
    pub tasks: Duration,
}

impl Default for Pauses {
    fn default() -> Self {
        Self {
            detector: Duration::from_millis(250),
            allocator: Duration::from_secs(1),
            bootstraps: Duration::from_secs(10),
            bmcs: Duration::from_secs(1),
            tasks: Duration::from_secs(1),
        }
    }
}

/// A control plane that runs.
pub struct Plane {
    /// Answers agents.
    pub agents: Arc<AgentService>,
    /// The API and the page.
    pub router: axum::Router,
    /// Ends its loops.
    pub stop: CancellationToken,
    /// Drives its jobs; dropped, it ends without waiting.
    pub driver: EmbeddedDriver,
    /// Everything else that runs in it.
    pub tasks: TaskTracker,
}

/// Wakes jobs for those who do not wait.
struct Wake(Waker);

impl WakeJob for Wake {
    fn wake(&self, job: JobId) {
        let waker = self.0.clone();
        tokio::spawn(async move { waker.job(job).await });
    }
}

impl Plane {
    /// Starts everything: new hosts find a server at `given_url`, and the agent at `agent`.
    ///
    /// # Errors
    /// The store fails.
    pub async fn start(
        ground: Ground,
        given_url: String,
        agent: AgentSource,
        settings: Settings,
    ) -> Result<Self, StoreError> {
        let (store, clock, ids) = (ground.store.clone(), Arc::clone(&ground.clock), Arc::clone(&ground.ids));
        let registry = Arc::new(Registry::new());
        let fleet = Arc::new(Fleet::new(store.clone(), Arc::clone(&registry)));
        ensure_local_site(&store, &*clock, &*ids).await?;
        // What is committed from here on is taken in from the feed, whether the rows that are read now say it already.
        let seen = store.last_event().await?;
        fleet.load(clock.now()).await?;
        let (stop, tasks) = (CancellationToken::new(), TaskTracker::new());

        let bootstrap = bootstrap_config(given_url, &agent, &ground.authority, &ground.task_keys);
        let tools = Arc::new(ground.tools(&registry, bootstrap.clone(), settings.name.clone()));
        let components = Components::new(Arc::clone(&tools), Arc::default());
        let driver = EmbeddedDriver::start(Runner::new(tools), DriverLimits::default());
        let wake = Arc::new(Wake(driver.waker()));
        let task_loop = TaskLoop::new(&store, &ground.secrets, &ground.task_keys, &ground.metrics, &ids);
        let (beside, keys) = (store.reading_beside_commits(), Arc::clone(&ground.task_keys));
        let (life, pauses) = (settings.certificate_life, settings.pauses);
        let agents = Agents::new(beside, fleet.clone(), ids.clone(), wake.clone(), keys, life);
        let service = AgentService::new(Parts {
            registry: Arc::clone(&registry),
            events: Arc::new(agents.giving_tokens(Arc::clone(&ground.secrets))),
            authority: Arc::clone(&ground.authority),
            task_keys: Arc::clone(&ground.task_keys),
            desk: task_loop.desk(),
            clock: Arc::clone(&clock),
            ids: Arc::clone(&ids),
            policy: settings.agent_policy.clone(),
        })
        .giving(agent.binary);

        let task_loop = task_loop.start(&clock, pauses.tasks, &tasks, &stop).await?;
        let watched = Arc::clone(&fleet);
        let hearing =
            ground.hearing(&fleet, Held::new(HEARS, settings.name.clone()).reached_at(settings.agent_url.clone()));
        tasks.spawn(hearing.begin().await.run(ticks(pauses.detector), stop.clone()));
        let loops = Loops { store: store.clone(), fleet, clock: clock.clone(), ids: ids.clone(), tasks: task_loop };
        let feed = Feed { seen, judge: Conformance::new(store.clone(), ids.clone()), judged: false };
        loops.spawn(&tasks, &stop, &ground, pauses, feed);
        let parts = http::Parts {
            webhooks: ground.webhooks,
            secret_standing: Arc::default(),
            store,
            prober: Arc::new(Prober::new(Arc::clone(&ground.secrets), clock.clone(), ids.clone(), ground.providers)),
            clock,
            ids,
            random: Arc::new(move || ground.entropy.bytes32()),
            wake: Arc::new(move |job| wake.wake(job)),
            bmcs: ground.bmcs,
            secrets: ground.secrets,
            registry,
            task_keys: ground.task_keys,
            agent_ca_pem: bootstrap.ca_pem.clone(),
            notices: Arc::clone(components.notices()),
            metrics: ground.metrics,
            bootstrap_command: Arc::new(move |node, token| manual_command(&bootstrap, node, token)),
            limits: settings.http_limits,
            stop: stop.clone(),
        };
        look_after(&parts, &tasks, watched, components, &settings.name, pauses);
        Ok(Self { agents: Arc::new(service), router: http::router(parts), stop, driver, tasks })
    }
}

/// What else goes on beside the API: each does its part in its own time.
fn look_after(
    parts: &http::Parts,
    tasks: &TaskTracker,
    fleet: Arc<Fleet>,
    components: Components,
    name: &str,
    pauses: Pauses,
) {
    tasks.spawn(secrets::watch(parts, name.to_owned()));
    tasks.spawn(webhooks::deliver(Courier::of(parts, name.to_owned()), parts.stop.clone()));
    tasks.spawn(bmc_watch::run(parts, fleet, name.to_owned(), pauses.bmcs));
    tasks.spawn(standing::remedy(parts, name.to_owned()));
    tasks.spawn(wipe_watch::run(parts));
    tasks.spawn(component_loop::run(parts, components));
}

impl Ground {
    /// What stages work with.
    fn tools(&self, registry: &Arc<Registry>, bootstrap: BootstrapConfig, holder: String) -> Tools {
        Tools {
            store: self.store.reading_beside_commits(),
            clock: Arc::clone(&self.clock),
            ids: Arc::clone(&self.ids),
            entropy: Arc::clone(&self.entropy),
            secrets: Arc::clone(&self.secrets),
            providers: Arc::clone(&self.providers),
            live_work: Arc::new(RegistryWork::new(Arc::clone(registry), self.store.clone())),
            bootstrap,
            holder,
            limits: lattice_workflow::tools::Limits::default(),
            crash: lattice_workflow::crash::CrashPlan::never(),
            sites: lattice_workflow::tools::SiteCache::default(),
        }
    }

    /// What hears the agents, under that lease.
    fn hearing(&self, fleet: &Arc<Fleet>, lease: Held) -> Hearing {
        Hearing {
            lease,
            store: self.store.clone(),
            registry: Arc::clone(fleet.registry()),
            detector: Detector::new(self.store.clone(), Arc::clone(fleet), Arc::clone(&self.ids)),
            clock: Arc::clone(&self.clock),
            metrics: Arc::clone(&self.metrics),
        }
    }

    /// Nonces for tasks.
    fn nonces(&self) -> Arc<lattice_controllers::Nonces> {
        let entropy = Arc::clone(&self.entropy);
        Arc::new(move || http::nonce_of(entropy.bytes32()))
    }
}

/// How hosts find this server and what they trust.
fn bootstrap_config(server: String, agent: &AgentSource, authority: &Authority, keys: &TaskKeys) -> BootstrapConfig {
    BootstrapConfig {
        server,
        ca_pem: authority.bundle_pem().to_owned(),
        agent_url: agent.url.clone(),
        agent_sha256: agent.sha256.clone(),
        task_keys_pem: keys.public().remove(0).public_key,
    }
}

/// Manual nodes belong to the built-in site `local`. design: 8-interfaces
async fn ensure_local_site(store: &Store, clock: &dyn Clock, ids: &dyn IdSource) -> Result<(), StoreError> {
    if store.site_by_name("local").await?.is_some() {
        return Ok(());
    }
    let now = clock.now();
    let site = Site {
        id: SiteId::generate(ids, now),
        name: "local".to_owned(),
        region_code: "local".to_owned(),
        provider: SiteProvider::Manual,
        heartbeat: HeartbeatPolicy::default(),
        bmc: lattice_core::bmc::BmcPolicy::default(),
        automation: lattice_core::site::AutomationPolicy::default(),
        brake: None,
        let_go_at: None,
        approved: Vec::new(),
        sensitive: SensitivePolicy::default(),
        status: SiteStatus::Active,
        created_at: now,
        updated_at: now,
        generation: Generation::FIRST,
    };
    let commit = request("server", clock, ids).commit(Vec::new(), vec![Change::Site(Box::new(site))]);
    match store.commit_one(commit).await? {
        // Another server of the same database was first.
        Outcome::Applied { .. } | Outcome::Duplicate { .. } | Outcome::Conflict { .. } => Ok(()),
        Outcome::Fenced | Outcome::Missing { .. } => unreachable!("the commit has neither lease nor predecessor"),
    }
}

/// The loops that observe and decide.
struct Loops {
    store: Store,
    fleet: Arc<Fleet>,
    clock: Arc<dyn Clock>,
    ids: Arc<dyn IdSource>,
    tasks: Arc<TaskLoop>,
}

impl Loops {
    fn spawn(self, tasks: &TaskTracker, stop: &CancellationToken, ground: &Ground, pauses: Pauses, feed: Feed) {
        let (registry, ids) = (Arc::clone(self.fleet.registry()), Arc::clone(&self.ids));
        let allocator = Allocator::new(self.store.clone(), registry, ids, ground.nonces());
        tasks.spawn(allocate(allocator, Arc::clone(&self.clock), ticks(pauses.allocator), stop.clone()));
        let (clock, ids) = (Arc::clone(&self.clock), Arc::clone(&self.ids));
        tasks.spawn(expire(self.store.clone(), clock, ids, ticks(pauses.bootstraps), stop.clone()));
        tasks.spawn(self.follow(feed, stop.clone()));
    }

    /// Takes in what was committed, by whomever: the registry is kept in step, fingerprints are judged.
    async fn follow(self, mut feed: Feed, stop: CancellationToken) {
        let mut follower = self.store.follow();
        loop {
            let taken = self.take_in(&mut feed).await;
            if let Err(error) = &taken {
                warn!(%error, "feed waits for the store");
            }
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                () = tokio::time::sleep(Duration::from_millis(200)), if taken.is_err() => {}
                woken = follower.after(feed.seen), if taken.is_ok() => {
                    if woken.is_err() {
                        return;
                    }
                }
            }
        }
    }

    async fn take_in(&self, feed: &mut Feed) -> Result<(), StoreError> {
        let events = self.store.events(feed.seen, &EventFilter::default(), FEED_PAGE).await?;
        self.tasks.take_in(&events).await;
        self.fleet.take_in(&events, self.clock.now()).await?;
        match feed.judged {
            true => feed.judge.take_in(&events, self.clock.now()).await?,
            false => feed.judge.load(self.clock.now()).await?,
        }
        feed.judged = true;
        feed.seen = events.last().map_or(feed.seen, |event| event.seq);
        Ok(())
    }
}

/// How far the feed was read, and who is told of it besides the fleet and the tasks.
struct Feed {
    seen: EventSeq,
    judge: Conformance,
    /// Whether everybody was judged once; from then on those who change are.
    judged: bool,
}

/// A timer that does not make up for late ticks.
fn ticks(pause: Duration) -> tokio::time::Interval {
    let mut timer = tokio::time::interval(pause);
    timer.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    timer
}

async fn allocate(
    allocator: Allocator,
    clock: Arc<dyn Clock>,
    mut timer: tokio::time::Interval,
    stop: CancellationToken,
) {
    loop {
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            _ = timer.tick() => {}
        }
        if let Err(error) = allocator.tick(clock.now()).await {
            warn!(%error, "allocations wait for the store");
        }
    }
}

async fn expire(
    store: Store,
    clock: Arc<dyn Clock>,
    ids: Arc<dyn IdSource>,
    mut timer: tokio::time::Interval,
    stop: CancellationToken,
) {
    loop {
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            _ = timer.tick() => {}
        }
        if let Err(error) = expire_bootstraps(&store, &*ids, clock.now()).await {
            warn!(%error, "bootstraps wait for the store");
        }
        if let Err(error) = expire_silences(&store, &*ids, clock.now()).await {
            warn!(%error, "silences wait for the store");
        }
    }
}
