//! API tokens: the secret is shown once, its hash is kept.

use std::time::Duration;

use axum::Json;
use axum::extract::{Extension, Path, State};
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use lattice_api::page::{Page, PageQuery};
use lattice_api::token::{CreateToken, CreatedToken, TokenView, WhoAmI};
use lattice_core::actor::Role;
use lattice_core::change::Change;
use lattice_core::credential::ApiToken;
use lattice_core::explain::{Code, NextAction};
use lattice_core::ids::{ApiTokenId, Generation};
use lattice_core::secret::token_hash;
use lattice_core::time::Timestamp;

use super::App;
use super::extract::{Committed, NoBody, Query, Write, page_request, parse_id};
use crate::auth::{Caller, is_valid, new_token};
use crate::error::{Answer, Refusal};

/// Life of a token when none is asked for, in seconds: 90 days.
const DEFAULT_TTL_SECONDS: u64 = 90 * 86_400;

/// Longest life of a token, in seconds: 366 days; a credential that never ends is never looked at.
const MAX_TTL_SECONDS: u64 = 366 * 86_400;

/// Tokens, newest first. There are few of them: the first page of the store is all of them, cut here.
pub async fn list(State(app): State<App>, Query(query): Query<PageQuery>) -> Answer<Json<Page<TokenView>>> {
    let page = page_request(query.cursor, query.limit)?;
    let now = app.clock.now();
    let after: Option<ApiTokenId> = page
        .cursor
        .map(|cursor| cursor.to_string().parse())
        .transpose()
        .map_err(|_| Refusal::malformed("cursor", "is not one that this list gave"))?;
    let tokens = app.store.api_tokens().await?;
    let mut rest = tokens.into_iter().filter(|token| after.is_none_or(|after| token.id < after));
    let items: Vec<TokenView> = rest.by_ref().take(page.limit).map(|token| view(&token, now)).collect();
    let next = rest.next().and_then(|_| items.last()).map(|token| token.id.to_string());
    Ok(Json(Page { items, next }))
}

fn view(token: &ApiToken, now: Timestamp) -> TokenView {
    TokenView {
        id: token.id,
        name: token.name.clone(),
        role: token.role,
        issued_at: token.issued_at,
        expires_at: token.expires_at,
        revoked_at: token.revoked_at,
        valid: is_valid(token, now),
    }
}

/// Creates a token.
pub async fn create(State(app): State<App>, write: Write<CreateToken>) -> Answer<Response> {
    let body = &write.body;
    check_name(&body.name)?;
    check_role(body.role)?;
    let ttl = body.ttl_seconds.unwrap_or(DEFAULT_TTL_SECONDS);
    if !(1..=MAX_TTL_SECONDS).contains(&ttl) {
        return Err(Refusal::invalid("ttl_seconds", format!("must be 1 to {MAX_TTL_SECONDS} (366 days), not {ttl}")));
    }
    if write.earlier.is_some() {
        return Err(shown_once());
    }
    let secret = new_token((app.random)());
    let token = ApiToken {
        id: ApiTokenId::generate(&*app.ids, write.at),
        name: body.name.clone(),
        role: body.role,
        hash: token_hash(secret.expose()),
        issued_at: write.at,
        expires_at: Some(write.at + Duration::from_secs(ttl)),
        revoked_at: None,
        generation: Generation::FIRST,
    };
    let request = write.request(&*app.ids, "");
    match write.commit(&app, request.commit(Vec::new(), vec![Change::ApiToken(token.clone())])).await? {
        Committed::Now => {}
        Committed::Earlier(_) => return Err(shown_once()),
    }
    let answer = CreatedToken { token: view(&token, write.at), secret };
    Ok((StatusCode::CREATED, Json(answer)).into_response())
}

fn shown_once() -> Refusal {
    Refusal::new(Code::Taken, "this request was carried out before; the token's secret is shown only once")
        .next(NextAction::run("lattice token list", "shows the token; revoke it and create another"))
}

fn check_name(name: &str) -> Answer<()> {
    let fine = (1..=63).contains(&name.len())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '@' | '-'))
        && name != "anonymous";
    if fine { Ok(()) } else { Err(Refusal::invalid("name", "must be 1 to 63 letters, digits, `.`, `_`, `@` and `-`")) }
}

fn check_role(role: Role) -> Answer<()> {
    match role {
        Role::ProjectViewer | Role::ProjectMember | Role::ProjectAdmin | Role::TenantAdmin | Role::PlatformAdmin => {
            Ok(())
        }
        Role::Agent | Role::System => {
            Err(Refusal::invalid("role", format!("cannot be `{role}`: agents and the system have no API tokens")))
        }
    }
}

/// Revokes a token; one that is revoked already stays as it is.
pub async fn revoke(State(app): State<App>, Path(id): Path<String>, write: Write<NoBody>) -> Answer<Json<TokenView>> {
    let id: ApiTokenId = parse_id("token", &id)?;
    let tokens = app.store.api_tokens().await?;
    let Some(token) = tokens.into_iter().find(|token| token.id == id) else {
        return Err(Refusal::not_found("token", &id.to_string()));
    };
    if token.revoked_at.is_some() {
        return Ok(Json(view(&token, write.at)));
    }
    let revoked = ApiToken { revoked_at: Some(write.at), generation: token.generation.next(), ..token };
    let request = write.request(&*app.ids, "");
    write.commit(&app, request.commit(Vec::new(), vec![Change::ApiToken(revoked.clone())])).await?;
    Ok(Json(view(&revoked, write.at)))
}

/// Who the token belongs to.
pub async fn whoami(Extension(caller): Extension<Caller>) -> Json<WhoAmI> {
    Json(WhoAmI { name: caller.name, role: caller.role, token_id: Some(caller.token), expires_at: caller.expires_at })
}
