//! Nodes: lists, one, creation by hand, credentials.

use axum::Json;
use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use lattice_api::agent::TOKEN_PREFIX;
use lattice_api::explanation::Explanation;
use lattice_api::node::{ChangeLabels, CreateNode, NodeBootstrap, NodeQuery, NodeRow, NodeView, Reason};
use lattice_api::page::Page;
use lattice_core::change::Change;
use lattice_core::command::{self, bootstrap as bootstraps, create, node as commands};
use lattice_core::explain::{Code, NextAction};
use lattice_core::ids::NodeId;
use lattice_core::job::row::MANUAL_TOKEN_TTL;
use lattice_core::node::{Availability, Labels, Status, label};
use lattice_core::secret::{Secret, token_hash};
use lattice_store::{NodeFilter, NodeSort};

use super::App;
use super::extract::{Committed, Query, Write, page_request};
use super::node_view::{explain as explanation_of, row_of_summary, view};
use super::rows::{NodeFile, find_node, find_site, find_sku, site_names};
use crate::error::{Answer, Refusal};

/// Name of the built-in site of nodes that are bootstrapped by hand. design: 8-interfaces
const MANUAL_SITE: &str = "local";

/// One page, by hostname.
pub async fn list(State(app): State<App>, Query(query): Query<NodeQuery>) -> Answer<Json<Page<NodeRow>>> {
    let page = page_request(query.cursor.clone(), query.limit)?;
    let filter = filter(&app, query).await?;
    let sites = site_names(&app).await?;
    let now = app.clock.now();
    let page = app.store.nodes(&filter, NodeSort::Hostname, &page).await?;
    let items = page.items.into_iter().map(|summary| row_of_summary(&app, summary, &sites, now)).collect();
    Ok(Json(Page { items, next: page.next.map(|cursor| cursor.to_string()) }))
}

async fn filter(app: &App, query: NodeQuery) -> Answer<NodeFilter> {
    let mut filter = NodeFilter {
        statuses: query.status.into_iter().collect(),
        availabilities: query.availability.into_iter().collect(),
        sku: query.sku,
        hostname_prefix: query.hostname_prefix.map(|prefix| prefix.to_ascii_lowercase()),
        ..NodeFilter::default()
    };
    if let Some(label) = query.label {
        filter.labels = selector("label", &label)?;
    }
    if let Some(site) = query.site {
        filter.site = Some(find_site(app, &site).await?.id);
    }
    if let Some(state) = query.state {
        // `draining` is a word of both layers; S1's list asks for the availability.
        match (state.parse::<Availability>(), state.parse::<Status>()) {
            (Ok(availability), _) => filter.availabilities.push(availability),
            (Err(_), Ok(status)) => filter.statuses.push(status),
            (Err(_), Err(_)) => {
                return Err(Refusal::malformed("state", format!("`{state}` is no status and no availability")));
            }
        }
    }
    if query.deleted == Some(true) && filter.statuses.is_empty() {
        use strum::VariantArray;
        filter.statuses = Status::VARIANTS.to_vec();
    }
    Ok(filter)
}

/// Labels as a query has them: `rack=c07,row=4`.
fn selector(field: &str, text: &str) -> Answer<Labels> {
    let pair = |part: &str| part.split_once('=').map(|(name, value)| (name.to_owned(), value.to_owned()));
    let labels: Option<Labels> = text.split(',').map(pair).collect();
    let labels =
        labels.ok_or_else(|| Refusal::malformed(field, "must be pairs such as rack=c07, with commas between"))?;
    label::check(&labels).map_err(|problem| Refusal::malformed(field, problem))?;
    Ok(labels)
}

/// Sets and takes away labels.
pub async fn labels(
    State(app): State<App>,
    Path(node): Path<String>,
    write: Write<ChangeLabels>,
) -> Answer<Json<NodeView>> {
    let node = find_node(&app, &node).await?;
    if write.earlier.is_none() {
        write.check_version(node.generation)?;
        let request = write.request(&*app.ids, &write.body.reason);
        let planned = command::label::change(&node, &request, &write.body.set, &write.body.remove)?;
        if let Some(planned) = planned {
            write.commit(&app, planned.commit).await?;
        }
    }
    present(&app, node.id).await.map(Json)
}

/// One node.
pub async fn get(State(app): State<App>, Path(node): Path<String>) -> Answer<Json<NodeView>> {
    let now = app.clock.now();
    let node = find_node(&app, &node).await?;
    Ok(Json(view(&app, NodeFile::open(&app, node, now).await?, now).await?))
}

/// Why a node is not schedulable.
pub async fn explain(State(app): State<App>, Path(node): Path<String>) -> Answer<Json<Explanation>> {
    let now = app.clock.now();
    let node = find_node(&app, &node).await?;
    Ok(Json(explanation_of(&NodeFile::open(&app, node, now).await?, now)))
}

/// Creates a node that an operator bootstraps by hand.
pub async fn create(State(app): State<App>, write: Write<CreateNode>) -> Answer<Response> {
    let body = &write.body;
    if write.earlier.is_some() {
        return Err(shown_once(&body.hostname));
    }
    let site = site_named(&app, "site", body.site.as_deref().unwrap_or(MANUAL_SITE)).await?;
    let sku = sku_named(&app, "sku", &body.sku).await?;
    let (token, drawn) = draw(&app);
    let new = create::NewNode {
        site: &site,
        sku: &sku,
        hostname: body.hostname.clone(),
        class: body.class.unwrap_or_default(),
        batch: None,
    };
    let request = write.request(&*app.ids, &body.reason);
    let planned = create::manual(&request, &new, &drawn)?;
    let answer = bootstrap(&app, &planned, token, write.at)?;
    match write.commit(&app, planned.commit).await? {
        Committed::Now => {}
        Committed::Earlier(_) => return Err(shown_once(&body.hostname)),
    }
    if let Some(job) = answer.job_id {
        (app.wake)(job);
    }
    Ok((StatusCode::CREATED, Json(answer)).into_response())
}

/// The SKU that a body names: a missing one is the body's fault, not the path's.
pub async fn sku_named(app: &App, field: &str, name: &str) -> Answer<lattice_core::sku::Sku> {
    find_sku(app, name).await.map_err(|_| {
        Refusal::invalid(field, format!("names the SKU `{name}`, which does not exist"))
            .next(NextAction::run("lattice sku list", "shows those that there are"))
    })
}

/// The site that a body names: a missing one is the body's fault, not the path's.
pub async fn site_named(app: &App, field: &str, name: &str) -> Answer<lattice_core::site::Site> {
    find_site(app, name).await.map_err(|_| {
        Refusal::invalid(field, format!("names the site `{name}`, which does not exist"))
            .next(NextAction::run("lattice site list", "shows those that there are"))
    })
}

/// A new command with a new token; every earlier token dies in the same commit.
pub async fn reissue_bootstrap(
    State(app): State<App>,
    Path(node): Path<String>,
    write: Write<Reason>,
) -> Answer<Json<NodeBootstrap>> {
    let node = find_node(&app, &node).await?;
    write.check_version(node.generation)?;
    if write.earlier.is_some() {
        return Err(shown_once(&node.hostname));
    }
    let file = NodeFile::open(&app, node, write.at).await?;
    let (token, drawn) = draw(&app);
    let tokens = app.store.enrollment_tokens_of(file.node.id).await?;
    let request = write.request(&*app.ids, &write.body.reason);
    let planned = bootstraps::reissue(&file.known(), &request, &tokens, &drawn)?;
    let answer = bootstrap(&app, &planned, token, write.at)?;
    match write.commit(&app, planned.commit).await? {
        Committed::Now => Ok(Json(answer)),
        Committed::Earlier(_) => Err(shown_once(&file.node.hostname)),
    }
}

/// Revokes every certificate of a node, on live connections too.
pub async fn revoke_certificates(
    State(app): State<App>,
    Path(node): Path<String>,
    write: Write<Reason>,
) -> Answer<Json<NodeView>> {
    let node = find_node(&app, &node).await?;
    write.check_version(node.generation)?;
    let id = node.id;
    if write.earlier.is_none() {
        let file = NodeFile::open(&app, node, write.at).await?;
        let planned = commands::revoke_certificates(&file.known(), &write.request(&*app.ids, &write.body.reason));
        let epoch = file.node.identity_epoch + 1;
        if write.commit(&app, planned.commit).await? == Committed::Now {
            app.registry.revoke_before(id, epoch);
        }
    }
    present(&app, id).await.map(Json)
}

/// The node as it stands now.
pub async fn present(app: &App, id: NodeId) -> Answer<NodeView> {
    let now = app.clock.now();
    let node = app.store.node(id).await?.ok_or_else(|| Refusal::not_found("node", &id.to_string()))?;
    view(app, NodeFile::open(app, node, now).await?, now).await
}

fn draw(app: &App) -> (Secret<String>, create::DrawnToken) {
    use base64::Engine;
    let text = base64::engine::general_purpose::URL_SAFE_NO_PAD.encode((app.random)());
    let token = Secret::new(format!("{TOKEN_PREFIX}{text}"));
    let drawn = create::DrawnToken { hash: token_hash(token.expose()), ttl_seconds: MANUAL_TOKEN_TTL.as_secs() };
    (token, drawn)
}

fn bootstrap(
    app: &App,
    planned: &command::Planned,
    token: Secret<String>,
    now: lattice_core::time::Timestamp,
) -> Answer<NodeBootstrap> {
    let issued = planned.commit.changes.iter().find_map(|change| {
        if let Change::EnrollmentToken(token) = change {
            Some(token).filter(|token| token.revoked_at.is_none())
        } else {
            None
        }
    });
    let Some(issued) = issued else {
        return Err(Refusal::new(Code::Internal, "a bootstrap was decided without a token"));
    };
    debug_assert!(issued.expires_at > now);
    Ok(NodeBootstrap {
        node_id: planned.node,
        job_id: planned.job,
        command: (app.bootstrap_command)(planned.node, &token),
        expires_at: issued.expires_at,
    })
}

fn shown_once(hostname: &str) -> Refusal {
    Refusal::new(Code::Taken, "this request was carried out before; its command is shown only once").next(
        NextAction::run(format!("lattice node bootstrap {hostname}"), "prints a new command; the token before dies"),
    )
}
