//! What every request passes: its correlation id, who asks, whether the role allows it, how fast; and what is counted.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{MatchedPath, Request, State};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use http::header::CONTENT_TYPE;
use http::{HeaderName, HeaderValue, Method, StatusCode};
use lattice_api::error::PROBLEM_JSON;
use lattice_core::actor::{Actor, Role};
use lattice_core::change::{Change, Commit, Resource};
use lattice_core::explain::{Code, NextAction};
use lattice_core::ids::{CorrelationId, OpId};
use lattice_core::time::Timestamp;
use tracing::{debug, warn};

use super::App;
use super::extract::is_unsafe;
use super::surface::Access;
use crate::auth::{Payer, allows, authenticate, refuse_other_origins};
use crate::clock::Stopwatch;
use crate::error::{Answer, Refusal};

/// Carries the correlation id of each answer.
const CORRELATION: HeaderName = HeaderName::from_static("x-correlation-id");

#[derive(Clone)]
struct Guard {
    app: App,
    access: Arc<HashMap<(Method, &'static str), Access>>,
}

/// The routes behind the guard; what no route answers gets a problem document too.
pub fn guarded(routes: Router<App>, app: App, access: HashMap<(Method, &'static str), Access>) -> Router<App> {
    let guard = Guard { app, access: Arc::new(access) };
    routes
        .route_layer(from_fn_with_state(guard.clone(), check))
        .method_not_allowed_fallback(wrong_method)
        .fallback(unknown_route)
        .layer(from_fn_with_state(guard, observe))
}

async fn unknown_route(request: Request) -> Refusal {
    let path: String = request.uri().path().chars().take(200).collect();
    Refusal::new(Code::NotFound, format!("there is no route `{path}`"))
        .next(NextAction::Fix { what: "see /api/v1/openapi.json for all routes".to_owned() })
}

async fn wrong_method(request: Request) -> Refusal {
    Refusal::new(Code::Unsupported, format!("{} is not supported on this route", request.method()))
        .status(StatusCode::METHOD_NOT_ALLOWED)
        .next(NextAction::Fix { what: "use a method that the `Allow` header names".to_owned() })
}

/// Gives each request its id, and counts its answer.
async fn observe(State(guard): State<Guard>, mut request: Request, next: Next) -> Response {
    let begun = Stopwatch::start();
    let correlation = CorrelationId::generate(&*guard.app.ids, guard.app.clock.now());
    request.extensions_mut().insert(correlation);
    let method = request.method().clone();
    let route = request.extensions().get::<MatchedPath>().map(|path| path.as_str().to_owned());
    let mut response = name_in_problem(next.run(request).await, correlation).await;
    let id = HeaderValue::from_str(&correlation.to_string()).expect("a UUID is visible ASCII");
    response.headers_mut().insert(CORRELATION, id);
    let status = response.status();
    // Paths of unknown routes are the caller's text, and no label.
    let route = route.as_deref().unwrap_or("none");
    guard.app.metrics.request(method.as_str(), route, status.as_u16(), begun.elapsed());
    debug!(%method, route, status = status.as_u16(), correlation_id = %correlation, "request answered");
    response
}

/// Lets a request through to its handler, or refuses it.
async fn check(State(guard): State<Guard>, mut request: Request, next: Next) -> Response {
    match admit(&guard, &mut request).await {
        Ok(()) => next.run(request).await,
        Err(refusal) => refusal.into_response(),
    }
}

async fn admit(guard: &Guard, request: &mut Request) -> Answer<()> {
    let now = guard.app.clock.now();
    let asked = Asked::of(request);
    let least = match least_role(guard, &asked)? {
        Access::Public => return Ok(()),
        Access::Least(least) => least,
    };
    let caller = match authenticate(&guard.app.store, request.headers(), now).await {
        Ok(caller) => caller,
        Err(refusal) => {
            allowance(&guard.app, Payer::Strangers, now)?;
            let stranger = Actor { name: "anonymous".to_owned(), role: Role::ProjectViewer };
            audit(&guard.app, &asked, stranger, refusal.problem().detail.clone(), now).await;
            return Err(refusal);
        }
    };
    allowance(&guard.app, Payer::Token(caller.token), now)?;
    refuse_other_origins(request.method(), request.headers())?;
    if !allows(caller.role, least) {
        let detail = format!("{} has the role {}; this needs at least {least}", caller.name, caller.role);
        audit(&guard.app, &asked, caller.actor(), detail.clone(), now).await;
        return Err(Refusal::new(Code::Forbidden, detail)
            .next(NextAction::Fix { what: format!("use a token with the role {least}") }));
    }
    request.extensions_mut().insert(caller);
    Ok(())
}

/// What of a request the guard looks at. A body cannot be shared between threads, so the request itself is not kept.
struct Asked {
    method: Method,
    route: String,
    correlation: Option<CorrelationId>,
}

impl Asked {
    fn of(request: &Request) -> Self {
        Self {
            method: request.method().clone(),
            route: request.extensions().get::<MatchedPath>().map(|path| path.as_str().to_owned()).unwrap_or_default(),
            correlation: request.extensions().get::<CorrelationId>().copied(),
        }
    }
}

/// HEAD is answered by the handler of GET, and needs its role.
fn least_role(guard: &Guard, asked: &Asked) -> Answer<Access> {
    let method = if asked.method == Method::HEAD { Method::GET } else { asked.method.clone() };
    let row = guard.access.iter().find(|((of, at), _)| *of == method && *at == asked.route);
    row.map(|(_, access)| *access)
        .ok_or_else(|| Refusal::new(Code::Forbidden, format!("no row of the table allows {method} {}", asked.route)))
}

fn allowance(app: &App, payer: Payer, now: Timestamp) -> Answer<()> {
    app.rates.take(payer, now).map_err(|wait: Duration| {
        let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
        Refusal::new(Code::RateLimited, "too many requests with this token")
            .because(format!("{} per second are allowed", app.limits.rate.per_second))
            .next(NextAction::WaitUntil { until: now + wait, waiting_for: "its allowance".to_owned() })
            .retry_after_s(seconds.max(1))
    })
}

/// A refused attempt to change something is seen in the audit. spec: issue "Bad input"; design: 8-interfaces
async fn audit(app: &App, asked: &Asked, actor: Actor, detail: String, now: Timestamp) {
    if !is_unsafe(&asked.method) || app.refusals.take(Payer::Strangers, now).is_err() {
        return;
    }
    let commit = Commit {
        op: OpId::generate(&*app.ids, now),
        guards: Vec::new(),
        changes: vec![Change::Refusal {
            action: format!("{} {}", asked.method, asked.route),
            resource: Resource::System("api".to_owned()),
            detail,
        }],
        actor,
        reason: String::new(),
        at: now,
        correlation: asked.correlation.unwrap_or_else(|| CorrelationId::generate(&*app.ids, now)),
    };
    if let Err(error) = app.store.commit_one(commit).await {
        warn!(%error, "refusal not audited");
    }
}

/// Writes the request's id into a problem document; whoever made it did not know it.
async fn name_in_problem(response: Response, id: CorrelationId) -> Response {
    use http_body_util::BodyExt;
    if response.headers().get(CONTENT_TYPE).is_none_or(|kind| kind != PROBLEM_JSON) {
        return response;
    }
    let (mut parts, body) = response.into_parts();
    let Ok(collected) = body.collect().await else { return parts.status.into_response() };
    let bytes = collected.to_bytes();
    let Ok(problem) = serde_json::from_slice::<lattice_api::error::Problem>(&bytes) else {
        return Response::from_parts(parts, axum::body::Body::from(bytes));
    };
    parts.headers.remove(http::header::CONTENT_LENGTH);
    let mut named = Refusal::from(problem).correlation(id).into_response();
    for (name, value) in &parts.headers {
        named.headers_mut().entry(name).or_insert_with(|| value.clone());
    }
    named
}
