//! Puts a server together: the only place that knows all parts.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use lattice_core::actor::Role;
use lattice_core::change::Change;
use lattice_core::command::Request;
use lattice_core::credential::ApiToken;
use lattice_core::ids::{ApiTokenId, CorrelationId, Generation, IdSource};
use lattice_core::secret::{Secret, token_hash};
use lattice_core::time::Clock;
use lattice_core::webhook::address::AddressPolicy;
use lattice_providers::secret::vault::VaultSettings;
use lattice_providers::webhook::HttpSender;
use lattice_store::{Store, StoreConfig};
use lattice_workflow::site_clients::SiteClients;
use lattice_workflow::tools::SystemEntropy;
use tokio::net::TcpListener;
use tracing::{info, warn};

use crate::agent_api::{AgentListener, AgentPolicy, Limits, server_tls};
use crate::agent_source::AgentSource;
use crate::http;
use crate::https::{self, HttpsListener};
use crate::keys::{self, Keys, KeysError};
use crate::metrics::Metrics;
use crate::plane::{Ground, Pauses, Plane, Settings};
use crate::secrets;

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
    /// How agents reach this very server: `https://lattice-1.dc1:7443`; none: at its listener's address.
    pub agent_url: Option<String>,
    /// Where new hosts find a server, this one or another: `https://lattice.dc1:7443`; none: at `agent_url`.
    pub given_url: Option<String>,
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
            given_url: None,
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
    plane: Plane,
    listener: AgentListener,
    clock: Arc<dyn Clock>,
    ids: Arc<dyn IdSource>,
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

        let agent_socket = bind(options.agent_listen)?;
        let agent_address =
            agent_socket.local_addr().map_err(|source| StartError::Listen { address: options.agent_listen, source })?;
        let agent_url = options.agent_url.clone().unwrap_or_else(|| format!("https://{agent_address}"));
        let given_url = options.given_url.clone().unwrap_or_else(|| agent_url.clone());
        let agent = AgentSource::find(&options, &given_url).await?;
        let clients = SiteClients::new(Arc::clone(&secrets), Arc::clone(&clock), Arc::clone(&ids));
        let ground = Ground {
            store: store.clone(),
            bmcs: clients.bmcs().clone(),
            providers: Arc::new(clients),
            secrets,
            webhooks: Arc::new(HttpSender::new(options.webhooks.clone())),
            authority: Arc::clone(&authority),
            task_keys,
            clock: Arc::clone(&clock),
            ids: Arc::clone(&ids),
            entropy: Arc::new(SystemEntropy),
            metrics: Arc::clone(&metrics),
        };
        let settings = Settings {
            name: options.name,
            agent_url,
            certificate_life: options.certificate_life,
            agent_policy: options.agent_policy,
            http_limits: options.http_limits,
            pauses: Pauses { detector: options.detector_interval, ..Pauses::default() },
        };
        let plane = Plane::start(ground, given_url, agent, settings).await?;
        let names = options.agent_names;
        let tls = server_tls(authority, names, clock.clone(), ids.clone(), keys.ticket_seed)?;
        let listener = AgentListener::start(agent_socket, Arc::clone(&plane.agents), tls, options.agent_limits)?;
        let api = serve_api(options.api_listen, options.api_tls.as_ref(), &plane).await?;
        info!(%api, agents = %listener.address(), "server started");
        Ok(Self { api, agents: listener.address(), store, metrics, plane, listener, clock, ids })
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
        let Plane { stop, driver, tasks, .. } = self.plane;
        stop.cancel();
        driver.drain().await;
        self.listener.drain().await;
        tasks.close();
        tasks.wait().await;
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

pub(crate) fn request<'a>(component: &str, clock: &dyn Clock, ids: &'a dyn IdSource) -> Request<'a> {
    let now = clock.now();
    Request::of_system(component, ids, now, CorrelationId::generate(ids, now))
}

fn bind(address: SocketAddr) -> Result<std::net::TcpListener, StartError> {
    std::net::TcpListener::bind(address).map_err(|source| StartError::Listen { address, source })
}

async fn serve_api(address: SocketAddr, tls: Option<&Tls>, plane: &Plane) -> Result<SocketAddr, StartError> {
    let listen = |source| StartError::Listen { address, source };
    let socket = TcpListener::bind(address).await.map_err(listen)?;
    let bound = socket.local_addr().map_err(listen)?;
    let (router, tasks) = (plane.router.clone(), &plane.tasks);
    let stopped = plane.stop.clone().cancelled_owned();
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
