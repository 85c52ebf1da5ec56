//! RoCE assignments of MAAS sites: lists go in whole or not at all. spec: S5 3.3, 3.4

use axum::Json;
use axum::extract::{MatchedPath, Path, State};
use lattice_api::Gone;
use lattice_api::page::Page;
use lattice_api::roce::{PutRoce, RoceAnswer, RoceItem, RoceQuery, RoceView};
use lattice_core::change::{Change, Guard, Removed};
use lattice_core::explain::{Code, NextAction};
use lattice_core::ids::{Generation, RoceId, SiteId};
use lattice_core::site::roce::{BadItem, Upsert, upsert};
use lattice_core::site::{RoceRow, Site};
use lattice_store::PAGE_MAX;

use super::App;
use super::extract::{NoBody, Query, Write, page_request};
use super::profiles::maas_site;
use crate::error::{Answer, Refusal};

/// Most assignments of one request: 1,000 machines of eight interfaces, and some.
const MAX_ITEMS: usize = 10_000;

/// Mistakes that one answer names; the rest is counted.
const NAMED: usize = 50;

/// Creates and changes assignments, all of the list or none.
pub async fn put(
    State(app): State<App>,
    path: MatchedPath,
    Path(site): Path<String>,
    write: Write<PutRoce>,
) -> Answer<Json<RoceAnswer>> {
    let (site, maas) = maas_site(&app, &path, &site).await?;
    let items = &write.body.items;
    if !(1..=MAX_ITEMS).contains(&items.len()) {
        return Err(Refusal::invalid("items", format!("must have 1 to {MAX_ITEMS} assignments, not {}", items.len())));
    }
    let stored = all(&app, site.id).await?;
    let at = Upsert { site: site.id, settings: &maas, now: write.at, ids: &*app.ids };
    let rows = upsert(&at, &stored, items).map_err(|problems| bad_items(items, &problems))?;
    let created = rows.iter().filter(|row| row.generation == Generation::FIRST).count() as u64;
    let answer =
        RoceAnswer { created, changed: rows.len() as u64 - created, unchanged: (items.len() - rows.len()) as u64 };
    // A list that changes nothing leaves nothing to commit: sending it again finds the same.
    if write.earlier.is_none() && !rows.is_empty() {
        let guard = Guard::SiteGeneration { site: site.id, have: site.generation };
        let changes = rows.into_iter().map(Change::Roce).collect();
        write.commit(&app, write.request(&*app.ids, "").commit(vec![guard], changes)).await?;
    }
    Ok(Json(answer))
}

/// Every assignment of a site.
pub async fn all(app: &App, site: SiteId) -> Answer<Vec<RoceRow>> {
    let mut rows: Vec<RoceRow> = Vec::new();
    loop {
        let after = rows.last().map_or(("", ""), |row| (&*row.assignment.hostname, &*row.assignment.interface));
        let page = app.store.roce_rows(site, after, PAGE_MAX).await?;
        let is_last = page.len() < PAGE_MAX;
        rows.extend(page);
        if is_last {
            return Ok(rows);
        }
    }
}

/// One refusal that names every mistake by its place, counted from 1 as people count lines.
fn bad_items(items: &[RoceItem], problems: &[BadItem]) -> Refusal {
    let first = &problems[0];
    let mut refusal = Refusal::invalid(&format!("items[{}].{}", first.index, first.field), &first.problem);
    for bad in problems.iter().take(NAMED) {
        let item = &items[bad.index];
        let name: String = format!("{} {}", item.hostname, item.interface).chars().take(90).collect();
        refusal = refusal.because(format!("item {} ({name}): `{}` {}", bad.index + 1, bad.field, bad.problem));
    }
    if problems.len() > NAMED {
        refusal = refusal.because(format!("and {} more", problems.len() - NAMED));
    }
    refusal.next(NextAction::Fix { what: "mend these and send the list again; nothing of it was applied".to_owned() })
}

/// Assignments by host and interface.
pub async fn list(
    State(app): State<App>,
    path: MatchedPath,
    Path(site): Path<String>,
    Query(query): Query<RoceQuery>,
) -> Answer<Json<Page<RoceView>>> {
    let page = page_request(None, query.limit)?;
    let (site, _) = maas_site(&app, &path, &site).await?;
    let hostname = query.hostname.map(|name| name.to_ascii_lowercase());
    let cursor = query.cursor.unwrap_or_default();
    let after = match (cursor.split_once(' '), &hostname) {
        (Some(after), _) => after,
        (None, _) if !cursor.is_empty() => return Err(Refusal::malformed("cursor", "is not one that this list gave")),
        // Before the first of its interfaces.
        (None, Some(hostname)) => (hostname.as_str(), ""),
        (None, None) => ("", ""),
    };
    let mut rows = app.store.roce_rows(site.id, after, page.limit + 1).await?;
    rows.retain(|row| hostname.as_ref().is_none_or(|name| row.assignment.hostname == *name));
    let more = rows.len() > page.limit;
    rows.truncate(page.limit);
    let last = rows.last().filter(|_| more).map(|row| &row.assignment);
    let next = last.map(|one| format!("{} {}", one.hostname, one.interface));
    Ok(Json(Page { items: rows, next }))
}

/// Removes an assignment. A host that has the address already keeps it until it is deployed again.
pub async fn remove(
    State(app): State<App>,
    path: MatchedPath,
    Path((site, id)): Path<(String, String)>,
    write: Write<NoBody>,
) -> Answer<Json<Gone>> {
    let (site, _) = maas_site(&app, &path, &site).await?;
    if write.earlier.is_none() {
        let row = find_row(&app, &site, &id).await?;
        write.check_version(row.generation)?;
        let change = Change::Removed(Box::new(Removed::Roce(row)));
        write.commit(&app, write.request(&*app.ids, "").commit(Vec::new(), vec![change])).await?;
    }
    Ok(Json(Gone { removed: id }))
}

async fn find_row(app: &App, site: &Site, text: &str) -> Answer<RoceRow> {
    let found = match text.parse::<RoceId>() {
        Ok(id) => app.store.roce_row(id).await?,
        Err(_) => None,
    };
    found.filter(|row| row.site == site.id).ok_or_else(|| {
        let given: String = text.chars().take(80).collect();
        Refusal::new(Code::NotFound, format!("site {} has no RoCE assignment with the id `{given}`", site.name))
            .next(NextAction::run(format!("lattice site roce list {}", site.name), "shows those that there are"))
    })
}
