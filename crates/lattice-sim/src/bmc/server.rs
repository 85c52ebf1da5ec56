//! The HTTP front of a simulated BMC.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE, ETAG, IF_MATCH, LOCATION};
use http::{HeaderMap, Method, Response, StatusCode};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use super::body::{ERASE, RESET, SYSTEM, TASK, resource};
use super::state::{BmcFault, Resets, SimBmc};
use crate::stop::{Stop, spawn_until_stopped};

/// Largest body that is taken.
const MAX_BODY_BYTES: usize = 64 << 10;
/// How long the erasure of a drive takes.
const ERASURE: Duration = Duration::from_secs(40);

/// Serves the BMC on `listener` until stopped.
pub fn serve(listener: TcpListener, bmc: Arc<SimBmc>) -> Stop {
    spawn_until_stopped(async move {
        let mut connections = JoinSet::new();
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                Some(_) = connections.join_next() => continue,
            };
            let Ok((stream, _)) = accepted else { continue };
            let bmc = Arc::clone(&bmc);
            connections.spawn(async move {
                let service = service_fn(move |request| answer(request, Arc::clone(&bmc)));
                // A connection that breaks is its client's affair.
                let _ended = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
            });
        }
    })
}

async fn answer(
    request: http::Request<Incoming>,
    bmc: Arc<SimBmc>,
) -> Result<Response<Full<Bytes>>, std::convert::Infallible> {
    if bmc.has(&BmcFault::Hangs) {
        std::future::pending::<()>().await;
    }
    let (parts, body) = request.into_parts();
    let body = Limited::new(body, MAX_BODY_BYTES).collect().await.map(|body| body.to_bytes()).unwrap_or_default();
    let body: Value = serde_json::from_slice(&body).unwrap_or(Value::Null);
    if bmc.has(&BmcFault::AnswersHtml) {
        let mut page = Response::new(Full::new(Bytes::from_static(b"<html><h1>Welcome</h1></html>")));
        page.headers_mut().insert(CONTENT_TYPE, http::HeaderValue::from_static("text/html"));
        return Ok(page);
    }
    if !logged_in(&bmc, &parts.headers) {
        bmc.state().refused_logins += 1;
        return Ok(refused(StatusCode::UNAUTHORIZED, "the login is wrong"));
    }
    let path = parts.uri.path_and_query().map_or("", |path| path.as_str());
    Ok(match (parts.method, path) {
        (Method::GET, TASK) if bmc.has(&BmcFault::ForgetsTasks) => refused(StatusCode::NOT_FOUND, "no such task"),
        (Method::GET, TASK) => task(&bmc),
        (Method::GET, path) => read(&bmc, path),
        (Method::PATCH, SYSTEM) => patch(&bmc, &parts.headers, &body),
        (Method::POST, RESET) => reset(&bmc, body["ResetType"].as_str().unwrap_or_default()),
        (Method::POST, ERASE) => {
            bmc.record("erase");
            let until = bmc.now() + ERASURE;
            bmc.state().erasing = Some(until);
            accepted()
        }
        (_, _) => refused(StatusCode::METHOD_NOT_ALLOWED, "no such method here"),
    })
}

fn logged_in(bmc: &SimBmc, headers: &HeaderMap) -> bool {
    let state = bmc.state();
    let wanted = format!("Basic {}", STANDARD.encode(format!("{}:{}", state.user, state.password)));
    headers.get(AUTHORIZATION).is_some_and(|given| given.as_bytes() == wanted.as_bytes())
}

fn read(bmc: &SimBmc, path: &str) -> Response<Full<Bytes>> {
    if let Some(status) = bmc.unreadable(path) {
        let status = StatusCode::from_u16(status).expect("tests name statuses that there are");
        return if status.is_success() { json_response(status, &json!({})) } else { refused(status, "it broke") };
    }
    let Some(body) = resource(bmc, path) else {
        return refused(StatusCode::NOT_FOUND, "no such resource");
    };
    let mut response = json_response(StatusCode::OK, &body);
    let etag = format!("\"{}\"", bmc.state().version);
    response.headers_mut().insert(ETAG, etag.parse().expect("digits in quotes are a header value"));
    response
}

fn patch(bmc: &SimBmc, headers: &HeaderMap, body: &Value) -> Response<Full<Bytes>> {
    let mut state = bmc.state();
    if let Some(at) = state.faults.iter().position(|fault| *fault == BmcFault::LosesNextVersion) {
        state.faults.remove(at);
        state.version += 1;
    }
    let wanted = format!("\"{}\"", state.version);
    match headers.get(IF_MATCH) {
        None => return refused(StatusCode::PRECONDITION_REQUIRED, "If-Match is missing"),
        Some(given) if given.as_bytes() != wanted.as_bytes() => {
            return refused(StatusCode::PRECONDITION_FAILED, "the resource changed");
        }
        Some(_) => {}
    }
    let Some(target) = body["Boot"]["BootSourceOverrideTarget"].as_str() else {
        return refused(StatusCode::BAD_REQUEST, "only Boot can be changed");
    };
    state.version += 1;
    state.boot_once = Some(target.to_owned());
    drop(state);
    bmc.record(format!("boot {target}"));
    json_response(StatusCode::OK, &json!({}))
}

fn reset(bmc: &SimBmc, kind: &str) -> Response<Full<Bytes>> {
    let was_on = bmc.is_on();
    let on = match kind {
        "On" if was_on => return refused(StatusCode::CONFLICT, "the system is on already"),
        "ForceOff" | "GracefulShutdown" if !was_on => {
            return refused(StatusCode::CONFLICT, "the system is off already");
        }
        "On" | "ForceRestart" => true,
        "ForceOff" | "GracefulShutdown" => false,
        _ => return refused(StatusCode::BAD_REQUEST, "no such ResetType"),
    };
    bmc.record(kind);
    if bmc.has(&BmcFault::IgnoresOrders) {
        return json_response(StatusCode::NO_CONTENT, &Value::Null);
    }
    let mut state = bmc.state();
    let resets = state.resets;
    let after = match resets {
        Resets::AtOnce => std::time::Duration::ZERO,
        Resets::After(after) | Resets::AsTask(after) => after,
    };
    // An order that is being carried out already is not begun anew.
    if state.pending.is_none_or(|(_, wanted)| wanted != on) {
        state.pending = Some((bmc.now() + after, on));
    }
    drop(state);
    bmc.settle();
    match resets {
        Resets::AtOnce | Resets::After(_) => json_response(StatusCode::NO_CONTENT, &Value::Null),
        Resets::AsTask(_) => accepted(),
    }
}

fn accepted() -> Response<Full<Bytes>> {
    let mut response = json_response(StatusCode::ACCEPTED, &json!({ "TaskState": "New" }));
    response.headers_mut().insert(LOCATION, http::HeaderValue::from_static(TASK));
    response.headers_mut().insert(http::header::RETRY_AFTER, http::HeaderValue::from_static("0"));
    response
}

fn task(bmc: &SimBmc) -> Response<Full<Bytes>> {
    bmc.settle();
    let state = bmc.state();
    if state.task_fails {
        let messages = json!([{ "Message": "the power button is stuck" }]);
        return json_response(StatusCode::OK, &json!({ "TaskState": "Exception", "Messages": messages }));
    }
    if state.pending.is_some() || state.erasing.is_some_and(|until| bmc.now() < until) {
        let mut response = json_response(StatusCode::ACCEPTED, &json!({ "TaskState": "Running" }));
        response.headers_mut().insert(http::header::RETRY_AFTER, http::HeaderValue::from_static("0"));
        return response;
    }
    json_response(StatusCode::OK, &json!({ "TaskState": "Completed", "TaskStatus": "OK" }))
}

fn refused(status: StatusCode, words: &str) -> Response<Full<Bytes>> {
    json_response(status, &json!({ "error": { "code": "Base.1.0.GeneralError", "message": words } }))
}

fn json_response(status: StatusCode, body: &Value) -> Response<Full<Bytes>> {
    let bytes = if status == StatusCode::NO_CONTENT { Bytes::new() } else { Bytes::from(body.to_string()) };
    let mut response = Response::new(Full::new(bytes));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, http::HeaderValue::from_static("application/json"));
    response
}
