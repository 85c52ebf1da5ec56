//! The embedded certificate authority. design: 4 "Identity and transport"

use std::time::Duration;

use lattice_core::ids::NodeId;
use lattice_core::secret::Secret;
use lattice_core::time::Timestamp;
use rcgen::{
    BasicConstraints, CertificateParams, CertificateSigningRequestParams, DistinguishedName, DnType,
    ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose, PublicKeyData, SanType, SerialNumber,
};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use sha2::{Digest, Sha256};

use super::identity::{epoch_uri, node_uri};

/// Largest certificate request that is parsed, in bytes of PEM; one for a P-256 key takes 400.
const MAX_CSR_BYTES: usize = 4096;

/// What the secret store keeps of the authority.
#[derive(Clone)]
pub struct CaMaterial {
    /// The authority's own certificate.
    pub certificate_pem: String,
    /// Its private key, PKCS #8.
    pub key_pem: Secret<String>,
}

/// Validity of a certificate. X.509 counts whole seconds: both ends are cut to them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CertificateSpan {
    /// From when.
    pub not_before: Timestamp,
    /// Until when.
    pub not_after: Timestamp,
}

/// Signs certificates of nodes and of the agent listener.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    certificate: CertificateDer<'static>,
    bundle_pem: String,
}

/// A certificate request whose signature and key were checked.
pub struct NodeRequest {
    params: CertificateSigningRequestParams,
}

/// A node's certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SignedNode {
    /// The certificate and what chains it to the bundle, leaf first.
    pub chain_pem: String,
    /// Its validity, as it stands in the certificate.
    pub span: CertificateSpan,
}

/// Certificate and key of the agent listener.
pub struct ServerIdentity {
    /// Leaf first.
    pub chain: Vec<CertificateDer<'static>>,
    /// Its private key; never stored: a new one is made at each start.
    pub key: PrivateKeyDer<'static>,
}

/// Why nothing was signed.
#[derive(Debug, thiserror::Error)]
pub enum PkiError {
    /// The request came from outside and is not acceptable.
    #[error("the certificate request cannot be signed: {0}")]
    Request(&'static str),
    /// The material from the secret store is damaged, or certificate and key do not belong together.
    #[error("the certificate authority's {0} cannot be used")]
    Material(&'static str),
    /// A name for the listener is neither an IP address nor a DNS name.
    #[error("`{0}` is neither an IP address nor a DNS name")]
    Name(String),
    /// The TLS library refused.
    #[error("the certificate could not be made")]
    Library(#[from] rcgen::Error),
}

impl CaMaterial {
    /// Makes a new authority, once in the life of an installation.
    ///
    /// # Errors
    /// [`PkiError::Library`] when no key could be generated.
    pub fn create(name: &str, span: CertificateSpan, serial: [u8; 16]) -> Result<Self, PkiError> {
        let key = KeyPair::generate()?;
        let mut params = params(name, span, serial);
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let certificate = params.self_signed(&key)?;
        Ok(Self { certificate_pem: certificate.pem(), key_pem: Secret::new(key.serialize_pem()) })
    }
}

impl Authority {
    /// Takes up what the secret store kept.
    ///
    /// # Errors
    /// [`PkiError::Material`] when certificate or key cannot be parsed or do not belong together.
    pub fn open(material: &CaMaterial) -> Result<Self, PkiError> {
        let key = KeyPair::from_pem(material.key_pem.expose()).map_err(|_| PkiError::Material("key"))?;
        let certificate = CertificateDer::from_pem_slice(material.certificate_pem.as_bytes())
            .map_err(|_| PkiError::Material("certificate"))?;
        let (_, parsed) =
            x509_parser::parse_x509_certificate(&certificate).map_err(|_| PkiError::Material("certificate"))?;
        if parsed.public_key().subject_public_key.data != key.public_key_raw() {
            return Err(PkiError::Material("key (it belongs to another certificate)"));
        }
        let issuer = Issuer::from_ca_cert_der(&certificate, key).map_err(|_| PkiError::Material("certificate"))?;
        Ok(Self { issuer, certificate, bundle_pem: material.certificate_pem.clone() })
    }

    /// What agents and servers trust, in PEM.
    pub fn bundle_pem(&self) -> &str {
        &self.bundle_pem
    }

    /// The authority's own certificate.
    pub fn certificate(&self) -> &CertificateDer<'static> {
        &self.certificate
    }

    /// Signs a node's certificate: its name and epoch are ours, only the key is the request's.
    ///
    /// # Errors
    /// [`PkiError::Library`] when the library refuses.
    pub fn sign_node(
        &self,
        request: &NodeRequest,
        (node, epoch): (NodeId, u64),
        span: CertificateSpan,
        serial: [u8; 16],
    ) -> Result<SignedNode, PkiError> {
        let mut params = params(&node.to_string(), span, serial);
        params.subject_alt_names = vec![uri(&node_uri(node))?, uri(&epoch_uri(epoch))?];
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        params.use_authority_key_identifier_extension = true;
        let certificate = params.signed_by(&request.params.public_key, &self.issuer)?;
        Ok(SignedNode { chain_pem: certificate.pem(), span: span.cut() })
    }

    /// Makes key and certificate of a listener that answers under `names`.
    ///
    /// # Errors
    /// [`PkiError::Name`], [`PkiError::Library`].
    pub fn issue_server(
        &self,
        names: &[String],
        span: CertificateSpan,
        serial: [u8; 16],
    ) -> Result<ServerIdentity, PkiError> {
        let mut params = params("lattice agent listener", span, serial);
        params.subject_alt_names = names.iter().map(|name| server_name(name)).collect::<Result<_, _>>()?;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.use_authority_key_identifier_extension = true;
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &self.issuer)?;
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
        Ok(ServerIdentity { chain: vec![certificate.der().clone()], key })
    }
}

impl NodeRequest {
    /// Parses a PKCS #10 request and checks that its sender has the key. Names in it are ignored.
    ///
    /// # Errors
    /// [`PkiError::Request`] when it is too large, not a request, not signed by its key, or its key is not P-256.
    pub fn parse(csr_pem: &str) -> Result<Self, PkiError> {
        if csr_pem.len() > MAX_CSR_BYTES {
            return Err(PkiError::Request("it is larger than 4096 bytes"));
        }
        let params = CertificateSigningRequestParams::from_pem(csr_pem).map_err(|error| {
            PkiError::Request(match error {
                rcgen::Error::InvalidCertificationRequestSignature => "its signature does not fit its key",
                rcgen::Error::UnsupportedExtension => "it asks for extensions, which a node's request must not",
                // The library's enum is open, and its other reasons all say the same.
                _ => "it is not a PKCS #10 request in PEM",
            })
        })?;
        if params.public_key.algorithm() != &rcgen::PKCS_ECDSA_P256_SHA256 {
            return Err(PkiError::Request("its key is not an ECDSA P-256 key"));
        }
        Ok(Self { params })
    }

    /// SHA-256 of the public key, in hex: tells a repeated request from another host's.
    pub fn key_hash(&self) -> String {
        hex::encode(Sha256::digest(self.params.public_key.der_bytes()))
    }
}

impl CertificateSpan {
    /// From `now`, less `skew` for hosts whose clock is behind, for `life`.
    pub fn starting(now: Timestamp, skew: Duration, life: Duration) -> Self {
        Self { not_before: now - skew, not_after: now + life }
    }

    fn cut(self) -> Self {
        let cut = |time: Timestamp| Timestamp::from_millis(time.as_secs() * 1000);
        Self { not_before: cut(self.not_before), not_after: cut(self.not_after) }
    }
}

fn params(common_name: &str, span: CertificateSpan, serial: [u8; 16]) -> CertificateParams {
    let epoch = rcgen::date_time_ymd(1970, 1, 1);
    let at = |time: Timestamp| epoch + Duration::from_secs(time.as_secs().max(0) as u64);
    let mut params = CertificateParams::default();
    params.not_before = at(span.not_before);
    params.not_after = at(span.not_after);
    params.serial_number = Some(SerialNumber::from_slice(&serial));
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, common_name);
    params
}

fn uri(text: &str) -> Result<SanType, PkiError> {
    let text = text.try_into().map_err(|_| PkiError::Name(text.to_owned()))?;
    Ok(SanType::URI(text))
}

fn server_name(name: &str) -> Result<SanType, PkiError> {
    if let Ok(address) = name.parse() {
        return Ok(SanType::IpAddress(address));
    }
    let well_formed = rustls_pki_types::DnsName::try_from(name).is_ok();
    match name.try_into() {
        Ok(dns) if well_formed => Ok(SanType::DnsName(dns)),
        Ok(_) | Err(_) => Err(PkiError::Name(name.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use lattice_core::ids::uuid_v7;

    use super::*;
    use crate::pki::NodeIdentity;

    const NOW: Timestamp = Timestamp::from_millis(1_763_712_764_123);

    fn span() -> CertificateSpan {
        CertificateSpan::starting(NOW, Duration::from_secs(300), Duration::from_secs(86_400))
    }

    fn node() -> NodeId {
        NodeId::new(uuid_v7(NOW, [3; 10]))
    }

    fn csr(key: &KeyPair) -> String {
        CertificateParams::default().serialize_request(key).unwrap().pem().unwrap()
    }

    #[test]
    fn a_signed_certificate_names_its_node_epoch_and_end() {
        let authority = Authority::open(&CaMaterial::create("test", span(), [1; 16]).unwrap()).unwrap();
        let request = NodeRequest::parse(&csr(&KeyPair::generate().unwrap())).unwrap();
        let signed = authority.sign_node(&request, (node(), 7), span(), [2; 16]).unwrap();
        let leaf = CertificateDer::from_pem_slice(signed.chain_pem.as_bytes()).unwrap();
        let identity = NodeIdentity::read(&leaf).unwrap();
        assert_eq!((identity.node, identity.epoch), (node(), 7));
        assert_eq!(identity.not_after, signed.span.not_after);
        assert_eq!(signed.span.not_after.as_millis(), 1_763_799_164_000, "whole seconds");
    }

    #[test]
    fn names_asked_for_in_a_request_are_ignored() {
        let authority = Authority::open(&CaMaterial::create("test", span(), [1; 16]).unwrap()).unwrap();
        let mut params = CertificateParams::default();
        params.subject_alt_names = vec![uri("lattice:node:0190c2a4-7d1e-7c3a-9b1f-2f6d1c0a5e11").unwrap()];
        let key = KeyPair::generate().unwrap();
        let request = NodeRequest::parse(&params.serialize_request(&key).unwrap().pem().unwrap()).unwrap();
        let signed = authority.sign_node(&request, (node(), 1), span(), [2; 16]).unwrap();
        let leaf = CertificateDer::from_pem_slice(signed.chain_pem.as_bytes()).unwrap();
        assert_eq!(NodeIdentity::read(&leaf).unwrap().node, node());
    }

    #[test]
    fn requests_that_cannot_be_trusted_are_refused_with_the_reason() {
        let p384 = csr(&KeyPair::generate_for(&rcgen::PKCS_ECDSA_P384_SHA384).unwrap());
        let good = csr(&KeyPair::generate().unwrap());
        // Changes one letter in the middle of the base64 text: the key or the signature.
        let mut torn = good.clone().into_bytes();
        let middle = torn.len() * 2 / 3;
        torn[middle] = if torn[middle] == b'A' { b'B' } else { b'A' };
        for (csr, reason) in [
            (p384, "not an ECDSA P-256 key"),
            (String::from_utf8(torn).unwrap(), "cannot be signed"),
            ("hello".to_owned(), "not a PKCS #10 request"),
            ("-".repeat(5000), "larger than 4096"),
        ] {
            let refused = NodeRequest::parse(&csr).map(|_| ()).unwrap_err().to_string();
            assert!(refused.contains(reason), "{refused}");
        }
    }

    #[test]
    fn a_key_of_another_authority_is_not_accepted() {
        let mut material = CaMaterial::create("one", span(), [1; 16]).unwrap();
        material.key_pem = CaMaterial::create("two", span(), [2; 16]).unwrap().key_pem;
        assert!(matches!(Authority::open(&material), Err(PkiError::Material(_))));
    }

    #[test]
    fn a_listener_is_only_named_by_addresses_and_dns_names() {
        let authority = Authority::open(&CaMaterial::create("test", span(), [1; 16]).unwrap()).unwrap();
        assert!(authority.issue_server(&["127.0.0.1".into(), "lattice.dc1".into()], span(), [2; 16]).is_ok());
        assert!(matches!(authority.issue_server(&["no spaces".into()], span(), [2; 16]), Err(PkiError::Name(_))));
    }
}
