//! When credentials of a site were set, by whom, and whether the provider took them; never their value.

use std::time::Duration;

use lattice_api::site::{CredentialName, PowerLogin, SiteCredential, SiteCredentials};
use lattice_core::actor::Role;
use lattice_core::secret::Secret;
use serde_json::json;

use super::fixture::Api;

async fn rows(api: &Api) -> Vec<SiteCredential> {
    api.admin().site("dc1").await.unwrap().credentials
}

fn row(rows: &[SiteCredential], name: CredentialName) -> &SiteCredential {
    rows.iter().find(|row| row.name == name).unwrap()
}

async fn site() -> Api {
    let api = Api::new().await;
    let provider = json!({"kind": "maas", "api_base_url": "http://10.0.0.1:5240/MAAS", "pxe_iface": "ens19",
        "pxe_vlan_vid": 46, "node_pxe_iface": "eno8303"});
    let body = json!({"name": "dc1", "region_code": "r", "provider": provider}).to_string();
    assert_eq!(api.json(http::Method::POST, "/api/v1/admin/maas-sites", &body).await.status, 201);
    api
}

fn token(text: &str) -> SiteCredentials {
    SiteCredentials { api_token: Some(Secret::new(text.to_owned())), ..SiteCredentials::default() }
}

#[tokio::test]
async fn setting_and_rotating_note_who_and_when_for_what_was_given_alone() {
    let api = site().await;
    let admin = api.admin();
    assert!(rows(&api).await.iter().all(|row| row.generation.0 == 0 && row.path.starts_with("kv/maas-sites/")));
    admin.write_credentials("dc1", &token("good-one")).await.unwrap();
    let first = rows(&api).await;
    let set = row(&first, CredentialName::ApiToken);
    assert_eq!(set.set_by.as_deref(), Some(Role::PlatformAdmin.to_string().as_str()));
    assert!(set.set_at.is_some() && set.validated_at == set.set_at);
    assert!(row(&first, CredentialName::Power).set_at.is_none());
    api.pass(Duration::from_secs(60));
    let power = PowerLogin { user: "root".to_owned(), pass: Secret::new("pass-word".to_owned()) };
    let rest = SiteCredentials { power: Some(power), ..SiteCredentials::default() };
    admin.write_credentials("dc1", &rest).await.unwrap();
    admin.write_credentials("dc1", &rest).await.unwrap();
    let second = rows(&api).await;
    assert_eq!(row(&second, CredentialName::ApiToken), set, "what was not given stays as it was");
    let power = row(&second, CredentialName::Power);
    assert!(power.set_at > set.set_at && power.generation.0 == 2);
    assert_eq!(power.validated_at, None, "a BMC login proves itself only at a machine");
    let events = api.get("/api/v1/admin/events?limit=1000").await.body;
    let named = events["events"].as_array().unwrap().iter().filter(|event| event["name"] == "site.credential_set");
    assert_eq!(named.count(), 3);
}

#[tokio::test]
async fn a_probe_notes_what_the_provider_says_and_what_is_missing() {
    let api = site().await;
    let admin = api.admin();
    admin.write_credentials("dc1", &token("good-one")).await.unwrap();
    api.pass(Duration::from_secs(60));
    assert!(admin.probe_site("dc1").await.unwrap().ok);
    let probed = rows(&api).await;
    let token = row(&probed, CredentialName::ApiToken);
    assert!(token.validated_at > token.set_at && token.problem.is_none());
    let power = row(&probed, CredentialName::Power);
    assert_eq!(power.problem.as_deref(), Some("it is not in the secret store"));
    assert!(!admin.site("dc1").await.unwrap().credentials_complete);
}

#[tokio::test]
async fn an_empty_secret_is_refused_by_its_name() {
    let api = site().await;
    for (body, field) in [
        (r#"{"api_token": " "}"#, "api_token"),
        (r#"{"deploy_password": ""}"#, "deploy_password"),
        (r#"{"power": {"user": "root", "pass": ""}}"#, "power.pass"),
    ] {
        let seen = api.json(http::Method::POST, "/api/v1/admin/maas-sites/dc1/credentials", body).await;
        seen.refuses(422, "LAT0010", field);
        assert_eq!(seen.body["field"], field);
    }
}
