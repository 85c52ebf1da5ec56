//! Sites: provider endpoints, their secrets, and whether they answer. `maas-sites` is the view of the MAAS ones.

use axum::Json;
use axum::extract::{MatchedPath, Path, State};
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use lattice_api::page::{Page, PageQuery};
use lattice_api::site::{CreateSite, PatchSite, SiteStatus, SiteView};
use lattice_core::change::Change;
use lattice_core::explain::{Code, NextAction};
use lattice_core::ids::{Generation, SiteId};
use lattice_core::site::{Site, SiteProvider};

use super::extract::{NoBody, Query, Write, page_request};
use super::rows::{find_site, site_of};
use super::site_rules::{patched, provider};
use super::{App, site_credentials};
use crate::error::{Answer, Refusal};

/// Which sites a path shows: all, or those of one kind.
fn is_shown(path: &MatchedPath, site: &Site) -> bool {
    let only_maas = path.as_str().starts_with("/api/v1/admin/maas-sites");
    match site.provider {
        SiteProvider::Maas(_) => true,
        SiteProvider::Manual | SiteProvider::Lxd(_) => !only_maas,
    }
}

/// The site of that id or name, if the path shows its kind.
pub async fn find(app: &App, path: &MatchedPath, text: &str) -> Answer<Site> {
    let site = find_site(app, text).await?;
    if is_shown(path, &site) { Ok(site) } else { Err(Refusal::not_found("site", text)) }
}

/// Sites by name.
pub async fn list(
    State(app): State<App>,
    path: MatchedPath,
    Query(query): Query<PageQuery>,
) -> Answer<Json<Page<SiteView>>> {
    let page = page_request(None, query.limit)?;
    let mut sites = app.store.sites().await?;
    sites.retain(|site| is_shown(&path, site));
    sites.sort_by(|a, b| a.name.cmp(&b.name));
    let mut rest = sites.into_iter().filter(|site| query.cursor.as_ref().is_none_or(|after| site.name > *after));
    let chosen: Vec<Site> = rest.by_ref().take(page.limit).collect();
    let next = rest.next().and_then(|_| chosen.last()).map(|site| site.name.clone());
    let mut items = Vec::with_capacity(chosen.len());
    for site in chosen {
        items.push(view(&app, site).await?);
    }
    Ok(Json(Page { items, next }))
}

/// All sites, by name.
pub async fn all(app: &App) -> Answer<Vec<SiteView>> {
    let mut sites = app.store.sites().await?;
    sites.sort_by(|a, b| a.name.cmp(&b.name));
    let mut views = Vec::with_capacity(sites.len());
    for site in sites {
        views.push(view(app, site).await?);
    }
    Ok(views)
}

/// One site.
pub async fn get(State(app): State<App>, path: MatchedPath, Path(site): Path<String>) -> Answer<Json<SiteView>> {
    let site = find(&app, &path, &site).await?;
    view(&app, site).await.map(Json)
}

async fn view(app: &App, site: Site) -> Answer<SiteView> {
    let (credentials, credentials_complete) = site_credentials::known(app, &site).await?;
    Ok(SiteView {
        id: site.id,
        name: site.name,
        region_code: site.region_code,
        provider: site.provider,
        heartbeat: site.heartbeat,
        status: site.status,
        credentials_complete,
        credentials,
        created_at: site.created_at,
        updated_at: site.updated_at,
        generation: site.generation,
    })
}

/// Creates a site, without its secrets.
pub async fn create(State(app): State<App>, path: MatchedPath, write: Write<CreateSite>) -> Answer<Response> {
    let body = &write.body;
    let id = SiteId::generate(&*app.ids, write.at);
    let site = Site {
        id,
        name: body.name.clone(),
        region_code: body.region_code.clone(),
        provider: provider(id, &body.provider)?,
        heartbeat: body.heartbeat.unwrap_or_default(),
        status: SiteStatus::Active,
        created_at: write.at,
        updated_at: write.at,
        generation: Generation::FIRST,
    };
    super::site_rules::check(&site)?;
    if !is_shown(&path, &site) {
        return Err(Refusal::invalid("provider.kind", "must be `maas` under /maas-sites"));
    }
    if write.earlier.is_none() {
        if app.store.site_by_name(&site.name).await?.is_some() {
            return Err(Refusal::new(Code::Taken, format!("the site {} exists already", site.name))
                .next(NextAction::run(format!("lattice site get {}", site.name), "shows it")));
        }
        let request = write.request(&*app.ids, "");
        write.commit(&app, request.commit(Vec::new(), vec![Change::Site(Box::new(site.clone()))])).await?;
    }
    let stored = find_site(&app, &site.name).await?;
    Ok((StatusCode::CREATED, Json(view(&app, stored).await?)).into_response())
}

/// Changes, enables or disables a site.
pub async fn patch(
    State(app): State<App>,
    path: MatchedPath,
    Path(site): Path<String>,
    write: Write<PatchSite>,
) -> Answer<Json<SiteView>> {
    let site = find(&app, &path, &site).await?;
    change(&app, site, &write, &write.body).await
}

/// Disables a site: new work is refused, what is in flight goes on. spec: S5 3.5
pub async fn disable(
    State(app): State<App>,
    path: MatchedPath,
    Path(site): Path<String>,
    write: Write<NoBody>,
) -> Answer<Json<SiteView>> {
    let site = find(&app, &path, &site).await?;
    if site.status == SiteStatus::Disabled {
        return view(&app, site).await.map(Json);
    }
    let patch = PatchSite { status: Some(SiteStatus::Disabled), ..PatchSite::default() };
    change(&app, site, &write, &patch).await
}

async fn change<B: Send + Sync>(app: &App, site: Site, write: &Write<B>, patch: &PatchSite) -> Answer<Json<SiteView>> {
    let id = site.id;
    if write.earlier.is_none() {
        write.check_version(site.generation)?;
        let after = patched(site, patch, write.at)?;
        let request = write.request(&*app.ids, "");
        write.commit(app, request.commit(Vec::new(), vec![Change::Site(Box::new(after))])).await?;
    }
    view(app, site_of(app, id).await?).await.map(Json)
}
