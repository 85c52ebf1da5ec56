//! Allocations: asked for, listed, explained, released, queued again.

use std::collections::HashMap;

use axum::Json;
use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use lattice_api::allocation::{
    AllocationActionAnswer, AllocationImpact, AllocationQuery, AllocationRow, AllocationStatus, AllocationVerb,
    AllocationView, CreateAllocation,
};
use lattice_api::explanation::{Explanation, Subject};
use lattice_api::node::{NodeVerb, Reason};
use lattice_api::page::Page;
use lattice_core::allocation::{Allocation, RequeuePolicy, Wanted};
use lattice_core::command::Request;
use lattice_core::command::allocation::{self as commands, NewAllocation};
use lattice_core::command::drain::{Deadline, Drain};
use lattice_core::explain::NextAction;
use lattice_core::explanation;
use lattice_core::ids::{AllocationId, NodeId};
use lattice_core::node::NodeClass;
use lattice_core::time::Timestamp;
use lattice_store::{AllocationFilter, PageRequest, StoreError, TaskFilter};
use tracing::warn;

use super::App;
use super::extract::{Committed, Query, Write, page_request, parse_id, statuses_named};
use super::node_view::{explained, millis};
use super::nodes::{site_named, sku_named};
use super::rows::{find_node, site_of};
use crate::error::{Answer, Refusal};

/// Latest tasks that an explanation looks at.
const TASKS: usize = 8;

/// One page, newest first.
pub async fn list(State(app): State<App>, Query(query): Query<AllocationQuery>) -> Answer<Json<Page<AllocationRow>>> {
    page(&app, query).await.map(Json)
}

/// One page of the allocations that a query names.
pub async fn page(app: &App, query: AllocationQuery) -> Answer<Page<AllocationRow>> {
    let node = match &query.node {
        Some(node) => Some(find_node(app, node).await?.id),
        None => None,
    };
    let statuses = query.status.as_deref().map(statuses).transpose()?.unwrap_or_default();
    let filter = AllocationFilter { node, user: query.user, statuses };
    let page = app.store.allocations(&filter, &page_request(query.cursor, query.limit)?).await?;
    let names = names(app, &page.items).await?;
    let items = page.items.iter().map(|one| row(one, &names)).collect();
    Ok(Page { items, next: page.next.map(|cursor| cursor.to_string()) })
}

/// A status, or the alias `live` for all that are not over.
fn statuses(text: &str) -> Answer<Vec<AllocationStatus>> {
    statuses_named(text, &[("live", |status: AllocationStatus| !status.is_over())])
}

/// Takes a request; it is placed as soon as a node fits.
pub async fn create(State(app): State<App>, write: Write<CreateAllocation>) -> Answer<Response> {
    let body = &write.body;
    let id = match &write.earlier {
        Some(earlier) => earlier_id(earlier.other.as_ref())?,
        None => {
            let new = NewAllocation {
                user: body.user.clone(),
                class: body.class.unwrap_or_default(),
                wanted: wanted(&app, body).await?,
                workload: body.workload.clone(),
                requeue: body.requeue.unwrap_or_default(),
            };
            let (allocation, commit) = commands::request(&write.request(&*app.ids, &body.reason), new)?;
            match write.commit(&app, commit).await? {
                Committed::Now => {
                    if let Err(error) = tell_nowhere(&app, &allocation).await {
                        warn!(%error, allocation_id = %allocation.id, "the allocator says later whether a node fits");
                    }
                    allocation.id
                }
                Committed::Earlier(earlier) => earlier_id(earlier.other.as_ref())?,
            }
        }
    };
    Ok((StatusCode::ACCEPTED, Json(present(&app, id).await?)).into_response())
}

/// Says at once that no node can take it, where that is so; the allocator would say it a moment later.
async fn tell_nowhere(app: &App, one: &Allocation) -> Result<(), StoreError> {
    let Some(why) = lattice_controllers::nowhere(&app.store, &one.wanted, &app.store.skus().await?).await? else {
        return Ok(());
    };
    let request = Request::of_system("allocator", &*app.ids, app.clock.now(), one.correlation);
    // The allocator may have been faster: then it has said it.
    if let Some(commit) = commands::waits(&request, one, &why) {
        app.store.commit_one(commit).await?;
    }
    Ok(())
}

fn earlier_id(other: Option<&(String, String)>) -> Answer<AllocationId> {
    let id = other.filter(|(kind, _)| kind == "allocation").and_then(|(_, id)| id.parse().ok());
    id.ok_or_else(|| Refusal::not_found("allocation", "of the earlier request"))
}

async fn wanted(app: &App, body: &CreateAllocation) -> Answer<Wanted> {
    let node = match &body.node {
        Some(node) => Some(find_node(app, node).await?.id),
        None => None,
    };
    let site = match &body.site {
        Some(site) => Some(site_named(app, "site", site).await?.id),
        None => None,
    };
    let sku = match &body.sku {
        Some(sku) => Some(sku_named(app, "sku", sku).await?),
        None => None,
    };
    if let Some(sku) = sku.as_ref().filter(|sku| body.gpus > sku.gpus) {
        let fix = format!("ask for at most {}, or for another SKU: `lattice sku list` shows what each has", sku.gpus);
        return Err(Refusal::malformed("gpus", format!("must be at most {}: {} has no more", sku.gpus, sku.name))
            .next(NextAction::Fix { what: fix }));
    }
    let labels = body.labels.clone();
    lattice_core::node::label::check(&labels).map_err(|problem| Refusal::malformed("labels", problem))?;
    Ok(Wanted { node, site, sku: sku.map(|sku| sku.name), gpus: body.gpus, labels })
}

/// One allocation.
pub async fn get(State(app): State<App>, Path(id): Path<String>) -> Answer<Json<AllocationView>> {
    let one = find(&app, &id).await?;
    view(&app, &one).await.map(Json)
}

/// Why it stands where it stands.
pub async fn explain(State(app): State<App>, Path(id): Path<String>) -> Answer<Json<Explanation>> {
    let one = find(&app, &id).await?;
    let now = app.clock.now();
    let node = match one.node {
        Some(node) => app.store.node(node).await?,
        None => None,
    };
    let key_prefix = Some(commands::placement_key(&one));
    let filter = TaskFilter { allocation: Some(one.id), key_prefix, ..TaskFilter::default() };
    let tasks = app.store.tasks(&filter, &PageRequest::first(TASKS)).await?.items;
    let site = match &node {
        Some(node) => site_of(&app, node.site).await?.name,
        None => String::new(),
    };
    let on = node.as_ref().map(|node| (node, site.as_str()));
    let said = explanation::allocation(&one, on, &tasks, now);
    let subject = Subject { kind: "allocation".to_owned(), id: one.id.to_string(), name: one.id.to_string() };
    let mut context = vec![one.user.clone(), one.class.to_string()];
    context.extend(node.map(|node| node.hostname));
    Ok(Json(explained(said, subject, context, now)))
}

/// Releases it or queues it again.
pub async fn act(
    State(app): State<App>,
    Path((id, verb)): Path<(String, String)>,
    write: Write<Reason>,
) -> Answer<Json<AllocationActionAnswer>> {
    let verb: AllocationVerb = verb.parse().map_err(|_| {
        let given: String = verb.chars().take(40).collect();
        Refusal::not_found("verb of an allocation", &given)
            .next(NextAction::Fix { what: "it has release and requeue".to_owned() })
    })?;
    let one = find(&app, &id).await?;
    if write.earlier.is_some() {
        return Ok(Json(AllocationActionAnswer { changed: true, allocation: view(&app, &one).await? }));
    }
    write.check_version(one.generation)?;
    let request = write.request(&*app.ids, &write.body.reason);
    let commit = match verb {
        AllocationVerb::Requeue => Some(commands::requeue(&request, &one)?),
        AllocationVerb::Release => {
            let node = match one.placed_on() {
                Some(node) => app.store.node(node).await?,
                None => None,
            };
            commands::release(&request, &one, node.as_ref(), app.nonce())?
        }
    };
    let changed = match commit {
        Some(commit) => {
            write.commit(&app, commit).await?;
            true
        }
        None => false,
    };
    Ok(Json(AllocationActionAnswer { changed, allocation: present(&app, one.id).await? }))
}

async fn find(app: &App, text: &str) -> Answer<Allocation> {
    let id: AllocationId = parse_id("allocation", text)?;
    app.store.allocation(id).await?.ok_or_else(|| Refusal::not_found("allocation", text))
}

async fn present(app: &App, id: AllocationId) -> Answer<AllocationView> {
    let one = find(app, &id.to_string()).await?;
    view(app, &one).await
}

async fn names(app: &App, all: &[Allocation]) -> Answer<HashMap<NodeId, String>> {
    let mut ids: Vec<NodeId> = all.iter().filter_map(|one| one.node).collect();
    ids.sort_unstable();
    ids.dedup();
    Ok(app.store.nodes_by_id(&ids).await?.into_iter().map(|node| (node.id, node.hostname)).collect())
}

async fn view(app: &App, one: &Allocation) -> Answer<AllocationView> {
    let names = names(app, std::slice::from_ref(one)).await?;
    Ok(AllocationView {
        row: row(one, &names),
        site_id: one.wanted.site,
        sku: one.wanted.sku.clone(),
        ownership_epoch: one.epoch,
        workload: one.workload.clone(),
        requested_by: one.requested_by.clone(),
        correlation_id: one.correlation,
        generation: one.generation,
    })
}

/// One of them in a list.
pub fn row(one: &Allocation, names: &HashMap<NodeId, String>) -> AllocationRow {
    AllocationRow {
        id: one.id,
        user: one.user.clone(),
        class: one.class,
        status: one.status,
        status_since: one.status_since,
        why: one.why.clone(),
        node_id: one.node,
        hostname: one.node.and_then(|node| names.get(&node).cloned()),
        gpus: one.wanted.gpus,
        requeue: one.requeue,
        checkpointable: one.is_checkpointable(),
        placements: one.placements,
        retry_at: one.retry_at(),
        requested_at: one.requested_at,
    }
}

/// What a verb on a node means for what is placed there: said before it is done, and after.
pub fn impacts(verb: NodeVerb, how: Drain, placed: &[Allocation], now: Timestamp) -> Vec<AllocationImpact> {
    let impact = |one: &Allocation| AllocationImpact {
        id: one.id,
        user: one.user.clone(),
        class: one.class,
        status: one.status,
        for_ms: millis(now.since(one.status_since)),
        what: what_becomes(verb, how, one),
    };
    placed.iter().map(impact).collect()
}

fn what_becomes(verb: NodeVerb, how: Drain, one: &Allocation) -> String {
    let urgent = how.urgent && one.is_checkpointable();
    match verb {
        NodeVerb::Drain if urgent => "is asked to save its state, and goes on elsewhere",
        NodeVerb::Drain if matches!(how.deadline, Deadline::After(_)) && one.class != NodeClass::Sensitive => {
            match one.requeue {
                RequeuePolicy::Never => "runs on, and is ended at the deadline",
                RequeuePolicy::OnNodeFailure | RequeuePolicy::Always => {
                    "runs on; at the deadline it is stopped, and queued again"
                }
            }
        }
        NodeVerb::Drain | NodeVerb::Retire | NodeVerb::Wipe => "runs on until it ends; the node is not empty before",
        NodeVerb::Disable if one.class == NodeClass::Sensitive => "is lost, and waits for an operator",
        NodeVerb::Disable => match one.requeue {
            RequeuePolicy::Never => "is lost, and fails",
            RequeuePolicy::OnNodeFailure | RequeuePolicy::Always => "is lost here, and queued again",
        },
        NodeVerb::Undrain
        | NodeVerb::Enable
        | NodeVerb::Reboot
        | NodeVerb::Reset
        | NodeVerb::Reimage
        | NodeVerb::SecureErase
        | NodeVerb::Quarantine
        | NodeVerb::Recover
        | NodeVerb::Reactivate
        | NodeVerb::Remove
        | NodeVerb::Withdraw
        | NodeVerb::Resume => "is not touched",
    }
    .to_owned()
}
