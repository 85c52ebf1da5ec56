//! The boundary to a region: one request, one answer. Over HTTP here; a simulated region implements it in memory.

use std::borrow::Cow;
use std::time::Duration;

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use http::{HeaderMap, Method, StatusCode};
use lattice_core::secret::Secret;

use crate::error::{ErrorKind, ProviderError};
use crate::message;

/// Sends requests to one region.
#[async_trait]
pub trait MaasTransport: Send + Sync {
    /// Sends `request` and waits for the whole answer, whatever its status.
    ///
    /// # Errors
    /// [`ErrorKind::Unreachable`] and [`ErrorKind::BadCertificate`] only when nothing was sent; [`ErrorKind::Timeout`]
    /// when the answer did not come within the request's limit; [`ErrorKind::Ambiguous`] when the connection broke
    /// after sending; [`ErrorKind::Malformed`] when the answer is larger than the request allows.
    async fn send(&self, request: &MaasRequest) -> Result<MaasResponse, ProviderError>;
}

/// One request to the region. It has no `Debug`: parameters and headers hold secrets.
pub struct MaasRequest {
    /// Name of the call in errors and counters: `machines.deploy`.
    pub call: &'static str,
    /// GET, POST, PUT or DELETE.
    pub method: Method,
    /// Path below the API root, with its trailing slash: `machines/abc123/`.
    pub path: String,
    /// Parameters of the query string, `op` among them. Repeated keys are a list.
    pub query: Params,
    /// Parameters of the form body. Repeated keys are a list.
    pub form: Params,
    /// `Authorization`, marked as sensitive.
    pub headers: HeaderMap,
    /// Longest wait for the whole answer.
    pub timeout: Duration,
    /// Largest body of an answer, in bytes.
    pub body_limit: usize,
}

/// What the region answered.
#[derive(Debug, Clone)]
pub struct MaasResponse {
    /// HTTP status.
    pub status: StatusCode,
    /// `Content-Type` and `Retry-After` matter.
    pub headers: HeaderMap,
    /// The whole body.
    pub body: Bytes,
}

/// Parameters in the order in which they are sent.
#[derive(Default, Clone)]
pub struct Params(Vec<(Cow<'static, str>, Value)>);

#[derive(Clone)]
enum Value {
    Plain(String),
    Secret(Secret<String>),
}

impl Params {
    /// None.
    pub const fn new() -> Self {
        Self(Vec::new())
    }

    /// Adds a parameter.
    #[must_use]
    pub fn with(mut self, name: impl Into<Cow<'static, str>>, value: impl ToString) -> Self {
        self.0.push((name.into(), Value::Plain(value.to_string())));
        self
    }

    /// Adds a parameter when it has a value.
    #[must_use]
    pub fn with_some(self, name: &'static str, value: Option<impl ToString>) -> Self {
        match value {
            Some(value) => self.with(name, value),
            None => self,
        }
    }

    /// Adds one parameter per value, all of one name: a list.
    #[must_use]
    pub fn with_each(self, name: &'static str, values: impl IntoIterator<Item = impl ToString>) -> Self {
        values.into_iter().fold(self, |params, value| params.with(name, value))
    }

    /// Adds a parameter that must not appear in any text.
    #[must_use]
    pub fn with_secret(mut self, name: impl Into<Cow<'static, str>>, value: Secret<String>) -> Self {
        self.0.push((name.into(), Value::Secret(value)));
        self
    }

    /// Names and values, secrets included: for the wire.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| match value {
            Value::Plain(text) => (name.as_ref(), text.as_str()),
            Value::Secret(secret) => (name.as_ref(), secret.expose().as_str()),
        })
    }

    /// The values that must not appear in any text.
    pub fn secrets(&self) -> impl Iterator<Item = &str> {
        self.0.iter().filter_map(|(_, value)| match value {
            Value::Plain(_) => None,
            Value::Secret(secret) => Some(secret.expose().as_str()),
        })
    }

    /// Whether there is none.
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Which certificate authorities a region's certificate may come from.
pub enum Roots {
    /// Those of the operating system.
    System,
    /// These alone, as PEM.
    Pem(Vec<u8>),
}

/// HTTP to a region. Redirects are not followed and no proxy is used: the credential goes nowhere else.
pub struct HttpTransport {
    client: reqwest::Client,
    root: String,
}

impl HttpTransport {
    /// Longest wait for a connection: a region is in the same network.
    const CONNECT: Duration = Duration::from_secs(5);
    /// Idle connections that are kept; MAAS serves a request per worker process.
    const IDLE_CONNECTIONS: usize = 8;

    /// A transport to the region at `base_url`, such as `http://10.176.46.1:5240/MAAS`.
    ///
    /// # Errors
    /// The URL or the certificates cannot be used.
    pub fn new(base_url: &str, roots: &Roots) -> Result<Self, ProviderError> {
        let unusable = |what: &str| ProviderError::unusable("maas connect", what);
        let url =
            reqwest::Url::parse(base_url).map_err(|error| unusable(&format!("the base URL is wrong: {error}")))?;
        if !matches!(url.scheme(), "http" | "https") || url.host_str().is_none() {
            return Err(unusable("the base URL must be http://… or https://… with a host"));
        }
        if !url.username().is_empty() || url.password().is_some() || url.query().is_some() {
            return Err(unusable("the base URL must hold neither a login nor a query"));
        }
        let builder = reqwest::Client::builder()
            .redirect(reqwest::redirect::Policy::none())
            .no_proxy()
            .http1_only()
            .connect_timeout(Self::CONNECT)
            .pool_max_idle_per_host(Self::IDLE_CONNECTIONS);
        let builder = match (url.scheme(), roots) {
            // Without TLS there is nothing to verify; the system's authorities need not even be there.
            ("http", _) => builder.tls_certs_only([]),
            (_, Roots::System) => builder,
            (_, Roots::Pem(pem)) => {
                let certificates = reqwest::Certificate::from_pem_bundle(pem)
                    .ok()
                    .filter(|certificates| !certificates.is_empty())
                    .ok_or_else(|| unusable("the certificate authorities are not PEM"))?;
                builder.tls_certs_only(certificates)
            }
        };
        let client = builder.build().map_err(|error| unusable(&chain(&error.without_url())))?;
        let root = format!("{}/api/2.0/", url.as_str().trim_end_matches('/'));
        Ok(Self { client, root })
    }

    async fn exchange(&self, request: &MaasRequest) -> Result<MaasResponse, ErrorKind> {
        let mut builder = self
            .client
            .request(request.method.clone(), format!("{}{}", self.root, request.path))
            .headers(request.headers.clone())
            .timeout(request.timeout);
        if !request.query.is_empty() {
            builder = builder.query(&request.query.iter().collect::<Vec<_>>());
        }
        if request.method == Method::POST || request.method == Method::PUT {
            builder = builder.form(&request.form.iter().collect::<Vec<_>>());
        }
        let failed = |error: reqwest::Error| judge(error, request.timeout);
        let mut response = builder.send().await.map_err(failed)?;
        let (status, headers) = (response.status(), std::mem::take(response.headers_mut()));
        let mut body = BytesMut::new();
        while let Some(chunk) = response.chunk().await.map_err(failed)? {
            if body.len() + chunk.len() > request.body_limit {
                return Err(ErrorKind::Malformed {
                    what: format!("the answer is larger than {} bytes", request.body_limit),
                });
            }
            body.extend_from_slice(&chunk);
        }
        Ok(MaasResponse { status, headers, body: body.freeze() })
    }
}

#[async_trait]
impl MaasTransport for HttpTransport {
    async fn send(&self, request: &MaasRequest) -> Result<MaasResponse, ProviderError> {
        self.exchange(request).await.map_err(|kind| ProviderError::new(format!("maas {}", request.call), kind))
    }
}

/// What a failed exchange says about whether the request was sent.
pub(crate) fn judge(error: reqwest::Error, limit: Duration) -> ErrorKind {
    let (connecting, timed_out) = (error.is_connect(), error.is_timeout());
    let detail = message::bounded(&chain(&error.without_url()));
    if connecting && detail.to_ascii_lowercase().contains("certificate") {
        ErrorKind::BadCertificate { detail }
    } else if connecting {
        ErrorKind::Unreachable { detail }
    } else if timed_out {
        ErrorKind::Timeout { limit }
    } else {
        ErrorKind::Ambiguous { detail }
    }
}

/// An error with its sources, in one line.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}
