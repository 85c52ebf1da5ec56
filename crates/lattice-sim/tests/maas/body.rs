//! Machine bodies against the recorded ones: the same keys, the same types.

use serde_json::Value;

use crate::client::Client;

/// Keys that are in the body but not in the recordings.
const EXTRA: [&str; 1] = ["ip_addresses"];

fn check(found: &Value, recorded: &str) {
    let recorded: Value = serde_json::from_str(recorded).expect("a recorded body");
    let (found, recorded) = (found.as_object().expect("a body"), recorded.as_object().expect("a body"));
    let missing: Vec<&String> = recorded.keys().filter(|key| !found.contains_key(*key)).collect();
    assert!(missing.is_empty(), "missing: {missing:?}");
    let extra = found.keys().filter(|key| !recorded.contains_key(*key) && !EXTRA.contains(&key.as_str()));
    assert_eq!(extra.collect::<Vec<_>>(), Vec::<&String>::new());
    for (key, value) in recorded {
        compare(key, &found[key], value);
    }
}

/// Types agree, down to the keys of objects and the first item of lists; null fits anything.
fn compare(path: &str, found: &Value, recorded: &Value) {
    match (found, recorded) {
        (Value::Null, _) | (_, Value::Null) => {}
        (Value::Object(found), Value::Object(recorded)) => {
            for (key, value) in recorded.iter().filter(|(key, _)| !path.ends_with("owner_data") && *key != "ip_address")
            {
                compare(&format!("{path}.{key}"), found.get(key).unwrap_or_else(|| panic!("{path}.{key}")), value);
            }
        }
        (Value::Array(found), Value::Array(recorded)) => {
            if let (Some(found), Some(recorded)) = (found.first(), recorded.first()) {
                compare(&format!("{path}[]"), found, recorded);
            }
        }
        (found, recorded) => {
            assert_eq!(std::mem::discriminant(found), std::mem::discriminant(recorded), "{path}: {found}");
        }
    }
}

#[test]
fn a_new_machine_has_the_keys_and_types_of_the_recorded_one() {
    let mut client = Client::site(1);
    let id = client.create(0);
    check(&client.machine(&id), include_str!("../fixtures/maas-machine-new.json"));
}

#[test]
fn a_ready_machine_has_the_keys_and_types_of_the_recorded_one() {
    let mut client = Client::site(1);
    let id = client.ready(0);
    let body = client.machine(&id);
    check(&body, include_str!("../fixtures/maas-machine-ready.json"));
    assert_eq!(body["interface_set"].as_array().map(Vec::len), Some(9));
    assert_eq!(body["boot_interface"]["name"], "eno8303");
    assert_eq!(body["boot_interface"]["links"][0]["mode"], "auto");
    assert!(body["boot_interface"]["links"][0].get("ip_address").is_none());
    assert_eq!(body["blockdevice_set"][0]["model"], "DELLBOSS_VD");
}

#[test]
fn a_deployed_machine_has_the_keys_and_types_of_the_recorded_one_and_an_address() {
    let mut client = Client::site(1);
    let id = client.deployed(0);
    let body = client.machine(&id);
    check(&body, include_str!("../fixtures/maas-machine-deploying.json"));
    let address = client.machines[0].address.to_string();
    assert_eq!(body["ip_addresses"][0], address);
    assert_eq!(body["boot_interface"]["links"][0]["ip_address"], address);
    assert_eq!(body["sync_interval"], 900);
}
