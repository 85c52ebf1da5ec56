//! Power-credential overrides of MAAS sites. The row says which machine, the secret store has the login. spec: S5 3.2.1
//!
//! A login is written before its row says so, and forgotten after the row is gone: no row ever names a login that is
//! not there.

use axum::Json;
use axum::extract::{MatchedPath, Path, State};
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use lattice_api::Gone;
use lattice_api::page::{Page, PageQuery};
use lattice_api::power_override::{CreatePowerOverride, PatchPowerOverride, PowerOverrideView, SiteStatus};
use lattice_api::site::PowerLogin;
use lattice_core::change::{Change, Guard, Removed};
use lattice_core::explain::{Code, NextAction};
use lattice_core::ids::{Generation, OverrideId};
use lattice_core::secret::Secret;
use lattice_core::site::power_credentials::{PowerTarget, selector_value};
use lattice_core::site::{PowerOverride, PowerSelector, Site};
use lattice_providers::secret::{SecretObject, SecretPath};

use super::App;
use super::extract::{NoBody, Query, Write, page_request};
use super::profiles::maas_site;
use crate::error::{Answer, Refusal};

fn view(one: PowerOverride) -> PowerOverrideView {
    PowerOverrideView {
        id: one.id,
        site_id: one.site,
        selector_type: one.selector,
        selector_value: one.value,
        vault_path: one.path,
        status: one.status,
        created_at: one.created_at,
        updated_at: one.updated_at,
        generation: one.generation,
    }
}

async fn find_override(app: &App, site: &Site, text: &str) -> Answer<PowerOverride> {
    let found = match text.parse::<OverrideId>() {
        Ok(id) => app.store.power_override(id).await?,
        Err(_) => None,
    };
    found.filter(|one| one.site == site.id).ok_or_else(|| {
        let given: String = text.chars().take(80).collect();
        Refusal::new(Code::NotFound, format!("site {} has no power override with the id `{given}`", site.name))
            .next(NextAction::run(format!("lattice site override list {}", site.name), "shows those that there are"))
    })
}

/// Overrides, oldest first.
pub async fn list(
    State(app): State<App>,
    path: MatchedPath,
    Path(site): Path<String>,
    Query(query): Query<PageQuery>,
) -> Answer<Json<Page<PowerOverrideView>>> {
    let page = page_request(None, query.limit)?;
    let (site, _) = maas_site(&app, &path, &site).await?;
    let after = match &query.cursor {
        Some(cursor) => {
            Some(cursor.parse().map_err(|_| Refusal::malformed("cursor", "is not one that this list gave"))?)
        }
        None => None,
    };
    let mut rows = app.store.power_overrides(site.id, after, page.limit + 1).await?;
    let more = rows.len() > page.limit;
    rows.truncate(page.limit);
    let next = rows.last().filter(|_| more).map(|one| one.id.to_string());
    Ok(Json(Page { items: rows.into_iter().map(view).collect(), next }))
}

/// One override.
pub async fn get(
    State(app): State<App>,
    path: MatchedPath,
    Path((site, id)): Path<(String, String)>,
) -> Answer<Json<PowerOverrideView>> {
    let (site, _) = maas_site(&app, &path, &site).await?;
    find_override(&app, &site, &id).await.map(view).map(Json)
}

/// Creates an override with its login.
pub async fn create(
    State(app): State<App>,
    path: MatchedPath,
    Path(site): Path<String>,
    write: Write<CreatePowerOverride>,
) -> Answer<Response> {
    let (site, _) = maas_site(&app, &path, &site).await?;
    let body = &write.body;
    let selector = body.selector_type;
    let value =
        selector_value(selector, &body.selector_value).map_err(|bad| Refusal::invalid(&bad.field, &bad.problem))?;
    check_login(&body.login)?;
    if write.earlier.is_none() {
        if let Some(other) = matching(&app, &site, selector, &value).await? {
            return Err(taken(&site, &other));
        }
        let id = OverrideId::generate(&*app.ids, write.at);
        let one = PowerOverride {
            id,
            site: site.id,
            selector,
            value: value.clone(),
            path: format!("kv/maas-sites/{}/power/overrides/{id}", site.id),
            status: SiteStatus::Active,
            created_at: write.at,
            updated_at: write.at,
            generation: Generation::FIRST,
        };
        keep(&app, &one.path, &body.login).await?;
        let guard = Guard::SiteGeneration { site: site.id, have: site.generation };
        let change = Change::PowerOverride(one.clone());
        let committed = write.commit(&app, write.request(&*app.ids, "").commit(vec![guard], vec![change])).await;
        if let Err(refused) = committed {
            forget(&app, &one.path).await?;
            return Err(refused);
        }
    }
    let stored = matching(&app, &site, selector, &value).await?;
    let stored = stored.ok_or_else(|| Refusal::new(Code::NotFound, "the override was removed meanwhile"))?;
    Ok((StatusCode::CREATED, Json(view(stored))).into_response())
}

/// Enables or disables an override, or gives it another login.
pub async fn patch(
    State(app): State<App>,
    path: MatchedPath,
    Path((site, id)): Path<(String, String)>,
    write: Write<PatchPowerOverride>,
) -> Answer<Json<PowerOverrideView>> {
    let (site, _) = maas_site(&app, &path, &site).await?;
    let one = find_override(&app, &site, &id).await?;
    if write.earlier.is_none() {
        write.check_version(one.generation)?;
        if let Some(login) = &write.body.login {
            check_login(login)?;
            keep(&app, &one.path, login).await?;
        }
        let after = PowerOverride {
            status: write.body.status.unwrap_or(one.status),
            updated_at: write.at,
            generation: one.generation.next(),
            ..one
        };
        let change = Change::PowerOverride(after);
        write.commit(&app, write.request(&*app.ids, "").commit(Vec::new(), vec![change])).await?;
    }
    find_override(&app, &site, &id).await.map(view).map(Json)
}

/// Removes an override and its login: machines that it matched get the next login in their order.
pub async fn remove(
    State(app): State<App>,
    path: MatchedPath,
    Path((site, id)): Path<(String, String)>,
    write: Write<NoBody>,
) -> Answer<Json<Gone>> {
    let (site, _) = maas_site(&app, &path, &site).await?;
    if write.earlier.is_none() {
        let one = find_override(&app, &site, &id).await?;
        write.check_version(one.generation)?;
        let kept = one.path.clone();
        let change = Change::Removed(Box::new(Removed::PowerOverride(one)));
        write.commit(&app, write.request(&*app.ids, "").commit(Vec::new(), vec![change])).await?;
        forget(&app, &kept).await.map_err(|refused| {
            refused.because(format!("the override is removed; its login at {kept} is left for you to delete"))
        })?;
    }
    Ok(Json(Gone { removed: id }))
}

async fn matching(app: &App, site: &Site, selector: PowerSelector, value: &str) -> Answer<Option<PowerOverride>> {
    // What is not asked for is given values that none can have.
    let target = match selector {
        PowerSelector::PxeMac => PowerTarget { hostname: "", ipmi_ip: "", pxe_mac: Some(value) },
        PowerSelector::IpmiIp => PowerTarget { hostname: "", ipmi_ip: value, pxe_mac: None },
        PowerSelector::Hostname => PowerTarget { hostname: value, ipmi_ip: "", pxe_mac: None },
    };
    Ok(app.store.power_overrides_of(site.id, &target).await?.pop())
}

fn taken(site: &Site, other: &PowerOverride) -> Refusal {
    let what = format!("site {} has an override by {} {} already", site.name, other.selector, other.value);
    let command = format!("lattice site override set {} {} --from-file FILE", site.name, other.id);
    Refusal::new(Code::Taken, what)
        .because("two that match the same machine in the same way could not be told apart")
        .next(NextAction::run(command, "gives that one another login"))
}

/// A login that can be one.
pub fn check_login(login: &PowerLogin) -> Answer<()> {
    for (field, text) in [("login.user", &login.user), ("login.pass", login.pass.expose())] {
        if !(1..=256).contains(&text.len()) || text.chars().any(char::is_control) {
            return Err(Refusal::invalid(field, "must have 1 to 256 characters, none of them a control character"));
        }
    }
    Ok(())
}

async fn keep(app: &App, path: &str, login: &PowerLogin) -> Answer<()> {
    let object = [("user".to_owned(), Secret::new(login.user.clone())), ("pass".to_owned(), login.pass.clone())];
    let written = app.secrets.write(&parse(path)?, SecretObject::from(object)).await;
    written.map_err(|error| Refusal::explained(&error))
}

/// Forgets a login.
pub async fn forget(app: &App, path: &str) -> Answer<()> {
    app.secrets.delete(&parse(path)?).await.map_err(|error| Refusal::explained(&error))
}

fn parse(path: &str) -> Answer<SecretPath> {
    path.parse().map_err(|_| Refusal::new(Code::Internal, "a path of a secret was made that cannot be one"))
}
