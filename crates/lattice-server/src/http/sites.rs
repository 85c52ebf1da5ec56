//! Sites: provider endpoints, their secrets, and whether they answer. `maas-sites` is the view of the MAAS ones.

use axum::Json;
use axum::extract::{MatchedPath, Path, State};
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use lattice_api::Gone;
use lattice_api::page::{Page, PageQuery};
use lattice_api::site::{CallLine, CreateSite, PatchSite, SiteCalls, SiteStatus, SiteView};
use lattice_core::change::{Change, Guard, Removed};
use lattice_core::explain::{Code, NextAction};
use lattice_core::ids::{Generation, ProfileId, SiteId};
use lattice_core::site::credentials::credential_paths;
use lattice_core::site::{Governor, Site, SiteProvider};
use lattice_store::PAGE_MAX;

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
        SiteProvider::Manual | SiteProvider::Lxd(_) | SiteProvider::Openchami(_) => !only_maas,
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

pub async fn view(app: &App, site: Site) -> Answer<SiteView> {
    let (credentials, credentials_complete) = site_credentials::known(app, &site).await?;
    let (in_service, taken) = app.store.taken_at(site.id).await?;
    Ok(SiteView {
        id: site.id,
        name: site.name,
        region_code: site.region_code,
        provider: site.provider,
        heartbeat: site.heartbeat,
        bmc: site.bmc,
        governor: Governor::new(&site.automation, in_service, taken),
        automation: site.automation,
        brake: site.brake.filter(|brake| app.clock.now() < brake.until),
        sensitive: site.sensitive,
        status: site.status,
        credentials_complete,
        credentials,
        created_at: site.created_at,
        updated_at: site.updated_at,
        generation: site.generation,
    })
}

/// How often a MAAS site was asked.
pub async fn calls(State(app): State<App>, path: MatchedPath, Path(site): Path<String>) -> Answer<Json<SiteCalls>> {
    /// design: 7-tests-and-benchmarks "MAAS calls for 1,000 concurrent onboardings"
    const PER_ONBOARDING: u64 = 40;
    /// The same row.
    const PER_ROCE_INTERFACE: u64 = 2;
    let (site, maas) = super::profiles::maas_site(&app, &path, &site).await?;
    let by_call = app.prober.calls(&site).await;
    let sum = |of: fn(&CallLine) -> u64| by_call.iter().map(of).sum();
    Ok(Json(SiteCalls {
        site_id: site.id,
        calls: sum(|line| line.calls),
        polls: by_call.iter().filter(|line| line.call.starts_with("events")).map(|line| line.calls).sum(),
        retries: sum(|line| line.retries),
        failures: sum(|line| line.failures),
        poll_interval_ms: maas.policy.poll_interval_ms,
        budget_per_onboarding: PER_ONBOARDING,
        budget_per_roce_interface: PER_ROCE_INTERFACE,
        by_call,
    }))
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
        bmc: body.bmc.clone().unwrap_or_default(),
        automation: body.automation.unwrap_or_default(),
        brake: None,
        let_go_at: None,
        approved: Vec::new(),
        sensitive: body.sensitive.unwrap_or_default(),
        status: SiteStatus::Active,
        created_at: write.at,
        updated_at: write.at,
        generation: Generation::FIRST,
    };
    super::site_rules::check(&site)?;
    if default_profile(&site).is_some() {
        return Err(Refusal::invalid("provider.default_profile_id", "must be set later: a new site has no profiles"));
    }
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

const fn default_profile(site: &Site) -> Option<ProfileId> {
    match &site.provider {
        SiteProvider::Maas(maas) => maas.default_profile_id,
        SiteProvider::Manual | SiteProvider::Lxd(_) | SiteProvider::Openchami(_) => None,
    }
}

/// A default must be one of the site's own profiles, and active; that it stays so is the commit's guard.
async fn usable_default(app: &App, site: &Site, id: ProfileId) -> Answer<Guard> {
    let field = "provider.default_profile_id";
    let found = app.store.profile(id).await?.filter(|profile| profile.site == site.id);
    let Some(profile) = found else {
        let list = format!("lattice site profile list {}", site.name);
        return Err(Refusal::invalid(field, format!("names {id}, which is no profile of site {}", site.name))
            .next(NextAction::run(list, "shows those that there are")));
    };
    match profile.status {
        SiteStatus::Active => Ok(Guard::ProfileGeneration { profile: id, have: profile.generation }),
        SiteStatus::Disabled => {
            let enable = format!("lattice site profile enable {} {}", site.name, profile.name);
            Err(Refusal::invalid(field, format!("names profile {}, which is disabled", profile.name))
                .next(NextAction::run(enable, "lets new work use it")))
        }
    }
}

/// Removes a site with all that stands beside it: its profiles, overrides, assignments and secrets. Refused while a
/// node is of it, and for good once one was: its history would have no place. It can be disabled then.
pub async fn remove(
    State(app): State<App>,
    path: MatchedPath,
    Path(name): Path<String>,
    write: Write<NoBody>,
) -> Answer<Json<Gone>> {
    if write.earlier.is_some() {
        return Ok(Json(Gone { removed: name }));
    }
    let site = find(&app, &path, &name).await?;
    write.check_version(site.generation)?;
    if matches!(site.provider, SiteProvider::Manual) {
        return Err(Refusal::new(Code::Invalid, format!("site {} is built in and stays", site.name)));
    }
    let own = credential_paths(&site.provider);
    let mut secrets: Vec<String> = own.into_iter().map(|(_, path)| path.to_owned()).collect();
    let mut changes = Vec::new();
    changes.extend(app.store.profiles(site.id).await?.into_iter().map(Removed::Profile));
    let mut after = None;
    loop {
        let page = app.store.power_overrides(site.id, after, PAGE_MAX).await?;
        after = page.last().map(|one| one.id);
        secrets.extend(page.iter().map(|one| one.path.clone()));
        let is_last = page.len() < PAGE_MAX;
        changes.extend(page.into_iter().map(Removed::PowerOverride));
        if is_last {
            break;
        }
    }
    changes.extend(super::roce::all(&app, site.id).await?.into_iter().map(Removed::Roce));
    let (id, name_of) = (site.id, site.name.clone());
    changes.push(Removed::Site(site));
    let changes = changes.into_iter().map(|removed| Change::Removed(Box::new(removed))).collect();
    let commit = write.request(&*app.ids, "").commit(vec![Guard::SiteUnused { site: id }], changes);
    write.commit(&app, commit).await.map_err(|refused| in_use(refused, &name_of))?;
    for path in secrets {
        super::power_overrides::forget(&app, &path).await.map_err(|refused| {
            refused.because(format!("the site is removed; its secret at {path} is left for you to delete"))
        })?;
    }
    Ok(Json(Gone { removed: name }))
}

/// The store's word for it, in words for people.
fn in_use(refused: Refusal, site: &str) -> Refusal {
    if !refused.problem().detail.starts_with("node of site") {
        return refused;
    }
    let (list, disable) = (format!("lattice node list --site {site}"), format!("lattice site disable {site}"));
    Refusal::new(Code::Taken, format!("site {site} has nodes, or had some whose history names it"))
        .next(NextAction::run(disable, "refuses new work there and keeps the history"))
        .next(NextAction::run(list, "shows its nodes"))
}

async fn change<B: Send + Sync>(app: &App, site: Site, write: &Write<B>, patch: &PatchSite) -> Answer<Json<SiteView>> {
    let id = site.id;
    if write.earlier.is_none() {
        write.check_version(site.generation)?;
        let before = default_profile(&site);
        let after = patched(site, patch, write.at)?;
        let mut guards = Vec::new();
        if let Some(id) = default_profile(&after).filter(|id| before != Some(*id)) {
            guards.push(usable_default(app, &after, id).await?);
        }
        let request = write.request(&*app.ids, "");
        write.commit(app, request.commit(guards, vec![Change::Site(Box::new(after))])).await?;
    }
    view(app, site_of(app, id).await?).await.map(Json)
}
