//! Machines on their way through life, by the clock of the test.

use lattice_sim::maas::config::SiteConfig;
use lattice_sim::maas::faults::{Fault, MachineFault};
use lattice_sim::maas::quirk::Quirks;
use lattice_sim::maas::world::{BmcCommand, BmcError, Effect};
use serde_json::json;

use crate::client::Client;

#[test]
fn a_machine_goes_from_new_to_ready_to_deployed_and_back_to_ready() {
    let mut client = Client::site(1);
    let id = client.create(0);
    assert_eq!(client.status(&id), "New");
    client.op(&id, "commission", &[("enable_ssh", "1"), ("skip_bmc_config", "1")]);
    assert_eq!(client.wait_while(&id, "Commissioning"), "Ready");
    assert_eq!(client.machine(&id)["power_state"], "on", "enable_ssh leaves it on");
    client.op(&id, "deploy", &[("user_data", "I2Nsb3VkLWNvbmZpZwo="), ("distro_series", "ubuntu/noble")]);
    assert_eq!(client.machine(&id)["owner"], "admin");
    assert_eq!(client.wait_while(&id, "Deploying"), "Deployed");
    let boots: Vec<_> = client
        .effects
        .iter()
        .filter_map(|effect| match effect {
            Effect::Booted(boot) => Some(boot.clone()),
            Effect::PoweredOff { .. } | Effect::Wiped { .. } => None,
        })
        .collect();
    assert_eq!(boots.len(), 1);
    assert_eq!(boots[0].user_data, b"#cloud-config\n");
    assert_eq!((boots[0].address, boots[0].first, boots[0].deployment), (client.machines[0].address, true, 1));
    client.op(&id, "release", &[]);
    assert_eq!(client.wait_while(&id, "Releasing"), "Ready");
    let body = client.machine(&id);
    assert_eq!(
        (&body["owner"], &body["ip_addresses"], &body["power_state"]),
        (&json!(null), &json!([]), &json!("off"))
    );
    assert!(client.effects.contains(&Effect::Wiped { label: client.machines[0].label.clone() }));
    assert_eq!(client.world.report().unknown_requests, []);
}

#[test]
fn a_machine_created_with_its_default_is_commissioned_at_once() {
    let mut client = Client::site(1);
    let bmc = client.machines[0].bmc.clone();
    let mac = client.machines[0].nics[0].mac.clone();
    let form = [
        ("architecture", "amd64/generic"),
        ("mac_addresses", mac.as_str()),
        ("power_type", "ipmi"),
        ("power_parameters_power_address", &bmc.address.to_string()),
        ("power_parameters_power_user", &bmc.user),
        ("power_parameters_power_pass", &bmc.password),
    ];
    let response = client.post("machines/", &form);
    assert_eq!(response.body_json()["status_name"], "Commissioning");
    let id = response.body_json()["system_id"].as_str().expect("an id").to_owned();
    assert_eq!(client.wait_while(&id, "Commissioning"), "Ready");
    assert_eq!(client.machine(&id)["interface_set"].as_array().map(Vec::len), Some(9));
    let again = client.post("machines/", &form);
    assert_eq!(again.status, 400);
    assert!(again.body_json()["mac_addresses"][0].as_str().is_some_and(|text| text.contains("already in use")));
}

#[test]
fn a_power_cycled_machine_appears_as_new_under_a_made_up_name() {
    let mut client = Client::site(2);
    let bmc = client.machines[1].bmc.clone();
    let address = bmc.address.to_string();
    let cycle = BmcCommand::CycleToNetwork;
    assert_eq!(client.world.bmc(&address, ("root", "wrong"), cycle, client.now), Err(BmcError::LoginRefused));
    assert_eq!(client.world.bmc("10.0.0.1", ("root", "x"), cycle, client.now), Err(BmcError::Unreachable));
    assert_eq!(client.world.bmc(&address, (&bmc.user, &bmc.password), cycle, client.now), Ok(true));
    assert_eq!(client.get("machines/?status=new").body_json(), json!([]));
    client.pass(2_000);
    let found = client.get("machines/?status=new").body_json();
    assert_eq!(found[0]["boot_interface"]["mac_address"], client.machines[1].nics[0].mac);
    let id = found[0]["system_id"].as_str().expect("an id").to_owned();
    let parameters = client.get(&format!("machines/{id}/?op=power_parameters")).body_json();
    assert_eq!(parameters["power_address"], address);
    let accepted = client.post("machines/?op=accept", &[("machines", &id)]);
    assert_eq!(accepted.body_json()[0]["status_name"], "Commissioning");
    assert_eq!(client.wait_while(&id, "Commissioning"), "Ready");
}

#[test]
fn a_machine_created_by_its_bmc_learns_its_mac_when_it_boots_over_the_network() {
    let mut client = Client::site(1);
    let id = client.create(0);
    assert_eq!(client.machine(&id)["interface_set"], json!([]));
    let bmc = client.machines[0].bmc.clone();
    let cycle = BmcCommand::CycleToNetwork;
    let done = client.world.bmc(&bmc.address.to_string(), (&bmc.user, &bmc.password), cycle, client.now);
    assert_eq!(done, Ok(true));
    client.pass(2_000);
    assert_eq!(client.machine(&id)["boot_interface"]["mac_address"], client.machines[0].nics[0].mac);
    assert_eq!(client.get("machines/").body_json().as_array().map(Vec::len), Some(1));
}

#[test]
fn each_fault_of_a_machine_shows_where_a_client_looks_for_it() {
    use MachineFault::*;
    let deploy = |client: &mut Client, id: &str| {
        client.op(id, "deploy", &[]);
        client.wait_while(id, "Deploying")
    };
    for what in [BmcUnreachable, BmcLoginRefused, CommissioningFailure, CommissioningHangs] {
        let mut client = Client::with_fault(what);
        let id = client.create(0);
        client.op(&id, "commission", &[]);
        assert_eq!(client.wait_while(&id, "Commissioning"), "Failed commissioning", "{what:?}");
    }
    for what in [DeployNoDatasource, DeployFails, DeployHangs] {
        let mut client = Client::with_fault(what);
        let id = client.ready(0);
        assert_eq!(deploy(&mut client, &id), "Failed deployment", "{what:?}");
        let events = client.get(&format!("events/?op=query&level=WARNING&id={id}")).body_text();
        assert_eq!(events.contains("datasource"), what == DeployNoDatasource, "{events}");
    }
    let mut client = Client::with_fault(DeployRejected);
    let id = client.ready(0);
    assert_eq!(client.try_op(&id, "deploy", &[]).status, 400);
    let mut client = Client::with_fault(MissingBootDisk);
    let id = client.ready(0);
    assert!(!client.get(&format!("nodes/{id}/blockdevices/")).body_text().contains("BOSS"));
    for (what, absent) in [(AbsentNic, "enp28s0np0"), (AbsentPxeNic, "eno8303")] {
        let mut client = Client::with_fault(what);
        let id = client.ready(0);
        assert!(!client.get(&format!("nodes/{id}/interfaces/")).body_text().contains(absent));
    }
    let mut client = Client::with_fault(TokenNeverEmitted);
    let id = client.deployed(0);
    assert_eq!(client.get(&format!("machines/{id}/?op=get_token")).body_text(), "null");
    let mut client = Client::with_fault(NoSshAddress);
    let id = client.deployed(0);
    assert_eq!(client.machine(&id)["ip_addresses"], json!([]));
    let mut client = Client::with_fault(MachineDeleted);
    let id = client.ready(0);
    client.op(&id, "deploy", &[]);
    client.pass(2_000);
    assert_eq!(client.get(&format!("machines/{id}/")).status, 404);
    let mut client = Client::with_fault(ReleaseFails);
    let id = client.deployed(0);
    client.op(&id, "release", &[]);
    assert_eq!(client.wait_while(&id, "Releasing"), "Releasing failed");
}

#[test]
fn a_fault_with_a_count_heals_and_the_second_attempt_goes_well() {
    let mut client = Client::site(1);
    let name = client.machines[0].label.clone();
    client.world.faults().arm(Fault::Machine { name, what: MachineFault::DeployNoDatasource }, 1);
    let id = client.ready(0);
    client.op(&id, "deploy", &[]);
    assert_eq!(client.wait_while(&id, "Deploying"), "Failed deployment");
    client.op(&id, "release", &[]);
    assert_eq!(client.wait_while(&id, "Releasing"), "Ready");
    client.op(&id, "deploy", &[]);
    assert_eq!(client.wait_while(&id, "Deploying"), "Deployed");
}

#[test]
fn the_same_seed_and_the_same_calls_give_the_same_log() {
    let log = |seed: u64| {
        let mut client = Client::new(SiteConfig::dev(seed, 3));
        for index in 0..3 {
            let id = client.deployed(index);
            client.op(&id, "release", &[]);
            client.wait_while(&id, "Releasing");
        }
        (client.world.events().to_vec(), client.world.report(), client.effects)
    };
    assert_eq!(log(5), log(5));
    assert_ne!(log(5).0, log(6).0);
}

#[test]
fn a_site_without_quirks_still_brings_a_machine_up() {
    let mut client = Client::new(SiteConfig { quirks: Quirks::off(), ..SiteConfig::dev(1, 1) });
    let bmc = client.machines[0].bmc.clone();
    let form = [
        ("power_type", "ipmi"),
        ("power_parameters_power_address", &*bmc.address.to_string()),
        ("power_parameters_power_user", &bmc.user),
        ("power_parameters_power_pass", &bmc.password),
    ];
    let response = client.post("machines/", &form);
    assert_eq!((response.status, response.body_json()["status_name"].clone()), (201, json!("New")));
    let id = response.body_json()["system_id"].as_str().expect("an id").to_owned();
    client.op(&id, "commission", &[]);
    assert_eq!(client.wait_while(&id, "Commissioning"), "Ready");
    assert_eq!(client.try_op(&id, "deploy", &[]).status, 409, "nothing allocates by itself");
    assert_eq!(client.post("machines/?op=allocate", &[("system_id", &id)]).status, 200);
    client.op(&id, "deploy", &[]);
    assert_eq!(client.wait_while(&id, "Deploying"), "Deployed");
    assert!(client.world.report().quirks.is_empty());
}

#[test]
fn three_hundred_machines_come_up_side_by_side_and_share_nothing() {
    let mut client = Client::site(300);
    let ids: Vec<String> = (0..300).map(|index| client.create(index)).collect();
    for op in ["commission", "deploy"] {
        for id in &ids {
            client.op(id, op, &[]);
        }
        client.pass(5_000);
    }
    let listed = client.get("machines/?status=deployed").body_json();
    let listed = listed.as_array().expect("a list");
    assert_eq!(listed.len(), 300);
    let distinct = |key: &str| listed.iter().map(|m| m[key].to_string()).collect::<std::collections::BTreeSet<_>>();
    assert_eq!((distinct("ip_addresses").len(), distinct("system_id").len()), (300, 300));
}
