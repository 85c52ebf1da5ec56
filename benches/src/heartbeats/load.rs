//! The load generator: one connection per node, heartbeats at an even pace, answers read to their end.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use lattice_api::agent::{
    HealthSummary, HeartbeatRequest, RegisterRequest, RegisterResponse, heartbeat_path, register_path,
};
use lattice_core::ids::{NodeId, OwnershipEpoch};
use lattice_core::node::HostFacts;
use rustls::ClientConfig;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::identities::{Identities, ThrowawayCa, node};
use crate::accounts::{Used, quantile, raise_descriptors, used};
use crate::failure::{Failure, at, wrong};
use crate::measured::{configuration, hear, reply};

/// Handshakes at a time.
const CONNECTING: usize = 64;

/// Whom to speak for.
#[derive(Serialize, Deserialize)]
pub struct LoadConfig {
    /// Signs the nodes' certificates.
    pub ca: ThrowawayCa,
    /// Where the server listens.
    pub server: SocketAddr,
    /// Number of the first node.
    pub first: u32,
    /// How many there are.
    pub nodes: u32,
}

/// What the parent says.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub enum Command {
    /// Every node sends a heartbeat each `interval_us`, to be parked for `wait_ms`.
    Pace {
        /// Time between two heartbeats of one node, in microseconds.
        interval_us: u64,
        /// How long the server may park it, in milliseconds.
        wait_ms: u64,
    },
    /// Tell the counts since the last time.
    Count,
}

/// What happened since the last count.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Counted {
    /// Heartbeats that were answered with 200.
    pub answered: u64,
    /// Heartbeats that were not, and connections that ended.
    pub failed: u64,
    /// Time from sending to the whole answer, the parking aside, in microseconds: half of them took less.
    pub p50_us: f64,
    /// The same for 99 of 100.
    pub p99_us: f64,
    /// What the load generator itself used up to now.
    pub used: Used,
}

#[derive(Default)]
struct Shared {
    answered: AtomicU64,
    failed: AtomicU64,
    times: Mutex<Vec<Duration>>,
}

type Pace = Option<(Duration, u64)>;

/// Connects all nodes, then sends as it is told.
///
/// # Errors
/// A node cannot connect or register.
pub fn serve() -> Result<(), Failure> {
    let config: LoadConfig = configuration()?;
    raise_descriptors(u64::from(config.nodes) + 100)?;
    let shared = Arc::new(Shared::default());
    let (pace, paces) = watch::channel::<Pace>(None);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_io()
        .enable_time()
        .build()
        .map_err(at("start the load generator"))?;
    let sessions = runtime.block_on(connect_all(&config))?;
    let count = sessions.len() as u32;
    for (number, session) in sessions.into_iter().enumerate() {
        let share = number as f64 / f64::from(count);
        runtime.spawn(session.beat(Arc::clone(&shared), paces.clone(), share));
    }
    reply(&count)?;
    while let Some(command) = hear()? {
        match command {
            Command::Pace { interval_us, wait_ms } => {
                pace.send_replace(Some((Duration::from_micros(interval_us), wait_ms)));
                reply(&())?;
            }
            Command::Count => reply(&shared.count()?)?,
        }
    }
    Ok(())
}

async fn connect_all(config: &LoadConfig) -> Result<Vec<Session>, Failure> {
    let identities = Arc::new(Identities::new(&config.ca)?);
    let turns = Arc::new(Semaphore::new(CONNECTING));
    let mut tasks = Vec::new();
    for number in config.first..config.first + config.nodes {
        let turn = Arc::clone(&turns).acquire_owned().await.map_err(at("wait for a turn"))?;
        let (identities, server) = (Arc::clone(&identities), config.server);
        tasks.push(tokio::spawn(async move {
            let session = Session::open(&identities, server, node(number)).await;
            drop(turn);
            session
        }));
    }
    let mut sessions = Vec::with_capacity(tasks.len());
    for task in tasks {
        sessions.push(task.await.map_err(at("connect"))??);
    }
    Ok(sessions)
}

/// One node's connection with its session.
pub struct Session {
    stream: TlsStream<TcpStream>,
    node: NodeId,
    request: HeartbeatRequest,
    buffer: Vec<u8>,
}

impl Session {
    async fn open(identities: &Identities, server: SocketAddr, node: NodeId) -> Result<Self, Failure> {
        let mut session = Self::connect(identities.tls(node)?, server, node).await?;
        session.register(HostFacts::default()).await?;
        Ok(session)
    }

    /// A connection; whoever registers on it has a session.
    ///
    /// # Errors
    /// The server is not there, or refuses.
    pub async fn connect(tls: Arc<ClientConfig>, server: SocketAddr, node: NodeId) -> Result<Self, Failure> {
        let tcp = TcpSocket::new_v4().map_err(at("connect"))?;
        tcp.bind(address_of(node)).map_err(at("connect"))?;
        let tcp = tcp.connect(server).await.map_err(at("connect"))?;
        tcp.set_nodelay(true).map_err(at("connect"))?;
        let stream = TlsConnector::from(tls).connect(server.ip().into(), tcp).await.map_err(at("shake hands"))?;
        let request = HeartbeatRequest {
            session: lattice_core::ids::SessionId::new(node.uuid()),
            sequence: 0,
            health: health(),
            allocations: 8,
            fingerprint: None,
            agent_version: "0.1.0".to_owned(),
            ended: Vec::new(),
        };
        Ok(Self { stream, node, request, buffer: Vec::with_capacity(512) })
    }

    /// Whether the handshake resumed an earlier session of TLS.
    pub fn is_resumed(&self) -> bool {
        self.stream.get_ref().1.handshake_kind() == Some(rustls::HandshakeKind::Resumed)
    }

    /// Registers a host with these facts.
    ///
    /// # Errors
    /// The server refuses, or is gone.
    pub async fn register(&mut self, facts: HostFacts) -> Result<(), Failure> {
        let registration = RegisterRequest {
            boot_id: "b1c5a6de-37f7-4e3c-a5a3-0c3a6d1b8f11".to_owned(),
            agent_version: "0.1.0".to_owned(),
            facts,
            fingerprint: "f".repeat(64),
            health: health(),
            running: Vec::new(),
            ownership_epoch: OwnershipEpoch::default(),
        };
        let body = serde_json::to_vec(&registration).map_err(at("write a registration"))?;
        let answer = self.post(&register_path(self.node), &body).await?;
        let registered: RegisterResponse = serde_json::from_slice(&answer).map_err(at("read a session"))?;
        self.request.session = registered.session.ok_or_else(|| wrong("read a session", "none was opened"))?;
        Ok(())
    }

    /// Sends heartbeats as `paces` says; the first after `share` of an interval, so that all are spread over it.
    async fn beat(mut self, shared: Arc<Shared>, mut paces: watch::Receiver<Pace>, share: f64) {
        let mut next = tokio::time::Instant::now();
        let mut pace: Pace = None;
        loop {
            let due = async {
                match pace {
                    Some(_) => tokio::time::sleep_until(next).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                changed = paces.changed() => {
                    if changed.is_err() {
                        return;
                    }
                    pace = *paces.borrow_and_update();
                    next = tokio::time::Instant::now() + pace.map_or(Duration::ZERO, |(interval, _)| interval.mul_f64(share));
                    continue;
                }
                () = due => {}
            }
            let Some((interval, wait_ms)) = pace else { continue };
            next += interval;
            let started = Instant::now();
            match self.heartbeat(wait_ms).await {
                Ok(()) => shared.took(started.elapsed().saturating_sub(Duration::from_millis(wait_ms))),
                Err(_) => {
                    shared.failed.fetch_add(1, Ordering::Relaxed);
                    return;
                }
            }
        }
    }

    /// One heartbeat, parked for so long.
    ///
    /// # Errors
    /// It is not answered with 200.
    pub async fn heartbeat(&mut self, wait_ms: u64) -> Result<(), Failure> {
        match self.send(wait_ms).await? {
            200 => Ok(()),
            status => Err(wrong("send a heartbeat", format!("status {status}"))),
        }
    }

    /// One heartbeat, parked for so long; the status of its answer.
    ///
    /// # Errors
    /// The server is gone.
    pub async fn send(&mut self, wait_ms: u64) -> Result<u16, Failure> {
        self.request.sequence += 1;
        let body = serde_json::to_vec(&self.request).map_err(at("write a heartbeat"))?;
        Ok(self.exchange(&heartbeat_path(self.node, wait_ms), &body).await?.0)
    }

    async fn post(&mut self, path: &str, body: &[u8]) -> Result<Vec<u8>, Failure> {
        match self.exchange(path, body).await? {
            (200, answer) => Ok(answer),
            (status, answer) => Err(wrong("post", format!("status {status}: {}", String::from_utf8_lossy(&answer)))),
        }
    }

    async fn exchange(&mut self, path: &str, body: &[u8]) -> Result<(u16, Vec<u8>), Failure> {
        let mut request = format!(
            "POST {path} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
            body.len()
        )
        .into_bytes();
        request.extend_from_slice(body);
        self.stream.write_all(&request).await.map_err(at("send"))?;
        self.stream.flush().await.map_err(at("send"))?;
        self.buffer.clear();
        loop {
            if let Some((status, answer)) = complete(&self.buffer)? {
                return Ok((status, answer.to_vec()));
            }
            if self.stream.read_buf(&mut self.buffer).await.map_err(at("read an answer"))? == 0 {
                return Err(wrong("read an answer", "the server closed the connection"));
            }
        }
    }
}

fn health() -> HealthSummary {
    HealthSummary { gpu_count: 8, max_temperature_c: Some(61), ecc_uncorrected: 0, minor_issue: None }
}

/// Status and body of a whole answer; none when more has to come.
fn complete(answer: &[u8]) -> Result<Option<(u16, &[u8])>, Failure> {
    let Some(end) = answer.windows(4).position(|four| four == b"\r\n\r\n") else { return Ok(None) };
    let head = std::str::from_utf8(&answer[..end]).map_err(at("read an answer"))?;
    let status = head.strip_prefix("HTTP/1.1 ").and_then(|rest| rest.get(..3)).unwrap_or_default();
    let status = status.parse().map_err(at("read an answer"))?;
    let length = head
        .lines()
        .filter_map(|line| line.split_once(':'))
        .find(|(name, _)| name.eq_ignore_ascii_case("content-length"));
    let length: usize = length.map_or(Ok(0), |(_, value)| value.trim().parse()).map_err(at("read an answer"))?;
    let body = &answer[end + 4..];
    Ok((body.len() >= length).then(|| (status, &body[..length])))
}

impl Shared {
    fn took(&self, time: Duration) {
        self.answered.fetch_add(1, Ordering::Relaxed);
        self.times.lock().unwrap_or_else(PoisonError::into_inner).push(time);
    }

    fn count(&self) -> Result<Counted, Failure> {
        let mut times = std::mem::take(&mut *self.times.lock().unwrap_or_else(PoisonError::into_inner));
        times.sort_unstable();
        Ok(Counted {
            answered: self.answered.swap(0, Ordering::Relaxed),
            failed: self.failed.swap(0, Ordering::Relaxed),
            p50_us: quantile(&times, 0.5).as_secs_f64() * 1e6,
            p99_us: quantile(&times, 0.99).as_secs_f64() * 1e6,
            used: used()?,
        })
    }
}

/// A host of its own for each agent: from one address, a connection may meet what is left of another one that had its port,
/// and wait a second for it.
fn address_of(node: NodeId) -> SocketAddr {
    let [.., high, middle, low] = *node.uuid().as_bytes();
    SocketAddr::from(([127, high.max(1), middle, low], 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_whole_when_its_body_is() {
        let head = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n";
        assert_eq!(complete(head).unwrap(), None);
        assert_eq!(complete(&[head.as_slice(), b"{}"].concat()).unwrap(), Some((200, b"{}".as_slice())));
        assert_eq!(complete(b"HTTP/1.1 409 Conflict\r\n\r\n").unwrap(), Some((409, b"".as_slice())));
        assert!(complete(b"SSH-2.0-x\r\n\r\n").is_err());
    }
}
