//! Accepts agents' connections: caps, handshakes, the life of a connection, the drain.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulConnection;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use rustls::ServerConfig;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{debug, info, warn};

use super::service::{AgentService, Connection};

/// Descriptors that the rest of the process needs: database, log, operators' connections, providers.
const OTHER_DESCRIPTORS: u64 = 512;
/// Headers of an agent's request take 300 bytes; the least that hyper accepts is 8 KiB.
const MAX_HEADER_BYTES: usize = 8 * 1024;
const MAX_HEADERS: usize = 32;
/// An agent needs one stream for its heartbeat and one for anything else.
const MAX_STREAMS: u32 = 8;
/// Connections that wait to be accepted. The standard library asks for 128; a fleet that comes back at once needs more,
/// since one that is dropped tries again a second later. The kernel cuts it to `net.core.somaxconn`, 4096 by default.
const BACKLOG: u32 = 4096;
/// A handshake takes two round trips. A peer that stalls in the middle keeps its turn for this long and not longer.
const HANDSHAKE_TURN: Duration = Duration::from_millis(500);
/// Without a certificate there is nothing to do but to enrol.
const STRANGER_LIFE: Duration = Duration::from_secs(60);
/// A resumed session can show a certificate that has expired: its agent must hear that before the connection ends.
const LAST_WORD: Duration = Duration::from_secs(10);

/// Ceilings. They are for hostile peers and for storms; a quiet fleet meets none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Connections at a time; one more is closed at once. The default holds 10,000 agents, a fifth of them while they
    /// open their next connection before they close the last.
    pub connections: usize,
    /// Handshakes at a time; the others wait their turn. A full one costs 0.25 ms of CPU.
    pub handshakes: usize,
    /// Longest time from accepting a connection to the end of its handshake, the wait for a turn included.
    pub handshake_timeout: Duration,
    /// Longest time without a request.
    pub idle_timeout: Duration,
    /// A connection is closed after this at the latest, so that its identity is shown again.
    pub connection_life: Duration,
    /// Up to this much is added to or taken from the life of each, so that a fleet does not come back at once.
    pub connection_life_jitter: Duration,
    /// How long requests may take to end once the drain began.
    pub drain_timeout: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 12_000,
            handshakes: 64,
            handshake_timeout: Duration::from_secs(15),
            idle_timeout: Duration::from_secs(90),
            connection_life: Duration::from_secs(3600),
            connection_life_jitter: Duration::from_secs(600),
            drain_timeout: Duration::from_secs(5),
        }
    }
}

/// Why the listener did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The process may not open enough files.
    #[error(
        "{connections} agent connections need {need} file descriptors, the hard limit is {hard}: raise it \
         (LimitNOFILE= of the unit, or `ulimit -Hn {need}`) or lower the number of agent connections"
    )]
    Descriptors {
        /// As configured.
        connections: usize,
        /// Connections and what the rest of the process needs.
        need: u64,
        /// What the system allows at most.
        hard: u64,
    },
    /// The system refused a thread, a runtime or the socket.
    #[error("the agent listener cannot start")]
    Io(#[from] io::Error),
}

/// A running listener, on a thread of its own. Dropping it closes it without a drain.
pub struct AgentListener {
    address: SocketAddr,
    service: Arc<AgentService>,
    stop: CancellationToken,
    stopped: CancellationToken,
    thread: Option<JoinHandle<()>>,
}

/// What every connection's task shares.
struct Door {
    service: Arc<AgentService>,
    acceptor: TlsAcceptor,
    limits: Limits,
    handshakes: Semaphore,
    stop: CancellationToken,
}

impl AgentListener {
    /// Serves `socket` until [`AgentListener::drain`].
    ///
    /// One worker thread: two cost half as much again for the same heartbeats.
    ///
    /// # Errors
    /// [`StartError::Descriptors`] when the process may not open enough files, [`StartError::Io`].
    pub fn start(
        socket: std::net::TcpListener,
        service: Arc<AgentService>,
        tls: Arc<ServerConfig>,
        limits: Limits,
    ) -> Result<Self, StartError> {
        ensure_descriptors(limits.connections)?;
        socket.set_nonblocking(true)?;
        let address = socket.local_addr()?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build()?;
        let socket = {
            let _inside = runtime.enter();
            TcpSocket::from_std_stream(OwnedFd::from(socket).into()).listen(BACKLOG)?
        };
        let (stop, stopped) = (CancellationToken::new(), CancellationToken::new());
        let door = Arc::new(Door {
            service: Arc::clone(&service),
            acceptor: TlsAcceptor::from(tls),
            limits,
            handshakes: Semaphore::new(limits.handshakes),
            stop: stop.clone(),
        });
        let at_end = stopped.clone().drop_guard();
        let thread = std::thread::Builder::new().name("agent-listener".into()).spawn(move || {
            let _at_end = at_end;
            runtime.block_on(accept(socket, door));
        })?;
        info!(%address, connections = limits.connections, "agent listener started");
        Ok(Self { address, service, stop, stopped, thread: Some(thread) })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Answers what is parked, lets requests end within [`Limits::drain_timeout`], closes everything.
    pub async fn drain(mut self) {
        self.service.drain();
        self.stop.cancel();
        self.stopped.cancelled().await;
        if let Some(thread) = self.thread.take() {
            // It has left its last statement: joining does not wait.
            let _ = thread.join();
        }
    }
}

impl Drop for AgentListener {
    fn drop(&mut self) {
        self.service.drain();
        self.stop.cancel();
    }
}

/// Raises the soft limit as far as it takes.
pub(super) fn ensure_descriptors(connections: usize) -> Result<(), StartError> {
    let need = (connections as u64).saturating_add(OTHER_DESCRIPTORS);
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).map_err(io::Error::from)?;
    if hard < need {
        return Err(StartError::Descriptors { connections, need, hard });
    }
    if soft < need {
        setrlimit(Resource::RLIMIT_NOFILE, need, hard).map_err(io::Error::from)?;
    }
    Ok(())
}

async fn accept(socket: TcpListener, door: Arc<Door>) {
    let connections = Arc::new(Semaphore::new(door.limits.connections));
    let tasks = TaskTracker::new();
    loop {
        let accepted = tokio::select! {
            () = door.stop.cancelled() => break,
            accepted = socket.accept() => accepted,
        };
        match (accepted, Arc::clone(&connections).try_acquire_owned()) {
            (Ok((stream, peer)), Ok(permit)) => {
                tasks.spawn(serve(stream, peer, Arc::clone(&door), permit));
            }
            (Ok((_, peer)), Err(_)) => debug!(%peer, "agent connection refused: too many"),
            (Err(error), _) => {
                warn!(%error, "agent connection not accepted");
                // Out of descriptors: only the end of another connection helps, not trying at once.
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
    drop(socket);
    tasks.close();
    if tokio::time::timeout(door.limits.drain_timeout, tasks.wait()).await.is_err() {
        warn!(connections = tasks.len(), "agent connections cut at the end of the drain");
    }
}

async fn serve(stream: TcpStream, peer: SocketAddr, door: Arc<Door>, _permit: OwnedSemaphorePermit) {
    let stream = tokio::select! {
        () = door.stop.cancelled() => return,
        // Boxed: the handshake's state must not stay with the connection for an hour.
        handshake = Box::pin(tokio::time::timeout(door.limits.handshake_timeout, shake_hands(stream, &door))) => {
            match handshake {
                Ok(Ok(stream)) => stream,
                Ok(Err(error)) => return debug!(%peer, %error, "agent handshake failed"),
                Err(_) => return debug!(%peer, "agent handshake took too long"),
            }
        }
    };
    let (_, tls) = stream.get_ref();
    let certificate = tls.peer_certificates().and_then(<[_]>::first).map(|certificate| certificate.as_ref());
    let connection = Arc::new(Connection::new(peer, certificate));
    let life = connection_life(&door, &connection);
    let is_http2 = tls.alpn_protocol() == Some(b"h2");
    let outcome = if is_http2 {
        Box::pin(serve_http2(stream, &door, connection, life)).await
    } else {
        serve_http1(stream, &door, connection, life).await
    };
    if let Err(error) = outcome {
        debug!(%peer, %error, "agent connection ended");
    }
}

async fn shake_hands(stream: TcpStream, door: &Door) -> io::Result<TlsStream<TcpStream>> {
    stream.set_nodelay(true)?;
    // A peer that says nothing takes no turn.
    stream.readable().await?;
    let turn = door.handshakes.acquire().await.map_err(io::Error::other)?;
    let mut handshake = door.acceptor.accept(stream);
    match tokio::time::timeout(HANDSHAKE_TURN, &mut handshake).await {
        Ok(done) => done,
        Err(_) => {
            drop(turn);
            handshake.await
        }
    }
}

/// TLS 1.3 does not renegotiate: a connection ends with its certificate, and about every hour in any case.
fn connection_life(door: &Door, connection: &Connection) -> Duration {
    let Limits { connection_life: life, connection_life_jitter: jitter, .. } = door.limits;
    let jittered = life.saturating_sub(jitter) + (jitter * 2).mul_f64(rand::random::<f64>());
    match connection.not_after() {
        Some(not_after) => jittered.min(not_after.since(door.service.now()).max(LAST_WORD)),
        None => jittered.min(STRANGER_LIFE),
    }
}

async fn serve_http1(
    stream: TlsStream<TcpStream>,
    door: &Door,
    connection: Arc<Connection>,
    life: Duration,
) -> hyper::Result<()> {
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(door.limits.idle_timeout)
        .max_headers(MAX_HEADERS)
        .max_buf_size(MAX_HEADER_BYTES)
        .serve_connection(TokioIo::new(stream), respond(door, connection));
    until_closed(served, door, life).await
}

async fn serve_http2(
    stream: TlsStream<TcpStream>,
    door: &Door,
    connection: Arc<Connection>,
    life: Duration,
) -> hyper::Result<()> {
    let served = http2::Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .keep_alive_interval(door.limits.idle_timeout)
        .max_concurrent_streams(MAX_STREAMS)
        .max_header_list_size(MAX_HEADER_BYTES as u32)
        .serve_connection(TokioIo::new(stream), respond(door, connection));
    until_closed(served, door, life).await
}

fn respond(
    door: &Door,
    connection: Arc<Connection>,
) -> impl hyper::service::Service<
    http::Request<hyper::body::Incoming>,
    Response = http::Response<http_body_util::Full<bytes::Bytes>>,
    Error = Infallible,
    Future: Send + 'static,
> + use<> {
    let service = Arc::clone(&door.service);
    service_fn(move |request| {
        let (service, connection) = (Arc::clone(&service), Arc::clone(&connection));
        async move { Ok(service.answer(&connection, request).await) }
    })
}

/// Runs a connection to the end of its life or of the server's, then lets the request in flight end.
async fn until_closed(
    served: impl GracefulConnection<Error = hyper::Error>,
    door: &Door,
    life: Duration,
) -> hyper::Result<()> {
    tokio::pin!(served);
    tokio::select! {
        ended = served.as_mut() => return ended,
        () = tokio::time::sleep(life) => {}
        () = door.stop.cancelled() => {}
    }
    served.as_mut().graceful_shutdown();
    // The longest a request may be parked, and room for its answer.
    let last_request = Duration::from_millis(lattice_api::agent::MAX_WAIT_MS) + door.limits.drain_timeout;
    tokio::time::timeout(last_request, served).await.unwrap_or(Ok(()))
}
