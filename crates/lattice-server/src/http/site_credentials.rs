//! Secrets of sites: tried at the provider, then kept in the secret store. spec: S5 3.2, 3.4, 3.5

use axum::Json;
use axum::extract::{MatchedPath, Path, State};
use lattice_api::site::{ProbeAnswer, SiteCredentials};
use lattice_core::change::{Change, Outcome, Resource};
use lattice_core::explain::{Code, NextAction};
use lattice_core::ids::OpId;
use lattice_core::secret::Secret;
use lattice_core::site::credentials::{CredentialCause, CredentialName, SetBy, SiteCredential, credential_paths};
use lattice_core::site::{Site, SiteProvider};
use lattice_providers::secret::{SecretError, SecretObject, SecretPath};

use super::extract::{NoBody, Write};
use super::sites::find;
use super::{App, NewSecrets, ProbeFailed};
use crate::error::{Answer, Refusal};

/// What is wrong with a credential that the secret store does not have.
const GONE: &str = "it is not in the secret store";

/// How often the rows are read again when somebody else changes them at the same time.
const TRIES: u32 = 3;

/// A secret of a request, and where it goes.
struct Fresh {
    name: CredentialName,
    path: SecretPath,
    object: SecretObject,
}

/// Tries secrets at the provider, then keeps them, then notes when. Nothing is kept that the provider did not accept;
/// what was there goes on to be used until then. spec: S5 3.4, 3.5
pub async fn write(
    State(app): State<App>,
    path: MatchedPath,
    Path(site): Path<String>,
    write: Write<SiteCredentials>,
) -> Answer<Json<ProbeAnswer>> {
    let site = find(&app, &path, &site).await?;
    let fresh = credentials(&site, &write.body)?;
    let tried: NewSecrets = fresh.iter().map(|one| (one.path.clone(), one.object.clone())).collect();
    let probed = match app.prober.probe(&site, &tried).await {
        Ok(probed) => probed,
        Err(failed) => return Err(not_accepted(&app, &site, &write, failed).await?),
    };
    let mut kept = Vec::new();
    for one in fresh {
        if let Err(error) = app.secrets.write(&one.path, one.object).await {
            let missing = one.path;
            // What is kept is noted, under an id of its own: the request can be repeated as it is.
            let op = OpId::generate(&*app.ids, write.at);
            note_set(&app, &site, &write, op, &kept).await?;
            let already: Vec<String> = kept.iter().map(|(name, _)| name.to_string()).collect();
            let already = if already.is_empty() { "nothing".to_owned() } else { already.join(", ") };
            return Err(
                Refusal::explained(&error).because(format!("{missing} was not written; kept so far: {already}"))
            );
        }
        kept.push((one.name, one.path));
    }
    note_set(&app, &site, &write, write.op, &kept).await?;
    Ok(Json(ProbeAnswer { ok: true, version: probed.version, details: probed.details, at: write.at }))
}

/// Notes a refusal in the audit, and says why.
async fn not_accepted(app: &App, site: &Site, write: &Write<SiteCredentials>, failed: ProbeFailed) -> Answer<Refusal> {
    let request = write.request(&*app.ids, "");
    let refusal = Change::Refusal {
        action: "site.credential_set".to_owned(),
        resource: Resource::Site(site.id),
        detail: failed.why.clone(),
    };
    let mut commit = request.commit(Vec::new(), vec![refusal]);
    // The key of the request stays unused: the same request may be accepted later.
    commit.op = OpId::generate(&*app.ids, write.at);
    app.store.commit_one(commit).await?;
    if failed.code == Code::SecretStore {
        let detail = format!("the credentials of site {} cannot be tried: the secret store does not answer", site.name);
        return Ok(Refusal::new(failed.code, detail).because(failed.why));
    }
    Ok(Refusal::new(failed.code, format!("site {} did not accept the credentials", site.name))
        .because(failed.why)
        .next(NextAction::Fix { what: "check the address and the credentials; nothing was kept".to_owned() }))
}

/// Notes that these were set now, and by whom.
async fn note_set(
    app: &App,
    site: &Site,
    write: &Write<SiteCredentials>,
    op: OpId,
    kept: &[(CredentialName, SecretPath)],
) -> Answer<()> {
    if kept.is_empty() {
        return Ok(());
    }
    let by = SetBy { who: write.caller.actor().name, at: write.at };
    for _ in 0..TRIES {
        let known = app.store.site_credentials(Some(site.id)).await?;
        let changes = kept.iter().map(|(name, path)| {
            let row = row_of(&known, site, *name, path.as_str());
            Change::SiteCredential { after: row.set(by.clone()), cause: CredentialCause::Set }
        });
        let mut commit = write.request(&*app.ids, "").commit(Vec::new(), changes.collect());
        commit.op = op;
        match app.store.commit_one(commit).await? {
            Outcome::Applied { .. } | Outcome::Duplicate { .. } => return Ok(()),
            Outcome::Conflict { .. } | Outcome::Missing { .. } | Outcome::Fenced => {}
        }
    }
    Err(Refusal::new(Code::StaleVersion, "the credentials are kept; who set them when changes too fast to be noted")
        .next(NextAction::run(format!("lattice site probe {}", site.name), "tries what is kept now")))
}

fn row_of(known: &[SiteCredential], site: &Site, name: CredentialName, path: &str) -> SiteCredential {
    let row = known.iter().find(|row| row.name == name).cloned();
    SiteCredential { path: path.to_owned(), ..row.unwrap_or_else(|| SiteCredential::unknown(site.id, name, path)) }
}

/// Tries a site with the secrets that it has, and notes what came of it.
pub async fn probe(
    State(app): State<App>,
    path: MatchedPath,
    Path(site): Path<String>,
    write: Write<NoBody>,
) -> Answer<Json<ProbeAnswer>> {
    let site = find(&app, &path, &site).await?;
    let probed = app.prober.probe(&site, &Vec::new()).await;
    let refused = probed.as_ref().err().filter(|failed| failed.code == Code::SiteCredentials);
    let changes = if probed.is_ok() || refused.is_some() {
        findings(&app, &site, refused.map(|failed| failed.why.as_str()), &write).await?
    } else {
        // Neither accepted nor refused: nothing is known that was not known before.
        Vec::new()
    };
    if !changes.is_empty() {
        // Whoever sets a credential at this moment knows better.
        let request = write.request(&*app.ids, "");
        app.store.commit_one(request.commit(Vec::new(), changes)).await?;
    }
    let answer = match probed {
        Ok(probed) => ProbeAnswer { ok: true, version: probed.version, details: probed.details, at: write.at },
        Err(failed) => ProbeAnswer { ok: false, version: None, details: vec![failed.why], at: write.at },
    };
    Ok(Json(answer))
}

/// What a probe says of each credential: those that were tried by the provider's word, the others by their presence.
async fn findings(app: &App, site: &Site, refused: Option<&str>, write: &Write<NoBody>) -> Answer<Vec<Change>> {
    let known = app.store.site_credentials(Some(site.id)).await?;
    let mut changes = Vec::new();
    for (name, path) in credential_paths(&site.provider) {
        let row = row_of(&known, site, name, path);
        let secret: SecretPath = path.parse().map_err(|_| bad_path())?;
        let after = match (app.secrets.read(&secret).await, refused) {
            (Err(SecretError::NotFound { .. }), _) => row.clone().refused(GONE.to_owned()),
            (Err(_), _) => continue,
            (Ok(_), Some(why)) if name.is_tried() => row.clone().refused(why.to_owned()),
            (Ok(_), _) => row.clone().validated(write.at),
        };
        let cause = if after.problem.is_some() { CredentialCause::Refused } else { CredentialCause::Validated };
        if (&after.problem, after.validated_at) != (&row.problem, row.validated_at) || row.generation.0 == 0 {
            changes.push(Change::SiteCredential { after, cause });
        }
    }
    Ok(changes)
}

/// What is known of every credential that a site needs, and whether all of them are there.
pub async fn known(app: &App, site: &Site) -> Answer<(Vec<SiteCredential>, bool)> {
    let rows = app.store.site_credentials(Some(site.id)).await?;
    let needed = credential_paths(&site.provider);
    let rows: Vec<SiteCredential> = needed.into_iter().map(|(name, path)| row_of(&rows, site, name, path)).collect();
    let complete = rows.iter().all(|row| row.generation.0 > 0 && row.problem.as_deref() != Some(GONE));
    Ok((rows, complete))
}

fn bad_path() -> Refusal {
    Refusal::invalid("provider", "has a path of a secret that cannot be one")
}

fn path(text: &str) -> Answer<SecretPath> {
    text.parse().map_err(|_| bad_path())
}

/// The secrets of a request, each with its place; refused when the site's kind does not take one of them.
fn credentials(site: &Site, given: &SiteCredentials) -> Answer<Vec<Fresh>> {
    let maas = [
        ("api_token", given.api_token.is_some()),
        ("power", given.power.is_some()),
        ("deploy_password", given.deploy_password.is_some()),
    ];
    let lxd = [
        ("client_certificate_pem", given.client_certificate_pem.is_some()),
        ("client_key_pem", given.client_key_pem.is_some()),
        ("server_certificate_pem", given.server_certificate_pem.is_some()),
    ];
    let openchami = [("bearer_token", given.bearer_token.is_some())];
    let foreign: Vec<(&str, bool)> = match &site.provider {
        SiteProvider::Maas(_) => lxd.into_iter().chain(openchami).collect(),
        SiteProvider::Lxd(_) => maas.into_iter().chain(openchami).collect(),
        SiteProvider::Openchami(_) => maas.into_iter().chain(lxd).collect(),
        SiteProvider::Manual => maas.into_iter().chain(lxd).chain(openchami).collect(),
    };
    if let Some((field, _)) = foreign.iter().find(|(_, is_given)| *is_given) {
        return Err(Refusal::invalid(field, format!("has no meaning at a {} site", site.provider.kind())));
    }
    use CredentialName::{
        ApiToken, BearerToken, ClientCertificate, ClientKey, DeployPassword, Power, ServerCertificate,
    };
    let mut secrets = Vec::new();
    match &site.provider {
        SiteProvider::Manual => {}
        SiteProvider::Openchami(site) => {
            put(&mut secrets, (BearerToken, &site.token_path), "token", given.bearer_token.as_ref())?;
        }
        SiteProvider::Maas(maas) => {
            put(&mut secrets, (ApiToken, &maas.api_token_path), "token", given.api_token.as_ref())?;
            put(&mut secrets, (DeployPassword, &maas.deploy_password_path), "pass", given.deploy_password.as_ref())?;
            if let Some(power) = &given.power {
                not_empty("power.pass", &power.pass)?;
                let object =
                    [("user".to_owned(), Secret::new(power.user.clone())), ("pass".to_owned(), power.pass.clone())];
                let path = path(&maas.default_power_creds_path)?;
                secrets.push(Fresh { name: Power, path, object: SecretObject::from(object) });
            }
        }
        SiteProvider::Lxd(lxd) => {
            put(
                &mut secrets,
                (ClientCertificate, &lxd.client_cert_path),
                "pem",
                given.client_certificate_pem.as_ref(),
            )?;
            put(&mut secrets, (ClientKey, &lxd.client_key_path), "pem", given.client_key_pem.as_ref())?;
            put(
                &mut secrets,
                (ServerCertificate, &lxd.server_cert_path),
                "pem",
                given.server_certificate_pem.as_ref(),
            )?;
        }
    }
    if secrets.is_empty() {
        return Err(Refusal::invalid("api_token", "or another credential must be given: there is none in the body"));
    }
    Ok(secrets)
}

fn put(
    secrets: &mut Vec<Fresh>,
    (name, at): (CredentialName, &str),
    field: &str,
    secret: Option<&Secret<String>>,
) -> Answer<()> {
    if let Some(secret) = secret {
        not_empty(&name.to_string(), secret)?;
        let object = SecretObject::from([(field.to_owned(), secret.clone())]);
        secrets.push(Fresh { name, path: path(at)?, object });
    }
    Ok(())
}

fn not_empty(field: &str, secret: &Secret<String>) -> Answer<()> {
    if secret.expose().trim().is_empty() {
        return Err(Refusal::invalid(field, "is empty: leave it out to keep what is there"));
    }
    Ok(())
}
