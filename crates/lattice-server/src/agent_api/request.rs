//! Paths, queries and bodies: everything from outside is parsed here, once.

use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use lattice_api::agent::{AGENT_BINARY_PATH, ENROLL_PATH, MAX_BODY_BYTES, MAX_TEXT_BYTES, MAX_WAIT_MS};
use lattice_api::error::{PROBLEM_JSON, Problem};
use lattice_core::ids::{NodeId, TaskId};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::refusal::Refusal;

/// A body that trickles in for longer is a hostile peer's, or a dead one's.
const BODY_TIMEOUT: Duration = Duration::from_secs(10);

/// What a request asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Route {
    Enroll,
    Claim(NodeId),
    Renew(NodeId),
    Register(NodeId),
    Heartbeat(NodeId, Duration),
    WaitForTasks(NodeId, Duration),
    ReportTask(NodeId, TaskId),
    /// A new host fetches the agent itself.
    AgentBinary,
}

impl Route {
    /// Whether the server that hears the agents must answer it. What a machine that boots takes, any server has.
    pub(super) const fn is_of_agents(&self) -> bool {
        match self {
            Self::Claim(_) | Self::AgentBinary => false,
            Self::Enroll
            | Self::Renew(_)
            | Self::Register(_)
            | Self::Heartbeat(..)
            | Self::WaitForTasks(..)
            | Self::ReportTask(..) => true,
        }
    }

    /// From method, path and query.
    pub(super) fn parse<B>(request: &Request<B>) -> Result<Self, Refusal> {
        let path = request.uri().path();
        let (route, expected) = if path == ENROLL_PATH {
            (Self::Enroll, Method::POST)
        } else if path == AGENT_BINARY_PATH {
            (Self::AgentBinary, Method::GET)
        } else {
            let rest = path.strip_prefix("/internal/v1/nodes/").ok_or(Refusal::NotFound)?;
            let (node, verb) = rest.split_once('/').ok_or(Refusal::NotFound)?;
            let node = || node.parse::<NodeId>().map_err(|invalid| Refusal::malformed(invalid.to_string()));
            let wait = || wait(request.uri().query().unwrap_or_default());
            match verb {
                "claim" => (Self::Claim(node()?), Method::POST),
                "renew" => (Self::Renew(node()?), Method::POST),
                "register" => (Self::Register(node()?), Method::POST),
                "heartbeat" => (Self::Heartbeat(node()?, wait()?), Method::POST),
                "tasks/wait" => (Self::WaitForTasks(node()?, wait()?), Method::GET),
                other => match other.strip_prefix("tasks/").and_then(|rest| rest.strip_suffix("/report")) {
                    Some(task) => {
                        let task = task.parse::<TaskId>().map_err(|invalid| Refusal::malformed(invalid.to_string()))?;
                        (Self::ReportTask(node()?, task), Method::POST)
                    }
                    None => return Err(Refusal::NotFound),
                },
            }
        };
        if request.method() == expected {
            Ok(route)
        } else {
            Err(Refusal::Method { method: request.method().to_string() })
        }
    }
}

/// `wait=9s` or `wait=9000ms`, cut to what the server allows; none: no wait.
fn wait(query: &str) -> Result<Duration, Refusal> {
    let Some(text) = query.split('&').find_map(|pair| pair.strip_prefix("wait=")) else {
        return Ok(Duration::ZERO);
    };
    let millis = match text.strip_suffix("ms") {
        Some(number) => number.parse::<u64>().ok(),
        None => text.strip_suffix('s').and_then(|number| number.parse::<u64>().ok()?.checked_mul(1000)),
    };
    match millis {
        Some(millis) => Ok(Duration::from_millis(millis.min(MAX_WAIT_MS))),
        None => Err(Refusal::malformed("`wait` is not a duration such as 9s or 9000ms")),
    }
}

/// A body that was sent: hyper's, or bytes in memory.
pub trait Sent: hyper::body::Body<Data = Bytes, Error: std::error::Error + Send + Sync + 'static> + Send {}

impl<B> Sent for B where B: hyper::body::Body<Data = Bytes, Error: std::error::Error + Send + Sync + 'static> + Send {}

/// Reads a JSON body of at most [`MAX_BODY_BYTES`].
pub(super) async fn read_json<T: DeserializeOwned, B: Sent>(request: Request<B>) -> Result<T, Refusal> {
    if !request.headers().get(CONTENT_TYPE).is_some_and(is_json) {
        return Err(Refusal::MediaType);
    }
    let announced = request.headers().get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
    if announced.is_some_and(|bytes| bytes > MAX_BODY_BYTES as u64) {
        return Err(Refusal::TooLarge);
    }
    let body = Limited::new(request.into_body(), MAX_BODY_BYTES).collect();
    let body = tokio::time::timeout(BODY_TIMEOUT, body)
        .await
        .map_err(|_| Refusal::TooSlow { secs: BODY_TIMEOUT.as_secs() })?
        .map_err(|error| match error.is::<LengthLimitError>() {
            true => Refusal::TooLarge,
            false => Refusal::malformed(format!("the body broke off: {error}")),
        })?;
    serde_json::from_slice(&body.to_bytes())
        .map_err(|error| Refusal::malformed(format!("the body is not valid: {error}")))
}

fn is_json(value: &HeaderValue) -> bool {
    let essence = value.to_str().unwrap_or_default().split(';').next().unwrap_or_default().trim();
    essence.eq_ignore_ascii_case("application/json")
}

/// Refuses texts of a host that are empty, too long or not printable.
pub(super) fn check_text(name: &str, text: &str) -> Result<(), Refusal> {
    if text.is_empty() || text.len() > MAX_TEXT_BYTES || text.chars().any(char::is_control) {
        return Err(Refusal::malformed(format!("`{name}` must be 1 to {MAX_TEXT_BYTES} bytes of printable text")));
    }
    Ok(())
}

/// An answer with a JSON body.
pub(super) fn json(status: StatusCode, body: &impl Serialize) -> Response<Full<Bytes>> {
    response(status, "application/json", body)
}

/// An answer with bytes as they are.
pub(super) fn bytes(content: Bytes) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(content));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
    response
}

/// A refusal.
pub(super) fn problem(problem: &Problem) -> Response<Full<Bytes>> {
    let status = StatusCode::from_u16(problem.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response(status, PROBLEM_JSON, problem)
}

/// An answer without a body.
pub(super) fn no_content() -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::default());
    *response.status_mut() = StatusCode::NO_CONTENT;
    response
}

fn response(status: StatusCode, media_type: &'static str, body: &impl Serialize) -> Response<Full<Bytes>> {
    // Our answers are plain data without maps of non-text keys: they always serialise.
    let bytes = serde_json::to_vec(body).unwrap_or_default();
    let mut response = Response::new(Full::new(Bytes::from(bytes)));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(media_type));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    fn route(method: Method, path: &str) -> Result<Route, String> {
        let request = Request::builder().method(method).uri(path).body(()).unwrap();
        Route::parse(&request).map_err(|refusal| refusal.to_string())
    }

    #[test]
    fn paths_methods_and_waits_are_parsed_once() {
        const NODE: &str = "0190c2a4-7d1e-7c3a-9b1f-2f6d1c0a5e11";
        let node: NodeId = NODE.parse().unwrap();
        let path = |rest: &str| format!("/internal/v1/nodes/{NODE}/{rest}");
        assert_eq!(route(Method::POST, ENROLL_PATH), Ok(Route::Enroll));
        let secs = Duration::from_secs;
        for (rest, wait) in [
            ("heartbeat", secs(0)),
            ("heartbeat?wait=9s", secs(9)),
            ("heartbeat?x=1&wait=9000ms", secs(9)),
            ("heartbeat?wait=86400s", secs(20)),
        ] {
            assert_eq!(route(Method::POST, &path(rest)), Ok(Route::Heartbeat(node, wait)), "{rest}");
        }
        assert_eq!(route(Method::GET, AGENT_BINARY_PATH), Ok(Route::AgentBinary));
        assert_eq!(route(Method::GET, &path("tasks/wait?wait=1s")), Ok(Route::WaitForTasks(node, secs(1))));
        let task: TaskId = NODE.parse().unwrap();
        let report = path(&format!("tasks/{NODE}/report"));
        assert_eq!(route(Method::POST, &report), Ok(Route::ReportTask(node, task)));
        for (method, path, why) in [
            (Method::GET, report, "GET is not supported"),
            (Method::POST, path("tasks/first/report"), "not a task id"),
            (Method::GET, path("heartbeat"), "GET is not supported"),
            (Method::POST, path("heartbeat?wait=soon"), "not a duration"),
            (Method::POST, path("heartbeat?wait=99999999999999999999s"), "not a duration"),
            (Method::POST, path("reboot"), "nothing is at this path"),
            (Method::POST, "/internal/v1/nodes/me/heartbeat".into(), "not a node id"),
            (Method::POST, "/".into(), "nothing is at this path"),
        ] {
            let refused = route(method, &path).unwrap_err();
            assert!(refused.contains(why), "{path}: {refused}");
        }
    }
}
