//! Tasks: the table of their moves, what is decided about them, and the envelope that carries them.
#![allow(clippy::unwrap_used, reason = "a test stops at what it cannot do")]

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use lattice_core::actor::Actor;
use lattice_core::agent::task::{
    AllocationCheckpoint, AllocationStart, AllocationStop, CheckpointHow, DrainMode, EDGES, Envelope, EraseMethod,
    Expected, GpuScrub, HeartbeatCheck, KeySet, Limits, Mount, NodeDrain, NodeReboot, NvmeErase, PAYLOAD_TYPE,
    Progress, RamScrub, Running, SigningKey, Statement, Task, TaskCause, TaskErrorCode, TaskEvent, TaskInput, TaskKind,
    TaskOutput, TaskOwner, TaskReport, TaskStatus, WipeEvidence, WipeOutput, pae,
};
use lattice_core::change::{Change, Commit, derive};
use lattice_core::command::task::{
    NewTask, cancelled, delivered, expired, is_deliverable, is_overdue, issue, reported,
};
use lattice_core::command::{Refused, Request};
use lattice_core::ids::{
    AllocationId, CorrelationId, Generation, IdSource, NodeId, OpId, OwnershipEpoch, SiteId, uuid_v7,
};
use lattice_core::node::{Availability, Node, NodeClass, NodeState, OnboardingMode, Status};
use lattice_core::secret::Secret;
use lattice_core::time::Timestamp;
use proptest::prelude::*;
use strum::VariantArray;

const NOW: Timestamp = Timestamp::from_millis(1_763_712_764_123);

struct Ids;

impl IdSource for Ids {
    fn uuid(&self, at: Timestamp) -> uuid::Uuid {
        uuid_v7(at, [7; 10])
    }
}

fn at(secs: u64) -> Timestamp {
    NOW + Duration::from_secs(secs)
}

fn request(now: Timestamp) -> Request<'static> {
    Request {
        actor: Actor::system("test"),
        reason: "why".to_owned(),
        now,
        ids: &Ids,
        op: OpId::generate(&Ids, now),
        correlation: CorrelationId::generate(&Ids, now),
    }
}

fn node() -> Node {
    Node {
        id: NodeId::new(uuid_v7(NOW, [1; 10])),
        hostname: "c01u01".to_owned(),
        site: SiteId::new(uuid_v7(NOW, [2; 10])),
        sku: "lab".to_owned(),
        class: NodeClass::Standard,
        mode: OnboardingMode::Manual,
        state: NodeState::new(Status::Active, Availability::Ready),
        status_since: NOW,
        availability_since: NOW,
        down_cause: None,
        deadline: None,
        boot_failures: 0,
        drain_intent: false,
        minor_issue: None,
        identity_epoch: 3,
        boot_id: None,
        agent_version: None,
        fingerprint: None,
        deviates_since: None,
        labels: lattice_core::node::Labels::new(),
        address: None,
        bmc_address: None,
        provider_ref: None,
        owning_job: None,
        holds: Vec::new(),
        ownership: lattice_core::allocation::Ownership::default(),
        created_at: NOW,
        updated_at: NOW,
        generation: Generation::FIRST,
    }
}

fn allocation(number: u8) -> AllocationId {
    AllocationId::new(uuid_v7(NOW, [number; 10]))
}

fn start() -> AllocationStart {
    AllocationStart {
        allocation: allocation(9),
        ownership_epoch: OwnershipEpoch(4),
        argv: vec!["/usr/bin/train".to_owned(), "--fast".to_owned()],
        env: BTreeMap::from([("HOME".to_owned(), "/".to_owned())]),
        directory: None,
        user: None,
        limits: Limits::default(),
        mounts: Vec::new(),
    }
}

/// One input of each kind.
fn input(kind: TaskKind) -> TaskInput {
    match kind {
        TaskKind::NodeDrain => TaskInput::NodeDrain(NodeDrain { mode: DrainMode::Begin }),
        TaskKind::AllocationStart => TaskInput::AllocationStart(start()),
        TaskKind::AllocationStop => TaskInput::AllocationStop(AllocationStop {
            allocation: allocation(9),
            ownership_epoch: OwnershipEpoch(4),
            grace_ms: 30_000,
        }),
        TaskKind::AllocationCheckpoint => TaskInput::AllocationCheckpoint(AllocationCheckpoint {
            allocation: allocation(9),
            ownership_epoch: OwnershipEpoch(4),
            how: CheckpointHow::Signal { number: 10, done_file: None },
            timeout_ms: 60_000,
        }),
        TaskKind::GpuScrub => TaskInput::GpuScrub(GpuScrub { gpus: 2 }),
        TaskKind::NvmeErase => TaskInput::NvmeErase(NvmeErase {
            devices: BTreeSet::from(["nvme1n1".to_owned()]),
            keep: BTreeSet::from(["nvme0n1".to_owned()]),
            method: EraseMethod::Crypto,
        }),
        TaskKind::RamScrub => TaskInput::RamScrub(RamScrub { reserve_mib: 512 }),
        TaskKind::HeartbeatCheck => TaskInput::HeartbeatCheck(HeartbeatCheck {}),
        TaskKind::NodeReboot => TaskInput::NodeReboot(NodeReboot { boot_id: "boot-1".to_owned() }),
    }
}

fn issued(kind: TaskKind) -> (Task, Commit) {
    let new =
        NewTask { node: &node(), owner: TaskOwner::Request, key: "key".to_owned(), input: input(kind), term: None };
    issue(&request(NOW), new, [5; 16]).unwrap()
}

fn in_status(status: TaskStatus) -> Task {
    Task { status, ..issued(TaskKind::NodeDrain).0 }
}

fn report(task: &Task, progress: Progress) -> TaskReport {
    TaskReport { task: task.id, at: NOW, progress }
}

fn done() -> Progress {
    Progress::Succeeded { output: TaskOutput::Drain { running: Vec::new() } }
}

fn evidence(device: &str) -> WipeEvidence {
    WipeEvidence {
        device: device.to_owned(),
        model: "M".to_owned(),
        serial: "S".to_owned(),
        bytes: Some(1),
        method: "crypto".to_owned(),
        tool: "/usr/sbin/nvme".to_owned(),
        tool_version: "2.8".to_owned(),
        exit_code: 0,
        status_before: "in use".to_owned(),
        status_after: "erased".to_owned(),
        started_at: at(1),
        finished_at: at(2),
    }
}

#[test]
fn every_open_status_ends_and_no_final_one_moves() {
    for status in TaskStatus::VARIANTS {
        let moves = EDGES.iter().filter(|edge| edge.from == *status).count();
        assert_eq!(moves == 0, status.is_final(), "{status}");
        if !status.is_final() {
            for event in [TaskEvent::Succeed, TaskEvent::Fail, TaskEvent::Expire] {
                assert!(status.next(event).unwrap().is_final(), "{status} {event}");
            }
        }
    }
}

#[test]
fn every_pair_of_status_and_event_is_an_edge_or_is_refused() {
    for from in TaskStatus::VARIANTS {
        for event in TaskEvent::VARIANTS {
            let edges: Vec<_> = EDGES.iter().filter(|edge| edge.from == *from && edge.event == *event).collect();
            assert!(edges.len() <= 1, "{from} {event} is ambiguous");
            assert_eq!(from.next(*event).ok(), edges.first().map(|edge| edge.to));
        }
    }
}

#[test]
fn kinds_have_one_spelling_and_survive_json() {
    for kind in TaskKind::VARIANTS {
        let input = input(*kind);
        assert_eq!(input.kind(), *kind);
        input.check().unwrap();
        let json = serde_json::to_value(&input).unwrap();
        assert_eq!(json["kind"], kind.to_string());
        assert_eq!(serde_json::from_value::<TaskInput>(json).unwrap(), input);
        assert_eq!(kind.to_string().parse::<TaskKind>().unwrap(), *kind);
        assert_eq!(serde_json::to_value(kind).unwrap(), kind.to_string());
    }
}

#[test]
fn a_task_is_issued_with_its_term_and_seen_in_history_audit_and_events() {
    let (task, commit) = issued(TaskKind::HeartbeatCheck);
    assert_eq!((task.status, task.node_epoch, task.expires_at), (TaskStatus::Pending, 3, at(60)));
    assert_eq!(task.finish_by, at(120));
    let derived = derive(&commit, &commit.changes[0]);
    assert_eq!(derived.events[0].name, "task.issued");
    assert_eq!(derived.events[0].node, Some(task.node), "it is in its node's stream");
    assert_eq!(derived.audit.unwrap().action, "task.issued");
}

#[test]
fn a_task_that_no_envelope_holds_is_not_issued() {
    let argv = vec![format!("/{}", "x".repeat(8_000)); 7];
    let input = TaskInput::AllocationStart(AllocationStart { argv, ..start() });
    input.check().unwrap();
    let new = NewTask { node: &node(), owner: TaskOwner::Request, key: "key".to_owned(), input, term: None };
    assert!(matches!(issue(&request(NOW), new, [5; 16]), Err(Refused::Invalid { field: "input", .. })));
}

#[test]
fn events_of_a_task_do_not_tell_its_arguments() {
    let (_, commit) = issued(TaskKind::AllocationStart);
    let derived = derive(&commit, &commit.changes[0]);
    let told = serde_json::to_string(&(&derived.events, &derived.audit)).unwrap();
    assert!(!told.contains("/usr/bin/train") && !told.contains("HOME"), "{told}");
}

#[test]
fn inputs_that_cannot_be_right_are_refused_with_the_field() {
    let with = |change: &dyn Fn(&mut AllocationStart)| {
        let mut start = start();
        change(&mut start);
        TaskInput::AllocationStart(start).check().unwrap_err().field
    };
    let mount = |target: &str| Mount { source: "/data".to_owned(), target: target.to_owned(), read_only: true };
    assert_eq!(with(&|start| start.argv.clear()), "argv");
    assert_eq!(with(&|start| start.argv[0] = "train".to_owned()), "argv");
    assert_eq!(with(&|start| start.argv[0] = "/usr/../bin/sh".to_owned()), "argv");
    assert_eq!(with(&|start| start.argv.push("a\0b".to_owned())), "argv");
    assert_eq!(with(&|start| start.argv = vec!["/x".to_owned(); 257]), "argv");
    for name in ["LD_PRELOAD", "1ST", "A B", ""] {
        assert_eq!(with(&|start| drop(start.env.insert(name.to_owned(), "x".to_owned()))), "env", "{name}");
    }
    assert_eq!(with(&|start| start.directory = Some("work".to_owned())), "directory");
    assert_eq!(with(&|start| start.limits.pids = Some(0)), "limits");
    for target in ["/", "relative", "/a/../b"] {
        assert_eq!(with(&|start| start.mounts = vec![mount(target)]), "mounts.target", "{target}");
    }
    assert_eq!(with(&|start| start.mounts = vec![mount("/mnt"), mount("/mnt")]), "mounts.target");
    let erase = |device: &str, keep: &str| {
        let named = |name: &str| BTreeSet::from([name.to_owned()]);
        TaskInput::NvmeErase(NvmeErase { devices: named(device), keep: named(keep), method: EraseMethod::UserData })
            .check()
            .unwrap_err()
            .field
    };
    assert_eq!(erase("sda", "nvme0n1"), "devices");
    assert_eq!(erase("nvme0n1/../sda", "nvme0n1"), "devices");
    assert_eq!(erase("nvme0n1", "nvme0n1"), "keep", "what is kept is not erased");
}

#[test]
fn a_task_is_handed_over_once_and_again_only_when_nobody_answered() {
    let (task, _) = issued(TaskKind::NodeDrain);
    assert!(is_deliverable(&task, 3, NOW));
    assert!(!is_deliverable(&task, 4, NOW), "the node has another identity");
    assert!(!is_deliverable(&task, 3, task.expires_at));
    let sent = delivered(&request(at(1)), &task).unwrap().after;
    assert_eq!((sent.status, sent.delivered_at, sent.generation), (TaskStatus::Delivered, Some(at(1)), Generation(2)));
    assert!(!is_deliverable(&sent, 3, at(15)));
    assert!(is_deliverable(&sent, 3, at(16)));
    for status in [TaskStatus::Running, TaskStatus::Succeeded, TaskStatus::Expired] {
        assert!(!is_deliverable(&in_status(status), 3, NOW), "{status}");
    }
}

#[test]
fn the_same_report_twice_changes_nothing_and_another_one_is_refused() {
    let task = in_status(TaskStatus::Delivered);
    let running = reported(&request(at(1)), &task, &report(&task, Progress::Running)).unwrap().unwrap();
    assert_eq!((running.after.status, running.cause), (TaskStatus::Running, TaskCause::Started));
    let task = running.after;
    assert_eq!(reported(&request(at(2)), &task, &report(&task, Progress::Running)).unwrap(), None);
    let over = reported(&request(at(3)), &task, &report(&task, done())).unwrap().unwrap().after;
    assert_eq!((over.status, over.finished_at, over.started_at), (TaskStatus::Succeeded, Some(at(3)), Some(at(1))));
    let again = TaskReport { at: at(9), ..report(&over, done()) };
    assert_eq!(reported(&request(at(4)), &over, &again).unwrap(), None, "sent again, at another time");
    assert_eq!(reported(&request(at(4)), &over, &report(&over, Progress::Running)).unwrap(), None, "overtaken");
    let other = report(&over, Progress::failed(TaskErrorCode::EffectFailed, "no"));
    assert!(matches!(reported(&request(at(5)), &over, &other), Err(Refused::TaskOver { .. })));
}

#[test]
fn a_report_after_the_end_of_patience_is_kept_once() {
    for status in [TaskStatus::Expired, TaskStatus::Cancelled] {
        let task = in_status(status);
        let late = reported(&request(at(1)), &task, &report(&task, done())).unwrap().unwrap();
        assert_eq!((late.cause, late.after.status), (TaskCause::ReportedLate, status));
        assert_eq!(reported(&request(at(2)), &late.after, &report(&task, done())).unwrap(), None);
        let other = report(&task, Progress::failed(TaskErrorCode::EffectFailed, "no"));
        assert!(reported(&request(at(2)), &late.after, &other).is_err());
    }
}

#[test]
fn an_output_of_another_kind_is_refused() {
    let task = Task { input: input(TaskKind::NodeReboot), ..in_status(TaskStatus::Running) };
    let refused = reported(&request(at(1)), &task, &report(&task, done())).unwrap_err();
    assert!(matches!(refused, Refused::Invalid { field: "output", .. }), "{refused}");
}

#[test]
fn a_wipe_reported_as_done_without_evidence_is_refused() {
    let task = Task { input: input(TaskKind::NvmeErase), ..in_status(TaskStatus::Running) };
    let say = |inventory: &[&str], evidence: Vec<WipeEvidence>| {
        let inventory = inventory.iter().map(|name| (*name).to_owned()).collect();
        let output = TaskOutput::NvmeErase(WipeOutput { inventory, evidence });
        reported(&request(at(1)), &task, &report(&task, Progress::Succeeded { output }))
            .map(|change| change.unwrap().after.status)
            .map_err(|refused| refused.to_string())
    };
    let weak = |change: &dyn Fn(&mut WipeEvidence)| {
        let mut one = evidence("nvme1n1");
        change(&mut one);
        say(&["nvme0n1", "nvme1n1"], vec![one]).unwrap_err()
    };
    assert_eq!(say(&["nvme0n1", "nvme1n1"], vec![evidence("nvme1n1")]), Ok(TaskStatus::Succeeded));
    assert!(say(&["nvme0n1", "nvme1n1"], vec![]).unwrap_err().contains("nothing proves that nvme1n1"));
    assert!(say(&["nvme0n1"], vec![]).unwrap_err().contains("nvme1n1"), "a drive that hides is not wiped");
    let hidden = say(&["nvme0n1", "nvme1n1", "nvme2n1"], vec![evidence("nvme1n1")]).unwrap_err();
    assert!(hidden.contains("nvme2n1"), "a drive that the host shows is to be covered: {hidden}");
    assert!(weak(&|one| one.exit_code = 1).contains("tool failed"));
    assert!(weak(&|one| one.tool_version.clear()).contains("version"));
    assert!(weak(&|one| one.status_after.clear()).contains("said of itself"));
    assert!(weak(&|one| one.bytes = Some(0)).contains("nothing was wiped"));
    assert!(weak(&|one| one.finished_at = NOW).contains("ends before"));
}

#[test]
fn fewer_gpus_than_expected_are_not_a_wipe() {
    let output =
        WipeOutput { inventory: BTreeSet::from(["0000:05:00.0".to_owned()]), evidence: vec![evidence("0000:05:00.0")] };
    assert!(output.proves(&TaskInput::GpuScrub(GpuScrub { gpus: 1 })).is_ok());
    assert!(output.proves(&TaskInput::GpuScrub(GpuScrub { gpus: 2 })).is_err());
    assert!(WipeOutput { evidence: Vec::new(), ..output.clone() }.proves(&input(TaskKind::RamScrub)).is_err());
    assert!(output.proves(&input(TaskKind::NodeDrain)).is_err());
}

#[test]
fn what_was_not_begun_expires_and_what_was_gets_time_to_report() {
    let (task, _) = issued(TaskKind::NodeDrain);
    assert!(expired(&request(at(299)), &task).is_none());
    let over = expired(&request(at(300)), &task).unwrap();
    assert_eq!((over.after.status, over.after.finished_at), (TaskStatus::Expired, Some(at(300))));
    let running = Task { status: TaskStatus::Running, ..task.clone() };
    assert!(!is_overdue(&running, at(359)));
    assert!(is_overdue(&running, at(360)));
    assert!(expired(&request(at(9_999)), &over.after).is_none());
}

#[test]
fn only_what_no_agent_has_is_withdrawn() {
    let (task, _) = issued(TaskKind::NodeDrain);
    let over = cancelled(&request(at(1)), &task).unwrap().unwrap().after;
    assert_eq!(over.status, TaskStatus::Cancelled);
    assert_eq!(cancelled(&request(at(2)), &over).unwrap(), None);
    for status in [TaskStatus::Delivered, TaskStatus::Running, TaskStatus::Succeeded] {
        assert!(matches!(cancelled(&request(at(1)), &in_status(status)), Err(Refused::TaskOver { .. })), "{status}");
    }
}

fn key(number: u8) -> SigningKey {
    SigningKey::from_seed(&Secret::new(vec![number; 32])).unwrap()
}

fn trusted() -> KeySet {
    KeySet::new(&[key(1).public(), key(2).public()])
}

fn expected(now: Timestamp) -> Expected {
    Expected { node: node().id, node_epoch: Some(3), now }
}

fn refused(envelope: &Envelope, expected: Expected) -> TaskErrorCode {
    trusted().open(envelope, expected).unwrap_err().0
}

#[test]
fn the_encoding_is_the_one_of_dsse() {
    // From the specification's own example.
    let encoded = pae("http://example.com/HelloWorld", b"hello world");
    assert_eq!(encoded, b"DSSEv1 29 http://example.com/HelloWorld 11 hello world");
}

#[test]
fn a_sealed_task_is_opened_by_its_node_alone_while_it_may_be_begun() {
    for kind in TaskKind::VARIANTS {
        let statement = issued(*kind).0.statement();
        let envelope = key(1).seal(&statement);
        assert_eq!(trusted().open(&envelope, expected(at(1))).unwrap(), statement, "{kind}");
        assert_eq!(key(1).seal(&statement), envelope, "the same each time");
    }
    let task = issued(TaskKind::NodeDrain).0;
    let envelope = key(2).seal(&task.statement());
    let other = Expected { node: NodeId::new(uuid_v7(NOW, [8; 10])), ..expected(NOW) };
    assert_eq!(refused(&envelope, other), TaskErrorCode::WrongNode);
    assert_eq!(refused(&envelope, Expected { node_epoch: Some(4), ..expected(NOW) }), TaskErrorCode::StaleEpoch);
    assert!(trusted().open(&envelope, Expected { node_epoch: None, ..expected(NOW) }).is_ok());
    assert_eq!(refused(&envelope, expected(task.expires_at)), TaskErrorCode::Expired);
    let early = Timestamp::from_millis(NOW.as_millis() - 300_001);
    assert_eq!(refused(&envelope, expected(early)), TaskErrorCode::NotYetValid);
    assert!(trusted().open(&envelope, expected(NOW - Duration::from_secs(300))).is_ok(), "clocks differ");
    assert_eq!(refused(&key(3).seal(&task.statement()), expected(NOW)), TaskErrorCode::UnknownKey);
}

#[test]
fn each_forgery_has_its_own_answer() {
    use base64::Engine;
    let statement = issued(TaskKind::NodeDrain).0.statement();
    let json = serde_json::to_value(&statement).unwrap();
    let sealed = |change: &dyn Fn(&mut serde_json::Value)| {
        let mut json = json.clone();
        change(&mut json);
        key(1).seal_bytes(PAYLOAD_TYPE, &serde_json::to_vec(&json).unwrap())
    };
    let good = key(1).seal(&statement);
    let mut claimed = good.clone();
    claimed.signatures[0].keyid = key(2).public().key_id;
    assert_eq!(refused(&claimed, expected(NOW)), TaskErrorCode::BadSignature, "another trusted key's name");
    let mut lent = key(1).seal(&Statement { nonce: "0".repeat(32), ..statement.clone() });
    lent.signatures = good.signatures.clone();
    assert_eq!(refused(&lent, expected(NOW)), TaskErrorCode::BadSignature, "the signature of another task");
    let retyped = key(1).seal_bytes("text/plain", &serde_json::to_vec(&json).unwrap());
    assert_eq!(refused(&retyped, expected(NOW)), TaskErrorCode::Malformed);
    let passed_off = Envelope { payload_type: PAYLOAD_TYPE.to_owned(), ..retyped };
    assert_eq!(refused(&passed_off, expected(NOW)), TaskErrorCode::BadSignature, "signed as something else");
    let unsigned = Envelope { signatures: Vec::new(), ..good.clone() };
    assert_eq!(refused(&unsigned, expected(NOW)), TaskErrorCode::UnknownKey);
    let future = sealed(&|json| json["kind"] = "node.teleport".into());
    assert_eq!(refused(&future, expected(NOW)), TaskErrorCode::UnknownKind);
    assert_eq!(refused(&sealed(&|json| json["nonce"] = "short".into()), expected(NOW)), TaskErrorCode::Malformed);
    assert_eq!(refused(&sealed(&|json| json["node"] = 7.into()), expected(NOW)), TaskErrorCode::Malformed);
    assert_eq!(refused(&sealed(&|json| *json = 7.into()), expected(NOW)), TaskErrorCode::Malformed);
    let wrong = sealed(&|json| {
        json["kind"] = "allocation.stop".into();
        json["input"] = serde_json::json!({
            "allocation": allocation(1), "ownership_epoch": 1, "grace_ms": u64::MAX
        });
    });
    assert_eq!(refused(&wrong, expected(NOW)), TaskErrorCode::InvalidInput);
    let huge = base64::engine::general_purpose::STANDARD.encode(vec![b' '; 70_000]);
    assert_eq!(refused(&Envelope { payload: huge, ..good.clone() }, expected(NOW)), TaskErrorCode::Malformed);
    let many = Envelope { signatures: vec![good.signatures[0].clone(); 5], ..good };
    assert_eq!(refused(&many, expected(NOW)), TaskErrorCode::Malformed);
}

#[test]
fn during_a_rotation_either_key_is_enough() {
    let statement = issued(TaskKind::NodeDrain).0.statement();
    let mut both = key(1).seal(&statement);
    both.signatures.extend(key(3).seal(&statement).signatures);
    both.signatures.reverse();
    assert!(KeySet::new(&[key(1).public()]).open(&both, expected(NOW)).is_ok());
    assert!(KeySet::new(&[key(3).public()]).open(&both, expected(NOW)).is_ok());
}

#[test]
fn what_a_task_said_survives_json() {
    let task = in_status(TaskStatus::Running);
    let running = vec![Running { allocation: allocation(1), ownership_epoch: OwnershipEpoch(2) }];
    for progress in [
        Progress::Running,
        Progress::Succeeded { output: TaskOutput::Drain { running } },
        Progress::Succeeded {
            output: TaskOutput::RamScrub(WipeOutput { inventory: BTreeSet::new(), evidence: vec![evidence("memory")] }),
        },
        Progress::failed(TaskErrorCode::MissingCapability, "no nvme"),
    ] {
        let report = report(&task, progress);
        let json = serde_json::to_string(&report).unwrap();
        assert_eq!(serde_json::from_str::<TaskReport>(&json).unwrap(), report, "{json}");
    }
    let row = Task { report: Some(report(&task, done())), ..task };
    let json = serde_json::to_string(&row).unwrap();
    assert_eq!(serde_json::from_str::<Task>(&json).unwrap(), row);
    assert!(matches!(issued(TaskKind::NodeDrain).1.changes[0], Change::Task(_)));
}

#[test]
fn a_detail_is_cut_between_letters() {
    let Progress::Failed { detail, .. } = Progress::failed(TaskErrorCode::EffectFailed, "ä".repeat(3_000)) else {
        panic!("it failed")
    };
    assert_eq!(detail.chars().count(), 1_024);
}

proptest! {
    #[test]
    fn no_changed_byte_of_an_envelope_is_accepted(at in any::<prop::sample::Index>(), mask in 1u8..=255) {
        let envelope = key(1).seal(&issued(TaskKind::AllocationStart).0.statement());
        let mut bytes = serde_json::to_vec(&envelope).unwrap();
        let at = at.index(bytes.len());
        bytes[at] ^= mask;
        if let Ok(changed) = serde_json::from_slice::<Envelope>(&bytes) {
            // A change that the encoding does not carry, such as an ignored field's name, cannot happen: all fields are needed.
            let opened = trusted().open(&changed, expected(NOW));
            prop_assert!(opened.is_err() || changed == envelope, "{changed:?}");
        }
    }

    #[test]
    fn no_nonsense_is_taken_for_a_task(payload in prop::collection::vec(any::<u8>(), 0..512)) {
        prop_assert!(trusted().open(&key(1).seal_bytes(PAYLOAD_TYPE, &payload), expected(NOW)).is_err());
    }

    #[test]
    fn whatever_is_said_a_task_ends_at_most_once(says in prop::collection::vec(0u8..6, 1..20)) {
        let (mut task, _) = issued(TaskKind::NodeDrain);
        let mut ended: Option<TaskStatus> = None;
        for (step, say) in says.into_iter().enumerate() {
            let now = at(step as u64 * 40);
            let report = |progress| report(&task, progress);
            let change = match say {
                0 => delivered(&request(now), &task),
                1 => reported(&request(now), &task, &report(Progress::Running)).unwrap_or(None),
                2 => reported(&request(now), &task, &report(done())).unwrap_or(None),
                3 => {
                    let no = Progress::failed(TaskErrorCode::EffectFailed, "no");
                    reported(&request(now), &task, &report(no)).unwrap_or(None)
                }
                4 => expired(&request(now), &task),
                _ => cancelled(&request(now), &task).unwrap_or(None),
            };
            if let Some(change) = change {
                prop_assert_eq!(change.before, Some(task.status));
                prop_assert_eq!(change.after.generation, task.generation.next());
                task = change.after;
            }
            prop_assert!(ended.is_none_or(|ended| ended == task.status));
            if task.status.is_final() {
                prop_assert!(task.finished_at.is_some());
                ended = Some(task.status);
            }
        }
    }
}
