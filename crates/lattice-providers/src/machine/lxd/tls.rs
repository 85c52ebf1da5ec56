//! TLS to LXD: its own certificate proves the server, ours proves us; no authority is involved.

use std::sync::Arc;

use lattice_core::secret::Secret;
use rustls::ClientConfig;
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};

use crate::error::ProviderError;
use crate::machine::pin::{Pin, fingerprint};

/// What proves both sides to each other, as PEM.
pub struct LxdCredentials {
    /// Our certificate, which the server trusts.
    pub client_cert: String,
    /// Its key.
    pub client_key: Secret<String>,
    /// The server's certificate: exactly this one is accepted.
    pub server_cert: String,
}

/// TLS 1.3 with our certificate, to the pinned server alone.
pub(super) fn config(credentials: &LxdCredentials) -> Result<ClientConfig, ProviderError> {
    let unusable = |what: &str| ProviderError::unusable("lxd credentials", what);
    let chain: Vec<_> = CertificateDer::pem_slice_iter(credentials.client_cert.as_bytes())
        .collect::<Result<_, _>>()
        .map_err(|_| unusable("the client certificate is not PEM"))?;
    let key = PrivateKeyDer::from_pem_slice(credentials.client_key.expose().as_bytes())
        .map_err(|_| unusable("the client key is not PEM"))?;
    let pinned = CertificateDer::from_pem_slice(credentials.server_cert.as_bytes())
        .map_err(|_| unusable("the server certificate is not PEM"))?;
    let provider = Arc::new(aws_lc_rs::default_provider());
    let verifier = Pin::new(fingerprint(&pinned), &provider);
    builder(provider)?
        .dangerous()
        .with_custom_certificate_verifier(verifier)
        .with_client_auth_cert(chain, key)
        .map_err(|_| unusable("the client certificate and its key do not fit together"))
}

fn builder(
    provider: Arc<CryptoProvider>,
) -> Result<rustls::ConfigBuilder<ClientConfig, rustls::WantsVerifier>, ProviderError> {
    ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(|error| ProviderError::unusable("lxd credentials", error))
}
