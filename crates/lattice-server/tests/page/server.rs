//! A server in this process over a store in memory, with a clock that stands still or runs from a fixed start.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use lattice_core::actor::{Actor, Role};
use lattice_core::agent::task::SigningKey;
use lattice_core::change::{Change, Commit, Outcome};
use lattice_core::credential::ApiToken;
use lattice_core::heartbeat::{Beat, Registry, Vitals};
use lattice_core::ids::{ApiTokenId, CorrelationId, Generation, IdSource, NodeId, OpId, SessionId, uuid_v7};
use lattice_core::secret::{Secret, token_hash};
use lattice_core::site::Site;
use lattice_core::time::{Clock, Timestamp};
use lattice_core::webhook::address::AddressPolicy;
use lattice_providers::secret::{SecretError, SecretObject, SecretPath, SecretStore};
use lattice_providers::webhook::HttpSender;
use lattice_server::http::{HttpLimits, NewSecrets, Parts, ProbeFailed, Probed, SiteProber, router};
use lattice_server::metrics::Metrics;
use lattice_server::task_keys::TaskKeys;
use lattice_store::{BackendConfig, Store, StoreConfig};
use tokio_util::sync::CancellationToken;

/// When every test begins.
pub const START: Timestamp = Timestamp::from_millis(1_763_712_764_000);

/// An administrator's token, and one that only looks.
pub const TOKEN: &str = "lat_api_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";
pub const VIEWER: &str = "lat_api_BBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBB";

/// How the server's time goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Time {
    Stands,
    Runs,
}

struct TestClock {
    time: Time,
    since: Instant,
}

impl Clock for TestClock {
    fn now(&self) -> Timestamp {
        match self.time {
            Time::Stands => START,
            Time::Runs => START + self.since.elapsed(),
        }
    }
}

#[derive(Default)]
pub struct CountedIds(AtomicU64);

impl IdSource for CountedIds {
    fn uuid(&self, at: Timestamp) -> uuid::Uuid {
        let mut random = [0; 10];
        random[2..].copy_from_slice(&self.0.fetch_add(1, Ordering::SeqCst).to_be_bytes());
        uuid_v7(at, random)
    }
}

/// Every secret is there.
struct AnySecrets;

#[async_trait]
impl SecretStore for AnySecrets {
    async fn read(&self, _: &SecretPath) -> Result<SecretObject, SecretError> {
        Ok(SecretObject::default())
    }
    async fn write(&self, _: &SecretPath, _: SecretObject) -> Result<(), SecretError> {
        Ok(())
    }
    async fn delete(&self, _: &SecretPath) -> Result<(), SecretError> {
        Ok(())
    }
}

struct Answers;

#[async_trait]
impl SiteProber for Answers {
    async fn probe(&self, site: &Site, _: &NewSecrets) -> Result<Probed, ProbeFailed> {
        match site.name.as_str() {
            "hpc" => {
                Err(ProbeFailed { why: "connection refused".to_owned(), code: lattice_core::explain::Code::Provider })
            }
            _ => Ok(Probed { version: Some("3.5.2".to_owned()), details: vec!["2 rack controllers".to_owned()] }),
        }
    }
}

pub struct TestServer {
    pub store: Store,
    pub ids: Arc<CountedIds>,
    pub registry: Arc<Registry>,
    pub address: SocketAddr,
    clock: Arc<TestClock>,
    stop: CancellationToken,
}

impl TestServer {
    pub async fn start(time: Time) -> Self {
        let clock = Arc::new(TestClock { time, since: Instant::now() });
        let config = StoreConfig { backend: BackendConfig::SqliteMemory, inline: true };
        let store = Store::open(config).await.unwrap();
        let ids = Arc::new(CountedIds::default());
        let registry = Arc::new(Registry::new());
        let stop = CancellationToken::new();
        let router = router(Parts {
            store: store.clone(),
            clock: clock.clone(),
            ids: ids.clone(),
            random: Arc::new(|| [7; 32]),
            wake: Arc::new(|_| {}),
            secrets: Arc::new(AnySecrets),
            bmcs: Arc::new(lattice_providers::machine::bmc::BmcClients::new(Arc::new(AnySecrets), clock.clone())),
            secret_standing: Arc::default(),
            webhooks: Arc::new(HttpSender::new(AddressPolicy::of_trials())),
            prober: Arc::new(Answers),
            registry: registry.clone(),
            agent_ca_pem: "CA".to_owned(),
            notices: Arc::default(),
            task_keys: Arc::new(TaskKeys::new(SigningKey::from_seed(&Secret::new(vec![5; 32])).unwrap())),
            metrics: Arc::new(Metrics::default()),
            bootstrap_command: Arc::new(|node, _| Secret::new(format!("lattice-agent bootstrap {node}"))),
            limits: HttpLimits::default(),
            stop: stop.clone(),
        });
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let stopped = stop.clone();
        tokio::spawn(async move {
            axum::serve(listener, router).with_graceful_shutdown(stopped.cancelled_owned()).await.unwrap();
        });
        let server = Self { store, ids, registry, address, clock, stop };
        server.token("mara", Role::PlatformAdmin, TOKEN).await;
        server.token("guest", Role::ProjectViewer, VIEWER).await;
        server
    }

    async fn token(&self, name: &str, role: Role, text: &str) {
        let token = ApiToken {
            id: ApiTokenId::generate(&*self.ids, START),
            name: name.to_owned(),
            role,
            hash: token_hash(text),
            issued_at: START,
            expires_at: None,
            revoked_at: None,
            generation: Generation::FIRST,
        };
        self.commit(START, vec![Change::ApiToken(token)]).await;
    }

    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Commits as `ops-ci` at a chosen time.
    pub async fn commit(&self, at: Timestamp, changes: Vec<Change>) {
        let commit = Commit {
            op: OpId::generate(&*self.ids, at),
            guards: Vec::new(),
            changes,
            actor: Actor { name: "ops-ci".to_owned(), role: Role::PlatformAdmin },
            reason: "new machines in rack c07".to_owned(),
            at,
            correlation: CorrelationId::generate(&*self.ids, at),
        };
        let outcome = self.store.commit_one(commit).await.unwrap();
        assert!(matches!(outcome, Outcome::Applied { .. }), "{outcome:?}");
    }

    /// The node's agent is heard, `ago` before now.
    pub fn hear(&self, node: NodeId, ago: Duration) {
        let at = self.now() - ago;
        let handle = self.registry.admit(node, 1, at);
        let session = SessionId::generate(&*self.ids, at);
        let vitals = Vitals { gpu_count: 8, max_temperature_c: 61, ..Vitals::default() };
        handle.open_session(session, vitals, at).unwrap();
        handle.beat(&Beat { session, sequence: 1, vitals }, at).unwrap();
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// A page as somebody with that token gets it.
    pub async fn page(&self, path: &str, token: &str) -> (u16, String) {
        let client = reqwest::Client::builder().redirect(reqwest::redirect::Policy::none()).build().unwrap();
        let request = client.get(self.url(path)).header("cookie", format!("lattice_token={token}"));
        let answer = request.send().await.unwrap();
        (answer.status().as_u16(), answer.text().await.unwrap())
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}
