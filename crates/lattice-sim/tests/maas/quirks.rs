//! Each quirk of the contract by name: on, it shows and is counted; off, MAAS is as one would wish.

use jiff::SignedDuration;
use lattice_sim::maas::config::SiteConfig;
use lattice_sim::maas::faults::{Fault, MachineFault, SiteFault};
use lattice_sim::maas::oauth::sign;
use lattice_sim::maas::quirk::{Quirk, Quirks};
use lattice_sim::maas::wire::{Method, Response};
use lattice_sim::maas::world::Effect;
use serde_json::{Value, json};

use crate::client::Client;

/// Runs `scene` with the quirk on and with it off, and compares what it saw. On must be counted, off not.
fn check<T: PartialEq + std::fmt::Debug>(quirk: Quirk, scene: impl Fn(&mut Client) -> T, on: T, off: T) {
    let mut client = Client::site(2);
    assert_eq!(scene(&mut client), on, "{} on", quirk.name());
    assert!(client.world.report().quirks.contains_key(&quirk), "{} was not counted", quirk.name());
    let mut client = Client::new(SiteConfig { quirks: Quirks::on().without(quirk), ..SiteConfig::dev(1, 2) });
    assert_eq!(scene(&mut client), off, "{} off", quirk.name());
    assert!(!client.world.report().quirks.contains_key(&quirk), "{} was counted while off", quirk.name());
}

fn brief(response: &Response) -> (u16, String) {
    (response.status, response.body_text())
}

/// A call with a header of one's own.
fn signed(client: &mut Client, nonce: &str, ahead_s: i64) -> u16 {
    let header = sign(&client.key, nonce, client.now.as_second() + ahead_s);
    client.call_as(Method::Get, "machines/", &[], Some(header)).status
}

#[test]
fn nonce_reuse_refused() {
    let scene = |client: &mut Client| [signed(client, "same", 0), signed(client, "same", 0), signed(client, "new", 0)];
    check(Quirk::NonceReuseRefused, scene, [200, 401, 200], [200, 200, 200]);
}

#[test]
fn future_timestamp_accepted() {
    let scene = |client: &mut Client| [signed(client, "a", 4000), signed(client, "b", -299), signed(client, "c", -301)];
    check(Quirk::FutureTimestampAccepted, scene, [200, 200, 401], [401, 200, 401]);
}

#[test]
fn unrecognised_signature() {
    let scene = |client: &mut Client| {
        let machines = client.call_as(Method::Get, "machines/", &[], None);
        let zones = client.call_as(Method::Get, "zones/", &[], None).status;
        (machines.status, machines.body_text(), zones)
    };
    let on = (400, "Unrecognised signature: method=GET op=None".to_owned(), 401);
    check(Quirk::UnrecognisedSignature, scene, on, (401, "Unauthorized.".to_owned(), 401));
}

#[test]
fn unauthorised_is_html() {
    let scene = |client: &mut Client| {
        client.key.secret = "wrong".to_owned();
        let response = client.get("machines/");
        assert_eq!(brief(&response), (401, "Authorization Error: Invalid API key.".to_owned()));
        response.content_type.starts_with("text/html")
    };
    check(Quirk::UnauthorisedIsHtml, scene, true, false);
}

#[test]
fn empty_forbidden() {
    let scene = |client: &mut Client| {
        let id = client.deployed(0);
        client.op(&id, "lock", &[]);
        let response = client.try_op(&id, "release", &[]);
        (response.status, response.body.is_empty())
    };
    check(Quirk::EmptyForbidden, scene, (403, true), (403, false));
}

#[test]
fn retryable_conflict() {
    let scene = |client: &mut Client| {
        let id = client.create(0);
        client.world.faults().arm(Fault::Site { what: SiteFault::SerializationConflict }, 1);
        let refused = client.try_op(&id, "commission", &[]);
        let again = client.try_op(&id, "commission", &[]).status;
        (refused.status, refused.retry_after_s, again)
    };
    check(Quirk::RetryableConflict, scene, (409, Some(5), 200), (503, Some(5), 200));
}

#[test]
fn a_final_conflict_has_no_retry_after() {
    let mut client = Client::site(1);
    let id = client.create(0);
    let response = client.try_op(&id, "deploy", &[]);
    assert_eq!((response.status, response.retry_after_s), (409, None));
}

#[test]
fn create_is_200() {
    let scene = |client: &mut Client| client.post("zones/", &[("name", "z1")]).status;
    check(Quirk::CreateIs200, scene, 200, 201);
}

#[test]
fn power_op_returns_body() {
    let scene = |client: &mut Client| {
        let id = client.deployed(0);
        let response = client.try_op(&id, "power_off", &[]);
        (response.status, response.body_json()["power_state"].clone())
    };
    check(Quirk::PowerOpReturnsBody, scene, (200, json!("off")), (204, Value::Null));
}

#[test]
fn non_iso_dates() {
    let scene = |client: &mut Client| {
        client.create(0);
        client.get("events/?op=query").body_json()["events"][0]["created"].as_str().expect("a date").to_owned()
    };
    check(Quirk::NonIsoDates, scene, "Sat, 21 Nov. 2026 09:00:00".into(), "2026-11-21T09:00:00Z".into());
}

#[test]
fn trailing_slash_required() {
    let scene = |client: &mut Client| client.get("machines").status;
    check(Quirk::TrailingSlashRequired, scene, 404, 200);
}

#[test]
fn commission_defaults_true() {
    let scene = |client: &mut Client| {
        let form = [("mac_addresses", "00:00:00:00:00:01"), ("power_type", "manual")];
        client.post("machines/", &form).body_json()["status_name"].clone()
    };
    check(Quirk::CommissionDefaultsTrue, scene, json!("Commissioning"), json!("New"));
}

#[test]
fn duplicate_mac_refused() {
    let scene = |client: &mut Client| {
        let form = [("mac_addresses", "00:00:00:00:00:01"), ("commission", "false")];
        [client.post("machines/", &form).status, client.post("machines/", &form).status]
    };
    check(Quirk::DuplicateMacRefused, scene, [200, 400], [200, 200]);
}

#[test]
fn implicit_allocate() {
    let scene = |client: &mut Client| {
        let id = client.ready(0);
        client.try_op(&id, "deploy", &[]).status
    };
    check(Quirk::ImplicitAllocate, scene, 200, 409);
}

#[test]
fn refused_deploy_stays_allocated() {
    let scene = |client: &mut Client| {
        let id = client.ready(0);
        let nic = client.machine(&id)["boot_interface"].clone();
        let target = format!("nodes/{id}/interfaces/{}/?op=unlink_subnet", nic["id"]);
        assert_eq!(client.post(&target, &[("id", &nic["links"][0]["id"].to_string())]).status, 200);
        let refused = client.try_op(&id, "deploy", &[]);
        assert_eq!(refused.status, 400);
        assert!(refused.body_json()["network"].is_array());
        client.status(&id)
    };
    check(Quirk::RefusedDeployStaysAllocated, scene, "Allocated".into(), "Ready".into());
}

#[test]
fn deployed_before_ready() {
    let scene = |client: &mut Client| {
        let id = client.ready(0);
        client.op(&id, "deploy", &[("user_data", "I2Nsb3Vk")]);
        client.pass(900);
        let token = client.get(&format!("machines/{id}/?op=get_token")).body_json();
        let text = |key: &str| token[key].as_str().expect("a key").to_owned();
        let key = lattice_sim::maas::oauth::ApiKey {
            consumer: text("consumer_key"),
            token: text("token_key"),
            secret: text("token_secret"),
        };
        let header = sign(&key, "machine", client.now.as_second());
        let fetched = client.call_as(Method::Get, "/MAAS/metadata/2012-03-01/user-data", &[], Some(header));
        assert_eq!(fetched.body_text(), "#cloud");
        client.status(&id)
    };
    check(Quirk::DeployedBeforeReady, scene, "Deployed".into(), "Deploying".into());
}

#[test]
fn manual_power_unknown() {
    let scene = |client: &mut Client| {
        let form = [("mac_addresses", "00:00:00:00:00:01"), ("commission", "false"), ("power_type", "manual")];
        let machine = client.post("machines/", &form).body_json();
        let id = machine["system_id"].as_str().expect("an id").to_owned();
        client.get(&format!("machines/{id}/?op=query_power_state")).body_json()["state"].clone()
    };
    check(Quirk::ManualPowerUnknown, scene, json!("unknown"), json!("off"));
}

#[test]
fn power_on_cycles() {
    let scene = |client: &mut Client| {
        let id = client.deployed(0);
        client.effects.clear();
        client.op(&id, "power_on", &[]);
        let off = |effect: &&Effect| matches!(effect, Effect::PoweredOff { .. });
        client.effects.iter().filter(off).count()
    };
    check(Quirk::PowerOnCycles, scene, 1, 0);
}

#[test]
fn power_query_blocks() {
    let scene = |client: &mut Client| {
        let id = client.create(0);
        let name = client.machines[0].label.clone();
        client.world.faults().arm(Fault::Machine { name, what: MachineFault::BmcUnreachable }, 1);
        let response = client.get(&format!("machines/{id}/?op=query_power_state"));
        let after = client.machine(&id)["power_state"].clone();
        (response.status, response.delay.as_millis(), after)
    };
    check(Quirk::PowerQueryBlocks, scene, (503, 1500, json!("error")), (503, 0, json!("error")));
}

#[test]
fn erase_shows_releasing() {
    let scene = |client: &mut Client| {
        let id = client.deployed(0);
        client.op(&id, "release", &[("erase", "true")])["status_name"].clone()
    };
    check(Quirk::EraseShowsReleasing, scene, json!("Releasing"), json!("Disk erasing"));
}

#[test]
fn release_is_noop() {
    let scene = |client: &mut Client| {
        let id = client.ready(0);
        client.try_op(&id, "release", &[]).status
    };
    check(Quirk::ReleaseIsNoop, scene, 200, 409);
}

#[test]
fn mark_broken_needs_owner() {
    let scene = |client: &mut Client| {
        let id = client.ready(0);
        let unowned = client.try_op(&id, "mark_broken", &[]).status;
        client.post("machines/?op=allocate", &[("system_id", &id)]);
        (unowned, client.try_op(&id, "mark_broken", &[("comment", "fan")]).status)
    };
    check(Quirk::MarkBrokenNeedsOwner, scene, (403, 200), (200, 200));
}

#[test]
fn exit_rescue_hangs() {
    let scene = |client: &mut Client| {
        let id = client.create(0);
        let name = client.machines[0].label.clone();
        client.world.faults().arm(Fault::Machine { name, what: MachineFault::CommissioningFailure }, 1);
        client.op(&id, "commission", &[]);
        assert_eq!(client.wait_while(&id, "Commissioning"), "Failed commissioning");
        client.op(&id, "rescue_mode", &[]);
        assert_eq!(client.wait_while(&id, "Entering rescue mode"), "Rescue mode");
        client.op(&id, "exit_rescue_mode", &[]);
        client.pass(90_000);
        (client.status(&id), client.try_op(&id, "release", &[]).status)
    };
    check(Quirk::ExitRescueHangs, scene, ("Exiting rescue mode".into(), 409), ("Failed commissioning".into(), 409));
}

#[test]
fn token_null_before_preseed() {
    let scene = |client: &mut Client| {
        let id = client.create(0);
        let target = format!("machines/{id}/?op=get_token");
        let before = client.get(&target).body_json().is_null();
        client.op(&id, "commission", &[]);
        client.wait_while(&id, "Commissioning");
        (before, client.get(&target).body_json()["token_key"].is_string())
    };
    check(Quirk::TokenNullBeforePreseed, scene, (true, true), (false, true));
}

#[test]
fn curtin_config_is_yaml_400() {
    let scene = |client: &mut Client| {
        let id = client.ready(0);
        client.get(&format!("machines/{id}/?op=get_curtin_config")).status
    };
    check(Quirk::CurtinConfigIsYaml400, scene, 400, 409);
}

#[test]
fn secrets_in_clear() {
    let scene = |client: &mut Client| {
        let id = client.create(0);
        let shown = client.get(&format!("machines/{id}/?op=power_parameters")).body_json();
        shown["power_pass"] == client.machines[0].bmc.password
    };
    check(Quirk::SecretsInClear, scene, true, false);
}

#[test]
fn events_next_uri_never_null() {
    let scene = |client: &mut Client| {
        client.create(0);
        client.get("events/?op=query").body_json()["next_uri"].is_string()
    };
    check(Quirk::EventsNextUriNeverNull, scene, true, false);
}

#[test]
fn tag_unknown_adds_zero() {
    let scene = |client: &mut Client| {
        client.post("tags/", &[("name", "gpu")]);
        client.post("tags/gpu/?op=update_nodes", &[("add", "nosuch")]).status
    };
    check(Quirk::TagUnknownAddsZero, scene, 200, 404);
}

#[test]
fn pool_path_singular() {
    let scene = |client: &mut Client| [client.get("resourcepool/0/").status, client.get("resourcepools/0/").status];
    check(Quirk::PoolPathSingular, scene, [200, 404], [200, 200]);
}

#[test]
fn slow_list() {
    let scene = |client: &mut Client| {
        client.create(0);
        client.create(1);
        client.get("machines/").delay.as_micros()
    };
    check(Quirk::SlowList, scene, 400, 0);
}

#[test]
fn gateway_timeout_works_on() {
    let scene = |client: &mut Client| {
        let id = client.create(0);
        client.world.faults().arm(Fault::Site { what: SiteFault::GatewayTimeout }, 1);
        let answer = client.try_op(&id, "commission", &[]).status;
        (answer, client.status(&id))
    };
    check(Quirk::GatewayTimeoutWorksOn, scene, (504, "Commissioning".into()), (200, "Commissioning".into()));
}

#[test]
fn every_quirk_has_a_test_of_its_name() {
    let tests = include_str!("quirks.rs");
    let missing: Vec<&str> =
        Quirk::ALL.iter().map(|quirk| quirk.name()).filter(|name| !tests.contains(&format!("fn {name}()"))).collect();
    assert_eq!(missing, Vec::<&str>::new());
}

#[test]
fn every_signed_call_stores_a_nonce() {
    let mut client = Client::site(1);
    client.get("version/");
    client.get("machines/");
    client.now += SignedDuration::from_secs(1);
    client.get("zones/");
    assert_eq!(client.world.report().nonces_stored, 2);
}
