//! The keys that sign tasks: the present one, and public halves of earlier ones as long as a task of theirs is open.
//!
//! They lie in the secret store under one path. Agents get the public halves at enrolment, at renewal, once on each
//! connection, and with the next heartbeat after a change.

use std::sync::{PoisonError, RwLock};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use lattice_core::agent::task::{Envelope, SigningKey, Statement, TaskKey};
use lattice_core::secret::Secret;
use lattice_core::time::Timestamp;
use lattice_providers::secret::{SecretError, SecretObject, SecretPath, SecretStore};
use serde::{Deserialize, Serialize};

use crate::keys::KeysError;

/// Where they lie.
const PATH: &str = "lattice/task-signing";

/// A replaced key is trusted for at least this long: other servers of the same store read the new one within it.
pub const LEAST_OVERLAP: Duration = Duration::from_secs(600);

/// The keys that sign tasks.
pub struct TaskKeys {
    ring: RwLock<Ring>,
}

struct Ring {
    signer: SigningKey,
    retired: Vec<Retired>,
    /// Grows with each change, so that a connection knows what it told its agent.
    version: u32,
}

/// A key that signs no more.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Retired {
    /// Its public half.
    #[serde(flatten)]
    pub key: TaskKey,
    /// Until when agents trust it.
    pub until: Timestamp,
}

impl TaskKeys {
    /// One key alone.
    pub const fn new(signer: SigningKey) -> Self {
        Self { ring: RwLock::new(Ring { signer, retired: Vec::new(), version: 1 }) }
    }

    /// Reads the keys; the first start of an installation makes one from `fresh`.
    ///
    /// # Errors
    /// The secret store fails, or what it keeps is damaged.
    pub async fn load_or_create(secrets: &dyn SecretStore, fresh: &[u8]) -> Result<Self, KeysError> {
        let stored = match secrets.read(&path()).await {
            Ok(stored) => stored,
            Err(SecretError::NotFound { .. }) => {
                // Of several servers that start together, all take what the first one made.
                secrets.create(&path(), object(fresh, &[])).await?;
                secrets.read(&path()).await?
            }
            Err(error) => return Err(error.into()),
        };
        let (signer, retired) = parse(&stored)?;
        Ok(Self { ring: RwLock::new(Ring { signer, retired, version: 1 }) })
    }

    /// Takes up what another server put into the secret store; whether that was something new.
    ///
    /// # Errors
    /// The secret store fails, or what it keeps is damaged; the keys before stay in use then.
    pub async fn reload(&self, secrets: &dyn SecretStore) -> Result<bool, KeysError> {
        let (signer, retired) = parse(&secrets.read(&path()).await?)?;
        let mut ring = self.write();
        let changed = ring.signer.public() != signer.public() || ring.retired != retired;
        if changed {
            *ring = Ring { signer, retired, version: ring.version.wrapping_add(1) };
        }
        Ok(changed)
    }

    /// Signs with a new key, made from `fresh`, from now on. The one before is trusted until `until`: as long as a task
    /// may come back that it signed.
    ///
    /// # Errors
    /// The secret store fails: the key before stays in use then.
    pub async fn rotate(
        &self,
        secrets: &dyn SecretStore,
        (now, until): (Timestamp, Timestamp),
        fresh: [u8; 32],
    ) -> Result<TaskKey, KeysError> {
        let (before, mut retired) = parse(&secrets.read(&path()).await?)?;
        retired.retain(|one| now < one.until);
        retired.push(Retired { key: before.public(), until: until.max(now + LEAST_OVERLAP) });
        let signer = seeded(&fresh)?;
        secrets.write(&path(), object(&fresh, &retired)).await?;
        let public = signer.public();
        let mut ring = self.write();
        *ring = Ring { signer, retired, version: ring.version.wrapping_add(1) };
        Ok(public)
    }

    /// Forgets keys whose last task is over at `now`.
    pub fn prune(&self, now: Timestamp) {
        if self.read().retired.iter().all(|one| now < one.until) {
            return;
        }
        let mut ring = self.write();
        ring.retired.retain(|one| now < one.until);
        ring.version = ring.version.wrapping_add(1);
    }

    /// Signs a task.
    pub fn seal(&self, statement: &Statement) -> Envelope {
        self.read().signer.seal(statement)
    }

    /// What agents are to trust; the first one signs.
    pub fn public(&self) -> Vec<TaskKey> {
        let ring = self.read();
        std::iter::once(ring.signer.public()).chain(ring.retired.iter().map(|one| one.key.clone())).collect()
    }

    /// Keys that sign no more and are trusted still.
    pub fn retired(&self) -> Vec<Retired> {
        self.read().retired.clone()
    }

    /// Another number after each change.
    pub fn version(&self) -> u32 {
        self.read().version
    }

    // Every writer replaces the ring as a whole: a panic elsewhere leaves it whole.
    fn read(&self) -> std::sync::RwLockReadGuard<'_, Ring> {
        self.ring.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> std::sync::RwLockWriteGuard<'_, Ring> {
        self.ring.write().unwrap_or_else(PoisonError::into_inner)
    }
}

fn path() -> SecretPath {
    PATH.parse().expect("a constant path is well formed")
}

fn object(seed: &[u8], retired: &[Retired]) -> SecretObject {
    let retired = serde_json::to_string(retired).expect("keys have only text keys");
    SecretObject::from([
        ("seed".to_owned(), Secret::new(STANDARD.encode(seed))),
        ("retired".to_owned(), Secret::new(retired)),
    ])
}

fn parse(object: &SecretObject) -> Result<(SigningKey, Vec<Retired>), KeysError> {
    let damaged = || KeysError::Seed { path: PATH };
    let seed = object.get("seed").ok_or_else(damaged)?;
    let seed = STANDARD.decode(seed.expose()).map_err(|_| damaged())?;
    // An installation of before has no such field.
    let retired = match object.get("retired") {
        Some(text) => serde_json::from_str(text.expose()).map_err(|_| damaged())?,
        None => Vec::new(),
    };
    Ok((seeded(&seed)?, retired))
}

fn seeded(seed: &[u8]) -> Result<SigningKey, KeysError> {
    SigningKey::from_seed(&Secret::new(seed.to_vec())).ok_or(KeysError::Seed { path: PATH })
}
