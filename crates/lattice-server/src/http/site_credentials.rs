//! Secrets of sites: tried at the provider, then kept in the secret store. spec: S5 3.2, 3.4, 3.5

use axum::Json;
use axum::extract::{MatchedPath, Path, State};
use lattice_api::site::{ProbeAnswer, SiteCredentials};
use lattice_core::change::Change;
use lattice_core::explain::{Code, NextAction};
use lattice_core::secret::Secret;
use lattice_core::site::{Site, SiteProvider};
use lattice_providers::secret::{SecretObject, SecretPath};

use super::extract::{NoBody, Write};
use super::sites::find;
use super::{App, NewSecrets};
use crate::error::{Answer, Refusal};

/// Tries secrets at the provider, then keeps them. Nothing is kept that the provider did not accept. spec: S5 3.4
pub async fn write(
    State(app): State<App>,
    path: MatchedPath,
    Path(site): Path<String>,
    write: Write<SiteCredentials>,
) -> Answer<Json<ProbeAnswer>> {
    let site = find(&app, &path, &site).await?;
    let fresh = credentials(&site, &write.body)?;
    let probed = app.prober.probe(&site, &fresh).await.map_err(|failed| {
        Refusal::new(Code::Provider, format!("site {} did not accept the credentials", site.name))
            .because(failed.why)
            .next(NextAction::Fix { what: "check the address and the credentials; nothing was kept".to_owned() })
    })?;
    let names: Vec<String> = fresh.iter().map(|(path, _)| path.to_string()).collect();
    for (path, object) in fresh {
        app.secrets.write(&path, object).await.map_err(|error| Refusal::explained(&error))?;
    }
    let note = Change::Note {
        name: "site.credentials_written".to_owned(),
        resource: lattice_core::change::Resource::Site(site.id),
        detail: names.join(", "),
    };
    let request = write.request(&*app.ids, "");
    write.commit(&app, request.commit(Vec::new(), vec![note])).await?;
    Ok(Json(ProbeAnswer { ok: true, version: probed.version, details: probed.details, at: write.at }))
}

/// Tries a site with the secrets that it has.
pub async fn probe(
    State(app): State<App>,
    path: MatchedPath,
    Path(site): Path<String>,
    write: Write<NoBody>,
) -> Answer<Json<ProbeAnswer>> {
    let site = find(&app, &path, &site).await?;
    let answer = match app.prober.probe(&site, &Vec::new()).await {
        Ok(probed) => ProbeAnswer { ok: true, version: probed.version, details: probed.details, at: write.at },
        Err(failed) => ProbeAnswer { ok: false, version: None, details: vec![failed.why], at: write.at },
    };
    Ok(Json(answer))
}

/// Where every secret that a provider needs is kept.
pub fn secret_paths(provider: &SiteProvider) -> Answer<Vec<SecretPath>> {
    let texts = match provider {
        SiteProvider::Manual => return Ok(Vec::new()),
        SiteProvider::Maas(maas) => [&maas.api_token_path, &maas.default_power_creds_path, &maas.deploy_password_path],
        SiteProvider::Lxd(lxd) => [&lxd.client_cert_path, &lxd.client_key_path, &lxd.server_cert_path],
    };
    texts.into_iter().map(|text| path(text)).collect()
}

fn path(text: &str) -> Answer<SecretPath> {
    text.parse().map_err(|_| Refusal::invalid("provider", "has a path of a secret that cannot be one"))
}

/// The secrets of a request, each with its place; refused when the site's kind does not take one of them.
fn credentials(site: &Site, given: &SiteCredentials) -> Answer<NewSecrets> {
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
    let foreign: Vec<(&str, bool)> = match &site.provider {
        SiteProvider::Maas(_) => lxd.to_vec(),
        SiteProvider::Lxd(_) => maas.to_vec(),
        SiteProvider::Manual => maas.into_iter().chain(lxd).collect(),
    };
    if let Some((field, _)) = foreign.iter().find(|(_, is_given)| *is_given) {
        return Err(Refusal::invalid(field, format!("has no meaning at a {} site", site.provider.kind())));
    }
    let mut secrets = Vec::new();
    match &site.provider {
        SiteProvider::Manual => {}
        SiteProvider::Maas(maas) => {
            put(&mut secrets, &maas.api_token_path, "token", given.api_token.as_ref())?;
            put(&mut secrets, &maas.deploy_password_path, "pass", given.deploy_password.as_ref())?;
            if let Some(power) = &given.power {
                let object =
                    [("user".to_owned(), Secret::new(power.user.clone())), ("pass".to_owned(), power.pass.clone())];
                secrets.push((path(&maas.default_power_creds_path)?, SecretObject::from(object)));
            }
        }
        SiteProvider::Lxd(lxd) => {
            put(&mut secrets, &lxd.client_cert_path, "pem", given.client_certificate_pem.as_ref())?;
            put(&mut secrets, &lxd.client_key_path, "pem", given.client_key_pem.as_ref())?;
            put(&mut secrets, &lxd.server_cert_path, "pem", given.server_certificate_pem.as_ref())?;
        }
    }
    if secrets.is_empty() {
        return Err(Refusal::invalid("api_token", "or another credential must be given: there is none in the body"));
    }
    Ok(secrets)
}

fn put(secrets: &mut NewSecrets, at: &str, name: &str, secret: Option<&Secret<String>>) -> Answer<()> {
    if let Some(secret) = secret {
        secrets.push((path(at)?, SecretObject::from([(name.to_owned(), secret.clone())])));
    }
    Ok(())
}
