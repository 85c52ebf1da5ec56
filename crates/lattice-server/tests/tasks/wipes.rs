//! A wipe end to end: a whole server, the agent's own code over TLS, a host that restarts when its agent says so.

use lattice_core::actor::Actor;
use lattice_core::change::{Change, NodeAction, NodeChange};
use lattice_core::node::{Availability, HoldKind, NodeState, Status};
use lattice_core::time::Clock;
use lattice_core::wipe::{CertificateFile, check_keys};
use lattice_server::clock::SystemClock;
use serde_json::{Value, json};

use crate::world::{World, until};

/// Sensitive work on it ended.
async fn release(world: &World) {
    let now = SystemClock.now();
    let node = world.row().await;
    let mut after = node.successor(now);
    after.require_wipe("it ended".to_owned(), &Actor::system("test"), now);
    let change = NodeChange {
        after,
        before: Some(node.state),
        action: NodeAction::HoldSet,
        cause: "wipe_required".to_owned(),
        detail: String::new(),
    };
    world.commit(vec![Change::Node(Box::new(change))]).await;
}

/// The host restarts once it is told to.
async fn restarts(world: &mut World, times: usize, boot: &str) {
    until("it is told to restart", || world.hands.reboots() == times).await;
    world.kill_agent().await;
    world.boot(boot);
    world.start_agent().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_released_node_is_wiped_by_itself_and_each_device_has_a_certificate() {
    let mut world = World::start().await;
    world.ready().await;
    world.hands.wipes(true);
    release(&world).await;
    restarts(&mut world, 1, "boot-2").await;
    let node = world.node_until("it is given back", |node| node.holds.is_empty()).await;
    assert_eq!(node.state, NodeState::new(Status::Active, Availability::Ready));
    let list = world.get(&format!("nodes/{}/wipes", node.hostname)).await;
    let rows = list["items"].as_array().unwrap();
    assert_eq!((rows.len(), rows[0]["erased"].as_str()), (1, Some("main_memory")), "{list}");
    assert_eq!(world.get("wipes?serial=nobody").await["items"].as_array().unwrap().len(), 0);
    let id = rows[0]["id"].as_str().unwrap();
    let file: CertificateFile = serde_json::from_value(world.get(&format!("wipes/{id}")).await).unwrap();
    assert_eq!(CertificateFile::verify(file.text().as_bytes()).as_ref(), Ok(&file));
    let keys: Value = world.get("wipe-signing-keys").await;
    let keys = serde_json::from_value::<Vec<_>>(keys["keys"].clone()).unwrap();
    assert_eq!(check_keys(&file, &keys), Ok(()));
    let rotated = world.post("wipe-signing-keys/rotate", json!({"reason": "yearly"})).await;
    let after: Vec<_> = serde_json::from_value(rotated["keys"].clone()).unwrap();
    assert_eq!((after.len(), check_keys(&file, &after)), (2, Ok(())), "what was signed stays what it is");
    let audit = world.get(&format!("audit?resource_kind=node&resource_id={}&limit=100", node.id)).await.to_string();
    for told in ["node.wipe_began", "node.wipe_step_proven", "node.wipe_certified", "node.wipe_confirmed"] {
        assert!(audit.contains(told), "{told}: {audit}");
    }
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wipe_that_fails_is_counted_shown_and_begun_anew_when_it_is_forced() {
    let mut world = World::start().await;
    world.ready().await;
    let path = format!("nodes/{}/wipe", world.node.hostname);
    let none = world.refused(&path).await;
    assert_eq!((none.0, none.1.as_str()), (409, "LAT0020"), "it needs none");
    world.hands.wipes(false);
    release(&world).await;
    let node = world.node_until("its wipe fails", |node| node.hold(HoldKind::WipeFailed).is_some()).await;
    assert_eq!(node.state, NodeState::new(Status::Quarantined, Availability::Down));
    let metrics = world.text("/metrics").await;
    assert!(metrics.contains("lattice_sensitive_wipe_failure_total 1"), "{metrics}");
    let said = world.get(&format!("nodes/{}/explain", node.hostname)).await;
    let commands: Vec<&str> =
        said["next_actions"].as_array().unwrap().iter().filter_map(|next| next["command"].as_str()).collect();
    assert!(commands.contains(&"lattice admin node wipe c01u01 --force"), "{said}");
    assert!(commands.contains(&"lattice node disable c01u01 --yes"), "{said}");
    let fleet = world.get("fleet").await;
    let incident = &fleet["attention"][0];
    assert_eq!(
        (incident["severity"].as_str(), incident["next"]["command"].as_str()),
        (Some("critical"), Some("lattice admin node wipe c01u01 --force"),)
    );
    let unforced = world.refused(&path).await;
    assert_eq!((unforced.0, unforced.1.as_str()), (422, "LAT0023"));
    world.hands.wipes(true);
    let asked = world.post(&path, json!({"force": true, "reason": "tools installed"})).await;
    assert_eq!(asked["changed"], true, "{asked}");
    restarts(&mut world, 1, "boot-2").await;
    let node = world.node_until("it is given back", |node| node.holds.is_empty()).await;
    assert_eq!(node.state, NodeState::new(Status::Active, Availability::Ready));
    world.stop().await;
}
