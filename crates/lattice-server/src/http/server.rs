//! The server about itself: alive, ready, metrics, its API.

use std::collections::BTreeSet;
use std::sync::OnceLock;

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::header;
use lattice_api::server::{AgentCa, ServerHealth};
use lattice_core::batch::admission::parallel;
use lattice_core::explain::Code;
use lattice_core::ids::SiteId;
use lattice_core::site::{Governor, Site};

use super::{App, silences};
use crate::error::{Answer, Refusal};
use crate::metrics::{BatchFigures, OPENMETRICS, WorkFigures};

fn health(app: &App) -> Json<ServerHealth> {
    let (status, version) = ("ok".to_owned(), env!("CARGO_PKG_VERSION").to_owned());
    Json(ServerHealth { status, version, hears_agents: !app.registry.stands_by() })
}

/// The process answers.
pub async fn healthz(State(app): State<App>) -> Json<ServerHealth> {
    health(&app)
}

/// The CA of the agent listener.
pub async fn agent_ca(State(app): State<App>) -> Json<AgentCa> {
    Json(AgentCa { ca_pem: app.agent_ca_pem.clone() })
}

/// The process answers, is not stopping, and its store can be read.
pub async fn readyz(State(app): State<App>) -> Answer<Json<ServerHealth>> {
    if app.stop.is_cancelled() {
        return Err(Refusal::new(Code::Unavailable, "the server is stopping"));
    }
    app.store.last_event().await?;
    Ok(health(&app))
}

/// Counts are read from the store at each scrape, so they cannot drift from it.
pub async fn metrics(State(app): State<App>) -> Answer<Response> {
    let nodes: Vec<_> = app.store.node_counts().await?.into_iter().map(|count| (count.state, count.nodes)).collect();
    let jobs = app.store.job_counts().await?;
    app.metrics.observe_batches(&batches(&app).await?);
    let sites = app.store.sites().await?;
    app.metrics.observe_sites(sites.iter());
    app.metrics.observe_work(&work(&app, &sites).await?);
    app.metrics.observe_tasks(&app.store.open_task_counts().await?);
    app.metrics.observe(&nodes, &jobs, app.store.last_event().await?);
    Ok(([(header::CONTENT_TYPE, OPENMETRICS)], app.metrics.text()).into_response())
}

async fn work(app: &App, sites: &[Site]) -> Answer<WorkFigures> {
    let mut figures = WorkFigures {
        allocations: app.store.allocation_counts().await?,
        holds: app.store.hold_counts().await?,
        down: app.store.down_counts().await?,
        deviating: app.store.deviating_nodes().await?,
        braked: app.store.braked_nodes().await?.len() as u64,
        breakers_open: app.store.open_breakers().await?,
        silences: silences::in_force(app).await?.len() as u64,
        governors: Vec::with_capacity(sites.len()),
    };
    for site in sites {
        let (in_service, taken) = app.store.taken_at(site.id).await?;
        figures.governors.push((site.name.clone(), Governor::new(&site.automation, in_service, taken)));
    }
    Ok(figures)
}

async fn batches(app: &App) -> Answer<BatchFigures> {
    let live = app.store.live_batches(None).await?;
    let sites: BTreeSet<SiteId> = live.iter().map(|batch| batch.site).collect();
    let mut figures = BatchFigures {
        statuses: live.iter().map(|batch| batch.status).collect(),
        machines: app.store.children_of_all().await?,
        ..BatchFigures::default()
    };
    for site in sites {
        if let Some(row) = app.store.site(site).await? {
            figures.permits += u64::from(parallel(&row).site);
            figures.used += app.store.moving_onboardings(site).await?;
        }
    }
    Ok(figures)
}

/// The description is the same as long as the process lives.
pub async fn openapi() -> Response {
    static DOCUMENT: OnceLock<String> = OnceLock::new();
    let document = DOCUMENT.get_or_init(crate::openapi::document).as_str();
    ([(header::CONTENT_TYPE, "application/json")], document).into_response()
}
