//! Notices of State Managers: who is heard, how much, and that nothing of the address is told.

use http::{Method, StatusCode};
use lattice_core::secret::Secret;
use lattice_providers::secret::{SecretObject, SecretStore};
use serde_json::json;

use super::fixture::{Api, Seen, request};

const KEY: &str = "key-that-nobody-guesses";

async fn api() -> (Api, String) {
    let api = Api::new().await;
    let boot = json!({ "kernel": "http://i/k", "initrd": "http://i/i" });
    let body = json!({ "name": "hpc", "region_code": "eu", "provider": {
        "kind": "openchami", "smd_url": "http://10.0.0.1:27779", "bss_url": "http://10.0.0.1:27778", "needs_token": false,
        "notices_url": "https://lattice.hpc:7440", "boot_profiles": { "default": boot } } });
    let made = api.json(Method::POST, "/api/v1/admin/sites", &body.to_string()).await;
    assert_eq!(made.status, StatusCode::CREATED, "{}", made.body);
    let site = made.body["id"].as_str().unwrap().to_owned();
    let object = SecretObject::from([("key".to_owned(), Secret::new(KEY.to_owned()))]);
    api.secrets.write(&format!("kv/openchami-sites/{site}/notices").parse().unwrap(), object).await.unwrap();
    (api, site)
}

async fn tell(api: &Api, site: &str, key: &str, body: &str) -> Seen {
    let path = format!("/api/v1/notices/openchami/{site}/{key}");
    api.send(request(Method::POST, &path).body(body.to_owned().into()).unwrap()).await
}

#[tokio::test]
async fn only_the_secret_address_of_a_site_is_heard_and_nothing_of_it_is_told() {
    let (api, site) = api().await;
    let notice = r#"{"Components":["x1000c0s1b0n0"],"State":"Off","Flag":"OK"}"#;
    let other = api.get("/api/v1/admin/sites/local").await.body["id"].as_str().unwrap().to_owned();
    for (site, key) in [(site.as_str(), "guessed"), (&other, KEY), ("no-site", KEY)] {
        let seen = tell(&api, site, key, notice).await;
        seen.refuses(404, "LAT0004", site);
        let text = String::from_utf8(seen.bytes.to_vec()).unwrap();
        assert!(!text.contains(site) && !text.contains(key), "{text}");
    }
    for body in [notice, notice, "", "no JSON at all"] {
        assert_eq!(tell(&api, &site, KEY, body).await.status, StatusCode::NO_CONTENT, "{body}");
    }
    let large = "x".repeat(65 * 1_024);
    tell(&api, &site, KEY, &large).await.refuses(413, "LAT0007", "too large");
    let metrics = String::from_utf8(api.get("/metrics").await.bytes.to_vec()).unwrap();
    assert!(metrics.contains(r#"lattice_component_notices_total{result="taken"} 4"#), "{metrics}");
    assert!(!metrics.contains(KEY), "{metrics}");
}

#[tokio::test]
async fn who_floods_is_sent_away_for_later() {
    let (api, site) = api().await;
    for _ in 0..100 {
        tell(&api, &site, "guessed", "").await;
    }
    let seen = tell(&api, &site, KEY, "").await;
    assert_eq!(seen.status, StatusCode::TOO_MANY_REQUESTS);
    assert!(seen.headers.contains_key("retry-after"));
    api.pass(std::time::Duration::from_secs(1));
    assert_eq!(tell(&api, &site, KEY, "").await.status, StatusCode::NO_CONTENT);
}
