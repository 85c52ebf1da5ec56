//! The login: made when it is needed, renewed at two thirds of its life, made anew when it is refused.

use std::sync::Arc;
use std::time::Duration;

use http::{Method, StatusCode};
use lattice_core::secret::{Secret, token_hash};
use lattice_core::time::{Clock, Timestamp};
use serde::{Deserialize, Serialize};
use tokio::sync::Mutex;

use super::error::VaultError;
use super::wire::{Ask, Reply, Wire};
use super::{SecretTrouble, VaultAuth};

/// How long a login that Vault refused is not tried again unless it changed. Vault locks a role out after five wrong
/// logins within 15 minutes; this makes three.
const REFUSED_PAUSE: Duration = Duration::from_secs(300);

/// The login of one store; all requests share it.
pub(super) struct Sessions {
    auth: VaultAuth,
    mount: String,
    clock: Arc<dyn Clock>,
    held: Mutex<Held>,
}

#[derive(Default)]
struct Held {
    session: Option<Arc<Session>>,
    refused: Option<Refused>,
}

/// A login that Vault refused, by its fingerprint.
struct Refused {
    fingerprint: String,
    until: Timestamp,
    said: String,
}

/// A token that Vault accepts.
pub(super) struct Session {
    pub(super) token: Secret<String>,
    begun: Timestamp,
    life: Life,
}

#[derive(Clone, Copy)]
struct Life {
    /// How long the token lives; none: for ever.
    lasts: Option<Duration>,
    /// How long it lived when it was issued.
    issued_for: Option<Duration>,
    renewable: bool,
}

impl Session {
    /// Whether it is to be renewed: two thirds of its life are over.
    fn is_old(&self, now: Timestamp) -> bool {
        self.life.lasts.is_some_and(|lasts| now >= self.begun + lasts * 2 / 3)
    }

    fn is_over(&self, now: Timestamp) -> bool {
        self.life.lasts.is_some_and(|lasts| now >= self.begun + lasts)
    }
}

#[derive(Serialize)]
struct AppRoleLogin<'a> {
    role_id: &'a str,
    secret_id: &'a str,
}

#[derive(Deserialize)]
struct LoginAnswer {
    auth: Granted,
}

#[derive(Deserialize)]
struct Granted {
    client_token: Secret<String>,
    lease_duration: u64,
    renewable: bool,
}

#[derive(Deserialize)]
struct LookupAnswer {
    data: Looked,
}

#[derive(Deserialize)]
struct Looked {
    ttl: u64,
    #[serde(default)]
    renewable: bool,
}

#[derive(Deserialize)]
struct MountAnswer {
    data: Mount,
}

#[derive(Deserialize)]
struct Mount {
    #[serde(rename = "type")]
    kind: String,
    options: Option<MountOptions>,
}

#[derive(Deserialize)]
struct MountOptions {
    version: Option<String>,
}

impl Sessions {
    pub(super) fn new(auth: VaultAuth, mount: String, clock: Arc<dyn Clock>) -> Self {
        Self { auth, mount, clock, held: Mutex::default() }
    }

    /// A session that can be used now, another than `refused`. One task makes it, the others wait for that one.
    pub(super) async fn current(
        &self,
        wire: &Wire,
        refused: Option<&Arc<Session>>,
    ) -> Result<Arc<Session>, VaultError> {
        let mut held = self.held.lock().await;
        let now = self.clock.now();
        let kept = held.session.clone().filter(|kept| !refused.is_some_and(|refused| Arc::ptr_eq(kept, refused)));
        let Some(kept) = kept else { return self.begin(wire, &mut held, now).await };
        if !kept.is_old(now) {
            return Ok(kept);
        }
        match self.renewed(wire, &kept, now).await {
            Ok(Some(renewed)) => {
                let renewed = Arc::new(renewed);
                held.session = Some(Arc::clone(&renewed));
                Ok(renewed)
            }
            Ok(None) => match self.begin(wire, &mut held, now).await {
                // What is left of its life is used while nothing newer is to be had.
                Err(_) if !kept.is_over(now) => Ok(kept),
                begun => begun,
            },
            Err(error) if error.trouble() == SecretTrouble::Unavailable && !kept.is_over(now) => Ok(kept),
            Err(error) => Err(error),
        }
    }

    /// Whether Vault knows the session's token. A refusal of a live one is its policy's.
    pub(super) async fn is_alive(&self, wire: &Wire, session: &Session) -> Result<bool, VaultError> {
        let reply = lookup(wire, &session.token).await?;
        match reply.status {
            StatusCode::OK => Ok(true),
            StatusCode::FORBIDDEN => Ok(false),
            _ => Err(wire.refused(&reply, &[session.token.expose()])),
        }
    }

    async fn begin(&self, wire: &Wire, held: &mut Held, now: Timestamp) -> Result<Arc<Session>, VaultError> {
        let session = Arc::new(self.login(wire, &mut held.refused, now).await?);
        check_mount(wire, &self.mount, &session.token).await?;
        held.session = Some(Arc::clone(&session));
        held.refused = None;
        Ok(session)
    }

    async fn login(&self, wire: &Wire, refused: &mut Option<Refused>, now: Timestamp) -> Result<Session, VaultError> {
        let (login, credential) = self.auth.credential()?;
        let fingerprint = token_hash(credential.expose());
        let again = |said: &str| VaultError::LoginRefused { address: wire.address(), login, said: said.to_owned() };
        if let Some(known) = refused.as_ref().filter(|known| known.fingerprint == fingerprint && now < known.until) {
            return Err(again(&known.said));
        }
        let tried = match &self.auth {
            VaultAuth::Token { .. } => self.by_token(wire, credential, now).await,
            VaultAuth::AppRole { path, role_id, .. } => self.by_role(wire, (path, role_id), &credential, now).await,
        };
        if let Err(VaultError::LoginRefused { said, .. }) = &tried {
            *refused = Some(Refused { fingerprint, until: now + REFUSED_PAUSE, said: said.clone() });
        }
        tried
    }

    async fn by_token(&self, wire: &Wire, token: Secret<String>, now: Timestamp) -> Result<Session, VaultError> {
        let reply = lookup(wire, &token).await?;
        match reply.status {
            StatusCode::OK => {
                let found: LookupAnswer = reply.json().ok_or_else(|| wire.malformed("the token's own description"))?;
                let lasts = life(found.data.ttl);
                let life = Life { lasts, issued_for: lasts, renewable: found.data.renewable };
                Ok(Session { token, begun: now, life })
            }
            StatusCode::FORBIDDEN => Err(self.login_refused(wire, &reply, "token", token.expose())),
            _ => Err(wire.refused(&reply, &[token.expose()])),
        }
    }

    async fn by_role(
        &self,
        wire: &Wire,
        (path, role_id): (&str, &str),
        secret_id: &Secret<String>,
        now: Timestamp,
    ) -> Result<Session, VaultError> {
        let body = serde_json::to_vec(&AppRoleLogin { role_id, secret_id: secret_id.expose() })
            .expect("two texts are always JSON");
        let path = format!("auth/{path}/login");
        let ask = Ask { method: Method::POST, path: &path, token: None, body: Some(&Secret::new(body)) };
        let reply = wire.send(ask).await?;
        match reply.status {
            StatusCode::OK => {
                let answer: LoginAnswer = reply.json().ok_or_else(|| wire.malformed("the answer to a login"))?;
                let lasts = life(answer.auth.lease_duration);
                let life = Life { lasts, issued_for: lasts, renewable: answer.auth.renewable };
                Ok(Session { token: answer.auth.client_token, begun: now, life })
            }
            // A spent or wrong secret id is 400; an unknown method, and a role that is locked out, are 403.
            StatusCode::BAD_REQUEST | StatusCode::FORBIDDEN if reply.is_vaults() => {
                Err(self.login_refused(wire, &reply, "AppRole login", secret_id.expose()))
            }
            _ => Err(wire.refused(&reply, &[secret_id.expose()])),
        }
    }

    fn login_refused(&self, wire: &Wire, reply: &Reply, login: &'static str, secret: &str) -> VaultError {
        VaultError::LoginRefused { address: wire.address(), login, said: reply.said(&[secret]) }
    }

    /// The session with another life; none when that does not help, because its longest life is nearly over.
    async fn renewed(&self, wire: &Wire, old: &Session, now: Timestamp) -> Result<Option<Session>, VaultError> {
        if !old.life.renewable || old.is_over(now) {
            return Ok(None);
        }
        let ask = Ask { method: Method::POST, path: "auth/token/renew-self", token: Some(&old.token), body: None };
        let reply = wire.send(ask).await?;
        match reply.status {
            StatusCode::OK => {
                let answer: LoginAnswer = reply.json().ok_or_else(|| wire.malformed("the answer to a renewal"))?;
                let lasts = life(answer.auth.lease_duration);
                let is_short = lasts.zip(old.life.issued_for).is_some_and(|(lasts, issued)| lasts < issued / 2);
                let life = Life { lasts, renewable: answer.auth.renewable, ..old.life };
                let renewed = Session { token: old.token.clone(), begun: now, life };
                Ok(Some(renewed).filter(|_| !is_short))
            }
            // Revoked, or not allowed to renew itself: a new login is the way.
            StatusCode::FORBIDDEN | StatusCode::BAD_REQUEST => Ok(None),
            _ => Err(wire.refused(&reply, &[old.token.expose()])),
        }
    }
}

/// Seconds of life; 0 is for ever.
const fn life(seconds: u64) -> Option<Duration> {
    if seconds == 0 { None } else { Some(Duration::from_secs(seconds)) }
}

async fn lookup(wire: &Wire, token: &Secret<String>) -> Result<Reply, VaultError> {
    wire.send(Ask { method: Method::GET, path: "auth/token/lookup-self", token: Some(token), body: None }).await
}

/// A key-value store of version 1 would take a write with 204 and answer a read with 404: it is told apart before.
async fn check_mount(wire: &Wire, mount: &str, token: &Secret<String>) -> Result<(), VaultError> {
    let path = format!("sys/internal/ui/mounts/{mount}");
    let reply = wire.send(Ask { method: Method::GET, path: &path, token: Some(token), body: None }).await?;
    match reply.status {
        StatusCode::OK => {}
        StatusCode::FORBIDDEN => {
            return Err(VaultError::Denied {
                address: wire.address(),
                what: "anything in",
                place: format!("{mount}/"),
                said: reply.said(&[token.expose()]),
            });
        }
        _ => return Err(wire.refused(&reply, &[token.expose()])),
    }
    let found: MountAnswer = reply.json().ok_or_else(|| wire.malformed("the description of a mount"))?;
    let version = found.data.options.and_then(|options| options.version);
    match (found.data.kind.as_str(), version.as_deref()) {
        ("kv", Some("2")) => Ok(()),
        (kind, version) => {
            let found = match version {
                Some(version) => format!("{kind} version {version}"),
                None if kind == "kv" => "kv version 1".to_owned(),
                None => kind.to_owned(),
            };
            let found = crate::message::bounded(&found);
            Err(VaultError::WrongEngine { address: wire.address(), mount: mount.to_owned(), found })
        }
    }
}
