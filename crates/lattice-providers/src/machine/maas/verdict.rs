//! What an answer of MAAS means: the status alone does not say it. spec: MAAS contract section 2

use std::time::Duration;

use http::header::{CONTENT_TYPE, RETRY_AFTER};

use super::transport::MaasResponse;
use crate::error::ErrorKind;
use crate::message;

/// Whether a call changes something in the region.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Effect {
    /// It only reads: a repeat is harmless.
    Reads,
    /// It changes something: after a lost answer the state must be read first.
    Changes,
}

/// What an answer means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It was done.
    Done,
    /// It was refused before it was looked at, for its nonce alone: sign again and repeat, whatever the call.
    SignAgain,
    /// It failed.
    Failed(ErrorKind),
}

/// When the region says "later" without a time that can be read.
const LATER: Duration = Duration::from_secs(5);
/// A longer wait is not believed.
const LATEST: Duration = Duration::from_secs(300);

/// Reads the meaning of an answer. `secrets` are removed from every text.
pub(super) fn of(response: &MaasResponse, effect: Effect, secrets: &[&str]) -> Verdict {
    let status = response.status.as_u16();
    if response.status.is_success() {
        return Verdict::Done;
    }
    let text = || message::of_body(&response.body, secrets);
    Verdict::Failed(match status {
        // No or foreign credentials, where an anonymous handler exists: 400 instead of 401.
        400 if response.body.starts_with(b"Unrecognised signature") => ErrorKind::Unauthorised { message: text() },
        401 if text().contains("Nonce already used") => return Verdict::SignAgain,
        401 => ErrorKind::Unauthorised { message: text() },
        403 => ErrorKind::Forbidden {
            message: or(text(), "no reason given; the machine may be locked or owned by another user"),
        },
        404 if text().contains("Unknown API endpoint") => ErrorKind::Malformed {
            what: "there is no MAAS API 2.0 at this address, or not with this operation".to_owned(),
        },
        404 => ErrorKind::NotFound { message: or(text(), "no reason given") },
        // With Retry-After: the region could not serialise the transaction and rolled it back. Without: wrong state.
        409 if response.headers.contains_key(RETRY_AFTER) => ErrorKind::RetryLater { after: retry_after(response) },
        429 => ErrorKind::RetryLater { after: retry_after(response) },
        // No rack connection, or a proxy that has nobody to ask: not acted on. Plain text: the power driver failed.
        503 if response.headers.contains_key(RETRY_AFTER) || is_html(response) => {
            ErrorKind::RetryLater { after: retry_after(response) }
        }
        503 => ErrorKind::PowerFailed { message: or(text(), "no reason given") },
        // The proxy gave up on a request that goes on.
        502 | 504 if effect == Effect::Changes => ErrorKind::Ambiguous { detail: format!("{status} {}", text()) },
        300..400 => {
            ErrorKind::Malformed { what: format!("redirected with {status}; the site's base URL is not the API's") }
        }
        400..500 => ErrorKind::Refused { status, message: or(text(), "no reason given") },
        _ => ErrorKind::ServerFailed { status, message: or(text(), "no reason given") },
    })
}

fn or(text: String, otherwise: &str) -> String {
    if text.is_empty() { otherwise.to_owned() } else { text }
}

fn is_html(response: &MaasResponse) -> bool {
    let kind = response.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    kind.is_some_and(|kind| kind.starts_with("text/html"))
}

fn retry_after(response: &MaasResponse) -> Duration {
    let seconds = response.headers.get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.trim().parse().ok());
    seconds.map_or(LATER, Duration::from_secs).min(LATEST)
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use http::{HeaderMap, StatusCode};

    fn response(status: u16, headers: &[(&'static str, &'static str)], body: &'static str) -> MaasResponse {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.insert(*name, value.parse().unwrap());
        }
        MaasResponse { status: StatusCode::from_u16(status).unwrap(), headers: map, body: Bytes::from(body) }
    }

    #[track_caller]
    fn check(given: &MaasResponse, effect: Effect, want: &str) {
        let text = match of(given, effect, &["hunter22"]) {
            Verdict::Done => "done".to_owned(),
            Verdict::SignAgain => "sign again".to_owned(),
            Verdict::Failed(kind) => kind.to_string(),
        };
        assert_eq!(text, want);
    }

    const HTML: (&str, &str) = ("content-type", "text/html");

    #[test]
    fn every_quirk_of_the_status_codes_is_read_right() {
        use Effect::{Changes, Reads};
        check(&response(200, &[], "{}"), Changes, "done");
        check(&response(204, &[], ""), Changes, "done");
        check(
            &response(400, &[], "Unrecognised signature: method=GET op=None"),
            Reads,
            "the credential was refused: Unrecognised signature: method=GET op=None",
        );
        check(
            &response(400, &[], r#"{"power_pass": ["hunter22 is bad"]}"#),
            Changes,
            r#"refused with 400: {"power_pass": ["*** is bad"]}"#,
        );
        check(&response(401, &[HTML], "Authorization Error: Nonce already used."), Changes, "sign again");
        check(
            &response(401, &[HTML], "Authorization Error: Invalid API key."),
            Reads,
            "the credential was refused: Authorization Error: Invalid API key.",
        );
        check(
            &response(403, &[], ""),
            Changes,
            "not allowed: no reason given; the machine may be locked or owned by another user",
        );
        check(
            &response(404, &[], "No Machine matches the given query."),
            Reads,
            "not found: No Machine matches the given query.",
        );
        check(
            &response(404, &[], "Unknown API endpoint: /MAAS/api/2.0/x/."),
            Reads,
            "the answer makes no sense: there is no MAAS API 2.0 at this address, or not with this operation",
        );
        check(
            &response(409, &[], "Invalid transition: New -> Deploying."),
            Changes,
            "refused with 409: Invalid transition: New -> Deploying.",
        );
        check(&response(409, &[("retry-after", "5")], "Conflict"), Changes, "busy, asks to come back in 5 s");
        check(&response(503, &[("retry-after", "9999")], ""), Changes, "busy, asks to come back in 300 s");
        check(&response(503, &[HTML], "<h1>503</h1>"), Changes, "busy, asks to come back in 5 s");
        check(&response(503, &[], "BMC is not answering"), Changes, "power control failed: BMC is not answering");
        check(&response(500, &[], "boom"), Changes, "failed with 500: boom");
        check(
            &response(504, &[HTML], "<html>504 Gateway Time-out</html>"),
            Changes,
            "the answer was lost, the effect is unknown: 504 504 Gateway Time-out",
        );
        check(
            &response(504, &[HTML], "<html>504 Gateway Time-out</html>"),
            Reads,
            "failed with 504: 504 Gateway Time-out",
        );
        check(
            &response(302, &[("location", "http://elsewhere/")], ""),
            Reads,
            "the answer makes no sense: redirected with 302; the site's base URL is not the API's",
        );
    }
}
