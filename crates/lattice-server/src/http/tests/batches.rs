//! Batches over the API: accepted whole or not at all, once; shown, explained, paused and cancelled.

use http::Method;
use lattice_api::batch::{
    ActOnBatch, BatchAction, BatchLogQuery, BatchMachine, BatchQuery, BatchStatus, CreateBatch, MACHINES_MAX,
};
use lattice_api::client::ClientError;
use lattice_api::error::Problem;
use lattice_api::job::JobQuery;
use lattice_api::site::CreateSite;
use lattice_core::actor::Role;

use super::fixture::{Api, as_role, request};

fn site() -> CreateSite {
    CreateSite {
        name: "dc1".to_owned(),
        region_code: "eu".to_owned(),
        provider: serde_json::json!({"kind": "maas", "api_base_url": "http://10.0.0.1:5240/MAAS", "pxe_iface": "ens19",
            "pxe_vlan_vid": 20, "node_pxe_iface": "eno1"}),
        heartbeat: None,
        bmc: None,
        automation: None,
        sensitive: None,
    }
}

fn machines(count: usize) -> CreateBatch {
    let machine = |n: usize| BatchMachine {
        hostname: format!("C07u{n}"),
        ipmi_ip: Some(format!("10.176.{}.{}", n / 250, n % 250 + 1)),
    };
    CreateBatch {
        site_id: "dc1".to_owned(),
        profile_id: None,
        sku_id: "lxd.small".to_owned(),
        nodes: (0..count).map(machine).collect(),
        class: None,
        max_parallel: Some(2),
        reason: "rack 7".to_owned(),
    }
}

fn refused<T>(answer: Result<T, ClientError>) -> Problem {
    match answer {
        Ok(_) => panic!("not refused"),
        Err(ClientError::Refused(problem)) => *problem,
        Err(other) => panic!("{other}"),
    }
}

async fn api() -> Api {
    let api = Api::new().await;
    api.admin().create_site(&site()).await.unwrap();
    api
}

#[tokio::test]
async fn a_batch_is_accepted_once_in_the_order_of_its_machines() {
    let api = api().await;
    let admin = api.admin();
    let body = serde_json::to_string(&machines(3)).unwrap();
    let keyed = || {
        let builder = request(Method::POST, "/api/v1/admin/onboardings/batch").header("idempotency-key", "rack-7");
        as_role(builder, Role::PlatformAdmin, &body)
    };
    let accepted = api.send(keyed()).await;
    assert_eq!(accepted.status, 202, "{}", accepted.body);
    let names: Vec<&str> = accepted.body["onboardings"]
        .as_array()
        .unwrap()
        .iter()
        .map(|onboarding| onboarding["hostname"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["c07u0", "c07u1", "c07u2"]);
    assert_eq!(api.send(keyed()).await.body, accepted.body, "a repeat is answered as the first was");
    let id = accepted.body["batch_id"].as_str().unwrap().parse().unwrap();
    let view = admin.batch(id).await.unwrap();
    assert_eq!((view.row.status, view.row.children.pending, view.limit), (BatchStatus::Pending, 3, 2));
    let left = view.time_left.unwrap();
    assert!(left.p50_ms.is_none() && !left.not_known.is_empty(), "no stage ever ran: {left:?}");
    let grouped = JobQuery { batch_id: Some(id), ..JobQuery::default() };
    assert_eq!(admin.onboardings(&grouped).await.unwrap().items.len(), 3);
    let of_host = JobQuery { hostname_prefix: Some("C07U1".to_owned()), ..grouped };
    assert_eq!(admin.onboardings(&of_host).await.unwrap().items.len(), 1);
    assert!(admin.batch_log(id, &BatchLogQuery::default()).await.unwrap().items.is_empty());
    let events = api.get("/api/v1/admin/events?limit=1000").await;
    assert!(String::from_utf8_lossy(&events.bytes).contains("onboarding.batch.created"), "{}", events.body);
}

#[tokio::test]
async fn every_wrong_machine_is_named_in_one_answer_and_nothing_is_half_created() {
    let api = api().await;
    let admin = api.admin();
    admin.onboard_batch(&machines(1)).await.unwrap();
    let mut wrong = machines(4);
    wrong.nodes[1].hostname = "not_a_name".to_owned();
    wrong.nodes[2].ipmi_ip = Some("10.0.0.300".to_owned());
    wrong.nodes[3].hostname = "fresh".to_owned();
    let problem = refused(admin.onboard_batch(&wrong).await);
    assert_eq!((problem.status, problem.code.as_str()), (422, "LAT0010"), "{problem:?}");
    let fields: Vec<&str> = problem.errors.iter().map(|error| error.field.as_str()).collect();
    assert_eq!(fields, ["nodes[0].hostname", "nodes[0].ipmi_ip", "nodes[1].hostname", "nodes[2].ipmi_ip"]);
    assert!(!problem.because.is_empty() && !problem.next_actions.is_empty());
    assert_eq!(refused(admin.node("fresh").await.map(drop)).status, 404, "nothing was created");
    assert_eq!(admin.batches(&BatchQuery::default()).await.unwrap().items.len(), 1);
    let taken = refused(admin.onboard_batch(&machines(1)).await);
    assert_eq!((taken.status, taken.code.as_str()), (409, "LAT0011"));
}

#[tokio::test]
async fn a_batch_as_a_whole_is_refused_for_its_size_site_sku_or_profile() {
    let api = api().await;
    let admin = api.admin();
    let rows = [
        (CreateBatch { nodes: Vec::new(), ..machines(1) }, 422, "nodes"),
        (machines(MACHINES_MAX + 1), 422, "nodes"),
        (CreateBatch { site_id: "dc9".to_owned(), ..machines(1) }, 422, "site_id"),
        (CreateBatch { sku_id: "none".to_owned(), ..machines(1) }, 422, "sku_id"),
        (CreateBatch { max_parallel: Some(0), ..machines(1) }, 422, "max_parallel"),
    ];
    for (body, status, field) in rows {
        let problem = refused(admin.onboard_batch(&body).await);
        assert_eq!((problem.status, problem.field.as_deref()), (status, Some(field)), "{problem:?}");
    }
    let by_hand = refused(admin.onboard_batch(&CreateBatch { site_id: "local".to_owned(), ..machines(1) }).await);
    assert_eq!(by_hand.code, "LAT0010", "{by_hand:?}");
    admin.disable_site("dc1").await.unwrap();
    assert_eq!(refused(admin.onboard_batch(&machines(1)).await).code, "LAT0050");
}

#[tokio::test]
async fn a_thousand_machines_are_accepted_in_one_request() {
    let api = api().await;
    let admin = api.admin();
    let accepted = admin.onboard_batch(&machines(MACHINES_MAX)).await.unwrap();
    assert_eq!(accepted.onboardings.len(), MACHINES_MAX);
    assert_eq!(admin.batch(accepted.batch_id).await.unwrap().row.children.pending, 1_000);
}

#[tokio::test]
async fn a_batch_is_paused_explained_resumed_and_cancelled() {
    let api = api().await;
    let admin = api.admin();
    let id = admin.onboard_batch(&machines(3)).await.unwrap().batch_id;
    let storm = ActOnBatch { reason: "storm".to_owned() };
    let ask = |action| admin.act_on_batch(id, action, &storm);
    let paused = ask(BatchAction::Pause).await.unwrap();
    assert!(paused.changed && paused.batch.row.status == BatchStatus::Paused, "{paused:?}");
    assert_eq!(paused.batch.actions, [BatchAction::Resume, BatchAction::Cancel]);
    assert!(!ask(BatchAction::Pause).await.unwrap().changed, "twice is once");
    let said = admin.explain_batch(id).await.unwrap();
    assert!(!said.ok && said.because[0].fact.ends_with("paused it"), "{said:?}");
    assert_eq!(said.next_actions[0].command.as_deref(), Some(&*format!("lattice onboarding batch resume {id}")));
    assert!(ask(BatchAction::Resume).await.unwrap().changed);
    let cancelled = ask(BatchAction::Cancel).await.unwrap();
    assert_eq!(cancelled.batch.row.status, BatchStatus::Cancelling);
    let problem = refused(ask(BatchAction::Resume).await);
    assert_eq!((problem.status, problem.code.as_str()), (409, "LAT0045"), "{problem:?}");
    let path = format!("/api/v1/admin/onboardings/batch/{id}/fly");
    api.json(Method::POST, &path, "{}").await.refuses(404, "LAT0004", "unknown action");
    let live = BatchQuery { status: Some("live".to_owned()), ..BatchQuery::default() };
    assert_eq!(admin.batches(&live).await.unwrap().items.len(), 1);
    let odd = BatchQuery { status: Some("odd".to_owned()), ..BatchQuery::default() };
    assert_eq!(refused(admin.batches(&odd).await).field.as_deref(), Some("status"));
    let audit = api.get("/api/v1/admin/audit?limit=1000").await;
    let rows = audit.body["items"].as_array().unwrap();
    let row = rows.iter().find(|row| row["action"] == "onboarding.batch.paused").unwrap();
    assert_eq!((row["reason"].as_str(), row["actor"].as_str()), (Some("storm"), Some("platform_admin")));
}

#[tokio::test]
async fn a_machine_whose_bmc_is_another_nodes_is_refused_one_by_one_too() {
    let api = api().await;
    let admin = api.admin();
    admin.onboard_batch(&machines(1)).await.unwrap();
    let single = lattice_api::onboarding::CreateOnboarding {
        site_id: "dc1".to_owned(),
        profile_id: None,
        sku_id: "lxd.small".to_owned(),
        hostname: "another".to_owned(),
        ipmi_ip: Some("10.176.0.1".to_owned()),
        pxe_mac: None,
        xname: None,
        boot_profile: None,
        class: None,
        reason: String::new(),
    };
    assert_eq!(refused(admin.onboard(&single).await).code, "LAT0011");
}

/// What an event tells is what its shape says: nothing is missing, nothing more is told.
#[tokio::test]
async fn events_have_the_shapes_that_are_described() {
    use lattice_api::event::{BatchPayload, EventQuery, JobPayload, NodePayload};
    fn again<T: serde::Serialize + serde::de::DeserializeOwned>(payload: &serde_json::Value) -> serde_json::Value {
        serde_json::to_value(serde_json::from_value::<T>(payload.clone()).unwrap()).unwrap()
    }
    let api = api().await;
    let admin = api.admin();
    let id = admin.onboard_batch(&machines(1)).await.unwrap().batch_id;
    admin.act_on_batch(id, BatchAction::Pause, &ActOnBatch::default()).await.unwrap();
    let events = admin.events(&EventQuery { limit: Some(1_000), ..EventQuery::default() }).await.unwrap().events;
    let mut seen = std::collections::BTreeSet::new();
    for event in &events {
        let told = match event.resource_kind.as_str() {
            "node" => again::<NodePayload>(&event.payload),
            "job" => again::<JobPayload>(&event.payload),
            "batch" => again::<BatchPayload>(&event.payload),
            _ => continue,
        };
        assert_eq!(told, event.payload, "{}", event.name);
        seen.insert(event.name.clone());
    }
    let expected = ["job.changed", "node.created", "onboarding.batch.created", "onboarding.batch.paused"];
    assert_eq!(seen.iter().map(String::as_str).collect::<Vec<_>>(), expected);
}
