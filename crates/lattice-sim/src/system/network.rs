//! The network between agents and the server that lives: messages are lost, late, doubled and sent again.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{Request, StatusCode};
use http_body_util::{BodyExt, Full};
use lattice_agent::{AgentError, CallError, Line, Network as AgentNetwork, Peer, Reach};
use lattice_core::time::Clock;
use lattice_server::agent_api::{AgentService, Connection};
use tokio::sync::oneshot;

use super::ground::Ground;
use super::server::Life;

/// Registrations, and other requests, that are remembered to be sent again.
const REMEMBERED: usize = 32;

/// In the answer to a registration that was taken.
const SESSION: &[u8] = b"\"session\":";

/// The network.
pub struct Network {
    ground: Arc<Ground>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The server that answers where no other is meant; none while there is none.
    front: Option<Front>,
    /// The last server of each address.
    servers: BTreeMap<String, Front>,
    /// Hosts that nobody hears.
    cut: BTreeSet<String>,
    remembered: VecDeque<Message>,
    registrations: VecDeque<Message>,
}

/// A server, as agents reach it.
#[derive(Clone)]
pub struct Front {
    /// Whether it lives.
    pub life: Arc<Life>,
    /// What answers.
    pub agents: Arc<AgentService>,
}

/// A request that was sent.
#[derive(Clone)]
struct Message {
    host: String,
    certificate: Option<Vec<u8>>,
    path: String,
    body: Bytes,
}

impl Network {
    /// One without a server.
    pub fn new(ground: &Arc<Ground>) -> Self {
        Self { ground: Arc::clone(ground), state: Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Agents reach this server from now on, also at its own address; none: nobody answers where no other is meant.
    pub fn set_front(&self, front: Option<(&str, Front)>) {
        let mut state = self.state();
        if let Some((address, front)) = &front {
            state.servers.insert((*address).to_owned(), front.clone());
        }
        state.front = front.map(|(_, front)| front);
    }

    /// Who answers at that address: the server whose own it is, or, at the one that hosts are given, any that lives.
    fn at(&self, address: &str) -> Option<Front> {
        let meant = self.state().servers.get(address).cloned();
        match meant {
            Some(front) => Some(front).filter(|front| front.life.lives()),
            None => self.front().or_else(|| self.living()),
        }
    }

    fn living(&self) -> Option<Front> {
        self.state().servers.values().find(|front| front.life.lives()).cloned()
    }

    fn front(&self) -> Option<Front> {
        self.state().front.clone().filter(|front| front.life.lives())
    }

    /// Nobody hears that host from now on, or it is heard again. What runs on it goes on running.
    pub fn cut(&self, host: &str, is_cut: bool) {
        let mut state = self.state();
        if is_cut {
            state.cut.insert(host.to_owned());
        } else {
            state.cut.remove(host);
        }
    }

    /// Whether nobody hears that host.
    pub fn is_cut(&self, host: &str) -> bool {
        self.state().cut.contains(host)
    }

    /// Every host is heard again.
    pub fn heal(&self) {
        self.state().cut.clear();
    }

    /// Sends one of the last requests once more, over a connection of its own; every other time a registration.
    pub async fn replay(&self) {
        let message = {
            let (state, luck) = (self.state(), &self.ground.network);
            let remembered = if luck.once_in(500) { &state.registrations } else { &state.remembered };
            let index = luck.below(remembered.len() as u64);
            usize::try_from(index).ok().and_then(|index| remembered.get(index).cloned())
        };
        let (Some(message), Some(front)) = (message, self.front()) else { return };
        self.ground.log.say(format!("replay {} {}", message.host, message.what()));
        let connection = Connection::new(PEER, message.certificate.as_deref());
        let (status, _) = answer(&self.ground, &front.agents, &connection, &message).await;
        self.ground.log.say(format!("replay of {} answered {status}", message.host));
    }
}

/// Every host comes from loopback: its address says nothing.
const PEER: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 7);

impl Message {
    /// The last part of its path.
    fn what(&self) -> &str {
        let path = self.path.split('?').next().unwrap_or_default();
        path.rsplit('/').next().unwrap_or_default()
    }
}

async fn answer(
    ground: &Ground,
    agents: &AgentService,
    connection: &Connection,
    message: &Message,
) -> (StatusCode, Bytes) {
    let request = Request::post(&message.path)
        .header(CONTENT_TYPE, "application/json")
        .body(Full::from(message.body.clone()))
        .expect("a path of ours is a path");
    // It is heard when it arrives, and answered later.
    let arrived = (tokio::time::Instant::now(), ground.clock.now());
    let response = agents.answer(connection, request).await;
    let status = response.status();
    let body = response.into_body().collect().await.map(|body| body.to_bytes()).unwrap_or_default();
    let opens_session = || body.windows(SESSION.len()).any(|part| part == SESSION);
    if status.is_success() && (message.what() == "heartbeat" || message.what() == "register" && opens_session()) {
        ground.heard(&message.host, arrived);
    }
    (status, body)
}

/// The network as one host sees it.
pub struct HostNetwork {
    host: String,
    network: Arc<Network>,
}

impl HostNetwork {
    /// Of that host.
    pub fn new(host: &str, network: &Arc<Network>) -> Self {
        Self { host: host.to_owned(), network: Arc::clone(network) }
    }
}

impl AgentNetwork for HostNetwork {
    fn peer(&self, reach: &Reach<'_>) -> Result<Arc<dyn Peer>, AgentError> {
        let certificate = reach.identity.and_then(|(pem, _)| der_of(pem));
        let (host, network, server) = (self.host.clone(), Arc::clone(&self.network), reach.server.to_owned());
        Ok(Arc::new(HostPeer { host, network, server, certificate }))
    }
}

/// The first certificate of a chain.
fn der_of(pem: &str) -> Option<Vec<u8>> {
    let body = pem.split("-----BEGIN CERTIFICATE-----").nth(1)?.split("-----END").next()?;
    STANDARD.decode(body.split_whitespace().collect::<String>()).ok()
}

struct HostPeer {
    host: String,
    network: Arc<Network>,
    server: String,
    certificate: Option<Vec<u8>>,
}

#[async_trait]
impl Peer for HostPeer {
    async fn connect(&self) -> Result<Box<dyn Line>, CallError> {
        let luck = &self.network.ground.network;
        tokio::time::sleep(luck.millis(1, 20)).await;
        if self.network.is_cut(&self.host) {
            // No answer at all: whoever calls has a limit.
            std::future::pending::<()>().await;
        }
        let Some(front) = self.network.at(&self.server) else {
            return Err(CallError::Transport("connection refused".to_owned()));
        };
        let connection = Arc::new(Connection::new(PEER, self.certificate.as_deref()));
        let network = Arc::clone(&self.network);
        let (host, certificate) = (self.host.clone(), self.certificate.clone());
        Ok(Box::new(HostLine { host, network, certificate, front, connection }))
    }
}

struct HostLine {
    host: String,
    network: Arc<Network>,
    certificate: Option<Vec<u8>>,
    front: Front,
    connection: Arc<Connection>,
}

#[async_trait]
impl Line for HostLine {
    fn is_closing(&self) -> bool {
        !self.front.life.lives()
    }

    async fn post(&mut self, path: &str, body: Vec<u8>) -> Result<(StatusCode, Bytes), CallError> {
        if self.is_closing() {
            return Err(CallError::Transport("connection reset".to_owned()));
        }
        let (host, certificate) = (self.host.clone(), self.certificate.clone());
        let message = Message { host, certificate, path: path.to_owned(), body: Bytes::from(body) };
        let (reply, answered) = oneshot::channel();
        let delivery = Delivery {
            network: Arc::clone(&self.network),
            front: self.front.clone(),
            connection: Arc::clone(&self.connection),
            message,
        };
        tokio::spawn(delivery.run(reply));
        match answered.await {
            Ok(Fate::Answered(status, body)) => Ok((status, body)),
            Ok(Fate::Reset) | Err(_) => Err(CallError::Transport("connection reset".to_owned())),
        }
    }
}

enum Fate {
    Answered(StatusCode, Bytes),
    Reset,
}

/// A request on its way: it arrives even if its sender is dead by then.
struct Delivery {
    network: Arc<Network>,
    front: Front,
    connection: Arc<Connection>,
    message: Message,
}

impl Delivery {
    async fn run(self, reply: oneshot::Sender<Fate>) {
        let (ground, weather) = (&self.network.ground, self.network.ground.weather());
        let luck = &ground.network;
        if luck.once_in(weather.doubled) {
            self.twice(luck.millis(0, 15_000));
        }
        tokio::time::sleep(self.delay(weather.late)).await;
        if luck.once_in(weather.lost) || self.network.is_cut(&self.message.host) {
            // The reply is dropped only when the sender has given up.
            return std::future::pending().await;
        }
        if !self.front.life.lives() {
            return drop(reply.send(Fate::Reset));
        }
        self.remember();
        let (status, body) = answer(ground, &self.front.agents, &self.connection, &self.message).await;
        if status.is_server_error() && status != StatusCode::SERVICE_UNAVAILABLE {
            ground.wrong(format!("{} of {} was answered {status}", self.message.what(), self.message.host));
        }
        tokio::time::sleep(self.delay(weather.late)).await;
        if luck.once_in(weather.lost) || self.network.is_cut(&self.message.host) {
            return std::future::pending().await;
        }
        let fate = if self.front.life.lives() { Fate::Answered(status, body) } else { Fate::Reset };
        // Whoever asked may have given up.
        drop(reply.send(fate));
    }

    fn delay(&self, late: u64) -> Duration {
        let luck = &self.network.ground.network;
        if luck.once_in(late) { luck.millis(1_000, 45_000) } else { luck.millis(1, 30) }
    }

    fn twice(&self, after: Duration) {
        let (front, connection) = (self.front.clone(), Arc::clone(&self.connection));
        let (message, ground) = (self.message.clone(), Arc::clone(&self.network.ground));
        tokio::spawn(async move {
            tokio::time::sleep(after).await;
            if front.life.lives() {
                ground.log.say(format!("{} of {} arrives twice", message.what(), message.host));
                answer(&ground, &front.agents, &connection, &message).await;
            }
        });
    }

    fn remember(&self) {
        let mut state = self.network.state();
        let is_registration = self.message.what() == "register";
        let remembered = if is_registration { &mut state.registrations } else { &mut state.remembered };
        if remembered.len() >= REMEMBERED {
            remembered.pop_front();
        }
        remembered.push_back(self.message.clone());
    }
}
