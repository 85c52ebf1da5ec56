//! Wiped devices with their certificates, and the keys that sign these.

use axum::Json;
use axum::extract::{Path, State};
use lattice_api::node::Reason;
use lattice_api::page::Page;
use lattice_api::wipe::{CertificateFile, WipeKeys, WipeQuery, WipeRow};
use lattice_core::change::{Change, Resource};
use lattice_core::explain::{Code, NextAction};
use lattice_core::ids::{CertificateId, NodeId};
use lattice_store::WipeFilter;
use lattice_workflow::wipe_keys::{self, WipeKeysError};

use super::App;
use super::extract::{Query, Write, page_request};
use super::rows::find_node;
use crate::error::{Answer, Refusal};

/// One page of all, newest first.
pub async fn list(State(app): State<App>, Query(query): Query<WipeQuery>) -> Answer<Json<Page<WipeRow>>> {
    page(&app, None, query).await
}

/// One page of those of a node, newest first.
pub async fn of_node(
    State(app): State<App>,
    Path(node): Path<String>,
    Query(query): Query<WipeQuery>,
) -> Answer<Json<Page<WipeRow>>> {
    let node = find_node(&app, &node).await?;
    page(&app, Some(node.id), query).await
}

async fn page(app: &App, node: Option<NodeId>, query: WipeQuery) -> Answer<Json<Page<WipeRow>>> {
    let page = page_request(query.cursor, query.limit)?;
    let page = app.store.wipe_certificates(&WipeFilter { node, serial: query.serial }, &page).await?;
    let next = page.next.map(|cursor| cursor.to_string());
    Ok(Json(Page { items: page.items.iter().map(WipeRow::from).collect(), next }))
}

/// One certificate.
pub async fn get(State(app): State<App>, Path(id): Path<String>) -> Answer<Json<CertificateFile>> {
    let found = match id.parse::<CertificateId>() {
        Ok(id) => app.store.wipe_certificate(id).await?,
        Err(_) => None,
    };
    let given: String = id.chars().take(80).collect();
    found.map(Json).ok_or_else(|| {
        Refusal::new(Code::NotFound, format!("no wipe certificate is `{given}`"))
            .next(NextAction::run("lattice wipe list", "lists them with their ids"))
    })
}

/// The keys that sign certificates.
pub async fn keys(State(app): State<App>) -> Answer<Json<WipeKeys>> {
    let keys = wipe_keys::WipeKeys::load_or_create(&*app.secrets, (app.random)()).await.map_err(no_keys)?;
    Ok(Json(WipeKeys { keys: keys.public() }))
}

/// Signs with another key from now on; what was signed before stays what it is.
pub async fn rotate(State(app): State<App>, write: Write<Reason>) -> Answer<Json<WipeKeys>> {
    if write.earlier.is_some() {
        return keys(State(app)).await;
    }
    let keys = wipe_keys::WipeKeys::rotate(&*app.secrets, (app.random)()).await.map_err(no_keys)?;
    let note = Change::Note {
        name: "wipe_signing.rotated".to_owned(),
        resource: Resource::System("wipe-signing".to_owned()),
        detail: format!("wipe certificates are signed by key {}", keys.signer.public().key_id),
    };
    let request = write.request(&*app.ids, &write.body.reason);
    write.commit(&app, request.commit(Vec::new(), vec![note])).await?;
    Ok(Json(WipeKeys { keys: keys.public() }))
}

fn no_keys(error: WipeKeysError) -> Refusal {
    tracing::warn!(%error, "the keys of wipe certificates are not to be had");
    Refusal::new(Code::SecretStore, error.to_string())
}
