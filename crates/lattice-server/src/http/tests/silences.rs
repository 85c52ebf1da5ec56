//! Silences: who may, what they hide, what they never touch, and how they end.

use std::time::Duration;

use http::Method;
use lattice_api::silence::{CreateSilence, IncidentKind};
use lattice_controllers::expire_silences;
use lattice_core::actor::Role;
use lattice_core::change::{Change, JobChange, NodeAction, NodeChange};
use lattice_core::ids::{Generation, NodeId};
use lattice_core::node::{Availability, DownCause, Hold, HoldKind, Node, NodeState, Status};
use serde_json::{Value, json};

use super::fixture::{Api, as_role, request};

const NODES: &str = "/api/v1/admin/nodes";
const SILENCES: &str = "/api/v1/admin/silences";
const FLEET: &str = "/api/v1/admin/fleet";
const HOUR_MS: u64 = 3_600_000;

/// Nodes of `local`; each is offline and down since its heartbeats stopped.
async fn with_down(hostnames: &[&str]) -> Api {
    let api = Api::new().await;
    for hostname in hostnames {
        let node = json!({"hostname": hostname, "sku": "lxd.small"}).to_string();
        assert_eq!(api.json(Method::POST, NODES, &node).await.status, 201);
        troubled(&api, hostname, (Status::Offline, Availability::Down), Some(DownCause::HeartbeatLost), &[]).await;
    }
    api
}

async fn troubled(
    api: &Api,
    hostname: &str,
    (status, availability): (Status, Availability),
    cause: Option<DownCause>,
    holds: &[HoldKind],
) {
    let node = api.store.node_by_hostname(hostname).await.unwrap().unwrap();
    let hold = |kind: &HoldKind| Hold {
        kind: *kind,
        by: lattice_core::actor::Actor::system("test"),
        reason: String::new(),
        since: node.updated_at,
        until: None,
        job: None,
    };
    let after = Node {
        state: NodeState::new(status, availability),
        down_cause: cause,
        holds: holds.iter().map(hold).collect(),
        ..node.successor(node.updated_at)
    };
    let before = Some(node.state);
    let change =
        NodeChange { after, before, action: NodeAction::Moved, cause: "test".to_owned(), detail: String::new() };
    api.commit(vec![Change::Node(Box::new(change))]).await;
}

/// What needs attention, and what is silenced, by the names of the nodes.
async fn seen(api: &Api) -> (Vec<String>, Vec<String>) {
    let fleet = api.get(FLEET).await.body;
    let names = |incident: &Value| {
        let subjects = incident["subjects"].as_array().unwrap().iter();
        let nodes =
            subjects.filter(|subject| subject["kind"] == "node").map(|subject| subject["name"].as_str().unwrap());
        let mut names: Vec<_> = nodes.collect();
        names.sort_unstable();
        names.join("+")
    };
    let raised = fleet["attention"].as_array().unwrap().iter().map(names).collect();
    let silenced = fleet["silenced"].as_array().unwrap().iter().map(|one| names(&one["incident"])).collect();
    (raised, silenced)
}

fn texts(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

#[tokio::test]
async fn a_silence_hides_what_it_means_until_its_expiry_and_no_longer() {
    let api = with_down(&["c07u43"]).await;
    assert_eq!(seen(&api).await, (texts(&["c07u43"]), texts(&[])));
    let body = json!({"nodes": ["C07U43"], "kind": "node_down", "reason": "its rack is moved", "for_ms": HOUR_MS});
    let made = api.json(Method::POST, SILENCES, &body.to_string()).await;
    assert_eq!(made.status, 201, "{}", made.body);
    assert_eq!(made.body["by"]["role"], "platform_admin");
    assert_eq!((&made.body["reason"], &made.body["nodes"]), (&json!("its rack is moved"), &json!(["c07u43"])));
    assert_eq!(seen(&api).await, (texts(&[]), texts(&["c07u43"])));
    let fleet = api.get(FLEET).await.body;
    assert_eq!(fleet["silenced"][0]["silence"], made.body["id"]);
    assert_eq!(fleet["silences"], json!([made.body]));
    assert_eq!(fleet["silenced"][0]["incident"]["severity"], "critical", "it is as grave as it was");

    api.pass(Duration::from_millis(HOUR_MS - 1));
    assert_eq!(expire_silences(&api.store, &*api.ids, lattice_core::time::Clock::now(&*api.clock)).await.unwrap(), 0);
    assert_eq!(seen(&api).await, (texts(&[]), texts(&["c07u43"])));
    api.pass(Duration::from_millis(1));
    assert_eq!(seen(&api).await, (texts(&["c07u43"]), texts(&[])), "at its expiry, whether its row is gone or not");
    let gone = api.get(&format!("{SILENCES}/{}", made.body["id"].as_str().unwrap())).await;
    gone.refuses(404, "LAT0004", "it is over");
    assert_eq!(expire_silences(&api.store, &*api.ids, lattice_core::time::Clock::now(&*api.clock)).await.unwrap(), 1);
    assert_eq!(api.store.silences().await.unwrap(), []);
    let path = format!("/api/v1/admin/audit?resource_kind=silence&resource_id={}", made.body["id"].as_str().unwrap());
    let audit = api.get(&path).await.body;
    let told: Vec<_> = audit["items"].as_array().unwrap().iter().map(|row| row["action"].clone()).collect();
    assert_eq!(told, [json!("silence.expired"), json!("silence.created")]);
    assert_eq!(audit["items"][1]["reason"], "its rack is moved");
    api.events_are_as_described().await;
}

/// A hundred more than a page has: all are counted, and a few named.
#[tokio::test]
async fn a_mass_failure_is_counted_whole() {
    let api = with_down(&["c07u43"]).await;
    let one = api.store.node_by_hostname("c07u43").await.unwrap().unwrap();
    let nodes = (0..1_099).map(|number| {
        let (id, hostname) = (NodeId::generate(&*api.ids, one.created_at), format!("c{number}"));
        let after = Node { id, hostname, generation: Generation::FIRST, ..one.clone() };
        let (action, cause, detail) = (NodeAction::Created, "test".to_owned(), String::new());
        Change::Node(Box::new(NodeChange { after, before: None, action, cause, detail }))
    });
    api.commit(nodes.collect()).await;
    let fleet = api.get(FLEET).await.body;
    let [incident] = fleet["attention"].as_array().unwrap().as_slice() else { panic!("{fleet}") };
    assert_eq!(incident["title"], "1100 nodes lost their heartbeat within 0.0 s");
    assert_eq!(incident["subjects"].as_array().unwrap().len(), 64);
    assert_eq!((&incident["more"], &incident["site"]), (&json!(1_036), &json!("local")));
}

#[tokio::test]
async fn labels_sites_and_kinds_choose_what_is_hidden_and_the_rest_stays() {
    let api = with_down(&["c07u43", "c07u44", "c08u01"]).await;
    assert_eq!(seen(&api).await.0, ["c07u43+c07u44+c08u01"], "together they are one incident");
    let labels = format!("{NODES}/c07u44/labels");
    assert_eq!(api.json(Method::POST, &labels, r#"{"set": {"rack": "c07"}}"#).await.status, 200);
    let client = api.admin();
    let of = |silence: CreateSilence| CreateSilence { reason: "x".to_owned(), for_ms: HOUR_MS, ..silence };
    let by_label =
        CreateSilence { selector: [("rack".to_owned(), "c07".to_owned())].into(), ..CreateSilence::default() };
    let by_label = client.create_silence(&of(by_label)).await.unwrap();
    assert_eq!(seen(&api).await, (texts(&["c07u43+c08u01"]), texts(&["c07u44"])));
    let other_kind = CreateSilence {
        kind: Some(IncidentKind::NodeFailed),
        site: Some("local".to_owned()),
        ..CreateSilence::default()
    };
    let other_kind = client.create_silence(&of(other_kind)).await.unwrap();
    assert_eq!(seen(&api).await.0, ["c07u43+c08u01"], "they are down, not failed");
    let of_site = CreateSilence { site: Some("local".to_owned()), ..CreateSilence::default() };
    client.create_silence(&of(of_site)).await.unwrap();
    assert_eq!(seen(&api).await.0, texts(&[]));
    for silence in client.silences().await.unwrap().items {
        client.lift_silence(silence.id).await.unwrap();
    }
    assert_eq!(seen(&api).await.0, ["c07u43+c07u44+c08u01"], "what was hidden is back");
    assert_ne!(by_label.id, other_kind.id);
    api.events_are_as_described().await;
}

#[tokio::test]
async fn a_wipe_that_failed_may_be_silenced_and_changes_nothing_else() {
    let api = with_down(&["c07u43"]).await;
    troubled(&api, "c07u43", (Status::Quarantined, Availability::Down), None, &[HoldKind::WipeFailed]).await;
    let fleet = api.get(FLEET).await.body;
    assert_eq!(fleet["attention"][0]["kind"], "wipe_failed");
    let metrics = |text: Vec<u8>| {
        let text = String::from_utf8(text).unwrap();
        let of_alerts = ["lattice_nodes{", "lattice_jobs{", "lattice_held_nodes", "lattice_sensitive_wipe_failure"];
        let is_of_alerts = |line: &&str| of_alerts.iter().any(|name| line.starts_with(name));
        text.lines().filter(is_of_alerts).map(str::to_owned).collect::<Vec<_>>()
    };
    let before = metrics(api.get("/metrics").await.bytes.to_vec());
    let node = api.get(&format!("{NODES}/c07u43")).await.body;
    let body = json!({"nodes": ["c07u43"], "reason": "its board is on the way", "for_ms": HOUR_MS}).to_string();
    assert_eq!(api.json(Method::POST, SILENCES, &body).await.status, 201);
    assert_eq!(seen(&api).await, (texts(&[]), texts(&["c07u43"])));
    assert_eq!(api.get(&format!("{NODES}/c07u43")).await.body, node, "the node is as it was");
    let scraped = api.get("/metrics").await.bytes.to_vec();
    assert!(String::from_utf8_lossy(&scraped).contains("\nlattice_silences 1\n"));
    assert!(before.iter().any(|line| line.starts_with(r#"lattice_held_nodes{kind="wipe_failed"} 1"#)), "{before:#?}");
    assert_eq!(metrics(scraped), before, "alerts of Prometheus fire as before");
}

#[tokio::test]
async fn who_silences_a_stopped_job_does_not_silence_what_else_becomes_of_its_node() {
    let api = Api::new().await;
    let node = json!({"hostname": "c07u43", "sku": "lxd.small"}).to_string();
    let made = api.json(Method::POST, NODES, &node).await.body;
    let job = api.store.job(made["job_id"].as_str().unwrap().parse().unwrap()).await.unwrap().unwrap();
    let mut after = job.clone();
    after.state.status = lattice_core::job::JobStatus::FailedManualIntervention;
    after.generation = after.generation.next();
    let change = JobChange {
        after,
        before: Some(job.state.status),
        cause: "stage_failed".to_owned(),
        stage_events: Vec::new(),
        visible: true,
    };
    api.commit(vec![Change::Job(Box::new(change))]).await;
    assert_eq!(seen(&api).await, (texts(&["c07u43"]), texts(&[])));
    let body = json!({"nodes": ["c07u43"], "kind": "job_stopped", "reason": "x", "for_ms": HOUR_MS});
    assert_eq!(api.json(Method::POST, SILENCES, &body.to_string()).await.status, 201);
    assert_eq!(seen(&api).await, (texts(&[]), texts(&["c07u43"])), "the node has nothing of its own");
    troubled(&api, "c07u43", (Status::Enrolling, Availability::Failed), None, &[]).await;
    assert_eq!(seen(&api).await, (texts(&["c07u43"]), texts(&["c07u43"])), "that it failed was not silenced");
    let all = json!({"nodes": ["c07u43"], "reason": "x", "for_ms": HOUR_MS}).to_string();
    assert_eq!(api.json(Method::POST, SILENCES, &all).await.status, 201);
    assert_eq!(seen(&api).await, (texts(&[]), texts(&["c07u43"])), "now it is, and is shown once");
}

#[tokio::test]
async fn a_repeat_makes_no_second_silence_and_only_administrators_make_one() {
    let api = with_down(&["c07u43"]).await;
    let body = json!({"nodes": ["c07u43"], "reason": "x", "for_ms": HOUR_MS}).to_string();
    let keyed = |method: Method, path: &str, body: &str| {
        as_role(request(method, path).header("idempotency-key", "k1"), Role::PlatformAdmin, body)
    };
    let first = api.send(keyed(Method::POST, SILENCES, &body)).await;
    let again = api.send(keyed(Method::POST, SILENCES, &body)).await;
    assert_eq!((first.status.as_u16(), again.status.as_u16()), (201, 201), "{}", again.body);
    assert_eq!(first.body, again.body);
    assert_eq!(api.get(SILENCES).await.body["items"].as_array().unwrap().len(), 1);
    let one = format!("{SILENCES}/{}", first.body["id"].as_str().unwrap());
    for (method, path, body) in [(Method::POST, SILENCES, body.as_str()), (Method::DELETE, one.as_str(), "")] {
        let viewer = api.send(as_role(request(method, path), Role::ProjectViewer, body)).await;
        viewer.refuses(403, "LAT0003", path);
    }
    let key =
        |key: &str| as_role(request(Method::DELETE, &one).header("idempotency-key", key), Role::PlatformAdmin, "");
    assert_eq!(api.send(key("k2")).await.status, 200);
    assert_eq!(api.send(key("k2")).await.status, 200, "a repeat");
    api.send(key("k3")).await.refuses(404, "LAT0004", "it is lifted");
    api.events_are_as_described().await;
}

#[tokio::test]
async fn what_is_wrong_is_named_with_its_remedy() {
    let api = with_down(&["c07u43"]).await;
    let rows = [
        (json!({"nodes": ["c07u43"], "reason": "x", "for_ms": 30 * 24 * HOUR_MS + 1}), 422, "for_ms"),
        (json!({"nodes": ["c07u43"], "reason": "x", "for_ms": 0}), 422, "for_ms"),
        (json!({"nodes": ["c07u43"], "reason": " ", "for_ms": HOUR_MS}), 422, "reason"),
        (json!({"reason": "x", "for_ms": HOUR_MS}), 422, "nodes"),
        (json!({"site": "local", "kind": "webhook_failing", "reason": "x", "for_ms": HOUR_MS}), 422, "kind"),
        (json!({"selector": {"ra ck": "x"}, "reason": "x", "for_ms": HOUR_MS}), 422, "selector"),
        (json!({"nodes": ["c07u43"], "reason": "x"}), 400, "for_ms"),
        (json!({"nodes": ["c07u43"], "for_ms": HOUR_MS}), 400, "reason"),
        (json!({"nodes": ["c07u43"], "reason": "x", "for_ms": "4 hours"}), 400, "for_ms"),
        (json!({"nodes": ["c07u43"], "reason": "x", "for_ms": HOUR_MS, "kind": "fire"}), 400, "kind"),
    ];
    for (body, status, field) in rows {
        let refused = api.json(Method::POST, SILENCES, &body.to_string()).await;
        assert_eq!(
            (refused.status.as_u16(), &refused.body["field"]),
            (status, &json!(field)),
            "{body} {}",
            refused.body
        );
    }
    let unknown = json!({"nodes": ["c99u99"], "reason": "x", "for_ms": HOUR_MS}).to_string();
    api.json(Method::POST, SILENCES, &unknown).await.refuses(404, "LAT0004", "no such node");
    let unknown = json!({"site": "nowhere", "reason": "x", "for_ms": HOUR_MS}).to_string();
    api.json(Method::POST, SILENCES, &unknown).await.refuses(404, "LAT0004", "no such site");
    assert_eq!(api.get(SILENCES).await.body["items"], json!([]), "nothing half done");
}
