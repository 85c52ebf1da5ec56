//! Requests to one Redfish service: its certificate checked, its login in each request, its links kept to itself.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::header::{ETAG, IF_MATCH, LOCATION, RETRY_AFTER};
use http::{HeaderMap, Method, StatusCode};
use lattice_core::bmc::{PowerReading, PowerSaid};
use lattice_core::time::{Clock, Timestamp};
use rustls::ClientConfig;
use rustls::crypto::aws_lc_rs;
use serde::de::DeserializeOwned;
use tokio::sync::OnceCell;

use super::body::{Collection, ErrorBody, Root, System};
use crate::error::{ErrorKind, ProviderError};
use crate::machine::bmc::BmcLogin;
use crate::machine::maas::transport::{chain, judge};
use crate::machine::pin::{Fingerprint, Pin};
use crate::message;

/// What proves a service to be the one that is meant.
pub enum RedfishTrust {
    /// Exactly this certificate: SHA-256 of its DER form.
    Pinned(Fingerprint),
    /// A certificate of this authority, as PEM, that names the address.
    Authority(Vec<u8>),
    /// No TLS: loopback only.
    Plain,
}

/// Where a service is and which of its systems is meant.
pub struct RedfishSettings {
    /// Its address and port: an address, so that what was allowed is what is called.
    pub address: SocketAddr,
    /// What proves it.
    pub trust: RedfishTrust,
    /// Id of the system, where there are several.
    pub system: Option<String>,
    /// Longest wait for an answer.
    pub answer_within: Duration,
}

impl RedfishSettings {
    /// Longest wait for an answer, unless told otherwise: a BMC that collects its sensors takes some seconds.
    pub const ANSWER: Duration = Duration::from_secs(30);
}

/// A client of one system of one Redfish service.
pub struct RedfishClient {
    http: reqwest::Client,
    root: String,
    source: String,
    login: BmcLogin,
    wanted: Option<String>,
    answer_within: Duration,
    system: OnceCell<String>,
    clock: Arc<dyn Clock>,
}

/// An answer that is no error.
pub(super) struct Answer {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
}

impl RedfishClient {
    /// Longest wait for a connection: BMCs accept slowly, their TLS is slower.
    const CONNECT: Duration = Duration::from_secs(10);
    /// Largest answer, in bytes: a chassis of hundreds of sensors, with room.
    const LARGEST: usize = 4 << 20;
    /// Pages of one collection that are read, and members after which no more are: a server has some dozens of each.
    const MOST_PAGES: usize = 16;
    const MOST_MEMBERS: usize = 128;
    /// When a service says "later" without a time; and the longest that is believed.
    const LATER: Duration = Duration::from_secs(10);
    const LATEST: Duration = Duration::from_secs(120);

    /// A client of the service.
    ///
    /// # Errors
    /// The trust cannot be used, or plain HTTP is asked for beyond loopback.
    pub fn new(settings: RedfishSettings, login: BmcLogin, clock: Arc<dyn Clock>) -> Result<Self, ProviderError> {
        let unusable = |what: &str| ProviderError::unusable("redfish connect", what);
        let RedfishSettings { address, trust, system, answer_within } = settings;
        let scheme = if matches!(trust, RedfishTrust::Plain) { "http" } else { "https" };
        if scheme == "http" && !address.ip().to_canonical().is_loopback() {
            return Err(unusable("plain HTTP is for loopback addresses only: a BMC's password would be readable"));
        }
        let builder = reqwest::Client::builder()
            .redirect(reqwest::redirect::Policy::none())
            .no_proxy()
            .http1_only()
            .connect_timeout(Self::CONNECT)
            .pool_max_idle_per_host(1)
            .pool_idle_timeout(Duration::from_secs(5));
        let http = with_trust(builder, &trust)?.build().map_err(|error| unusable(&chain(&error.without_url())))?;
        let host = match address.ip() {
            IpAddr::V4(v4) => v4.to_string(),
            IpAddr::V6(v6) => format!("[{v6}]"),
        };
        Ok(Self {
            http,
            root: format!("{scheme}://{host}:{}", address.port()),
            source: format!("redfish {}", address.ip()),
            login,
            wanted: system,
            answer_within,
            system: OnceCell::new(),
            clock,
        })
    }

    pub(super) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    pub(super) fn source(&self) -> &str {
        &self.source
    }

    /// The service's root.
    pub(super) async fn root(&self) -> Result<Root, ProviderError> {
        self.get("root", "/redfish/v1/").await
    }

    /// The path of the system that is meant; found once.
    pub(super) async fn system_path(&self) -> Result<&str, ProviderError> {
        self.system.get_or_try_init(|| self.find_system()).await.map(String::as_str)
    }

    /// The system that is meant, fresh.
    pub(super) async fn system(&self, call: &str) -> Result<System, ProviderError> {
        let path = self.system_path().await?;
        self.get(call, path).await
    }

    async fn find_system(&self) -> Result<String, ProviderError> {
        let call = "systems";
        let root = self.root().await?;
        let Some(systems) = root.systems else {
            return Err(ProviderError::malformed("redfish systems", "the service lists no systems"));
        };
        let Collection { members, next } = self.collection(call, &systems.id).await?;
        let is_wanted = |path: &str, id: &str| path.trim_end_matches('/').rsplit('/').next() == Some(id);
        let found: Vec<_> = match &self.wanted {
            Some(id) => members.into_iter().filter(|link| is_wanted(&link.id, id)).collect(),
            None => members,
        };
        if next.is_some() && (self.wanted.is_none() || found.is_empty()) {
            return Err(ProviderError::malformed("redfish systems", "the service lists more systems than it gives"));
        }
        match <[_; 1]>::try_from(found) {
            Ok([one]) => Ok(one.id),
            Err(found) if found.is_empty() => {
                let which = self.wanted.as_deref().unwrap_or("any");
                let message = message::bounded(&format!("the service has no system {which}"));
                Err(ProviderError::new("redfish systems", ErrorKind::NotFound { message }))
            }
            Err(found) => {
                let what = format!("the service has {} systems: name one by its id", found.len());
                Err(ProviderError::new("redfish systems", ErrorKind::SeveralMatch { what }))
            }
        }
    }

    /// Reads a resource.
    pub(super) async fn get<T: DeserializeOwned>(&self, call: &str, path: &str) -> Result<T, ProviderError> {
        let answer = self.send(call, Method::GET, path, None, None).await?;
        read(call, &answer.body)
    }

    /// Reads a collection over its pages; where `next` is still there, it is not whole: a page could not be read, or
    /// there are too many.
    pub(super) async fn collection(&self, call: &str, path: &str) -> Result<Collection, ProviderError> {
        let mut all = self.get::<Collection>(call, path).await?;
        for _ in 1..Self::MOST_PAGES {
            let Some(next) = all.next.as_deref().filter(|_| all.members.len() < Self::MOST_MEMBERS) else { break };
            let Some(page) = self.offered::<Collection>(call, next).await? else { break };
            all.members.extend(page.members);
            all.next = page.next;
        }
        Ok(all)
    }

    /// Reads a collection that a service may leave out, as [`offered`](Self::offered) does a resource.
    pub(super) async fn offered_collection(&self, call: &str, path: &str) -> Result<Option<Collection>, ProviderError> {
        unless_left_out(self.collection(call, path).await)
    }

    /// Reads a resource that a service may leave out; `None`: it does, or cannot give it.
    pub(super) async fn offered<T: DeserializeOwned>(
        &self,
        call: &str,
        path: &str,
    ) -> Result<Option<T>, ProviderError> {
        unless_left_out(self.get(call, path).await)
    }
    /// Sends one request; `if_match` is the resource's ETag, where it has one.
    pub(super) async fn send(
        &self,
        call: &str,
        method: Method,
        path: &str,
        body: Option<&serde_json::Value>,
        if_match: Option<&str>,
    ) -> Result<Answer, ProviderError> {
        let name = || format!("redfish {call}");
        let path = self.own_path(path).map_err(|what| ProviderError::malformed(name(), what))?;
        let reads = method == Method::GET;
        self.exchange(method, &path, body, if_match)
            .await
            .and_then(|answer| judged(answer, reads, self.login.password.expose()))
            .map_err(|kind| ProviderError::new(name(), kind))
    }

    async fn exchange(
        &self,
        method: Method,
        path: &str,
        body: Option<&serde_json::Value>,
        if_match: Option<&str>,
    ) -> Result<Answer, ErrorKind> {
        let reads = method == Method::GET;
        let failed = |error: reqwest::Error| match judge(error, self.answer_within) {
            ErrorKind::Timeout { limit } if !reads => {
                ErrorKind::Ambiguous { detail: format!("no answer within {} ms", limit.as_millis()) }
            }
            other => other,
        };
        let mut builder = self
            .http
            .request(method, format!("{}{path}", self.root))
            .basic_auth(&self.login.user, Some(self.login.password.expose()))
            .header("OData-Version", "4.0")
            .timeout(self.answer_within);
        if let Some(etag) = if_match {
            builder = builder.header(IF_MATCH, etag);
        }
        if let Some(body) = body {
            builder = builder.json(body);
        }
        let mut response = builder.send().await.map_err(failed)?;
        let (status, headers) = (response.status(), std::mem::take(response.headers_mut()));
        let mut body = BytesMut::new();
        while let Some(chunk) = response.chunk().await.map_err(failed)? {
            if body.len() + chunk.len() > Self::LARGEST {
                return Err(ErrorKind::Malformed {
                    what: format!("the answer is larger than {} bytes", Self::LARGEST),
                });
            }
            body.extend_from_slice(&chunk);
        }
        Ok(Answer { status, headers, body: body.freeze() })
    }

    /// A link of the service, as a path of this service: nothing that it says sends the login elsewhere.
    fn own_path(&self, link: &str) -> Result<String, String> {
        // The port that goes without saying may be left out.
        let usual = ["https:", "http:"].iter().zip([":443", ":80"]);
        let short = usual
            .filter(|(scheme, _)| self.root.starts_with(*scheme))
            .find_map(|(_, port)| self.root.strip_suffix(port));
        let of_root = |root: &str| link.strip_prefix(root).filter(|path| path.starts_with('/'));
        let path = of_root(&self.root).or_else(|| of_root(short?)).unwrap_or(link);
        let good = path.starts_with('/') && !path.starts_with("//") && path.len() <= 1_024;
        if good && !path.contains("..") && path.bytes().all(|b| b.is_ascii_graphic()) {
            Ok(path.to_owned())
        } else {
            Err(format!("the service links to {}, which is not one of its own paths", message::bounded(link)))
        }
    }

    pub(super) fn reading(&self, system: &System, at: Timestamp) -> PowerReading {
        let said = match system.power_state.as_deref() {
            Some("On") => PowerSaid::On,
            Some("Off") => PowerSaid::Off,
            Some(word) => PowerSaid::Unknown { why: message::bounded(&format!("the BMC says {word}")) },
            None => PowerSaid::Unknown { why: "the BMC does not say".to_owned() },
        };
        PowerReading { said, at, source: self.source.clone() }
    }
}

impl Answer {
    /// Version of what was read.
    pub(super) fn etag(&self) -> Option<String> {
        self.headers.get(ETAG).and_then(|value| Some(value.to_str().ok()?.to_owned()))
    }

    /// Where the task of an accepted request is watched.
    pub(super) fn location(&self) -> Option<String> {
        self.headers.get(LOCATION).and_then(|value| Some(value.to_str().ok()?.to_owned()))
    }

    /// When to ask again, if the service said so.
    pub(super) fn retry_after(&self) -> Option<Duration> {
        let seconds = self.headers.get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.trim().parse().ok());
        seconds.map(|seconds| Duration::from_secs(seconds).min(RedfishClient::LATEST))
    }
}

/// `None` for what a service leaves out or cannot give; what else went wrong is an error.
fn unless_left_out<T>(read: Result<T, ProviderError>) -> Result<Option<T>, ProviderError> {
    match read {
        Ok(body) => Ok(Some(body)),
        Err(error) => match error.kind {
            ErrorKind::NotFound { .. }
            | ErrorKind::Refused { .. }
            | ErrorKind::NotOffered { .. }
            | ErrorKind::Forbidden { .. }
            | ErrorKind::ServerFailed { .. }
            | ErrorKind::Malformed { .. } => Ok(None),
            ErrorKind::Unreachable { .. }
            | ErrorKind::Timeout { .. }
            | ErrorKind::Ambiguous { .. }
            | ErrorKind::Unauthorised { .. }
            | ErrorKind::RetryLater { .. }
            | ErrorKind::PowerFailed { .. }
            | ErrorKind::BadCertificate { .. }
            | ErrorKind::SeveralMatch { .. }
            | ErrorKind::NoCredential { .. }
            | ErrorKind::LockedOut { .. }
            | ErrorKind::Unusable { .. } => Err(error),
        },
    }
}

/// Reads a body; the parser's words are not passed on, since they quote values.
pub(super) fn read<T: DeserializeOwned>(call: &str, body: &[u8]) -> Result<T, ProviderError> {
    serde_json::from_slice(body).map_err(|_| {
        ProviderError::malformed(format!("redfish {call}"), "the answer is not the resource that is expected")
    })
}

fn with_trust(builder: reqwest::ClientBuilder, trust: &RedfishTrust) -> Result<reqwest::ClientBuilder, ProviderError> {
    let unusable = |what: &str| ProviderError::unusable("redfish connect", what);
    Ok(match trust {
        RedfishTrust::Plain => builder.tls_certs_only([]),
        RedfishTrust::Authority(pem) => {
            let certificates = reqwest::Certificate::from_pem_bundle(pem)
                .ok()
                .filter(|certificates| !certificates.is_empty())
                .ok_or_else(|| unusable("the site's authority is not PEM"))?;
            builder.tls_certs_only(certificates)
        }
        RedfishTrust::Pinned(fingerprint) => {
            let provider = Arc::new(aws_lc_rs::default_provider());
            let verifier = Pin::new(*fingerprint, &provider);
            let config = ClientConfig::builder_with_provider(provider)
                // BMCs that know no TLS 1.3 are the rule.
                .with_protocol_versions(&[&rustls::version::TLS13, &rustls::version::TLS12])
                .map_err(|error| unusable(&error.to_string()))?
                .dangerous()
                .with_custom_certificate_verifier(verifier)
                .with_no_client_auth();
            builder.tls_backend_preconfigured(config)
        }
    })
}

/// What the status of an answer means.
fn judged(answer: Answer, reads: bool, password: &str) -> Result<Answer, ErrorKind> {
    let status = answer.status.as_u16();
    if answer.status.is_success() {
        return Ok(answer);
    }
    let text = || match serde_json::from_slice::<ErrorBody>(&answer.body) {
        Ok(body) => message::bounded(&message::without_secrets(body.told().to_owned(), &[password])),
        Err(_) => message::of_body(&answer.body, &[password]),
    };
    Err(match status {
        401 => ErrorKind::Unauthorised { message: text() },
        403 => ErrorKind::Forbidden { message: text() },
        404 => ErrorKind::NotFound { message: text() },
        405 | 501 => ErrorKind::NotOffered { what: text() },
        429 | 503 => ErrorKind::RetryLater { after: answer.retry_after().unwrap_or(RedfishClient::LATER) },
        502 | 504 if !reads => ErrorKind::Ambiguous { detail: format!("{status} {}", text()) },
        300..=399 => ErrorKind::Malformed { what: format!("redirected with {status}") },
        400..=499 => ErrorKind::Refused { status, message: text() },
        _ => ErrorKind::ServerFailed { status, message: text() },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use lattice_core::secret::Secret;

    struct Fixed;
    impl Clock for Fixed {
        fn now(&self) -> Timestamp {
            Timestamp::from_millis(7)
        }
    }

    fn client(address: &str, trust: RedfishTrust) -> Result<RedfishClient, ProviderError> {
        let login = BmcLogin { user: "admin".to_owned(), password: Secret::new("hunter22".to_owned()) };
        let settings = RedfishSettings {
            address: address.parse().unwrap(),
            trust,
            system: None,
            answer_within: RedfishSettings::ANSWER,
        };
        RedfishClient::new(settings, login, Arc::new(Fixed))
    }

    #[test]
    fn links_that_leave_the_service_are_not_followed() {
        let client = client("10.0.0.7:443", RedfishTrust::Pinned([7; 32])).ok().unwrap();
        for (link, good) in [
            ("/redfish/v1/Systems/1", true),
            ("https://10.0.0.7:443/redfish/v1/TaskService/1", true),
            ("https://evil.example/redfish", false),
            ("//evil.example/x", false),
            ("@evil.example/x", false),
            ("/redfish/../../x", false),
            ("/redfish/v1/a b", false),
        ] {
            assert_eq!(client.own_path(link).is_ok(), good, "{link}");
        }
    }

    #[test]
    fn a_password_is_never_sent_in_the_clear_beyond_loopback() {
        assert!(client("127.0.0.1:8000", RedfishTrust::Plain).is_ok());
        let refused = client("10.0.0.7:80", RedfishTrust::Plain).err().unwrap();
        assert!(matches!(refused.kind, ErrorKind::Unusable { .. }), "{refused}");
    }

    #[test]
    fn a_word_for_power_that_is_neither_on_nor_off_is_unknown() {
        let client = client("127.0.0.1:8000", RedfishTrust::Plain).ok().unwrap();
        let at = Timestamp::from_millis(1);
        for (body, want) in [
            (r#"{"PowerState":"On"}"#, "on, says redfish 127.0.0.1"),
            (r#"{"PowerState":"Off","Boot":null,"Actions":null}"#, "off, says redfish 127.0.0.1"),
            (r#"{"PowerState":"PoweringOff"}"#, "unknown (redfish 127.0.0.1: the BMC says PoweringOff)"),
            (r#"{"PowerState":null}"#, "unknown (redfish 127.0.0.1: the BMC does not say)"),
            (r#"{"Unheard":{"Of":[1]}}"#, "unknown (redfish 127.0.0.1: the BMC does not say)"),
        ] {
            let system: System = serde_json::from_str(body).unwrap();
            assert_eq!(client.reading(&system, at).to_string(), want);
        }
    }

    #[test]
    fn an_error_shows_the_extended_words_and_never_the_password() {
        let answer = |status: u16, body: &'static str| Answer {
            status: StatusCode::from_u16(status).unwrap(),
            headers: HeaderMap::new(),
            body: Bytes::from(body),
        };
        let body =
            r#"{"error":{"code":"x","message":"general","@Message.ExtendedInfo":[{"Message":"hunter22 is bad"}]}}"#;
        let kind = judged(answer(400, body), false, "hunter22").err().unwrap();
        assert_eq!(kind, ErrorKind::Refused { status: 400, message: "*** is bad".to_owned() });
        let kind = judged(answer(501, "{}"), true, "hunter22").err().unwrap();
        assert!(matches!(kind, ErrorKind::NotOffered { .. }), "{kind}");
    }
}
