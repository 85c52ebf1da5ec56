//! Allocations over the API: asked for once, listed, explained, released; wrong ones are refused by their field.

use http::Method;
use lattice_core::actor::Role;
use serde_json::{Value, json};

use super::fixture::{Api, as_role, request};

const PATH: &str = "/api/v1/admin/allocations";

fn wanted() -> Value {
    json!({"user": "ada", "sku": "lxd.small", "workload": {"argv": ["/usr/bin/sleep", "60"]}})
}

#[tokio::test]
async fn an_allocation_is_asked_for_once_waits_says_why_and_is_released() {
    let api = Api::new().await;
    let keyed = || {
        let builder = request(Method::POST, PATH).header("idempotency-key", "train-1");
        as_role(builder, Role::PlatformAdmin, &wanted().to_string())
    };
    let accepted = api.send(keyed()).await;
    assert_eq!(accepted.status, 202, "{}", accepted.body);
    assert_eq!(accepted.body["status"], "requested");
    assert_eq!(accepted.body["requeue"], "on_node_failure");
    assert_eq!(api.send(keyed()).await.body["id"], accepted.body["id"], "a repeat is the same allocation");
    let id = accepted.body["id"].as_str().unwrap().to_owned();
    let live = api.get(&format!("{PATH}?status=live&user=ada")).await;
    assert_eq!(live.body["items"].as_array().unwrap().len(), 1);
    let why = api.get(&format!("{PATH}/{id}/explain")).await;
    assert_eq!((why.status.as_u16(), why.body["ok"].as_bool()), (200, Some(false)), "{}", why.body);
    assert!(why.body["summary"].as_str().unwrap().starts_with("waits for a node"), "{}", why.body);
    let none = "a node that fits, and there is none of SKU lxd.small";
    assert_eq!(accepted.body["why"], none, "it is told at once");
    assert_eq!(why.body["because"][0]["fact"], none);
    let release = format!("{PATH}/{id}/release");
    let released = api.json(Method::POST, &release, r#"{"reason": "not needed"}"#).await;
    assert_eq!(released.body["allocation"]["status"], "released", "{}", released.body);
    let again = api.json(Method::POST, &release, "{}").await;
    again.refuses(409, "LAT0075", "what is over stays over");
    let requeue = api.json(Method::POST, &format!("{PATH}/{id}/requeue"), "{}").await;
    requeue.refuses(409, "LAT0075", "only what failed is queued again");
    api.events_are_as_described().await;
}

#[tokio::test]
async fn what_cannot_be_right_is_refused_by_its_field_and_nothing_is_created() {
    let api = Api::new().await;
    let with = |key: &str, value: Value| {
        let mut body = wanted();
        body[key] = value;
        body.to_string()
    };
    let cases = [
        (with("sku", json!("h200")), 422),
        (with("gpus", json!(64)), 400),
        (with("node", json!("nobody")), 404),
        (with("user", json!("")), 422),
        (with("workload", json!({"argv": []})), 422),
        (with("workload", json!({"argv": ["sleep"]})), 422),
        (with("workload", json!({"argv": ["/bin/true"], "env": {"LD_PRELOAD": "/tmp/x"}})), 422),
        (with("colour", json!("red")), 400),
    ];
    for (body, status) in cases {
        let refused = api.json(Method::POST, PATH, &body).await;
        assert_eq!(refused.status, status, "{body}: {}", refused.body);
        assert!(!refused.body["next_actions"].as_array().unwrap().is_empty(), "{body}: {}", refused.body);
    }
    let viewer = api.send(as_role(request(Method::POST, PATH), Role::ProjectViewer, &wanted().to_string())).await;
    assert_eq!(viewer.status, 403);
    assert!(api.get(PATH).await.body["items"].as_array().unwrap().is_empty());
    assert_eq!(api.get(&format!("{PATH}/01890000-0000-7000-8000-000000000000")).await.status, 404);
}
