//! The identity on the host: certificate, key, what to trust, when to renew.

use std::time::Duration;

use lattice_api::agent::{Bootstrap, IssuedIdentity};
use lattice_core::ids::NodeId;
use lattice_core::secret::{Secret, token_hash};
use lattice_core::time::Timestamp;
use rcgen::{CertificateParams, DistinguishedName, KeyPair};
use serde::{Deserialize, Serialize};
use tracing::warn;

use crate::error::AgentError;
use crate::storage::{Item, Storage};

/// A certificate with its key. One file holds both, so that a crash cannot part them.
#[derive(Clone)]
pub struct Identity {
    /// The node.
    pub node_id: NodeId,
    /// Certificate and what to trust.
    pub issued: IssuedIdentity,
    /// Its private key; it never leaves the host.
    pub key_pem: Secret<String>,
    /// Hash of the token that it was enrolled with: a new token in the bootstrap file asks for a new identity.
    pub token_hash: String,
}

/// As it lies on the disk.
#[derive(Serialize, Deserialize)]
struct Kept {
    node_id: NodeId,
    issued: IssuedIdentity,
    key_pem: String,
    token_hash: String,
}

impl Identity {
    /// Reads the identity that fits `bootstrap`; a torn one, one of another node or of another token counts as none.
    ///
    /// # Errors
    /// What the file system says.
    pub async fn load(storage: &Storage, bootstrap: &Bootstrap) -> std::io::Result<Option<Self>> {
        let Some(bytes) = storage.read(Item::Identity).await? else { return Ok(None) };
        let kept: Kept = match serde_json::from_slice(&bytes) {
            Ok(kept) => kept,
            Err(error) => {
                warn!(line = error.line(), column = error.column(), "identity file is torn: set aside");
                storage.set_aside(Item::Identity).await?;
                return Ok(None);
            }
        };
        let fits = kept.node_id == bootstrap.node_id && kept.token_hash == token_hash(bootstrap.token.expose());
        Ok(fits.then(|| Self {
            node_id: kept.node_id,
            issued: kept.issued,
            key_pem: Secret::new(kept.key_pem),
            token_hash: kept.token_hash,
        }))
    }

    /// Keeps it.
    ///
    /// # Errors
    /// What the file system says; the identity before stands then.
    pub async fn save(&self, storage: &Storage) -> std::io::Result<()> {
        let kept = Kept {
            node_id: self.node_id,
            issued: self.issued.clone(),
            key_pem: self.key_pem.expose().clone(),
            token_hash: self.token_hash.clone(),
        };
        storage.write(Item::Identity, serde_json::to_vec(&kept).map_err(std::io::Error::other)?).await
    }

    /// What is shown to a server.
    pub fn shown(&self) -> (&str, &Secret<String>) {
        (&self.issued.certificate_pem, &self.key_pem)
    }

    /// Whether it can still be shown.
    pub fn is_valid(&self, now: Timestamp) -> bool {
        now <= self.issued.not_after
    }

    /// When to renew it: at two thirds of its life, plus up to a twelfth. `random` is drawn evenly from 0..1.
    pub fn renew_at(&self, random: f64) -> Timestamp {
        let life = self.issued.not_after.since(self.issued.not_before);
        self.issued.not_before + life * 2 / 3 + (life / 12).mul_f64(random.clamp(0.0, 1.0))
    }

    /// When to try again after a renewal that failed: a tenth of what is left, between one minute and one hour.
    pub fn renew_again_at(&self, now: Timestamp) -> Timestamp {
        let left = self.issued.not_after.since(now) / 10;
        now + left.clamp(Duration::from_secs(60), Duration::from_secs(3600))
    }
}

/// The key of an enrolment: the same one at each attempt, so that an answer that was lost can be asked for again.
///
/// # Errors
/// [`AgentError::Storage`], [`AgentError::Tls`].
pub async fn enrolment_key(storage: &Storage) -> Result<KeyPair, AgentError> {
    if let Some(pem) = storage.read(Item::PendingKey).await?
        && let Ok(key) = KeyPair::from_pem(&String::from_utf8_lossy(&pem))
    {
        return Ok(key);
    }
    let key = new_key()?;
    storage.write(Item::PendingKey, key.serialize_pem().into_bytes()).await?;
    Ok(key)
}

/// A fresh P-256 key.
///
/// # Errors
/// [`AgentError::Tls`].
pub fn new_key() -> Result<KeyPair, AgentError> {
    KeyPair::generate().map_err(|error| AgentError::Tls(error.to_string()))
}

/// A request to certify `key`. It names nobody: the server says who this is.
///
/// # Errors
/// [`AgentError::Tls`].
pub fn certificate_request(key: &KeyPair) -> Result<String, AgentError> {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    let request = params.serialize_request(key).and_then(|request| request.pem());
    request.map_err(|error| AgentError::Tls(error.to_string()))
}

#[cfg(test)]
mod tests {
    use lattice_core::ids::uuid_v7;

    use super::*;

    const DAY: Duration = Duration::from_secs(24 * 3600);
    const T0: Timestamp = Timestamp::from_millis(1_763_712_764_000);

    fn bootstrap(token: &str) -> Bootstrap {
        Bootstrap {
            server: "https://127.0.0.1:1".into(),
            node_id: NodeId::new(uuid_v7(T0, [1; 10])),
            token: Secret::new(token.into()),
            ca_pem: String::new(),
        }
    }

    fn identity() -> Identity {
        let issued = IssuedIdentity {
            certificate_pem: "certificate".into(),
            ca_bundle_pem: "bundle".into(),
            not_before: T0,
            not_after: T0 + DAY,
            identity_epoch: None,
            task_signing_keys: Vec::new(),
        };
        let bootstrap = bootstrap("one");
        Identity {
            node_id: bootstrap.node_id,
            issued,
            key_pem: Secret::new("key".into()),
            token_hash: token_hash("one"),
        }
    }

    #[test]
    fn renewal_is_due_at_two_thirds_and_spread() {
        let identity = identity();
        assert_eq!(identity.renew_at(0.0), T0 + DAY * 2 / 3);
        assert_eq!(identity.renew_at(1.0), T0 + DAY * 3 / 4);
        assert_eq!(identity.renew_again_at(T0 + DAY * 3 / 4), T0 + DAY * 3 / 4 + DAY / 40);
        assert_eq!(identity.renew_again_at(T0 + DAY), T0 + DAY + Duration::from_secs(60));
        assert!(identity.is_valid(T0 + DAY) && !identity.is_valid(T0 + DAY + Duration::from_millis(1)));
    }

    #[tokio::test]
    async fn an_identity_is_kept_until_the_bootstrap_changes_or_the_file_is_torn() {
        let storage = Storage::memory();
        identity().save(&storage).await.unwrap();
        let kept = Identity::load(&storage, &bootstrap("one")).await.unwrap().unwrap();
        assert_eq!((kept.issued, kept.key_pem.expose().as_str()), (identity().issued, "key"));
        assert!(Identity::load(&storage, &bootstrap("two")).await.unwrap().is_none(), "a new token");
        storage.write(Item::Identity, b"{\"node_id\":".to_vec()).await.unwrap();
        assert!(Identity::load(&storage, &bootstrap("one")).await.unwrap().is_none());
    }

    #[tokio::test]
    async fn every_attempt_to_enrol_uses_the_same_key() {
        let storage = Storage::memory();
        let first = enrolment_key(&storage).await.unwrap();
        let second = enrolment_key(&storage).await.unwrap();
        assert_eq!(first.serialize_pem(), second.serialize_pem());
        assert!(certificate_request(&first).unwrap().contains("BEGIN CERTIFICATE REQUEST"));
    }
}
