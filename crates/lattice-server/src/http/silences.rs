//! Silences: created, listed, lifted. What they hide is decided where attention is: `fleet`.

use std::collections::HashMap;
use std::time::Duration;

use axum::Json;
use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use lattice_api::Gone;
use lattice_api::page::Page;
use lattice_api::silence::{CreateSilence, SilenceView};
use lattice_core::command::silence as commands;
use lattice_core::explain::{Code, NextAction};
use lattice_core::ids::{NodeId, SilenceId, SiteId};
use lattice_core::silence::{About, Matcher, NODES_MAX, NamedNode, Silence};

use super::App;
use super::extract::{Committed, Earlier, NoBody, Write};
use super::rows::{find_node, find_site, site_names};
use crate::error::{Answer, Refusal};

/// Silences in force. There are few of them: one page is all.
pub async fn list(State(app): State<App>) -> Answer<Json<Page<SilenceView>>> {
    let sites = site_names(&app).await?;
    let items = in_force(&app).await?.into_iter().map(|silence| view(silence, &sites)).collect();
    Ok(Json(Page { items, next: None }))
}

/// The rows of those in force, those that end first before the others.
pub async fn in_force(app: &App) -> Answer<Vec<Silence>> {
    let now = app.clock.now();
    let mut silences = app.store.silences().await?;
    silences.retain(|silence| silence.is_in_force(now));
    Ok(silences)
}

/// Those in force that cover a node, whether anything of it needs attention or not.
pub async fn covering(app: &App, node: NodeId) -> Answer<Vec<SilenceView>> {
    let mut silences = in_force(app).await?;
    if silences.is_empty() {
        return Ok(Vec::new());
    }
    let Some(node) = app.store.node(node).await? else { return Ok(Vec::new()) };
    silences.retain(|silence| silence.matcher.covers(&About { node: node.id, site: node.site, labels: &node.labels }));
    let sites = site_names(app).await?;
    Ok(silences.into_iter().map(|silence| view(silence, &sites)).collect())
}

/// As the API shows it. A site that was removed is named by its id.
pub fn view(silence: Silence, sites: &HashMap<SiteId, String>) -> SilenceView {
    let matcher = silence.matcher;
    SilenceView {
        id: silence.id,
        kind: matcher.kind,
        nodes: matcher.nodes.into_iter().map(|node| node.hostname).collect(),
        selector: matcher.selector,
        site: matcher.site.map(|site| sites.get(&site).cloned().unwrap_or_else(|| site.to_string())),
        by: silence.by,
        reason: silence.reason,
        created_at: silence.created_at,
        until: silence.until,
        generation: silence.generation,
    }
}

/// One silence, by id.
pub async fn get(State(app): State<App>, Path(id): Path<String>) -> Answer<Json<SilenceView>> {
    let silence = find(&app, &id).await?;
    Ok(Json(view(silence, &site_names(&app).await?)))
}

/// One in force: what is over is not there any more, though its row may be.
async fn find(app: &App, text: &str) -> Answer<Silence> {
    let found = match text.parse::<SilenceId>() {
        Ok(id) => app.store.silence(id).await?,
        Err(_) => None,
    };
    found.filter(|silence| silence.is_in_force(app.clock.now())).ok_or_else(|| {
        let given: String = text.chars().take(80).collect();
        Refusal::new(Code::NotFound, format!("no silence with the id `{given}` is in force"))
            .next(NextAction::run("lattice silence list", "shows those that there are"))
    })
}

/// Creates a silence; its owner is the caller.
pub async fn create(State(app): State<App>, write: Write<CreateSilence>) -> Answer<Response> {
    let id = match &write.earlier {
        Some(earlier) => earlier_id(earlier)?,
        None => {
            let matcher = matcher(&app, &write.body).await?;
            let request = write.request(&*app.ids, &write.body.reason);
            let have = in_force(&app).await?.len();
            let lasts = Duration::from_millis(write.body.for_ms);
            let (silence, commit) = commands::create(&request, matcher, lasts, have)?;
            match write.commit(&app, commit).await? {
                Committed::Now => silence.id.to_string(),
                Committed::Earlier(earlier) => earlier_id(&earlier)?,
            }
        }
    };
    let silence = get(State(app), Path(id)).await?;
    Ok((StatusCode::CREATED, silence).into_response())
}

/// What a repeat of the request created before.
fn earlier_id(earlier: &Earlier) -> Answer<String> {
    let other = earlier.other.as_ref().filter(|(kind, _)| kind == "silence");
    other
        .map(|(_, id)| id.clone())
        .ok_or_else(|| Refusal::new(Code::Internal, "a silence was created without its event"))
}

async fn matcher(app: &App, body: &CreateSilence) -> Answer<Matcher> {
    if body.nodes.len() > NODES_MAX {
        let many = body.nodes.len();
        return Err(Refusal::invalid("nodes", format!("are {many}: at most {NODES_MAX}; give `selector` or `site`")));
    }
    let mut nodes = Vec::with_capacity(body.nodes.len());
    for name in &body.nodes {
        let node = find_node(app, name).await?;
        nodes.push(NamedNode { id: node.id, hostname: node.hostname });
    }
    nodes.sort();
    nodes.dedup();
    let site = match &body.site {
        Some(site) => Some(find_site(app, site).await?.id),
        None => None,
    };
    Ok(Matcher { kind: body.kind, nodes, selector: body.selector.clone(), site })
}

/// Lifts a silence: what it hid needs attention again.
pub async fn lift(State(app): State<App>, Path(id): Path<String>, write: Write<NoBody>) -> Answer<Json<Gone>> {
    if write.earlier.is_none() {
        let silence = find(&app, &id).await?;
        write.check_version(silence.generation)?;
        write.commit(&app, commands::lift(&write.request(&*app.ids, ""), silence)).await?;
    }
    Ok(Json(Gone { removed: id }))
}
