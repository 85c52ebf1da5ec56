//! Agents' requests over real TLS on loopback.

mod fixture;
mod real_agent;
mod tasks;

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{Method, Request};
use http_body_util::{BodyExt, Full};
use hyper_util::rt::{TokioExecutor, TokioIo};
use lattice_api::agent::{
    HealthSummary, HeartbeatRequest, HeartbeatResponse, MAX_BODY_BYTES, RegisterResponse, RenewRequest, RenewResponse,
    heartbeat_path, register_path, renew_path,
};
use lattice_core::explain::Code;
use lattice_core::ids::{SessionId, uuid_v7};
use rcgen::KeyPair;

use self::fixture::{Client, Fixture, LIFE, T0, csr, enroll_request, heartbeat, new_ca, register_request};
use super::{AgentPolicy, Limits, StartError};
use crate::pki::{Authority, CertificateSpan, NodeRequest};

/// Longest time a test waits for something that must happen.
const PATIENCE: Duration = Duration::from_secs(20);

fn refused(status: u16, code: Code) -> (u16, String) {
    (status, code.text())
}

#[tokio::test]
async fn a_host_enrols_registers_beats_and_renews() {
    let fixture = Fixture::start(Limits::default());
    let node = fixture.node().await;
    assert_eq!(node.enrolled.identity.not_after, T0 + LIFE);
    assert_eq!(node.enrolled.identity.task_signing_keys.len(), 1);
    let (mut connection, session) = node.session().await;
    for sequence in 1..=3 {
        fixture.clock.advance(Duration::from_secs(10));
        let answer: HeartbeatResponse =
            connection.post(&node.heartbeat_path(), &heartbeat(session, sequence)).await.unwrap();
        assert_eq!(answer.next_interval_ms, 10_000);
    }
    assert_eq!(fixture.registry.last_heard(node.id), Some(T0 + Duration::from_secs(30)));
    assert_eq!(fixture.events.registrations.lock().unwrap().len(), 1);
    assert!(fixture.events.reports.lock().unwrap().is_empty(), "nothing new was said");

    let key = KeyPair::generate().unwrap();
    let renewed: RenewResponse =
        connection.post(&renew_path(node.id), &RenewRequest { csr_pem: csr(&key) }).await.unwrap();
    assert_eq!(renewed.identity.not_after, T0 + Duration::from_secs(30) + LIFE);
    let client = Client::new(&fixture, Some((&renewed.identity.certificate_pem, &key)));
    let mut connection = client.connect().await.unwrap();
    assert!(connection.post::<HeartbeatResponse>(&node.heartbeat_path(), &heartbeat(session, 4)).await.is_ok());
}

#[tokio::test]
async fn only_what_is_new_in_a_heartbeat_is_reported() {
    let fixture = Fixture::start(Limits::default());
    let node = fixture.node().await;
    let (mut connection, session) = node.session().await;
    let hot = HealthSummary { max_temperature_c: Some(80), ..HealthSummary::default() };
    let ill = HealthSummary { minor_issue: Some("fan 3 stopped".into()), ..hot.clone() };
    let beats = [
        HeartbeatRequest { health: hot.clone(), ..heartbeat(session, 1) },
        HeartbeatRequest { health: ill.clone(), ..heartbeat(session, 2) },
        HeartbeatRequest { health: ill.clone(), ..heartbeat(session, 3) },
        HeartbeatRequest { health: ill, fingerprint: Some("abc".into()), ..heartbeat(session, 4) },
        HeartbeatRequest { health: hot, ..heartbeat(session, 5) },
    ];
    for beat in beats {
        connection.post::<HeartbeatResponse>(&node.heartbeat_path(), &beat).await.unwrap();
    }
    let reports = fixture.events.reports.lock().unwrap();
    let said: Vec<_> = reports.iter().map(|report| (report.health_changed, report.fingerprint.as_deref())).collect();
    assert_eq!(said, [(true, None), (false, Some("abc")), (true, None)], "a temperature alone is no news");
}

#[tokio::test]
async fn a_token_enrols_one_key_and_its_repeat_is_answered_again() {
    let fixture = Fixture::start(Limits::default());
    let (node, key) = (fixture.new_node(), KeyPair::generate().unwrap());
    let mut connection = fixture.stranger().connect().await.unwrap();
    let path = "/internal/v1/nodes/enroll";
    for _ in 0..2 {
        assert!(connection.post::<serde_json::Value>(path, &enroll_request(node, &key)).await.is_ok());
    }
    let other = enroll_request(node, &KeyPair::generate().unwrap());
    assert_eq!(connection.refusal(path, &other).await, refused(409, Code::TokenUsed));
    let mut unsigned = enroll_request(node, &key);
    unsigned.csr_pem = "please".into();
    assert_eq!(connection.refusal(path, &unsigned).await, refused(422, Code::CertificateRequest));
}

#[tokio::test]
async fn without_a_certificate_only_enrolment_is_open() {
    let fixture = Fixture::start(Limits::default());
    let node = fixture.node().await;
    let mut connection = fixture.stranger().connect().await.unwrap();
    let session = SessionId::new(uuid_v7(T0, [1; 10]));
    for path in [node.heartbeat_path(), register_path(node.id), renew_path(node.id)] {
        assert_eq!(
            connection.refusal(&path, &heartbeat(session, 1)).await,
            refused(401, Code::Unauthenticated),
            "{path}"
        );
    }
}

#[tokio::test]
async fn the_path_of_another_node_is_refused_and_reported_for_the_audit() {
    let fixture = Fixture::start(Limits::default());
    let (one, other) = (fixture.node().await, fixture.node().await);
    let (mut connection, session) = one.session().await;
    for path in [other.heartbeat_path(), register_path(other.id), renew_path(other.id)] {
        let answer = connection.refusal(&path, &heartbeat(session, 1)).await;
        assert_eq!(answer, refused(403, Code::CertificateForeign), "{path}");
    }
    let audited = fixture.events.refused.lock().unwrap();
    assert_eq!(audited.len(), 3);
    assert_eq!((audited[0].certificate, audited[0].path), (one.id, other.id));
}

#[tokio::test]
async fn a_revoked_node_is_refused_on_its_live_connection_and_on_a_resumed_one() {
    let fixture = Fixture::start(Limits::default());
    let node = fixture.node().await;
    let (mut live, session) = node.session().await;
    assert!(live.post::<HeartbeatResponse>(&node.heartbeat_path(), &heartbeat(session, 1)).await.is_ok());
    assert!(fixture.registry.revoke_before(node.id, 2));
    let revoked = refused(403, Code::CertificateRevoked);
    assert_eq!(live.refusal(&node.heartbeat_path(), &heartbeat(session, 2)).await, revoked);
    let mut resumed = node.client.connect().await.unwrap();
    assert!(resumed.resumed, "the handshake must not have checked anything");
    assert_eq!(resumed.refusal(&register_path(node.id), &register_request()).await, revoked);
}

#[tokio::test]
async fn after_a_restart_a_session_is_resumed_and_its_identity_is_checked_all_the_same() {
    let fixture = Fixture::start(Limits::default());
    let (one, other) = (fixture.node().await, fixture.node().await);
    for node in [&one, &other] {
        drop(node.session().await);
    }
    let fixture = fixture.restart(Limits::default(), AgentPolicy::default()).await;
    fixture.registry.admit(one.id, 1, T0);
    fixture.registry.admit(other.id, 2, T0);
    let mut back = one.client.connect().await.unwrap();
    assert!(back.resumed);
    assert!(back.post::<RegisterResponse>(&register_path(one.id), &register_request()).await.is_ok());
    let mut revoked = other.client.connect().await.unwrap();
    assert!(revoked.resumed);
    let refusal = revoked.refusal(&register_path(other.id), &register_request()).await;
    assert_eq!(refusal, refused(403, Code::CertificateRevoked));
}

#[tokio::test]
async fn a_node_that_was_forgotten_is_not_known() {
    let fixture = Fixture::start(Limits::default());
    let node = fixture.node().await;
    let (mut live, session) = node.session().await;
    fixture.registry.remove(node.id);
    let unknown = refused(404, Code::NotFound);
    assert_eq!(live.refusal(&node.heartbeat_path(), &heartbeat(session, 1)).await, unknown);
    let mut another = node.client.connect().await.unwrap();
    assert_eq!(another.refusal(&node.heartbeat_path(), &heartbeat(session, 1)).await, unknown);
    // Once it is known to be deleted, its agent is told for good, and stops asking.
    fixture.events.deleted.lock().unwrap().push(node.id);
    let gone = refused(410, Code::CertificateRevoked);
    assert_eq!(another.refusal(&register_path(node.id), &register_request()).await, gone);
}

#[tokio::test]
async fn an_expired_certificate_is_refused_live_resumed_and_fresh() {
    let fixture = Fixture::start(Limits::default());
    let node = fixture.node().await;
    let fresh = node.client.clone();
    let (mut live, session) = node.session().await;
    // A ticket must be younger than its own 12 h: the second connection gets one shortly before the end.
    fixture.clock.advance(LIFE - Duration::from_secs(60));
    let mut late = node.client.connect().await.unwrap();
    assert!(late.post::<HeartbeatResponse>(&node.heartbeat_path(), &heartbeat(session, 1)).await.is_ok());
    fixture.clock.advance(Duration::from_secs(61));
    let expired = refused(401, Code::CertificateExpired);
    assert_eq!(live.refusal(&node.heartbeat_path(), &heartbeat(session, 2)).await, expired);
    let mut resumed = node.client.connect().await.unwrap();
    assert!(resumed.resumed);
    assert_eq!(resumed.refusal(&node.heartbeat_path(), &heartbeat(session, 2)).await, expired);
    let mut fresh = fresh.without_tickets().connect().await.unwrap();
    let outcome = fresh.send(Request::post(node.heartbeat_path()).body(Full::default()).unwrap()).await;
    assert!(outcome.is_err(), "the handshake itself refuses it");
}

#[tokio::test]
async fn a_certificate_of_another_authority_ends_the_handshake() {
    let fixture = Fixture::start(Limits::default());
    let node = fixture.node().await;
    let key = KeyPair::generate().unwrap();
    let foreign = Authority::open(&new_ca()).unwrap();
    let span = CertificateSpan::starting(T0, Duration::from_secs(60), LIFE);
    let signed = foreign.sign_node(&NodeRequest::parse(&csr(&key)).unwrap(), (node.id, 1), span, [9; 16]).unwrap();
    let client = Client::new(&fixture, Some((&signed.chain_pem, &key)));
    // In TLS 1.3 a client learns of it with the first answer.
    let outcome = match client.connect().await {
        Ok(mut connection) => {
            connection.send(Request::post(node.heartbeat_path()).body(Full::default()).unwrap()).await.is_err()
        }
        Err(_) => true,
    };
    assert!(outcome);
}

#[tokio::test]
async fn tls_1_2_is_not_spoken() {
    let fixture = Fixture::start(Limits::default());
    let client = Client::with_versions(&fixture, None, &[&rustls::version::TLS12]);
    assert!(client.open().await.is_err());
}

#[tokio::test]
async fn replays_steps_back_and_unknown_sessions_are_refused() {
    let fixture = Fixture::start(Limits::default());
    let node = fixture.node().await;
    let path = node.heartbeat_path();
    let (mut connection, session) = node.session().await;
    assert!(connection.post::<HeartbeatResponse>(&path, &heartbeat(session, 7)).await.is_ok());
    for sequence in [7, 6, 0] {
        let answer = connection.refusal(&path, &heartbeat(session, sequence)).await;
        assert_eq!(answer, refused(409, Code::HeartbeatReplayed), "{sequence}");
    }
    let unknown = SessionId::new(uuid_v7(T0, [9; 10]));
    assert_eq!(connection.refusal(&path, &heartbeat(unknown, 8)).await, refused(409, Code::SessionUnknown));
    let (_other, second) = node.session().await;
    assert_eq!(connection.refusal(&path, &heartbeat(session, 9)).await, refused(409, Code::SessionUnknown));
    assert!(connection.post::<HeartbeatResponse>(&path, &heartbeat(second, 1)).await.is_ok());
}

#[tokio::test]
async fn two_agents_with_one_identity_are_told_of_and_an_agent_started_again_is_not() {
    let fixture = Fixture::start(Limits::default());
    let node = fixture.node().await;
    let (mut first, _) = node.session().await;
    let (mut second, session) = node.session().await;
    assert!(second.post::<HeartbeatResponse>(&node.heartbeat_path(), &heartbeat(session, 1)).await.is_ok());
    assert_eq!(*fixture.events.shared.lock().unwrap(), [], "it was started again");
    first.post::<RegisterResponse>(&register_path(node.id), &register_request()).await.unwrap();
    assert_eq!(*fixture.events.shared.lock().unwrap(), [node.id]);
}

#[tokio::test]
async fn a_host_that_says_something_new_each_time_writes_a_row_a_second_at_most() {
    let fixture = Fixture::start(Limits::default());
    let node = fixture.node().await;
    let (mut connection, session) = node.session().await;
    let path = node.heartbeat_path();
    let reports = || fixture.events.reports.lock().unwrap().len();
    for sequence in 1..=100 {
        let mut beat = heartbeat(session, sequence);
        beat.health.ecc_uncorrected = sequence;
        connection.post::<HeartbeatResponse>(&path, &beat).await.expect("it is heard all the same");
    }
    // The registration was the first of twenty.
    assert_eq!(reports(), 19);
    fixture.clock.advance(Duration::from_secs(1));
    let mut beat = heartbeat(session, 101);
    beat.health.ecc_uncorrected = 100;
    connection.post::<HeartbeatResponse>(&path, &beat).await.unwrap();
    assert_eq!(reports(), 20, "what changed before is told as soon as it may be");
    let printed = HeartbeatRequest { fingerprint: Some("f2".to_owned()), ..heartbeat(session, 102) };
    let refused = connection.post::<HeartbeatResponse>(&path, &printed).await.unwrap_err();
    assert!(refused.is(Code::RateLimited), "a fingerprint is told once, so it is sent again: {refused:?}");
    let refused = connection.post::<RegisterResponse>(&register_path(node.id), &register_request()).await.unwrap_err();
    assert!(refused.is(Code::RateLimited) && !refused.next_actions.is_empty(), "{refused:?}");
    fixture.clock.advance(Duration::from_secs(1));
    connection.post::<RegisterResponse>(&register_path(node.id), &register_request()).await.unwrap();
}

#[tokio::test]
async fn a_host_that_floods_is_refused_and_changes_nothing() {
    let fixture = Fixture::start(Limits::default());
    let node = fixture.node().await;
    let (mut connection, session) = node.session().await;
    let mut refused_at = None;
    for sequence in 1..=1_000 {
        if let Err(problem) =
            connection.post::<HeartbeatResponse>(&node.heartbeat_path(), &heartbeat(session, sequence)).await
        {
            assert!(problem.is(Code::RateLimited), "{problem:?}");
            refused_at = Some(sequence);
            break;
        }
    }
    let sequence = refused_at.expect("a thousand heartbeats in one moment are a flood");
    fixture.clock.advance(Duration::from_secs(1));
    let taken = connection.post::<HeartbeatResponse>(&node.heartbeat_path(), &heartbeat(session, sequence)).await;
    assert!(taken.is_ok(), "the refused one counted for nothing: {taken:?}");
}

#[tokio::test]
async fn malformed_requests_get_the_error_that_names_them() {
    let fixture = Fixture::start(Limits::default());
    let node = fixture.node().await;
    let heartbeat_path = node.heartbeat_path();
    let heartbeat_path = heartbeat_path.as_str();
    let json = "application/json";
    let large = "x".repeat(MAX_BODY_BYTES + 1);
    let large = large.as_str();
    let cases = [
        (Method::POST, heartbeat_path, json, large, (413, Code::TooLarge)),
        (Method::POST, heartbeat_path, "text/plain", "{}", (415, Code::Unsupported)),
        (Method::POST, heartbeat_path, "", "{}", (415, Code::Unsupported)),
        (Method::POST, heartbeat_path, json, "{", (400, Code::Malformed)),
        (Method::POST, heartbeat_path, json, "{}", (400, Code::Malformed)),
        (Method::POST, heartbeat_path, json, "[]", (400, Code::Malformed)),
        (Method::GET, heartbeat_path, json, "", (405, Code::Unsupported)),
        (Method::POST, "/internal/v1/nodes/x/heartbeat", json, "{}", (400, Code::Malformed)),
        (Method::POST, "/internal/v1/elsewhere", json, "{}", (404, Code::NotFound)),
    ];
    for (method, path, media_type, body, (status, code)) in cases {
        let mut connection = node.client.connect().await.unwrap();
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("content-type", media_type)
            .body(Full::from(body.to_owned()))
            .unwrap();
        let (answered, body) = connection.send(request).await.unwrap();
        let problem: lattice_api::error::Problem = serde_json::from_slice(&body).unwrap();
        assert_eq!((answered.as_u16(), problem.code), (status, code.text()), "{path} {}", problem.detail);
        assert!(problem.correlation_id.is_some());
    }
}

#[tokio::test]
async fn texts_that_are_too_long_or_unprintable_are_refused() {
    let fixture = Fixture::start(Limits::default());
    let node = fixture.node().await;
    let mut connection = node.client.connect().await.unwrap();
    for boot_id in [String::new(), "b".repeat(257), "a\nb".to_owned()] {
        let mut request = register_request();
        request.boot_id = boot_id;
        let answer = connection.refusal(&register_path(node.id), &request).await;
        assert_eq!(answer, refused(400, Code::Malformed));
    }
}

#[tokio::test]
async fn headers_beyond_the_ceiling_end_the_request() {
    let fixture = Fixture::start(Limits::default());
    let node = fixture.node().await;
    let mut connection = node.client.connect().await.unwrap();
    let request =
        Request::post(node.heartbeat_path()).header("x-padding", "p".repeat(20_000)).body(Full::default()).unwrap();
    if let Ok((status, _)) = connection.send(request).await {
        assert_eq!(status.as_u16(), 431);
    }
}

#[tokio::test]
async fn two_hundred_handshakes_at_once_take_turns() {
    let fixture = Fixture::start(Limits { handshakes: 4, ..Limits::default() });
    let node = fixture.node().await;
    let client = node.client.without_tickets();
    let connecting: Vec<_> = (0..200).map(|_| client.connect()).collect();
    let connections = futures_util::future::join_all(connecting).await;
    assert!(connections.iter().all(Result::is_ok));
}

#[tokio::test]
async fn peers_that_stall_do_not_keep_others_out() {
    let fixture = Fixture::start(Limits { handshakes: 4, ..Limits::default() });
    let node = fixture.node().await;
    let mut stalled = Vec::new();
    for number in 0..16 {
        let mut stream = tokio::net::TcpStream::connect(fixture.listener.address()).await.unwrap();
        // The half of them begins a handshake: the head of a record that never comes.
        if number % 2 == 0 {
            tokio::io::AsyncWriteExt::write_all(&mut stream, &[22, 3, 1, 2, 0]).await.unwrap();
        }
        stalled.push(stream);
    }
    let connected = tokio::time::timeout(PATIENCE, node.client.connect()).await;
    assert!(connected.expect("in time").is_ok());
}

#[tokio::test]
async fn a_report_that_was_not_taken_comes_again_with_the_next_heartbeat() {
    let fixture = Fixture::start(Limits::default());
    let node = fixture.node().await;
    let (mut connection, session) = node.session().await;
    let ill = HealthSummary { minor_issue: Some("fan 3 stopped".into()), ..HealthSummary::default() };
    let beat = |sequence| HeartbeatRequest { health: ill.clone(), ..heartbeat(session, sequence) };
    fixture.events.refuse_reports.store(true, Ordering::SeqCst);
    let refusal = connection.refusal(&node.heartbeat_path(), &beat(1)).await;
    assert_eq!(refusal, refused(503, Code::Unavailable));
    fixture.events.refuse_reports.store(false, Ordering::SeqCst);
    for sequence in 2..=3 {
        connection.post::<HeartbeatResponse>(&node.heartbeat_path(), &beat(sequence)).await.unwrap();
    }
    assert_eq!(fixture.events.reports.lock().unwrap().len(), 1, "and only until it was taken");
}

#[tokio::test]
async fn one_connection_more_than_allowed_is_closed() {
    let fixture = Fixture::start(Limits { connections: 2, ..Limits::default() });
    let (first, _second) = (fixture.stranger().connect().await.unwrap(), fixture.stranger().connect().await.unwrap());
    assert!(fixture.stranger().open().await.is_err());
    drop(first);
    let deadline = Instant::now() + PATIENCE;
    while fixture.stranger().open().await.is_err() {
        assert!(Instant::now() < deadline, "the place was not given free");
    }
}

#[tokio::test]
async fn a_heartbeat_is_parked_for_its_wait() {
    let fixture = Fixture::start(Limits::default());
    let node = fixture.node().await;
    let (mut connection, session) = node.session().await;
    let started = Instant::now();
    let path = heartbeat_path(node.id, 60);
    connection.post::<HeartbeatResponse>(&path, &heartbeat(session, 1)).await.unwrap();
    assert!(started.elapsed() >= Duration::from_millis(60));
}

#[tokio::test]
async fn without_tasks_the_wait_for_them_ends_empty() {
    let fixture = Fixture::start(Limits::default());
    let node = fixture.node().await;
    let mut connection = node.client.connect().await.unwrap();
    let path = format!("/internal/v1/nodes/{}/tasks/wait?wait=60ms", node.id);
    let started = Instant::now();
    let (status, body) = connection.send(Request::get(path).body(Full::default()).unwrap()).await.unwrap();
    assert_eq!((status.as_u16(), body.len()), (204, 0));
    assert!(started.elapsed() >= Duration::from_millis(60));
    assert_eq!(fixture.registry.last_heard(node.id), Some(T0), "it is no sign of life");
}

#[tokio::test]
async fn parked_heartbeats_are_answered_before_the_drain() {
    let fixture = Fixture::start(Limits::default());
    let node = fixture.node().await;
    let (mut connection, session) = node.session().await;
    let (path, body) = (heartbeat_path(node.id, 15_000), heartbeat(session, 1));
    let started = Instant::now();
    let parked = connection.post::<HeartbeatResponse>(&path, &body);
    let heard = fixture.registry.last_heard(node.id);
    fixture.clock.advance(Duration::from_secs(1));
    let (registry, listener, id) = (fixture.registry, fixture.listener, node.id);
    let drain = async move {
        // The heartbeat is parked once it was heard.
        while registry.last_heard(id) == heard {
            tokio::task::yield_now().await;
        }
        listener.drain().await;
    };
    let (answer, ()) = tokio::join!(parked, drain);
    assert_eq!(answer.unwrap().next_interval_ms, 10_000);
    assert!(started.elapsed() < Duration::from_secs(10), "{:?}", started.elapsed());
}

#[tokio::test]
async fn a_connection_ends_with_its_life_but_not_within_a_request() {
    let life = Duration::from_secs(1);
    let fixture =
        Fixture::start(Limits { connection_life: life, connection_life_jitter: Duration::ZERO, ..Limits::default() });
    let node = fixture.node().await;
    let (mut connection, session) = node.session().await;
    let path = heartbeat_path(node.id, 3_000);
    assert!(connection.post::<HeartbeatResponse>(&path, &heartbeat(session, 1)).await.is_ok());
    let ended = tokio::time::timeout(PATIENCE, connection.task).await;
    assert!(ended.is_ok(), "the server closes it after the answer");
}

#[tokio::test]
async fn a_silent_connection_is_closed() {
    let fixture = Fixture::start(Limits { idle_timeout: Duration::from_secs(2), ..Limits::default() });
    let node = fixture.node().await;
    let (connection, _) = node.session().await;
    assert!(tokio::time::timeout(PATIENCE, connection.task).await.is_ok());
}

#[tokio::test]
async fn http_2_is_accepted() {
    let fixture = Fixture::start(Limits::default());
    let node = fixture.node().await;
    let (_, session) = node.session().await;
    let stream = node.client.clone().with_alpn("h2").open().await.unwrap();
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
    let (mut sender, connection) =
        hyper::client::conn::http2::handshake::<_, _, Full<Bytes>>(TokioExecutor::new(), TokioIo::new(stream))
            .await
            .unwrap();
    tokio::spawn(connection);
    let body = serde_json::to_vec(&heartbeat(session, 1)).unwrap();
    let request = Request::post(format!("https://127.0.0.1{}", node.heartbeat_path()))
        .header("content-type", "application/json")
        .body(Full::from(body))
        .unwrap();
    let response = sender.send_request(request).await.unwrap();
    assert_eq!(response.status().as_u16(), 200);
    assert!(!response.into_body().collect().await.unwrap().to_bytes().is_empty());
}

#[tokio::test]
async fn too_few_descriptors_refuse_the_start_and_say_what_is_missing() {
    let fixture = Fixture::start(Limits::default());
    let error = super::listener::ensure_descriptors(usize::MAX / 2).unwrap_err();
    assert!(matches!(error, StartError::Descriptors { .. }));
    assert!(error.to_string().contains("LimitNOFILE"), "{error}");
    drop(fixture);
}
