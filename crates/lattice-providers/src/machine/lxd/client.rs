//! Requests to one LXD server, in one project.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, Method, StatusCode};
use lattice_core::secret::Secret;
use lattice_core::time::{Clock, Timestamp};
use serde::de::DeserializeOwned;

use super::tls::{self, LxdCredentials};
use super::wire::Envelope;
use crate::error::{ErrorKind, ProviderError};
use crate::machine::maas::transport::judge;

/// Where an LXD server is and which part of it is ours.
#[derive(Debug, Clone)]
pub struct LxdSettings {
    /// `https://127.0.0.1:18443`.
    pub api_url: String,
    /// Project of the instances.
    pub project: String,
}

/// A client of one LXD server. What it can do is in the traits that it implements.
pub struct LxdClient {
    http: reqwest::Client,
    settings: LxdSettings,
    clock: Arc<dyn Clock>,
}

/// A request before it is sent.
pub(super) struct Request {
    pub(super) call: &'static str,
    method: Method,
    path: String,
    query: Vec<(&'static str, String)>,
    headers: HeaderMap,
    body: Secret<Vec<u8>>,
    secrets: Vec<Secret<String>>,
    timeout: Duration,
    largest: usize,
    cut: Cut,
}

/// What to do with an answer that is larger than wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cut {
    Refuse,
    KeepBeginning,
}

/// An answer's status and body; the body may be only its beginning.
pub(super) struct Answer {
    pub(super) status: StatusCode,
    pub(super) etag: Option<String>,
    pub(super) body: Bytes,
    pub(super) truncated: bool,
}

impl Request {
    /// Longest wait for an ordinary answer: all long work is an operation that is waited for apart.
    const ORDINARY: Duration = Duration::from_secs(30);
    /// Largest answer, in bytes: 1,000 instances of 8 KB, with room.
    const LARGEST: usize = 64 << 20;

    pub(super) fn new(call: &'static str, method: Method, path: impl Into<String>) -> Self {
        Self {
            call,
            method,
            path: path.into(),
            query: Vec::new(),
            headers: HeaderMap::new(),
            body: Secret::new(Vec::new()),
            secrets: Vec::new(),
            timeout: Self::ORDINARY,
            largest: Self::LARGEST,
            cut: Cut::Refuse,
        }
    }

    pub(super) fn query(mut self, name: &'static str, value: impl ToString) -> Self {
        self.query.push((name, value.to_string()));
        self
    }

    pub(super) fn header(mut self, name: &'static str, value: &str) -> Self {
        let value = value.parse().expect("our own header values are printable ASCII");
        self.headers.insert(name, value);
        self
    }

    pub(super) fn json(self, body: &serde_json::Value) -> Self {
        self.bytes(Secret::new(body.to_string().into_bytes()))
    }

    pub(super) fn bytes(mut self, body: Secret<Vec<u8>>) -> Self {
        self.body = body;
        self
    }

    /// A text of the body that no error may show.
    pub(super) fn hiding(mut self, secret: Option<&Secret<String>>) -> Self {
        self.secrets.extend(secret.cloned());
        self
    }

    pub(super) const fn within(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Keep only the first bytes of the answer.
    pub(super) const fn beginning(mut self, bytes: usize) -> Self {
        self.largest = bytes;
        self.cut = Cut::KeepBeginning;
        self
    }
}

impl LxdClient {
    /// Longest wait for a connection.
    const CONNECT: Duration = Duration::from_secs(5);

    /// A client of the server with the pinned certificate.
    ///
    /// # Errors
    /// The URL, a certificate or the key cannot be used.
    pub fn new(
        settings: LxdSettings,
        credentials: &LxdCredentials,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, ProviderError> {
        let unusable = |what: &str| ProviderError::unusable("lxd connect", what);
        let url = reqwest::Url::parse(&settings.api_url).map_err(|_| unusable("the API URL is not a URL"))?;
        if url.scheme() != "https" || url.query().is_some() || !url.username().is_empty() {
            return Err(unusable("the API URL must be https://host:port"));
        }
        let http = reqwest::Client::builder()
            .tls_backend_preconfigured(tls::config(credentials)?)
            .redirect(reqwest::redirect::Policy::none())
            .no_proxy()
            .http1_only()
            .connect_timeout(Self::CONNECT)
            .build()
            .map_err(|_| unusable("the TLS configuration is not usable"))?;
        let settings = LxdSettings { api_url: settings.api_url.trim_end_matches('/').to_owned(), ..settings };
        Ok(Self { http, settings, clock })
    }

    pub(super) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Sends a request that answers with an envelope, and reads its metadata.
    pub(super) async fn read<T: DeserializeOwned>(&self, request: Request) -> Result<T, ProviderError> {
        let call = request.call;
        self.envelope(request).await.and_then(|(envelope, _)| metadata(call, envelope))
    }

    /// Sends a request that answers with an envelope.
    pub(super) async fn envelope(&self, request: Request) -> Result<(Envelope, Option<String>), ProviderError> {
        let answer = self.send(&request).await?;
        let name = || format!("lxd {}", request.call);
        let envelope: Envelope = serde_json::from_slice(&answer.body)
            .map_err(|_| ProviderError::malformed(name(), "the answer is not LXD's JSON"))?;
        let secrets: Vec<&str> = request.secrets.iter().map(|secret| secret.expose().as_str()).collect();
        match envelope.failure(answer.status, &secrets) {
            Some(kind) => Err(ProviderError::new(name(), kind)),
            None => Ok((envelope, answer.etag)),
        }
    }

    /// Sends a request and takes the answer as it is.
    pub(super) async fn send(&self, request: &Request) -> Result<Answer, ProviderError> {
        self.exchange(request).await.map_err(|kind| ProviderError::new(format!("lxd {}", request.call), kind))
    }

    async fn exchange(&self, request: &Request) -> Result<Answer, ErrorKind> {
        let reads = request.method == Method::GET;
        let failed = |error: reqwest::Error| match judge(error, request.timeout) {
            ErrorKind::Timeout { limit } if !reads => {
                ErrorKind::Ambiguous { detail: format!("no answer within {} ms", limit.as_millis()) }
            }
            other => other,
        };
        let mut builder = self
            .http
            .request(request.method.clone(), format!("{}{}", self.settings.api_url, request.path))
            .query(&request.query)
            .query(&[("project", &self.settings.project)])
            .headers(request.headers.clone())
            .timeout(request.timeout);
        if !request.body.expose().is_empty() {
            builder = builder.body(request.body.expose().clone());
        }
        let mut response = builder.send().await.map_err(failed)?;
        let status = response.status();
        let etag = response.headers().get(http::header::ETAG).and_then(|value| Some(value.to_str().ok()?.to_owned()));
        let mut body = BytesMut::new();
        let mut truncated = false;
        while let Some(chunk) = response.chunk().await.map_err(failed)? {
            let room = request.largest - body.len();
            body.extend_from_slice(&chunk[..chunk.len().min(room)]);
            if chunk.len() > room {
                truncated = true;
                break;
            }
        }
        if truncated && request.cut == Cut::Refuse {
            return Err(ErrorKind::Malformed { what: format!("the answer is larger than {} bytes", request.largest) });
        }
        Ok(Answer { status, etag, body: body.freeze(), truncated })
    }
}

/// Reads an envelope's metadata; the parser's words are not passed on, since they quote values.
pub(super) fn metadata<T: DeserializeOwned>(call: &str, envelope: Envelope) -> Result<T, ProviderError> {
    serde_json::from_value(envelope.metadata)
        .map_err(|_| ProviderError::malformed(format!("lxd {call}"), "the answer's metadata has another form"))
}

/// A name that can be part of a path: LXD allows no other for instances.
pub(super) fn checked_name(name: &str) -> Result<&str, ProviderError> {
    let good = (1..=63).contains(&name.len()) && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
    if good {
        Ok(name)
    } else {
        Err(ProviderError::unusable("lxd instances", "an instance's name has 1 to 63 letters, digits or hyphens"))
    }
}
