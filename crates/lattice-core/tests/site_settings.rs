//! Settings, profiles, overrides and RoCE assignments of a site: what they must be, and what they decide.
#![allow(clippy::unwrap_used, reason = "a test stops at what it cannot do")]

use std::sync::atomic::{AtomicU64, Ordering};

use lattice_core::ids::{Generation, IdSource, OverrideId, ProfileId, SiteId, uuid_v7};
use lattice_core::job::{JobInput, flow_for};
use lattice_core::node::class::HeartbeatPolicy;
use lattice_core::site::maas::{KNOBS, span_seconds, version_note};
use lattice_core::site::power_credentials::{PowerTarget, choose, selector_value};
use lattice_core::site::roce::{BadItem, RoceItem, Upsert, upsert};
use lattice_core::site::{
    MaasPolicy, MaasSettings, MaasSite, PowerOverride, PowerSelector, RoceRow, Site, SiteProfile, SiteProvider,
    SiteStatus, check,
};
use lattice_core::time::Timestamp;
use serde_json::{Value, json};

const NOW: Timestamp = Timestamp::from_millis(1_700_000_000_000);

#[derive(Default)]
struct Ids(AtomicU64);

impl IdSource for Ids {
    fn uuid(&self, at: Timestamp) -> uuid::Uuid {
        let mut random = [0; 10];
        random[2..].copy_from_slice(&self.0.fetch_add(1, Ordering::Relaxed).to_be_bytes());
        uuid_v7(at, random)
    }
}

fn maas(changes: &Value) -> MaasSite {
    let mut provider = json!({"api_base_url": "http://m/MAAS", "api_token_path": "t",
        "default_power_creds_path": "default", "deploy_password_path": "d", "pxe_iface": "ens19", "pxe_vlan_vid": 46,
        "node_pxe_iface": "eno8303"});
    for (name, value) in changes.as_object().unwrap() {
        provider[name] = value.clone();
    }
    serde_json::from_value(provider).unwrap()
}

fn profile(settings: &Value) -> SiteProfile {
    let profile = json!({"id": ProfileId::generate(&Ids::default(), NOW), "site": site_id(), "name": "strict",
        "description": "", "status": "active", "settings": settings, "created_at": NOW, "updated_at": NOW,
        "generation": 1});
    serde_json::from_value(profile).unwrap()
}

fn site_id() -> SiteId {
    SiteId::new(uuid_v7(NOW, [7; 10]))
}

#[test]
fn the_table_of_knobs_has_every_field_of_a_policy_with_the_specified_default() {
    let policy = MaasPolicy::default();
    let fields = serde_json::to_value(&policy).unwrap();
    let mut named: Vec<&str> = KNOBS.iter().map(|knob| knob.name).collect();
    named.sort_unstable();
    let mut there: Vec<&str> = fields.as_object().unwrap().keys().map(String::as_str).collect();
    there.sort_unstable();
    assert_eq!(named, there);
    // spec: S5 3.6
    for (name, value) in [
        ("strict_pxe_preflight", json!(true)),
        ("enable_phase2_roce", json!(true)),
        ("require_hw_sync", json!(true)),
        ("hardware_sync_interval", json!("15m")),
        ("release_fallback_no_erase", json!(true)),
        ("enable_deploy_retry_on_datasource_failure", json!(true)),
        ("max_deploy_retry_attempts", json!(1)),
        ("auto_claim_single_new_machine", json!(false)),
        ("batch_max_parallel", json!(10)),
        ("site_bootstrap_bundle_ref", Value::Null),
        ("enrollment_token_ttl_seconds", json!(7_200)),
    ] {
        assert_eq!(fields[name], value, "{name}");
    }
    assert_eq!(policy.values().len(), KNOBS.len());
    assert!(check::policy(&policy).is_ok());
}

/// What changes of a good site, and the field that is refused.
const BAD: &[(&str, &str)] = &[
    (r#"{"pxe_iface": ""}"#, "pxe_iface"),
    (r#"{"pxe_iface": "an-interface-name-that-is-too-long"}"#, "pxe_iface"),
    (r#"{"node_pxe_iface": "eno 1"}"#, "node_pxe_iface"),
    (r#"{"pxe_vlan_vid": 4095}"#, "pxe_vlan_vid"),
    (r#"{"distro_series": ""}"#, "distro_series"),
    (r#"{"distro_series": "ubuntu noble"}"#, "distro_series"),
    (r#"{"architecture": "amd64"}"#, "architecture"),
    (r#"{"deploy_user": "root"}"#, "deploy_user"),
    (r#"{"deploy_user": "Admin"}"#, "deploy_user"),
    (r#"{"deploy_ssh_iface": "../x"}"#, "deploy_ssh_iface"),
    (r#"{"deploy_ssh_port": 0}"#, "deploy_ssh_port"),
    (r#"{"upstream_dns_servers": []}"#, "upstream_dns_servers"),
    (r#"{"upstream_dns_servers": ["1.1.1.1", "dns.example"]}"#, "upstream_dns_servers[1]"),
    (r#"{"upstream_dns_servers": ["1.1.1.1", "1.1.1.1"]}"#, "upstream_dns_servers[1]"),
    (r#"{"policy": {"hardware_sync_interval": "15"}}"#, "policy.hardware_sync_interval"),
    (r#"{"policy": {"hardware_sync_interval": "30s"}}"#, "policy.hardware_sync_interval"),
    (r#"{"policy": {"hardware_sync_interval": "2d"}}"#, "policy.hardware_sync_interval"),
    (r#"{"policy": {"max_deploy_retry_attempts": 6}}"#, "policy.max_deploy_retry_attempts"),
    (r#"{"policy": {"batch_max_parallel": 0}}"#, "policy.batch_max_parallel"),
    (r#"{"policy": {"site_bootstrap_bundle_ref": ""}}"#, "policy.site_bootstrap_bundle_ref"),
    (r#"{"policy": {"site_bootstrap_bundle_ref": "two words"}}"#, "policy.site_bootstrap_bundle_ref"),
    (r#"{"policy": {"site_bootstrap_bundle_ref": "--help"}}"#, "policy.site_bootstrap_bundle_ref"),
    (r#"{"policy": {"enrollment_token_ttl_seconds": 59}}"#, "policy.enrollment_token_ttl_seconds"),
    (r#"{"policy": {"enrollment_token_ttl_seconds": 3600}}"#, "policy.enrollment_token_ttl_seconds"),
    (r#"{"policy": {"discovery_timeout_ms": 15}}"#, "policy.discovery_timeout_ms"),
    (r#"{"policy": {"commission_timeout_ms": 86400001}}"#, "policy.commission_timeout_ms"),
    (r#"{"policy": {"poll_interval_ms": 0}}"#, "policy.poll_interval_ms"),
];

#[test]
fn a_setting_that_would_not_work_is_refused_with_its_field_and_what_would() {
    assert_eq!(check::maas_site(&maas(&json!({}))), Ok(()));
    for (changes, field) in BAD {
        let site = maas(&serde_json::from_str(changes).unwrap());
        let refused = check::maas_site(&site).unwrap_err();
        assert_eq!(refused.field, *field, "{changes}");
        assert!(refused.problem.contains("must be") || refused.problem.contains("leave it out"), "{refused}");
    }
}

#[test]
fn time_spans_are_hours_minutes_and_seconds() {
    for (text, seconds) in [("15m", 900), ("1h30m", 5_400), ("90s", 90)] {
        assert_eq!(span_seconds(text), Some(seconds), "{text}");
    }
    for text in ["", "15", "m", "1.5h", "1d", "-1m", "1h 30m", "9999999h"] {
        assert_eq!(span_seconds(text), None, "{text}");
    }
}

#[test]
fn a_profile_stands_over_its_site_and_the_poller_stays_the_sites() {
    let site = maas(&json!({"policy": {"poll_interval_ms": 777, "batch_max_parallel": 3}}));
    let own = MaasSettings::of(&site, None);
    assert_eq!((own.profile, own.policy.batch_max_parallel, own.node_pxe_iface.as_str()), (None, 3, "eno8303"));
    let strict = profile(&json!({"distro_series": "custom/gpuaas", "node_pxe_iface": "eno1", "pxe_vlan_vid": 7,
        "policy": {"batch_max_parallel": 2, "require_hw_sync": false, "poll_interval_ms": 1_000_000}}));
    let chosen = MaasSettings::of(&site, Some(&strict));
    assert_eq!(chosen.profile.as_deref(), Some("strict"));
    assert_eq!((chosen.distro_series.as_str(), chosen.architecture.as_str()), ("custom/gpuaas", "amd64/generic"));
    assert_eq!((chosen.node_pxe_iface.as_str(), chosen.pxe_iface.as_str(), chosen.pxe_vlan_vid), ("eno1", "ens19", 7));
    assert_eq!((chosen.policy.batch_max_parallel, chosen.policy.require_hw_sync), (2, false));
    assert_eq!(chosen.policy.poll_interval_ms, 777);
}

#[test]
fn a_job_keeps_the_settings_it_was_accepted_with_and_sees_a_new_address() {
    let before = maas(&json!({"policy": {"deploy_timeout_ms": 1_800_000}}));
    let input = JobInput::OnboardMaas {
        hostname: "c07u43".to_owned(),
        ipmi_ip: "10.0.0.43".to_owned(),
        pxe_mac: None,
        settings: Box::new(MaasSettings::of(&before, None)),
    };
    let after = maas(&json!({"api_base_url": "http://new/MAAS", "distro_series": "ubuntu/jammy",
        "policy": {"deploy_timeout_ms": 5_000}}));
    let site = Site {
        id: site_id(),
        name: "dc1".to_owned(),
        region_code: "eu".to_owned(),
        provider: SiteProvider::Maas(after),
        heartbeat: HeartbeatPolicy::default(),
        bmc: lattice_core::bmc::BmcPolicy::default(),
        automation: lattice_core::site::AutomationPolicy::default(),
        brake: None,
        let_go_at: None,
        approved: Vec::new(),
        sensitive: lattice_core::site::SensitivePolicy::default(),
        status: SiteStatus::Active,
        created_at: NOW,
        updated_at: NOW,
        generation: Generation::FIRST,
    };
    let SiteProvider::Maas(seen) = site.seen_by(&input).into_owned().provider else { panic!("a MAAS site") };
    assert_eq!((seen.distro_series.as_str(), seen.policy.deploy_timeout_ms), ("ubuntu/noble", 1_800_000));
    assert_eq!(seen.api_base_url, "http://new/MAAS");
    let flow = flow_for(&input, &site);
    let waits = flow.stages.iter().find(|stage| stage.name.to_string() == "wait_for_deployed").unwrap();
    assert_eq!(waits.timeout.after.as_millis(), 1_800_000);
}

fn one_override(selector: PowerSelector, value: &str, status: SiteStatus) -> PowerOverride {
    PowerOverride {
        id: OverrideId::generate(&Ids::default(), NOW),
        site: site_id(),
        selector,
        value: value.to_owned(),
        path: format!("by-{selector}"),
        status,
        created_at: NOW,
        updated_at: NOW,
        generation: Generation::FIRST,
    }
}

#[test]
fn a_login_is_chosen_by_mac_then_bmc_then_host_name_then_the_default() {
    let site = maas(&json!({}));
    let all = [
        (PowerSelector::Hostname, "c07u43"),
        (PowerSelector::IpmiIp, "10.0.0.43"),
        (PowerSelector::PxeMac, "aa:bb:cc:00:00:01"),
    ];
    let target = PowerTarget { hostname: "C07u43", ipmi_ip: "10.0.0.43", pxe_mac: Some("AA-BB-CC-00-00-01") };
    let chosen = |overrides: &[PowerOverride]| choose(&site, overrides, &target);
    for count in 1..=3 {
        let active: Vec<_> =
            all[..count].iter().map(|(by, value)| one_override(*by, value, SiteStatus::Active)).collect();
        let strongest = all[count - 1].0;
        assert_eq!(chosen(&active).path, format!("by-{strongest}"));
        assert_eq!(chosen(&active).source, format!("override:{strongest}"));
    }
    let disabled = one_override(PowerSelector::PxeMac, "aa:bb:cc:00:00:01", SiteStatus::Disabled);
    let other = one_override(PowerSelector::IpmiIp, "10.0.0.99", SiteStatus::Active);
    assert_eq!(chosen(&[disabled, other]).source, "site_default");
    assert_eq!(chosen(&[]).path, "default");
}

#[test]
fn what_means_the_same_is_written_the_same() {
    for (selector, text, written) in [
        (PowerSelector::PxeMac, "AA-BB-CC-00-00-01", "aa:bb:cc:00:00:01"),
        (PowerSelector::IpmiIp, "fd00:0::1", "fd00::1"),
        (PowerSelector::Hostname, "C07U43", "c07u43"),
    ] {
        assert_eq!(selector_value(selector, text).as_deref(), Ok(written));
    }
    for (selector, text) in [
        (PowerSelector::PxeMac, "aa:bb:cc:00:00"),
        (PowerSelector::PxeMac, "aa:bb:cc:00:00:zz"),
        (PowerSelector::IpmiIp, "10.0.0.0/24"),
        (PowerSelector::IpmiIp, "10.0.0.300"),
        (PowerSelector::Hostname, "a_b"),
        (PowerSelector::Hostname, ""),
    ] {
        assert_eq!(selector_value(selector, text).unwrap_err().field, "selector_value", "{text}");
    }
}

fn item(hostname: &str, interface: &str, ipv4_cidr: &str) -> RoceItem {
    RoceItem { hostname: hostname.to_owned(), interface: interface.to_owned(), ipv4_cidr: ipv4_cidr.to_owned() }
}

fn put(stored: &[RoceRow], items: &[RoceItem]) -> Result<Vec<RoceRow>, Vec<BadItem>> {
    let settings = maas(&json!({}));
    upsert(&Upsert { site: site_id(), settings: &settings, now: NOW, ids: &Ids::default() }, stored, items)
}

#[test]
fn a_list_creates_changes_and_leaves_alone() {
    let items = [item("c07u31", "enp28s0np0", "172.30.9.61/31"), item("C07U31", "enp29s0np0", "172.29.1.219/31")];
    let stored = put(&[], &items).unwrap();
    assert_eq!(stored.len(), 2);
    assert_eq!(stored[1].assignment.hostname, "c07u31");
    assert_eq!(put(&stored, &items), Ok(Vec::new()), "once more changes nothing");
    let changed = put(&stored, &[item("c07u31", "enp28s0np0", "172.30.9.63/31")]).unwrap();
    assert_eq!((changed[0].id, changed[0].generation), (stored[0].id, Generation(2)));
    let exchanged = [item("c07u31", "enp28s0np0", "172.29.1.219/31"), item("c07u31", "enp29s0np0", "172.30.9.61/31")];
    assert_eq!(put(&stored, &exchanged).unwrap().len(), 2, "interfaces may exchange their addresses");
}

/// An item beside good ones, and what is refused of it.
const BAD_ITEMS: &[(&str, &str, &str, &str)] = &[
    ("a_b", "eth1", "172.30.0.1/31", "hostname"),
    ("b", "", "172.30.0.1/31", "interface"),
    ("b", "eno8303", "172.30.0.1/31", "interface"),
    ("b", "eth1", "172.30.0.1", "ipv4_cidr"),
    ("b", "eth1", "172.30.0.1/33", "ipv4_cidr"),
    ("b", "eth1", "172.30.0.1/24", "ipv4_cidr"),
    ("b", "eth1", "fd00::1/127", "ipv4_cidr"),
    ("b", "eth1", "127.0.0.1/31", "ipv4_cidr"),
    ("b", "eth1", "224.0.0.1/31", "ipv4_cidr"),
    ("b", "eth1", "0.0.0.1/31", "ipv4_cidr"),
    // Of the list itself.
    ("a", "eth1", "172.30.0.1/31", "interface"),
    ("b", "eth1", "172.30.9.61/31", "ipv4_cidr"),
    ("b", "eth1", "172.30.9.60/31", "ipv4_cidr"),
    // Of what is stored.
    ("b", "eth1", "172.30.7.1/31", "ipv4_cidr"),
    ("b", "eth1", "172.30.7.0/31", "ipv4_cidr"),
];

#[test]
fn every_bad_item_is_named_with_its_place_and_none_is_applied() {
    let stored = put(&[], &[item("old", "eth7", "172.30.7.1/31")]).unwrap();
    for (hostname, interface, cidr, field) in BAD_ITEMS {
        let items = [item("a", "eth1", "172.30.9.61/31"), item(hostname, interface, cidr)];
        let problems = put(&stored, &items).unwrap_err();
        let found: Vec<_> = problems.iter().map(|problem| (problem.index, problem.field)).collect();
        assert_eq!(found, [(1, *field)], "{hostname} {interface} {cidr}: {problems:?}");
    }
    let all: Vec<RoceItem> = BAD_ITEMS[..10].iter().map(|(a, b, c, _)| item(a, b, c)).collect();
    assert_eq!(put(&stored, &all).unwrap_err().len(), 10, "one answer names every mistake");
}

#[test]
fn another_version_of_maas_is_said_so() {
    for version in ["3.7", "3.7.3", "3.7.0~beta1"] {
        assert_eq!(version_note(version), None, "{version}");
    }
    for version in ["2.9.2", "3.5.1", "3.8.0", "4.0", "37", "", "new"] {
        assert!(version_note(version).unwrap().contains("another version than 3.7"), "{version}");
    }
}
