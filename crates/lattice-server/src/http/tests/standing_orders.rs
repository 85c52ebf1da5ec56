//! What operators tell a site and its nodes besides settings: labels, the brake, fingerprints, automation.

use http::Method;
use lattice_core::actor::Role;
use serde_json::json;

use super::fixture::{Api, as_role, request};

const NODES: &str = "/api/v1/admin/nodes";
const LOCAL: &str = "/api/v1/admin/sites/local";

async fn with_node() -> Api {
    let api = Api::new().await;
    let node = json!({"hostname": "c07u43", "sku": "lxd.small"}).to_string();
    assert_eq!(api.json(Method::POST, NODES, &node).await.status, 201);
    api
}

#[tokio::test]
async fn labels_are_set_listed_by_and_taken_away() {
    let api = with_node().await;
    let path = format!("{NODES}/c07u43/labels");
    let set = api.json(Method::POST, &path, r#"{"set": {"rack": "c07", "row": "4"}, "reason": "moved in"}"#).await;
    assert_eq!((set.status.as_u16(), &set.body["labels"]["rack"]), (200, &json!("c07")), "{}", set.body);
    let again = api.json(Method::POST, &path, r#"{"set": {"rack": "c07"}}"#).await;
    assert_eq!(again.body["generation"], set.body["generation"], "nothing changed");
    let found = |query: &'static str| {
        let api = &api;
        async move { api.get(&format!("{NODES}?label={query}")).await.body["items"].as_array().unwrap().len() }
    };
    assert_eq!((found("rack=c07,row=4").await, found("rack=c08").await, found("rack=C07").await), (1, 0, 0));
    let removed = api.json(Method::POST, &path, r#"{"remove": ["row"]}"#).await;
    assert_eq!(removed.body["labels"], json!({"rack": "c07"}));
    api.json(Method::POST, &path, r#"{"set": {"ra ck": "x"}}"#).await.refuses(422, "LAT0010", "no such name");
    api.get(&format!("{NODES}?label=rack")).await.refuses(400, "LAT0001", "no pair");
    api.events_are_as_described().await;
}

#[tokio::test]
async fn a_brake_is_pulled_for_a_while_shown_and_let_go() {
    let api = Api::new().await;
    let path = format!("{LOCAL}/brake");
    let body = r#"{"for_ms": 600000, "selector": {"rack": "c07"}, "reason": "switch replaced"}"#;
    let pulled = api.json(Method::POST, &path, body).await;
    assert_eq!(pulled.body["brake"]["selector"], json!({"rack": "c07"}), "{}", pulled.body);
    assert_eq!(pulled.body["brake"]["reason"], "switch replaced");
    let let_go = api.json(Method::DELETE, &path, "").await;
    assert_eq!((let_go.status.as_u16(), let_go.body.get("brake")), (200, None), "{}", let_go.body);
    api.json(Method::POST, &path, body).await;
    api.pass(std::time::Duration::from_secs(601));
    assert_eq!(api.get(LOCAL).await.body.get("brake"), None, "it ended by itself");
    for wrong in [r#"{"for_ms": 0}"#, r#"{"for_ms": 86400001}"#, r#"{"for_ms": 1000, "selector": {"": "x"}}"#] {
        api.json(Method::POST, &path, wrong).await.refuses(422, "LAT0010", wrong);
    }
    api.json(Method::POST, &path, "{}").await.refuses(400, "LAT0001", "for how long?");
    let viewer = api.send(as_role(request(Method::POST, &path), Role::ProjectViewer, body)).await;
    assert_eq!(viewer.status, 403);
    api.events_are_as_described().await;
}

#[tokio::test]
async fn fingerprints_are_approved_once_listed_and_withdrawn() {
    let api = with_node().await;
    let (approve, withdraw) = (format!("{LOCAL}/conformance/approve"), format!("{LOCAL}/conformance/withdraw"));
    let one = r#"{"sku": "lxd.small", "fingerprint": "sha256:abc", "reason": "golden image"}"#;
    let approved = api.json(Method::POST, &approve, one).await;
    assert_eq!(approved.body["fingerprints"][0]["approved"]["reason"], "golden image", "{}", approved.body);
    let generation = api.get(LOCAL).await.body["generation"].clone();
    assert_eq!(api.json(Method::POST, &approve, one).await.status, 200);
    assert_eq!(api.get(LOCAL).await.body["generation"], generation, "once is enough");
    let unreported = api.json(Method::POST, &approve, r#"{"node": "c07u43"}"#).await;
    unreported.refuses(422, "LAT0010", "it reported none yet");
    api.json(Method::POST, &approve, r#"{"sku": "lxd.small"}"#).await.refuses(400, "LAT0001", "which one?");
    let unknown = api.json(Method::POST, &approve, r#"{"sku": "h200", "fingerprint": "x"}"#).await;
    unknown.refuses(422, "LAT0010", "no such SKU");
    let none = api.json(Method::POST, &withdraw, one).await;
    assert_eq!(none.body["fingerprints"], json!([]), "{}", none.body);
    api.json(Method::POST, &withdraw, one).await.refuses(422, "LAT0010", "it is not approved");
    api.events_are_as_described().await;
}

#[tokio::test]
async fn automation_is_off_shows_its_limit_and_refuses_what_cannot_work() {
    let api = Api::new().await;
    let site = api.get(LOCAL).await.body;
    assert_eq!(site["automation"]["auto_remediate"], false);
    assert_eq!(site["governor"], json!({"in_service": 0, "taken": 0, "limit": 1}));
    let on = r#"{"automation": {"auto_remediate": true, "max_unavailable_percent": 5}}"#;
    let patched = api.json(Method::PATCH, LOCAL, on).await;
    assert_eq!(patched.body["automation"]["remediate_after_ms"], 120_000, "{}", patched.body);
    for (wrong, field) in [
        (r#"{"automation": {"max_unavailable_percent": 101}}"#, "automation.max_unavailable_percent"),
        (r#"{"automation": {"remediate_after_ms": 5}}"#, "automation.remediate_after_ms"),
    ] {
        let refused = api.json(Method::PATCH, LOCAL, wrong).await;
        refused.refuses(422, "LAT0010", wrong);
        assert_eq!(refused.body["field"], field, "{}", refused.body);
    }
}

#[tokio::test]
async fn a_deadline_is_only_for_a_drain_and_must_make_sense() {
    let api = with_node().await;
    let verb = |verb: &str| format!("{NODES}/c07u43/{verb}");
    let refused = api.json(Method::POST, &verb("disable"), r#"{"deadline_ms": 1000}"#).await;
    refused.refuses(400, "LAT0001", "not for this verb");
    assert_eq!(refused.body["field"], "deadline_ms");
    let refused = api.json(Method::POST, &verb("drain"), r#"{"deadline_ms": 5}"#).await;
    refused.refuses(422, "LAT0010", "too short");
    assert_eq!(refused.body["field"], "deadline_ms");
}
