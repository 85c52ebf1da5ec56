//! Requests to the services of one OpenCHAMI site.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderMap, Method, StatusCode};
use lattice_core::secret::Secret;
use lattice_core::time::{Clock, Timestamp};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::error::{ErrorKind, ProviderError};
use crate::machine::maas::transport::{Roots, chain, judge};
use crate::message;

/// Where the services of a site are.
pub struct OchamiSettings {
    /// State Manager: `https://smd.site:27779`.
    pub smd: String,
    /// Boot Script Service: `https://bss.site:27778`.
    pub bss: String,
    /// Power Control; none: the site has none.
    pub pcs: Option<String>,
    /// Which authorities sign their certificates.
    pub roots: Roots,
}

/// A client of the services of one site.
pub struct OchamiClient {
    http: reqwest::Client,
    smd: String,
    bss: String,
    pcs: Option<String>,
    token: Option<Secret<String>>,
    clock: Arc<dyn Clock>,
}

/// Which service a request goes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Service {
    Smd,
    Bss,
    Pcs,
}

/// An answer that is no error.
pub(super) struct Answer {
    status: StatusCode,
    headers: HeaderMap,
    pub(super) body: Bytes,
}

impl OchamiClient {
    const CONNECT: Duration = Duration::from_secs(5);
    /// smd needs about a second for a thousand components.
    const ANSWER: Duration = Duration::from_secs(30);
    /// Largest answer, in bytes: 10,000 components of 300 bytes, with room.
    const LARGEST: usize = 16 << 20;
    const LATER: Duration = Duration::from_secs(5);

    /// A client; `token` is the bearer token of services that ask for one.
    ///
    /// # Errors
    /// An address or the authorities cannot be used.
    pub fn new(
        settings: OchamiSettings,
        token: Option<Secret<String>>,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, ProviderError> {
        let unusable = |what: &str| ProviderError::unusable("openchami connect", what);
        let builder = reqwest::Client::builder()
            .redirect(reqwest::redirect::Policy::none())
            .no_proxy()
            .http1_only()
            .connect_timeout(Self::CONNECT);
        let builder = match &settings.roots {
            Roots::System => builder,
            Roots::Pem(pem) => {
                let certificates = reqwest::Certificate::from_pem_bundle(pem)
                    .ok()
                    .filter(|certificates| !certificates.is_empty())
                    .ok_or_else(|| unusable("the certificate authorities are not PEM"))?;
                builder.tls_certs_only(certificates)
            }
        };
        let http = builder.build().map_err(|error| unusable(&chain(&error.without_url())))?;
        let OchamiSettings { smd, bss, pcs, .. } = settings;
        let pcs = pcs.map(|url| base(&url)).transpose()?;
        Ok(Self { http, smd: base(&smd)?, bss: base(&bss)?, pcs, token, clock })
    }

    pub(super) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Reads JSON.
    pub(super) async fn read<T: DeserializeOwned>(
        &self,
        call: &'static str,
        service: Service,
        path: &str,
        query: &[(&str, &str)],
    ) -> Result<T, ProviderError> {
        let answer = self.send(call, service, Method::GET, path, query, None).await?;
        answer.json(call)
    }

    /// Sends one request.
    pub(super) async fn send(
        &self,
        call: &'static str,
        service: Service,
        method: Method,
        path: &str,
        query: &[(&str, &str)],
        body: Option<&Value>,
    ) -> Result<Answer, ProviderError> {
        let error = |kind| ProviderError::new(format!("openchami {call}"), kind);
        let root = match service {
            Service::Smd => &self.smd,
            Service::Bss => &self.bss,
            Service::Pcs => self
                .pcs
                .as_ref()
                .ok_or_else(|| ProviderError::not_offered(call, "this site has no power control service"))?,
        };
        let reads = method == Method::GET;
        let mut builder = self.http.request(method, format!("{root}{path}")).query(query).timeout(Self::ANSWER);
        if let Some(token) = &self.token {
            builder = builder.bearer_auth(token.expose());
        }
        if let Some(body) = body {
            builder = builder.json(body);
        }
        let answer = self.exchange(builder).await.map_err(|kind| error(lost(kind, reads)))?;
        let secret = self.token.as_ref().map_or("", |token| token.expose().as_str());
        judged(answer, reads, secret).map_err(error)
    }

    async fn exchange(&self, builder: reqwest::RequestBuilder) -> Result<Answer, ErrorKind> {
        let failed = |error: reqwest::Error| judge(error, Self::ANSWER);
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
}

impl Answer {
    /// Its body. An unknown path of smd answers 200 with nothing: that is no answer.
    pub(super) fn json<T: DeserializeOwned>(&self, call: &str) -> Result<T, ProviderError> {
        let name = || format!("openchami {call}");
        let kind = self.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
        if self.body.is_empty()
            || !(kind.starts_with("application/json") || kind.starts_with("application/problem+json"))
        {
            return Err(ProviderError::malformed(name(), "the address has no such service: its answer is no JSON"));
        }
        serde_json::from_slice(&self.body)
            .map_err(|_| ProviderError::malformed(name(), "the answer is not what the contract promises"))
    }

    /// Its body as text.
    pub(super) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

/// bss closes the connection without an answer when it panics: a look may be made again, later.
fn lost(kind: ErrorKind, reads: bool) -> ErrorKind {
    match kind {
        ErrorKind::Ambiguous { .. } if reads => ErrorKind::RetryLater { after: OchamiClient::LATER },
        ErrorKind::Timeout { limit } if !reads => {
            ErrorKind::Ambiguous { detail: format!("no answer within {} ms", limit.as_millis()) }
        }
        other => other,
    }
}

fn judged(answer: Answer, reads: bool, secret: &str) -> Result<Answer, ErrorKind> {
    let status = answer.status.as_u16();
    if answer.status.is_success() {
        return Ok(answer);
    }
    let text = || {
        let detail = serde_json::from_slice::<Value>(&answer.body).ok();
        let detail = detail.and_then(|problem| Some(problem["detail"].as_str()?.to_owned()));
        match detail {
            Some(detail) => message::bounded(&message::without_secrets(detail, &[secret])),
            None => message::of_body(&answer.body, &[secret]),
        }
    };
    Err(match status {
        401 => ErrorKind::Unauthorised { message: text() },
        403 => ErrorKind::Forbidden { message: text() },
        404 => ErrorKind::NotFound { message: text() },
        405 | 501 => ErrorKind::NotOffered { what: text() },
        429 | 503 => ErrorKind::RetryLater { after: retry_after(&answer.headers) },
        502 | 504 if !reads => ErrorKind::Ambiguous { detail: format!("{status} {}", text()) },
        300..=399 => ErrorKind::Malformed { what: format!("redirected with {status}") },
        400..=499 => ErrorKind::Refused { status, message: text() },
        _ => ErrorKind::ServerFailed { status, message: text() },
    })
}

fn retry_after(headers: &HeaderMap) -> Duration {
    let seconds = headers.get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.trim().parse().ok());
    seconds.map_or(OchamiClient::LATER, Duration::from_secs).min(Duration::from_secs(120))
}

fn base(text: &str) -> Result<String, ProviderError> {
    let unusable = |what: &str| ProviderError::unusable("openchami connect", what);
    let url = reqwest::Url::parse(text).map_err(|_| unusable("a service's address is no URL"))?;
    let good = matches!(url.scheme(), "http" | "https")
        && url.host_str().is_some()
        && url.username().is_empty()
        && url.password().is_none()
        && url.query().is_none();
    if good {
        Ok(url.as_str().trim_end_matches('/').to_owned())
    } else {
        Err(unusable("a service's address must be http://… or https://… without a login and without a query"))
    }
}
