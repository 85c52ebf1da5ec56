//! What is printed about tasks of agents and the keys that sign them.

#![allow(clippy::unwrap_used, reason = "a test stops at what it cannot do")]

mod recorded;

use recorded::bodies::NODE;
use recorded::{Recorded, ok};
use serde_json::{Value, json};

const FAILED: &str = "0190c2a4-7d1e-7c3a-9b1f-2f6d1c0a5e21";
const DONE: &str = "0190c2a4-7d1e-7c3a-9b1f-2f6d1c0a5e22";

fn row(id: &str, kind: &str, status: &str) -> Value {
    json!({
        "id": id, "node_id": NODE, "kind": kind, "status": status, "owner": {"for": "request"},
        "issued_at": "2026-11-21T09:10:00.000Z", "expires_at": "2026-11-21T09:20:00.000Z",
        "delivered_at": "2026-11-21T09:10:01.000Z", "started_at": "2026-11-21T09:10:01.000Z",
        "finished_at": "2026-11-21T09:10:05.000Z",
    })
}

fn failed() -> Value {
    let mut row = row(FAILED, "node.nvme_erase", "failed");
    row["error_code"] = "missing_capability".into();
    row["error"] = "`nvme` is not installed on this host".into();
    row
}

#[test]
fn tasks_of_a_node_are_listed_with_what_went_wrong() {
    let rows = json!({"items": [failed(), row(DONE, "node.heartbeat_check", "succeeded")]});
    let server = Recorded::new(&[("GET /api/v1/admin/nodes/c07u43/tasks", &[ok(rows)])]);
    insta::assert_snapshot!(server.lattice("node tasks c07u43 --status failed"));
    assert!(server.seen()[0].line.contains("status=failed"), "{}", server.seen()[0].line);
}

#[test]
fn a_task_is_shown_with_what_it_was_asked_and_what_its_agent_said() {
    let mut view = row(DONE, "node.drain", "succeeded");
    view["key"] = "job/0190/drain".into();
    view["input"] = json!({"mode": "begin"});
    view["finish_by"] = "2026-11-21T09:21:00.000Z".into();
    view["requested_by"] = "ops".into();
    view["report"] = json!({
        "task": DONE, "at": "2026-11-21T09:10:05.000Z", "state": "succeeded",
        "output": {"kind": "node.drain", "result": {"running": []}},
    });
    let server = Recorded::new(&[(&format!("GET /api/v1/admin/tasks/{DONE}"), &[ok(view)])]);
    insta::assert_snapshot!(server.lattice(&format!("node task {DONE}")));
}

#[test]
fn keys_that_sign_tasks_are_shown_and_replaced() {
    let keys = json!({
        "current": {"key_id": "0123456789abcdef", "public_key": "QUJD"},
        "retired": [{"key_id": "fedcba9876543210", "public_key": "REVG", "until": "2026-11-21T09:30:00.000Z"}],
    });
    let server = Recorded::new(&[("POST /api/v1/admin/task-signing-keys/rotate", &[ok(keys)])]);
    insta::assert_snapshot!(server.lattice("server keys rotate-task-signing --reason yearly"));
    assert!(server.seen()[0].body.contains("yearly"));
}
