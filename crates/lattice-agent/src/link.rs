//! One kept HTTP/1.1 connection over TLS 1.3.

use std::fmt;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use http::header::{CONNECTION, CONTENT_TYPE, HOST};
use http::{Request, StatusCode, Uri};
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1::SendRequest;
use hyper_util::rt::TokioIo;
use lattice_api::error::Problem;
use lattice_core::explain::Code;
use lattice_core::secret::Secret;
use lattice_core::time::Clock;
use rustls::client::Resumption;
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::time_provider::TimeProvider;
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio_rustls::TlsConnector;

use crate::error::AgentError;

/// An answer larger than this is not the server's.
const MAX_ANSWER_BYTES: usize = 256 * 1024;
/// One server, one kept connection: the next one resumes from one ticket, with one to spare.
const TICKETS: usize = 2;

/// Longest time for one of several addresses of a host.
const ADDRESS: Duration = Duration::from_secs(3);

static PROVIDER: LazyLock<Arc<CryptoProvider>> = LazyLock::new(|| Arc::new(aws_lc_rs::default_provider()));

/// Where a server is and whom it is spoken to as. A network makes a [`Peer`] of it.
pub struct Reach<'a> {
    /// `https://host:port`.
    pub server: &'a str,
    /// What its certificate must chain to, in PEM.
    pub ca_pem: &'a str,
    /// Certificate chain and key to show, in PEM; none: a stranger who enrols.
    pub identity: Option<(&'a str, &'a Secret<String>)>,
}

/// The way to servers: TCP with TLS, or a simulated network.
pub trait Network: Send + Sync {
    /// A server, spoken to as somebody. Nothing is sent yet.
    ///
    /// # Errors
    /// [`AgentError::BootstrapValue`] when address or CA cannot be parsed, [`AgentError::Tls`] when the identity cannot.
    fn peer(&self, reach: &Reach<'_>) -> Result<Arc<dyn Peer>, AgentError>;
}

/// A server, spoken to as somebody.
#[async_trait]
pub trait Peer: Send + Sync {
    /// Connects.
    ///
    /// # Errors
    /// [`CallError::Transport`].
    async fn connect(&self) -> Result<Box<dyn Line>, CallError>;
}

/// One connection.
#[async_trait]
pub trait Line: Send {
    /// Whether the other side has closed it or said that it will.
    fn is_closing(&self) -> bool;

    /// Posts a JSON body and gives status and body of the answer.
    ///
    /// # Errors
    /// [`CallError::Transport`].
    async fn post(&mut self, path: &str, body: Vec<u8>) -> Result<(StatusCode, Bytes), CallError>;
}

/// Where a server is and how to speak to it as whom. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Target(Arc<dyn Peer>);

/// One kept connection.
pub(crate) struct Link {
    line: Box<dyn Line>,
    /// An answer that did not come in time may still come: it belongs to nobody.
    given_up: bool,
}

/// TCP with TLS 1.3.
pub(crate) struct TlsNetwork {
    pub(crate) clock: Arc<dyn Clock>,
}

struct TlsPeer {
    authority: String,
    port: u16,
    host: String,
    name: ServerName<'static>,
    tls: Arc<ClientConfig>,
    /// Which of the host's addresses is next.
    turn: AtomicUsize,
}

struct TlsLine {
    sender: SendRequest<Full<Bytes>>,
    authority: String,
    driver: JoinHandle<()>,
    closing: bool,
}

/// Why a call brought nothing.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// No connection, or it broke.
    #[error("{0}")]
    Transport(String),
    /// No answer in time.
    #[error("no answer within {} ms", .0.as_millis())]
    TimedOut(Duration),
    /// The server refused.
    #[error("refused with {}: {}", .0.code, .0.detail)]
    Refused(Box<Problem>),
}

impl CallError {
    fn transport(error: impl fmt::Display) -> Self {
        Self::Transport(error.to_string())
    }
}

impl Target {
    /// A server, spoken to over `network` as somebody.
    ///
    /// # Errors
    /// As [`Network::peer`].
    pub fn new(network: &dyn Network, reach: &Reach<'_>) -> Result<Self, AgentError> {
        network.peer(reach).map(Self)
    }

    /// Whether it is the same server, spoken to as the same identity: connections to it may be kept.
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Network for TlsNetwork {
    fn peer(&self, reach: &Reach<'_>) -> Result<Arc<dyn Peer>, AgentError> {
        let server = reach.server;
        let bad = |why: &str| AgentError::BootstrapValue { field: "server", why: format!("`{server}` {why}") };
        let uri: Uri = server.parse().map_err(|_| bad("is not an address such as https://lattice.dc1:7443"))?;
        if uri.scheme_str() != Some("https") {
            return Err(bad("does not start with https://"));
        }
        let host = uri.host().ok_or_else(|| bad("has no host"))?.trim_matches(['[', ']']).to_owned();
        let name = ServerName::try_from(host.clone()).map_err(|_| bad("has no usable host"))?;
        let authority = uri.authority().map(ToString::to_string).unwrap_or_default();
        let tls = Arc::new(client_tls(reach, Arc::clone(&self.clock))?);
        let (port, turn) = (uri.port_u16().unwrap_or(443), AtomicUsize::new(0));
        Ok(Arc::new(TlsPeer { authority, port, host, name, tls, turn }))
    }
}

fn client_tls(reach: &Reach<'_>, clock: Arc<dyn Clock>) -> Result<ClientConfig, AgentError> {
    let tls = |error: rustls::Error| AgentError::Tls(error.to_string());
    let pem = |error: rustls_pki_types::pem::Error| AgentError::Tls(error.to_string());
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(reach.ca_pem.as_bytes()) {
        let bad = |why: String| AgentError::BootstrapValue { field: "ca_pem", why };
        roots.add(certificate.map_err(|e| bad(e.to_string()))?).map_err(|e| bad(e.to_string()))?;
    }
    if roots.is_empty() {
        return Err(AgentError::BootstrapValue { field: "ca_pem", why: "it holds no certificate".into() });
    }
    let builder = ClientConfig::builder_with_details(Arc::clone(&PROVIDER), Arc::new(ClockTime(clock)))
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(tls)?
        .with_root_certificates(roots);
    let mut config = match reach.identity {
        None => builder.with_no_client_auth(),
        Some((certificate_pem, key_pem)) => {
            let chain = CertificateDer::pem_slice_iter(certificate_pem.as_bytes());
            let chain = chain.collect::<Result<Vec<_>, _>>().map_err(pem)?;
            let key = PrivateKeyDer::from_pem_slice(key_pem.expose().as_bytes()).map_err(pem)?;
            builder.with_client_auth_cert(chain, key).map_err(tls)?
        }
    };
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    config.resumption = Resumption::in_memory_sessions(TICKETS);
    Ok(config)
}

impl TlsPeer {
    /// A connection to one of the host's addresses: the one that answered last, or else each in its turn.
    async fn stream(&self) -> Result<TcpStream, CallError> {
        let found = tokio::net::lookup_host((self.host.as_str(), self.port)).await.map_err(CallError::transport)?;
        let addresses: Vec<SocketAddr> = found.collect();
        let mut failure = CallError::Transport(format!("{} has no address", self.host));
        for _ in 0..addresses.len() {
            let address = addresses[self.turn.load(Ordering::Relaxed) % addresses.len()];
            // Whoever calls has a limit: one that is switched off does not use up the time of the others.
            let limit = if addresses.len() > 1 { ADDRESS } else { Duration::MAX };
            failure = match tokio::time::timeout(limit, TcpStream::connect(address)).await {
                Ok(Ok(stream)) => return Ok(stream),
                Ok(Err(error)) => CallError::transport(error),
                Err(_) => CallError::Transport(format!("{address} does not answer within {} s", ADDRESS.as_secs())),
            };
            self.turn.fetch_add(1, Ordering::Relaxed);
        }
        Err(failure)
    }
}

#[async_trait]
impl Peer for TlsPeer {
    async fn connect(&self) -> Result<Box<dyn Line>, CallError> {
        let stream = self.stream().await?;
        stream.set_nodelay(true).map_err(CallError::transport)?;
        let connector = TlsConnector::from(Arc::clone(&self.tls));
        let stream = connector.connect(self.name.clone(), stream).await.map_err(CallError::transport)?;
        let (sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(CallError::transport)?;
        // How it ends shows in the next call.
        let driver = tokio::spawn(async move { drop(connection.await) });
        Ok(Box::new(TlsLine { sender, authority: self.authority.clone(), driver, closing: false }))
    }
}

#[async_trait]
impl Line for TlsLine {
    fn is_closing(&self) -> bool {
        self.closing || self.sender.is_closed()
    }

    async fn post(&mut self, path: &str, body: Vec<u8>) -> Result<(StatusCode, Bytes), CallError> {
        let request = Request::post(path)
            .header(HOST, &self.authority)
            .header(CONTENT_TYPE, "application/json")
            .body(Full::from(body))
            .map_err(CallError::transport)?;
        self.sender.ready().await.map_err(CallError::transport)?;
        let response = self.sender.send_request(request).await.map_err(CallError::transport)?;
        self.closing |= response.headers().get(CONNECTION).is_some_and(|value| value == "close");
        let status = response.status();
        let body = Limited::new(response.into_body(), MAX_ANSWER_BYTES).collect().await;
        Ok((status, body.map_err(CallError::transport)?.to_bytes()))
    }
}

impl Drop for TlsLine {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

impl Link {
    /// Connects, within `timeout`.
    ///
    /// # Errors
    /// [`CallError::Transport`], [`CallError::TimedOut`].
    pub async fn open(target: &Target, timeout: Duration) -> Result<Self, CallError> {
        let line =
            tokio::time::timeout(timeout, target.0.connect()).await.map_err(|_| CallError::TimedOut(timeout))??;
        Ok(Self { line, given_up: false })
    }

    /// Whether the server has closed it or said that it will.
    pub fn is_closing(&self) -> bool {
        self.given_up || self.line.is_closing()
    }

    /// Posts `body` and reads the answer, within `timeout`.
    ///
    /// # Errors
    /// [`CallError`] says why there is no answer.
    pub async fn call<T: DeserializeOwned>(
        &mut self,
        path: &str,
        body: &impl Serialize,
        timeout: Duration,
    ) -> Result<T, CallError> {
        let body = serde_json::to_vec(body).map_err(CallError::transport)?;
        match tokio::time::timeout(timeout, self.line.post(path, body)).await {
            Ok(answer) => answer.and_then(|(status, body)| read(status, &body)),
            Err(_) => {
                self.given_up = true;
                Err(CallError::TimedOut(timeout))
            }
        }
    }
}

fn read<T: DeserializeOwned>(status: StatusCode, body: &[u8]) -> Result<T, CallError> {
    if status.is_success() {
        return serde_json::from_slice(body)
            .map_err(|error| CallError::Transport(format!("the answer cannot be read: {error}")));
    }
    // Something between agent and server may answer without a problem body.
    let problem = serde_json::from_slice(body).unwrap_or_else(|_| {
        let status = StatusCode::from_u16(status.as_u16()).unwrap_or(StatusCode::BAD_GATEWAY);
        Problem::new(status, Code::Unavailable, format!("status {status} without a problem body"))
    });
    Err(CallError::Refused(Box::new(problem)))
}

/// The process's clock, as the TLS library wants it.
struct ClockTime(Arc<dyn Clock>);

impl TimeProvider for ClockTime {
    fn current_time(&self) -> Option<UnixTime> {
        let millis = self.0.now().as_millis().max(0) as u64;
        Some(UnixTime::since_unix_epoch(Duration::from_millis(millis)))
    }
}

impl fmt::Debug for ClockTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClockTime")
    }
}
