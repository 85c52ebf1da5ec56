//! Profiles, logins of single machines and RoCE addresses on the command line, against recorded answers.
#![allow(clippy::unwrap_used, reason = "a test stops at what it cannot do")]

mod recorded;

use recorded::{Recorded, ok, refused};
use serde_json::{Value, json};

const AT: &str = "2026-11-21T09:10:44.000Z";
const ID: &str = "0190c2a4-7777-7c3a-9b1f-2f6d1c0a5e11";
const SITE: &str = "0190c2a4-1111-7c3a-9b1f-2f6d1c0a5e12";

fn profile() -> Value {
    json!({"id": ID, "site_id": SITE, "name": "strict", "description": "GPU hosts", "status": "active",
        "is_default": true, "created_at": AT, "updated_at": AT, "generation": 2,
        "settings": {"distro_series": "custom/gpuaas-noble", "policy": {"batch_max_parallel": 3}}})
}

fn power_override() -> Value {
    json!({"id": ID, "site_id": SITE, "selector_type": "ipmi_ip", "selector_value": "10.176.16.128",
        "vault_path": format!("kv/maas-sites/{SITE}/power/overrides/{ID}"), "status": "active", "created_at": AT,
        "updated_at": AT, "generation": 1})
}

fn assignment(interface: &str, cidr: &str) -> Value {
    json!({"id": ID, "site": SITE, "hostname": "c07u31", "interface": interface, "ipv4_cidr": cidr, "created_at": AT,
        "updated_at": AT, "generation": 1})
}

fn body(server: &Recorded, index: usize) -> Value {
    serde_json::from_str(&server.seen()[index].body).unwrap()
}

#[test]
fn a_profile_is_shown_with_its_knobs_and_their_units() {
    let server = Recorded::new(&[("GET /api/v1/admin/sites/dc1/profiles/strict", &[ok(profile())])]);
    insta::assert_snapshot!(server.lattice("site profile show dc1 strict"));
}

#[test]
fn profiles_are_listed() {
    let page = ok(json!({"items": [profile()]}));
    let server = Recorded::new(&[("GET /api/v1/admin/sites/dc1/profiles", &[page])]);
    insta::assert_snapshot!(server.lattice("site profile list dc1"));
}

#[test]
fn a_profile_is_created_and_changed_by_dotted_settings() {
    let made = ("POST /api/v1/admin/sites/dc1/profiles", &[ok(profile())][..]);
    let changed = ("PATCH /api/v1/admin/sites/dc1/profiles/strict", &[ok(profile())][..]);
    let server = Recorded::new(&[made, changed]);
    server.lattice("site profile create dc1 strict distro_series=custom/gpuaas-noble policy.batch_max_parallel=3");
    let settings = json!({"distro_series": "custom/gpuaas-noble", "policy": {"batch_max_parallel": 3}});
    assert_eq!(body(&server, 0), json!({"name": "strict", "description": "", "settings": settings}));
    server.lattice("site profile set dc1 strict distro_series=null policy.require_hw_sync=false");
    let settings = json!({"distro_series": null, "policy": {"require_hw_sync": false}});
    assert_eq!(body(&server, 1), json!({"settings": settings}));
    server.lattice("site profile disable dc1 strict");
    assert_eq!(body(&server, 2), json!({"status": "disabled"}));
}

#[test]
fn the_default_profile_is_named_by_people_and_kept_by_its_id() {
    let show = ("GET /api/v1/admin/sites/dc1/profiles/strict", &[ok(profile())][..]);
    let patch = ("PATCH /api/v1/admin/sites/dc1", &[ok(recorded::bodies::site())][..]);
    let server = Recorded::new(&[show, patch]);
    server.lattice("site profile default dc1 strict");
    assert_eq!(body(&server, 1), json!({"provider": {"default_profile_id": ID}}));
    server.lattice("site profile default dc1 -");
    assert_eq!(body(&server, 2), json!({"provider": {"default_profile_id": null}}));
}

#[test]
fn a_login_of_one_machine_comes_from_stdin_and_is_never_shown() {
    let made = ("POST /api/v1/admin/sites/dc1/power-overrides", &[ok(power_override())][..]);
    let server = Recorded::new(&[made]);
    let environment = [("LATTICE_SERVER", server.address()), ("LATTICE_TOKEN", "lat_api_test")];
    let words = "site override create dc1 --ipmi-ip 10.176.16.128 --from-stdin";
    let run = server.lattice_with(words, "user = \"root\"\npass = \"hunter2\"\n", &environment);
    insta::assert_snapshot!(run);
    assert_eq!(
        body(&server, 0),
        json!({"selector_type": "ipmi_ip", "selector_value": "10.176.16.128", "login": {"user": "root", "pass": "hunter2"}})
    );
    let run = server.lattice_with(words, "user = \"root\"\npas = \"hunter2\"\n", &environment);
    assert!(run.status == 1 && !run.stderr.contains("hunter2"), "{run}");
    let both = "site override create dc1 --ipmi-ip 10.0.0.1 --hostname a --from-stdin";
    assert_ne!(server.lattice_with(both, "", &environment).status, 0, "one way of naming it");
}

#[test]
fn roce_addresses_are_listed() {
    let page =
        json!({"items": [assignment("enp28s0np0", "172.30.9.61/31"), assignment("enp29s0np0", "172.29.1.219/31")]});
    let server = Recorded::new(&[("GET /api/v1/admin/sites/dc1/roce-assignments", &[ok(page)])]);
    insta::assert_snapshot!(server.lattice("site roce list dc1"));
}

#[test]
fn a_file_of_roce_addresses_is_sent_as_json_and_refused_by_its_lines() {
    let wrong = json!({"type": "urn:lattice:error:LAT0010", "title": "A value is not acceptable", "status": 422,
        "code": "LAT0010", "detail": "`items[1].ipv4_cidr` must be one end of a /31 link", "field": "items[1].ipv4_cidr",
        "because": ["item 2 (c07u31 enp29s0np0): `ipv4_cidr` must be one end of a /31 link"], "next_actions": []});
    let answer = ok(json!({"created": 2, "changed": 0, "unchanged": 0}));
    let server = Recorded::new(&[("POST /api/v1/admin/sites/dc1/roce-assignments", &[answer, refused(422, wrong)])]);
    let file = server.home().join("roce.csv");
    let text = "hostname,interface,ipv4_cidr\n\nc07u31,enp28s0np0,172.30.9.61/31\nc07u31,enp29s0np0,172.29.1.219/31\n";
    std::fs::write(&file, text).unwrap();
    let words = format!("site roce import dc1 {}", file.display());
    let run = server.lattice(&words);
    assert_eq!((run.status, run.stdout.as_str()), (0, "2 created, 0 changed, 0 unchanged\n"), "{run}");
    assert_eq!(body(&server, 0)["items"][1]["ipv4_cidr"], "172.29.1.219/31");
    let run = server.lattice(&words);
    assert!(run.status == 1 && run.stderr.contains("line 4 (c07u31 enp29s0np0)"), "{run}");
    std::fs::write(&file, "hostname,interface,ipv4_cidr\nc07u31,enp28s0np0\n,x,y\n").unwrap();
    let run = server.lattice(&words);
    assert!(run.status == 1 && run.stderr.contains("line 2 ") && run.stderr.contains("line 3 "), "{run}");
    assert_eq!(server.seen().len(), 2, "nothing was sent");
}

#[test]
fn calls_are_shown_against_their_budget() {
    let line = json!({"call": "machines.list", "calls": 12, "retries": 1, "failures": 0});
    let calls = json!({"site_id": SITE, "calls": 52, "polls": 40, "retries": 1, "failures": 0, "poll_interval_ms": 5_000,
        "budget_per_onboarding": 40, "budget_per_roce_interface": 2, "by_call": [line]});
    let server = Recorded::new(&[("GET /api/v1/admin/sites/dc1/calls", &[ok(calls)])]);
    insta::assert_snapshot!(server.lattice("site calls dc1"));
}

#[test]
fn what_cannot_be_undone_is_asked() {
    let server = Recorded::new(&[("DELETE /api/v1/admin/sites/dc1", &[ok(json!({"removed": "dc1"}))])]);
    let run = server.lattice("site remove dc1");
    assert!(run.status == 1 && run.stderr.contains("secrets are removed with it"), "{run}");
    let run = server.lattice("site remove dc1 --yes");
    assert_eq!((run.status, run.stdout.as_str()), (0, "dc1 is removed\n"), "{run}");
}
