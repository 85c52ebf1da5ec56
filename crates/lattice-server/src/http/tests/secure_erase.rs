//! What a node's BMC is told for operators, as it is asked for by HTTP: to erase drives, what to boot from.

use http::Method;
use lattice_core::bmc::BootDevice;
use lattice_core::change::{Change, NodeAction, NodeChange};
use lattice_core::job::JobInput;
use lattice_core::node::{Availability, DownCause, Node, NodeState, Status};
use lattice_core::time::Clock;
use serde_json::{Value, json};

use super::fixture::{Api, Seen};

/// A node of a site by hand that is down.
async fn api() -> Api {
    let api = Api::new().await;
    let body = json!({"hostname": "n1", "sku": "lxd.small"});
    assert_eq!(api.json(Method::POST, "/api/v1/admin/nodes", &body.to_string()).await.status, 201);
    let node = api.store.node_by_hostname("n1").await.unwrap().unwrap();
    let job = api.store.job(node.owning_job.unwrap()).await.unwrap().unwrap();
    let mut over = job.clone();
    over.state.status = lattice_core::job::JobStatus::Completed;
    over.generation = job.generation.next();
    let cause = "completed".to_owned();
    let before = Some(job.state.status);
    let done = lattice_core::change::JobChange {
        after: over,
        before,
        cause: cause.clone(),
        stage_events: Vec::new(),
        visible: true,
    };
    let after = Node {
        state: NodeState::new(Status::Offline, Availability::Down),
        down_cause: Some(DownCause::HeartbeatLost),
        owning_job: None,
        ..node.successor(api.clock.now())
    };
    let moved = NodeChange { after, before: Some(node.state), action: NodeAction::Moved, cause, detail: String::new() };
    api.commit(vec![Change::Job(Box::new(done)), Change::Node(Box::new(moved))]).await;
    api
}

async fn ask(api: &Api, body: &Value) -> Seen {
    api.json(Method::POST, "/api/v1/admin/nodes/n1/secure-erase", &body.to_string()).await
}

async fn set_bmc(api: &Api) {
    let bmc =
        json!({"address": "10.0.0.7", "protocol": "redfish", "tls": {"trust": "pinned", "sha256": "ab".repeat(32)},
        "login": {"user": "root", "pass": "hunter22-bmc"}})
        .to_string();
    assert_eq!(api.json(Method::PATCH, "/api/v1/admin/nodes/n1/bmc", &bmc).await.status, 200);
}

async fn verbs(api: &Api) -> Vec<Value> {
    api.get("/api/v1/admin/nodes/n1").await.body["verbs"].as_array().unwrap().clone()
}

#[tokio::test]
async fn drives_are_erased_by_name_where_a_bmc_can_be_asked_and_not_else() {
    let api = api().await;
    let all = json!({"drives": ["all"]});
    assert!(!verbs(&api).await.contains(&json!("secure-erase")));
    let refused = ask(&api, &all).await;
    refused.refuses(409, "LAT0020", "no BMC");
    let next = refused.body["next_actions"][0]["command"].as_str().unwrap_or_default().to_owned();
    assert!(next.starts_with("lattice node bmc set n1"), "{}", refused.body);
    set_bmc(&api).await;
    assert!(verbs(&api).await.contains(&json!("secure-erase")));
    for body in [json!({}), json!({"drives": []}), json!({"drives": ["all", "/a"]}), json!({"drives": ["/a", "/a"]})] {
        let seen = ask(&api, &body).await;
        seen.refuses(422, "LAT0010", &body.to_string());
        assert_eq!(seen.body["field"], "drives", "{}", seen.body);
    }
    let other = api.json(Method::POST, "/api/v1/admin/nodes/n1/reboot", &all.to_string()).await;
    assert_eq!((other.status.as_u16(), &other.body["field"]), (400, &json!("drives")), "{}", other.body);
    let dry = ask(&api, &json!({"drives": ["all"], "dry_run": true})).await;
    assert_eq!((dry.status.as_u16(), &dry.body["changed"]), (200, &json!(false)), "{}", dry.body);
    let seen = ask(&api, &json!({"drives": ["/redfish/v1/Drives/1"], "powered_on": true, "reason": "it leaves"})).await;
    assert_eq!(seen.status, 200, "{}", seen.body);
    let id = seen.body["job_id"].as_str().unwrap().parse().unwrap();
    assert_eq!(api.woken.lock().unwrap().last(), Some(&id));
    let JobInput::SecureErase { drives, powered_on } = api.store.job(id).await.unwrap().unwrap().input else {
        panic!("{id}")
    };
    assert_eq!((drives, powered_on), (vec!["/redfish/v1/Drives/1".to_owned()], true));
    assert_eq!(api.get("/api/v1/admin/nodes/n1").await.body["holds"], json!(["maintenance"]));
    ask(&api, &all).await.refuses(409, "LAT0022", "a job owns it");
    assert!(!verbs(&api).await.contains(&json!("secure-erase")));
    api.events_are_as_described().await;
}

#[tokio::test]
async fn a_reboot_names_what_to_start_from_where_a_bmc_can_be_told_and_not_else() {
    let api = api().await;
    let reboot = "/api/v1/admin/nodes/n1/reboot";
    let refused = api.json(Method::POST, reboot, r#"{"boot": "pxe"}"#).await;
    refused.refuses(409, "LAT0020", "no BMC");
    api.json(Method::POST, reboot, r#"{"boot": "floppy"}"#).await.refuses(400, "LAT0001", "no such device");
    let other = api.json(Method::POST, "/api/v1/admin/nodes/n1/reset", r#"{"boot": "pxe"}"#).await;
    other.refuses(400, "LAT0001", "only for a reboot");
    assert_eq!(other.body["field"], "boot");
    set_bmc(&api).await;
    let begun = api.json(Method::POST, reboot, r#"{"boot": "pxe", "reason": "a rescue image"}"#).await;
    assert_eq!(begun.status, 200, "{}", begun.body);
    let node = api.store.node_by_hostname("n1").await.unwrap().unwrap();
    let job = api.store.job(node.owning_job.unwrap()).await.unwrap().unwrap();
    assert_eq!(job.input, JobInput::Reboot { boot: Some(BootDevice::Pxe) });
    api.events_are_as_described().await;
}
