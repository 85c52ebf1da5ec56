//! Incidents of nodes that are in service: fingerprints that are not approved, credentials of BMCs that are not tried; and the
//! brake that holds a mass failure's work.

use std::time::Duration;

use http::Method;
use lattice_core::actor::Actor;
use lattice_core::bmc::{Bmc, BmcCause, BmcEndpoint, BmcWay, BreakerState, CipherSuite};
use lattice_core::change::{Change, NodeAction, NodeChange};
use lattice_core::ids::Generation;
use lattice_core::node::{Availability, DownCause, Hold, HoldKind, Node, NodeClass, NodeState, Status};
use lattice_core::time::Clock;
use serde_json::{Value, json};

use super::fixture::Api;

const NODES: &str = "/api/v1/admin/nodes";
const FLEET: &str = "/api/v1/admin/fleet";

/// Nodes of `local`, active and ready.
async fn with_ready(hostnames: &[&str]) -> Api {
    let api = Api::new().await;
    for hostname in hostnames {
        let node = json!({"hostname": hostname, "sku": "lxd.small"}).to_string();
        assert_eq!(api.json(Method::POST, NODES, &node).await.status, 201);
        change(&api, hostname, |node| node.state = NodeState::new(Status::Active, Availability::Ready)).await;
    }
    api
}

async fn change(api: &Api, hostname: &str, change: impl FnOnce(&mut Node)) {
    let node = api.store.node_by_hostname(hostname).await.unwrap().unwrap();
    let mut after = node.successor(api.clock.now());
    change(&mut after);
    let (before, action, cause) = (Some(node.state), NodeAction::Moved, "test".to_owned());
    api.commit(vec![Change::Node(Box::new(NodeChange { after, before, action, cause, detail: String::new() }))]).await;
}

async fn incidents(api: &Api) -> Vec<Value> {
    api.get(FLEET).await.body["attention"].as_array().unwrap().clone()
}

fn says(incident: &Value, what: &str) -> bool {
    incident["evidence"].as_array().unwrap().iter().any(|fact| fact.as_str().unwrap().contains(what))
}

#[tokio::test]
async fn nodes_that_drifted_are_one_incident_of_their_site_that_says_what_became_of_them() {
    let api = with_ready(&["c07u41", "c07u42", "c07u43"]).await;
    let good = r#"{"sku": "lxd.small", "fingerprint": "good"}"#;
    let approved = api.json(Method::POST, "/api/v1/admin/sites/local/conformance/approve", good).await;
    assert_eq!(approved.status, 200, "{}", approved.body);
    assert!(incidents(&api).await.is_empty());
    let since = api.clock.now();
    change(&api, "c07u42", |node| node.deviates_since = Some(since)).await;
    let one = incidents(&api).await.remove(0);
    assert_eq!(one["title"], "c07u42 deviates from the approved fingerprints");
    assert_eq!((&one["kind"], &one["severity"]), (&json!("node_drifted"), &json!("warning")));
    assert_eq!(one["next"]["command"], "lattice site conformance list local", "{one}");
    for sensitive in ["c07u41", "c07u43"] {
        change(&api, sensitive, |node| {
            node.class = NodeClass::Sensitive;
            node.fingerprint = Some("bad".to_owned());
            node.deviates_since = Some(since);
            node.holds.push(Hold {
                kind: HoldKind::ConformanceDrift,
                by: Actor::system("conformance"),
                reason: String::new(),
                since,
                until: None,
                job: None,
            });
        })
        .await;
    }
    let never = r#"{"automation": {"max_unavailable_percent": 0}}"#;
    assert_eq!(api.json(Method::PATCH, "/api/v1/admin/sites/local", never).await.status, 200);
    let [all] = incidents(&api).await.try_into().unwrap();
    assert_eq!(all["title"], "3 nodes of local deviate from the approved fingerprints");
    assert!(says(&all, "c07u41, c07u42, c07u43") && says(&all, "1 get work last"), "{all}");
    assert!(says(&all, "2 sensitive: held, and drained as the site has room"), "{all}");
    assert!(says(&all, "Lattice has made 0 of the site's 3 nodes unavailable, and may 0 at once"), "{all}");
    let held = api.get(&format!("{NODES}/c07u41/explain")).await.body;
    assert!(held.to_string().contains("it is not drained by itself yet"), "{held}");
    let silence = json!({"kind": "node_drifted", "site": "local", "reason": "new image", "for_ms": 60_000});
    assert_eq!(api.json(Method::POST, "/api/v1/admin/silences", &silence.to_string()).await.status, 201);
    assert!(incidents(&api).await.is_empty(), "somebody knows");
    api.events_are_as_described().await;
}

#[tokio::test]
async fn a_bmc_whose_credential_is_not_tried_any_more_is_an_incident_with_what_leads_out() {
    let api = with_ready(&["c07u43"]).await;
    let node = api.store.node_by_hostname("c07u43").await.unwrap().unwrap();
    let now = api.clock.now();
    let mut bmc = Bmc {
        node: node.id,
        site: node.site,
        endpoint: BmcEndpoint {
            address: [10, 0, 0, 7].into(),
            port: None,
            way: BmcWay::Ipmi { cipher: CipherSuite::Seventeen },
            credential_path: "bmc/c07u43".to_owned(),
        },
        breaker: BreakerState::Closed,
        refusals: 2,
        set_at: now,
        set_by: "test".to_owned(),
        generation: Generation::FIRST,
    };
    api.commit(vec![Change::Bmc { after: bmc.clone(), cause: BmcCause::Set }]).await;
    assert!(incidents(&api).await.is_empty(), "it is tried once more");
    bmc.breaker = BreakerState::Open { since: now, by: "health poll".to_owned() };
    (bmc.refusals, bmc.generation) = (3, bmc.generation.next());
    api.commit(vec![Change::Bmc { after: bmc, cause: BmcCause::BreakerOpened }]).await;
    let [one] = incidents(&api).await.try_into().unwrap();
    assert_eq!(one["title"], "the credential of the BMC of c07u43 was refused, and is not tried any more");
    assert_eq!(
        (&one["kind"], &one["next"]["command"]),
        (&json!("bmc_locked"), &json!("lattice node bmc reset-breaker c07u43"))
    );
}

#[tokio::test]
async fn a_mass_failure_names_the_brake_that_holds_its_work() {
    let api = with_ready(&["c07u41", "c07u42"]).await;
    let until = api.clock.now() + Duration::from_secs(600);
    for hostname in ["c07u41", "c07u42"] {
        change(&api, hostname, |node| {
            node.state = NodeState::new(Status::Offline, Availability::Down);
            node.down_cause = Some(DownCause::HeartbeatLost);
            node.ownership.braked_until = (hostname == "c07u42").then_some(until);
        })
        .await;
    }
    let [both] = incidents(&api).await.try_into().unwrap();
    let brake = format!("until {until}; `lattice site brake local --release --yes` counts their work as lost now");
    assert!(says(&both, &brake), "{both}");
}
