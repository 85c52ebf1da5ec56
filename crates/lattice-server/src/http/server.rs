//! The server about itself: alive, ready, metrics, its API.

use std::sync::OnceLock;

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::header;
use lattice_api::server::ServerHealth;
use lattice_core::explain::Code;

use super::App;
use crate::error::{Answer, Refusal};
use crate::metrics::OPENMETRICS;

fn health() -> Json<ServerHealth> {
    Json(ServerHealth { status: "ok".to_owned(), version: env!("CARGO_PKG_VERSION").to_owned() })
}

/// The process answers.
pub async fn healthz() -> Json<ServerHealth> {
    health()
}

/// The process answers, is not stopping, and its store can be read.
pub async fn readyz(State(app): State<App>) -> Answer<Json<ServerHealth>> {
    if app.stop.is_cancelled() {
        return Err(Refusal::new(Code::Unavailable, "the server is stopping"));
    }
    app.store.last_event().await?;
    Ok(health())
}

/// Counts are read from the store at each scrape, so they cannot drift from it.
pub async fn metrics(State(app): State<App>) -> Answer<Response> {
    let nodes: Vec<_> = app.store.node_counts().await?.into_iter().map(|count| (count.state, count.nodes)).collect();
    let jobs = app.store.job_counts().await?;
    app.metrics.observe_sites(app.store.sites().await?.iter());
    app.metrics.observe(&nodes, &jobs, app.store.last_event().await?);
    Ok(([(header::CONTENT_TYPE, OPENMETRICS)], app.metrics.text()).into_response())
}

/// The description is the same as long as the process lives.
pub async fn openapi() -> Response {
    static DOCUMENT: OnceLock<String> = OnceLock::new();
    let document = DOCUMENT.get_or_init(crate::openapi::document).as_str();
    ([(header::CONTENT_TYPE, "application/json")], document).into_response()
}
