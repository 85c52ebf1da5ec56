//! Nodes with certificates, made without a server: the same number is the same node in every process.

use std::sync::Arc;
use std::time::Duration;

use lattice_core::ids::{IdSource, NodeId, uuid_v7};
use lattice_core::secret::Secret;
use lattice_core::time::{Clock, Timestamp};
use lattice_server::clock::{SystemClock, SystemIds};
use lattice_server::pki::{Authority, CaMaterial, CertificateSpan, NodeRequest};
use rcgen::{CertificateParams, KeyPair};
use rustls::client::Resumption;
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use serde::{Deserialize, Serialize};

use crate::failure::{Failure, at};

/// When the nodes were made.
pub const T0: Timestamp = Timestamp::from_millis(1_763_712_764_000);

/// Identity epoch of every node.
pub const EPOCH: u64 = 1;

/// A certificate authority that is thrown away after the run, so it may be handed to another process.
#[derive(Clone, Serialize, Deserialize)]
pub struct ThrowawayCa {
    certificate_pem: String,
    key_pem: String,
}

/// The node of that number.
pub fn node(number: u32) -> NodeId {
    let mut random = [0; 10];
    random[6..].copy_from_slice(&number.to_be_bytes());
    NodeId::new(uuid_v7(T0, random))
}

impl ThrowawayCa {
    /// A new one.
    ///
    /// # Errors
    /// The library refuses.
    pub fn create() -> Result<Self, Failure> {
        let span = CertificateSpan::starting(SystemClock.now(), Duration::from_secs(3600), Duration::from_secs(86_400));
        let ca = CaMaterial::create("lattice bench", span, serial()).map_err(at("make an authority"))?;
        Ok(Self { certificate_pem: ca.certificate_pem, key_pem: ca.key_pem.expose().clone() })
    }

    /// What its certificates chain to.
    pub fn certificate_pem(&self) -> &str {
        &self.certificate_pem
    }

    /// What signs.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn authority(&self) -> Result<Authority, Failure> {
        let key_pem = Secret::new(self.key_pem.clone());
        let material = CaMaterial { certificate_pem: self.certificate_pem.clone(), key_pem };
        Authority::open(&material).map_err(at("open the authority"))
    }
}

/// Makes TLS configurations of nodes, all with one key: what is measured does not depend on it, and 10,000 keys take
/// the load generator longer than everything else.
pub struct Identities {
    authority: Authority,
    request: NodeRequest,
    key: PrivateKeyDer<'static>,
    roots: Arc<RootCertStore>,
}

impl Identities {
    /// Under this authority.
    ///
    /// # Errors
    /// The libraries refuse.
    pub fn new(ca: &ThrowawayCa) -> Result<Self, Failure> {
        let authority = ca.authority()?;
        let key = KeyPair::generate().map_err(at("draw a key"))?;
        let csr = CertificateParams::default().serialize_request(&key).map_err(at("make a request"))?;
        let csr = csr.pem().map_err(at("make a request"))?;
        let request = NodeRequest::parse(&csr).map_err(at("read the request"))?;
        let key = PrivateKeyDer::from_pem_slice(key.serialize_pem().as_bytes()).map_err(at("read the key"))?;
        let mut roots = RootCertStore::empty();
        roots.add(authority.certificate().clone()).map_err(at("trust the authority"))?;
        Ok(Self { authority, request, key, roots: Arc::new(roots) })
    }

    /// TLS 1.3 with the node's own certificate; nothing is resumed.
    ///
    /// # Errors
    /// The libraries refuse.
    pub fn tls(&self, node: NodeId) -> Result<Arc<ClientConfig>, Failure> {
        let mut config = self.resuming_tls(node)?;
        config.resumption = Resumption::disabled();
        Ok(Arc::new(config))
    }

    /// TLS 1.3 with the node's own certificate, and room for the tickets that an agent keeps.
    ///
    /// # Errors
    /// The libraries refuse.
    pub fn resuming_tls(&self, node: NodeId) -> Result<ClientConfig, Failure> {
        let span = CertificateSpan::starting(SystemClock.now(), Duration::from_secs(300), Duration::from_secs(3600));
        let signed = self.authority.sign_node(&self.request, (node, EPOCH), span, serial());
        let chain = signed.map_err(at("sign a certificate"))?.chain_pem;
        let leaf = CertificateDer::from_pem_slice(chain.as_bytes()).map_err(at("read a certificate"))?;
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(at("configure TLS"))?
            .with_root_certificates(Arc::clone(&self.roots))
            .with_client_auth_cert(vec![leaf], self.key.clone_key())
            .map_err(at("configure TLS"))?;
        config.resumption = Resumption::in_memory_sessions(2);
        Ok(config)
    }
}

fn serial() -> [u8; 16] {
    *SystemIds.uuid(SystemClock.now()).as_bytes()
}
