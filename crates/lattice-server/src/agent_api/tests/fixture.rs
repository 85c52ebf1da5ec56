//! A listener over loopback, a clock that the test moves, and a client that can do what a good agent would not.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use http::{Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1::SendRequest;
use hyper_util::rt::TokioIo;
use lattice_api::agent::{
    Bootstrap, EnrollRequest, EnrollResponse, HealthSummary, HeartbeatRequest, RegisterRequest, RegisterResponse,
    heartbeat_path, register_path,
};
use lattice_api::error::Problem;
use lattice_core::agent::task::{Envelope, Running, SigningKey, TaskReport};
use lattice_core::explain::Code;
use lattice_core::heartbeat::Registry;
use lattice_core::ids::{IdSource, NodeId, OwnershipEpoch, SessionId, uuid_v7};
use lattice_core::node::HostFacts;
use lattice_core::secret::Secret;
use lattice_core::time::{Clock, Timestamp};
use rcgen::{CertificateParams, KeyPair};
use rustls::crypto::aws_lc_rs;
use rustls::{ClientConfig, HandshakeKind, RootCertStore};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::agent_api::{
    AgentEvents, AgentListener, AgentPolicy, AgentService, Enrolment, Granted, Handed, IdentityRefusal, Limits, Parts,
    Registered, Registration, Report, TaskDesk, server_tls,
};
use crate::pki::{Authority, CaMaterial, CertificateSpan};
use crate::task_keys::TaskKeys;

pub const T0: Timestamp = Timestamp::from_millis(1_763_712_764_000);
pub const LIFE: Duration = Duration::from_secs(24 * 3600);

pub struct TestClock(AtomicI64);

impl TestClock {
    pub fn advance(&self, by: Duration) {
        self.0.fetch_add(by.as_millis() as i64, Ordering::SeqCst);
    }
}

impl Clock for TestClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(self.0.load(Ordering::SeqCst))
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

/// Remembers what came, and lets each token enrol one key.
#[derive(Default)]
pub struct Ledger {
    used_tokens: Mutex<HashMap<String, String>>,
    pub registrations: Mutex<Vec<Registration>>,
    pub reports: Mutex<Vec<Report>>,
    pub refused: Mutex<Vec<IdentityRefusal>>,
    /// Nodes of which two agents have the identity.
    pub shared: Mutex<Vec<NodeId>>,
    pub refuse_reports: AtomicBool,
    pub deleted: Mutex<Vec<NodeId>>,
    /// What is handed over next.
    pub tasks: Mutex<Vec<Envelope>>,
    pub refuse_tasks: AtomicBool,
    pub task_reports: Mutex<Vec<TaskReport>>,
    /// What a host must stop before it registers.
    pub disowned: Mutex<Vec<Running>>,
}

#[async_trait]
impl AgentEvents for Ledger {
    async fn enroll(&self, enrolment: Enrolment) -> Result<Granted, Problem> {
        let mut used = self.used_tokens.lock().unwrap();
        let key = used.entry(enrolment.token.expose().clone()).or_insert_with(|| enrolment.key_hash.clone());
        if *key != enrolment.key_hash {
            return Err(Problem::new(StatusCode::CONFLICT, Code::TokenUsed, "the token was used before"));
        }
        Ok(Granted { epoch: 1, certificate_life: LIFE })
    }
    async fn renew(&self, _node: NodeId, _at: Timestamp) -> Result<Granted, Problem> {
        Ok(Granted { epoch: 1, certificate_life: LIFE })
    }
    async fn register(&self, registration: Registration) -> Result<Registered, Problem> {
        let disowned = self.disowned.lock().unwrap();
        let stop_first: Vec<Running> =
            registration.request.running.iter().filter(|one| disowned.contains(one)).copied().collect();
        if !stop_first.is_empty() {
            return Ok(Registered::NotYet { stop_first, ownership_epoch: OwnershipEpoch::default() });
        }
        self.registrations.lock().unwrap().push(registration);
        Ok(Registered::Open { ownership_epoch: OwnershipEpoch::default() })
    }
    async fn report(&self, report: Report) -> Result<(), Problem> {
        if self.refuse_reports.load(Ordering::SeqCst) {
            return Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, Code::Unavailable, "the store does not answer"));
        }
        self.reports.lock().unwrap().push(report);
        Ok(())
    }
    async fn tasks(&self, _node: NodeId, _at: Timestamp) -> Result<Handed, Problem> {
        if self.refuse_tasks.load(Ordering::SeqCst) {
            return Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, Code::Unavailable, "the store does not answer"));
        }
        Ok(Handed { envelopes: std::mem::take(&mut *self.tasks.lock().unwrap()), more: false })
    }
    async fn task_reported(&self, _node: NodeId, report: TaskReport, _at: Timestamp) -> Result<bool, Problem> {
        let mut reports = self.task_reports.lock().unwrap();
        let changed = !reports.contains(&report);
        reports.push(report);
        Ok(changed)
    }
    async fn was_deleted(&self, node: NodeId) -> bool {
        self.deleted.lock().unwrap().contains(&node)
    }
    async fn identity_shared(&self, node: NodeId, _peer: std::net::SocketAddr, _at: Timestamp) {
        self.shared.lock().unwrap().push(node);
    }
    async fn refused(&self, refusal: IdentityRefusal) {
        self.refused.lock().unwrap().push(refusal);
    }
}

pub struct Fixture {
    pub listener: AgentListener,
    pub registry: Arc<Registry>,
    pub events: Arc<Ledger>,
    pub clock: Arc<TestClock>,
    pub desk: Arc<TaskDesk>,
    pub task_keys: Arc<TaskKeys>,
    ca: CaMaterial,
    ids: Arc<CountedIds>,
}

impl Fixture {
    pub fn start(limits: Limits) -> Self {
        Self::start_with(limits, AgentPolicy::default())
    }

    pub fn start_with(limits: Limits, policy: AgentPolicy) -> Self {
        let clock = Arc::new(TestClock(AtomicI64::new(T0.as_millis())));
        let ids = Arc::new(CountedIds::default());
        let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        Self::serve(socket, (limits, policy), new_ca(), clock, ids)
    }

    /// Another server of the same database.
    pub fn beside(&self, policy: AgentPolicy) -> Self {
        let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        Self::serve(socket, (Limits::default(), policy), self.ca.clone(), self.clock.clone(), self.ids.clone())
    }

    /// This server stands by; agents are heard at `elsewhere`, as far as it knows.
    pub fn stands_by(&self, elsewhere: Option<&Self>) {
        self.registry.heard_at(elsewhere.map(Self::address));
        self.registry.stand_by(true);
    }

    fn address(&self) -> String {
        format!("https://{}", self.listener.address())
    }

    /// The same server after a restart: what was in memory is gone.
    pub async fn restart(self, limits: Limits, policy: AgentPolicy) -> Self {
        let Self { listener, ca, clock, ids, .. } = self;
        let address = listener.address();
        listener.drain().await;
        let socket = std::net::TcpListener::bind(address).unwrap();
        Self::serve(socket, (limits, policy), ca, clock, ids)
    }

    fn serve(
        socket: std::net::TcpListener,
        (limits, policy): (Limits, AgentPolicy),
        ca: CaMaterial,
        clock: Arc<TestClock>,
        ids: Arc<CountedIds>,
    ) -> Self {
        let registry = Arc::new(Registry::new());
        let events = Arc::new(Ledger::default());
        let authority = Arc::new(Authority::open(&ca).unwrap());
        let names = vec!["127.0.0.1".to_owned()];
        let tls =
            server_tls(Arc::clone(&authority), names, clock.clone(), ids.clone(), Secret::new(vec![7; 32])).unwrap();
        let signer = SigningKey::from_seed(&Secret::new(vec![5; 32])).unwrap();
        let (task_keys, desk) = (Arc::new(TaskKeys::new(signer)), Arc::new(TaskDesk::new()));
        let service = Arc::new(AgentService::new(Parts {
            registry: Arc::clone(&registry),
            events: events.clone(),
            authority,
            task_keys: task_keys.clone(),
            desk: desk.clone(),
            clock: clock.clone(),
            ids: ids.clone(),
            policy,
        }));
        let listener = AgentListener::start(socket, service, tls, limits).unwrap();
        Self { listener, registry, events, clock, desk, task_keys, ca, ids }
    }

    pub fn new_node(&self) -> NodeId {
        NodeId::generate(&*self.ids, T0)
    }

    /// What a new host is given to become `node`.
    pub fn bootstrap(&self, node: NodeId) -> Bootstrap {
        Bootstrap {
            server: self.address(),
            node_id: node,
            token: Secret::new(format!("lat_enroll_{node}")),
            ca_pem: self.ca.certificate_pem.clone(),
        }
    }

    pub fn stranger(&self) -> Client {
        Client::new(self, None)
    }

    /// A node that enrolled, with its certificate.
    pub async fn node(&self) -> Node {
        let node = self.new_node();
        let key = KeyPair::generate().unwrap();
        let mut connection = self.stranger().connect().await.unwrap();
        let enrolled: EnrollResponse =
            connection.post("/internal/v1/nodes/enroll", &enroll_request(node, &key)).await.unwrap();
        let client = Client::new(self, Some((&enrolled.identity.certificate_pem, &key)));
        Node { id: node, client, enrolled }
    }
}

pub struct Node {
    pub id: NodeId,
    pub client: Client,
    pub enrolled: EnrollResponse,
}

impl Node {
    /// Connects and opens a session.
    pub async fn session(&self) -> (Connection, SessionId) {
        let mut connection = self.client.connect().await.unwrap();
        let registered: RegisterResponse = connection.post(&register_path(self.id), &register_request()).await.unwrap();
        (connection, registered.session.unwrap())
    }

    pub fn heartbeat_path(&self) -> String {
        heartbeat_path(self.id, 0)
    }
}

pub fn new_ca() -> CaMaterial {
    let span = CertificateSpan::starting(T0, Duration::from_secs(3600), LIFE * 3650);
    CaMaterial::create("lattice test", span, [1; 16]).unwrap()
}

pub fn csr(key: &KeyPair) -> String {
    CertificateParams::default().serialize_request(key).unwrap().pem().unwrap()
}

pub fn enroll_request(node: NodeId, key: &KeyPair) -> EnrollRequest {
    EnrollRequest {
        node_id: node,
        token: Secret::new(format!("lat_enroll_{node}")),
        csr_pem: csr(key),
        boot_id: "boot-1".into(),
        agent_version: "0.1.0".into(),
        facts: HostFacts::default(),
    }
}

pub fn register_request() -> RegisterRequest {
    RegisterRequest {
        boot_id: "boot-1".into(),
        agent_version: "0.1.0".into(),
        facts: HostFacts::default(),
        fingerprint: "f".repeat(64),
        health: HealthSummary::default(),
        running: Vec::new(),
        ownership_epoch: OwnershipEpoch::default(),
    }
}

pub fn heartbeat(session: SessionId, sequence: u64) -> HeartbeatRequest {
    HeartbeatRequest {
        session,
        sequence,
        health: HealthSummary::default(),
        allocations: 0,
        fingerprint: None,
        agent_version: "0.1.0".into(),
        ended: Vec::new(),
    }
}

/// Connects as one identity; its TLS sessions can be resumed.
#[derive(Clone)]
pub struct Client {
    address: std::net::SocketAddr,
    tls: ClientConfig,
}

impl Client {
    pub fn new(fixture: &Fixture, identity: Option<(&str, &KeyPair)>) -> Self {
        Self::with_versions(fixture, identity, &[&rustls::version::TLS13])
    }

    pub fn with_versions(
        fixture: &Fixture,
        identity: Option<(&str, &KeyPair)>,
        versions: &[&'static rustls::SupportedProtocolVersion],
    ) -> Self {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(fixture.ca.certificate_pem.as_bytes()).unwrap()).unwrap();
        let builder = ClientConfig::builder_with_details(
            Arc::new(aws_lc_rs::default_provider()),
            Arc::new(crate::agent_api::tls::ClockTime(fixture.clock.clone())),
        )
        .with_protocol_versions(versions)
        .unwrap()
        .with_root_certificates(roots);
        let tls = match identity {
            None => builder.with_no_client_auth(),
            Some((chain, key)) => {
                let chain = CertificateDer::pem_slice_iter(chain.as_bytes()).map(Result::unwrap).collect();
                let key = PrivateKeyDer::from_pem_slice(key.serialize_pem().as_bytes()).unwrap();
                builder.with_client_auth_cert(chain, key).unwrap()
            }
        };
        Self { address: fixture.listener.address(), tls }
    }

    /// The same identity with nothing to resume.
    pub fn without_tickets(&self) -> Self {
        let mut client = self.clone();
        client.tls.resumption = rustls::client::Resumption::disabled();
        client
    }

    pub fn with_alpn(mut self, protocol: &str) -> Self {
        self.tls.alpn_protocols = vec![protocol.as_bytes().to_vec()];
        self
    }

    pub async fn open(&self) -> std::io::Result<tokio_rustls::client::TlsStream<TcpStream>> {
        let stream = TcpStream::connect(self.address).await?;
        let name = ServerName::try_from("127.0.0.1").unwrap();
        TlsConnector::from(Arc::new(self.tls.clone())).connect(name, stream).await
    }

    pub async fn connect(&self) -> std::io::Result<Connection> {
        let stream = self.open().await?;
        let resumed = stream.get_ref().1.handshake_kind() == Some(HandshakeKind::Resumed);
        let (sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(std::io::Error::other)?;
        let task = tokio::spawn(async move { connection.await.map_err(std::io::Error::other) });
        Ok(Connection { sender, resumed, task })
    }
}

pub struct Connection {
    pub sender: SendRequest<Full<Bytes>>,
    pub resumed: bool,
    /// Ends when the connection is closed.
    pub task: tokio::task::JoinHandle<std::io::Result<()>>,
}

impl Connection {
    /// Posts JSON; a refusal is the error.
    pub async fn post<T: DeserializeOwned>(&mut self, path: &str, body: &impl Serialize) -> Result<T, Problem> {
        let request = Request::post(path)
            .header("content-type", "application/json")
            .body(Full::from(serde_json::to_vec(body).unwrap()))
            .unwrap();
        let (status, body) = self.send(request).await.unwrap();
        if status.is_success() {
            Ok(serde_json::from_slice(&body).unwrap())
        } else {
            Err(serde_json::from_slice(&body).unwrap())
        }
    }

    /// The code with which a post is refused.
    pub async fn refusal(&mut self, path: &str, body: &impl Serialize) -> (u16, String) {
        let problem = self.post::<serde_json::Value>(path, body).await.unwrap_err();
        (problem.status, problem.code)
    }

    pub async fn send(&mut self, request: Request<Full<Bytes>>) -> hyper::Result<(StatusCode, Bytes)> {
        self.sender.ready().await?;
        let response = self.sender.send_request(request).await?;
        let status = response.status();
        Ok((status, response.into_body().collect().await?.to_bytes()))
    }
}
