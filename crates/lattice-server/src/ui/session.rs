//! Signing in and out. The token is kept in a cookie that scripts cannot read and other origins cannot send.

use askama::Template;
use axum::extract::State;
use axum::response::{IntoResponse, Redirect, Response};
use axum::{Form, extract::Query};
use http::{HeaderMap, HeaderValue, StatusCode, header};
use lattice_core::secret::Secret;
use lattice_core::time::Timestamp;

use super::pages::{html, outside};
use super::refusal::LoginPage;
use crate::auth::{Caller, TOKEN_COOKIE, authenticate, refuse_other_origins};
use crate::error::Answer;
use crate::http::App;

/// Longest life of the cookie, in seconds: a long shift. The token itself may live longer.
const COOKIE_SECONDS: i64 = 12 * 3_600;

/// Where to go after signing in.
#[derive(Debug, Default, serde::Deserialize)]
#[serde(default)]
pub struct Next {
    next: String,
}

/// The form. A secret must not be logged with it: no `Debug`.
#[derive(serde::Deserialize)]
pub struct Shown {
    token: Secret<String>,
    #[serde(default)]
    next: String,
}

/// Asks for a token.
pub async fn form(State(app): State<App>, Query(next): Query<Next>) -> Response {
    page(&app, StatusCode::OK, inside(&next.next), None)
}

/// Whether the cookie that comes with this request is good.
pub async fn known(State(app): State<App>, headers: HeaderMap) -> Response {
    match authenticate(&app.store, &headers, app.clock.now()).await {
        Ok(_) => StatusCode::NO_CONTENT.into_response(),
        Err(refusal) => refusal.into_response(),
    }
}

/// Keeps a token in the browser, if it is good.
pub async fn begin(State(app): State<App>, headers: HeaderMap, Form(shown): Form<Shown>) -> Response {
    let now = app.clock.now();
    let next = inside(&shown.next).to_owned();
    match admit(&app, &headers, &shown.token, now).await {
        Ok(caller) => {
            let cookie = cookie(shown.token.expose().trim(), life(&caller, now), is_loopback(&headers));
            ([(header::SET_COOKIE, cookie)], Redirect::to(&next)).into_response()
        }
        Err(refusal) => {
            let problem = refusal.problem();
            let status = StatusCode::from_u16(problem.status).unwrap_or(StatusCode::UNAUTHORIZED);
            page(&app, status, &next, Some(problem.detail.clone()))
        }
    }
}

/// Forgets the token in this browser; the token itself stays valid.
pub async fn end(headers: HeaderMap) -> Response {
    if let Err(refusal) = refuse_other_origins(&http::Method::DELETE, &headers) {
        return refusal.into_response();
    }
    let gone = cookie("", 0, is_loopback(&headers));
    (StatusCode::NO_CONTENT, [(header::SET_COOKIE, gone)]).into_response()
}

async fn admit(app: &App, headers: &HeaderMap, token: &Secret<String>, now: Timestamp) -> Answer<Caller> {
    refuse_other_origins(&http::Method::POST, headers)?;
    let mut shown = HeaderMap::new();
    if let Ok(value) = HeaderValue::from_str(&format!("Bearer {}", token.expose().trim())) {
        shown.insert(header::AUTHORIZATION, value);
    }
    authenticate(&app.store, &shown, now).await
}

fn page(app: &App, status: StatusCode, next: &str, problem: Option<String>) -> Response {
    html(status, LoginPage { shell: outside(app, "Sign in"), next: next.to_owned(), problem }.render())
}

/// Only places of the page: never another host.
fn inside(next: &str) -> &str {
    let is_ours = next.starts_with("/ui/") && !next.starts_with("/ui/login") && !next.contains(['\\', '\r', '\n']);
    if is_ours { next } else { "/ui/" }
}

fn life(caller: &Caller, now: Timestamp) -> i64 {
    let left = caller.expires_at.map_or(COOKIE_SECONDS, |end| end.as_secs() - now.as_secs());
    left.clamp(0, COOKIE_SECONDS)
}

fn cookie(token: &str, seconds: i64, loopback: bool) -> String {
    let secure = if loopback { "" } else { "; Secure" };
    format!("{TOKEN_COOKIE}={token}; Path=/; HttpOnly; SameSite=Strict; Max-Age={seconds}{secure}")
}

/// Plain HTTP is served on the loopback alone; a cookie for any other host goes over TLS only.
fn is_loopback(headers: &HeaderMap) -> bool {
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    let name = host.rsplit_once(':').map_or(host, |(name, _)| name);
    matches!(name, "localhost" | "127.0.0.1" | "[::1]" | "[:")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_is_led_to_another_host_after_signing_in() {
        for bad in ["https://evil.example/", "//evil.example", "/\\evil.example", "/ui/login?next=/", "", "ui/"] {
            assert_eq!(inside(bad), "/ui/", "{bad}");
        }
        assert_eq!(inside("/ui/jobs?status=failed"), "/ui/jobs?status=failed");
    }

    #[test]
    fn the_cookie_is_out_of_reach_of_scripts_and_other_origins() {
        let cookie = cookie("lat_api_x", 60, false);
        for attribute in ["HttpOnly", "SameSite=Strict", "Secure", "Max-Age=60"] {
            assert!(cookie.contains(attribute), "{cookie}");
        }
    }
}
