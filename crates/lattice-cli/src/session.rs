//! One command's conversation with the server.

use lattice_api::client::{Call, Client, ClientError, encode, get};
use serde::de::DeserializeOwned;

use crate::arguments::Global;
use crate::confirm::{Confirmed, confirm};
use crate::failure::Failure;
use crate::output::{self, Format, Look, Shown};
use crate::transport::Http;
use crate::{clock, connection};

/// An answer as it came, and as it is understood.
#[derive(Debug)]
pub struct Answer<T> {
    /// The body, unchanged.
    pub body: bytes::Bytes,
    /// What it says.
    pub value: T,
}

/// A connection with the options of the command line.
pub struct Session {
    /// The typed client.
    pub client: Client<Http>,
    http: Http,
    format: Format,
    confirmed: Confirmed,
}

impl Session {
    /// Finds the server; nothing is sent yet.
    ///
    /// # Errors
    /// No server is known, or the token or certificates cannot be read.
    pub fn open(global: &Global) -> Result<Self, Failure> {
        let http = Http::new(&connection::find(global)?)?;
        let confirmed = if global.yes { Confirmed::Yes } else { Confirmed::NotYet };
        let format = if global.wide { Format::Wide } else { global.output };
        Ok(Self { client: Client::new(http.clone()), http, format, confirmed })
    }

    /// How to print.
    pub const fn format(&self) -> Format {
        self.format
    }

    /// The server's address.
    pub fn server(&self) -> &str {
        self.http.server()
    }

    /// What views depend on; ages count by the server's clock where it told it.
    pub fn look(&self) -> Look {
        Look { wide: self.format == Format::Wide, now_ms: self.http.server_time().unwrap_or_else(clock::now_millis) }
    }

    /// Sends a request and keeps its body.
    ///
    /// # Errors
    /// Refused, lost, or not understood.
    pub async fn ask<T: DeserializeOwned>(&self, call: Call) -> Result<Answer<T>, Failure> {
        let call = if call.method == reqwest::Method::GET { call } else { call.idempotency_key(clock::fresh_key()) };
        let body = self.client.send_raw(call).await?;
        let bytes: &[u8] = if body.is_empty() { b"null" } else { &body };
        let value = serde_json::from_slice(bytes)
            .map_err(|error| ClientError::Unreadable { status: reqwest::StatusCode::OK, why: error.to_string() })?;
        Ok(Answer { body, value })
    }

    /// Sends a request and prints its answer.
    ///
    /// # Errors
    /// As [`Session::ask`], or it cannot be printed.
    pub async fn show<T: DeserializeOwned + Shown>(&self, call: Call) -> Result<(), Failure> {
        let answer = self.ask::<T>(call).await?;
        self.print(&answer)
    }

    /// Prints an answer.
    ///
    /// # Errors
    /// It cannot be printed.
    pub fn print<T: Shown>(&self, answer: &Answer<T>) -> Result<(), Failure> {
        output::print(self.format, answer, self.look())
    }

    /// Asks the person, unless `--yes` was given.
    ///
    /// # Errors
    /// Not confirmed.
    pub fn confirm(&self, action: &str, effect: &str) -> Result<(), Failure> {
        confirm(self.confirmed, action, effect)
    }
}

/// `DELETE` or another method on a path under the API's root; every part is encoded.
pub fn request(method: reqwest::Method, parts: &[&str]) -> Call {
    let mut call = get(&[]);
    call.method = method;
    for part in parts {
        call.path = format!("{}/{}", call.path, encode(part));
    }
    call
}
