//! Who a client certificate says its bearer is.

use lattice_core::ids::NodeId;
use lattice_core::time::Timestamp;
use x509_parser::extensions::GeneralName;

const NODE: &str = "lattice:node:";
const EPOCH: &str = "lattice:epoch:";

/// A node's identity as its certificate states it. The chain was checked at the handshake; whether it still stands
/// must be checked at each request, because a resumed session restores the certificate without checking it again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NodeIdentity {
    /// Which node.
    pub node: NodeId,
    /// Under which identity epoch it was signed.
    pub epoch: u64,
    /// Until when it is valid.
    pub not_after: Timestamp,
}

/// A certificate that is not a node's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum IdentityError {
    /// Not an X.509 certificate.
    #[error("the certificate cannot be parsed")]
    Unreadable,
    /// No or several node ids or epochs.
    #[error("the certificate does not name exactly one node and one epoch")]
    NotANode,
}

impl NodeIdentity {
    /// Reads the identity from a certificate in DER.
    ///
    /// # Errors
    /// [`IdentityError`] says what is wrong with it.
    pub fn read(der: &[u8]) -> Result<Self, IdentityError> {
        let (_, certificate) = x509_parser::parse_x509_certificate(der).map_err(|_| IdentityError::Unreadable)?;
        let names = certificate.subject_alternative_name().map_err(|_| IdentityError::Unreadable)?;
        let names = names.map(|names| names.value.general_names.as_slice()).unwrap_or_default();
        let node = only(names, NODE)?.parse().map_err(|_| IdentityError::NotANode)?;
        let epoch = only(names, EPOCH)?.parse().map_err(|_| IdentityError::NotANode)?;
        let not_after = certificate.validity().not_after.timestamp();
        Ok(Self { node, epoch, not_after: Timestamp::from_millis(not_after.saturating_mul(1000)) })
    }
}

pub(super) fn node_uri(node: NodeId) -> String {
    format!("{NODE}{node}")
}

pub(super) fn epoch_uri(epoch: u64) -> String {
    format!("{EPOCH}{epoch}")
}

fn only<'a>(names: &'a [GeneralName<'a>], prefix: &str) -> Result<&'a str, IdentityError> {
    let mut found = names.iter().filter_map(|name| match name {
        GeneralName::URI(uri) => uri.strip_prefix(prefix),
        // Any other kind of name means nothing here; the list is the library's.
        _ => None,
    });
    match (found.next(), found.next()) {
        (Some(one), None) => Ok(one),
        (None, _) | (Some(_), Some(_)) => Err(IdentityError::NotANode),
    }
}
