//! Profiles of MAAS sites. What an onboarding took from one stays with it: changing or removing a profile concerns
//! later onboardings alone. spec: S5 3.7

use axum::Json;
use axum::extract::{MatchedPath, Path, State};
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use lattice_api::Gone;
use lattice_api::page::{Page, PageQuery};
use lattice_api::profile::{CreateProfile, PatchProfile, ProfileView, SiteStatus};
use lattice_core::change::{Change, Guard, Removed};
use lattice_core::explain::{Code, NextAction};
use lattice_core::ids::{Generation, ProfileId};
use lattice_core::site::{MaasSettings, MaasSite, ProfileSettings, Site, SiteProfile, SiteProvider, check};
use serde_json::Value;

use super::App;
use super::extract::{NoBody, Query, Write, page_request};
use super::site_rules::{check_name, merge, refused, settings};
use super::sites::find;
use crate::error::{Answer, Refusal};

/// Most profiles of one site: more ways of running one place than a person keeps apart.
const MAX_PROFILES: usize = 100;

/// The MAAS site that a path names.
pub async fn maas_site(app: &App, path: &MatchedPath, text: &str) -> Answer<(Site, MaasSite)> {
    let site = find(app, path, text).await?;
    match &site.provider {
        SiteProvider::Maas(maas) => {
            let maas = maas.clone();
            Ok((site, maas))
        }
        other @ (SiteProvider::Manual | SiteProvider::Lxd(_) | SiteProvider::Openchami(_)) => Err(Refusal::new(
            Code::Invalid,
            format!("site {} is a {} site: only MAAS sites have this", site.name, other.kind()),
        )
        .next(NextAction::run("lattice site list", "shows the sites and their kinds"))),
    }
}

async fn find_profile(app: &App, site: &Site, text: &str) -> Answer<SiteProfile> {
    let found = match text.parse::<ProfileId>() {
        Ok(id) => app.store.profile(id).await?.filter(|profile| profile.site == site.id),
        Err(_) => app.store.profile_by_name(site.id, text).await?,
    };
    found.ok_or_else(|| {
        let given: String = text.chars().take(80).collect();
        Refusal::new(Code::NotFound, format!("site {} has no profile with the id or name `{given}`", site.name))
            .next(NextAction::run(format!("lattice site profile list {}", site.name), "shows those that there are"))
    })
}

fn view(maas: &MaasSite, profile: SiteProfile) -> ProfileView {
    ProfileView {
        is_default: maas.default_profile_id == Some(profile.id),
        id: profile.id,
        site_id: profile.site,
        name: profile.name,
        description: profile.description,
        status: profile.status,
        settings: profile.settings,
        created_at: profile.created_at,
        updated_at: profile.updated_at,
        generation: profile.generation,
    }
}

/// Profiles by name.
pub async fn list(
    State(app): State<App>,
    path: MatchedPath,
    Path(site): Path<String>,
    Query(query): Query<PageQuery>,
) -> Answer<Json<Page<ProfileView>>> {
    let page = page_request(None, query.limit)?;
    let (site, maas) = maas_site(&app, &path, &site).await?;
    let all = app.store.profiles(site.id).await?;
    let mut rest = all.into_iter().filter(|one| query.cursor.as_ref().is_none_or(|after| one.name > *after));
    let items: Vec<ProfileView> = rest.by_ref().take(page.limit).map(|profile| view(&maas, profile)).collect();
    let next = rest.next().and_then(|_| items.last()).map(|profile| profile.name.clone());
    Ok(Json(Page { items, next }))
}

/// One profile.
pub async fn get(
    State(app): State<App>,
    path: MatchedPath,
    Path((site, profile)): Path<(String, String)>,
) -> Answer<Json<ProfileView>> {
    let (site, maas) = maas_site(&app, &path, &site).await?;
    let profile = find_profile(&app, &site, &profile).await?;
    Ok(Json(view(&maas, profile)))
}

/// Creates a profile.
pub async fn create(
    State(app): State<App>,
    path: MatchedPath,
    Path(site): Path<String>,
    write: Write<CreateProfile>,
) -> Answer<Response> {
    let (site, maas) = maas_site(&app, &path, &site).await?;
    let body = &write.body;
    check_name(&body.name, "gpu-default")?;
    let changes = if body.settings.is_null() { Value::Object(serde_json::Map::new()) } else { body.settings.clone() };
    let own = ProfileSettings { policy: maas.policy.clone(), ..ProfileSettings::default() };
    let profile = SiteProfile {
        id: ProfileId::generate(&*app.ids, write.at),
        site: site.id,
        name: body.name.clone(),
        description: description(&body.description)?,
        status: SiteStatus::Active,
        settings: changed(&maas, &own, &changes)?,
        created_at: write.at,
        updated_at: write.at,
        generation: Generation::FIRST,
    };
    check(&maas, &profile)?;
    if write.earlier.is_none() {
        let all = app.store.profiles(site.id).await?;
        if all.iter().any(|other| other.name == profile.name) {
            let show = format!("lattice site profile show {} {}", site.name, profile.name);
            return Err(Refusal::new(
                Code::Taken,
                format!("site {} has a profile {} already", site.name, profile.name),
            )
            .next(NextAction::run(show, "shows it")));
        }
        if all.len() >= MAX_PROFILES {
            return Err(Refusal::invalid("name", format!("would be one more than the {MAX_PROFILES} a site may have")));
        }
        let guard = Guard::SiteGeneration { site: site.id, have: site.generation };
        let change = Change::Profile(Box::new(profile.clone()));
        write.commit(&app, write.request(&*app.ids, "").commit(vec![guard], vec![change])).await?;
    }
    let stored = find_profile(&app, &site, &profile.name).await?;
    Ok((StatusCode::CREATED, Json(view(&maas, stored))).into_response())
}

/// Changes, enables or disables a profile.
pub async fn patch(
    State(app): State<App>,
    path: MatchedPath,
    Path((site, profile)): Path<(String, String)>,
    write: Write<PatchProfile>,
) -> Answer<Json<ProfileView>> {
    let (site, maas) = maas_site(&app, &path, &site).await?;
    let profile = find_profile(&app, &site, &profile).await?;
    let id = profile.id;
    if write.earlier.is_none() {
        write.check_version(profile.generation)?;
        let body = &write.body;
        if body.status == Some(SiteStatus::Disabled) && maas.default_profile_id == Some(id) {
            return Err(is_default(&site, &profile, "disabled"));
        }
        let after = SiteProfile {
            settings: match &body.settings {
                Some(changes) => changed(&maas, &profile.settings, changes)?,
                None => profile.settings,
            },
            description: match &body.description {
                Some(text) => description(text)?,
                None => profile.description,
            },
            status: body.status.unwrap_or(profile.status),
            updated_at: write.at,
            generation: profile.generation.next(),
            id,
            site: profile.site,
            name: profile.name,
            created_at: profile.created_at,
        };
        check(&maas, &after)?;
        // It does not become the site's default while this is decided.
        let guard = Guard::SiteGeneration { site: site.id, have: site.generation };
        let change = Change::Profile(Box::new(after));
        write.commit(&app, write.request(&*app.ids, "").commit(vec![guard], vec![change])).await?;
    }
    let stored = find_profile(&app, &site, &id.to_string()).await?;
    Ok(Json(view(&maas, stored)))
}

/// Removes a profile. Jobs that were accepted with it keep what they took from it.
pub async fn remove(
    State(app): State<App>,
    path: MatchedPath,
    Path((site, name)): Path<(String, String)>,
    write: Write<NoBody>,
) -> Answer<Json<Gone>> {
    let (site, maas) = maas_site(&app, &path, &site).await?;
    if write.earlier.is_none() {
        let profile = find_profile(&app, &site, &name).await?;
        write.check_version(profile.generation)?;
        if maas.default_profile_id == Some(profile.id) {
            return Err(is_default(&site, &profile, "removed"));
        }
        let guard = Guard::SiteGeneration { site: site.id, have: site.generation };
        let change = Change::Removed(Box::new(Removed::Profile(profile)));
        write.commit(&app, write.request(&*app.ids, "").commit(vec![guard], vec![change])).await?;
    }
    Ok(Json(Gone { removed: name }))
}

fn is_default(site: &Site, profile: &SiteProfile, what: &str) -> Refusal {
    let command = format!("lattice site profile default {} <profile>", site.name);
    Refusal::new(Code::Taken, format!("profile {} is site {}'s default and cannot be {what}", profile.name, site.name))
        .because("onboardings that name no profile use it")
        .next(NextAction::run(command, "makes another one the default; `-` none"))
}

fn description(text: &str) -> Answer<String> {
    let length = text.chars().count();
    if length > 500 || text.chars().any(char::is_control) {
        return Err(Refusal::invalid("description", "must have at most 500 characters, all on one line"));
    }
    Ok(text.to_owned())
}

/// Settings after a merge patch. The poller serves all jobs of a site: its pace is no profile's.
fn changed(maas: &MaasSite, before: &ProfileSettings, changes: &Value) -> Answer<ProfileSettings> {
    if !changes.is_object() {
        return Err(Refusal::malformed("settings", "must be an object"));
    }
    if changes.pointer("/policy/poll_interval_ms").is_some() {
        return Err(Refusal::invalid("settings.policy.poll_interval_ms", "is the site's alone: set it there"));
    }
    let mut value = serde_json::to_value(before).expect("settings have only text keys");
    merge(&mut value, changes);
    let mut after: ProfileSettings = settings("settings", value)?;
    after.policy.poll_interval_ms = maas.policy.poll_interval_ms;
    Ok(after)
}

fn check(maas: &MaasSite, profile: &SiteProfile) -> Answer<()> {
    check::settings(&MaasSettings::of(maas, Some(profile))).map_err(|bad| refused("settings", &bad))
}
