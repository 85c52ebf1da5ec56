//! Answers one request of an agent: who is it, may it, what does it bring.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::header::{HeaderValue, RETRY_AFTER};
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use lattice_api::agent::{
    ClaimRequest, ClaimResponse, EnrollRequest, EnrollResponse, HealthSummary, HeartbeatConfig, HeartbeatRequest,
    HeartbeatResponse, IssuedIdentity, RegisterRequest, RegisterResponse, RenewRequest, RenewResponse,
};
use lattice_core::explain::Code;
use lattice_core::heartbeat::{Beat, Handle, Heard, Refused, Registry, Vitals};
use lattice_core::ids::{CorrelationId, IdSource, NodeId, SessionId};
use lattice_core::time::{Clock, Timestamp};
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use super::allowance::Allowance;
use super::desk::{Bell, TaskDesk};
use super::events::{AgentEvents, BootClaim, Enrolment, Granted, IdentityRefusal, Registered, Registration, Report};
use super::refusal::Refusal;
use super::request::{Route, Sent, bytes, check_text, json, problem, read_json};
use crate::pki::{Authority, CertificateSpan, IdentityError, NodeIdentity, NodeRequest};
use crate::task_keys::TaskKeys;

/// Certificates are valid from this long before they are signed: hosts fresh from the factory have slow clocks.
const CLOCK_SKEW: Duration = Duration::from_secs(300);

/// What the service is put together from.
pub struct Parts {
    /// Who was heard when.
    pub registry: Arc<Registry>,
    /// Decides and commits.
    pub events: Arc<dyn AgentEvents>,
    /// Signs certificates.
    pub authority: Arc<Authority>,
    /// Who signs tasks.
    pub task_keys: Arc<TaskKeys>,
    /// Where tasks wait for their agents.
    pub desk: Arc<TaskDesk>,
    /// The present time.
    pub clock: Arc<dyn Clock>,
    /// Serials, sessions, correlation ids.
    pub ids: Arc<dyn IdSource>,
    /// How agents are to behave whose site does not say it.
    pub policy: AgentPolicy,
}

/// How agents are to behave.
#[derive(Debug, Clone, Default)]
pub struct AgentPolicy {
    /// How to send heartbeats.
    pub heartbeat: HeartbeatConfig,
}

/// The agent API, transport aside.
pub struct AgentService {
    pub(super) parts: Parts,
    agent_binary: Option<Bytes>,
    draining: CancellationToken,
}

/// What is known of one connection.
pub struct Connection {
    peer: SocketAddr,
    identity: Result<Option<NodeIdentity>, IdentityError>,
    handle: OnceLock<Handle>,
    bell: OnceLock<Arc<Bell>>,
    /// The session that was opened over it last.
    opened: Mutex<Option<SessionId>>,
    heartbeats: Allowance,
    /// Of what changes rows.
    news: Allowance,
}

/// A request whose sender is the node in its path.
struct Caller<'a> {
    node: NodeId,
    handle: &'a Handle,
    opened: &'a Mutex<Option<SessionId>>,
    news: &'a Allowance,
    peer: SocketAddr,
    at: Timestamp,
}

impl Connection {
    /// From the peer's address and the certificate that the handshake checked, in DER, if it showed one.
    pub fn new(peer: SocketAddr, certificate: Option<&[u8]>) -> Self {
        Self {
            peer,
            identity: certificate.map(NodeIdentity::read).transpose(),
            handle: OnceLock::new(),
            bell: OnceLock::new(),
            opened: Mutex::default(),
            heartbeats: Allowance::of_heartbeats(),
            news: Allowance::of_news(),
        }
    }

    /// Rings when a task of its node waits; hung by the first request over it that may wait.
    fn bell(&self, desk: &TaskDesk, node: NodeId) -> &Arc<Bell> {
        self.bell.get_or_init(|| desk.attach(node))
    }

    /// Until when its certificate is valid; `None` without one.
    pub(super) fn not_after(&self) -> Option<Timestamp> {
        self.identity.as_ref().ok()?.map(|identity| identity.not_after)
    }
}

impl AgentService {
    /// Puts the service together.
    pub fn new(parts: Parts) -> Self {
        Self { parts, agent_binary: None, draining: CancellationToken::new() }
    }

    /// The same, giving new hosts the agent's binary. It is kept in memory, so that what is given is what was hashed.
    #[must_use]
    pub fn giving(self, agent_binary: Option<Bytes>) -> Self {
        Self { agent_binary, ..self }
    }

    /// Answers every parked request now; from here on nothing is parked.
    pub(super) fn drain(&self) {
        self.draining.cancel();
    }

    pub(super) fn now(&self) -> Timestamp {
        self.parts.clock.now()
    }

    /// Answers one request.
    pub async fn answer<B: Sent>(&self, connection: &Connection, request: Request<B>) -> Response<Full<Bytes>> {
        let at = self.now();
        match self.dispatch(connection, request, at).await {
            Ok(response) => response,
            Err(refusal) => self.refuse(connection, refusal, at),
        }
    }

    async fn dispatch<B: Sent>(
        &self,
        connection: &Connection,
        request: Request<B>,
        at: Timestamp,
    ) -> Result<Response<Full<Bytes>>, Refusal> {
        let route = Route::parse(&request)?;
        if route.is_of_agents() && self.parts.registry.stands_by() {
            return Err(Refusal::StandsBy { elsewhere: self.parts.registry.elsewhere() });
        }
        // Only heartbeats stay for long: the other futures are boxed so that a parked connection does not carry them.
        match route {
            Route::Enroll => Box::pin(self.enroll(connection.peer, request, at)).await,
            Route::Claim(node) => Box::pin(self.claim((node, connection.peer), request, at)).await,
            Route::Renew(node) => {
                let caller = self.identify(connection, node, at).await?;
                Box::pin(self.renew(caller, request)).await
            }
            Route::Register(node) => {
                let caller = self.identify(connection, node, at).await?;
                if !connection.news.take(at) {
                    return Err(Refusal::TooMuchNews { node });
                }
                Box::pin(self.register(caller, request)).await
            }
            Route::Heartbeat(node, wait) => {
                let caller = self.identify(connection, node, at).await?;
                if !connection.heartbeats.take(at) {
                    return Err(Refusal::TooOften { node });
                }
                self.heartbeat(caller, connection.bell(&self.parts.desk, node), wait, request).await
            }
            Route::WaitForTasks(node, wait) => {
                self.identify(connection, node, at).await?;
                Ok(self.wait_for_tasks(node, connection.bell(&self.parts.desk, node), wait).await)
            }
            Route::ReportTask(node, task) => {
                self.identify(connection, node, at).await?;
                Box::pin(self.reported((node, task), request, at)).await
            }
            Route::AgentBinary => self.agent_binary.clone().map(bytes).ok_or(Refusal::NoAgentBinary),
        }
    }

    /// The identity of the connection must be the path's node, unexpired and of the node's present epoch: at each
    /// request, since a resumed session restores a certificate that nobody checked again.
    async fn identify<'a>(
        &self,
        connection: &'a Connection,
        path: NodeId,
        at: Timestamp,
    ) -> Result<Caller<'a>, Refusal> {
        let identity = connection.identity?.ok_or(Refusal::NoCertificate)?;
        match self.admit(connection, identity, path, at) {
            Ok(handle) => {
                let Connection { opened, news, peer, .. } = connection;
                Ok(Caller { node: path, handle, opened, news, peer: *peer, at })
            }
            Err(refusal) => {
                let is_unknown = matches!(refusal, Refusal::Registry { refused: Refused::NodeUnknown, .. });
                let refusal = match is_unknown && Box::pin(self.parts.events.was_deleted(path)).await {
                    true => Refusal::Deleted { node: path },
                    false => refusal,
                };
                let (_, code) = refusal.kind();
                let refused = IdentityRefusal { certificate: identity.node, path, code, peer: connection.peer, at };
                Box::pin(self.parts.events.refused(refused)).await;
                Err(refusal)
            }
        }
    }

    fn admit<'a>(
        &self,
        connection: &'a Connection,
        identity: NodeIdentity,
        path: NodeId,
        at: Timestamp,
    ) -> Result<&'a Handle, Refusal> {
        if identity.node != path {
            return Err(Refusal::Foreign { certificate: identity.node, path });
        }
        if at > identity.not_after {
            return Err(Refusal::Expired { node: path, not_after: identity.not_after });
        }
        let refuse = |refused| Refusal::Registry { node: path, refused };
        let handle = match connection.handle.get() {
            Some(handle) => handle,
            None => {
                let handle = self.parts.registry.handle(path).ok_or(refuse(Refused::NodeUnknown))?;
                connection.handle.get_or_init(|| handle)
            }
        };
        handle.authorise(identity.epoch).map_err(refuse)?;
        Ok(handle)
    }

    async fn enroll<B: Sent>(
        &self,
        peer: SocketAddr,
        request: Request<B>,
        at: Timestamp,
    ) -> Result<Response<Full<Bytes>>, Refusal> {
        let body: EnrollRequest = read_json(request).await?;
        check_text("boot_id", &body.boot_id)?;
        check_text("agent_version", &body.agent_version)?;
        check_text("token", body.token.expose())?;
        // A request that cannot be signed must not use up the token.
        let csr = NodeRequest::parse(&body.csr_pem)?;
        let node = body.node_id;
        let granted = self
            .parts
            .events
            .enroll(Enrolment {
                node,
                token: body.token,
                key_hash: csr.key_hash(),
                boot_id: body.boot_id,
                agent_version: body.agent_version,
                facts: body.facts,
                peer,
                at,
            })
            .await?;
        self.parts.registry.admit(node, granted.epoch, at);
        let identity = self.issue(&csr, node, granted, at)?;
        debug!(node_id = %node, %peer, not_after = %identity.not_after, "certificate issued");
        let heartbeat = self.pace(self.parts.registry.handle(node).as_ref());
        Ok(json(StatusCode::OK, &EnrollResponse { node_id: node, identity, heartbeat }))
    }

    async fn claim<B: Sent>(
        &self,
        (node, peer): (NodeId, SocketAddr),
        request: Request<B>,
        at: Timestamp,
    ) -> Result<Response<Full<Bytes>>, Refusal> {
        let body: ClaimRequest = read_json(request).await?;
        check_text("boot_id", &body.boot_id)?;
        check_text("agent_version", &body.agent_version)?;
        let token = self.parts.events.claim(BootClaim { node, peer, at }).await?;
        debug!(node_id = %node, %peer, "a machine that booted took its token");
        Ok(json(StatusCode::OK, &ClaimResponse { token }))
    }

    async fn renew<B: Sent>(&self, caller: Caller<'_>, request: Request<B>) -> Result<Response<Full<Bytes>>, Refusal> {
        let body: RenewRequest = read_json(request).await?;
        let csr = NodeRequest::parse(&body.csr_pem)?;
        let granted = self.parts.events.renew(caller.node, caller.at).await?;
        let identity = self.issue(&csr, caller.node, granted, caller.at)?;
        debug!(node_id = %caller.node, not_after = %identity.not_after, "certificate renewed");
        Ok(json(StatusCode::OK, &RenewResponse { identity }))
    }

    async fn register<B: Sent>(
        &self,
        caller: Caller<'_>,
        request: Request<B>,
    ) -> Result<Response<Full<Bytes>>, Refusal> {
        let body: RegisterRequest = read_json(request).await?;
        check_text("boot_id", &body.boot_id)?;
        check_text("agent_version", &body.agent_version)?;
        check_text("fingerprint", &body.fingerprint)?;
        check_health(&body.health)?;
        let session = SessionId::generate(&*self.parts.ids, caller.at);
        let vitals = vitals(&body.health, body.running.len());
        let (node, peer, at) = (caller.node, caller.peer, caller.at);
        let heartbeat = self.pace(Some(caller.handle));
        let registration = Registration { node, session, request: body, peer, at };
        let ownership_epoch = match self.parts.events.register(registration).await? {
            Registered::Open { ownership_epoch } => ownership_epoch,
            Registered::NotYet { stop_first, ownership_epoch } => {
                debug!(node_id = %node, %peer, disowned = stop_first.len(), "agent has to look again at what runs");
                let answer = RegisterResponse { session: None, heartbeat, stop_first, ownership_epoch };
                return Ok(json(StatusCode::OK, &answer));
            }
        };
        let before = caller.opened.lock().unwrap_or_else(PoisonError::into_inner).replace(session);
        // An agent that was started again comes over a new connection, and its former self is gone.
        let is_shared = before.is_some_and(|mine| caller.handle.is_open_to_another(mine));
        // Not when it arrived: the clock may have been set since.
        caller
            .handle
            .open_session(session, vitals, self.now())
            .map_err(|refused| Refusal::Registry { node, refused })?;
        debug!(node_id = %node, %peer, "session opened");
        if is_shared {
            self.parts.events.identity_shared(node, peer, at).await;
        }
        let answer = RegisterResponse { session: Some(session), heartbeat, stop_first: Vec::new(), ownership_epoch };
        Ok(json(StatusCode::OK, &answer))
    }

    async fn heartbeat<B: Sent>(
        &self,
        caller: Caller<'_>,
        bell: &Bell,
        wait: Duration,
        request: Request<B>,
    ) -> Result<Response<Full<Bytes>>, Refusal> {
        let mut body: HeartbeatRequest = read_json(request).await?;
        check_text("agent_version", &body.agent_version)?;
        check_health(&body.health)?;
        if let Some(fingerprint) = &body.fingerprint {
            check_text("fingerprint", fingerprint)?;
        }
        let vitals = vitals(&body.health, body.allocations as usize);
        let beat = Beat { session: body.session, sequence: body.sequence, vitals };
        let node = caller.node;
        // What changed for a moment longer is told with the next heartbeat; a fingerprint is told once.
        let is_printed = body.fingerprint.is_some();
        if is_printed && !caller.news.take(caller.at) {
            return Err(Refusal::TooMuchNews { node });
        }
        let heard = caller.handle.beat(&beat, caller.at).map_err(|refused| Refusal::Registry { node, refused })?;
        if !body.ended.is_empty() {
            let ended = std::mem::take(&mut body.ended);
            Box::pin(self.parts.events.allocations_ended(node, ended, caller.at)).await?;
        }
        let is_told = is_printed || (heard.health_changed && caller.news.take(caller.at));
        if is_told || (heard.returned && !heard.health_changed) {
            Box::pin(self.report(&caller, heard, body)).await?;
            caller.handle.settle();
        }
        // An agent that registered under a slower policy may ask to be parked for longer than it may be silent now.
        let wait = wait.min(Duration::from_millis(self.pace(Some(caller.handle)).wait_ms));
        let tasks = self.fetch(node, bell, wait).await;
        let answer = HeartbeatResponse {
            next_interval_ms: self.pace(Some(caller.handle)).interval_ms,
            holder: self.parts.registry.elsewhere(),
            tasks,
            task_signing_keys: self.keys_for(bell),
        };
        Ok(json(StatusCode::OK, &answer))
    }

    /// How the node is to send heartbeats: as its site says, else as the server does.
    fn pace(&self, handle: Option<&Handle>) -> HeartbeatConfig {
        match handle.and_then(Handle::pace) {
            Some(interval) => HeartbeatConfig::every(u64::try_from(interval.as_millis()).unwrap_or(u64::MAX)),
            None => self.parts.policy.heartbeat,
        }
    }

    async fn report(&self, caller: &Caller<'_>, heard: Heard, body: HeartbeatRequest) -> Result<(), Refusal> {
        let report = Report {
            node: caller.node,
            health: body.health,
            health_changed: heard.health_changed,
            fingerprint: body.fingerprint,
            returned: heard.returned,
            heard_before: heard.before,
            at: caller.at,
        };
        Ok(self.parts.events.report(report).await?)
    }

    /// Waits for something to hand over, at most for `wait`, and not while the server drains.
    pub(super) async fn park(&self, wait: Duration, bell: &Bell) {
        if wait.is_zero() {
            return;
        }
        tokio::select! {
            biased;
            () = tokio::time::sleep(wait) => {}
            () = bell.rung() => {}
            () = self.draining.cancelled() => {}
        }
    }

    fn issue(
        &self,
        csr: &NodeRequest,
        node: NodeId,
        granted: Granted,
        at: Timestamp,
    ) -> Result<IssuedIdentity, Refusal> {
        let span = CertificateSpan::starting(at, CLOCK_SKEW, granted.certificate_life);
        let serial = *self.parts.ids.uuid(at).as_bytes();
        let signed = self.parts.authority.sign_node(csr, (node, granted.epoch), span, serial)?;
        Ok(IssuedIdentity {
            certificate_pem: signed.chain_pem,
            ca_bundle_pem: self.parts.authority.bundle_pem().to_owned(),
            not_before: signed.span.not_before,
            not_after: signed.span.not_after,
            identity_epoch: Some(granted.epoch),
            task_signing_keys: self.parts.task_keys.public(),
        })
    }

    fn refuse(&self, connection: &Connection, refusal: Refusal, at: Timestamp) -> Response<Full<Bytes>> {
        let correlation_id = CorrelationId::generate(&*self.parts.ids, at);
        let mut body = refusal.problem();
        let correlation_id = *body.correlation_id.get_or_insert(correlation_id);
        let (peer, error_code, detail) = (connection.peer, body.code.as_str(), body.detail.as_str());
        if body.is(Code::Internal) {
            warn!(%peer, error_code, %correlation_id, detail, "agent request failed");
            "the server could not do it; its log says why".clone_into(&mut body.detail);
        } else {
            debug!(%peer, error_code, %correlation_id, detail, "agent request refused");
        }
        let mut answer = problem(&body);
        if body.is(Code::RateLimited) {
            answer.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
        }
        answer
    }
}

fn check_health(health: &HealthSummary) -> Result<(), Refusal> {
    health.minor_issue.as_deref().map_or(Ok(()), |issue| check_text("minor_issue", issue))
}

fn vitals(health: &HealthSummary, allocations: usize) -> Vitals {
    Vitals {
        ecc_uncorrected: u32::try_from(health.ecc_uncorrected).unwrap_or(u32::MAX),
        allocations: u32::try_from(allocations).unwrap_or(u32::MAX),
        issue: health.minor_issue.as_deref().map_or(0, Vitals::issue_mark),
        gpu_count: u16::try_from(health.gpu_count).unwrap_or(u16::MAX),
        max_temperature_c: health.max_temperature_c.unwrap_or(i16::MIN),
    }
}
