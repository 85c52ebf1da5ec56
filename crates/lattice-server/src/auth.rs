//! Who calls, and what it may: local tokens, roles, and how fast. spec: S3 8; design: 8-interfaces "AuthN", "AuthZ"

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use http::{HeaderMap, HeaderName, Method, header};
use lattice_api::token::API_TOKEN_PREFIX;
use lattice_core::actor::{Actor, Role};
use lattice_core::credential::ApiToken;
use lattice_core::explain::{Code, NextAction};
use lattice_core::ids::ApiTokenId;
use lattice_core::secret::{Secret, constant_time_eq, token_hash};
use lattice_core::time::Timestamp;
use lattice_store::Store;

use crate::error::{Answer, Refusal};

/// The cookie in which the page keeps its token: a browser's event stream cannot send a header.
pub const TOKEN_COOKIE: &str = "lattice_token";

/// Random characters of a token after its prefix: 43 of 64 kinds are 256 bits.
const TOKEN_CHARS: usize = 43;

/// Who calls.
#[derive(Debug, Clone)]
pub struct Caller {
    /// The token's name: the actor's name in the audit.
    pub name: String,
    /// What it may do.
    pub role: Role,
    /// The token that was shown.
    pub token: ApiTokenId,
    /// From when on that token is refused.
    pub expires_at: Option<Timestamp>,
}

impl Caller {
    /// As the audit names it.
    pub fn actor(&self) -> Actor {
        Actor { name: self.name.clone(), role: self.role }
    }
}

/// Whether a role may do what asks for at least another one.
///
/// Agents and the system act through their own ways, never through this API.
pub const fn allows(role: Role, least: Role) -> bool {
    rank(role) >= rank(least) && rank(role) > 0
}

const fn rank(role: Role) -> u8 {
    match role {
        Role::Agent | Role::System => 0,
        Role::ProjectViewer => 1,
        Role::ProjectMember => 2,
        Role::ProjectAdmin => 3,
        Role::TenantAdmin => 4,
        Role::PlatformAdmin => 5,
    }
}

/// A new token's text from 32 random bytes.
pub fn new_token(random: [u8; 32]) -> Secret<String> {
    use base64::Engine;
    let text = base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(random);
    Secret::new(format!("{API_TOKEN_PREFIX}{text}"))
}

/// Finds out who calls.
///
/// # Errors
/// No token, one that nobody issued, a withdrawn or an expired one; the store fails.
pub async fn authenticate(store: &Store, headers: &HeaderMap, now: Timestamp) -> Answer<Caller> {
    let Some(shown) = shown_token(headers) else {
        return Err(unauthenticated("no token was shown"));
    };
    let body = shown.expose().strip_prefix(API_TOKEN_PREFIX).unwrap_or_default();
    if body.len() != TOKEN_CHARS {
        return Err(unauthenticated("the token is not one of this server"));
    }
    let hash = token_hash(shown.expose());
    let token = store.api_token_by_hash(&hash).await?;
    let Some(token) = token.filter(|token| constant_time_eq(token.hash.as_bytes(), hash.as_bytes())) else {
        return Err(unauthenticated("the token is not one of this server"));
    };
    if token.revoked_at.is_some() {
        return Err(unauthenticated("the token was revoked"));
    }
    if !is_valid(&token, now) {
        return Err(unauthenticated("the token is expired"));
    }
    Ok(Caller { name: token.name, role: token.role, token: token.id, expires_at: token.expires_at })
}

/// Refuses what another origin makes a browser do with the page's cookie. A token in a header is sent by nobody but its
/// owner, and is let through.
///
/// # Errors
/// It changes something, comes by cookie, and the browser says that another origin asked, or does not say which.
pub fn refuse_other_origins(method: &Method, headers: &HeaderMap) -> Answer<()> {
    let is_safe = matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS);
    if is_safe || headers.contains_key(header::AUTHORIZATION) {
        return Ok(());
    }
    let text = |name: header::HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
    let is_own = match (text(HeaderName::from_static("sec-fetch-site")), text(header::ORIGIN), text(header::HOST)) {
        (Some(site), _, _) => site == "same-origin",
        (None, Some(origin), Some(host)) => origin.split_once("://").is_some_and(|(_, from)| from == host),
        (None, _, _) => false,
    };
    if is_own {
        return Ok(());
    }
    Err(Refusal::new(Code::Forbidden, "a change by cookie must come from a page of this server")
        .next(NextAction::Fix { what: "send the token as `Authorization: Bearer lat_api_…`".to_owned() }))
}

/// Whether a token is accepted at `now`.
pub fn is_valid(token: &ApiToken, now: Timestamp) -> bool {
    token.revoked_at.is_none() && token.expires_at.is_none_or(|expiry| now < expiry)
}

fn unauthenticated(detail: &str) -> Refusal {
    Refusal::new(Code::Unauthenticated, detail)
        .because("every route but health, metrics and the API's description needs a token")
        .next(NextAction::run("lattice token create me --role platform_admin", "run by an administrator, makes one"))
        .next(NextAction::Fix { what: "send it as `Authorization: Bearer lat_api_…`".to_owned() })
}

fn shown_token(headers: &HeaderMap) -> Option<Secret<String>> {
    if let Some(value) = headers.get(header::AUTHORIZATION) {
        let text = value.to_str().ok()?;
        let (scheme, token) = text.split_once(' ')?;
        return scheme.eq_ignore_ascii_case("bearer").then(|| Secret::new(token.trim().to_owned()));
    }
    let cookies = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    cookies
        .flat_map(|line| line.split(';'))
        .filter_map(|pair| pair.trim().split_once('='))
        .find(|(name, _)| *name == TOKEN_COOKIE)
        .map(|(_, token)| Secret::new(token.to_owned()))
}

/// How fast one token may ask.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    /// Requests per second that go on for ever.
    pub per_second: u32,
    /// Requests at once, after a pause.
    pub burst: u32,
}

/// Who shares one allowance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Payer {
    /// A token.
    Token(ApiTokenId),
    /// All who show none that is valid.
    Strangers,
}

/// Counts what each payer used.
pub struct RateLimiter {
    rate: Rate,
    buckets: Mutex<HashMap<Payer, Bucket>>,
}

/// Allowance in thousandths of a request: integers, so that nothing drifts.
#[derive(Clone, Copy)]
struct Bucket {
    milli: u64,
    at: Timestamp,
}

impl RateLimiter {
    /// With the same rate for each payer.
    pub fn new(rate: Rate) -> Self {
        Self { rate, buckets: Mutex::default() }
    }

    /// Takes one request from a payer's allowance.
    ///
    /// # Errors
    /// Nothing is left: how long to wait for one request.
    pub fn take(&self, payer: Payer, now: Timestamp) -> Result<(), Duration> {
        let full = u64::from(self.rate.burst) * 1_000;
        let per_second = u64::from(self.rate.per_second).max(1);
        let mut buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        let bucket = buckets.entry(payer).or_insert(Bucket { milli: full, at: now });
        let elapsed_ms = u64::try_from(now.since(bucket.at).as_millis()).unwrap_or(u64::MAX);
        // `per_second` requests in a second are `per_second` thousandths of a request in a millisecond.
        bucket.milli = full.min(bucket.milli.saturating_add(elapsed_ms.saturating_mul(per_second)));
        bucket.at = bucket.at.max(now);
        if bucket.milli >= 1_000 {
            bucket.milli -= 1_000;
            return Ok(());
        }
        Err(Duration::from_millis((1_000 - bucket.milli).div_ceil(per_second)))
    }
}

#[cfg(test)]
mod tests {
    use lattice_core::ids::uuid_v7;

    use super::*;

    #[test]
    fn an_allowance_is_used_up_and_comes_back() {
        let limiter = RateLimiter::new(Rate { per_second: 10, burst: 2 });
        let at = Timestamp::from_millis;
        let payer = Payer::Token(ApiTokenId::new(uuid_v7(at(0), [1; 10])));
        assert_eq!((limiter.take(payer, at(0)), limiter.take(payer, at(0))), (Ok(()), Ok(())));
        assert_eq!(limiter.take(payer, at(0)), Err(Duration::from_millis(100)));
        assert_eq!(limiter.take(Payer::Strangers, at(0)), Ok(()), "others are not affected");
        assert_eq!(limiter.take(payer, at(99)), Err(Duration::from_millis(1)));
        assert_eq!(limiter.take(payer, at(100)), Ok(()));
        assert_eq!(
            limiter.take(payer, at(50)),
            Err(Duration::from_millis(100)),
            "a clock that steps back gives nothing"
        );
    }

    #[test]
    fn roles_allow_what_stands_below_them_and_agents_nothing() {
        assert!(allows(Role::PlatformAdmin, Role::ProjectViewer));
        assert!(allows(Role::ProjectViewer, Role::ProjectViewer));
        assert!(!allows(Role::ProjectMember, Role::ProjectAdmin));
        for outsider in [Role::Agent, Role::System] {
            assert!(!allows(outsider, Role::ProjectViewer) && !allows(outsider, outsider));
        }
    }

    #[test]
    fn a_change_by_cookie_must_come_from_our_own_page() {
        let ask = |pairs: &[(&'static str, &'static str)], method: Method| {
            let mut headers = HeaderMap::new();
            for (name, value) in pairs {
                headers.insert(*name, http::HeaderValue::from_static(value));
            }
            refuse_other_origins(&method, &headers).is_ok()
        };
        let own = ("sec-fetch-site", "same-origin");
        let rows: [(&[(&str, &str)], bool); 7] = [
            (&[own], true),
            (&[("sec-fetch-site", "cross-site"), ("origin", "http://a:1"), ("host", "a:1")], false),
            (&[("sec-fetch-site", "same-site")], false),
            (&[("origin", "http://a:1"), ("host", "a:1")], true),
            (&[("origin", "http://b:1"), ("host", "a:1")], false),
            (&[("host", "a:1")], false),
            (&[("authorization", "Bearer x")], true),
        ];
        for (pairs, expected) in rows {
            assert_eq!(ask(pairs, Method::POST), expected, "{pairs:?}");
            assert!(ask(pairs, Method::GET), "reading changes nothing: {pairs:?}");
        }
    }

    #[test]
    fn a_new_token_has_the_length_that_is_checked() {
        let token = new_token([7; 32]);
        assert_eq!(token.expose().len(), API_TOKEN_PREFIX.len() + TOKEN_CHARS);
    }
}
