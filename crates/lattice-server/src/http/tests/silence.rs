//! What is said of a node that is not heard: here, or by a server that hears none.

use std::time::Duration;

use http::Method;
use lattice_core::change::{Change, NodeAction, NodeChange};
use lattice_core::heartbeat::Vitals;
use lattice_core::ids::SessionId;
use lattice_core::time::Clock;

use super::fixture::Api;
use super::reimage;

const NODE: &str = "/api/v1/admin/nodes/c07u43";

/// A drained node that was heard now.
async fn drained() -> Api {
    let api = reimage::api().await;
    let node = api.store.node_by_hostname("c07u43").await.unwrap().unwrap();
    let mut after = node.successor(api.clock.now());
    after.boot_id = Some("boot".to_owned());
    let (before, cause, detail) = (Some(node.state), "test".to_owned(), String::new());
    let change = NodeChange { after, before, action: NodeAction::Updated, cause, detail };
    api.commit(vec![Change::Node(Box::new(change))]).await;
    let handle = api.registry.admit(node.id, 1, api.clock.now());
    let session = SessionId::generate(&*api.ids, api.clock.now());
    handle.open_session(session, Vitals::default(), api.clock.now()).unwrap();
    api
}

#[tokio::test]
async fn a_drained_node_that_is_silent_is_said_to_be_and_when_it_is_down() {
    let api = drained().await;
    let quiet = api.get(&format!("{NODE}/explain")).await.body.to_string();
    assert!(quiet.contains("it is drained") && !quiet.contains("no heartbeat"), "{quiet}");
    api.pass(Duration::from_secs(40));
    let silent = api.get(&format!("{NODE}/explain")).await.body.to_string();
    assert!(silent.contains("no heartbeat for 40 s; down in 50 s unless it returns"), "{silent}");
}

#[tokio::test]
async fn a_server_that_stands_by_says_so_instead_of_that_a_node_is_not_heard() {
    let api = drained().await;
    api.registry.stand_by(true);
    api.registry.heard_at(Some("https://lattice-1:7443".to_owned()));
    for verb in ["undrain", "enable", "recover", "reactivate"] {
        let refused = api.json(Method::POST, &format!("{NODE}/{verb}"), "{}").await;
        refused.refuses(503, "LAT0072", verb);
        assert!(refused.body.to_string().contains("https://lattice-1:7443"), "{}", refused.body);
    }
    assert_eq!(api.json(Method::POST, &format!("{NODE}/quarantine"), "{}").await.status, 200);
}
