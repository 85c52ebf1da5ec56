//! What operators tell a site besides its settings: its brake, and which fingerprints its nodes may have.

use std::collections::BTreeMap;
use std::time::Duration;

use axum::Json;
use axum::extract::{MatchedPath, Path, State};
use lattice_api::site::{ConformanceView, FingerprintLine, NameFingerprint, PullBrake, SiteView};
use lattice_core::change::Commit;
use lattice_core::command::site as commands;
use lattice_core::site::Site;

use super::App;
use super::extract::{NoBody, Write};
use super::nodes::sku_named;
use super::rows::{find_node, site_of};
use super::sites::{find, view};
use crate::error::{Answer, Refusal};

/// Pulls the brake.
pub async fn brake(
    State(app): State<App>,
    path: MatchedPath,
    Path(site): Path<String>,
    write: Write<PullBrake>,
) -> Answer<Json<SiteView>> {
    let site = find(&app, &path, &site).await?;
    let (app, write) = (&app, &write);
    let decide = |site: Site| async move {
        let body = &write.body;
        let until = write.at + Duration::from_millis(body.for_ms);
        let request = write.request(&*app.ids, &body.reason);
        Ok(Some(commands::brake(&request, &site, &body.selector, until)?))
    };
    view(app, ordered(app, site, write, decide).await?).await.map(Json)
}

/// Lets go of what any brake holds back.
pub async fn let_go(
    State(app): State<App>,
    path: MatchedPath,
    Path(site): Path<String>,
    write: Write<NoBody>,
) -> Answer<Json<SiteView>> {
    let site = find(&app, &path, &site).await?;
    let (app, write) = (&app, &write);
    let decide = |site: Site| async move { Ok(Some(commands::let_go(&write.request(&*app.ids, ""), &site))) };
    view(app, ordered(app, site, write, decide).await?).await.map(Json)
}

/// Carries an order out, unless it was before; gives the site as it stands then. None: nothing is to be done.
async fn ordered<B, F>(app: &App, site: Site, write: &Write<B>, decide: impl FnOnce(Site) -> F) -> Answer<Site>
where
    B: Send + Sync,
    F: Future<Output = Answer<Option<Commit>>>,
{
    let id = site.id;
    if write.earlier.is_none() {
        write.check_version(site.generation)?;
        if let Some(commit) = decide(site).await? {
            write.commit(app, commit).await?;
        }
    }
    site_of(app, id).await
}

/// Fingerprints that are approved, and those that nodes report.
pub async fn conformance(
    State(app): State<App>,
    path: MatchedPath,
    Path(site): Path<String>,
) -> Answer<Json<ConformanceView>> {
    let site = find(&app, &path, &site).await?;
    conformance_of(&app, &site).await.map(Json)
}

async fn conformance_of(app: &App, site: &Site) -> Answer<ConformanceView> {
    let mut counts: BTreeMap<(String, String), u64> =
        site.approved.iter().map(|one| ((one.sku.clone(), one.fingerprint.clone()), 0)).collect();
    counts.extend(app.store.fingerprints(site.id).await?);
    let mut fingerprints: Vec<FingerprintLine> = counts
        .into_iter()
        .map(|((sku, fingerprint), nodes)| {
            let of_sku = || site.approved.iter().filter(|one| one.sku == sku);
            let approved = of_sku().find(|one| one.fingerprint == fingerprint).cloned();
            let deviates = approved.is_none() && of_sku().next().is_some();
            FingerprintLine { sku, fingerprint, nodes, approved, deviates }
        })
        .collect();
    fingerprints.sort_by(|a, b| (&a.sku, b.nodes).cmp(&(&b.sku, a.nodes)));
    Ok(ConformanceView { site_id: site.id, fingerprints })
}

/// Approves a fingerprint.
pub async fn approve(
    State(app): State<App>,
    path: MatchedPath,
    Path(site): Path<String>,
    write: Write<NameFingerprint>,
) -> Answer<Json<ConformanceView>> {
    let site = find(&app, &path, &site).await?;
    let (app, write) = (&app, &write);
    let decide = |site: Site| async move {
        let (sku, fingerprint) = named(app, &site, &write.body).await?;
        let sku = sku_named(app, "sku", &sku).await?;
        let request = write.request(&*app.ids, &write.body.reason);
        Ok(commands::approve(&request, &site, &sku, &fingerprint)?)
    };
    conformance_of(app, &ordered(app, site, write, decide).await?).await.map(Json)
}

/// Takes an approval back.
pub async fn withdraw(
    State(app): State<App>,
    path: MatchedPath,
    Path(site): Path<String>,
    write: Write<NameFingerprint>,
) -> Answer<Json<ConformanceView>> {
    let site = find(&app, &path, &site).await?;
    let (app, write) = (&app, &write);
    let decide = |site: Site| async move {
        let (sku, fingerprint) = named(app, &site, &write.body).await?;
        let request = write.request(&*app.ids, &write.body.reason);
        Ok(Some(commands::withdraw(&request, &site, &sku, &fingerprint)?))
    };
    conformance_of(app, &ordered(app, site, write, decide).await?).await.map(Json)
}

/// SKU and fingerprint, as they were given or as a node of the site has them.
async fn named(app: &App, site: &Site, body: &NameFingerprint) -> Answer<(String, String)> {
    match (&body.node, &body.sku, &body.fingerprint) {
        (None, Some(sku), Some(fingerprint)) => Ok((sku.clone(), fingerprint.clone())),
        (Some(node), None, None) => {
            let node = find_node(app, node).await?;
            if node.site != site.id {
                let problem = format!("names {}, which is of another site", node.hostname);
                return Err(Refusal::invalid("node", problem));
            }
            let none =
                || Refusal::invalid("node", format!("names {}, which reported no fingerprint yet", node.hostname));
            Ok((node.sku.clone(), node.fingerprint.clone().ok_or_else(none)?))
        }
        (_, _, _) => Err(Refusal::malformed("node", "must be given, or `sku` and `fingerprint` instead of it")),
    }
}
