//! A node's status: what is placed on it, and its health as this server heard it, or that it did not.

use std::time::Duration;

use http::Method;
use lattice_core::actor::Actor;
use lattice_core::allocation::{RequeuePolicy, Wanted, Workload};
use lattice_core::change::{Change, NodeAction, NodeChange};
use lattice_core::command::Request;
use lattice_core::command::allocation::{self, NewAllocation};
use lattice_core::heartbeat::Vitals;
use lattice_core::ids::{CorrelationId, OpId, SessionId};
use lattice_core::node::{Availability, Node, NodeClass, NodeState, Status};
use lattice_core::time::Clock;
use serde_json::{Value, json};

use super::fixture::Api;

/// An active node whose agent registered, perhaps with another server.
async fn registered(api: &Api) -> Node {
    let body = json!({"hostname": "lab01", "sku": "lxd.small"}).to_string();
    let made = api.json(Method::POST, "/api/v1/admin/nodes", &body).await;
    assert_eq!(made.status, 201, "{}", made.body);
    let node = api.store.node_by_hostname("lab01").await.unwrap().unwrap();
    let job = api.store.job(node.owning_job.unwrap()).await.unwrap().unwrap();
    let mut done = job.clone();
    (done.state.status, done.generation) = (lattice_core::job::JobStatus::Completed, job.generation.next());
    let after = Node {
        state: NodeState::new(Status::Active, Availability::Ready),
        owning_job: None,
        boot_id: Some("b-1".to_owned()),
        agent_version: Some("0.1.0".to_owned()),
        ..node.successor(api.clock.now())
    };
    let cause = "test".to_owned();
    let finished = lattice_core::change::JobChange {
        after: done,
        before: Some(job.state.status),
        cause: cause.clone(),
        stage_events: vec![],
        visible: true,
    };
    let moved = NodeChange {
        after: after.clone(),
        before: Some(node.state),
        action: NodeAction::Moved,
        cause,
        detail: String::new(),
    };
    api.commit(vec![Change::Job(Box::new(finished)), Change::Node(Box::new(moved))]).await;
    after
}

async fn place(api: &Api, node: &Node) {
    let now = api.clock.now();
    let request = || Request {
        actor: Actor::system("test"),
        reason: String::new(),
        now,
        ids: &*api.ids,
        op: OpId::generate(&*api.ids, now),
        correlation: CorrelationId::generate(&*api.ids, now),
    };
    let workload: Workload = serde_json::from_value(json!({"argv": ["/usr/bin/train"]})).unwrap();
    let new = NewAllocation {
        user: "ada".to_owned(),
        class: NodeClass::Standard,
        wanted: Wanted::default(),
        workload,
        requeue: RequeuePolicy::Never,
    };
    let (one, asked) = allocation::request(&request(), new).unwrap();
    api.store.commit_one(asked).await.unwrap();
    api.store.commit_one(allocation::place(&request(), &one, node, [1; 16]).unwrap()).await.unwrap();
}

async fn status(api: &Api) -> Value {
    let seen = api.get("/api/v1/admin/nodes/lab01").await;
    assert_eq!(seen.status, 200, "{}", seen.body);
    seen.body
}

#[tokio::test]
async fn health_is_what_this_server_heard_and_says_when_it_is_old_or_not_known_here() {
    let api = Api::new().await;
    let node = registered(&api).await;
    let handle = api.registry.admit(node.id, 1, api.clock.now());
    let unheard = status(&api).await;
    assert_eq!(unheard["health"]["said"], Value::Null, "{}", unheard["health"]);
    assert!(unheard["health"]["caveat"].as_str().unwrap().starts_with("not known here"), "{}", unheard["health"]);
    assert_eq!(unheard["heard_at"], Value::Null, "it was admitted, not heard");
    let vitals = Vitals { ecc_uncorrected: 3, allocations: 1, gpu_count: 7, max_temperature_c: 71, issue: 9 };
    let session = SessionId::generate(&*api.ids, api.clock.now());
    handle.open_session(session, vitals, api.clock.now()).unwrap();
    api.pass(Duration::from_secs(4));
    let fresh = status(&api).await;
    let said = &fresh["health"]["said"];
    assert_eq!((&said["gpus"], &said["max_temperature_c"], &said["age_ms"]), (&json!(7), &json!(71), &json!(4_000)));
    assert_eq!((&said["ecc_uncorrected"], &said["minor_issue"]), (&json!(3), &json!(true)));
    assert_eq!((&fresh["health"]["gpus_expected"], &fresh["health"]["caveat"]), (&json!(0), &Value::Null));
    assert_eq!(fresh["heard_at"], said["at"]);
    api.pass(Duration::from_secs(120));
    let old = status(&api).await;
    assert_eq!(old["health"]["caveat"], "2 min old: no heartbeat since", "{}", old["health"]);
    assert_eq!(old["health"]["said"]["gpus"], 7, "it is still told, with its age");
}

#[tokio::test]
async fn a_node_names_what_is_placed_on_it_and_a_list_does_not() {
    let api = Api::new().await;
    let node = registered(&api).await;
    assert_eq!(status(&api).await["allocations"], Value::Null);
    place(&api, &node).await;
    let seen = status(&api).await;
    let one = &seen["allocations"][0];
    assert_eq!(
        (&one["user"], &one["status"], &one["hostname"]),
        (&json!("ada"), &json!("provisioning"), &json!("lab01"))
    );
    let list = api.get("/api/v1/admin/nodes").await.body;
    let row = list["items"][0].as_object().unwrap();
    assert!(!row.contains_key("allocations") && !row.contains_key("health"), "{row:?}");
}
