//! SKUs: what machines of one kind must have.

use axum::Json;
use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use lattice_api::Gone;
use lattice_api::page::{Page, PageQuery};
use lattice_api::sku::{CreateSku, PatchSku, Sku};
use lattice_core::change::{Change, Guard, Removed};
use lattice_core::explain::{Code, NextAction};
use lattice_core::ids::Generation;

use super::App;
use super::extract::{NoBody, Query, Write, page_request};
use super::rows::find_sku;
use crate::error::{Answer, Refusal};

/// Most rules of one kind in a SKU: a host has fewer kinds of disks and interfaces.
const MAX_RULES: usize = 64;

/// SKUs by name.
pub async fn list(State(app): State<App>, Query(query): Query<PageQuery>) -> Answer<Json<Page<Sku>>> {
    let page = page_request(None, query.limit)?;
    let mut skus = app.store.skus().await?;
    skus.sort_by(|a, b| a.name.cmp(&b.name));
    let mut rest = skus.into_iter().filter(|sku| query.cursor.as_ref().is_none_or(|after| sku.name > *after));
    let items: Vec<Sku> = rest.by_ref().take(page.limit).collect();
    let next = rest.next().and_then(|_| items.last()).map(|sku| sku.name.clone());
    Ok(Json(Page { items, next }))
}

/// One SKU.
pub async fn get(State(app): State<App>, Path(name): Path<String>) -> Answer<Json<Sku>> {
    find_sku(&app, &name).await.map(Json)
}

/// Creates a SKU.
pub async fn create(State(app): State<App>, write: Write<CreateSku>) -> Answer<Response> {
    let body = &write.body;
    check_name(&body.name)?;
    let sku = Sku {
        name: body.name.clone(),
        gpus: body.gpus,
        gpu_vendor: body.gpu_vendor.clone().filter(|text| !text.is_empty()),
        gpu_model: body.gpu_model.clone().filter(|text| !text.is_empty()),
        nics: body.nics.clone(),
        disks: body.disks.clone(),
        created_at: write.at,
        updated_at: write.at,
        generation: Generation::FIRST,
    };
    check(&sku)?;
    if write.earlier.is_none() {
        if app.store.sku(&sku.name).await?.is_some() {
            return Err(Refusal::new(Code::Taken, format!("the SKU {} exists already", sku.name))
                .next(NextAction::run(format!("lattice sku get {}", sku.name), "shows it")));
        }
        let request = write.request(&*app.ids, "");
        write.commit(&app, request.commit(Vec::new(), vec![Change::Sku(sku.clone())])).await?;
    }
    Ok((StatusCode::CREATED, Json(find_sku(&app, &sku.name).await?)).into_response())
}

/// Changes a SKU.
pub async fn patch(State(app): State<App>, Path(name): Path<String>, write: Write<PatchSku>) -> Answer<Json<Sku>> {
    let sku = find_sku(&app, &name).await?;
    if write.earlier.is_none() {
        write.check_version(sku.generation)?;
        let after = patched(sku, &write);
        check(&after)?;
        let request = write.request(&*app.ids, "");
        write.commit(&app, request.commit(Vec::new(), vec![Change::Sku(after)])).await?;
    }
    find_sku(&app, &name).await.map(Json)
}

/// Removes a SKU that no node is of.
pub async fn remove(State(app): State<App>, Path(name): Path<String>, write: Write<NoBody>) -> Answer<Json<Gone>> {
    if write.earlier.is_none() {
        let sku = find_sku(&app, &name).await?;
        write.check_version(sku.generation)?;
        let unused = Guard::SkuUnused { sku: sku.name.clone() };
        let change = Change::Removed(Box::new(Removed::Sku(sku)));
        let commit = write.request(&*app.ids, "").commit(vec![unused], vec![change]);
        write.commit(&app, commit).await.map_err(|refused| in_use(refused, &name))?;
    }
    Ok(Json(Gone { removed: name }))
}

/// The store's word for it, in words for people.
fn in_use(refused: Refusal, sku: &str) -> Refusal {
    if !refused.problem().detail.starts_with("node of SKU") {
        return refused;
    }
    Refusal::new(Code::Taken, format!("nodes are of the SKU {sku}"))
        .because("their health checks would have nothing to compare with")
        .next(NextAction::run(format!("lattice node list --sku {sku}"), "shows them"))
}

fn patched(sku: Sku, write: &Write<PatchSku>) -> Sku {
    let patch = &write.body;
    let text = |new: &Option<String>, old: Option<String>| match new {
        Some(new) => Some(new.clone()).filter(|text| !text.is_empty()),
        None => old,
    };
    Sku {
        gpus: patch.gpus.unwrap_or(sku.gpus),
        gpu_vendor: text(&patch.gpu_vendor, sku.gpu_vendor),
        gpu_model: text(&patch.gpu_model, sku.gpu_model),
        nics: patch.nics.clone().unwrap_or(sku.nics),
        disks: patch.disks.clone().unwrap_or(sku.disks),
        updated_at: write.at,
        generation: sku.generation.next(),
        name: sku.name,
        created_at: sku.created_at,
    }
}

fn check_name(name: &str) -> Answer<()> {
    let fine = (1..=63).contains(&name.len())
        && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '.' | '_' | '-'));
    if fine {
        return Ok(());
    }
    Err(Refusal::invalid(
        "name",
        "must be 1 to 63 lower-case letters, digits, `.`, `_` and `-`, such as mi300x.192g.8gpu",
    ))
}

fn check(sku: &Sku) -> Answer<()> {
    if sku.gpus > 64 {
        return Err(Refusal::invalid("gpus", format!("must be at most 64, not {}", sku.gpus)));
    }
    if sku.nics.len() > MAX_RULES {
        return Err(Refusal::invalid("nics", format!("must have at most {MAX_RULES} rules")));
    }
    if sku.disks.len() > MAX_RULES {
        return Err(Refusal::invalid("disks", format!("must have at most {MAX_RULES} rules")));
    }
    Ok(())
}
