//! Webhooks: their rows, their keys, and a delivery on trial. Only platform administrators see them: addresses may hold
//! secrets of receivers.

use axum::Json;
use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use base64::Engine;
use http::StatusCode;
use lattice_api::Gone;
use lattice_api::event::Event;
use lattice_api::page::{Page, PageQuery};
use lattice_api::webhook::{
    CreateWebhook, Delivery, DisableWebhook, EnableWebhook, EventPattern, PatchWebhook, RotateWebhookKey,
    WEBHOOK_KEY_PREFIX, WebhookStatus, WebhookTest, WebhookView, WebhookWithKey,
};
use lattice_core::change::{Change, EventRow, Removed, Resource};
use lattice_core::explain::{Code, NextAction};
use lattice_core::ids::{EventSeq, Generation, SiteId, WebhookId, WebhookKeyId};
use lattice_core::secret::Secret;
use lattice_core::webhook::delivery::{WebhookProgress, WebhookStep};
use lattice_core::webhook::{GRACE, GRACE_MAX, PATTERNS_MAX, WEBHOOKS_MAX, Webhook, WebhookCause, WebhookChange};
use lattice_providers::secret::SecretObject;
use lattice_providers::webhook::Message;
use lattice_store::{EventFilter, PAGE_MAX};
use tracing::warn;

use super::App;
use super::extract::{Committed, MAX_REASON, NoBody, Query, Write, page_request};
use super::power_overrides::forget;
use super::rows::find_site;
use crate::clock::Stopwatch;
use crate::error::{Answer, Refusal};
use crate::webhooks::{KEY_FIELD, keys};

/// Tries of a change beside a delivery that is stored at the same time.
const TRIES: u32 = 5;

/// Webhooks, by name. There are few of them: one page is all.
pub async fn list(State(app): State<App>) -> Answer<Json<Page<WebhookView>>> {
    let mut items = Vec::new();
    for webhook in app.store.webhooks().await? {
        items.push(view(&app, webhook).await?);
    }
    Ok(Json(Page { items, next: None }))
}

/// One webhook, by id or name.
pub async fn get(State(app): State<App>, Path(id): Path<String>) -> Answer<Json<WebhookView>> {
    let webhook = find_webhook(&app, &id).await?;
    view(&app, webhook).await.map(Json)
}

/// Its last deliveries, newest first; no more are kept than one page shows.
pub async fn deliveries(
    State(app): State<App>,
    Path(id): Path<String>,
    Query(query): Query<PageQuery>,
) -> Answer<Json<Page<Delivery>>> {
    let page = page_request(None, query.limit)?;
    let webhook = find_webhook(&app, &id).await?;
    let items = app.store.webhook_deliveries(webhook.id, page.limit).await?;
    Ok(Json(Page { items, next: None }))
}

async fn find_webhook(app: &App, text: &str) -> Answer<Webhook> {
    let found = match text.parse::<WebhookId>() {
        Ok(id) => app.store.webhook(id).await?,
        Err(_) => app.store.webhook_by_name(text).await?,
    };
    found.ok_or_else(|| Refusal::not_found("webhook", text))
}

async fn view(app: &App, one: Webhook) -> Answer<WebhookView> {
    let progress = progress_of(app, one.id).await?;
    let after = app.store.events(progress.cursor, &EventFilter::default(), PAGE_MAX).await?;
    let waiting = after.iter().filter(|event| one.wants(&event.row)).count() as u64;
    let site = match one.site {
        // A site that was removed is named by its id.
        Some(id) => Some(app.store.site(id).await?.map_or_else(|| id.to_string(), |site| site.name)),
        None => None,
    };
    let now = app.clock.now();
    let previous_key_until = one.previous_key.map(|previous| previous.until).filter(|until| now < *until);
    Ok(WebhookView {
        id: one.id,
        name: one.name,
        url: one.url,
        events: one.events,
        site,
        status: one.status,
        status_reason: one.status_reason,
        status_since: one.status_since,
        waiting,
        failed: progress.failed,
        failing_since: progress.failing_since,
        next_at: progress.next_at.filter(|_| one.status == WebhookStatus::Enabled),
        last_error: progress.last_error,
        delivered_at: progress.delivered_at,
        attempts: progress.attempts,
        previous_key_until,
        created_by: one.created_by,
        created_at: one.created_at,
        updated_at: one.updated_at,
        generation: one.generation,
    })
}

/// A webhook that is removed at this moment has none.
async fn progress_of(app: &App, id: WebhookId) -> Answer<WebhookProgress> {
    let found = app.store.webhook_progress(id).await?;
    found.ok_or_else(|| Refusal::not_found("webhook", &id.to_string()))
}

/// Creates a webhook with its first key; it gets what happens from now on.
pub async fn create(State(app): State<App>, write: Write<CreateWebhook>) -> Answer<Response> {
    let body = &write.body;
    check_name(&body.name)?;
    check_url(&app, &body.url)?;
    check_events(&body.events)?;
    let site = site_id(&app, body.site.as_deref().unwrap_or_default()).await?;
    if write.earlier.is_some() {
        return Err(shown_once(&body.name));
    }
    check_room(&app, &body.name).await?;
    let webhook = Webhook {
        id: WebhookId::generate(&*app.ids, write.at),
        name: body.name.clone(),
        url: body.url.clone(),
        events: body.events.clone(),
        site,
        status: WebhookStatus::Enabled,
        status_reason: String::new(),
        status_since: write.at,
        key: WebhookKeyId::generate(&*app.ids, write.at),
        previous_key: None,
        created_by: write.caller.actor(),
        created_at: write.at,
        updated_at: write.at,
        generation: Generation::FIRST,
    };
    let progress = WebhookProgress::new(webhook.id, app.store.last_event().await?);
    let step = WebhookStep { after: progress, delivery: None };
    let changes = vec![changed(&webhook, None, WebhookCause::Created), Change::WebhookStep(Box::new(step))];
    let answer = commit_key(&app, &write, webhook, changes).await?;
    Ok((StatusCode::CREATED, Json(answer)).into_response())
}

/// Keeps a new key, then commits the row that names it; the key of a row that is not committed is forgotten.
async fn commit_key<B: Send + Sync>(
    app: &App,
    write: &Write<B>,
    webhook: Webhook,
    changes: Vec<Change>,
) -> Answer<WebhookWithKey> {
    let text = base64::engine::general_purpose::URL_SAFE_NO_PAD.encode((app.random)());
    let secret = Secret::new(format!("{WEBHOOK_KEY_PREFIX}{text}"));
    let path = webhook.key_path(webhook.key);
    let place = path.parse().map_err(|_| Refusal::new(Code::Internal, "the path of a key cannot be one"))?;
    let object = SecretObject::from([(KEY_FIELD.to_owned(), secret.clone())]);
    app.secrets.write(&place, object).await.map_err(|error| Refusal::explained(&error))?;
    let request = write.request(&*app.ids, "");
    let refused = match write.commit(app, request.commit(Vec::new(), changes)).await {
        Ok(Committed::Now) => return Ok(WebhookWithKey { webhook: view(app, webhook).await?, secret }),
        Ok(Committed::Earlier(_)) => shown_once(&webhook.name),
        Err(refused) => refused,
    };
    forget(app, &path).await?;
    Err(refused)
}

/// Changes name, address, events or site.
pub async fn patch(
    State(app): State<App>,
    Path(id): Path<String>,
    write: Write<PatchWebhook>,
) -> Answer<Json<WebhookView>> {
    let webhook = find_webhook(&app, &id).await?;
    let body = &write.body;
    if write.earlier.is_none() {
        write.check_version(webhook.generation)?;
        let mut after = webhook.clone();
        if let Some(name) = &body.name {
            check_name(name)?;
            after.name.clone_from(name);
        }
        if let Some(url) = &body.url {
            check_url(&app, url)?;
            after.url.clone_from(url);
        }
        if let Some(events) = &body.events {
            check_events(events)?;
            after.events.clone_from(events);
        }
        if let Some(site) = &body.site {
            after.site = site_id(&app, site).await?;
        }
        let change = changed(&after.next(write.at), Some(webhook.status), WebhookCause::Updated);
        write.commit(&app, write.request(&*app.ids, "").commit(Vec::new(), vec![change])).await?;
    }
    get(State(app), Path(webhook.id.to_string())).await
}

/// Removes a webhook with its keys, its place in the outbox and its deliveries.
pub async fn remove(State(app): State<App>, Path(id): Path<String>, write: Write<NoBody>) -> Answer<Json<Gone>> {
    if write.earlier.is_none() {
        let webhook = find_webhook(&app, &id).await?;
        write.check_version(webhook.generation)?;
        let kept = webhook.key_paths();
        let change = Change::Removed(Box::new(Removed::Webhook(webhook)));
        write.commit(&app, write.request(&*app.ids, "").commit(Vec::new(), vec![change])).await?;
        for path in kept {
            forget(&app, &path).await.map_err(|refused| {
                refused.because(format!("the webhook is removed; its key at {path} is left for you to delete"))
            })?;
        }
    }
    Ok(Json(Gone { removed: id }))
}

/// Lets a webhook get events again, at once: from where it stopped, or from now on.
pub async fn enable(
    State(app): State<App>,
    Path(id): Path<String>,
    write: Write<EnableWebhook>,
) -> Answer<Json<WebhookView>> {
    let webhook = find_webhook(&app, &id).await?;
    if write.earlier.is_none() {
        write.check_version(webhook.generation)?;
        let cursor = if write.body.skip { Some(app.store.last_event().await?) } else { None };
        retried(&app, &write, write.body.reason.as_deref(), webhook.id, |webhook, progress| {
            let is_well = webhook.status == WebhookStatus::Enabled && progress.failed == 0 && cursor.is_none();
            let before = Some(webhook.status);
            (!is_well).then(|| {
                let step = WebhookStep { after: progress.again(cursor), delivery: None };
                let after = webhook.enabled(write.at);
                vec![changed(&after, before, WebhookCause::Enabled), Change::WebhookStep(Box::new(step))]
            })
        })
        .await?;
    }
    get(State(app), Path(webhook.id.to_string())).await
}

/// Keeps events from a webhook; its place in the outbox is kept.
pub async fn disable(
    State(app): State<App>,
    Path(id): Path<String>,
    write: Write<DisableWebhook>,
) -> Answer<Json<WebhookView>> {
    let webhook = find_webhook(&app, &id).await?;
    if write.earlier.is_none() {
        write.check_version(webhook.generation)?;
        let reason = write.body.reason.as_deref();
        retried(&app, &write, reason, webhook.id, |webhook, _| {
            let before = Some(webhook.status);
            let said = reason.unwrap_or("an operator disabled it");
            let said = said.chars().filter(|c| !c.is_control()).take(MAX_REASON).collect();
            (webhook.status != WebhookStatus::Disabled)
                .then(|| vec![changed(&webhook.disabled(said, write.at), before, WebhookCause::Disabled)])
        })
        .await?;
    }
    get(State(app), Path(webhook.id.to_string())).await
}

/// Commits what `decide` makes of the rows as they are; again when a delivery was stored at that moment.
async fn retried<B: Send + Sync>(
    app: &App,
    write: &Write<B>,
    reason: Option<&str>,
    id: WebhookId,
    decide: impl Fn(Webhook, WebhookProgress) -> Option<Vec<Change>>,
) -> Answer<()> {
    for tries in 1.. {
        let webhook = find_webhook(app, &id.to_string()).await?;
        let Some(changes) = decide(webhook, progress_of(app, id).await?) else { return Ok(()) };
        let commit = write.request(&*app.ids, reason.unwrap_or_default()).commit(Vec::new(), changes);
        match write.commit(app, commit).await {
            Ok(_) => return Ok(()),
            Err(refused) if tries < TRIES && refused.problem().is(Code::StaleVersion) => {}
            Err(refused) => return Err(refused),
        }
    }
    Ok(())
}

/// Gives a webhook a new key; the present one signs too for a while.
pub async fn rotate(
    State(app): State<App>,
    Path(id): Path<String>,
    write: Write<RotateWebhookKey>,
) -> Answer<Json<WebhookWithKey>> {
    let webhook = find_webhook(&app, &id).await?;
    let grace = write.body.grace_seconds.unwrap_or(GRACE.as_secs());
    if grace > GRACE_MAX.as_secs() {
        let most = GRACE_MAX.as_secs();
        return Err(Refusal::invalid("grace_seconds", format!("must be 0 to {most} (30 days), not {grace}")));
    }
    if write.earlier.is_some() {
        return Err(shown_once(&webhook.name));
    }
    write.check_version(webhook.generation)?;
    let until = (grace > 0).then(|| write.at + std::time::Duration::from_secs(grace));
    let dropped = match until {
        Some(_) => webhook.previous_key.map(|previous| webhook.key_path(previous.key)).into_iter().collect(),
        None => webhook.key_paths(),
    };
    let key = WebhookKeyId::generate(&*app.ids, write.at);
    let after = webhook.clone().rekeyed(key, until, write.at);
    let change = changed(&after, Some(webhook.status), WebhookCause::KeyRotated);
    let answer = commit_key(&app, &write, after, vec![change]).await?;
    for path in dropped {
        // No delivery is signed with it any more; the new key must be shown, now or never.
        if let Err(refused) = forget(&app, &path).await {
            warn!(%path, why = refused.problem().detail, "a key that signs no more is left in the secret store");
        }
    }
    Ok(Json(answer))
}

/// Posts an event of its own to the receiver, now, and says what came of it.
pub async fn test(State(app): State<App>, Path(id): Path<String>, write: Write<NoBody>) -> Answer<Json<WebhookTest>> {
    let webhook = find_webhook(&app, &id).await?;
    let keys = keys(&*app.secrets, &webhook, write.at).await.map_err(|error| Refusal::explained(&error))?;
    let event = Event::of(EventSeq(0), trial(&webhook, &write));
    let body = serde_json::to_vec(&event).expect("an event has only text keys");
    let message = Message { webhook: webhook.id.to_string(), name: &event.name, id: 0, at: write.at, body };
    let begun = Stopwatch::start();
    let attempted = app.webhooks.send(&webhook.url, &keys, message).await;
    let took_ms = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
    let note = Change::Note {
        name: "webhook.tested".to_owned(),
        resource: Resource::Webhook(webhook.id),
        detail: attempted.said(),
    };
    write.commit(&app, write.request(&*app.ids, "").commit(Vec::new(), vec![note])).await?;
    let error = attempted.error();
    Ok(Json(WebhookTest { ok: error.is_none(), status: attempted.status(), error, took_ms }))
}

/// An event that is in no feed: its place is 0.
fn trial<B>(webhook: &Webhook, write: &Write<B>) -> EventRow {
    EventRow {
        at: write.at,
        name: "webhook.test".to_owned(),
        resource_kind: "webhook".to_owned(),
        resource_id: webhook.id.to_string(),
        node: None,
        correlation: write.correlation.to_string(),
        payload: serde_json::json!({"detail": format!("a trial of {}", webhook.name)}),
    }
}

fn changed(after: &Webhook, before: Option<WebhookStatus>, cause: WebhookCause) -> Change {
    Change::Webhook(Box::new(WebhookChange { after: after.clone(), before, cause }))
}

fn shown_once(name: &str) -> Refusal {
    Refusal::new(Code::Taken, "this request was carried out before; the key is shown only once")
        .next(NextAction::run(format!("lattice webhook rotate-secret {name}"), "makes another key, and shows it"))
}

fn check_name(name: &str) -> Answer<()> {
    let fine = (1..=63).contains(&name.len())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-'))
        && name.parse::<WebhookId>().is_err();
    if fine { Ok(()) } else { Err(Refusal::invalid("name", "must be 1 to 63 letters, digits, `.`, `_` and `-`")) }
}

fn check_url(app: &App, url: &str) -> Answer<()> {
    app.webhooks.check(url).map_err(|why| Refusal::invalid("url", why))
}

fn check_events(events: &[EventPattern]) -> Answer<()> {
    if (1..=PATTERNS_MAX).contains(&events.len()) {
        return Ok(());
    }
    Err(Refusal::invalid("events", format!("must have 1 to {PATTERNS_MAX} patterns such as node.onboarding.*")))
}

async fn check_room(app: &App, name: &str) -> Answer<()> {
    let known = app.store.webhooks().await?;
    if known.iter().any(|webhook| webhook.name == name) {
        return Err(Refusal::new(Code::Taken, format!("a webhook has the name {name} already"))
            .next(NextAction::run(format!("lattice webhook show {name}"), "shows it")));
    }
    if known.len() >= WEBHOOKS_MAX {
        return Err(Refusal::new(Code::Taken, format!("there are {WEBHOOKS_MAX} webhooks, and no more are possible"))
            .next(NextAction::run("lattice webhook list", "shows them; remove one that is not needed")));
    }
    Ok(())
}

/// The site of that id or name; none for an empty text.
async fn site_id(app: &App, text: &str) -> Answer<Option<SiteId>> {
    if text.is_empty() {
        return Ok(None);
    }
    let found = find_site(app, text).await;
    found.map(|site| Some(site.id)).map_err(|refusal| match refusal.problem().is(Code::NotFound) {
        true => Refusal::invalid("site", format!("names no site: there is none with the id or name `{text}`")),
        false => refusal,
    })
}
