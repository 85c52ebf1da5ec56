//! Events: pages and streams.

use axum::Json;
use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, header};
use lattice_api::event::{Event, EventPage, EventQuery};
use lattice_api::page::{DEFAULT_LIMIT, MAX_LIMIT};
use lattice_api::sse::EVENT_STREAM;
use lattice_core::explain::{Code, NextAction};
use lattice_core::ids::EventSeq;
use lattice_store::EventFilter;

use super::App;
use super::extract::Query;
use super::rows::{find_job, find_node};
use crate::error::{Answer, Refusal};
use crate::sse;

/// All events, or those that the query names.
pub async fn all(State(app): State<App>, headers: HeaderMap, Query(query): Query<EventQuery>) -> Answer<Response> {
    let filter = EventFilter { node: query.node, job: query.job };
    answer(&app, &headers, &query, filter).await
}

/// Events that concern one node.
pub async fn of_node(
    State(app): State<App>,
    Path(node): Path<String>,
    headers: HeaderMap,
    Query(query): Query<EventQuery>,
) -> Answer<Response> {
    let node = find_node(&app, &node).await?;
    answer(&app, &headers, &query, EventFilter { node: Some(node.id), job: query.job }).await
}

/// Events of one job.
pub async fn of_job(
    State(app): State<App>,
    Path(job): Path<String>,
    headers: HeaderMap,
    Query(query): Query<EventQuery>,
) -> Answer<Response> {
    let job = find_job(&app, &job).await?;
    answer(&app, &headers, &query, EventFilter { node: query.node, job: Some(job.id) }).await
}

async fn answer(app: &App, headers: &HeaderMap, query: &EventQuery, filter: EventFilter) -> Answer<Response> {
    let accepts = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    if accepts.contains(EVENT_STREAM) {
        stream(app, headers, query, filter).await
    } else {
        page(app, query, filter).await
    }
}

async fn stream(app: &App, headers: &HeaderMap, query: &EventQuery, filter: EventFilter) -> Answer<Response> {
    let after = match headers.get("last-event-id") {
        Some(id) => Some(EventSeq(
            id.to_str()
                .ok()
                .and_then(|text| text.trim().parse().ok())
                .ok_or_else(|| Refusal::malformed("Last-Event-ID", "must be the id of an event, a number"))?,
        )),
        None => query.after.map(EventSeq),
    };
    let last = app.store.last_event().await?;
    let after = after.unwrap_or(last);
    if after > last {
        return Err(ahead(after, last));
    }
    let permit = app.streams.clone().try_acquire_owned().map_err(|_| {
        Refusal::new(Code::Unavailable, format!("{} event streams are open already", app.limits.max_streams))
            .retry_after_s(5)
    })?;
    let held = (app.metrics.stream_opened(), permit);
    Ok(sse::stream(app.store.clone(), filter, after, app.stop.clone(), held))
}

async fn page(app: &App, query: &EventQuery, filter: EventFilter) -> Answer<Response> {
    let limit = query.limit.unwrap_or(DEFAULT_LIMIT);
    if !(1..=MAX_LIMIT).contains(&limit) {
        return Err(Refusal::malformed("limit", format!("must be 1 to {MAX_LIMIT}, not {limit}")));
    }
    let after = EventSeq(query.after.unwrap_or(0));
    let known = app.store.last_event().await?;
    if after > known {
        return Err(ahead(after, known));
    }
    let events = app.store.events(after, &filter, limit as usize).await?;
    let more = events.len() == limit as usize;
    // A page that is not full looked at everything that was committed before it was read.
    let looked = if more { EventSeq(0) } else { known };
    let last = events.last().map_or(after, |event| event.seq).max(looked);
    let events = events.into_iter().map(|event| Event::of(event.seq, event.row)).collect();
    Ok(Json(EventPage { events, last, more }).into_response())
}

/// A cursor from another history: after a restore, say. To wait for it would be silence without an end.
fn ahead(after: EventSeq, last: EventSeq) -> Refusal {
    Refusal::malformed("after", format!("is {}, but the last event is {}", after.0, last.0))
        .because("the data was restored from a backup, or the cursor belongs to another server")
        .next(NextAction::Fix { what: "read what you follow anew, then follow without a cursor".to_owned() })
}
