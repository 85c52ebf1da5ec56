//! The typed client. It brings no transport of its own, so that the agent need not carry one and tests need no socket.

mod resources;

pub use resources::{ADMIN, get, post};

use std::future::Future;

use bytes::Bytes;
use http::{Method, StatusCode};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::Problem;
use crate::event::Event;
use crate::sse;

/// Carries requests to a server: the IO boundary of the client.
pub trait Transport: Send + Sync {
    /// A response body that arrives in pieces.
    type Body: Chunks;
    /// Sends a request and gives the status and the body as it arrives.
    ///
    /// # Errors
    /// The server could not be reached, or the connection broke.
    fn send(&self, call: Call) -> impl Future<Output = Result<(StatusCode, Self::Body), Lost>> + Send;
}

/// A body that arrives in pieces.
pub trait Chunks: Send {
    /// The next piece; none at the end.
    ///
    /// # Errors
    /// The connection broke.
    fn chunk(&mut self) -> impl Future<Output = Result<Option<Bytes>, Lost>> + Send;
}

/// A request, ready to be sent. The transport adds the server's address and the caller's credential.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    /// Method.
    pub method: Method,
    /// Path with its query.
    pub path: String,
    /// Headers beside those of the transport, by lower-case name.
    pub headers: Vec<(&'static str, String)>,
    /// JSON body.
    pub body: Option<Bytes>,
}

impl Call {
    /// A request without a body.
    pub fn new(method: Method, path: impl Into<String>) -> Self {
        Self { method, path: path.into(), headers: Vec::new(), body: None }
    }

    /// The same with a JSON body.
    #[must_use]
    pub fn json(mut self, body: &impl Serialize) -> Self {
        let bytes = serde_json::to_vec(body).expect("a request has only text keys");
        self.headers.push(("content-type", "application/json".to_owned()));
        self.body = Some(Bytes::from(bytes));
        self
    }

    /// The same with a query: fields that are absent are left out.
    ///
    /// Works on any type that serialises to an object of texts, numbers, truths and nulls.
    #[must_use]
    pub fn query(mut self, query: &impl Serialize) -> Self {
        let value = serde_json::to_value(query).expect("a query has only text keys");
        let fields = value.as_object().cloned().unwrap_or_default();
        for (name, value) in fields {
            let text = match value {
                serde_json::Value::Null => continue,
                serde_json::Value::String(text) => text,
                other => other.to_string(),
            };
            let separator = if self.path.contains('?') { '&' } else { '?' };
            self.path = format!("{}{separator}{name}={}", self.path, encode(&text));
        }
        self
    }

    /// The same, safe to send again: the server answers a repeat with the first answer.
    #[must_use]
    pub fn idempotency_key(mut self, key: impl Into<String>) -> Self {
        self.headers.push(("idempotency-key", key.into()));
        self
    }

    /// The same, refused with 412 unless the row still has that version.
    #[must_use]
    pub fn if_match(mut self, generation: lattice_core::ids::Generation) -> Self {
        self.headers.push(("if-match", format!("\"{}\"", generation.0)));
        self
    }
}

/// The connection failed: nothing is known about the request.
#[derive(Debug, thiserror::Error)]
#[error("no answer from {server}: {why}")]
pub struct Lost {
    /// Address that was tried.
    pub server: String,
    /// What failed.
    pub why: String,
}

/// Why a call brought no answer of its type.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The server refused, and said why.
    #[error("{}", .0.detail)]
    Refused(Box<Problem>),
    /// The connection failed.
    #[error(transparent)]
    Lost(#[from] Lost),
    /// The server answered something that this client does not understand.
    #[error("the server's answer ({status}) cannot be read: {why}")]
    Unreadable {
        /// Status of the answer.
        status: StatusCode,
        /// What is wrong with it.
        why: String,
    },
}

/// A client over some transport.
#[derive(Debug, Clone)]
pub struct Client<T> {
    transport: T,
}

impl<T: Transport> Client<T> {
    /// A client over that transport.
    pub const fn new(transport: T) -> Self {
        Self { transport }
    }

    /// Sends a request and gives the body of its answer unchanged: what `-o json` prints.
    ///
    /// # Errors
    /// Refused, lost, or a refusal that is not a problem document.
    pub async fn send_raw(&self, call: Call) -> Result<Bytes, ClientError> {
        let (status, mut body) = self.transport.send(call).await?;
        let bytes = collect(&mut body).await?;
        if status.is_success() { Ok(bytes) } else { Err(refusal(status, &bytes)) }
    }

    /// Sends a request and reads its answer.
    ///
    /// # Errors
    /// Refused, lost, or an answer of another type.
    pub async fn send<A: DeserializeOwned>(&self, call: Call) -> Result<A, ClientError> {
        let bytes = self.send_raw(call).await?;
        let bytes: &[u8] = if bytes.is_empty() { b"null" } else { &bytes };
        serde_json::from_slice(bytes)
            .map_err(|error| ClientError::Unreadable { status: StatusCode::OK, why: error.to_string() })
    }

    /// Opens a stream of events.
    ///
    /// # Errors
    /// Refused or lost.
    pub async fn follow(&self, call: Call) -> Result<Follow<T::Body>, ClientError> {
        let mut call = call;
        call.headers.push(("accept", sse::EVENT_STREAM.to_owned()));
        let (status, mut body) = self.transport.send(call).await?;
        if !status.is_success() {
            let bytes = collect(&mut body).await?;
            return Err(refusal(status, &bytes));
        }
        Ok(Follow { body, parser: sse::Parser::default(), ready: std::collections::VecDeque::new() })
    }
}

/// A stream of events that is being followed.
#[derive(Debug)]
pub struct Follow<B> {
    body: B,
    parser: sse::Parser,
    ready: std::collections::VecDeque<Event>,
}

impl<B: Chunks> Follow<B> {
    /// The next event; none when the server closed the stream. Open it again with `after` the last one's place.
    ///
    /// # Errors
    /// The connection broke, or the stream is not one of events.
    pub async fn next(&mut self) -> Result<Option<Event>, ClientError> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Ok(Some(event));
            }
            let Some(bytes) = self.body.chunk().await? else { return Ok(None) };
            let events = self
                .parser
                .push(&bytes)
                .map_err(|error| ClientError::Unreadable { status: StatusCode::OK, why: error.to_string() })?;
            self.ready.extend(events);
        }
    }
}

async fn collect(body: &mut impl Chunks) -> Result<Bytes, Lost> {
    let mut bytes = Vec::new();
    while let Some(chunk) = body.chunk().await? {
        bytes.extend_from_slice(&chunk);
    }
    Ok(bytes.into())
}

fn refusal(status: StatusCode, bytes: &[u8]) -> ClientError {
    match serde_json::from_slice::<Problem>(bytes) {
        Ok(problem) => ClientError::Refused(Box::new(problem)),
        Err(error) => ClientError::Unreadable { status, why: error.to_string() },
    }
}

/// Percent-encodes everything but letters, digits and `-._~`.
pub fn encode(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => out.push(char::from(byte)),
            _ => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::NodeQuery;

    #[test]
    fn a_query_leaves_out_what_is_absent_and_encodes_the_rest() {
        let query = NodeQuery { limit: Some(5), hostname_prefix: Some("c07 ü&".into()), ..NodeQuery::default() };
        let call = Call::new(Method::GET, "/x").query(&query);
        assert_eq!(call.path, "/x?hostname_prefix=c07%20%C3%BC%26&limit=5");
    }
}
