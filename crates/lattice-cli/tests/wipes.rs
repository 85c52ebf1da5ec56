//! What `lattice admin node wipe` and `lattice wipe` print, and a certificate in which each byte is changed.

#![allow(clippy::unwrap_used, reason = "a test stops at what it cannot do")]

mod recorded;

use lattice_core::agent::task::SigningKey;
use lattice_core::secret::Secret;
use lattice_core::wipe::{CertificateFile, WipeCertificate};
use recorded::bodies::{self, JOB, NODE, SITE};
use recorded::{Recorded, ok, refused};
use serde_json::{Value, json};

const ID: &str = "0190c2a4-2222-7c3a-9b1f-2f6d1c0a5e14";
const WIPE: &str = "POST /api/v1/admin/nodes/c07u43/wipe";

fn key(number: u8) -> SigningKey {
    SigningKey::from_seed(&Secret::new(vec![number; 32])).unwrap()
}

fn certificate() -> CertificateFile {
    let certificate: WipeCertificate = serde_json::from_value(json!({
        "id": ID, "node": NODE, "hostname": "c07u43", "site": SITE, "job": JOB, "task": JOB, "erased": "nvme_drive",
        "evidence": {
            "device": "nvme0n1", "model": "INTEL SSDPF2KX076", "serial": "PHAC1234", "bytes": 7_681_501_126_656_u64,
            "method": "crypto", "tool": "/usr/sbin/nvme", "tool_version": "nvme version 2.8", "exit_code": 0,
            "status_before": "nuse 7", "status_after": "nuse 0",
            "started_at": "2026-11-21T09:10:00.000Z", "finished_at": "2026-11-21T09:10:07.000Z",
        },
        "inventory": ["nvme0n1", "nvme1n1"], "kept": ["nvme1n1"], "boot_before": "b1", "boot_after": "b2",
        "wipe_started_at": "2026-11-21T09:09:00.000Z", "confirmed_at": "2026-11-21T09:15:00.000Z",
    }))
    .unwrap();
    certificate.signed(&key(7))
}

fn keys(number: u8) -> Value {
    json!({"keys": [key(number).public()]})
}

fn server() -> Recorded {
    let file = certificate();
    let row = json!({
        "id": ID, "node_id": NODE, "hostname": "c07u43", "job_id": JOB, "erased": "nvme_drive", "device": "nvme0n1",
        "serial": "PHAC1234", "method": "crypto", "tool": "/usr/sbin/nvme", "tool_version": "nvme version 2.8",
        "finished_at": "2026-11-21T09:10:07.000Z", "confirmed_at": "2026-11-21T09:15:00.000Z", "key_id": file.key_id(),
    });
    Recorded::new(&[
        ("GET /api/v1/admin/wipes", &[ok(json!({"items": [row], "next": null}))]),
        (&format!("GET /api/v1/admin/wipes/{ID}"), &[ok(serde_json::to_value(&file).unwrap())]),
        ("GET /api/v1/admin/wipe-signing-keys", &[ok(keys(7))]),
    ])
}

/// The file in the home folder of that server's runs.
fn put(server: &Recorded, name: &str, text: &[u8]) -> String {
    let path = server.home().join(name);
    std::fs::write(&path, text).unwrap();
    path.display().to_string()
}

fn wiping(changed: bool) -> Value {
    let node = bodies::node();
    let state = json!({"status": "quarantined", "availability": "down"});
    let effects = ["it gets no new work, and what runs on it ends first"];
    json!({"changed": changed, "before": state, "after": state, "effects": effects, "job_id": JOB, "node": node})
}

#[test]
fn without_force_it_is_said_what_would_happen() {
    let server = Recorded::new(&[(WIPE, &[ok(wiping(false))])]);
    insta::assert_snapshot!(server.lattice("admin node wipe c07u43"));
    assert_eq!(server.seen()[0].body, r#"{"reason":"","dry_run":true}"#);
}

#[test]
fn force_confirms_a_wipe() {
    let server = Recorded::new(&[(WIPE, &[ok(wiping(true))])]);
    insta::assert_snapshot!(server.lattice("admin node wipe c07u43 --force --reason repaired"));
    assert_eq!(server.seen()[0].body, r#"{"reason":"repaired","force":true}"#);
}

#[test]
fn a_failed_wipe_that_is_not_forced_is_refused() {
    let problem = json!({
        "type": "urn:lattice:error:LAT0023", "title": "confirmation needed", "status": 422, "code": "LAT0023",
        "detail": "the last wipe of c07u43 failed: it is begun anew only when it is forced",
        "because": ["it stays quarantined until a wipe is confirmed, so that nobody gets what is left on it"],
        "next_actions": [{"command": "lattice admin node wipe c07u43 --force", "effect": "begins anew"}],
        "correlation_id": null,
    });
    let server = Recorded::new(&[(WIPE, &[refused(422, problem)])]);
    insta::assert_snapshot!(server.lattice("admin node wipe c07u43"));
}

#[test]
fn wiped_devices_are_listed_and_shown() {
    let server = server();
    insta::assert_snapshot!(server.lattice("wipe list -w --serial PHAC1234"));
    assert!(server.seen()[0].line.contains("serial=PHAC1234"), "{}", server.seen()[0].line);
    insta::assert_snapshot!(server.lattice(&format!("wipe get {ID}")));
    insta::assert_snapshot!(server.lattice("wipe keys"));
}

#[test]
fn a_certificate_is_saved_once_and_verified_without_a_server() {
    let server = server();
    let [saved, trusted] = ["drive.json", "keys.json"].map(|name| server.home().join(name).display().to_string());
    assert_eq!(server.lattice(&format!("wipe certificate {ID} --out {saved}")).status, 0);
    assert_eq!(server.lattice(&format!("wipe keys --out {trusted}")).status, 0);
    insta::assert_snapshot!(server.lattice(&format!("wipe certificate {ID} --out {saved}")));
    let alone = |words: &str| server.lattice_with(words, "", &[]);
    insta::assert_snapshot!(alone(&format!("wipe verify {saved}")));
    insta::assert_snapshot!(alone(&format!("wipe verify {saved} --key {trusted}")));
    let others = put(&server, "others.json", serde_json::to_string(&keys(8)).unwrap().as_bytes());
    insta::assert_snapshot!(alone(&format!("wipe verify {saved} --key {others}")));
}

#[test]
fn a_certificate_in_which_a_byte_was_changed_is_refused() {
    let server = server();
    let text = certificate().text();
    let verify = |name: &str, text: &[u8]| {
        let path = put(&server, name, text);
        server.lattice_with(&format!("wipe verify {path}"), "", &[])
    };
    insta::assert_snapshot!(verify("serial.json", text.replace("PHAC1234", "PHAC1235").as_bytes()));
    for at in (0..text.len()).step_by(97) {
        let mut changed = text.clone().into_bytes();
        changed[at] ^= 1;
        assert_eq!(verify("changed.json", &changed).status, 1, "byte {at}");
    }
}
