//! What goes over the wire, parsed once: requests with their parameters, answers with their bodies.

use std::time::Duration;

use serde_json::Value;

/// The four methods MAAS uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Method {
    /// Reads and idempotent operations.
    Get,
    /// Creation and operations that change something.
    Post,
    /// Updates.
    Put,
    /// Removal.
    Delete,
}

impl Method {
    /// The name on the wire.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Post => "POST",
            Self::Put => "PUT",
            Self::Delete => "DELETE",
        }
    }

    /// Reads the name on the wire; `None` for a method MAAS does not know.
    pub fn parse(name: &str) -> Option<Self> {
        [Self::Get, Self::Post, Self::Put, Self::Delete].into_iter().find(|m| m.name() == name)
    }
}

/// Parameters in the order they were sent; a repeated key is a list.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Params(Vec<(String, String)>);

impl Params {
    /// Wraps pairs that are already decoded.
    pub const fn new(pairs: Vec<(String, String)>) -> Self {
        Self(pairs)
    }

    /// Decodes `a=b&c=d`, percent-encoding and `+` included.
    pub fn decode(text: &str) -> Self {
        let pair = |part: &str| {
            let (key, value) = part.split_once('=').unwrap_or((part, ""));
            (percent_decode(key), percent_decode(value))
        };
        Self(text.split('&').filter(|part| !part.is_empty()).map(pair).collect())
    }

    /// The first value of `key`.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.0.iter().find(|(k, _)| k == key).map(|(_, v)| v.as_str())
    }

    /// The first value of `key` that is not empty.
    pub fn text(&self, key: &str) -> Option<&str> {
        self.get(key).filter(|v| !v.is_empty())
    }

    /// Every value of `key`; a value with commas counts as several.
    pub fn list(&self, key: &str) -> Vec<String> {
        let parts = self.0.iter().filter(|(k, _)| k == key).flat_map(|(_, v)| v.split(','));
        parts.map(|v| v.trim().to_owned()).filter(|v| !v.is_empty()).collect()
    }

    /// A boolean in any of the forms MAAS reads; `None` when absent or something else.
    pub fn flag(&self, key: &str) -> Option<bool> {
        match self.get(key)?.to_ascii_lowercase().as_str() {
            "true" | "1" | "yes" | "on" => Some(true),
            "false" | "0" | "no" | "off" | "" => Some(false),
            _ => None,
        }
    }

    /// A whole number; `None` when absent or something else.
    pub fn number(&self, key: &str) -> Option<u64> {
        self.get(key)?.trim().parse().ok()
    }

    /// The pairs in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(k, v)| (k.as_str(), v.as_str()))
    }

    /// Whether there is nothing.
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn push(&mut self, key: String, value: String) {
        self.0.push((key, value));
    }
}

/// One call, as MAAS sees it after HTTP is peeled off.
#[derive(Debug, Clone)]
pub struct Request {
    /// GET, POST, PUT or DELETE.
    pub method: Method,
    /// Path below the root, as sent (`/MAAS/api/2.0/machines/`).
    pub path: String,
    /// The query string.
    pub query: Params,
    /// The form body of POST and PUT.
    pub form: Params,
    /// The body as sent; the machine side posts JSON.
    pub raw: Vec<u8>,
    /// The `Authorization` header.
    pub authorization: Option<String>,
}

impl Request {
    /// Builds a request from the parts of an HTTP message.
    pub fn from_parts(
        method: Method,
        path_and_query: &str,
        content_type: &str,
        authorization: Option<String>,
        body: Vec<u8>,
    ) -> Self {
        let (path, query) = path_and_query.split_once('?').unwrap_or((path_and_query, ""));
        let form = match content_type.split(';').next().unwrap_or_default().trim() {
            "application/x-www-form-urlencoded" => Params::decode(&String::from_utf8_lossy(&body)),
            "multipart/form-data" => decode_multipart(content_type, &body),
            _ => Params::default(),
        };
        Self { method, path: path.to_owned(), query: Params::decode(query), form, raw: body, authorization }
    }

    /// The selected operation, if any.
    pub fn op(&self) -> Option<&str> {
        self.query.get("op")
    }
}

/// One answer.
#[derive(Debug, Clone, PartialEq)]
pub struct Response {
    /// HTTP status.
    pub status: u16,
    /// `Content-Type`.
    pub content_type: &'static str,
    /// Seconds for a `Retry-After` header.
    pub retry_after_s: Option<u32>,
    /// The body.
    pub body: Vec<u8>,
    /// How long the region takes before it answers.
    pub delay: Duration,
    /// The connection breaks instead of an answer.
    pub dropped: bool,
}

impl Response {
    /// A JSON body with `status`.
    pub fn json(status: u16, body: &Value) -> Self {
        Self::with(status, "application/json", body.to_string().into_bytes())
    }

    /// One line of text with `status`.
    pub fn text(status: u16, body: impl Into<String>) -> Self {
        Self::with(status, "text/plain; charset=utf-8", body.into().into_bytes())
    }

    /// An HTML body with `status`.
    pub fn html(status: u16, body: impl Into<String>) -> Self {
        Self::with(status, "text/html; charset=utf-8", body.into().into_bytes())
    }

    /// No body.
    pub fn empty(status: u16) -> Self {
        Self::with(status, "text/plain; charset=utf-8", Vec::new())
    }

    /// The connection breaks.
    pub fn dropped() -> Self {
        Self { dropped: true, ..Self::empty(0) }
    }

    /// A form error: `{field: [message]}` with 400.
    pub fn form_error(field: &str, message: impl Into<String>) -> Self {
        Self::json(400, &serde_json::json!({ field: [message.into()] }))
    }

    /// Adds time before the answer.
    #[must_use]
    pub fn after(mut self, delay: Duration) -> Self {
        self.delay += delay;
        self
    }

    /// Adds `Retry-After`.
    #[must_use]
    pub const fn retry_after(mut self, seconds: u32) -> Self {
        self.retry_after_s = Some(seconds);
        self
    }

    /// The body as text, for people and tests.
    pub fn body_text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The body as JSON, or null when it is not JSON.
    pub fn body_json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or(Value::Null)
    }

    fn with(status: u16, content_type: &'static str, body: Vec<u8>) -> Self {
        Self { status, content_type, retry_after_s: None, body, delay: Duration::ZERO, dropped: false }
    }
}

/// Decodes `%41` and `+`; bytes that are not UTF-8 are replaced.
pub fn percent_decode(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let escaped = (bytes[at] == b'%').then(|| text.get(at + 1..at + 3)).flatten();
        match escaped.and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
            Some(byte) => {
                out.push(byte);
                at += 3;
            }
            None => {
                out.push(if bytes[at] == b'+' { b' ' } else { bytes[at] });
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// Encodes everything but the unreserved characters of RFC 3986.
pub fn percent_encode(text: &str) -> String {
    let mut out = String::new();
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}

/// Text fields and file contents of a multipart body; a part without a name is left out.
fn decode_multipart(content_type: &str, body: &[u8]) -> Params {
    let mut params = Params::default();
    let boundary = content_type.split(';').find_map(|part| part.trim().strip_prefix("boundary="));
    let Some(boundary) = boundary.map(|b| format!("--{}", b.trim_matches('"'))) else { return params };
    let text = String::from_utf8_lossy(body);
    for part in text.split(boundary.as_str()).skip(1) {
        let Some((head, content)) = part.split_once("\r\n\r\n") else { continue };
        let name = head.split(['\n', ';']).find_map(|item| item.trim().strip_prefix("name="));
        if let Some(name) = name {
            let content = content.strip_suffix("\r\n").unwrap_or(content);
            params.push(name.trim_matches('"').to_owned(), content.to_owned());
        }
    }
    params
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_form_with_escapes_and_repeated_keys_is_a_list() {
        let params = Params::decode("mac_addresses=00%3A01&mac_addresses=00%3a02&comment=a+b%20c&bad=%zz");
        assert_eq!(params.list("mac_addresses"), ["00:01", "00:02"]);
        assert_eq!(params.get("comment"), Some("a b c"));
        assert_eq!(params.get("bad"), Some("%zz"));
    }

    #[test]
    fn a_multipart_body_gives_the_same_parameters_as_a_form() {
        let body = "--XX\r\nContent-Disposition: form-data; name=\"hostname\"\r\n\r\nc07u43\r\n--XX\r\n\
                    Content-Disposition: form-data; name=\"user_data\"; filename=\"u\"\r\n\r\nQQ==\r\n--XX--\r\n";
        let kind = "multipart/form-data; boundary=XX";
        let request =
            Request::from_parts(Method::Post, "/MAAS/api/2.0/machines/?op=x", kind, None, body.as_bytes().to_vec());
        assert_eq!(request.form, Params::decode("hostname=c07u43&user_data=QQ%3D%3D"));
        assert_eq!(request.op(), Some("x"));
    }

    #[test]
    fn encoding_and_decoding_are_inverse() {
        let text = "&S:/ü +%";
        assert_eq!(percent_decode(&percent_encode(text)), text);
    }
}
