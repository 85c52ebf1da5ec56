//! Bodies as the server writes them.

use serde_json::{Value, json};

/// A node's id.
pub const NODE: &str = "0190c2a4-7d1e-7c3a-9b1f-2f6d1c0a5e11";
/// A site's id.
pub const SITE: &str = "0190c2a4-0000-7c3a-9b1f-2f6d1c0a5e12";
/// A job's id.
pub const JOB: &str = "0190c2a4-1111-7c3a-9b1f-2f6d1c0a5e13";

/// `base` with the fields of `more` over it.
pub fn with(mut base: Value, more: Value) -> Value {
    let fields = base.as_object_mut().unwrap();
    for (key, value) in more.as_object().unwrap() {
        fields.insert(key.clone(), value.clone());
    }
    base
}

/// A node in a list.
pub fn node_row() -> Value {
    json!({
        "id": NODE, "hostname": "c07u43", "site_id": SITE, "site": "dc1", "sku": "mi300x.192g.8gpu",
        "class": "standard", "mode": "maas", "status": "active", "availability": "ready",
        "status_since": "2026-11-21T08:00:00.000Z", "availability_since": "2026-11-21T09:12:44.000Z",
        "schedulable": true, "holds": [], "heard_at": "2026-11-21T09:15:41.000Z", "address": "10.176.16.43",
        "agent_version": "0.1.0", "generation": 12,
    })
}

/// A second one, which cannot be used.
pub fn lost_row() -> Value {
    with(
        node_row(),
        json!({
            "id": "0190c2a4-7d1e-7c3a-9b1f-2f6d1c0a5e99", "hostname": "c07u44", "availability": "degraded",
            "availability_since": "2026-11-21T09:15:02.000Z", "schedulable": false,
            "why_not": "heartbeat missed for 42 s; down in 48 s", "owning_job": JOB,
        }),
    )
}

/// Why a node is not schedulable, as the design shows it.
pub fn explanation() -> Value {
    json!({
        "subject": {"kind": "node", "id": NODE, "name": "c07u43"},
        "state": "enrolling / unknown", "context": ["dc1", "mi300x.192g.8gpu"], "ok": false,
        "summary": "not schedulable: onboarding 0190…5e13 stopped at configure_storage, attempt 1 of 1",
        "because": [
            {"fact": "no boot disk matches \"boss|boot optimized|m.2\": nvme0n1, nvme1n1 are there", "owner": "operator", "age_ms": 180_000},
            {"fact": "11 of 11 siblings of this model have a BOSS card", "owner": "provider"},
        ],
        "failure_class": "hardware_mismatch",
        "next_actions": [
            {"command": format!("lattice job resume {JOB} --boot-disk nvme0n1"), "effect": "use this disk, continue at configure_storage"},
            {"command": format!("lattice job cancel {JOB}"), "effect": "stop; the machine stays Ready in MAAS"},
            {"effect": "fit a BOSS card"},
        ],
        "at": "2026-11-21T09:15:44.000Z",
    })
}

/// Nothing is wrong.
pub fn schedulable() -> Value {
    json!({
        "subject": {"kind": "node", "id": NODE, "name": "c07u43"}, "state": "active / ready", "context": ["dc1"],
        "ok": true, "summary": "schedulable", "because": [], "next_actions": [], "at": "2026-11-21T09:15:44.000Z",
    })
}

/// A node.
pub fn node() -> Value {
    with(
        node_row(),
        json!({
            "health": {
                "said": {
                    "at": "2026-11-21T09:15:41.000Z", "age_ms": 3_000, "gpus": 8, "max_temperature_c": 71,
                    "ecc_uncorrected": 0, "minor_issue": false, "allocations": 1,
                },
                "gpus_expected": 8,
            },
            "allocations": [allocation()], "fingerprint": "sha256:5f1c",
            "boot_failures": 0, "drain_intent": false, "identity_epoch": 3, "boot_id": "b-1", "bmc_address": "10.176.17.43",
            "provider_ref": "x7k2mp", "created_at": "2026-11-20T08:00:00.000Z", "updated_at": "2026-11-21T09:12:44.000Z",
            "hold_details": [{
                "node_id": NODE, "hostname": "c07u43", "kind": "maintenance", "by": {"name": "ada", "role": "platform_admin"},
                "reason": "new riser", "since": "2026-11-21T09:00:00.000Z", "in_force": true, "manual": true,
            }],
            "host": {
                "gpus": [
                    {"address": "0000:01:00.0", "vendor": "amd", "model": "MI300X"},
                    {"address": "0000:02:00.0", "vendor": "amd", "model": "MI300X"},
                ],
                "nics": [{"name": "eno8303", "mac": "aa:bb:cc:dd:ee:ff", "firmware": "28.39.1002", "speed_mbps": 25000}],
                "disks": [{"name": "nvme0n1", "model": "INTEL SSDPF2KX076", "size_bytes": 7_681_501_126_656_u64}],
                "memory_mib": 2_097_152, "cpus": 256, "kernel": "6.8.0", "os": "Ubuntu 24.04 LTS",
            },
            "provider": {
                "node": NODE, "site": SITE, "provider_ref": "x7k2mp", "status": "Deployed", "power": "on",
                "addresses": ["10.176.16.43"], "observed_at": "2026-11-21T09:15:00.000Z",
            },
            "explanation": schedulable(), "verbs": ["drain", "disable", "quarantine", "retire"],
            "links": {"timeline": "/t", "history": "/h", "events": "/e", "explain": "/x"},
        }),
    )
}

/// What is placed on it.
fn allocation() -> Value {
    json!({
        "id": "0190c2a4-3333-7c3a-9b1f-2f6d1c0a5e15", "user": "ada", "class": "standard", "status": "active",
        "status_since": "2026-11-21T09:05:44.000Z", "why": "its agent started it", "node_id": NODE, "hostname": "c07u43",
        "gpus": 4, "requeue": "on_node_failure", "checkpointable": false, "placements": 1,
        "requested_at": "2026-11-21T09:05:00.000Z",
    })
}

/// What draining it came to.
pub fn drained(changed: bool) -> Value {
    json!({
        "changed": changed, "before": {"status": "active", "availability": "ready"},
        "after": {"status": "active", "availability": "draining"},
        "effects": ["no new work is placed on it", "running allocations are asked to checkpoint"],
        "job_id": JOB, "node": with(node(), json!({"availability": "draining"})),
    })
}

/// A drain that runs, with another deadline.
pub fn redrained() -> Value {
    let draining = json!({"status": "active", "availability": "draining"});
    with(drained(true), json!({"before": draining, "effects": ["what still runs in 30 min is stopped"]}))
}

/// A job in a list.
pub fn job_row() -> Value {
    json!({
        "id": JOB, "kind": "onboarding", "node_id": NODE, "hostname": "c07u43", "site_id": SITE, "status": "running",
        "stage": "wait_for_ready", "attempt": 1, "created_at": "2026-11-21T09:10:44.000Z",
        "updated_at": "2026-11-21T09:15:00.000Z", "generation": 4,
    })
}

/// A job that runs.
pub fn job() -> Value {
    with(
        job_row(),
        json!({
            "input": {"flow": "onboard_maas", "hostname": "c07u43", "ipmi_ip": "10.176.17.43", "pxe_mac": null,
                "settings": {"profile": "strict", "distro_series": "ubuntu/noble", "architecture": "amd64/generic",
                    "pxe_iface": "ens19", "pxe_vlan_vid": 46, "node_pxe_iface": "eno8303", "policy": {}}},
            "round": 0, "epoch": 0, "outputs": {}, "decisions": {}, "warnings": [],
            "wait": {"reason": "MAAS commissions it", "until": "2026-11-21T09:15:50.000Z"},
            "requested_by": {"name": "ada", "role": "platform_admin"}, "reason": "rack 7",
            "correlation_id": "0190c2a4-2222-7c3a-9b1f-2f6d1c0a5e14",
            "lease": {"holder": "lattice-1", "until": "2026-11-21T09:16:10.000Z"},
            "observed": {"status": "Commissioning", "power": "on", "addresses": [], "at": "2026-11-21T09:15:40.000Z"},
            "stages": [
                {"stage": "load_site_config", "progress": "succeeded", "attempts": 1, "took_ms": 80, "usual_ms": 90},
                {"stage": "commission_node", "progress": "succeeded", "attempts": 2, "took_ms": 4_000, "usual_ms": 3_000},
                {"stage": "wait_for_ready", "progress": "running", "attempts": 1, "took_ms": 240_000, "usual_ms": 300_000, "message": "MAAS commissions it"},
                {"stage": "configure_storage", "progress": "pending", "attempts": 0, "usual_ms": 2_000},
            ],
            "actions": ["cancel", "mark_manual_intervention_required"],
            "events": [event("load_site_config", "started", ""), event("load_site_config", "succeeded", "MAAS 3.5")],
        }),
    )
}

fn event(stage: &str, status: &str, message: &str) -> Value {
    json!({"at": "2026-11-21T09:10:45.000Z", "stage": stage, "attempt": 1, "round": 0, "status": status, "message": message})
}

/// The same job, completed.
pub fn job_completed() -> Value {
    let events = json!([
        event("load_site_config", "started", ""),
        event("load_site_config", "succeeded", "MAAS 3.5"),
        event("wait_for_agent_enrollment", "succeeded", ""),
    ]);
    with(
        job(),
        json!({
            "status": "completed", "stage": "wait_for_agent_enrollment", "wait": null, "lease": null, "actions": [],
            "finished_at": "2026-11-21T09:15:44.000Z", "events": events,
        }),
    )
}

/// The same job, failed.
pub fn job_failed() -> Value {
    with(
        job(),
        json!({
            "status": "failed_manual_intervention", "stage": "configure_storage", "wait": null, "lease": null,
            "failure_class": "hardware_mismatch", "error_code": "boot_disk_not_found",
            "failure": {
                "stage": "configure_storage", "class": "hardware_mismatch", "error_code": "boot_disk_not_found",
                "message": "no boot disk matches \"boss|boot optimized|m.2\"", "at": "2026-11-21T09:15:40.000Z",
                "next_actions": [{"command": format!("lattice job resume {JOB} --boot-disk nvme0n1"), "effect": "use this disk"}],
            },
            "actions": ["resume", "rerun", "restart_clean", "cancel", "adopt_observed_state"],
        }),
    )
}

/// A refusal in all its parts.
pub fn leased() -> Value {
    json!({
        "type": "urn:lattice:error:LAT0042", "title": "job not resumable", "status": 409, "code": "LAT0042",
        "detail": "job 7c1e cannot resume: stage `deploy_via_maas` is still leased",
        "because": ["runner lattice-2 holds the lease until 14:02:10Z"],
        "next_actions": [
            {"effect": "wait for the end of the lease", "until": "2026-11-21T14:02:10.000Z"},
            {"command": "lattice job cancel 7c1e", "effect": "stops it"},
        ],
        "correlation_id": "0190c2a4-2222-7c3a-9b1f-2f6d1c0a5e14",
    })
}

/// A site.
pub fn site() -> Value {
    json!({
        "id": SITE, "name": "dc1", "region_code": "eu-1",
        "provider": {
            "kind": "lxd", "api_url": "https://10.0.0.5:8443", "client_cert_path": "sites/dc1/cert",
            "client_key_path": "sites/dc1/key", "server_cert_path": "sites/dc1/server", "project": "default",
            "default_profile": "default", "image": "lattice", "agent_binary": null,
            "enrollment_timeout_ms": 300_000, "enrollment_token_ttl_seconds": 7_200,
        },
        "heartbeat": {
            "interval_ms": 10_000, "standard": {"window_ms": 30_000, "grace_ms": 60_000},
            "sensitive": {"window_ms": 120_000, "grace_ms": 300_000}, "borrowed": {"window_ms": 30_000, "grace_ms": 30_000},
            "boot_timeout_ms": 600_000,
        },
        "governor": {"in_service": 40, "taken": 1, "limit": 4},
        "status": "active", "credentials_complete": false, "credentials": [], "created_at": "2026-11-20T09:15:44.000Z",
        "updated_at": "2026-11-20T09:15:44.000Z", "generation": 1,
    })
}

/// The fleet.
pub fn fleet() -> Value {
    json!({
        "at": "2026-11-21T09:15:44.000Z", "seq": 812, "nodes": 20, "schedulable": 18,
        "counts": [
            {"status": "active", "availability": "ready", "nodes": 18},
            {"status": "enrolling", "availability": "unknown", "nodes": 2},
        ],
        "attention": [{
            "kind": "job_stopped", "severity": "critical",
            "subjects": [{"kind": "node", "id": NODE, "name": "c07u43"}],
            "title": "onboarding waits for a decision", "mark": "hardware_mismatch",
            "evidence": ["no boot disk matches"], "since": "2026-11-21T09:12:44.000Z", "age_ms": 180_000,
            "next": {"command": format!("lattice explain node c07u43"), "effect": "shows the choices"},
        }],
    })
}

/// A silence's id.
pub const SILENCE: &str = "0190c2a4-3333-7c3a-9b1f-2f6d1c0a5e15";

/// A silence of a rack.
pub fn silence() -> Value {
    json!({
        "id": SILENCE, "kind": "node_down", "nodes": [], "selector": {"rack": "c07"}, "site": "dc1",
        "by": {"name": "ada", "role": "platform_admin"}, "reason": "the rack is moved",
        "created_at": "2026-11-21T09:00:00.000Z", "until": "2026-11-21T13:00:00.000Z", "generation": 1,
    })
}

/// The fleet, with its incident silenced.
pub fn silenced_fleet() -> Value {
    let mut fleet = fleet();
    let incident = fleet["attention"][0].take();
    fleet["attention"] = json!([]);
    fleet["silenced"] = json!([{"incident": incident, "silence": SILENCE}]);
    fleet["silences"] = json!([silence()]);
    fleet
}

/// Two events.
pub fn events() -> Value {
    json!({"events": [event_at(7, "ready"), event_at(8, "degraded")], "last": 8, "more": true})
}

/// One event.
pub fn event_at(seq: u64, availability: &str) -> Value {
    json!({
        "seq": seq, "at": "2026-11-21T09:15:02.000Z", "name": "node.moved", "resource_kind": "node",
        "resource_id": NODE, "node": NODE, "correlation": "0190c2a4-2222-7c3a-9b1f-2f6d1c0a5e14",
        "payload": {"availability": availability, "hostname": "c07u43", "deep": {"a": 1}},
    })
}

/// A batch of two machines, with so many of them done, running and stopped; the rest wait.
pub fn batch(status: &str, done: u64, running: u64, stopped: u64) -> Value {
    let stopped_job = with(
        job_row(),
        json!({
            "hostname": "c07u44", "status": "failed_manual_intervention", "stage": "configure_storage",
            "failure_class": "hardware_mismatch", "error_code": "boot_disk_not_found",
        }),
    );
    let actor = json!({"name": "ops", "role": "platform_admin"});
    let left = if running > 0 { json!({"p50_ms": 2_400_000, "p95_ms": 4_500_000}) } else { Value::Null };
    json!({
        "id": "0190c2a4-5555-7c3a-9b1f-2f6d1c0a5e17", "site_id": SITE, "site": "dc1", "sku": "mi300x.192g.8gpu",
        "status": status, "control": "run", "machines": 2,
        "children": {
            "pending": 2 - done - running - stopped, "running": running, "compensating": 0, "succeeded": done,
            "failed_retryable": 0, "failed_manual_intervention": stopped, "cancelled": 0,
        },
        "requested_by": actor, "reason": "rack-7", "created_at": "2026-11-21T09:10:44.000Z",
        "updated_at": "2026-11-21T09:15:00.000Z", "generation": 3, "limit": 4, "control_by": actor,
        "control_since": "2026-11-21T09:10:44.000Z", "time_left": left,
        "stopped": if stopped > 0 { vec![stopped_job] } else { vec![] },
        "moving": if running > 0 { vec![job_row()] } else { vec![] },
        "actions": ["pause", "cancel"], "correlation_id": "0190c2a4-9999-7c3a-9b1f-2f6d1c0a5e19",
    })
}

/// A webhook's id.
pub const WEBHOOK: &str = "0190c2a4-2222-7c3a-9b1f-2f6d1c0a5e14";

/// A webhook that takes what it gets.
pub fn webhook() -> Value {
    json!({
        "id": WEBHOOK, "name": "ticketing", "url": "https://hooks.example/lattice", "events": ["node.*", "job.changed"],
        "status": "enabled", "status_reason": "", "status_since": "2026-11-21T08:00:00.000Z", "waiting": 0,
        "failed": 0, "delivered_at": "2026-11-21T09:15:02.000Z", "attempts": 4711,
        "created_by": {"name": "mara", "role": "platform_admin"}, "created_at": "2026-11-21T08:00:00.000Z",
        "updated_at": "2026-11-21T08:00:00.000Z", "generation": 3,
    })
}

/// A webhook that was given up.
pub fn given_up() -> Value {
    with(
        webhook(),
        json!({
            "name": "paging", "site": "dc1", "status": "gave_up", "waiting": 12, "failed": 290,
            "status_reason": "it took nothing for 24 h 0 min (290 attempts): answered 503",
            "failing_since": "2026-11-20T09:00:00.000Z", "last_error": "answered 503",
        }),
    )
}
