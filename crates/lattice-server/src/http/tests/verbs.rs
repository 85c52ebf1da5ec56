//! Verbs of nodes over HTTP: what they do once, what they refuse, and what is told of them.

use http::Method;
use lattice_core::actor::Role;
use lattice_core::change::{Change, JobChange, NodeAction, NodeChange};
use lattice_core::job::JobStatus;
use lattice_core::node::{Availability, Node, NodeState, Status};
use lattice_core::time::Clock;
use serde_json::{Value, json};

use super::fixture::{Api, Seen, as_role, request};

pub const NODE: &str = "/api/v1/admin/nodes/c07u43";

/// A manual node that was brought in, and stands so.
pub async fn with_node(status: Status, availability: Availability) -> Api {
    let api = Api::new().await;
    let body = json!({"hostname": "c07u43", "sku": "lxd.small"}).to_string();
    assert_eq!(api.json(Method::POST, "/api/v1/admin/nodes", &body).await.status, 201);
    let node = api.store.node_by_hostname("c07u43").await.unwrap().unwrap();
    let mut job = api.store.job(node.owning_job.unwrap()).await.unwrap().unwrap();
    let before = Some(job.state.status);
    (job.state.status, job.generation) = (JobStatus::Completed, job.generation.next());
    let cause = "completed".to_owned();
    let done = JobChange { after: job, before, cause: cause.clone(), stage_events: vec![], visible: true };
    let before = Some(node.state);
    let state = NodeState::new(status, availability);
    let after = Node { state, owning_job: None, ..node.successor(api.clock.now()) };
    let moved = NodeChange { after, before, action: NodeAction::Moved, cause, detail: String::new() };
    api.commit(vec![Change::Job(Box::new(done)), Change::Node(Box::new(moved))]).await;
    api
}

async fn ask(api: &Api, verb: &str, body: &Value) -> Seen {
    api.json(Method::POST, &format!("{NODE}/{verb}"), &body.to_string()).await
}

/// The reasons that the audit keeps of an action.
async fn audited(api: &Api, action: &str) -> Vec<String> {
    let audit = api.get("/api/v1/admin/audit?limit=1000").await.body;
    let rows = audit["items"].as_array().unwrap().iter().filter(|row| row["action"] == action);
    rows.map(|row| row["reason"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn a_failed_boot_is_reset_with_a_reason_and_nothing_else_is() {
    let api = with_node(Status::Offline, Availability::Failed).await;
    let verbs = api.get(NODE).await.body["verbs"].clone();
    assert!(verbs.as_array().unwrap().contains(&json!("reset")), "{verbs}");
    let viewer = as_role(request(Method::POST, &format!("{NODE}/reset")), Role::ProjectViewer, "{}");
    assert_eq!(api.send(viewer).await.status, 403);
    let dry = ask(&api, "reset", &json!({"dry_run": true})).await;
    assert_eq!((&dry.body["changed"], &dry.body["after"]["availability"]), (&json!(false), &json!("unknown")));
    let reset = ask(&api, "reset", &json!({"reason": "riser reseated"})).await;
    assert_eq!((reset.status.as_u16(), &reset.body["changed"]), (200, &json!(true)), "{}", reset.body);
    assert_eq!(reset.body["after"], json!({"status": "offline", "availability": "unknown"}));
    assert!(audited(&api, "node.moved").await.contains(&"riser reseated".to_owned()));
    let verbs = api.get(NODE).await.body["verbs"].clone();
    assert!(!verbs.as_array().unwrap().contains(&json!("reset")), "{verbs}");
    let again = ask(&api, "reset", &json!({})).await;
    again.refuses(409, "LAT0020", "it has not failed");
    api.events_are_as_described().await;
}

#[tokio::test]
async fn a_drain_that_runs_is_changed_as_it_is_told_and_a_plain_one_is_refused() {
    let api = with_node(Status::Active, Availability::Ready).await;
    let drained = ask(&api, "drain", &json!({"reason": "fan"})).await;
    assert_eq!(drained.status, 200, "{}", drained.body);
    let job = drained.body["job_id"].clone();
    let input =
        || async { api.get(&format!("/api/v1/admin/jobs/{}", job.as_str().unwrap())).await.body["input"].clone() };
    ask(&api, "drain", &json!({})).await.refuses(409, "LAT0022", "it is drained already");

    let dry = ask(&api, "drain", &json!({"urgent": true, "dry_run": true})).await;
    assert_eq!((&dry.body["changed"], &dry.body["before"]), (&json!(false), &dry.body["after"]), "{}", dry.body);
    assert_eq!(dry.body["effects"][0], "the drain is urgent from now on");
    assert_eq!(input().await["urgent"], false, "nothing changed");

    let urgent = ask(&api, "drain", &json!({"urgent": true, "reason": "no time"})).await;
    assert_eq!((&urgent.body["changed"], &urgent.body["job_id"]), (&json!(true), &job), "{}", urgent.body);
    assert_eq!(input().await["urgent"], true);
    let again = ask(&api, "drain", &json!({"urgent": true})).await;
    assert_eq!((&again.body["changed"], &again.body["job_id"]), (&json!(false), &job), "{}", again.body);

    let deadline = ask(&api, "drain", &json!({"deadline_ms": 1_800_000, "reason": "by noon"})).await;
    assert_eq!(deadline.body["effects"], json!(["what still runs in 30 min is stopped"]), "{}", deadline.body);
    assert_eq!(input().await, json!({"flow": "drain", "urgent": true, "deadline_ms": 1_800_000, "allocations": 0}));
    let none = ask(&api, "drain", &json!({"no_deadline": true, "reason": "no hurry"})).await;
    assert_eq!(none.body["changed"], true, "{}", none.body);
    assert_eq!(input().await, json!({"flow": "drain", "urgent": true, "allocations": 0}), "urgency stays");

    ask(&api, "drain", &json!({"deadline_ms": 5})).await.refuses(422, "LAT0010", "too short");
    ask(&api, "drain", &json!({"deadline_ms": 5000, "no_deadline": true})).await.refuses(400, "LAT0001", "which?");
    ask(&api, "undrain", &json!({"no_deadline": true})).await.refuses(400, "LAT0001", "not for this verb");
    let viewer = as_role(request(Method::POST, &format!("{NODE}/drain")), Role::ProjectViewer, r#"{"urgent": true}"#);
    assert_eq!(api.send(viewer).await.status, 403);
    let mut told = audited(&api, "node.drain_changed").await;
    told.sort();
    assert_eq!(told, ["by noon", "no hurry", "no time"], "each change, with its reason, and nothing else");
    assert_eq!(audited(&api, "job.drain_changed").await.len(), 3);
    api.events_are_as_described().await;
}
