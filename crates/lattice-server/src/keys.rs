//! The installation's own keys, kept in the secret store: its certificate authority, the key that signs tasks, the seed
//! of the keys that seal session tickets.

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
    /// What the keys of session tickets are made from.
    pub ticket_seed: Secret<Vec<u8>>,
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
    #[error("the key at `{path}` is not 32 bytes in base64: restore it from a backup of the secret store")]
    Seed {
        /// Where it is kept.
        path: &'static str,
    },
}

impl Keys {
    /// Reads the keys; the first start of an installation makes them, with `random` as serial and seeds.
    ///
    /// # Errors
    /// The secret store fails, or what it keeps is damaged.
    pub async fn load_or_create(
        secrets: &dyn SecretStore,
        now: Timestamp,
        random: [u8; 80],
    ) -> Result<Self, KeysError> {
        let (serial, seeds) = random.split_at(16);
        let (signer_seed, ticket_seed) = seeds.split_at(32);
        let serial: [u8; 16] = serial.try_into().expect("80 bytes split at 16");
        Ok(Self {
            authority: authority(secrets, now, serial).await?,
            signer: signer(secrets, signer_seed).await?,
            ticket_seed: seed(secrets, "lattice/session-tickets", ticket_seed).await?,
        })
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

async fn signer(secrets: &dyn SecretStore, fresh: &[u8]) -> Result<TaskSigner, KeysError> {
    const PATH: &str = "lattice/task-signing";
    TaskSigner::from_seed(&seed(secrets, PATH, fresh).await?).ok_or(KeysError::Seed { path: PATH })
}

/// The 32 bytes at `path`; the first time these are `fresh`.
async fn seed(secrets: &dyn SecretStore, path: &'static str, fresh: &[u8]) -> Result<Secret<Vec<u8>>, KeysError> {
    let at = self::path(path);
    match read_field(secrets, &at, "seed").await {
        Ok(text) => match STANDARD.decode(text.expose()) {
            Ok(seed) if seed.len() == 32 => Ok(Secret::new(seed)),
            Ok(_) | Err(_) => Err(KeysError::Seed { path }),
        },
        Err(SecretError::NotFound { .. }) => {
            let object = SecretObject::from([("seed".to_owned(), Secret::new(STANDARD.encode(fresh)))]);
            secrets.write(&at, object).await?;
            Ok(Secret::new(fresh.to_vec()))
        }
        Err(error) => Err(error.into()),
    }
}
