//! The key that signs wipe certificates, and the public halves of those before: they are never forgotten, since a
//! certificate is checked years later. All lie in the secret store under one path.
//!
//! It is another key than the one that signs tasks: that one is trusted by agents, is replaced often, and is forgotten when
//! its last task is over.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use lattice_core::agent::task::{SigningKey, TaskKey};
use lattice_core::secret::Secret;
use lattice_providers::secret::{SecretError, SecretObject, SecretPath, SecretStore};

/// Where they lie.
const PATH: &str = "lattice/wipe-signing";

/// The key that signs, and the public halves of all.
#[derive(Clone)]
pub struct WipeKeys {
    /// Signs.
    pub signer: SigningKey,
    /// Signed before.
    pub retired: Vec<TaskKey>,
}

/// Why they are not to be had.
#[derive(Debug, thiserror::Error)]
pub enum WipeKeysError {
    /// The secret store does not give or take them.
    #[error(transparent)]
    Store(#[from] SecretError),
    /// What it gave cannot be used.
    #[error("the key at `{PATH}` is not 32 bytes in base64: restore it from a backup of the secret store")]
    Damaged,
}

impl WipeKeys {
    /// The keys; the first wipe of an installation makes one from `fresh`.
    ///
    /// # Errors
    /// The secret store fails, or what it keeps is damaged.
    pub async fn load_or_create(secrets: &dyn SecretStore, fresh: [u8; 32]) -> Result<Self, WipeKeysError> {
        match secrets.read(&path()).await {
            Ok(stored) => parse(&stored),
            Err(SecretError::NotFound { .. }) => {
                // Of several servers that begin together, all take what the first one made.
                secrets.create(&path(), object(&fresh, &[])).await?;
                parse(&secrets.read(&path()).await?)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Signs with another key, made from `fresh`, from now on. Certificates that were signed before stay what they are.
    ///
    /// # Errors
    /// The secret store fails: the key before stays in use then.
    pub async fn rotate(secrets: &dyn SecretStore, fresh: [u8; 32]) -> Result<Self, WipeKeysError> {
        let before = Self::load_or_create(secrets, fresh).await?;
        let signer = SigningKey::from_seed(&Secret::new(fresh.to_vec())).ok_or(WipeKeysError::Damaged)?;
        if before.signer.public() == signer.public() {
            return Ok(before);
        }
        let mut retired = before.retired;
        retired.push(before.signer.public());
        secrets.write(&path(), object(&fresh, &retired)).await?;
        Ok(Self { signer, retired })
    }

    /// Every key that signed or signs; the first one signs.
    pub fn public(&self) -> Vec<TaskKey> {
        std::iter::once(self.signer.public()).chain(self.retired.iter().cloned()).collect()
    }
}

fn path() -> SecretPath {
    PATH.parse().expect("a constant path is well formed")
}

fn object(seed: &[u8; 32], retired: &[TaskKey]) -> SecretObject {
    let retired = serde_json::to_string(retired).expect("keys have only text keys");
    SecretObject::from([
        ("seed".to_owned(), Secret::new(STANDARD.encode(seed))),
        ("retired".to_owned(), Secret::new(retired)),
    ])
}

fn parse(object: &SecretObject) -> Result<WipeKeys, WipeKeysError> {
    let field = |name: &str| object.get(name).ok_or(WipeKeysError::Damaged);
    let seed = STANDARD.decode(field("seed")?.expose()).map_err(|_| WipeKeysError::Damaged)?;
    let retired = serde_json::from_str(field("retired")?.expose()).map_err(|_| WipeKeysError::Damaged)?;
    let signer = SigningKey::from_seed(&Secret::new(seed)).ok_or(WipeKeysError::Damaged)?;
    Ok(WipeKeys { signer, retired })
}
