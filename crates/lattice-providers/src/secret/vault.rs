//! Secrets in HashiCorp Vault: a key-value store of version 2, reached by AppRole or by a token. spec: S5 3.2
//!
//! Each read goes to Vault at the moment of use, so a rotated secret works at once; so does a rotated login, which is
//! read where it is kept whenever a session begins. Nothing is cached but the session.

pub mod error;
mod session;
mod wire;

pub use error::VaultError;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use http::{Method, StatusCode};
use lattice_core::secret::Secret;
use lattice_core::time::Clock;
use serde::{Deserialize, Serialize};
use tokio::sync::Semaphore;

use super::trouble::SecretTrouble;
use super::{SecretError, SecretObject, SecretPath, SecretStore};
use session::{Session, Sessions};
use wire::{Ask, Reply, Wire};

/// The first part of a path that stands for the mount, whatever the mount is called. spec: S5 3.2
const MOUNT: &str = "kv/";
/// Requests at once; a thousand jobs that begin together wait for each other instead of for a Vault that chokes.
const AT_ONCE: usize = 32;

/// Reads a credential where it is kept, at the moment of use. An error says why not, without the credential.
pub type Credential = Arc<dyn Fn() -> Result<Secret<String>, String> + Send + Sync>;

/// How a server proves to Vault who it is.
#[derive(Clone)]
pub enum VaultAuth {
    /// By a token that somebody else issued.
    Token {
        /// Where the token is read.
        token: Credential,
    },
    /// By a role and its secret id.
    AppRole {
        /// Where the method is mounted: `approle`.
        path: String,
        /// The role; no secret.
        role_id: String,
        /// Where the secret id is read.
        secret_id: Credential,
    },
}

impl VaultAuth {
    /// What is refused when it is wrong, and the secret itself.
    fn credential(&self) -> Result<(&'static str, Secret<String>), VaultError> {
        let (login, name, read) = match self {
            Self::Token { token } => ("token", "token", token),
            Self::AppRole { secret_id, .. } => ("AppRole login", "secret id", secret_id),
        };
        let secret = read().map_err(|problem| VaultError::LoginUnreadable { login: name, problem })?;
        Ok((login, secret))
    }
}

/// Where Vault is, and how it is used.
#[derive(Clone)]
pub struct VaultSettings {
    /// `https://vault.dc1:8200`.
    pub address: String,
    /// Where the key-value store is mounted: `kv`.
    pub mount: String,
    /// Namespace, where Vault has them.
    pub namespace: Option<String>,
    /// Authorities that its certificate may come from, in PEM; none: those of the operating system.
    pub ca_pem: Option<Vec<u8>>,
    /// How to log in.
    pub auth: VaultAuth,
    /// Longest wait for one answer.
    pub timeout: Duration,
}

/// A key-value store in Vault.
pub struct VaultStore {
    wire: Wire,
    mount: String,
    sessions: Sessions,
    turns: Semaphore,
}

/// What is done with a place, in the words of errors.
#[derive(Clone, Copy)]
struct Deed<'a> {
    method: &'a Method,
    what: &'static str,
    place: &'a str,
    body: Option<&'a Secret<Vec<u8>>>,
}

#[derive(Serialize)]
struct Put<'a> {
    data: std::collections::BTreeMap<&'a str, &'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    options: Option<PutOptions>,
}

#[derive(Serialize)]
struct PutOptions {
    cas: u64,
}

#[derive(Deserialize)]
struct Got {
    data: GotData,
}

#[derive(Deserialize)]
struct GotData {
    data: SecretObject,
}

impl VaultStore {
    /// A store with these settings. Nothing is asked of Vault yet.
    ///
    /// # Errors
    /// [`VaultError::Unusable`]: the address, the namespace or the authorities cannot be used.
    pub fn new(settings: VaultSettings, clock: Arc<dyn Clock>) -> Result<Self, SecretError> {
        let wire = Wire::new(&settings)?;
        let mount = settings.mount.trim_matches('/').to_owned();
        if mount.is_empty() || mount.parse::<SecretPath>().is_err() {
            return Err(VaultError::unusable("secrets.vault_mount is not a name of a mount, such as kv").into());
        }
        let sessions = Sessions::new(settings.auth, mount.clone(), clock);
        Ok(Self { wire, mount, sessions, turns: Semaphore::new(AT_ONCE) })
    }

    /// The path of Vault's API for a secret: `data` holds its versions, `metadata` all of it.
    fn place(&self, part: &str, path: &SecretPath) -> String {
        let inner = path.as_str().strip_prefix(MOUNT).unwrap_or(path.as_str());
        format!("{}/{part}/{inner}", self.mount)
    }

    /// Asks with a session; a session that died meanwhile is replaced, once.
    async fn ask(&self, deed: Deed<'_>) -> Result<Reply, VaultError> {
        let _turn = self.turns.acquire().await.expect("the semaphore is never closed");
        let session = self.sessions.current(&self.wire, None).await?;
        let reply = self.send(&session, deed).await?;
        if reply.status != StatusCode::FORBIDDEN {
            return Ok(reply);
        }
        if self.sessions.is_alive(&self.wire, &session).await? {
            return Err(self.denied(&session, &reply, deed));
        }
        let session = self.sessions.current(&self.wire, Some(&session)).await?;
        let reply = self.send(&session, deed).await?;
        if reply.status == StatusCode::FORBIDDEN { Err(self.denied(&session, &reply, deed)) } else { Ok(reply) }
    }

    async fn send(&self, session: &Session, deed: Deed<'_>) -> Result<Reply, VaultError> {
        let ask = Ask { method: deed.method.clone(), path: deed.place, token: Some(&session.token), body: deed.body };
        self.wire.send(ask).await
    }

    fn denied(&self, session: &Session, reply: &Reply, deed: Deed<'_>) -> VaultError {
        VaultError::Denied {
            address: self.wire.address(),
            what: deed.what,
            place: deed.place.to_owned(),
            said: reply.said(&[session.token.expose()]),
        }
    }

    async fn put(&self, path: &SecretPath, object: &SecretObject, cas: Option<u64>) -> Result<bool, SecretError> {
        let data = object.iter().map(|(name, secret)| (name.as_str(), secret.expose().as_str())).collect();
        let put = Put { data, options: cas.map(|cas| PutOptions { cas }) };
        let body = Secret::new(serde_json::to_vec(&put).expect("texts are always JSON"));
        let place = self.place("data", path);
        let deed = Deed { method: &Method::POST, what: "writing", place: &place, body: Some(&body) };
        let reply = self.ask(deed).await?;
        let secrets: Vec<&str> = object.values().map(|secret| secret.expose().as_str()).collect();
        match reply.status {
            StatusCode::OK => Ok(true),
            // A lost check-and-set is 400, not 409.
            StatusCode::BAD_REQUEST if cas.is_some() && reply.said(&[]).contains("did not match") => Ok(false),
            _ => Err(self.wire.refused(&reply, &secrets).into()),
        }
    }
}

#[async_trait]
impl SecretStore for VaultStore {
    async fn read(&self, path: &SecretPath) -> Result<SecretObject, SecretError> {
        let place = self.place("data", path);
        let reply = self.ask(Deed { method: &Method::GET, what: "reading", place: &place, body: None }).await?;
        match reply.status {
            StatusCode::OK => match reply.json::<Got>() {
                Some(got) => Ok(got.data.data),
                None => Err(self.wire.malformed(format!("{place} is no object of texts")).into()),
            },
            // Never written, or deleted: Vault tells them apart, nobody here needs to.
            StatusCode::NOT_FOUND if reply.is_vaults() => Err(SecretError::NotFound { path: path.clone() }),
            _ => Err(self.wire.refused(&reply, &[]).into()),
        }
    }

    async fn write(&self, path: &SecretPath, object: SecretObject) -> Result<(), SecretError> {
        self.put(path, &object, None).await.map(|_| ())
    }

    async fn create(&self, path: &SecretPath, object: SecretObject) -> Result<bool, SecretError> {
        self.put(path, &object, Some(0)).await
    }

    /// All versions go: a secret that is not needed any more is not kept.
    async fn delete(&self, path: &SecretPath) -> Result<(), SecretError> {
        let place = self.place("metadata", path);
        let reply = self.ask(Deed { method: &Method::DELETE, what: "deleting", place: &place, body: None }).await?;
        match reply.status {
            StatusCode::NO_CONTENT | StatusCode::OK => Ok(()),
            StatusCode::NOT_FOUND if reply.is_vaults() => Ok(()),
            _ => Err(self.wire.refused(&reply, &[]).into()),
        }
    }
}
