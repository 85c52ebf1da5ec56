//! What every command prints: success, refusal and JSON, over recorded bodies.

#![allow(clippy::unwrap_used, reason = "a test stops at what it cannot do")]

mod recorded;

use recorded::bodies::{self, JOB, NODE};
use recorded::{Recorded, Run, ok, refused, text};
use serde_json::json;

const NODES: &str = "GET /api/v1/admin/nodes";
const ONE_NODE: &str = "GET /api/v1/admin/nodes/c07u43";

fn job_path(rest: &str) -> String {
    format!("/api/v1/admin/jobs/{JOB}{rest}")
}

fn nodes() -> Recorded {
    Recorded::new(&[(NODES, &[ok(json!({"items": [bodies::node_row(), bodies::lost_row()], "next": "c2"}))])])
}

#[test]
fn nodes_are_listed_for_people() {
    insta::assert_snapshot!(nodes().lattice("node list --state degraded --site dc1"));
}

#[test]
fn a_wide_list_has_more_columns() {
    insta::assert_snapshot!(nodes().lattice("node list -w"));
}

#[test]
fn a_list_of_names_is_for_scripts() {
    let run = nodes().lattice("node list -o name");
    assert_eq!((run.status, run.stdout.as_str(), run.stderr.as_str()), (0, "c07u43\nc07u44\n", ""));
}

#[test]
fn json_is_the_body_unchanged() {
    let body = "{\"items\": [],  \"from_the_future\": 1}";
    let server = Recorded::new(&[(NODES, &[text("application/json", body)])]);
    let run = server.lattice("node list -o json");
    assert_eq!((run.status, run.stdout.as_str(), run.stderr.as_str()), (0, &*format!("{body}\n"), ""));
}

#[test]
fn yaml_says_the_same() {
    insta::assert_snapshot!(nodes().lattice("node list -o yaml").stdout.lines().take(6).collect::<Vec<_>>().join("\n"));
}

#[test]
fn filters_and_the_token_reach_the_server() {
    let server = nodes();
    server.lattice("node list --state=degraded --status active --limit 5 --prefix c07");
    let request = &server.seen()[0];
    assert_eq!(request.header("authorization"), Some("Bearer lat_api_test"));
    for part in ["state=degraded", "status=active", "limit=5", "hostname_prefix=c07"] {
        assert!(request.line.contains(part), "{}", request.line);
    }
}

#[test]
fn a_word_that_is_none_is_refused_before_anything_is_sent() {
    let server = nodes();
    insta::assert_snapshot!(server.lattice("node list --status brandnew"));
    assert!(server.seen().is_empty());
}

#[test]
fn a_node_is_shown_whole() {
    let server = Recorded::new(&[(ONE_NODE, &[ok(bodies::node())])]);
    insta::assert_snapshot!(server.lattice("node show c07u43"));
}

#[test]
fn the_status_of_a_node_says_why_it_is_not_schedulable() {
    let node = bodies::with(
        bodies::node(),
        json!({"status": "enrolling", "availability": "unknown", "schedulable": false, "explanation": bodies::explanation()}),
    );
    let server = Recorded::new(&[(ONE_NODE, &[ok(node)])]);
    insta::assert_snapshot!(server.lattice("node status c07u43"));
}

#[test]
fn health_that_is_old_or_not_known_here_is_said_to_be() {
    let said = |health| {
        let node = bodies::with(bodies::node(), json!({"health": health, "allocations": []}));
        Recorded::new(&[(ONE_NODE, &[ok(node)])]).lattice("node status c07u43")
    };
    let old = json!({
        "said": {
            "at": "2026-11-21T09:10:44.000Z", "age_ms": 300_000, "gpus": 7, "ecc_uncorrected": 2, "minor_issue": true,
            "allocations": 0,
        },
        "caveat": "5 min old: no heartbeat since", "gpus_expected": 8,
    });
    insta::assert_snapshot!(said(old));
    let caveat = "not known here: this server has not heard it since it started; another one may";
    insta::assert_snapshot!(said(json!({"caveat": caveat, "gpus_expected": 8})));
}

#[test]
fn a_node_that_is_not_there_is_a_refusal() {
    insta::assert_snapshot!(nodes().lattice("node show c99"));
}

#[test]
fn creating_a_node_prints_the_bootstrap_command_alone() {
    let body = json!({
        "node_id": NODE, "job_id": JOB, "expires_at": "2026-11-21T11:15:44.000Z",
        "command": "curl -fsS https://lattice.dc1:7443/bootstrap | sh -s -- lat_enroll_x",
    });
    let server = Recorded::new(&[("POST /api/v1/admin/nodes", &[ok(body)])]);
    insta::assert_snapshot!(server.lattice("node create c07u43 --sku lxd"));
    let request = &server.seen()[0];
    assert_eq!(request.body, r#"{"hostname":"c07u43","sku":"lxd","reason":""}"#);
    assert!(request.header("idempotency-key").is_some_and(|key| key.len() == 32));
}

fn drain() -> Recorded {
    Recorded::new(&[("POST /api/v1/admin/nodes/c07u43/drain", &[ok(bodies::drained(true))])])
}

#[test]
fn an_urgent_drain_asks_first() {
    let server = drain();
    insta::assert_snapshot!(server.lattice("node drain c07u43 --urgent"));
    assert!(server.seen().is_empty(), "nothing is sent without a confirmation");
}

#[test]
fn an_urgent_drain_that_is_confirmed_is_done() {
    let server = drain();
    insta::assert_snapshot!(server.lattice("node drain c07u43 --urgent --yes --reason riser"));
    assert_eq!(server.seen()[0].body, r#"{"reason":"riser","urgent":true}"#);
}

#[test]
fn drives_are_named_and_their_erasure_is_confirmed() {
    let path = "POST /api/v1/admin/nodes/c07u43/secure-erase";
    let server = Recorded::new(&[(path, &[ok(bodies::drained(true))])]);
    assert_eq!(server.lattice("node secure-erase c07u43 --yes").status, 1, "which drives?");
    assert_eq!(server.lattice("node secure-erase c07u43 --drive all").status, 1, "nobody confirmed it");
    assert!(server.seen().is_empty(), "{:?}", server.seen());
    assert_eq!(server.lattice("node secure-erase c07u43 --drive /a --drive /b --powered-on --yes").status, 0);
    assert_eq!(server.seen()[0].body, r#"{"reason":"","drives":["/a","/b"],"powered_on":true}"#);
}

#[test]
fn a_plain_drain_does_not_ask() {
    let server = drain();
    assert_eq!(server.lattice("node drain c07u43").status, 0);
    assert_eq!(server.seen()[0].body, r#"{"reason":""}"#);
}

#[test]
fn a_drain_that_runs_is_changed_and_says_so() {
    let changed = bodies::redrained();
    let server = Recorded::new(&[("POST /api/v1/admin/nodes/c07u43/drain", &[ok(changed.clone()), ok(changed)])]);
    insta::assert_snapshot!(server.lattice("node drain c07u43 --deadline 30m --yes"));
    assert_eq!(server.seen()[0].body, r#"{"reason":"","deadline_ms":1800000}"#);
    assert_eq!(server.lattice("node drain c07u43 --no-deadline").status, 0, "it disturbs nobody");
    assert_eq!(server.seen()[1].body, r#"{"reason":"","no_deadline":true}"#);
    assert_ne!(server.lattice("node drain c07u43 --no-deadline --deadline 5m").status, 0);
}

#[test]
fn a_dry_run_does_not_ask_and_says_would() {
    let server = Recorded::new(&[("POST /api/v1/admin/nodes/c07u43/drain", &[ok(bodies::drained(false))])]);
    insta::assert_snapshot!(server.lattice("node drain c07u43 --urgent --dry-run"));
}

#[test]
fn only_what_disturbs_work_needs_a_confirmation() {
    let rows = [
        ("drain", true),
        ("drain --urgent", false),
        ("undrain", true),
        ("disable", false),
        ("enable", true),
        ("reboot", true),
        ("reset", true),
        ("retire", true),
        ("reactivate", true),
        ("remove", false),
        ("quarantine", true),
        ("recover", true),
        ("resume", true),
        ("withdraw", true),
        ("revoke-certificate", false),
    ];
    for (words, sent) in rows {
        let verb = words.split(' ').next().unwrap();
        let server =
            Recorded::new(&[(&format!("POST /api/v1/admin/nodes/c07u43/{verb}"), &[refused(409, bodies::leased())])]);
        let run = server.lattice(&format!("node {words} c07u43"));
        assert_eq!(run.status, 1, "{words}: {run}");
        assert_eq!(!server.seen().is_empty(), sent, "{words}: {run}");
    }
}

#[test]
fn waiting_for_a_drain_follows_its_job() {
    let server = Recorded::new(&[
        ("POST /api/v1/admin/nodes/c07u43/drain", &[ok(bodies::drained(true))]),
        (&format!("GET {}", job_path("")), &[ok(bodies::job()), ok(bodies::job_completed())]),
    ]);
    insta::assert_snapshot!(server.lattice("node drain c07u43 --wait"));
}

#[test]
fn waiting_ends_at_the_deadline() {
    let server = Recorded::new(&[(&format!("GET {}", job_path("")), &[ok(bodies::job())])]);
    insta::assert_snapshot!(server.lattice(&format!("job watch {JOB} --timeout 5s")));
}

#[test]
fn explaining_a_node_reads_like_the_design() {
    let server = Recorded::new(&[("GET /api/v1/admin/nodes/c07u43/explain", &[ok(bodies::explanation())])]);
    insta::assert_snapshot!(server.lattice("explain node c07u43"));
}

#[test]
fn jobs_are_listed() {
    let server = Recorded::new(&[("GET /api/v1/admin/jobs", &[ok(json!({"items": [bodies::job_row()]}))])]);
    insta::assert_snapshot!(server.lattice("job list --status live"));
}

#[test]
fn a_job_is_shown_with_its_stages() {
    let server = Recorded::new(&[(&format!("GET {}", job_path("")), &[ok(bodies::job())])]);
    insta::assert_snapshot!(server.lattice(&format!("job show {JOB}")));
}

#[test]
fn a_job_that_failed_is_shown_with_what_to_do() {
    let server = Recorded::new(&[(&format!("GET {}", job_path("")), &[ok(bodies::job_failed())])]);
    insta::assert_snapshot!(server.lattice(&format!("job get {JOB}")));
}

#[test]
fn watching_a_job_that_fails_is_a_failure() {
    let server = Recorded::new(&[(&format!("GET {}", job_path("")), &[ok(bodies::job()), ok(bodies::job_failed())])]);
    insta::assert_snapshot!(server.lattice(&format!("job watch {JOB}")));
}

fn resume() -> Recorded {
    let answer = json!({"changed": true, "job": bodies::job()});
    Recorded::new(&[(&format!("POST {}", job_path("/resume")), &[ok(answer)])])
}

#[test]
fn a_decision_goes_with_the_action() {
    let server = resume();
    insta::assert_snapshot!(server.lattice(&format!("job resume {JOB} --boot-disk nvme0n1")));
    let body: serde_json::Value = serde_json::from_str(&server.seen()[0].body).unwrap();
    assert_eq!(body["decisions"]["boot_disk"], "nvme0n1");
    server.lattice(&format!("job resume {JOB} --decide release-deployed=true --decide machine=x7k2mp"));
    let body: serde_json::Value = serde_json::from_str(&server.seen()[1].body).unwrap();
    assert_eq!(
        (&body["decisions"]["release_deployed"], &body["decisions"]["machine"]),
        (&json!(true), &json!("x7k2mp"))
    );
    let run = server.lattice(&format!("job resume {JOB} --decide colour=red"));
    assert_eq!((run.status, server.seen().len()), (1, 2), "{run}");
}

#[test]
fn a_refusal_has_three_parts_and_its_number() {
    let server = Recorded::new(&[(&format!("POST {}", job_path("/resume")), &[refused(409, bodies::leased())])]);
    insta::assert_snapshot!(server.lattice(&format!("job resume {JOB}")));
}

#[test]
fn a_refusal_under_json_is_the_problem_on_stderr() {
    let server = Recorded::new(&[(&format!("POST {}", job_path("/resume")), &[refused(409, bodies::leased())])]);
    let run = server.lattice(&format!("job resume {JOB} -o json"));
    let problem: serde_json::Value = serde_json::from_str(&run.stderr).unwrap();
    assert_eq!((run.status, run.stdout.as_str(), &problem["code"]), (1, "", &json!("LAT0042")));
}

#[test]
fn a_server_that_fails_is_unexpected() {
    let problem = bodies::with(
        bodies::leased(),
        json!({"status": 500, "code": "LAT0013", "detail": "the store is full", "because": []}),
    );
    let server = Recorded::new(&[(NODES, &[refused(500, problem)])]);
    insta::assert_snapshot!(server.lattice("node list"));
}

#[test]
fn an_answer_that_is_not_understood_is_unexpected() {
    let server = Recorded::new(&[(NODES, &[text("text/html", "<html>")])]);
    insta::assert_snapshot!(server.lattice("node list"));
}

#[test]
fn a_restart_from_scratch_asks_first() {
    let server = resume();
    insta::assert_snapshot!(server.lattice(&format!("job restart-clean {JOB}")));
}

#[test]
fn onboarding_is_accepted_and_followed() {
    let accepted = json!({"onboarding_id": JOB, "node_id": NODE, "status": "pending"});
    let server = Recorded::new(&[
        ("POST /api/v1/admin/onboardings", &[ok(accepted)]),
        (&format!("GET {}", job_path("")), &[ok(bodies::job_completed())]),
    ]);
    let words = "onboard maas c07u43 --site dc1 --sku mi300x.192g.8gpu --ipmi-ip 10.176.16.128";
    insta::assert_snapshot!("onboarding_is_accepted", server.lattice(words));
    insta::assert_snapshot!("onboarding_is_followed", server.lattice(&format!("{words} --watch")));
    assert_eq!(
        server.seen()[0].body,
        r#"{"site_id":"dc1","sku_id":"mi300x.192g.8gpu","hostname":"c07u43","ipmi_ip":"10.176.16.128","reason":""}"#
    );
}

#[test]
fn a_site_is_shown_with_the_keys_that_set_takes() {
    let server = Recorded::new(&[("GET /api/v1/admin/sites/dc1", &[ok(bodies::site())])]);
    insta::assert_snapshot!(server.lattice("site show dc1"));
}

#[test]
fn a_site_is_created_from_flags_and_settings() {
    let server = Recorded::new(&[("POST /api/v1/admin/sites", &[ok(bodies::site())])]);
    server.lattice(
        "site create maas dc1 --region eu-1 --api-url http://10.1.1.1:5240/MAAS --set policy.require_hw_sync=false",
    );
    let body: serde_json::Value = serde_json::from_str(&server.seen()[0].body).unwrap();
    assert_eq!(body["provider"]["policy"], json!({"require_hw_sync": false}));
    assert_eq!((&body["provider"]["kind"], &body["region_code"]), (&json!("maas"), &json!("eu-1")));
}

#[test]
fn settings_of_a_site_change_one_by_one() {
    let patch = ("PATCH /api/v1/admin/sites/dc1", &[ok(bodies::site())][..]);
    let server = Recorded::new(&[("GET /api/v1/admin/sites/dc1", &[ok(bodies::site())]), patch]);
    server.lattice("site set dc1 project=gpu heartbeat.standard.grace_ms=90000");
    let body: serde_json::Value = serde_json::from_str(&server.seen()[1].body).unwrap();
    assert_eq!(body["provider"], json!({"project": "gpu"}));
    assert_eq!(body["heartbeat"]["standard"], json!({"window_ms": 30_000, "grace_ms": 90_000}));
    assert_eq!(body["heartbeat"]["borrowed"]["grace_ms"], 30_000);
    assert_eq!(server.lattice("site set dc1 heartbeat.colour=red").status, 1);
}

#[test]
fn a_brake_is_pulled_for_a_rack_and_let_go_after_a_question() {
    let mut braked = bodies::site();
    braked["brake"] = json!({
        "until": "2026-11-21T09:45:44.000Z", "selector": {"rack": "c07"}, "reason": "switch replaced",
        "by": {"name": "ops", "role": "platform_admin"}, "since": "2026-11-21T09:15:44.000Z",
    });
    let path = "POST /api/v1/admin/sites/dc1/brake";
    let server =
        Recorded::new(&[(path, &[ok(braked)]), ("DELETE /api/v1/admin/sites/dc1/brake", &[ok(bodies::site())])]);
    let run = server.lattice("site brake dc1 --selector rack=c07 --for 30m --reason switch");
    assert!(run.stdout.contains("brake for rack=c07 until 2026-11-21T09:45:44.000Z, by ops: switch replaced"), "{run}");
    let body: serde_json::Value = serde_json::from_str(&server.seen()[0].body).unwrap();
    assert_eq!(body, json!({"for_ms": 1_800_000, "selector": {"rack": "c07"}, "reason": "switch"}));
    assert_eq!(server.lattice("site brake dc1 --release").status, 1, "nobody said yes");
    assert_eq!(server.lattice("site brake dc1 --release --yes").status, 0);
    assert_eq!(server.lattice("site brake dc1").status, 1, "for how long?");
}

#[test]
fn fingerprints_are_listed_with_their_standing_and_approved_by_a_node_that_has_one() {
    let approved = json!({
        "sku": "mi300x", "fingerprint": "sha256:aa", "reason": "", "at": "2026-11-21T09:10:44.000Z",
        "by": {"name": "ops", "role": "platform_admin"},
    });
    let view = json!({"site_id": bodies::site()["id"], "fingerprints": [
        {"sku": "mi300x", "fingerprint": "sha256:aa", "nodes": 39, "approved": approved, "deviates": false},
        {"sku": "mi300x", "fingerprint": "sha256:bb", "nodes": 1, "deviates": true},
        {"sku": "h200", "fingerprint": "sha256:cc", "nodes": 4, "deviates": false},
    ]});
    let server = Recorded::new(&[
        ("GET /api/v1/admin/sites/dc1/conformance", &[ok(view.clone())]),
        ("POST /api/v1/admin/sites/dc1/conformance/approve", &[ok(view)]),
    ]);
    insta::assert_snapshot!(server.lattice("site conformance list dc1"));
    server.lattice("site conformance approve dc1 --node c07u43");
    let body: serde_json::Value = serde_json::from_str(&server.seen()[1].body).unwrap();
    assert_eq!(body, json!({"node": "c07u43", "reason": ""}));
    assert_eq!(server.lattice("site conformance approve dc1").status, 1, "which one?");
}

#[test]
fn labels_are_set_and_taken_away_in_one_line() {
    let mut node = bodies::node();
    node["labels"] = json!({"rack": "c07"});
    let server = Recorded::new(&[("POST /api/v1/admin/nodes/c07u43/labels", &[ok(node)])]);
    let run = server.lattice("node label c07u43 rack=c07 row-");
    assert_eq!(run.stdout, "c07u43: rack=c07\n");
    let body: serde_json::Value = serde_json::from_str(&server.seen()[0].body).unwrap();
    assert_eq!(body, json!({"set": {"rack": "c07"}, "remove": ["row"], "reason": ""}));
    assert_eq!(server.lattice("node label c07u43 rack").status, 1, "neither");
}

#[test]
fn a_deadline_asks_first_and_says_what_it_stops() {
    let server = Recorded::new(&[]);
    let run = server.lattice("node drain c07u43 --deadline 2h");
    assert!(run.status == 1 && run.stderr.contains("stopped"), "{run}");
}

#[test]
fn credentials_come_from_stdin_and_are_never_shown() {
    let probe = json!({"ok": false, "details": ["MAAS answers 401"], "at": "2026-11-21T09:15:44.000Z"});
    let server = Recorded::new(&[("POST /api/v1/admin/sites/dc1/credentials", &[ok(probe)])]);
    let environment = [("LATTICE_SERVER", server.address())];
    let run: Run =
        server.lattice_with("site credentials set dc1 --from-stdin", "api_token = \"a:b:hunter2\"\n", &environment);
    insta::assert_snapshot!(run);
    assert_eq!(server.seen()[0].body, r#"{"api_token":"a:b:hunter2"}"#);
    let run = server.lattice_with("site credentials set dc1 --from-stdin", "api_tokn = \"hunter2\"\n", &environment);
    assert!(run.status == 1 && !run.stderr.contains("hunter2"), "{run}");
}

#[test]
fn the_fleet_begins_with_what_needs_attention() {
    let server = Recorded::new(&[("GET /api/v1/admin/fleet", &[ok(bodies::fleet())])]);
    insta::assert_snapshot!(server.lattice("fleet"));
}

#[test]
fn events_are_listed() {
    let server = Recorded::new(&[("GET /api/v1/admin/events", &[ok(bodies::events())])]);
    insta::assert_snapshot!(server.lattice("events"));
}

#[test]
fn following_events_goes_on_after_the_last_one() {
    let frame = |seq| format!("id: {seq}\nevent: node.moved\ndata: {}\n\n", bodies::event_at(seq, "ready"));
    let streams =
        [text("text/event-stream", &format!(": alive\n\n{}{}", frame(7), frame(8))), refused(401, bodies::leased())];
    let server = Recorded::new(&[("GET /api/v1/admin/events", &streams)]);
    let run = server.lattice("events --follow -o name");
    assert_eq!((run.status, run.stdout.as_str()), (1, "node.moved\nnode.moved\n"), "{run}");
    let seen = server.seen();
    assert_eq!(seen[0].header("accept"), Some("text/event-stream"));
    assert!(seen[1].line.contains("after=8"), "{}", seen[1].line);
}

#[test]
fn a_token_is_printed_alone() {
    let token = json!({
        "id": "0190c2a4-3333-7c3a-9b1f-2f6d1c0a5e15", "name": "ci", "role": "project_viewer",
        "issued_at": "2026-11-21T09:15:44.000Z", "expires_at": "2026-11-22T09:15:44.000Z", "valid": true,
    });
    let server =
        Recorded::new(&[("POST /api/v1/admin/tokens", &[ok(json!({"token": token, "secret": "lat_api_s3cret"}))])]);
    insta::assert_snapshot!(server.lattice("token create ci --role project-viewer --ttl 1d"));
    assert_eq!(server.seen()[0].body, r#"{"name":"ci","role":"project_viewer","ttl_seconds":86400}"#);
}

#[test]
fn holds_are_set_for_a_while_and_cleared() {
    let server = Recorded::new(&[
        (ONE_NODE, &[ok(bodies::node())]),
        (
            "POST /api/v1/admin/nodes/c07u43/holds",
            &[ok(bodies::with(bodies::node(), json!({"holds": ["maintenance"]})))],
        ),
        ("DELETE /api/v1/admin/nodes/c07u43/holds/maintenance", &[ok(bodies::node())]),
    ]);
    let run = server.lattice("hold set c07u43 maintenance --reason riser --for 2h");
    assert_eq!((run.status, run.stdout.as_str()), (0, "c07u43: holds: maintenance\n"), "{run}");
    assert_eq!(server.seen()[1].body, r#"{"kind":"maintenance","reason":"riser","until":"2026-11-21T11:15:44.000Z"}"#);
    let run = server.lattice("hold clear c07u43 maintenance");
    assert_eq!((run.status, run.stdout.as_str()), (0, "c07u43: no holds\n"), "{run}");
}

const BATCH: &str = "0190c2a4-5555-7c3a-9b1f-2f6d1c0a5e17";

fn batch_path(rest: &str) -> String {
    format!("/api/v1/admin/onboardings/batch{rest}")
}

#[test]
fn a_batch_is_created_from_a_file_and_followed() {
    let accepted = json!({"batch_id": BATCH, "onboardings": [
        {"hostname": "c07u43", "onboarding_id": JOB, "node_id": NODE},
        {"hostname": "c07u44", "onboarding_id": JOB, "node_id": NODE},
    ]});
    let server = Recorded::new(&[
        (&format!("POST {}", batch_path("")), &[ok(accepted)]),
        (
            &format!("GET {}", batch_path(&format!("/{BATCH}"))),
            &[ok(bodies::batch("running", 1, 1, 0)), ok(bodies::batch("partial_failure", 1, 0, 1))],
        ),
    ]);
    let environment = [("LATTICE_SERVER", server.address()), ("LATTICE_TOKEN", "lat_api_test")];
    let machines = "\u{feff}hostname,ipmi_ip\r\nc07u43,10.176.16.128\r\n\"c07u44\",10.176.16.129\r\n";
    let words = "onboarding batch create - --site dc1 --sku mi300x.192g.8gpu --max-parallel 4 --reason rack-7";
    insta::assert_snapshot!("a_batch_is_accepted", server.lattice_with(words, machines, &environment));
    assert_eq!(
        server.seen()[0].body,
        r#"{"site_id":"dc1","sku_id":"mi300x.192g.8gpu","nodes":[{"hostname":"c07u43","ipmi_ip":"10.176.16.128"},{"hostname":"c07u44","ipmi_ip":"10.176.16.129"}],"max_parallel":4,"reason":"rack-7"}"#
    );
    let run = server.lattice_with(&format!("{words} --watch"), machines, &environment);
    insta::assert_snapshot!("a_batch_is_followed_until_nothing_moves", run);
}

#[test]
fn wrong_lines_of_a_file_are_named_and_nothing_is_sent() {
    let server = Recorded::new(&[(&format!("POST {}", batch_path("")), &[refused(409, bodies::leased())])]);
    let environment = [("LATTICE_SERVER", server.address()), ("LATTICE_TOKEN", "lat_api_test")];
    let machines = "hostname,ipmi_ip\nc07u43,10.176.16.300\nc07u44\nc07u45,10.176.16.129\n";
    let words = "onboarding batch create - --site dc1 --sku lxd";
    insta::assert_snapshot!(server.lattice_with(words, machines, &environment));
    assert!(server.seen().is_empty());
    let run = server.lattice_with(&format!("{words} --partial"), machines, &environment);
    assert_eq!((run.status, server.seen().len()), (1, 1), "the right lines are sent: {run}");
    assert!(run.stderr.contains("left out: line 2: ") && server.seen()[0].body.contains("c07u45"), "{run}");
}

#[test]
fn what_the_server_refuses_is_told_by_line() {
    let problem = bodies::with(
        bodies::leased(),
        json!({"status": 422, "code": "LAT0010", "detail": "2 of the fields of 2 machines cannot be accepted; nothing was created",
        "because": [], "next_actions": [], "errors": [
            {"field": "nodes[0].hostname", "detail": "c07u43 is taken by node 0190"},
            {"field": "nodes[1].ipmi_ip", "detail": "10.176.16.129 is the BMC of c01u01 already"},
        ]}),
    );
    let server = Recorded::new(&[(&format!("POST {}", batch_path("")), &[refused(422, problem)])]);
    let environment = [("LATTICE_SERVER", server.address()), ("LATTICE_TOKEN", "lat_api_test")];
    let machines = "hostname,ipmi_ip\n\nc07u43,10.176.16.128\nc07u44,10.176.16.129\n";
    insta::assert_snapshot!(server.lattice_with(
        "onboarding batch create - --site dc1 --sku lxd",
        machines,
        &environment
    ));
}

#[test]
fn batches_are_listed_and_shown_with_what_stopped() {
    let rows = json!({"items": [bodies::batch("partial_failure", 1, 0, 1), bodies::batch("paused", 0, 2, 0)]});
    let server = Recorded::new(&[
        (&format!("GET {}", batch_path("")), &[ok(rows)]),
        (&format!("GET {}", batch_path(&format!("/{BATCH}"))), &[ok(bodies::batch("partial_failure", 1, 0, 1))]),
    ]);
    insta::assert_snapshot!("batches_are_listed", server.lattice("onboarding batch list --status live"));
    insta::assert_snapshot!("a_batch_is_shown", server.lattice(&format!("onboarding batch show {BATCH}")));
}

#[test]
fn a_cancel_of_a_batch_asks_first_and_a_pause_does_not() {
    let answer = json!({"changed": true, "batch": bodies::batch("paused", 0, 2, 0)});
    let server = Recorded::new(&[
        (&format!("POST {}", batch_path(&format!("/{BATCH}/pause"))), &[ok(answer.clone())]),
        (&format!("POST {}", batch_path(&format!("/{BATCH}/cancel"))), &[ok(answer)]),
    ]);
    insta::assert_snapshot!("a_cancel_of_a_batch_asks", server.lattice(&format!("onboarding batch cancel {BATCH}")));
    assert!(server.seen().is_empty());
    let run = server.lattice(&format!("onboarding batch pause {BATCH} --reason storm"));
    assert_eq!((run.status, server.seen()[0].body.as_str()), (0, r#"{"reason":"storm"}"#), "{run}");
    assert_eq!(server.lattice(&format!("onboarding batch cancel {BATCH} --yes")).status, 0);
}

#[test]
fn the_log_of_a_batch_is_told_by_machine() {
    let lines = json!({"items": [
        {"at": "2026-11-21T09:13:44.000Z", "hostname": "c07u44", "onboarding_id": JOB, "stage": "configure_storage",
            "attempt": 1, "status": "failed", "message": "boot_disk_not_found: there are nvme0n1"},
    ]});
    let server = Recorded::new(&[(&format!("GET {}", batch_path(&format!("/{BATCH}/log"))), &[ok(lines)])]);
    insta::assert_snapshot!(server.lattice(&format!("onboarding batch log {BATCH} --host c07u44")));
    assert!(server.seen()[0].line.contains("hostname=c07u44"));
}

const WEBHOOKS: &str = "/api/v1/admin/webhooks";

#[test]
fn webhooks_are_listed_and_shown_with_what_waits_and_why() {
    let list = json!({"items": [bodies::given_up(), bodies::webhook()]});
    let server = Recorded::new(&[
        (&format!("GET {WEBHOOKS}"), &[ok(list.clone()), ok(list)]),
        (&format!("GET {WEBHOOKS}/paging"), &[ok(bodies::given_up())]),
    ]);
    insta::assert_snapshot!("webhooks", server.lattice("webhook list"));
    insta::assert_snapshot!("webhooks_wide", server.lattice("webhook list -w"));
    insta::assert_snapshot!("a_webhook_that_was_given_up", server.lattice("webhook show paging"));
}

#[test]
fn the_key_of_a_webhook_is_printed_once_and_alone() {
    let rotated = bodies::with(bodies::webhook(), json!({"previous_key_until": "2026-11-22T09:15:44.000Z"}));
    let server = Recorded::new(&[
        (&format!("POST {WEBHOOKS}"), &[ok(json!({"webhook": bodies::webhook(), "secret": "lat_whk_first"}))]),
        (
            &format!("POST {WEBHOOKS}/ticketing/rotate-secret"),
            &[ok(json!({"webhook": rotated, "secret": "lat_whk_second"}))],
        ),
    ]);
    let words = "webhook create ticketing --url https://hooks.example/lattice --events node.*,job.changed";
    let run = server.lattice(words);
    assert_eq!((run.status, run.stdout.as_str()), (0, "lat_whk_first\n"), "{run}");
    assert_eq!(
        server.seen()[0].body,
        r#"{"name":"ticketing","url":"https://hooks.example/lattice","events":["node.*","job.changed"]}"#
    );
    insta::assert_snapshot!("a_key_is_rotated", server.lattice("webhook rotate-secret ticketing --grace 24h"));
    assert_eq!(server.seen()[1].body, r#"{"grace_seconds":86400}"#);
}

#[test]
fn a_webhook_is_changed_disabled_enabled_and_removed() {
    let path = format!("{WEBHOOKS}/ticketing");
    let server = Recorded::new(&[
        (&format!("PATCH {path}"), &[ok(bodies::webhook())]),
        (&format!("POST {path}/disable"), &[ok(bodies::webhook())]),
        (&format!("POST {path}/enable"), &[ok(bodies::webhook())]),
        (&format!("DELETE {path}"), &[ok(json!({"removed": "ticketing"}))]),
    ]);
    for words in [
        "webhook update ticketing --events node.* --site dc1",
        "webhook disable ticketing --reason moving",
        "webhook enable ticketing --skip",
        "webhook remove ticketing --yes",
    ] {
        assert_eq!(server.lattice(words).status, 0, "{words}");
    }
    let bodies: Vec<_> = server.seen().iter().map(|request| request.body.clone()).collect();
    assert_eq!(bodies[..3], [r#"{"events":["node.*"],"site":"dc1"}"#, r#"{"reason":"moving"}"#, r#"{"skip":true}"#]);
    insta::assert_snapshot!("nothing_to_change", server.lattice("webhook update ticketing"));
    insta::assert_snapshot!("no_such_events", server.lattice("webhook update ticketing --events Node"));
}

#[test]
fn a_test_that_the_receiver_did_not_take_fails() {
    let path = format!("POST {WEBHOOKS}/ticketing/test");
    let taken = ok(json!({"ok": true, "status": 204, "took_ms": 12}));
    let failed = ok(json!({"ok": false, "status": 401, "error": "answered 401: who are you", "took_ms": 7}));
    let server = Recorded::new(&[(&path, &[taken, failed])]);
    let run = server.lattice("webhook test ticketing");
    assert_eq!((run.status, run.stdout.as_str()), (0, "answered 204 after 12 ms\n"), "{run}");
    insta::assert_snapshot!("a_test_fails", server.lattice("webhook test ticketing"));
}

#[test]
fn deliveries_are_listed() {
    let row = |number: u64, status: Option<u16>, error: Option<&str>| {
        json!({"number": number, "event": 4_700 + number, "name": "node.moved", "attempt": 1,
            "at": "2026-11-21T09:15:02.000Z", "status": status, "error": error, "took_ms": 12})
    };
    let rows = json!({"items": [row(2, None, Some("no connection: refused")), row(1, Some(204), None)]});
    let server = Recorded::new(&[(&format!("GET {WEBHOOKS}/ticketing/deliveries"), &[ok(rows)])]);
    insta::assert_snapshot!("deliveries", server.lattice("webhook deliveries ticketing --limit 2"));
}

const SILENCES: &str = "/api/v1/admin/silences";

#[test]
fn silences_are_created_listed_seen_and_lifted() {
    let many = bodies::with(
        bodies::silence(),
        json!({"kind": null, "selector": {}, "site": null, "nodes": ["c07u41", "c07u42", "c07u43", "c07u44", "c07u45"]}),
    );
    let server = Recorded::new(&[
        (&format!("POST {SILENCES}"), &[ok(bodies::silence()), ok(many.clone())]),
        (&format!("GET {SILENCES}"), &[ok(json!({"items": [bodies::silence(), many]}))]),
        (&format!("DELETE {SILENCES}/{}", bodies::SILENCE), &[ok(json!({"removed": bodies::SILENCE}))]),
        ("GET /api/v1/admin/fleet", &[ok(bodies::silenced_fleet())]),
    ]);
    for words in [
        "silence create --selector rack=c07 --site dc1 --kind node-down --for 4h --reason moving",
        "silence create --node c07u41,c07u42 --node c07u43 --for 7d --reason moving",
    ] {
        assert_eq!(server.lattice(words).status, 0, "{words}");
    }
    let sent: Vec<_> = server.seen().iter().map(|request| request.body.clone()).collect();
    assert_eq!(
        sent,
        [
            r#"{"kind":"node_down","selector":{"rack":"c07"},"site":"dc1","reason":"moving","for_ms":14400000}"#,
            r#"{"nodes":["c07u41","c07u42","c07u43"],"reason":"moving","for_ms":604800000}"#,
        ]
    );
    insta::assert_snapshot!("silences", server.lattice("silence list"));
    insta::assert_snapshot!("a_silence_is_lifted", server.lattice(&format!("silence lift {}", bodies::SILENCE)));
    insta::assert_snapshot!("a_silenced_fleet", server.lattice("fleet"));
    insta::assert_snapshot!("a_silence_of_everything", server.lattice("silence create --for 4h --reason moving"));
    let wrong = "silence create --site dc1 --kind fire --for 4h --reason moving";
    insta::assert_snapshot!("no_such_kind_of_incident", server.lattice(wrong));
}
