//! What the simulated services share: one request in, one answer out.

use std::sync::Arc;
use std::time::Duration;

use ::http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use crate::stop::{Stop, spawn_until_stopped};

/// Largest body that is taken.
const MAX_BODY_BYTES: usize = 4 << 20;

/// One request.
pub struct Asked<'a> {
    pub(super) method: &'a Method,
    pub(super) path: &'a str,
    pub(super) query: Vec<(String, String)>,
    pub(super) headers: &'a HeaderMap,
    pub(super) body: Value,
}

impl Asked<'_> {
    /// A parameter of the query.
    pub(super) fn query(&self, name: &str) -> Option<&str> {
        self.query.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }
}

/// One answer.
pub struct Answered {
    status: StatusCode,
    kind: &'static str,
    body: Bytes,
    /// The connection is closed without an answer, as by a panic.
    is_lost: bool,
    /// How long it takes.
    delay: Duration,
}

impl Answered {
    pub(super) fn json(status: StatusCode, body: &Value) -> Self {
        let bytes = if body.is_null() { Bytes::new() } else { Bytes::from(body.to_string()) };
        Self { status, kind: "application/json", body: bytes, is_lost: false, delay: Duration::ZERO }
    }

    pub(super) fn ok(body: &Value) -> Self {
        Self::json(StatusCode::OK, body)
    }

    pub(super) fn nothing() -> Self {
        Self::json(StatusCode::NO_CONTENT, &Value::Null)
    }

    pub(super) fn text(body: impl Into<Bytes>) -> Self {
        Self {
            status: StatusCode::OK,
            kind: "text/plain; charset=UTF-8",
            body: body.into(),
            is_lost: false,
            delay: Duration::ZERO,
        }
    }

    /// An unknown path of State Manager: 200, and nothing.
    pub(super) fn empty() -> Self {
        Self::text("")
    }

    pub(super) fn lost() -> Self {
        Self { is_lost: true, ..Self::empty() }
    }

    /// The same, after that time.
    pub(super) fn after(self, delay: Duration) -> Self {
        Self { delay, ..self }
    }

    pub(super) fn problem(status: StatusCode, detail: &str) -> Self {
        let body = json!({
            "type": "about:blank", "title": status.canonical_reason().unwrap_or_default(), "detail": detail,
            "status": status.as_u16(),
        });
        Self { kind: "application/problem+json", ..Self::json(status, &body) }
    }
}

/// A simulated service.
pub trait Answers: Send + Sync + 'static {
    /// Answers one request.
    fn answer(&self, asked: &Asked<'_>) -> Answered;
}

/// Serves a service on `listener` until stopped.
pub fn serve(listener: TcpListener, service: Arc<dyn Answers>) -> Stop {
    spawn_until_stopped(async move {
        let mut connections = JoinSet::new();
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                Some(_) = connections.join_next() => continue,
            };
            let Ok((stream, _)) = accepted else { continue };
            let service = Arc::clone(&service);
            connections.spawn(async move {
                let answers = service_fn(move |request| answer(request, Arc::clone(&service)));
                // A connection that breaks is its client's affair.
                let _ended = http1::Builder::new().serve_connection(TokioIo::new(stream), answers).await;
            });
        }
    })
}

async fn answer(
    request: Request<Incoming>,
    service: Arc<dyn Answers>,
) -> Result<Response<Full<Bytes>>, std::io::Error> {
    let (parts, body) = request.into_parts();
    let body = Limited::new(body, MAX_BODY_BYTES).collect().await.map(|body| body.to_bytes()).unwrap_or_default();
    let asked = Asked {
        method: &parts.method,
        path: parts.uri.path().trim_end_matches('/'),
        query: pairs(parts.uri.query().unwrap_or_default()),
        headers: &parts.headers,
        body: serde_json::from_slice(&body).unwrap_or(Value::Null),
    };
    let answered = service.answer(&asked);
    tokio::time::sleep(answered.delay).await;
    if answered.is_lost {
        return Err(std::io::Error::other("the service panicked"));
    }
    let mut response = Response::new(Full::new(answered.body));
    *response.status_mut() = answered.status;
    response.headers_mut().insert(::http::header::CONTENT_TYPE, HeaderValue::from_static(answered.kind));
    Ok(response)
}

fn pairs(query: &str) -> Vec<(String, String)> {
    let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    pairs.map(|(key, value)| (key.to_owned(), value.replace("%3A", ":").replace("%3a", ":"))).collect()
}
