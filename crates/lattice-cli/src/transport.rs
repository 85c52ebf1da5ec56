//! Carries requests over HTTP.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use lattice_api::client::{Call, Chunks, Lost, Transport};
use reqwest::StatusCode;

use crate::connection::{Connection, is_loopback};
use crate::failure::Failure;

/// Longest wait for a connection: a server that is up answers at once, one behind a dead link never.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Longest silence within an answer: longer than the pause between two keep-alives of a stream.
const READ_TIMEOUT: Duration = Duration::from_secs(60);

/// HTTP to one server.
#[derive(Debug, Clone)]
pub struct Http {
    client: reqwest::Client,
    server: String,
    token: Option<reqwest::header::HeaderValue>,
    /// The `Date` of the last answer, in milliseconds since 1970 UTC; 0: none yet.
    server_time: Arc<AtomicI64>,
}

impl Http {
    /// Over that connection.
    ///
    /// # Errors
    /// The token or the certificates cannot be used.
    pub fn new(connection: &Connection) -> Result<Self, Failure> {
        let mut builder = reqwest::Client::builder()
            .user_agent(concat!("lattice/", env!("CARGO_PKG_VERSION")))
            .connect_timeout(CONNECT_TIMEOUT)
            .read_timeout(READ_TIMEOUT)
            .redirect(reqwest::redirect::Policy::none())
            .tls_version_min(reqwest::tls::Version::TLS_1_3);
        if connection.server.split_once("://").is_some_and(|(_, rest)| is_loopback(rest)) {
            builder = builder.no_proxy();
        }
        if let Some(pem) = &connection.ca_pem {
            let certificates = reqwest::Certificate::from_pem_bundle(pem).map_err(|error| {
                Failure::refused("the certificates of --ca-file cannot be used").because(error.to_string())
            })?;
            builder = builder.tls_certs_merge(certificates);
        }
        let client = builder.build().map_err(|error| Failure::unexpected("cannot start").because(error.to_string()))?;
        let token = match &connection.token {
            Some(token) => Some(bearer(token)?),
            None => None,
        };
        Ok(Self { client, server: connection.server.clone(), token, server_time: Arc::default() })
    }

    /// What time it was at the server when it answered last, in milliseconds since 1970 UTC.
    pub fn server_time(&self) -> Option<i64> {
        Some(self.server_time.load(Ordering::Relaxed)).filter(|time| *time > 0)
    }

    /// The server's address.
    pub fn server(&self) -> &str {
        &self.server
    }

    fn lost(&self, error: &reqwest::Error) -> Lost {
        let mut why = error.to_string();
        let mut source = std::error::Error::source(error);
        while let Some(deeper) = source {
            why = deeper.to_string();
            source = deeper.source();
        }
        Lost { server: self.server.clone(), why }
    }
}

fn bearer(token: &str) -> Result<reqwest::header::HeaderValue, Failure> {
    let mut value = reqwest::header::HeaderValue::from_str(&format!("Bearer {token}"))
        .map_err(|_| Failure::refused("the token holds characters that no token has"))?;
    value.set_sensitive(true);
    Ok(value)
}

impl Transport for Http {
    type Body = Body;

    async fn send(&self, call: Call) -> Result<(StatusCode, Body), Lost> {
        let mut request = self.client.request(call.method, format!("{}{}", self.server, call.path));
        for (name, value) in call.headers {
            request = request.header(name, value);
        }
        if let Some(token) = &self.token {
            request = request.header(reqwest::header::AUTHORIZATION, token.clone());
        }
        if let Some(body) = call.body {
            request = request.body(body);
        }
        let response = request.send().await.map_err(|error| self.lost(&error))?;
        let date = response.headers().get(reqwest::header::DATE).and_then(|date| date.to_str().ok());
        if let Some(time) = date.and_then(|date| httpdate::parse_http_date(date).ok()) {
            let since = time.duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
            self.server_time.store(i64::try_from(since.as_millis()).unwrap_or(0), Ordering::Relaxed);
        }
        Ok((response.status(), Body { response, transport: self.clone() }))
    }
}

/// A body that arrives.
#[derive(Debug)]
pub struct Body {
    response: reqwest::Response,
    transport: Http,
}

impl Chunks for Body {
    async fn chunk(&mut self) -> Result<Option<bytes::Bytes>, Lost> {
        self.response.chunk().await.map_err(|error| self.transport.lost(&error))
    }
}
