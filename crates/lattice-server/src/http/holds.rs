//! Holds: of a node, of all nodes; set and cleared by hand.

use axum::Json;
use axum::extract::{Path, State};
use lattice_api::hold::{HoldView, SetHold};
use lattice_api::node::NodeView;
use lattice_api::page::{Page, PageQuery};
use lattice_core::command::hold as commands;
use lattice_core::node::HoldKind;
use lattice_store::{Cursor, NodeFilter, NodeSort, PageRequest};
use strum::VariantArray;

use super::App;
use super::extract::{NoBody, Query, Write, page_request};
use super::node_view::hold_view;
use super::nodes::present;
use super::rows::find_node;
use crate::error::{Answer, Refusal};

/// Holds of one node.
pub async fn of_node(State(app): State<App>, Path(node): Path<String>) -> Answer<Json<Page<HoldView>>> {
    let node = find_node(&app, &node).await?;
    let now = app.clock.now();
    let items = node.holds.iter().map(|hold| hold_view(&node, hold, now)).collect();
    Ok(Json(Page { items, next: None }))
}

/// Holds of all nodes, kind by kind. The cursor is the kind's name, a `~`, and the list's own cursor.
pub async fn list(State(app): State<App>, Query(query): Query<PageQuery>) -> Answer<Json<Page<HoldView>>> {
    let limit = page_request(None, query.limit)?.limit;
    let (mut at, mut cursor) = place(query.cursor.as_deref())?;
    let now = app.clock.now();
    let mut items = Vec::new();
    while let Some(kind) = HoldKind::VARIANTS.get(at).copied() {
        if items.len() >= limit {
            break;
        }
        let filter = NodeFilter { hold: Some(kind), ..NodeFilter::default() };
        let page = PageRequest { cursor: cursor.take(), limit: limit - items.len() };
        let page = app.store.nodes(&filter, NodeSort::Hostname, &page).await?;
        for summary in page.items {
            if let Some(node) = app.store.node(summary.id).await? {
                items.extend(node.hold(kind).map(|hold| hold_view(&node, hold, now)));
            }
        }
        cursor = page.next;
        if cursor.is_none() {
            at += 1;
        }
    }
    let next = HoldKind::VARIANTS.get(at).map(|kind| match cursor {
        Some(cursor) => format!("{kind}~{cursor}"),
        None => format!("{kind}~"),
    });
    Ok(Json(Page { items, next }))
}

fn place(cursor: Option<&str>) -> Answer<(usize, Option<Cursor>)> {
    let Some(cursor) = cursor else { return Ok((0, None)) };
    let bad = || Refusal::malformed("cursor", "is not one that this list gave");
    let (kind, rest) = cursor.split_once('~').ok_or_else(bad)?;
    let kind: HoldKind = kind.parse().map_err(|_| bad())?;
    let at = HoldKind::VARIANTS.iter().position(|known| *known == kind).unwrap_or(0);
    Ok((at, Some(rest).filter(|rest| !rest.is_empty()).map(Cursor::from_text)))
}

/// Sets a hold.
pub async fn set(State(app): State<App>, Path(node): Path<String>, write: Write<SetHold>) -> Answer<Json<NodeView>> {
    let node = find_node(&app, &node).await?;
    if write.earlier.is_none() {
        write.check_version(node.generation)?;
        let request = write.request(&*app.ids, &write.body.reason);
        let planned = commands::set(&node, &request, write.body.kind, write.body.until)?;
        write.commit(&app, planned.commit).await?;
    }
    present(&app, node.id).await.map(Json)
}

/// Clears a hold.
pub async fn clear(
    State(app): State<App>,
    Path((node, kind)): Path<(String, String)>,
    write: Write<NoBody>,
) -> Answer<Json<NodeView>> {
    let kind: HoldKind = kind.parse().map_err(|_| Refusal::not_found("hold", &kind))?;
    let node = find_node(&app, &node).await?;
    if write.earlier.is_none() {
        write.check_version(node.generation)?;
        let planned = commands::clear(&node, &write.request(&*app.ids, ""), kind)?;
        write.commit(&app, planned.commit).await?;
    }
    present(&app, node.id).await.map(Json)
}
