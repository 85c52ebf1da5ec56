//! The installation's own keys, kept in the secret store: its certificate authority, the key that signs tasks, the seed
//! of the keys that seal session tickets.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use lattice_core::node::Status;
use lattice_core::secret::Secret;
use lattice_core::time::Timestamp;
use lattice_providers::secret::{SecretError, SecretObject, SecretPath, SecretStore, read_field};

use lattice_store::Store;

use crate::pki::{Authority, CaMaterial, CertificateSpan, PkiError};
use crate::task_keys::TaskKeys;
use crate::wiring::StartError;

/// Life of the authority's certificate: ten years, far beyond any node's.
const AUTHORITY_LIFE: Duration = Duration::from_secs(10 * 365 * 86_400);
/// It is valid from a day before, for hosts whose clock is behind.
const CLOCK_SKEW: Duration = Duration::from_secs(86_400);

/// Keys of the installation.
pub struct Keys {
    /// Signs certificates of nodes.
    pub authority: Authority,
    /// Sign tasks.
    pub task_keys: TaskKeys,
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
    #[error(
        "the secret store holds no certificate authority, and {nodes} nodes have certificates of it: name the secret \
         store that this installation began with, or copy its keys under `lattice/` into this one"
    )]
    Lost {
        /// Nodes that would not be known any more.
        nodes: u64,
    },
    /// What it gave cannot be used.
    #[error("the key at `{path}` is not 32 bytes in base64: restore it from a backup of the secret store")]
    Seed {
        /// Where it is kept.
        path: &'static str,
    },
}

/// Refuses to make a new authority for nodes that trust another: an empty or a wrong secret store would cut off every
/// one of them at once.
///
/// # Errors
/// [`KeysError::Lost`]; a store fails.
pub async fn not_lost(store: &Store, secrets: &dyn SecretStore) -> Result<(), StartError> {
    match secrets.read(&path("lattice/ca")).await {
        Ok(_) => return Ok(()),
        Err(SecretError::NotFound { .. }) => {}
        Err(error) => return Err(KeysError::from(error).into()),
    }
    let counts = store.node_counts().await?;
    // Active is reached by an agent with a certificate alone.
    let trusts = |status: Status| matches!(status, Status::Active | Status::Offline | Status::Draining);
    let nodes = counts.iter().filter(|count| trusts(count.state.status)).map(|count| count.nodes).sum();
    if nodes == 0 { Ok(()) } else { Err(KeysError::Lost { nodes }.into()) }
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
            task_keys: TaskKeys::load_or_create(secrets, signer_seed).await?,
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
        Ok(_) => stored_authority(secrets, &path).await?,
        Err(SecretError::NotFound { .. }) => {
            let span = CertificateSpan { not_before: now - CLOCK_SKEW, not_after: now + AUTHORITY_LIFE };
            let material = CaMaterial::create("Lattice node authority", span, serial)?;
            let object = SecretObject::from([
                ("certificate_pem".to_owned(), Secret::new(material.certificate_pem.clone())),
                ("key_pem".to_owned(), material.key_pem.clone()),
            ]);
            if secrets.create(&path, object).await? { material } else { stored_authority(secrets, &path).await? }
        }
        Err(error) => return Err(error.into()),
    };
    Ok(Authority::open(&material)?)
}

/// The 32 bytes at `path`; the first time these are `fresh`.
async fn seed(secrets: &dyn SecretStore, path: &'static str, fresh: &[u8]) -> Result<Secret<Vec<u8>>, KeysError> {
    let at = self::path(path);
    match read_field(secrets, &at, "seed").await {
        Ok(text) => decoded(&text, path),
        Err(SecretError::NotFound { .. }) => {
            let object = SecretObject::from([("seed".to_owned(), Secret::new(STANDARD.encode(fresh)))]);
            // Of several servers that start together, all take what the first one made.
            if secrets.create(&at, object).await? {
                return Ok(Secret::new(fresh.to_vec()));
            }
            decoded(&read_field(secrets, &at, "seed").await?, path)
        }
        Err(error) => Err(error.into()),
    }
}

fn decoded(seed: &Secret<String>, path: &'static str) -> Result<Secret<Vec<u8>>, KeysError> {
    match STANDARD.decode(seed.expose()) {
        Ok(seed) if seed.len() == 32 => Ok(Secret::new(seed)),
        Ok(_) | Err(_) => Err(KeysError::Seed { path }),
    }
}

async fn stored_authority(secrets: &dyn SecretStore, path: &SecretPath) -> Result<CaMaterial, SecretError> {
    Ok(CaMaterial {
        certificate_pem: read_field(secrets, path, "certificate_pem").await?.expose().clone(),
        key_pem: read_field(secrets, path, "key_pem").await?,
    })
}
