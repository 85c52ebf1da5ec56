//! Tasks on the wire: woken heartbeats, waits, keys, reports.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{Method, Request};
use http_body_util::Full;
use lattice_api::agent::{
    HeartbeatResponse, MAX_BODY_BYTES, RegisterRequest, RegisterResponse, ReportTaken, WaitingTasks, heartbeat_path,
    register_path, report_path, wait_path,
};
use lattice_core::agent::task::{
    Envelope, HeartbeatCheck, KeySet, Progress, Running, SigningKey, Statement, TaskErrorCode, TaskInput, TaskReport,
};
use lattice_core::explain::Code;
use lattice_core::ids::{AllocationId, NodeId, OwnershipEpoch, TaskId, uuid_v7};
use lattice_core::secret::Secret;

use super::fixture::{Fixture, T0, heartbeat, register_request};
use super::refused;
use crate::agent_api::Limits;

fn task_id(number: u8) -> TaskId {
    TaskId::new(uuid_v7(T0, [number; 10]))
}

fn envelope(fixture: &Fixture, node: NodeId) -> Envelope {
    fixture.task_keys.seal(&Statement {
        task: task_id(1),
        node,
        node_epoch: 1,
        issued_at: T0,
        expires_at: T0 + Duration::from_secs(60),
        nonce: "0".repeat(32),
        input: TaskInput::HeartbeatCheck(HeartbeatCheck {}),
    })
}

#[tokio::test]
async fn a_parked_heartbeat_is_answered_when_a_task_is_committed() {
    let fixture = Fixture::start(Limits::default());
    let node = fixture.node().await;
    let (mut connection, session) = node.session().await;
    let path = heartbeat_path(node.id, 9_000);
    // The first answer on a connection tells the keys; it is not parked, since something waits.
    fixture.desk.ring(node.id);
    let first: HeartbeatResponse = connection.post(&path, &heartbeat(session, 1)).await.unwrap();
    assert_eq!(first.task_signing_keys, fixture.task_keys.public());
    assert!(first.tasks.is_empty());
    let (begun, task) = (Instant::now(), envelope(&fixture, node.id));
    let beat = heartbeat(session, 2);
    let parked = connection.post::<HeartbeatResponse>(&path, &beat);
    let commit = async {
        tokio::task::yield_now().await;
        fixture.events.tasks.lock().unwrap().push(task.clone());
        fixture.desk.ring(node.id);
    };
    let (answer, ()) = tokio::join!(parked, commit);
    let answer = answer.unwrap();
    assert!(begun.elapsed() < Duration::from_secs(8), "it was not woken");
    assert_eq!(answer.tasks, [task], "once the task was there");
    assert!(answer.task_signing_keys.is_empty(), "they were told on this connection");
    let (mut next, session) = node.session().await;
    let again: HeartbeatResponse = next.post(&node.heartbeat_path(), &heartbeat(session, 1)).await.unwrap();
    assert_eq!(again.task_signing_keys.len(), 1, "each connection hears them once");
    assert!(again.tasks.is_empty());
}

#[tokio::test]
async fn a_heartbeat_is_answered_even_if_tasks_cannot_be_read() {
    let fixture = Fixture::start(Limits::default());
    let node = fixture.node().await;
    let (mut connection, session) = node.session().await;
    fixture.events.refuse_tasks.store(true, Ordering::SeqCst);
    fixture.events.tasks.lock().unwrap().push(envelope(&fixture, node.id));
    fixture.desk.ring(node.id);
    let answer: HeartbeatResponse = connection.post(&node.heartbeat_path(), &heartbeat(session, 1)).await.unwrap();
    assert!(answer.tasks.is_empty());
    fixture.events.refuse_tasks.store(false, Ordering::SeqCst);
    let answer: HeartbeatResponse = connection.post(&node.heartbeat_path(), &heartbeat(session, 2)).await.unwrap();
    assert_eq!(answer.tasks.len(), 1, "it was not forgotten");
}

#[tokio::test]
async fn tasks_are_waited_for_without_a_session_too() {
    let fixture = Fixture::start(Limits::default());
    let (node, other) = (fixture.node().await, fixture.node().await);
    let mut connection = node.client.connect().await.unwrap();
    let get = |path: &str| Request::builder().method(Method::GET).uri(path).body(Full::<Bytes>::default()).unwrap();
    let (status, _) = connection.send(get(&wait_path(node.id, 1))).await.unwrap();
    assert_eq!(status.as_u16(), 204);
    fixture.events.tasks.lock().unwrap().push(envelope(&fixture, node.id));
    fixture.desk.ring(node.id);
    let (status, body) = connection.send(get(&wait_path(node.id, 9_000))).await.unwrap();
    let waiting: WaitingTasks = serde_json::from_slice(&body).unwrap();
    assert_eq!((status.as_u16(), waiting.tasks.len(), waiting.task_signing_keys.len()), (200, 1, 1));
    let (status, _) = connection.send(get(&wait_path(other.id, 1))).await.unwrap();
    assert_eq!(status.as_u16(), 403, "another node's");
}

#[tokio::test]
async fn a_report_is_taken_from_its_node_alone_and_once() {
    let fixture = Fixture::start(Limits::default());
    let (node, other) = (fixture.node().await, fixture.node().await);
    let mut connection = node.client.connect().await.unwrap();
    let progress = Progress::failed(TaskErrorCode::UnknownKind, "no");
    let report = TaskReport { task: task_id(1), at: T0, progress };
    let path = report_path(node.id, task_id(1));
    let first: ReportTaken = connection.post(&path, &report).await.unwrap();
    let second: ReportTaken = connection.post(&path, &report).await.unwrap();
    assert!(first.changed && !second.changed, "the same again is fine, and known");
    let foreign = connection.refusal(&report_path(other.id, task_id(1)), &report).await;
    assert_eq!(foreign, refused(403, Code::CertificateForeign));
    let crossed = connection.refusal(&report_path(node.id, task_id(2)), &report).await;
    assert_eq!(crossed, refused(400, Code::Malformed), "body and path differ");
    let huge = TaskReport { progress: Progress::failed(TaskErrorCode::Malformed, "x"), ..report.clone() };
    let mut huge = serde_json::to_value(huge).unwrap();
    huge["detail"] = "x".repeat(MAX_BODY_BYTES).into();
    assert_eq!(connection.refusal(&path, &huge).await, refused(413, Code::TooLarge));
    let mut stranger = fixture.stranger().connect().await.unwrap();
    assert_eq!(stranger.refusal(&path, &report).await, refused(401, Code::Unauthenticated));
    assert_eq!(fixture.events.task_reports.lock().unwrap().len(), 2);
}

#[tokio::test]
async fn what_a_node_does_not_own_any_more_is_stopped_before_a_session_opens() {
    let fixture = Fixture::start(Limits::default());
    let node = fixture.node().await;
    let old = Running { allocation: AllocationId::new(uuid_v7(T0, [1; 10])), ownership_epoch: OwnershipEpoch(1) };
    let own = Running { ownership_epoch: OwnershipEpoch(2), ..old };
    fixture.events.disowned.lock().unwrap().push(old);
    let mut connection = node.client.connect().await.unwrap();
    let request = RegisterRequest { running: vec![old, own], ..register_request() };
    let answer: RegisterResponse = connection.post(&register_path(node.id), &request).await.unwrap();
    assert_eq!((answer.stop_first, answer.session), (vec![old], None), "it is not registered yet");
    assert!(fixture.events.registrations.lock().unwrap().is_empty());
    let request = RegisterRequest { running: vec![own], ..register_request() };
    let answer: RegisterResponse = connection.post(&register_path(node.id), &request).await.unwrap();
    assert!(answer.stop_first.is_empty());
    let first = heartbeat(answer.session.unwrap(), 1);
    assert!(connection.post::<HeartbeatResponse>(&node.heartbeat_path(), &first).await.is_ok());
}

#[tokio::test]
async fn the_keys_of_an_enrolment_open_what_the_server_seals() {
    let fixture = Fixture::start(Limits::default());
    let node = fixture.node().await;
    let identity = &node.enrolled.identity;
    assert_eq!(identity.identity_epoch, Some(1));
    let expected = lattice_core::agent::task::Expected { node: node.id, node_epoch: identity.identity_epoch, now: T0 };
    let keys = KeySet::new(&identity.task_signing_keys);
    assert!(keys.open(&envelope(&fixture, node.id), expected).is_ok());
    let stranger = SigningKey::from_seed(&Secret::new(vec![6; 32])).unwrap();
    let forged = stranger.seal(&keys.open(&envelope(&fixture, node.id), expected).unwrap());
    assert_eq!(keys.open(&forged, expected).unwrap_err().0, TaskErrorCode::UnknownKey);
}
