//! A node's BMC over the API: what is refused, that no login comes out, what a look and a reset answer.

use http::{Method, StatusCode};
use lattice_core::actor::Role;
use serde_json::{Value, json};

use super::fixture::{Api, Seen, as_role, request};

const BMC: &str = "/api/v1/admin/nodes/n1/bmc";

async fn api() -> Api {
    let api = Api::new().await;
    let body = json!({"hostname": "n1", "sku": "lxd.small"});
    let made = api.json(Method::POST, "/api/v1/admin/nodes", &body.to_string()).await;
    assert_eq!(made.status, StatusCode::CREATED, "{}", made.body);
    api
}

async fn set(api: &Api, body: &Value) -> Seen {
    api.json(Method::PATCH, BMC, &body.to_string()).await
}

fn ipmi() -> Value {
    json!({"address": "10.0.0.7", "protocol": "ipmi", "cipher": 3, "login": {"user": "root", "pass": "hunter22-bmc"}})
}

#[tokio::test]
async fn a_bmc_is_set_and_shown_and_its_login_is_nowhere_but_in_the_secret_store() {
    let api = api().await;
    api.get(BMC).await.refuses(404, "LAT0004", "none yet");
    let seen = set(&api, &ipmi()).await;
    assert_eq!(seen.status, StatusCode::OK, "{}", seen.body);
    let body = &seen.body;
    assert_eq!(
        (body["address"].as_str(), body["port"].as_u64(), body["cipher"].as_u64()),
        (Some("10.0.0.7"), Some(623), Some(3))
    );
    let path = body["credential_path"].as_str().unwrap();
    assert_eq!(api.secret(path), Some(vec!["pass".to_owned(), "user".to_owned()]));
    for path in [BMC, "/api/v1/admin/nodes/n1", "/api/v1/admin/audit?limit=1000", "/api/v1/admin/events?limit=1000"] {
        let text = String::from_utf8(api.get(path).await.bytes.to_vec()).unwrap();
        assert!(!text.contains("hunter22"), "{path}: {text}");
    }
    assert_eq!(api.get("/api/v1/admin/nodes/n1").await.body["bmc_address"], "10.0.0.7");
    let without_login = json!({"address": "10.0.0.8", "protocol": "ipmi"});
    let again = set(&api, &without_login).await;
    assert_eq!(
        (again.status, again.body["cipher"].as_u64()),
        (StatusCode::OK, Some(17)),
        "the login stays: {}",
        again.body
    );
}

#[tokio::test]
async fn what_cannot_be_called_is_refused_by_its_field() {
    let api = api().await;
    let with = |changes: Value| {
        let mut body = ipmi();
        for (key, value) in changes.as_object().unwrap() {
            body[key] = value.clone();
        }
        body
    };
    let redfish = |changes: Value| {
        let mut body = with(changes);
        body["protocol"] = json!("redfish");
        body.as_object_mut().unwrap().remove("cipher");
        body
    };
    for (body, status, code, field) in [
        (with(json!({"address": "bmc.example"})), 400, "LAT0001", "address"),
        (with(json!({"address": "169.254.169.254"})), 422, "LAT0010", "address"),
        (with(json!({"address": "127.0.0.1"})), 422, "LAT0010", "address"),
        (with(json!({"address": "8.8.8.8"})), 422, "LAT0010", "address"),
        (with(json!({"cipher": 0})), 422, "LAT0010", "cipher"),
        (with(json!({"port": 0})), 422, "LAT0010", "port"),
        (with(json!({"system": "1"})), 422, "LAT0010", "system"),
        (with(json!({"login": {"user": "", "pass": "x"}})), 422, "LAT0010", "login.user"),
        (redfish(json!({})), 422, "LAT0010", "tls"),
        (redfish(json!({"tls": {"trust": "plain"}})), 422, "LAT0010", "tls"),
        (redfish(json!({"tls": {"trust": "pinned", "sha256": "xyz"}})), 422, "LAT0010", "tls"),
        (
            redfish(json!({"tls": {"trust": "pinned", "sha256": "ab".repeat(32)}, "system": "a/../b"})),
            422,
            "LAT0010",
            "system",
        ),
        (json!({"address": "10.0.0.7", "protocol": "ipmi"}), 422, "LAT0010", "login"),
    ] {
        let seen = set(&api, &body).await;
        seen.refuses(status, code, &body.to_string());
        assert_eq!(seen.body["field"], field, "{body}");
    }
    api.get(BMC).await.refuses(404, "LAT0004", "nothing half set");
}

#[tokio::test]
async fn a_site_says_which_networks_bmcs_may_be_in() {
    let api = api().await;
    let patch = |bmc: Value| json!({"bmc": bmc}).to_string();
    for (bmc, field) in [
        (json!({"health_interval_ms": 5}), "bmc.health_interval_ms"),
        (json!({"health_parallel": 0}), "bmc.health_parallel"),
        (json!({"authority_pem": "x"}), "bmc.authority_pem"),
    ] {
        let seen = api.json(Method::PATCH, "/api/v1/admin/sites/local", &patch(bmc)).await;
        seen.refuses(422, "LAT0010", field);
        assert_eq!(seen.body["field"], field);
    }
    let allow = patch(json!({"networks": ["127.0.0.0/8"]}));
    assert_eq!(api.json(Method::PATCH, "/api/v1/admin/sites/local", &allow).await.status, StatusCode::OK);
    set(&api, &ipmi()).await.refuses(422, "LAT0010", "10.0.0.7 is outside now");
    let mut plain = json!({"address": "127.0.0.1", "protocol": "redfish", "port": 9, "tls": {"trust": "plain"}});
    plain["login"] = json!({"user": "root", "pass": "hunter22-bmc"});
    assert_eq!(set(&api, &plain).await.status, StatusCode::OK);
    let check = api.json(Method::POST, "/api/v1/admin/nodes/n1/bmc/check", "").await;
    assert_eq!((check.status, check.body["ok"].as_bool()), (StatusCode::OK, Some(false)), "{}", check.body);
    assert!(check.body["failure"].as_str().unwrap().contains("cannot be reached"), "{}", check.body);
    let reset = api.json(Method::POST, "/api/v1/admin/nodes/n1/bmc/reset-breaker", r#"{"reason":"fixed"}"#).await;
    assert_eq!(
        (reset.status, reset.body["breaker"]["state"].as_str()),
        (StatusCode::OK, Some("closed")),
        "{}",
        reset.body
    );
}

#[tokio::test]
async fn only_a_platform_administrator_sets_looks_and_resets() {
    let api = api().await;
    for (method, path) in [
        (Method::PATCH, BMC),
        (Method::POST, "/api/v1/admin/nodes/n1/bmc/check"),
        (Method::POST, "/api/v1/admin/nodes/n1/bmc/reset-breaker"),
    ] {
        let seen = api.send(as_role(request(method, path), Role::ProjectAdmin, &ipmi().to_string())).await;
        seen.refuses(403, "LAT0003", path);
    }
}
