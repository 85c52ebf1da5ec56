//! Posts events to receivers: signed, within a time, to addresses that are allowed, without following redirects.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use aws_lc_rs::hmac;
use lattice_core::secret::Secret;
use lattice_core::time::Timestamp;
use lattice_core::webhook::address::{AddressPolicy, Scheme};
use lattice_core::webhook::delivery::Attempted;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::redirect::Policy;

use crate::message::{bounded, of_body};

/// Longest time of one attempt.
pub const TIMEOUT: Duration = Duration::from_secs(10);

/// Bytes of an answer that are read; the rest is left with the receiver.
const ANSWER_MAX: usize = 4_096;

/// Characters of a refusal that are kept.
const SAID_MAX: usize = 200;

/// Longest address, in bytes.
const URL_MAX: usize = 2_048;

/// An address that events can be posted to, as far as it can be known without resolving its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    url: reqwest::Url,
    scheme: Scheme,
}

impl Target {
    /// Parses an address.
    ///
    /// # Errors
    /// What is wrong with it, for the person who gave it.
    pub fn parse(text: &str, policy: &AddressPolicy) -> Result<Self, String> {
        if text.len() > URL_MAX {
            return Err(format!("is longer than {URL_MAX} bytes"));
        }
        let url = reqwest::Url::parse(text)
            .map_err(|error| format!("is not an address such as https://hooks.example/lattice: {error}"))?;
        let scheme = match url.scheme() {
            "https" => Scheme::Https,
            "http" => Scheme::Http,
            other => return Err(format!("begins with {other}:// and not with https://")),
        };
        if !url.username().is_empty() || url.password().is_some() {
            return Err("must not hold a login: deliveries are signed instead".to_owned());
        }
        if url.fragment().is_some() {
            return Err("must not have a fragment (#…): it would not be sent".to_owned());
        }
        let host = url.host_str().unwrap_or_default();
        if host.is_empty() {
            return Err("names no host".to_owned());
        }
        // The parser has turned every spelling of an address (octal, hexadecimal, one number) into the usual one.
        if let Ok(address) = host.trim_matches(['[', ']']).parse::<IpAddr>()
            && let Some(why) = policy.refusal(scheme, address)
        {
            return Err(format!("names {address}, which {why}"));
        }
        Ok(Self { url, scheme })
    }
}

/// One event on its way.
pub struct Message<'a> {
    /// The webhook's id.
    pub webhook: String,
    /// The event's name.
    pub name: &'a str,
    /// The event's place in the outbox: its idempotency key.
    pub id: u64,
    /// When it is sent.
    pub at: Timestamp,
    /// The event as JSON.
    pub body: Vec<u8>,
}

/// Sends events to receivers: the boundary to whatever is there.
#[async_trait]
pub trait WebhookSender: Send + Sync {
    /// Checks an address as far as that goes without resolving its name.
    ///
    /// # Errors
    /// What is wrong with it, for the person who gave it.
    fn check(&self, url: &str) -> Result<(), String>;

    /// Posts one event to `url`, signed with each of `keys`; how it ended.
    async fn send(&self, url: &str, keys: &[Secret<String>], message: Message<'_>) -> Attempted;
}

/// Sends over HTTP.
pub struct HttpSender {
    policy: Arc<AddressPolicy>,
    https: Client,
    http: Client,
}

/// Connections of one scheme, or why there are none: a host without certificates still runs a server.
type Client = Result<reqwest::Client, String>;

impl HttpSender {
    /// A sender with connections of its own, to what `policy` allows.
    pub fn new(policy: AddressPolicy) -> Self {
        let policy = Arc::new(policy);
        let client = |scheme| {
            reqwest::Client::builder()
                .timeout(TIMEOUT)
                .connect_timeout(TIMEOUT / 2)
                .redirect(Policy::none())
                // A proxy would resolve names itself, and reach what it reaches.
                .no_proxy()
                .user_agent(concat!("lattice/", env!("CARGO_PKG_VERSION")))
                .dns_resolver(Arc::new(Judged { scheme, policy: Arc::clone(&policy) }))
                .build()
                .map_err(|error| format!("the system's certificates cannot be used: {}", root(&error)))
        };
        Self { https: client(Scheme::Https), http: client(Scheme::Http), policy }
    }
}

#[async_trait]
impl WebhookSender for HttpSender {
    fn check(&self, url: &str) -> Result<(), String> {
        Target::parse(url, &self.policy).map(drop)
    }

    async fn send(&self, url: &str, keys: &[Secret<String>], message: Message<'_>) -> Attempted {
        // Again at each attempt: what is allowed may have changed since the address was given.
        let target = match Target::parse(url, &self.policy) {
            Ok(target) => target,
            Err(why) => return Attempted::Failed { why: format!("its address {why}") },
        };
        let timestamp = message.at.as_secs().to_string();
        let client = match target.scheme {
            Scheme::Http => &self.http,
            Scheme::Https => &self.https,
        };
        let client = match client {
            Ok(client) => client,
            Err(why) => return Attempted::Failed { why: why.clone() },
        };
        let request = client
            .post(target.url)
            .header("content-type", "application/json")
            .header("lattice-webhook", message.webhook)
            .header("lattice-event", message.name)
            .header("lattice-event-id", message.id)
            .header("lattice-signature", signatures(keys, &timestamp, message.id, &message.body))
            .header("lattice-timestamp", timestamp)
            .body(message.body);
        match request.send().await {
            Ok(answer) => judge(answer, keys).await,
            Err(error) => Attempted::Failed { why: why(&error) },
        }
    }
}

async fn judge(answer: reqwest::Response, keys: &[Secret<String>]) -> Attempted {
    let status = answer.status();
    let body = beginning(answer).await;
    if status.is_success() {
        return Attempted::Taken { status: status.as_u16() };
    }
    let secrets: Vec<&str> = keys.iter().map(|key| key.expose().as_str()).collect();
    let said = of_body(&body, &secrets).chars().take(SAID_MAX).collect();
    Attempted::Refused { status: status.as_u16(), said }
}

/// The beginning of an answer. A short one is read to its end, so that the connection can be used again.
async fn beginning(mut answer: reqwest::Response) -> Vec<u8> {
    let mut body = Vec::new();
    // An answer that breaks off has a status all the same.
    while let Ok(Some(piece)) = answer.chunk().await {
        let room = ANSWER_MAX - body.len();
        body.extend_from_slice(&piece[..piece.len().min(room)]);
        if body.len() == ANSWER_MAX {
            break;
        }
    }
    body
}

/// For each key `v1=` and the HMAC-SHA256 of timestamp, full stop, event id, full stop and body, in hex.
pub fn signatures(keys: &[Secret<String>], timestamp: &str, id: u64, body: &[u8]) -> String {
    let signed = |secret: &Secret<String>| {
        let key = hmac::Key::new(hmac::HMAC_SHA256, secret.expose().as_bytes());
        let mut context = hmac::Context::with_key(&key);
        context.update(format!("{timestamp}.{id}.").as_bytes());
        context.update(body);
        format!("v1={}", hex::encode(context.sign().as_ref()))
    };
    keys.iter().map(signed).collect::<Vec<_>>().join(",")
}

/// What went wrong, without the address: its path or query may hold a secret of the receiver.
fn why(error: &reqwest::Error) -> String {
    if error.is_timeout() {
        return format!("no answer within {} s", TIMEOUT.as_secs());
    }
    let kind = if error.is_connect() { "no connection" } else { "the exchange broke off" };
    bounded(&format!("{kind}: {}", root(error)))
}

/// The innermost cause: those around it name the address.
fn root(error: &reqwest::Error) -> String {
    let mut cause: &dyn std::error::Error = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    bounded(&cause.to_string())
}

/// Resolves names, and gives only addresses that may be posted to: what is judged is what is connected to.
struct Judged {
    scheme: Scheme,
    policy: Arc<AddressPolicy>,
}

impl Resolve for Judged {
    fn resolve(&self, name: Name) -> Resolving {
        let (scheme, policy) = (self.scheme, Arc::clone(&self.policy));
        Box::pin(async move {
            let host = name.as_str().to_owned();
            let found: Vec<SocketAddr> = tokio::net::lookup_host((host.as_str(), 0)).await?.collect();
            let refusal = |address: &SocketAddr| policy.refusal(scheme, address.ip());
            let allowed: Vec<SocketAddr> = found.iter().copied().filter(|address| refusal(address).is_none()).collect();
            if allowed.is_empty() {
                let why = found.iter().find_map(refusal).unwrap_or("has no address");
                return Err(format!("{host} {why}").into());
            }
            let addresses: Addrs = Box::new(allowed.into_iter());
            Ok(addresses)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_refused_with_what_is_wrong_with_it() {
        let policy = AddressPolicy::allowing(vec!["10.1.0.0/16".parse().unwrap()]);
        let rows = [
            ("https://hooks.example/lattice?team=7", ""),
            ("http://hooks.example/", ""),
            ("https://10.1.2.3:8443/", ""),
            ("http://10.1.2.3/", ""),
            ("https://10.2.2.3/", "names 10.2.2.3, which is private"),
            ("https://127.0.0.1/", "names 127.0.0.1, which is this host"),
            ("https://2130706433/", "names 127.0.0.1, which is this host"),
            ("https://0x7f.1/", "names 127.0.0.1, which is this host"),
            ("https://[::ffff:127.0.0.1]/", "names ::ffff:127.0.0.1, which is this host"),
            ("https://169.254.169.254/latest", "names 169.254.169.254, which is link-local"),
            ("https://[fe80::1]/", "names fe80::1, which is link-local"),
            ("http://203.0.113.9/", "names 203.0.113.9, which is reached without TLS"),
            ("ftp://hooks.example/", "begins with ftp://"),
            ("file:///etc/passwd", "begins with file://"),
            ("https://user:word@hooks.example/", "must not hold a login"),
            ("https://hooks.example/#a", "must not have a fragment"),
            ("hooks.example", "is not an address"),
        ];
        for (text, expected) in rows {
            let said = Target::parse(text, &policy).err().unwrap_or_default();
            assert!(said.starts_with(expected) && said.is_empty() == expected.is_empty(), "{text}: {said}");
        }
    }

    #[test]
    fn the_signature_is_what_the_guide_says() {
        let secret = |text: &str| Secret::new(text.to_owned());
        let one = signatures(&[secret("lat_whk_test")], "1795252364", 7, br#"{"seq":7}"#);
        // python3 -c 'import hmac;print(hmac.new(b"lat_whk_test",b"1795252364.7.{\"seq\":7}","sha256").hexdigest())'
        assert_eq!(one, "v1=cd4d0e6ed983a51ac4825fcb8b2357143447b832cd34d542c0071a7d9ad8a69b");
        let two = signatures(&[secret("new"), secret("lat_whk_test")], "1795252364", 7, br#"{"seq":7}"#);
        assert!(two.ends_with(&format!(",{one}")) && two.len() == 2 * one.len() + 1, "{two}");
    }
}
