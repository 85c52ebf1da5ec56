//! What a client must not send, and what it gets for it.

use lattice_sim::maas::config::{SiteConfig, UnknownFields};
use lattice_sim::maas::report::Unknown;
use lattice_sim::maas::wire::Method;
use serde_json::json;

use crate::client::Client;

/// Target, form, and what the refusal must say.
type Row<'a> = (&'a str, &'a [(&'a str, &'a str)], &'a str);

/// One call that must be refused with `status` and a body that contains `text`.
fn check(client: &mut Client, method: Method, target: &str, form: &[(&str, &str)], status: u16, text: &str) {
    let response = client.call(method, target, form);
    let body = response.body_text();
    assert!(response.status == status && body.contains(text), "{target} {form:?}: {} {body}", response.status);
}

#[test]
fn unknown_paths_operations_and_fields_are_refused_and_reported() {
    let mut client = Client::site(1);
    let id = client.create(0);
    let path = format!("machines/{id}/");
    check(&mut client, Method::Get, "bogus/", &[], 404, "Unknown API endpoint");
    check(
        &mut client,
        Method::Post,
        &format!("{path}?op=explode"),
        &[],
        400,
        "Unrecognised signature: method=POST op=explode",
    );
    check(&mut client, Method::Put, "machines/", &[], 400, "Unrecognised signature: method=PUT op=None");
    check(&mut client, Method::Get, "machines/?bogus=1", &[], 400, r#"{"bogus":["No such constraint."]}"#);
    check(&mut client, Method::Post, "machines/?op=allocate", &[("bogus", "1")], 400, "No such constraint.");
    check(&mut client, Method::Put, &path, &[("enable_hw_sync", "true")], 400, "Unknown field.");
    let whats: Vec<Unknown> = client.world.report().unknown_requests.into_iter().map(|unknown| unknown.what).collect();
    let field = |name: &str| Unknown::Field(name.to_owned());
    let expected = [
        Unknown::Path,
        Unknown::Operation,
        Unknown::Operation,
        field("bogus"),
        field("bogus"),
        field("enable_hw_sync"),
    ];
    assert_eq!(whats, expected);
}

#[test]
fn a_lenient_site_ignores_unknown_fields_as_maas_does_and_reports_them_still() {
    let mut client = Client::new(SiteConfig { unknown_fields: UnknownFields::Ignore, ..SiteConfig::dev(1, 1) });
    let id = client.create(0);
    assert_eq!(client.put(&format!("machines/{id}/"), &[("bogus", "1"), ("description", "x")]).status, 200);
    assert_eq!(client.machine(&id)["description"], "x");
    check(&mut client, Method::Get, "machines/?bogus=1", &[], 400, "No such constraint.");
    assert_eq!(client.world.report().unknown_requests.len(), 2);
}

#[test]
fn changes_that_the_table_forbids_are_409_and_named() {
    let mut client = Client::site(1);
    let id = client.create(0);
    let new = "Invalid transition: New -> ";
    for (op, text) in
        [("deploy", "'New' state"), ("release", "'New'"), ("abort", "New"), ("mark_fixed", "New"), ("lock", "deployed")]
    {
        check(&mut client, Method::Post, &format!("machines/{id}/?op={op}"), &[], 409, text);
    }
    let ready = client.ready_from(&id);
    check(
        &mut client,
        Method::Post,
        &format!("machines/{ready}/?op=exit_rescue_mode"),
        &[],
        409,
        "Invalid transition: Ready -> Exiting rescue mode.",
    );
    client.op(&ready, "deploy", &[]);
    for op in ["rescue_mode", "commission", "test"] {
        check(
            &mut client,
            Method::Post,
            &format!("machines/{ready}/?op={op}"),
            &[],
            409,
            "Invalid transition: Deploying -> ",
        );
    }
    assert_eq!(client.world.report().refused_transitions.len(), 4);
    assert!(!client.world.report().refused_transitions.iter().any(|line| line.contains(new)));
}

#[test]
fn bad_forms_name_the_field() {
    let mut client = Client::site(1);
    let id = client.ready(0);
    let (path, machines) = (format!("machines/{id}/"), "machines/");
    let deploy = format!("{path}?op=deploy");
    let rows: &[Row<'_>] = &[
        (
            machines,
            &[("architecture", "vax/generic"), ("mac_addresses", "00:00:00:00:00:01")],
            "not a valid architecture",
        ),
        (machines, &[("architecture", "amd64/generic")], "mac_addresses"),
        (machines, &[("mac_addresses", "nonsense")], "mac_addresses"),
        (machines, &[("power_type", "ipmi")], "power_address"),
        (machines, &[("power_type", "steam"), ("mac_addresses", "00:00:00:00:00:01")], "power_type"),
        (machines, &[("hostname", "-x-"), ("mac_addresses", "00:00:00:00:00:01")], "hostname"),
        (&deploy, &[("distro_series", "windows95")], "distro_series"),
        (&deploy, &[("user_data", "%%%")], "base64"),
        (&deploy, &[("install_rackd", "true")], "install_rackd"),
        ("subnets/", &[("cidr", "10.0.0.0/99")], "cidr"),
        ("subnets/", &[("cidr", "127.1.0.0/16")], "already exists"),
        ("maas/?op=set_config", &[("name", "nonsense"), ("value", "1")], "hardware_sync_interval"),
        ("maas/?op=set_config", &[("name", "hardware_sync_interval"), ("value", "soon")], "hardware_sync_interval"),
    ];
    for (target, form, text) in rows {
        check(&mut client, Method::Post, target, form, 400, text);
    }
    check(&mut client, Method::Get, "machines/?status=Ready", &[], 400, "status");
    check(&mut client, Method::Get, "events/?op=query&limit=1001", &[], 400, "1000");
    check(&mut client, Method::Get, "events/?op=query&after=1&before=2", &[], 400, "before and after");
    check(&mut client, Method::Get, "machines/nosuch/", &[], 404, "No Machine matches the given query.");
    check(&mut client, Method::Delete, "resourcepool/0/", &[], 400, "Default pool");
    check(
        &mut client,
        Method::Post,
        "machines/?op=allocate",
        &[("system_id", "nosuch")],
        409,
        "No machine with system ID nosuch available.",
    );
    check(
        &mut client,
        Method::Post,
        "machines/?op=allocate",
        &[("name", "nosuch")],
        409,
        "No available machine matches constraints: ",
    );
    check(&mut client, Method::Post, &format!("{path}?op=power_on"), &[], 409, "not allocated");
}

#[test]
fn interfaces_take_static_addresses_of_their_subnet_once() {
    let mut client = Client::site(2);
    let id = client.ready(0);
    let nics = client.get(&format!("nodes/{id}/interfaces/")).body_json();
    let nic = nics.as_array().expect("a list").iter().find(|nic| nic["name"] == "enp28s0np0").expect("RoCE");
    let target = format!("nodes/{id}/interfaces/{}/?op=link_subnet", nic["id"]);
    let subnet = client.post("subnets/", &[("cidr", "172.30.9.60/31")]).body_json()["id"].to_string();
    let link = |mode, ip| [("mode", mode), ("subnet", subnet.as_str()), ("ip_address", ip)];
    check(&mut client, Method::Post, &target, &link("STATIC", "172.30.9.62"), 400, "not in the given subnet");
    check(&mut client, Method::Post, &target, &[("mode", "STATIC")], 400, "subnet");
    check(&mut client, Method::Post, &target, &[("mode", "MAGIC")], 400, "mode");
    let linked = client.post(&target, &link("STATIC", "172.30.9.61"));
    assert_eq!(linked.body_json()["links"][0]["ip_address"], "172.30.9.61");
    check(&mut client, Method::Post, &target, &link("STATIC", "172.30.9.61"), 400, "already in use");
    client.op(&id, "deploy", &[]);
    check(&mut client, Method::Post, &target, &link("STATIC", "172.30.9.60"), 409, "Cannot link subnet to interface");
    assert_eq!(client.wait_while(&id, "Deploying"), "Deployed");
    let addresses = client.machine(&id)["ip_addresses"].clone();
    assert_eq!(addresses, json!([client.machines[0].address, "172.30.9.61"]));
}

#[test]
fn storage_is_set_while_ready_and_not_while_deployed() {
    let mut client = Client::site(1);
    let id = client.ready(0);
    let disks = client.get(&format!("nodes/{id}/blockdevices/")).body_json();
    let target = format!("nodes/{id}/blockdevices/{}/?op=set_boot_disk", disks[1]["id"]);
    assert_eq!(client.post(&target, &[]).status, 200);
    assert_eq!(client.machine(&id)["boot_disk"]["name"], "nvme0n1");
    client.op(&id, "set_storage_layout", &[("storage_layout", "flat")]);
    check(
        &mut client,
        Method::Post,
        &format!("machines/{id}/?op=set_storage_layout"),
        &[("storage_layout", "round")],
        400,
        "storage_layout",
    );
    client.op(&id, "deploy", &[]);
    check(&mut client, Method::Post, &target, &[], 409, "not Ready or Allocated");
}

#[test]
fn events_are_paged_by_key_without_gaps_or_repeats() {
    let mut client = Client::site(3);
    for index in 0..3 {
        client.deployed(index);
    }
    let total = client.world.events().len();
    let (mut after, mut seen) = (0, Vec::new());
    loop {
        let page = client.get(&format!("events/?op=query&level=DEBUG&limit=5&after={after}")).body_json();
        assert!(page["next_uri"].is_string());
        let mut ids: Vec<u64> =
            page["events"].as_array().expect("a list").iter().filter_map(|event| event["id"].as_u64()).collect();
        ids.sort_unstable();
        let Some(last) = ids.last() else { break };
        after = *last;
        seen.extend(ids);
    }
    assert_eq!(seen, (1..=total as u64).collect::<Vec<_>>());
    let shown = client.get("events/?op=query").body_text();
    assert!(!shown.contains("Node changed status"), "status changes are DEBUG, the default is INFO");
}

#[test]
fn keys_are_made_listed_and_taken_back() {
    let mut client = Client::site(1);
    let made = client.post("account/?op=create_authorisation_token", &[("name", "lattice")]).body_json();
    assert_eq!(client.get("account/?op=list_authorisation_tokens").body_json().as_array().map(Vec::len), Some(2));
    let token = made["token_key"].as_str().expect("a key").to_owned();
    assert_eq!(client.post("account/?op=delete_authorisation_token", &[("token_key", &token)]).status, 204);
    assert_eq!(client.get("users/?op=whoami").body_json()["username"], "admin");
    assert_eq!(client.get("maas/?op=get_config&name=hardware_sync_interval").body_json(), "15m");
    let set = client.post("maas/?op=set_config", &[("name", "hardware_sync_interval"), ("value", "5m")]);
    assert_eq!((set.status, set.body_text().as_str()), (200, "OK"));
    assert_eq!(client.get("rackcontrollers/").body_json()[0]["service_set"][0]["status"], "running");
}

#[test]
fn a_deleted_machine_is_gone_and_its_mac_is_free() {
    let mut client = Client::site(1);
    let form = [("mac_addresses", "00:00:00:00:00:01"), ("commission", "false")];
    let id = client.post("machines/", &form).body_json()["system_id"].as_str().expect("an id").to_owned();
    assert_eq!(client.delete(&format!("machines/{id}/")).status, 204);
    check(&mut client, Method::Get, &format!("machines/{id}/"), &[], 404, "No Machine");
    assert_eq!(client.post("machines/", &form).status, 200);
}
