//! The feed: pages and streams, nothing skipped, nothing twice.

use std::time::Duration;

use http::{Method, header};
use lattice_api::event::EventQuery;
use lattice_api::hold::SetHold;
use lattice_api::node::CreateNode;
use lattice_core::actor::Role;
use lattice_core::ids::NodeId;
use lattice_core::node::HoldKind;

use super::fixture::{Api, as_role, request};

fn node(name: &str) -> CreateNode {
    CreateNode {
        hostname: name.to_owned(),
        sku: "lxd.small".to_owned(),
        site: None,
        class: None,
        reason: String::new(),
    }
}

fn after(seq: u64, node: NodeId) -> EventQuery {
    EventQuery { after: Some(seq), node: Some(node), ..EventQuery::default() }
}

#[tokio::test]
async fn a_page_of_events_goes_on_where_it_ended() {
    let api = Api::new().await;
    let admin = api.admin();
    for name in ["a", "b", "c"] {
        admin.create_node(&node(name)).await.unwrap();
    }
    let all = admin.events(&EventQuery { limit: Some(1_000), ..EventQuery::default() }).await.unwrap();
    assert!(!all.more && all.last == all.events.last().unwrap().seq);
    let mut seen = Vec::new();
    let mut query = EventQuery { limit: Some(2), ..EventQuery::default() };
    loop {
        let page = admin.events(&query).await.unwrap();
        seen.extend(page.events);
        query.after = Some(page.last.0);
        if !page.more {
            break;
        }
    }
    assert_eq!(seen, all.events);
    assert!(seen.iter().zip(1..).all(|(event, seq)| event.seq.0 == seq), "dense from 1");
}

#[tokio::test(start_paused = true)]
async fn a_stream_resumes_after_the_last_event_that_was_seen() {
    let api = Api::new().await;
    let admin = api.admin();
    let made = admin.create_node(&node("a")).await.unwrap();
    let mut stream = admin.follow_events(&after(0, made.node_id)).await.unwrap();
    let first = stream.next().await.unwrap().unwrap();
    assert_eq!(first.name, "node.created");
    drop(stream);
    admin.create_node(&node("b")).await.unwrap();
    let hold = SetHold { kind: HoldKind::Maintenance, reason: String::new(), until: None };
    let mut stream = admin.follow_events(&after(first.seq.0, made.node_id)).await.unwrap();
    admin.set_hold("a", &hold).await.unwrap();
    let all = admin.events(&after(first.seq.0, made.node_id)).await.unwrap().events;
    assert_eq!(all.last().unwrap().name, "node.hold_set");
    for expected in all {
        assert_eq!(stream.next().await.unwrap().unwrap(), expected);
    }
    let (next, set) = tokio::join!(stream.next(), admin.clear_hold("a", HoldKind::Maintenance));
    set.unwrap();
    assert_eq!(next.unwrap().unwrap().name, "node.hold_cleared", "a waiting stream is woken");
}

#[tokio::test(start_paused = true)]
async fn a_silent_stream_says_that_it_lives_and_ends_with_the_server() {
    let api = Api::new().await;
    let builder = request(Method::GET, "/api/v1/admin/events").header(header::ACCEPT, "text/event-stream");
    let sent = api.send(as_role(builder.header("last-event-id", "0"), Role::ProjectViewer, ""));
    let stop = async {
        // Time stands unless everything waits: this many seconds pass before the server stops.
        let waited = tokio::time::timeout(Duration::from_secs(40), std::future::pending::<()>()).await;
        assert!(waited.is_err());
        api.stop.cancel();
    };
    let (seen, ()) = tokio::join!(sent, stop);
    let text = String::from_utf8_lossy(&seen.bytes).into_owned();
    assert_eq!(seen.headers[header::CONTENT_TYPE], "text/event-stream");
    assert!(text.starts_with("id: 1\nevent: "), "{text}");
    assert_eq!(text.matches(": alive\n\n").count(), 2, "one each 15 s: {text}");
    let last = api.store.last_event().await.unwrap().0;
    assert_eq!(text.matches("\nevent: ").count() as u64, last, "each event once");
}

#[tokio::test]
async fn a_cursor_that_is_no_number_or_lies_ahead_is_refused() {
    let api = Api::new().await;
    for id in ["x", "-1", "999999"] {
        let builder = request(Method::GET, "/api/v1/admin/events").header(header::ACCEPT, "text/event-stream");
        let seen = api.send(as_role(builder.header("last-event-id", id), Role::ProjectViewer, "")).await;
        seen.refuses(400, "LAT0001", id);
    }
}
