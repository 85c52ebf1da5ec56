//! A server without sockets: fixed time, counted ids, secrets in memory, a site that answers as told.

use std::collections::HashMap;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use axum::Router;
use axum::body::Body;
use bytes::Bytes;
use http::{HeaderMap, Method, Request, StatusCode, header};
use http_body_util::BodyExt;
use lattice_api::client::{Call, Chunks, Client, Lost, Transport};
use lattice_api::site::CallLine;
use lattice_core::actor::{Actor, Role};
use lattice_core::agent::task::SigningKey;
use lattice_core::change::{Change, Commit, Outcome};
use lattice_core::credential::ApiToken;
use lattice_core::explain::Code;
use lattice_core::heartbeat::Registry;
use lattice_core::ids::{ApiTokenId, CorrelationId, EventSeq, Generation, IdSource, JobId, OpId, SiteId, uuid_v7};
use lattice_core::secret::{Secret, token_hash};
use lattice_core::site::{Site, SiteProvider, SiteStatus};
use lattice_core::sku::Sku;
use lattice_core::time::{Clock, Timestamp};
use lattice_core::webhook::address::AddressPolicy;
use lattice_providers::machine::bmc::BmcClients;
use lattice_providers::secret::{SecretError, SecretObject, SecretPath, SecretStore};
use lattice_providers::webhook::HttpSender;
use lattice_store::{EventFilter, PAGE_MAX, Store, StoreConfig};
use serde_json::Value;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

use crate::auth::{Rate, new_token};
use crate::http::{HttpLimits, NewSecrets, Parts, ProbeFailed, Probed, SiteProber, router};
use crate::metrics::Metrics;
use crate::secrets::SecretStanding;
use crate::task_keys::TaskKeys;

/// 2026-11-21T09:12:44.123Z.
const START_MS: i64 = 1_795_252_364_123;

/// A clock that stands until it is moved.
pub struct TestClock(AtomicI64);

impl Clock for TestClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(self.0.load(Ordering::SeqCst))
    }
}

/// Ids that count.
#[derive(Default)]
pub struct TestIds(AtomicU64);

impl IdSource for TestIds {
    fn uuid(&self, at: Timestamp) -> uuid::Uuid {
        let mut random = [0; 10];
        random[2..].copy_from_slice(&self.0.fetch_add(1, Ordering::SeqCst).to_be_bytes());
        uuid_v7(at, random)
    }
}

/// Secrets in memory.
#[derive(Default)]
pub struct TestSecrets(Mutex<HashMap<String, SecretObject>>);

#[async_trait]
impl SecretStore for TestSecrets {
    async fn read(&self, path: &SecretPath) -> Result<SecretObject, SecretError> {
        let kept = self.0.lock().unwrap().get(path.as_str()).cloned();
        kept.ok_or_else(|| SecretError::NotFound { path: path.clone() })
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

/// A site that accepts tokens that begin with `good`.
struct TestProber;

#[async_trait]
impl SiteProber for TestProber {
    async fn probe(&self, _: &Site, fresh: &NewSecrets) -> Result<Probed, ProbeFailed> {
        let mut tokens = fresh.iter().filter_map(|(_, object)| object.get("token"));
        if tokens.any(|token| !token.expose().starts_with("good")) {
            return Err(ProbeFailed { why: "401 from the region".to_owned(), code: Code::SiteCredentials });
        }
        Ok(Probed { version: Some("3.5.1".to_owned()), details: vec!["1 rack controller".to_owned()] })
    }

    async fn calls(&self, _: &Site) -> Vec<CallLine> {
        let line = |call: &str, calls| CallLine { call: call.to_owned(), calls, retries: 1, failures: 0 };
        vec![line("events.query", 40), line("machines.list", 7)]
    }
}

/// A server under test.
pub struct Api {
    router: Router,
    /// Its store.
    pub store: Store,
    /// Its clock.
    pub clock: Arc<TestClock>,
    /// Its ids.
    pub ids: Arc<TestIds>,
    /// Jobs whose drivers were woken.
    pub woken: Arc<Mutex<Vec<JobId>>>,
    /// Ends its streams.
    pub stop: CancellationToken,
    /// Whether its secret store is away.
    pub standing: Arc<SecretStanding>,
    /// Its secrets.
    pub secrets: Arc<TestSecrets>,
    /// What it heard.
    pub registry: Arc<Registry>,
}

impl Api {
    /// With the site `local`, the SKU `lxd.small`, and tokens of some roles.
    pub async fn new() -> Self {
        Self::with_limits(HttpLimits::default()).await
    }

    /// The same with other bounds.
    pub async fn with_limits(limits: HttpLimits) -> Self {
        let store = Store::open(StoreConfig::memory()).await.unwrap();
        let clock = Arc::new(TestClock(AtomicI64::new(START_MS)));
        let ids = Arc::new(TestIds::default());
        let woken = Arc::new(Mutex::new(Vec::new()));
        let stop = CancellationToken::new();
        let secrets = Arc::new(TestSecrets::default());
        let standing = Arc::new(SecretStanding::default());
        let registry = Arc::new(Registry::new());
        let (drawn, wake) = (AtomicU64::new(0), woken.clone());
        let parts = Parts {
            store: store.clone(),
            clock: clock.clone(),
            ids: ids.clone(),
            random: Arc::new(move || {
                let mut bytes = [9; 32];
                bytes[..8].copy_from_slice(&drawn.fetch_add(1, Ordering::SeqCst).to_be_bytes());
                bytes
            }),
            wake: Arc::new(move |job| wake.lock().unwrap().push(job)),
            secrets: secrets.clone(),
            secret_standing: standing.clone(),
            webhooks: Arc::new(HttpSender::new(AddressPolicy::of_trials())),
            bmcs: Arc::new(BmcClients::new(secrets.clone(), clock.clone())),
            prober: Arc::new(TestProber),
            registry: registry.clone(),
            agent_ca_pem: "CA".to_owned(),
            notices: Arc::default(),
            task_keys: Arc::new(TaskKeys::new(SigningKey::from_seed(&Secret::new(vec![5; 32])).unwrap())),
            metrics: Arc::new(Metrics::default()),
            bootstrap_command: Arc::new(|node, token| Secret::new(format!("bootstrap {node} {}", token.expose()))),
            limits,
            stop: stop.clone(),
        };
        let api = Self { router: router(parts), store, clock, ids, woken, stop, secrets, standing, registry };
        api.seed().await;
        api
    }

    async fn seed(&self) {
        let now = self.clock.now();
        let mut changes = vec![
            Change::Site(Box::new(Site {
                id: SiteId::generate(&*self.ids, now),
                name: "local".to_owned(),
                region_code: "local".to_owned(),
                provider: SiteProvider::Manual,
                heartbeat: lattice_core::node::class::HeartbeatPolicy::default(),
                bmc: lattice_core::bmc::BmcPolicy::default(),
                automation: lattice_core::site::AutomationPolicy::default(),
                brake: None,
                let_go_at: None,
                approved: Vec::new(),
                sensitive: lattice_core::site::SensitivePolicy::default(),
                status: SiteStatus::Active,
                created_at: now,
                updated_at: now,
                generation: Generation::FIRST,
            })),
            Change::Sku(Sku {
                name: "lxd.small".to_owned(),
                gpus: 0,
                gpu_vendor: None,
                gpu_model: None,
                nics: Vec::new(),
                disks: Vec::new(),
                created_at: now,
                updated_at: now,
                generation: Generation::FIRST,
            }),
        ];
        for role in [Role::ProjectViewer, Role::ProjectAdmin, Role::PlatformAdmin, Role::Agent] {
            changes.push(Change::ApiToken(ApiToken {
                id: ApiTokenId::generate(&*self.ids, now),
                name: role.to_string(),
                role,
                hash: token_hash(&token_of(role)),
                issued_at: now,
                expires_at: Some(now + Duration::from_secs(90 * 86_400)),
                revoked_at: None,
                generation: Generation::FIRST,
            }));
        }
        self.commit(changes).await;
    }

    /// Commits as the system.
    pub async fn commit(&self, changes: Vec<Change>) {
        let now = self.clock.now();
        let commit = Commit {
            op: OpId::generate(&*self.ids, now),
            guards: Vec::new(),
            changes,
            actor: Actor::system("test"),
            reason: String::new(),
            at: now,
            correlation: CorrelationId::generate(&*self.ids, now),
        };
        let outcome = self.store.commit_one(commit).await.unwrap();
        assert!(matches!(outcome, Outcome::Applied { .. }), "{outcome:?}");
    }

    /// The names of what is kept at a path of the secret store.
    pub fn secret(&self, path: &str) -> Option<Vec<String>> {
        self.secrets.0.lock().unwrap().get(path).map(|object| object.keys().cloned().collect())
    }

    /// The paths of all secrets below a path.
    pub fn secret_paths(&self, below: &str) -> Vec<String> {
        self.secrets.0.lock().unwrap().keys().filter(|path| path.starts_with(below)).cloned().collect()
    }

    /// Loses all secrets below a path.
    pub fn lose_secrets(&self, below: &str) {
        self.secrets.0.lock().unwrap().retain(|path, _| !path.starts_with(below));
    }

    /// Checks every event so far against the description of its payload.
    pub async fn events_are_as_described(&self) {
        let events = self.store.events(EventSeq(0), &EventFilter::default(), PAGE_MAX).await.unwrap();
        assert!(!events.is_empty());
        for event in events {
            crate::openapi::is_as_described(&event.row.name, &event.row.payload).unwrap();
        }
    }

    /// Lets time pass.
    pub fn pass(&self, time: Duration) {
        self.clock.0.fetch_add(i64::try_from(time.as_millis()).unwrap(), Ordering::SeqCst);
    }

    /// A client with a token of that role.
    pub fn client(&self, role: Role) -> Client<Oneshot> {
        Client::new(Oneshot { router: self.router.clone(), token: token_of(role) })
    }

    /// A client that may do everything.
    pub fn admin(&self) -> Client<Oneshot> {
        self.client(Role::PlatformAdmin)
    }

    /// Sends a raw request.
    pub async fn send(&self, request: Request<Body>) -> Seen {
        let response = self.router.clone().oneshot(request).await.unwrap();
        let (parts, body) = response.into_parts();
        let bytes = body.collect().await.unwrap().to_bytes();
        let body = serde_json::from_slice(&bytes).unwrap_or(Value::Null);
        Seen { status: parts.status, headers: parts.headers, body, bytes }
    }

    /// Sends JSON as the administrator.
    pub async fn json(&self, method: Method, path: &str, body: &str) -> Seen {
        self.send(as_role(request(method, path), Role::PlatformAdmin, body)).await
    }

    /// Reads as the administrator.
    pub async fn get(&self, path: &str) -> Seen {
        self.json(Method::GET, path, "").await
    }
}

/// An answer.
#[derive(Debug)]
pub struct Seen {
    /// Its status.
    pub status: StatusCode,
    /// Its headers.
    pub headers: HeaderMap,
    /// Its JSON; null when it is none.
    pub body: Value,
    /// Its bytes.
    pub bytes: Bytes,
}

impl Seen {
    /// Checks that it is a refusal with these, and a whole problem document.
    pub fn refuses(&self, status: u16, code: &str, about: &str) {
        assert_eq!((self.status.as_u16(), self.body["code"].as_str()), (status, Some(code)), "{about}: {}", self.body);
        assert_eq!(self.headers[header::CONTENT_TYPE], "application/problem+json", "{about}");
        assert_eq!(self.body["status"], status, "{about}");
        assert_eq!(self.body["type"], format!("urn:lattice:error:{code}"), "{about}");
        for field in ["title", "detail", "correlation_id"] {
            let is_there = self.body[field].as_str().is_some_and(|text| !text.is_empty());
            assert!(is_there, "{about}: no {field}: {}", self.body);
        }
        assert_eq!(self.body["correlation_id"].as_str(), self.headers["x-correlation-id"].to_str().ok(), "{about}");
    }
}

/// The token that the fixture made for a role.
pub fn token_of(role: Role) -> String {
    let mut bytes = [0; 32];
    bytes[0] = role as u8 + 1;
    new_token(bytes).expose().clone()
}

/// A request that is being put together.
pub fn request(method: Method, path: &str) -> http::request::Builder {
    Request::builder().method(method).uri(path)
}

/// A request with the token of a role and a JSON body; none when it is empty.
pub fn as_role(builder: http::request::Builder, role: Role, body: &str) -> Request<Body> {
    let builder = builder.header(header::AUTHORIZATION, format!("Bearer {}", token_of(role)));
    if body.is_empty() {
        return builder.body(Body::empty()).unwrap();
    }
    builder.header(header::CONTENT_TYPE, "application/json").body(Body::from(body.to_owned())).unwrap()
}

/// Bounds with another rate.
pub fn limits(rate: Rate) -> HttpLimits {
    HttpLimits { rate, ..HttpLimits::default() }
}

/// Puts requests straight into the router.
pub struct Oneshot {
    router: Router,
    token: String,
}

/// A body of the router.
pub struct Pieces(Body);

impl Chunks for Pieces {
    async fn chunk(&mut self) -> Result<Option<Bytes>, Lost> {
        loop {
            match self.0.frame().await {
                None => return Ok(None),
                Some(Ok(frame)) => {
                    if let Ok(bytes) = frame.into_data() {
                        return Ok(Some(bytes));
                    }
                }
                Some(Err(error)) => return Err(Lost { server: "router".to_owned(), why: error.to_string() }),
            }
        }
    }
}

impl Transport for Oneshot {
    type Body = Pieces;
    async fn send(&self, call: Call) -> Result<(StatusCode, Pieces), Lost> {
        let mut builder = request(call.method, &call.path);
        for (name, value) in call.headers {
            builder = builder.header(name, value);
        }
        let builder = builder.header(header::AUTHORIZATION, format!("Bearer {}", self.token));
        let body = call.body.map_or_else(Body::empty, Body::from);
        let response = self.router.clone().oneshot(builder.body(body).unwrap()).await.unwrap();
        Ok((response.status(), Pieces(response.into_body())))
    }
}
