//! A reimage through MAAS as it is asked for by HTTP.

use std::time::Duration;

use http::Method;
use lattice_core::change::{Change, JobChange, NodeAction, NodeChange};
use lattice_core::heartbeat::{Beat, Vitals};
use lattice_core::ids::{JobId, SessionId};
use lattice_core::job::{JobInput, JobStatus};
use lattice_core::node::{Availability, Node, NodeState, Status};
use lattice_core::time::Clock;
use serde_json::{Value, json};

use super::fixture::{Api, Seen};

/// A MAAS site with a node that is active and drained.
pub(super) async fn api() -> Api {
    let api = Api::new().await;
    let body = json!({"name": "dc1", "region_code": "eu1", "provider": {"kind": "maas",
        "api_base_url": "http://10.0.0.1:5240/MAAS", "pxe_iface": "ens19", "pxe_vlan_vid": 46,
        "node_pxe_iface": "eno8303"}});
    assert_eq!(api.json(Method::POST, "/api/v1/admin/sites", &body.to_string()).await.status, 201);
    let body = json!({"site_id": "dc1", "sku_id": "lxd.small", "hostname": "c07u43", "ipmi_ip": "10.176.16.128"});
    let seen = api.json(Method::POST, "/api/v1/admin/onboardings", &body.to_string()).await;
    let id: JobId = seen.body["onboarding_id"].as_str().unwrap().parse().unwrap();
    let mut job = api.store.job(id).await.unwrap().unwrap();
    let node = api.store.node(job.node).await.unwrap().unwrap();
    let before = job.state.status;
    (job.state.status, job.generation) = (JobStatus::Completed, job.generation.next());
    let cause = "completed".to_owned();
    let done =
        JobChange { after: job, before: Some(before), cause: cause.clone(), stage_events: vec![], visible: true };
    let state = NodeState::new(Status::Active, Availability::Drained);
    let after = Node { state, owning_job: None, ..node.successor(api.clock.now()) };
    let moved = NodeChange { after, before: Some(node.state), action: NodeAction::Moved, cause, detail: String::new() };
    api.commit(vec![Change::Job(Box::new(done)), Change::Node(Box::new(moved))]).await;
    api
}

async fn ask(api: &Api, body: &Value) -> Seen {
    api.json(Method::POST, "/api/v1/admin/nodes/c07u43/reimage", &body.to_string()).await
}

#[tokio::test]
async fn a_node_is_reimaged_with_the_profile_that_is_named_and_what_there_is_not_is_refused_by_its_field() {
    let api = api().await;
    let profile = json!({"name": "strict", "settings": {"distro_series": "custom/gpuaas"}});
    let made = api.json(Method::POST, "/api/v1/admin/sites/dc1/profiles", &profile.to_string()).await;
    assert_eq!(made.status, 201, "{}", made.body);
    let unknown = ask(&api, &json!({"image": "windows"})).await;
    assert_eq!((unknown.status.as_u16(), unknown.body["field"].as_str()), (422, Some("image")), "{}", unknown.body);
    let verbs = api.get("/api/v1/admin/nodes/c07u43").await.body["verbs"].clone();
    assert!(verbs.as_array().unwrap().contains(&json!("reimage")), "{verbs}");
    let dry = ask(&api, &json!({"image": "strict", "dry_run": true})).await;
    assert_eq!((dry.status.as_u16(), &dry.body["changed"]), (200, &json!(false)), "{}", dry.body);
    let seen = ask(&api, &json!({"image": "strict"})).await;
    assert_eq!(seen.status, 200, "{}", seen.body);
    let id: JobId = seen.body["job_id"].as_str().unwrap().parse().unwrap();
    assert_eq!(api.woken.lock().unwrap().last(), Some(&id));
    let JobInput::ReimageMaas { settings } = api.store.job(id).await.unwrap().unwrap().input else { panic!("{id}") };
    assert_eq!(settings.distro_series, "custom/gpuaas");
    let node = api.get("/api/v1/admin/nodes/c07u43").await.body;
    assert_eq!((&node["availability"], &node["holds"]), (&json!("drained"), &json!(["maintenance"])));
    ask(&api, &json!({})).await.refuses(409, "LAT0022", "a job owns it");
    api.events_are_as_described().await;
}

#[tokio::test]
async fn work_that_was_counted_before_this_server_stood_still_may_still_run() {
    let api = api().await;
    let node = api.store.node_by_hostname("c07u43").await.unwrap().unwrap();
    let handle = api.registry.admit(node.id, 1, api.clock.now());
    let session = SessionId::generate(&*api.ids, api.clock.now());
    handle.open_session(session, Vitals { allocations: 1, ..Vitals::default() }, api.clock.now()).unwrap();
    assert_eq!(api.registry.listens(api.clock.now()), None);
    api.pass(Duration::from_secs(60));
    assert_eq!(api.registry.listens(api.clock.now()), Some(60_000), "it stood still");
    ask(&api, &json!({})).await.refuses(409, "LAT0020", "its 1 allocations end");
    let beat = Beat { session, sequence: 1, vitals: Vitals::default() };
    handle.beat(&beat, api.clock.now()).unwrap();
    assert_eq!(ask(&api, &json!({})).await.status, 200, "it was heard: nothing runs");
}
