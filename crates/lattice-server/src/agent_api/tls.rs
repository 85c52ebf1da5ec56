//! TLS of the agent listener: 1.3 alone, client certificates asked for but not demanded, so that a host without an
//! identity can enrol at the same address.

use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use lattice_core::ids::IdSource;
use lattice_core::secret::Secret;
use lattice_core::time::{Clock, Timestamp};
use rustls::crypto::aws_lc_rs;
use rustls::crypto::aws_lc_rs::cipher_suite::{
    TLS13_AES_128_GCM_SHA256, TLS13_AES_256_GCM_SHA384, TLS13_CHACHA20_POLY1305_SHA256,
};
use rustls::server::{ClientHello, ResolvesServerCert, WebPkiClientVerifier};
use rustls::sign::CertifiedKey;
use rustls::time_provider::TimeProvider;
use rustls::{RootCertStore, ServerConfig};
use rustls_pki_types::UnixTime;
use tracing::{error, info};

use super::tickets::Tickets;
use crate::pki::{Authority, CertificateSpan, PkiError};

/// Life of the listener's own certificate. It is renewed at two thirds, and no agent keeps it.
const SERVER_CERTIFICATE_LIFE: Duration = Duration::from_secs(30 * 24 * 3600);
/// Agents whose clock is behind must accept it too.
const CLOCK_SKEW: Duration = Duration::from_secs(24 * 3600);

/// Why the listener has no TLS.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// Its certificate could not be made.
    #[error("the agent listener has no certificate")]
    Certificate(#[from] PkiError),
    /// The TLS library refused the configuration.
    #[error("the agent listener's TLS cannot be configured")]
    Library(#[from] rustls::Error),
    /// Clients cannot be checked.
    #[error("the agent listener cannot check client certificates")]
    Verifier(#[from] rustls::server::VerifierBuilderError),
}

/// TLS for a listener that answers under `names` (addresses or DNS names).
///
/// Session tickets are sealed with keys from `ticket_seed` ([`Tickets`]); expiry and revocation are checked at each
/// request, whatever a ticket restores.
///
/// # Errors
/// [`TlsError`] says which part could not be made.
pub fn server_tls(
    authority: Arc<Authority>,
    names: Vec<String>,
    clock: Arc<dyn Clock>,
    ids: Arc<dyn IdSource>,
    ticket_seed: Secret<Vec<u8>>,
) -> Result<Arc<ServerConfig>, TlsError> {
    let mut provider = aws_lc_rs::default_provider();
    // SHA-256 has instructions of its own in a processor, SHA-384 has not: a tenth of a fleet's return.
    provider.cipher_suites = vec![TLS13_AES_128_GCM_SHA256, TLS13_AES_256_GCM_SHA384, TLS13_CHACHA20_POLY1305_SHA256];
    let provider = Arc::new(provider);
    let mut roots = RootCertStore::empty();
    roots.add(authority.certificate().clone())?;
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider))
        .allow_unauthenticated()
        .build()?;
    let certificate = OwnCertificate::issue(authority, names, Arc::clone(&clock), ids)?;
    let tickets = Tickets::new(ticket_seed, Arc::clone(&clock));
    let mut config = ServerConfig::builder_with_details(provider, Arc::new(ClockTime(clock)))
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_client_cert_verifier(verifier)
        .with_cert_resolver(Arc::new(certificate));
    config.alpn_protocols = vec![b"http/1.1".to_vec(), b"h2".to_vec()];
    config.ignore_client_order = true;
    config.ticketer = Arc::new(tickets);
    // An agent keeps one connection. A ticket is used once: the second is for a server that ended in the handshake.
    config.send_tls13_tickets = 2;
    Ok(Arc::new(config))
}

/// The listener's certificate, made anew at two thirds of its life by the handshake that finds it due.
struct OwnCertificate {
    authority: Arc<Authority>,
    names: Vec<String>,
    clock: Arc<dyn Clock>,
    ids: Arc<dyn IdSource>,
    current: RwLock<(Arc<CertifiedKey>, Timestamp)>,
}

impl OwnCertificate {
    fn issue(
        authority: Arc<Authority>,
        names: Vec<String>,
        clock: Arc<dyn Clock>,
        ids: Arc<dyn IdSource>,
    ) -> Result<Self, TlsError> {
        let current = RwLock::new(make(&authority, &names, &*ids, clock.now())?);
        Ok(Self { authority, names, clock, ids, current })
    }

    fn current(&self) -> Arc<CertifiedKey> {
        let now = self.clock.now();
        {
            let current = self.current.read().unwrap_or_else(PoisonError::into_inner);
            if now < current.1 {
                return Arc::clone(&current.0);
            }
        }
        let mut current = self.current.write().unwrap_or_else(PoisonError::into_inner);
        if now >= current.1 {
            match make(&self.authority, &self.names, &*self.ids, now) {
                Ok(renewed) => {
                    *current = renewed;
                    info!(due = %current.1, "agent listener certificate renewed");
                }
                // The old one is good for another third of its life; the next handshake tries again.
                Err(error) => error!(%error, "agent listener certificate not renewed"),
            }
        }
        Arc::clone(&current.0)
    }
}

fn make(
    authority: &Authority,
    names: &[String],
    ids: &dyn IdSource,
    now: Timestamp,
) -> Result<(Arc<CertifiedKey>, Timestamp), TlsError> {
    let span = CertificateSpan::starting(now, CLOCK_SKEW, SERVER_CERTIFICATE_LIFE);
    let identity = authority.issue_server(names, span, *ids.uuid(now).as_bytes())?;
    let key = aws_lc_rs::sign::any_supported_type(&identity.key)?;
    Ok((Arc::new(CertifiedKey::new(identity.chain, key)), now + SERVER_CERTIFICATE_LIFE * 2 / 3))
}

impl ResolvesServerCert for OwnCertificate {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.current())
    }
}

impl fmt::Debug for OwnCertificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OwnCertificate").field("names", &self.names).finish_non_exhaustive()
    }
}

/// The process's clock, as the TLS library wants it.
pub(super) struct ClockTime(pub(super) Arc<dyn Clock>);

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
