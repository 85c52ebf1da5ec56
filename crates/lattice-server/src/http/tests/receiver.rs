//! A receiver of events on loopback: it answers as told, and keeps what it got.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::stream;
use http::{HeaderMap, StatusCode, header};
use http_body_util::BodyExt;
use serde_json::Value;
use tokio::sync::watch;

/// What it says to one request.
#[derive(Debug, Clone)]
pub enum Says {
    /// That status, and a few words.
    Status(u16, &'static str),
    /// Look there instead.
    Elsewhere(String),
    /// A megabyte after the other.
    Endless,
    /// Nothing at all.
    Nothing,
}

/// One request.
#[derive(Debug, Clone)]
pub struct Got {
    /// Its headers.
    pub headers: HeaderMap,
    /// Its body as it came.
    pub body: Bytes,
}

impl Got {
    /// The value of a header.
    pub fn header(&self, name: &str) -> &str {
        self.headers[name].to_str().unwrap()
    }

    /// The event.
    pub fn event(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }

    /// Its place in the feed.
    pub fn seq(&self) -> u64 {
        self.header("lattice-event-id").parse().unwrap()
    }

    /// Whether one of its signatures is that of the key. As docs/guides/webhooks.md says.
    pub fn is_signed_with(&self, key: &str) -> bool {
        use aws_lc_rs::hmac;
        let signed = [
            format!("{}.{}.", self.header("lattice-timestamp"), self.header("lattice-event-id")).as_bytes(),
            self.body.as_ref(),
        ]
        .concat();
        let wanted = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key.as_bytes()), &signed);
        let wanted = format!("v1={}", hex::encode(wanted.as_ref()));
        self.header("lattice-signature").split(',').any(|one| one == wanted)
    }
}

struct Inside {
    got: Mutex<Vec<Got>>,
    says: Mutex<VecDeque<Says>>,
    count: watch::Sender<usize>,
}

/// A receiver.
#[derive(Clone)]
pub struct Receiver {
    address: SocketAddr,
    inside: Arc<Inside>,
}

impl Receiver {
    /// One that takes everything.
    pub async fn start() -> Self {
        let socket = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = socket.local_addr().unwrap();
        let inside = Arc::new(Inside { got: Mutex::default(), says: Mutex::default(), count: watch::Sender::new(0) });
        let router = Router::new().fallback(take).with_state(inside.clone());
        tokio::spawn(async move { axum::serve(socket, router).await });
        Self { address, inside }
    }

    /// Where it is.
    pub fn url(&self) -> String {
        format!("http://{}/hook?word=hunter2", self.address)
    }

    /// The same by name.
    pub fn url_by_name(&self) -> String {
        format!("http://localhost:{}/hook", self.address.port())
    }

    /// What it says next, before it takes everything again.
    pub fn will_say(&self, says: impl IntoIterator<Item = Says>) {
        self.inside.says.lock().unwrap().extend(says);
    }

    /// Everything that it got so far.
    pub fn got(&self) -> Vec<Got> {
        self.inside.got.lock().unwrap().clone()
    }

    /// The places of all events that it got.
    pub fn seqs(&self) -> Vec<u64> {
        self.got().iter().map(Got::seq).collect()
    }

    /// Waits until it got so many.
    pub async fn has(&self, count: usize) -> Vec<Got> {
        self.inside.count.subscribe().wait_for(|have| *have >= count).await.unwrap();
        self.got()
    }
}

async fn take(State(inside): State<Arc<Inside>>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    let says = inside.says.lock().unwrap().pop_front();
    inside.got.lock().unwrap().push(Got { headers: parts.headers, body });
    inside.count.send_modify(|count| *count += 1);
    match says.unwrap_or(Says::Status(204, "")) {
        Says::Status(status, words) => (StatusCode::from_u16(status).unwrap(), words).into_response(),
        Says::Elsewhere(place) => (StatusCode::FOUND, [(header::LOCATION, place)]).into_response(),
        Says::Endless => {
            let piece = Bytes::from(vec![b'x'; 1 << 20]);
            let pieces = stream::repeat_with(move || Ok::<_, std::convert::Infallible>(piece.clone()));
            Body::from_stream(pieces).into_response()
        }
        Says::Nothing => std::future::pending().await,
    }
}
