//! The API over TLS: handshakes happen beside accepting, so that a slow client delays nobody.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use lattice_core::secret::Secret;
use rustls::ServerConfig;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tracing::{debug, warn};

/// Longest handshake.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// Handshakes at a time: browsers and commands come a few at once.
const HANDSHAKES: usize = 64;

/// Why the API has no TLS.
#[derive(Debug, thiserror::Error)]
pub enum HttpsError {
    /// The certificate or the key cannot be read as PEM.
    #[error("`{key}` is not PEM: {why}")]
    NotPem {
        /// Which key of the configuration.
        key: &'static str,
        /// Why.
        why: String,
    },
    /// Certificate and key do not fit together.
    #[error("the API's certificate and key do not fit together")]
    Library(#[from] rustls::Error),
}

/// TLS 1.3 with a certificate chain and its key, both in PEM.
///
/// # Errors
/// One of them is not PEM, or they do not fit together.
pub fn tls(chain_pem: &str, key_pem: &Secret<String>) -> Result<Arc<ServerConfig>, HttpsError> {
    let not_pem = |key| move |error: rustls_pki_types::pem::Error| HttpsError::NotPem { key, why: error.to_string() };
    let chain = CertificateDer::pem_slice_iter(chain_pem.as_bytes())
        .collect::<Result<Vec<_>, _>>()
        .map_err(not_pem("http.tls_certificate"))?;
    let key = PrivateKeyDer::from_pem_slice(key_pem.expose().as_bytes()).map_err(not_pem("http.tls_key"))?;
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_no_client_auth()
        .with_single_cert(chain, key)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

/// A listener whose connections have finished their handshake.
pub struct HttpsListener {
    address: SocketAddr,
    ready: mpsc::Receiver<(TlsStream<TcpStream>, SocketAddr)>,
}

impl HttpsListener {
    /// Accepts on `socket` until the listener is dropped.
    ///
    /// # Errors
    /// The socket has no address.
    pub fn start(socket: TcpListener, config: Arc<ServerConfig>) -> io::Result<Self> {
        let address = socket.local_addr()?;
        let (done, ready) = mpsc::channel(HANDSHAKES);
        tokio::spawn(accept(socket, TlsAcceptor::from(config), done));
        Ok(Self { address, ready })
    }
}

impl axum::serve::Listener for HttpsListener {
    type Io = TlsStream<TcpStream>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        match self.ready.recv().await {
            Some(connection) => connection,
            // The acceptor ended with its runtime: nothing comes any more.
            None => std::future::pending().await,
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.address)
    }
}

async fn accept(socket: TcpListener, acceptor: TlsAcceptor, done: mpsc::Sender<(TlsStream<TcpStream>, SocketAddr)>) {
    let turns = Arc::new(Semaphore::new(HANDSHAKES));
    loop {
        let accepted = tokio::select! {
            () = done.closed() => return,
            accepted = socket.accept() => accepted,
        };
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                warn!(%error, "api cannot accept");
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let (acceptor, done) = (acceptor.clone(), done.clone());
        let Ok(turn) = Arc::clone(&turns).acquire_owned().await else { return };
        tokio::spawn(async move {
            let _turn = turn;
            match tokio::time::timeout(HANDSHAKE, acceptor.accept(stream)).await {
                // The receiver is gone only when the server stops.
                Ok(Ok(stream)) => done.send((stream, peer)).await.unwrap_or_default(),
                Ok(Err(error)) => debug!(%peer, %error, "handshake failed"),
                Err(_) => debug!(%peer, "handshake took too long"),
            }
        });
    }
}
