//! Puts a server together: the only place that knows all parts.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use lattice_controllers::{Allocator, Detector, Fleet, expire_bootstraps};
use lattice_core::actor::Role;
use lattice_core::change::{Change, Outcome};
use lattice_core::command::Request;
use lattice_core::credential::ApiToken;
use lattice_core::heartbeat::Registry;
use lattice_core::ids::{ApiTokenId, CorrelationId, EventSeq, Generation, IdSource, JobId, SiteId};
use lattice_core::node::class::HeartbeatPolicy;
use lattice_core::secret::{Secret, token_hash};
use lattice_core::site::{SensitivePolicy, Site, SiteProvider, SiteStatus};
use lattice_core::time::Clock;
use lattice_core::webhook::address::AddressPolicy;
use lattice_providers::machine::bmc::BmcClients;
use lattice_providers::secret::SecretStore;
use lattice_providers::secret::vault::VaultSettings;
use lattice_providers::webhook::HttpSender;
use lattice_store::{EventFilter, Store, StoreConfig};
use lattice_workflow::bootstrap::{BootstrapConfig, manual_command};
use lattice_workflow::driver::embedded::{DriverLimits, EmbeddedDriver, Waker};
use lattice_workflow::runner::Runner;
use lattice_workflow::site_clients::SiteClients;
use lattice_workflow::tools::{SystemEntropy, Tools};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{info, warn};

use crate::agent_api::{AgentListener, AgentPolicy, AgentService, Limits, Parts, server_tls};
use crate::agent_source::AgentSource;
use crate::agents::{Agents, WakeJob};
use crate::bmc_watch;
use crate::http;
use crate::https::{self, HttpsListener};
use crate::keys::{self, Keys, KeysError};
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

/// Events taken from the feed at once.
const FEED_PAGE: usize = 1_000;

/// Certificate and key of the API.
#[derive(Clone)]
pub struct Tls {
    /// Certificate chain in PEM, leaf first.
    pub chain_pem: String,
    /// Its key in PEM.
    pub key_pem: Secret<String>,
}

/// Everything a server is told.
#[derive(Clone)]
pub struct Options {
    /// Where the rows are.
    pub store: StoreConfig,
    /// Directory of the secret store.
    pub secrets_dir: PathBuf,
    /// Key file of the secret store.
    pub secrets_key: PathBuf,
    /// Vault as the secret store, instead of the file in that directory.
    pub vault: Option<VaultSettings>,
    /// Where the API and the page listen.
    pub api_listen: SocketAddr,
    /// TLS of the API and the page; none: plain HTTP, for loopback alone.
    pub api_tls: Option<Tls>,
    /// Where agents are served.
    pub agent_listen: SocketAddr,
    /// How agents reach the listener: `https://lattice.dc1:7443`; none: its own address.
    pub agent_url: Option<String>,
    /// Names and addresses in the listener's certificate.
    pub agent_names: Vec<String>,
    /// The agent's binary that this server gives to new hosts; none: it has none.
    pub agent_binary: Option<PathBuf>,
    /// Where hosts fetch the agent's binary from; empty: from this server's agent listener.
    pub agent_binary_url: String,
    /// SHA-256 of what is at that address, in hex; none: not checked beyond TLS. This server hashes its own.
    pub agent_binary_sha256: Option<String>,
    /// This server's name in leases; the same after a restart.
    pub name: String,
    /// Life of a node's certificate.
    pub certificate_life: Duration,
    /// Pause between two scans of the detector.
    pub detector_interval: Duration,
    /// How agents are told to behave.
    pub agent_policy: AgentPolicy,
    /// Ceilings of the agent listener.
    pub agent_limits: Limits,
    /// Bounds of the API.
    pub http_limits: http::HttpLimits,
    /// Where events may be posted to.
    pub webhooks: AddressPolicy,
}

impl Default for Options {
    /// A server on loopback with its data in `/var/lib/lattice`.
    fn default() -> Self {
        let data = PathBuf::from("/var/lib/lattice");
        Self {
            store: StoreConfig::sqlite(data.join("lattice.db")),
            secrets_key: data.join("secrets.key"),
            secrets_dir: data,
            vault: None,
            api_listen: SocketAddr::from(([127, 0, 0, 1], 7440)),
            api_tls: None,
            agent_listen: SocketAddr::from(([127, 0, 0, 1], 7443)),
            agent_url: None,
            agent_names: vec!["localhost".to_owned(), "127.0.0.1".to_owned()],
            agent_binary: None,
            agent_binary_url: String::new(),
            agent_binary_sha256: None,
            name: "lattice".to_owned(),
            certificate_life: Duration::from_secs(86_400),
            detector_interval: Duration::from_millis(250),
            agent_policy: AgentPolicy::default(),
            agent_limits: Limits::default(),
            http_limits: http::HttpLimits::default(),
            webhooks: AddressPolicy::default(),
        }
    }
}

/// Why a server does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The rows cannot be opened.
    #[error(transparent)]
    Store(#[from] lattice_store::StoreError),
    /// The secret store cannot be opened.
    #[error(transparent)]
    Secrets(#[from] lattice_providers::secret::SecretError),
    /// The installation's keys are not to be had.
    #[error(transparent)]
    Keys(#[from] crate::keys::KeysError),
    /// The agent listener has no TLS.
    #[error(transparent)]
    Tls(#[from] crate::agent_api::TlsError),
    /// The agent listener does not start.
    #[error(transparent)]
    Agents(#[from] crate::agent_api::StartError),
    /// The API has no TLS.
    #[error(transparent)]
    Https(#[from] crate::https::HttpsError),
    /// The agent's binary cannot be given to new hosts.
    #[error(transparent)]
    AgentBinary(#[from] crate::agent_source::Unreadable),
    /// An address cannot be listened on.
    #[error("{address} cannot be listened on: {source}; choose another address or end what uses it")]
    Listen {
        /// Which.
        address: SocketAddr,
        /// Why.
        source: std::io::Error,
    },
}

impl StartError {
    /// What to do about it, where the message itself does not say.
    pub fn remedy(&self) -> Option<String> {
        match self {
            Self::Secrets(error) | Self::Keys(KeysError::Store(error)) => error.remedy(),
            Self::Store(_)
            | Self::Keys(KeysError::Authority(_) | KeysError::Seed { .. } | KeysError::Lost { .. })
            | Self::Tls(_)
            | Self::Agents(_)
            | Self::Https(_)
            | Self::AgentBinary(_)
            | Self::Listen { .. } => None,
        }
    }
}

/// A server that runs.
pub struct Server {
    /// Where the API and the page are.
    pub api: SocketAddr,
    /// Where agents are served.
    pub agents: SocketAddr,
    /// The rows, for whoever runs in the same process.
    pub store: Store,
    /// What is counted.
    pub metrics: Arc<Metrics>,
    stop: CancellationToken,
    tasks: TaskTracker,
    listener: AgentListener,
    driver: EmbeddedDriver,
    clock: Arc<dyn Clock>,
    ids: Arc<dyn IdSource>,
}

/// Wakes jobs for those who do not wait.
struct Wake(Waker);

impl WakeJob for Wake {
    fn wake(&self, job: JobId) {
        let waker = self.0.clone();
        tokio::spawn(async move { waker.job(job).await });
    }
}

impl Server {
    /// Starts everything; when this returns, the API answers and agents are served.
    ///
    /// # Errors
    /// [`StartError`] says which part is missing and what to do.
    pub async fn start(options: Options, clock: Arc<dyn Clock>, ids: Arc<dyn IdSource>) -> Result<Self, StartError> {
        let store = Store::open(options.store.clone()).await?;
        let metrics = Arc::new(Metrics::default());
        let secrets = secrets::open(&options, &clock, &metrics)?;
        keys::not_lost(&store, &*secrets).await?;
        let keys = Keys::load_or_create(&*secrets, clock.now(), rand::random()).await?;
        let (authority, task_keys) = (Arc::new(keys.authority), Arc::new(keys.task_keys));
        let registry = Arc::new(Registry::new());
        let fleet = Arc::new(Fleet::new(store.clone(), Arc::clone(&registry)));
        ensure_local_site(&store, &*clock, &*ids).await?;
        fleet.load(clock.now()).await?;
        let stop = CancellationToken::new();
        let tasks = TaskTracker::new();

        let agent_socket = bind(options.agent_listen)?;
        let agent_address =
            agent_socket.local_addr().map_err(|source| StartError::Listen { address: options.agent_listen, source })?;
        let agent_url = options.agent_url.clone().unwrap_or_else(|| format!("https://{agent_address}"));
        let agent = AgentSource::find(&options, &agent_url).await?;
        let bootstrap = bootstrap_config(agent_url, &agent, &authority, &task_keys);
        let (tools, bmcs) = tools(&options, &store, &secrets, &registry, &clock, &ids, bootstrap.clone());
        let providers = Arc::clone(&tools.providers);
        let driver = EmbeddedDriver::start(Runner::new(Arc::new(tools)), DriverLimits::default());
        let wake = Arc::new(Wake(driver.waker()));
        let (beside, life) = (store.reading_beside_commits(), options.certificate_life);
        let agents = Agents::new(beside, fleet.clone(), ids.clone(), wake.clone(), task_keys.clone(), life);
        let task_loop = TaskLoop::new(&store, &secrets, &task_keys, &metrics, &ids);
        let service = AgentService::new(Parts {
            registry: Arc::clone(&registry),
            events: Arc::new(agents.giving_tokens(Arc::clone(&secrets))),
            authority: Arc::clone(&authority),
            task_keys: Arc::clone(&task_keys),
            desk: task_loop.desk(),
            clock: Arc::clone(&clock),
            ids: Arc::clone(&ids),
            policy: options.agent_policy.clone(),
        })
        .giving(agent.binary);
        let names = options.agent_names.clone();
        let tls = server_tls(authority, names, clock.clone(), ids.clone(), keys.ticket_seed)?;
        let listener = AgentListener::start(agent_socket, Arc::new(service), tls, options.agent_limits)?;

        let task_loop = task_loop.start(&clock, &tasks, &stop).await?;
        let watched = Arc::clone(&fleet);
        let loops = Loops { store: store.clone(), fleet, clock: clock.clone(), ids: ids.clone(), tasks: task_loop };
        loops.spawn(&tasks, &stop, options.detector_interval, &metrics);
        let parts = http::Parts {
            webhooks: Arc::new(HttpSender::new(options.webhooks.clone())),
            secret_standing: Arc::default(),
            store: store.clone(),
            clock: Arc::clone(&clock),
            ids: Arc::clone(&ids),
            random: Arc::new(rand::random),
            wake: Arc::new(move |job| wake.wake(job)),
            bmcs,
            prober: Arc::new(Prober::new(Arc::clone(&secrets), Arc::clone(&clock), Arc::clone(&ids), providers)),
            secrets,
            registry,
            task_keys,
            agent_ca_pem: bootstrap.ca_pem.clone(),
            metrics: Arc::clone(&metrics),
            bootstrap_command: Arc::new(move |node, token| manual_command(&bootstrap, node, token)),
            limits: options.http_limits,
            stop: stop.clone(),
        };
        watches(&parts, watched, &options.name, &tasks);
        let api = serve_api(options.api_listen, options.api_tls.as_ref(), http::router(parts), &tasks, &stop).await?;
        info!(%api, agents = %listener.address(), "server started");
        Ok(Self { api, agents: listener.address(), store, metrics, stop, tasks, listener, driver, clock, ids })
    }

    /// Issues an API token and gives its secret, once.
    ///
    /// # Errors
    /// The store fails.
    pub async fn issue_token(&self, name: &str, role: Role) -> Result<Secret<String>, lattice_store::StoreError> {
        issue_token(&self.store, &*self.clock, &*self.ids, name, role).await
    }

    /// Stops: no new requests, parked ones are answered, the driver ends at a turn's boundary.
    pub async fn stop(self) {
        self.stop.cancel();
        self.driver.drain().await;
        self.listener.drain().await;
        self.tasks.close();
        self.tasks.wait().await;
    }
}

/// Issues an API token and gives its secret, once: `lat_api_` and 32 random bytes.
///
/// # Errors
/// The store fails.
pub async fn issue_token(
    store: &Store,
    clock: &dyn Clock,
    ids: &dyn IdSource,
    name: &str,
    role: Role,
) -> Result<Secret<String>, lattice_store::StoreError> {
    use base64::Engine;
    let random: [u8; 32] = rand::random();
    let secret = format!("lat_api_{}", base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(random));
    let now = clock.now();
    let token = ApiToken {
        id: ApiTokenId::generate(ids, now),
        name: name.to_owned(),
        role,
        hash: token_hash(&secret),
        issued_at: now,
        expires_at: None,
        revoked_at: None,
        generation: Generation::FIRST,
    };
    let commit = request("server", clock, ids).commit(Vec::new(), vec![Change::ApiToken(token)]);
    store.commit_one(commit).await?;
    Ok(Secret::new(secret))
}

fn request<'a>(component: &str, clock: &dyn Clock, ids: &'a dyn IdSource) -> Request<'a> {
    let now = clock.now();
    Request::of_system(component, ids, now, CorrelationId::generate(ids, now))
}

/// Manual nodes belong to the built-in site `local`. design: 8-interfaces
async fn ensure_local_site(store: &Store, clock: &dyn Clock, ids: &dyn IdSource) -> Result<(), StartError> {
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

fn bind(address: SocketAddr) -> Result<std::net::TcpListener, StartError> {
    std::net::TcpListener::bind(address).map_err(|source| StartError::Listen { address, source })
}

/// Those who look after the secret store, the receivers of events, the BMCs, the standing orders of sites and the nodes that
/// must be wiped.
fn watches(parts: &http::Parts, fleet: Arc<Fleet>, name: &str, tasks: &TaskTracker) {
    tasks.spawn(secrets::watch(parts, name.to_owned()));
    tasks.spawn(webhooks::deliver(Courier::of(parts, name.to_owned()), parts.stop.clone()));
    tasks.spawn(bmc_watch::run(parts, fleet));
    tasks.spawn(standing::conformance(parts));
    tasks.spawn(standing::remedy(parts));
    tasks.spawn(wipe_watch::run(parts));
}

/// What stages work with, and the BMCs that they share with those who only look.
fn tools(
    options: &Options,
    store: &Store,
    secrets: &Arc<dyn SecretStore>,
    registry: &Arc<Registry>,
    clock: &Arc<dyn Clock>,
    ids: &Arc<dyn IdSource>,
    bootstrap: BootstrapConfig,
) -> (Tools, Arc<BmcClients>) {
    let clients = SiteClients::new(Arc::clone(secrets), Arc::clone(clock), Arc::clone(ids));
    let bmcs = Arc::clone(clients.bmcs());
    let tools = Tools {
        store: store.reading_beside_commits(),
        clock: Arc::clone(clock),
        ids: Arc::clone(ids),
        entropy: Arc::new(SystemEntropy),
        secrets: Arc::clone(secrets),
        providers: Arc::new(clients),
        live_work: Arc::new(RegistryWork::new(Arc::clone(registry), store.clone())),
        bootstrap,
        holder: options.name.clone(),
        limits: lattice_workflow::tools::Limits::default(),
        crash: lattice_workflow::crash::CrashPlan::never(),
        sites: lattice_workflow::tools::SiteCache::default(),
    };
    (tools, bmcs)
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

async fn serve_api(
    address: SocketAddr,
    tls: Option<&Tls>,
    router: axum::Router,
    tasks: &TaskTracker,
    stop: &CancellationToken,
) -> Result<SocketAddr, StartError> {
    let listen = |source| StartError::Listen { address, source };
    let socket = TcpListener::bind(address).await.map_err(listen)?;
    let bound = socket.local_addr().map_err(listen)?;
    let stopped = stop.clone().cancelled_owned();
    match tls {
        Some(tls) => {
            let config = https::tls(&tls.chain_pem, &tls.key_pem)?;
            let listener = HttpsListener::start(socket, config).map_err(listen)?;
            tasks.spawn(api_ended(axum::serve(listener, router).with_graceful_shutdown(stopped).into_future()));
        }
        None => {
            tasks.spawn(api_ended(axum::serve(socket, router).with_graceful_shutdown(stopped).into_future()));
        }
    }
    Ok(bound)
}

async fn api_ended(serving: impl Future<Output = std::io::Result<()>>) {
    if let Err(error) = serving.await {
        warn!(%error, "api ended");
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
    fn spawn(self, tasks: &TaskTracker, stop: &CancellationToken, scan: Duration, metrics: &Arc<Metrics>) {
        let detector = Detector::new(self.store.clone(), Arc::clone(&self.fleet), Arc::clone(&self.ids));
        let registry = Arc::clone(self.fleet.registry());
        tasks.spawn(detect(
            detector,
            registry,
            Arc::clone(&self.clock),
            Arc::clone(metrics),
            ticks(scan),
            stop.clone(),
        ));
        let (registry, ids) = (Arc::clone(self.fleet.registry()), Arc::clone(&self.ids));
        let allocator = Allocator::new(self.store.clone(), registry, ids, Arc::new(rand::random::<[u8; 16]>));
        tasks.spawn(allocate(allocator, Arc::clone(&self.clock), stop.clone()));
        tasks.spawn(expire(self.store.clone(), Arc::clone(&self.clock), Arc::clone(&self.ids), stop.clone()));
        tasks.spawn(self.follow(stop.clone()));
    }

    /// Takes in what was committed, by whomever: the registry is kept in step.
    async fn follow(self, stop: CancellationToken) {
        let mut follower = self.store.follow();
        let mut seen = match self.store.last_event().await {
            Ok(last) => last,
            Err(error) => {
                warn!(%error, "feed starts at its beginning");
                EventSeq(0)
            }
        };
        loop {
            let woken = tokio::select! {
                () = stop.cancelled() => return,
                woken = follower.after(seen) => woken,
            };
            if woken.is_err() {
                return;
            }
            match self.take_in(seen).await {
                Ok(last) => seen = last,
                Err(error) => {
                    warn!(%error, "feed waits for the store");
                    tokio::time::sleep(Duration::from_millis(200)).await;
                }
            }
        }
    }

    async fn take_in(&self, seen: EventSeq) -> Result<EventSeq, lattice_store::StoreError> {
        let events = self.store.events(seen, &EventFilter::default(), FEED_PAGE).await?;
        self.tasks.take_in(&events).await;
        self.fleet.take_in(&events, self.clock.now()).await?;
        Ok(events.last().map_or(seen, |event| event.seq))
    }
}

/// How often unused bootstraps are looked at.
const EXPIRY_SCAN: Duration = Duration::from_secs(10);

/// A timer that does not make up for late ticks.
fn ticks(pause: Duration) -> tokio::time::Interval {
    let mut timer = tokio::time::interval(pause);
    timer.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    timer
}

async fn detect(
    detector: Detector,
    registry: Arc<Registry>,
    clock: Arc<dyn Clock>,
    metrics: Arc<Metrics>,
    mut timer: tokio::time::Interval,
    stop: CancellationToken,
) {
    let mut counted = registry.beats();
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            _ = timer.tick() => {}
        }
        match detector.tick(clock.now()).await {
            Ok(judged) => judged
                .applied
                .iter()
                .for_each(|(event, count)| (0..*count).for_each(|_| metrics.transition((*event).into()))),
            Err(error) => warn!(%error, "detector waits for the store"),
        }
        let beats = registry.beats();
        metrics.heartbeats(beats - counted);
        counted = beats;
    }
}

/// How often allocations are looked at.
const ALLOCATION_SCAN: Duration = Duration::from_secs(1);

async fn allocate(allocator: Allocator, clock: Arc<dyn Clock>, stop: CancellationToken) {
    let mut timer = ticks(ALLOCATION_SCAN);
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            _ = timer.tick() => {}
        }
        if let Err(error) = allocator.tick(clock.now()).await {
            warn!(%error, "allocations wait for the store");
        }
    }
}

async fn expire(store: Store, clock: Arc<dyn Clock>, ids: Arc<dyn IdSource>, stop: CancellationToken) {
    let mut timer = ticks(EXPIRY_SCAN);
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            _ = timer.tick() => {}
        }
        if let Err(error) = expire_bootstraps(&store, &*ids, clock.now()).await {
            warn!(%error, "bootstraps wait for the store");
        }
    }
}
