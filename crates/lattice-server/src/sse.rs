//! Event streams: from a cursor, nothing skipped, nothing twice. design: 8-interfaces

use std::convert::Infallible;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use http::{HeaderValue, header};
use lattice_api::event::Event;
use lattice_api::sse::{EVENT_STREAM, KEEPALIVE, KEEPALIVE_MS, frame};
use lattice_core::ids::EventSeq;
use lattice_store::{EventFilter, Follower, Store, StoreError};
use tokio_util::sync::CancellationToken;
use tracing::warn;

use crate::metrics::StreamGuard;

/// Events read from the store at once. A slow reader holds no more than this in memory.
const BATCH: usize = 256;

/// Where a stream stands.
struct Cursor {
    store: Store,
    follower: Follower,
    filter: EventFilter,
    seen: EventSeq,
    stop: CancellationToken,
    /// Counts the stream, and holds its permit.
    _held: (StreamGuard, tokio::sync::OwnedSemaphorePermit),
}

/// A stream of the events after `after` that the filter lets through, until the client or the server goes.
pub fn stream(
    store: Store,
    filter: EventFilter,
    after: EventSeq,
    stop: CancellationToken,
    held: (StreamGuard, tokio::sync::OwnedSemaphorePermit),
) -> Response {
    let follower = store.follow();
    let cursor = Cursor { store, follower, filter, seen: after, stop, _held: held };
    let chunks = stream::unfold(Some(cursor), |cursor| async move {
        let mut cursor = cursor?;
        match cursor.next().await {
            Ok(Some(text)) => Some((Ok::<_, Infallible>(Bytes::from(text)), Some(cursor))),
            Ok(None) => None,
            Err(error) => {
                warn!(%error, "event stream ended: the store failed");
                None
            }
        }
    });
    let mut response = Body::from_stream(chunks).into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(EVENT_STREAM));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    // Proxies that collect answers before they pass them on would hold events back.
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}

impl Cursor {
    /// The next text of the stream; none when the server stops.
    async fn next(&mut self) -> Result<Option<String>, StoreError> {
        loop {
            // Read before the events: whatever is committed up to here is seen by the query below.
            let known = self.store.last_event().await?;
            let events = self.store.events(self.seen, &self.filter, BATCH).await?;
            let is_full = events.len() == BATCH;
            if let Some(last) = events.last() {
                self.seen = last.seq;
            }
            if !is_full {
                self.seen = self.seen.max(known);
            }
            if !events.is_empty() {
                let frames = events.into_iter().map(|event| frame(&Event::of(event.seq, event.row)));
                return Ok(Some(frames.collect()));
            }
            let wait = Duration::from_millis(KEEPALIVE_MS);
            tokio::select! {
                () = self.stop.cancelled() => return Ok(None),
                woken = tokio::time::timeout(wait, self.follower.after(self.seen)) => match woken {
                    Ok(Ok(_)) => {}
                    // The store is closed: the server is going.
                    Ok(Err(_)) => return Ok(None),
                    Err(_) => return Ok(Some(KEEPALIVE.to_owned())),
                },
            }
        }
    }
}
