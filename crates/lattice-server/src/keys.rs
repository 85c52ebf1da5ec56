//! The installation's own keys: its certificate authority and the key that signs tasks, kept in the secret store.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use lattice_core::secret::Secret;
use lattice_core::time::Timestamp;
use lattice_providers::secret::{SecretError, SecretObject, SecretPath, SecretStore, read_field};

use crate::pki::{Authority, CaMaterial, CertificateSpan, PkiError, TaskSigner};

/// Life of the authority's certificate: ten years, far beyond any node's.
const AUTHORITY_LIFE: Duration = Duration::from_secs(10 * 365 * 86_400);
/// It is valid from a day before, for hosts whose clock is behind.
const CLOCK_SKEW: Duration = Duration::from_secs(86_400);

/// Keys of the installation.
pub struct Keys {
    /// Signs certificates of nodes.
    pub authority: Authority,
    /// Signs tasks.
    pub signer: TaskSigner,
}

/// Why the keys are not to be had.
#[derive(Debug, thiserror::Error)]
pub enum KeysError {
    /// The secret store does not give or take them.
    #[error("the secret store does not keep the installation's keys")]
    Store(#[from] SecretError),
    /// What it gave cannot be used.
    #[error("the installation's certificate authority cannot be used")]
    Authority(#[from] PkiError),
    /// What it gave cannot be used.
    #[error(
        "the key at `lattice/task-signing` is not 32 bytes in base64: restore it from a backup of the secret store"
    )]
    Signer,
}

impl Keys {
    /// Reads the keys; the first start of an installation makes them, with `random` as serial and seed.
    ///
    /// # Errors
    /// The secret store fails, or what it keeps is damaged.
    pub async fn load_or_create(
        secrets: &dyn SecretStore,
        now: Timestamp,
        random: [u8; 48],
    ) -> Result<Self, KeysError> {
        let (serial, seed) = random.split_at(16);
        let serial: [u8; 16] = serial.try_into().expect("48 bytes split at 16");
        Ok(Self { authority: authority(secrets, now, serial).await?, signer: signer(secrets, seed).await? })
    }
}

fn path(text: &str) -> SecretPath {
    text.parse().expect("a constant path is well formed")
}

async fn authority(secrets: &dyn SecretStore, now: Timestamp, serial: [u8; 16]) -> Result<Authority, KeysError> {
    let path = path("lattice/ca");
    let material = match secrets.read(&path).await {
        Ok(_) => CaMaterial {
            certificate_pem: read_field(secrets, &path, "certificate_pem").await?.expose().clone(),
            key_pem: read_field(secrets, &path, "key_pem").await?,
        },
        Err(SecretError::NotFound { .. }) => {
            let span = CertificateSpan { not_before: now - CLOCK_SKEW, not_after: now + AUTHORITY_LIFE };
            let material = CaMaterial::create("Lattice node authority", span, serial)?;
            let object = SecretObject::from([
                ("certificate_pem".to_owned(), Secret::new(material.certificate_pem.clone())),
                ("key_pem".to_owned(), material.key_pem.clone()),
            ]);
            secrets.write(&path, object).await?;
            material
        }
        Err(error) => return Err(error.into()),
    };
    Ok(Authority::open(&material)?)
}

async fn signer(secrets: &dyn SecretStore, seed: &[u8]) -> Result<TaskSigner, KeysError> {
    let path = path("lattice/task-signing");
    let seed = match read_field(secrets, &path, "seed").await {
        Ok(text) => Secret::new(STANDARD.decode(text.expose()).map_err(|_| KeysError::Signer)?),
        Err(SecretError::NotFound { .. }) => {
            let object = SecretObject::from([("seed".to_owned(), Secret::new(STANDARD.encode(seed)))]);
            secrets.write(&path, object).await?;
            Secret::new(seed.to_vec())
        }
        Err(error) => return Err(error.into()),
    };
    TaskSigner::from_seed(&seed).ok_or(KeysError::Signer)
}
