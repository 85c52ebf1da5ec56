//! OAuth 1.0 PLAINTEXT as MAAS checks it. spec: MAAS contract section 2.

use std::collections::{BTreeMap, HashSet, VecDeque};

use super::wire::percent_decode;

/// Oldest timestamp that is still accepted, in seconds before now.
pub const OLDEST_TIMESTAMP_S: i64 = 300;

/// An API key in its three parts, `consumer:token:secret` when written as one string.
#[derive(Clone, PartialEq, Eq)]
pub struct ApiKey {
    /// The consumer key; its secret is always empty.
    pub consumer: String,
    /// The token key.
    pub token: String,
    /// The token secret.
    pub secret: String,
}

impl ApiKey {
    /// The key as a user sees it.
    pub fn joined(&self) -> String {
        format!("{}:{}:{}", self.consumer, self.token, self.secret)
    }
}

/// On whose behalf a call is made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Caller {
    /// No credentials at all.
    Anonymous,
    /// A user of MAAS by name; all users of the simulated region are administrators.
    User(String),
    /// A machine by its system id, with the token of its preseed.
    Machine(String),
}

/// Why credentials were refused; the text is the body of the 401.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The header is not OAuth, or a part is missing or wrong.
    #[error("Authorization Error: Invalid API key.")]
    InvalidKey,
    /// More than 300 s in the past, or in the future where that is refused as well.
    #[error("Authorization Error: Expired timestamp.")]
    Expired,
    /// The nonce was used with this token before.
    #[error("Authorization Error: Nonce already used.")]
    NonceUsed,
}

/// What one `Authorization` header says.
pub struct Claim {
    consumer: String,
    token: String,
    signature: String,
    nonce: String,
    timestamp_s: i64,
}

impl Claim {
    /// Reads `OAuth key="value", …`.
    ///
    /// # Errors
    /// [`Refusal::InvalidKey`] when a part is missing or the method is not PLAINTEXT.
    pub fn parse(header: &str) -> Result<Self, Refusal> {
        let rest = header.strip_prefix("OAuth ").ok_or(Refusal::InvalidKey)?;
        let part = |item: &str| {
            let (key, value) = item.trim().split_once('=')?;
            Some((key.to_owned(), percent_decode(value.trim_matches('"'))))
        };
        let mut parts: BTreeMap<String, String> = rest.split(',').filter_map(part).collect();
        let mut take = |key: &str| parts.remove(key).ok_or(Refusal::InvalidKey);
        if take("oauth_signature_method")? != "PLAINTEXT" {
            return Err(Refusal::InvalidKey);
        }
        Ok(Self {
            consumer: take("oauth_consumer_key")?,
            token: take("oauth_token")?,
            signature: take("oauth_signature")?,
            nonce: take("oauth_nonce")?,
            timestamp_s: take("oauth_timestamp")?.parse().map_err(|_| Refusal::InvalidKey)?,
        })
    }

    /// Seconds that the timestamp lies ahead of `now_s`; negative when in the past.
    pub const fn ahead_s(&self, now_s: i64) -> i64 {
        self.timestamp_s - now_s
    }
}

/// The keys a region knows and the nonces it has seen.
#[derive(Default)]
pub struct KeyRing {
    keys: BTreeMap<String, (ApiKey, Caller)>,
    nonces: HashSet<(String, String)>,
    /// The same in the order of their use, so that the oldest can be forgotten.
    order: VecDeque<(String, String)>,
    spent: usize,
}

/// Nonces remembered. MAAS keeps them all; here the memory of a site that runs for weeks must not grow, and a client
/// that repeats a nonce does so at once.
const REMEMBERED_NONCES: usize = 100_000;

impl KeyRing {
    /// Accepts `key` on behalf of `caller` from now on.
    pub fn add(&mut self, key: ApiKey, caller: Caller) {
        self.keys.insert(key.token.clone(), (key, caller));
    }

    /// Forgets a token; false when it was not there.
    pub fn remove(&mut self, token: &str) -> bool {
        self.keys.remove(token).is_some()
    }

    /// The tokens of `caller`, in the order of their keys.
    pub fn of<'a>(&'a self, caller: &'a Caller) -> impl Iterator<Item = &'a ApiKey> {
        self.keys.values().filter(move |(_, owner)| owner == caller).map(|(key, _)| key)
    }

    /// Who signed `claim`.
    ///
    /// # Errors
    /// [`Refusal::InvalidKey`] for an unknown token, consumer or signature; [`Refusal::Expired`] when too old.
    pub fn identify(&self, claim: &Claim, now_s: i64) -> Result<Caller, Refusal> {
        let (key, caller) = self.keys.get(&claim.token).ok_or(Refusal::InvalidKey)?;
        if key.consumer != claim.consumer || claim.signature != format!("&{}", key.secret) {
            return Err(Refusal::InvalidKey);
        }
        if claim.ahead_s(now_s) < -OLDEST_TIMESTAMP_S {
            return Err(Refusal::Expired);
        }
        Ok(caller.clone())
    }

    /// Whether the nonce of `claim` is new for its token; it counts as used from now on.
    pub fn spend_nonce(&mut self, claim: &Claim) -> bool {
        let nonce = (claim.token.clone(), claim.nonce.clone());
        let is_new = self.nonces.insert(nonce.clone());
        if is_new {
            self.spent += 1;
            self.order.push_back(nonce);
        }
        if self.order.len() > REMEMBERED_NONCES
            && let Some(oldest) = self.order.pop_front()
        {
            self.nonces.remove(&oldest);
        }
        is_new
    }

    /// How many nonces were stored: one for each signed call.
    pub const fn nonces_stored(&self) -> usize {
        self.spent
    }
}

/// The header a client sends for `key`. `nonce` must be new for each call, retries included.
pub fn sign(key: &ApiKey, nonce: &str, timestamp_s: i64) -> String {
    let ApiKey { consumer, token, secret } = key;
    format!(
        "OAuth oauth_version=\"1.0\", oauth_signature_method=\"PLAINTEXT\", oauth_consumer_key=\"{consumer}\", \
         oauth_token=\"{token}\", oauth_signature=\"%26{secret}\", oauth_nonce=\"{nonce}\", \
         oauth_timestamp=\"{timestamp_s}\""
    )
}
