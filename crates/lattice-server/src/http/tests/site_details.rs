//! Profiles, overrides, RoCE assignments, removal: what is refused, what stays, and that no secret comes out.

use http::{Method, StatusCode, header};
use lattice_core::actor::Role;
use lattice_core::job::JobInput;
use lattice_core::secret::token_hash;
use serde_json::{Value, json};

use super::fixture::{Api, Seen, as_role, request};

const SITE: &str = "/api/v1/admin/sites/dc1";

async fn api() -> Api {
    let api = Api::new().await;
    for name in ["dc1", "dc2"] {
        let body = json!({"name": name, "region_code": "eu1", "provider": {"kind": "maas",
            "api_base_url": "http://10.0.0.1:5240/MAAS", "pxe_iface": "ens19", "pxe_vlan_vid": 46,
            "node_pxe_iface": "eno8303"}});
        let made = api.json(Method::POST, "/api/v1/admin/sites", &body.to_string()).await;
        assert_eq!(made.status, StatusCode::CREATED, "{}", made.body);
    }
    api
}

async fn post(api: &Api, path: &str, body: Value) -> Seen {
    api.json(Method::POST, &format!("{SITE}/{path}"), &body.to_string()).await
}

async fn patch(api: &Api, path: &str, body: Value) -> Seen {
    api.json(Method::PATCH, &format!("{SITE}{path}"), &body.to_string()).await
}

async fn delete(api: &Api, path: &str) -> Seen {
    api.json(Method::DELETE, &format!("{SITE}{path}"), "").await
}

async fn onboard(api: &Api, hostname: &str, ip: &str, profile: Option<&str>) -> Seen {
    let mut body = json!({"site_id": "dc1", "sku_id": "lxd.small", "hostname": hostname, "ipmi_ip": ip});
    if let Some(profile) = profile {
        body["profile_id"] = json!(profile);
    }
    api.json(Method::POST, "/api/v1/admin/onboardings", &body.to_string()).await
}

/// Path under the site, body, and what is refused: status, code, field.
type Row = (&'static str, &'static str, u16, &'static str, Option<&'static str>);

const BAD: &[Row] = &[
    ("profiles", r#"{}"#, 400, "LAT0001", Some("name")),
    ("profiles", r#"{"name":7}"#, 400, "LAT0001", Some("name")),
    ("profiles", r#"{"name":"a","color":"red"}"#, 400, "LAT0001", Some("color")),
    ("profiles", r#"{"name":"A b"}"#, 422, "LAT0010", Some("name")),
    ("profiles", r#"{"name":"01890000-0000-7000-8000-00000000dead"}"#, 422, "LAT0010", Some("name")),
    ("profiles", r#"{"name":"a","settings":[]}"#, 400, "LAT0001", Some("settings")),
    ("profiles", r#"{"name":"a","settings":{"deploy_user":"x"}}"#, 400, "LAT0001", Some("settings.deploy_user")),
    ("profiles", r#"{"name":"a","settings":{"pxe_vlan_vid":"x"}}"#, 400, "LAT0001", Some("settings.pxe_vlan_vid")),
    ("profiles", r#"{"name":"a","settings":{"pxe_vlan_vid":4095}}"#, 422, "LAT0010", Some("settings.pxe_vlan_vid")),
    (
        "profiles",
        r#"{"name":"a","settings":{"policy":{"batch_max_parallel":0}}}"#,
        422,
        "LAT0010",
        Some("settings.policy.batch_max_parallel"),
    ),
    (
        "profiles",
        r#"{"name":"a","settings":{"policy":{"poll_interval_ms":100}}}"#,
        422,
        "LAT0010",
        Some("settings.policy.poll_interval_ms"),
    ),
    ("power-overrides", r#"{"selector_type":"serial","selector_value":"x"}"#, 400, "LAT0001", Some("selector_type")),
    ("power-overrides", r#"{"selector_type":"hostname","selector_value":"a"}"#, 400, "LAT0001", Some("login")),
    (
        "power-overrides",
        r#"{"selector_type":"pxe_mac","selector_value":"aa:bb","login":{"user":"u","pass":"p"}}"#,
        422,
        "LAT0010",
        Some("selector_value"),
    ),
    (
        "power-overrides",
        r#"{"selector_type":"ipmi_ip","selector_value":"10.0.0.0/24","login":{"user":"u","pass":"p"}}"#,
        422,
        "LAT0010",
        Some("selector_value"),
    ),
    (
        "power-overrides",
        r#"{"selector_type":"hostname","selector_value":"a","login":{"user":"","pass":"p"}}"#,
        422,
        "LAT0010",
        Some("login.user"),
    ),
    ("roce-assignments", r#"{}"#, 422, "LAT0010", Some("items")),
    ("roce-assignments", r#"{"items":{}}"#, 400, "LAT0001", Some("items")),
    ("roce-assignments", r#"{"items":[{"hostname":"a","interface":"b"}]}"#, 400, "LAT0001", Some("items[0].ipv4_cidr")),
    (
        "roce-assignments",
        r#"{"items":[{"hostname":"a","interface":"eth1","ipv4_cidr":"172.30.9.61/31"},
            {"hostname":"a","interface":"eth2","ipv4_cidr":"172.30.9.300/31"}]}"#,
        422,
        "LAT0010",
        Some("items[1].ipv4_cidr"),
    ),
];

#[tokio::test]
async fn what_is_wrong_is_refused_by_its_field_and_changes_nothing() {
    let api = api().await;
    let before = api.store.last_event().await.unwrap();
    for (path, body, status, code, field) in BAD {
        let seen = api.json(Method::POST, &format!("{SITE}/{path}"), body).await;
        seen.refuses(*status, code, &format!("{path} {body}"));
        assert_eq!(seen.body["field"].as_str(), *field, "{body}: {}", seen.body);
    }
    for path in ["profiles", "power-overrides", "roce-assignments"] {
        let local = format!("/api/v1/admin/sites/local/{path}");
        api.get(&local).await.refuses(422, "LAT0010", "a manual site has none");
        api.get(&format!("/api/v1/admin/maas-sites/local/{path}")).await.refuses(404, "LAT0004", "no MAAS site");
        let large = format!(r#"{{"items":"{}"}}"#, "a".repeat(1 << 20));
        api.json(Method::POST, &format!("{SITE}/{path}"), &large).await.refuses(413, "LAT0007", path);
        let text = request(Method::POST, &format!("{SITE}/{path}")).header(header::CONTENT_TYPE, "text/plain");
        let text =
            text.header(header::AUTHORIZATION, format!("Bearer {}", super::fixture::token_of(Role::PlatformAdmin)));
        api.send(text.body("x".into()).unwrap()).await.refuses(415, "LAT0012", path);
    }
    assert_eq!(api.store.last_event().await.unwrap(), before);
}

#[tokio::test]
async fn a_profile_is_made_changed_used_and_removed_and_jobs_keep_what_they_took() {
    let api = api().await;
    let settings = json!({"distro_series": "custom/gpuaas-noble", "policy": {"batch_max_parallel": 3}});
    let made = post(&api, "profiles", json!({"name": "strict", "description": "GPU", "settings": settings})).await;
    assert_eq!(made.status, StatusCode::CREATED, "{}", made.body);
    assert_eq!(made.body["settings"]["policy"]["require_hw_sync"], true, "what is absent is the site's");
    assert_eq!(made.body["is_default"], false);
    let id = made.body["id"].as_str().unwrap().to_owned();
    post(&api, "profiles", json!({"name": "strict"})).await.refuses(409, "LAT0011", "twice");

    onboard(&api, "a", "10.0.0.1", Some("nope")).await.refuses(422, "LAT0010", "unknown profile");
    let accepted = onboard(&api, "a", "10.0.0.1", Some("strict")).await;
    assert_eq!(accepted.status, StatusCode::ACCEPTED, "{}", accepted.body);
    let job = accepted.body["onboarding_id"].as_str().unwrap().to_owned();
    let patched = patch(
        &api,
        "/profiles/strict",
        json!({"settings": {"distro_series": null,
        "policy": {"batch_max_parallel": 9}}}),
    )
    .await;
    assert_eq!(patched.body["settings"]["policy"]["batch_max_parallel"], 9, "{}", patched.body);
    assert!(patched.body["settings"].get("distro_series").is_none(), "the site's again: {}", patched.body);
    let row = api.store.job(job.parse().unwrap()).await.unwrap().unwrap();
    let JobInput::OnboardMaas { settings, .. } = &row.input else { panic!("{:?}", row.input) };
    assert_eq!((settings.distro_series.as_str(), settings.policy.batch_max_parallel), ("custom/gpuaas-noble", 3));
    let shown = api.get(&format!("/api/v1/admin/onboardings/{job}")).await;
    assert_eq!(shown.body["profile"], "strict");

    let default = |id: &str| json!({"provider": {"default_profile_id": id}});
    patch(&api, "", default("01890000-0000-7000-8000-00000000dead")).await.refuses(422, "LAT0010", "no such profile");
    let site = patch(&api, "", default(&id)).await;
    assert_eq!(site.body["provider"]["default_profile_id"].as_str(), Some(id.as_str()), "{}", site.body);
    assert_eq!(api.get(&format!("{SITE}/profiles/strict")).await.body["is_default"], true);
    let accepted = onboard(&api, "b", "10.0.0.2", None).await;
    let shown =
        api.get(&format!("/api/v1/admin/onboardings/{}", accepted.body["onboarding_id"].as_str().unwrap())).await;
    assert_eq!(shown.body["profile"], "strict", "none was named");
    delete(&api, "/profiles/strict").await.refuses(409, "LAT0011", "the default stays");
    patch(&api, "/profiles/strict", json!({"status": "disabled"})).await.refuses(409, "LAT0011", "and active");

    patch(&api, "", json!({"provider": {"default_profile_id": null}})).await;
    let stale = as_role(
        request(Method::DELETE, &format!("{SITE}/profiles/strict")).header("if-match", "1"),
        Role::PlatformAdmin,
        "",
    );
    api.send(stale).await.refuses(412, "LAT0005", "an older version");
    patch(&api, "/profiles/strict", json!({"status": "disabled"})).await;
    onboard(&api, "c", "10.0.0.3", Some("strict")).await.refuses(409, "LAT0050", "disabled");
    patch(&api, "", default(&id)).await.refuses(422, "LAT0010", "a disabled one is no default");
    assert_eq!(delete(&api, "/profiles/strict").await.status, StatusCode::OK);
    delete(&api, "/profiles/strict").await.refuses(404, "LAT0004", "twice");
    assert!(api.store.node_by_hostname("c").await.unwrap().is_none(), "nothing half created");
    let other = api.get("/api/v1/admin/sites/dc2/profiles").await;
    assert_eq!(other.body["items"], json!([]));
    api.events_are_as_described().await;
}

#[tokio::test]
async fn a_login_goes_in_and_never_comes_out() {
    let api = api().await;
    let body = |value: &str| {
        json!({"selector_type": "pxe_mac", "selector_value": value,
        "login": {"user": "break-glass", "pass": "hunter22"}})
    };
    let made = post(&api, "power-overrides", body("AA-BB-CC-00-00-01")).await;
    assert_eq!(made.status, StatusCode::CREATED, "{}", made.body);
    assert_eq!(made.body["selector_value"], "aa:bb:cc:00:00:01");
    let id = made.body["id"].as_str().unwrap().to_owned();
    post(&api, "power-overrides", body("aa:bb:cc:00:00:01")).await.refuses(
        409,
        "LAT0011",
        "the same, written otherwise",
    );
    let rotated =
        patch(&api, &format!("/power-overrides/{id}"), json!({"login": {"user": "root", "pass": "swordfish9"}})).await;
    assert_eq!((rotated.body["generation"].as_u64(), rotated.body["status"].as_str()), (Some(2), Some("active")));
    let disabled = patch(&api, &format!("/power-overrides/{id}"), json!({"status": "disabled"})).await;
    assert_eq!(disabled.body["status"], "disabled");
    let missing = api.json(Method::PATCH, &format!("/api/v1/admin/sites/dc2/power-overrides/{id}"), "{}").await;
    missing.refuses(404, "LAT0004", "of another site");
    for path in [
        format!("{SITE}/power-overrides"),
        SITE.to_owned(),
        "/api/v1/admin/audit?limit=1000".to_owned(),
        "/api/v1/admin/events?limit=1000".to_owned(),
    ] {
        let text = String::from_utf8_lossy(&api.get(&path).await.bytes).into_owned();
        for secret in ["hunter22", "swordfish9", "break-glass", &token_hash("hunter22")] {
            assert!(!text.contains(secret), "{secret} is in {path}");
        }
    }
    assert_eq!(delete(&api, &format!("/power-overrides/{id}")).await.status, StatusCode::OK);
    delete(&api, &format!("/power-overrides/{id}")).await.refuses(404, "LAT0004", "twice");
    assert_eq!(api.secret(made.body["vault_path"].as_str().unwrap()), None, "its login went with it");
    let events = api.get("/api/v1/admin/events?limit=1000").await;
    let names: Vec<_> = events.body["events"].as_array().unwrap().iter().map(|event| event["name"].clone()).collect();
    for name in ["site.power_override.created", "site.power_override.updated", "site.power_override.removed"] {
        assert!(names.contains(&json!(name)), "{name} is not in {names:?}");
    }
    api.events_are_as_described().await;
}

#[tokio::test]
async fn assignments_go_in_whole_or_not_at_all() {
    let api = api().await;
    let item =
        |host: &str, interface: &str, cidr: &str| json!({"hostname": host, "interface": interface, "ipv4_cidr": cidr});
    let two = json!({"items": [item("c07u31", "enp28s0np0", "172.30.9.61/31"), item("c07u31", "enp29s0np0", "172.29.1.219/31")]});
    let put = post(&api, "roce-assignments", two.clone()).await;
    assert_eq!(put.body, json!({"created": 2, "changed": 0, "unchanged": 0}));
    let again = post(&api, "roce-assignments", two).await;
    assert_eq!(again.body, json!({"created": 0, "changed": 0, "unchanged": 2}));
    let mixed = json!({"items": [item("c07u32", "enp28s0np0", "172.30.9.65/31"), item("c07u32", "eno8303", "172.30.9.67/31"),
        item("c07u33", "enp28s0np0", "172.30.9.61/31")]});
    let refused = post(&api, "roce-assignments", mixed).await;
    refused.refuses(422, "LAT0010", "two of three are wrong");
    let because: Vec<_> =
        refused.body["because"].as_array().unwrap().iter().map(|fact| fact.as_str().unwrap()).collect();
    assert_eq!(because.len(), 2, "{because:?}");
    assert!(because[0].starts_with("item 2 (c07u32 eno8303): `interface`"), "{because:?}");
    assert!(because[1].contains("taken by enp28s0np0 of c07u31"), "{because:?}");
    let all = api.get(&format!("{SITE}/roce-assignments")).await;
    let rows = all.body["items"].as_array().unwrap();
    assert_eq!(rows.len(), 2, "nothing of the refused list: {}", all.body);
    let first = api.get(&format!("{SITE}/roce-assignments?limit=1")).await;
    let next = first.body["next"].as_str().unwrap().replace(' ', "%20");
    let second = api.get(&format!("{SITE}/roce-assignments?limit=1&cursor={next}")).await;
    assert_eq!((&second.body["items"][0], second.body.get("next")), (&rows[1], None));
    let of_host = api.get(&format!("{SITE}/roce-assignments?hostname=C07U32")).await;
    assert_eq!(of_host.body["items"], json!([]));
    api.get(&format!("{SITE}/roce-assignments?cursor=x")).await.refuses(400, "LAT0001", "a cursor of nobody");
    let id = rows[0]["id"].as_str().unwrap();
    assert_eq!(delete(&api, &format!("/roce-assignments/{id}")).await.body["removed"], *id);
    delete(&api, &format!("/roce-assignments/{id}")).await.refuses(404, "LAT0004", "twice");
    delete(&api, "/roce-assignments/none").await.refuses(404, "LAT0004", "no id");
    let keyed = |body: &Value| {
        let builder = request(Method::POST, &format!("{SITE}/roce-assignments")).header("idempotency-key", "list-1");
        as_role(builder, Role::PlatformAdmin, &body.to_string())
    };
    let list = json!({"items": [item("c07u40", "enp28s0np0", "172.30.9.81/31")]});
    assert_eq!(api.send(keyed(&list)).await.status, StatusCode::OK);
    assert_eq!(api.send(keyed(&list)).await.status, StatusCode::OK, "the same request again");
    api.events_are_as_described().await;
}

#[tokio::test]
async fn sites_and_skus_in_use_stay_and_addresses_are_taken_once() {
    let api = api().await;
    api.json(Method::POST, "/api/v1/admin/skus", r#"{"name":"spare"}"#).await;
    assert_eq!(api.json(Method::DELETE, "/api/v1/admin/skus/spare", "").await.body["removed"], "spare");
    api.json(Method::DELETE, "/api/v1/admin/skus/spare", "").await.refuses(404, "LAT0004", "twice");
    assert_eq!(onboard(&api, "a", "10.0.0.1", None).await.status, StatusCode::ACCEPTED);
    let taken = onboard(&api, "b", "10.0.0.1", None).await;
    taken.refuses(409, "LAT0011", "the BMC has a node");
    assert!(api.store.node_by_hostname("b").await.unwrap().is_none(), "nothing half created");
    onboard(&api, "a", "10.0.0.9", None).await.refuses(409, "LAT0011", "the name is taken");
    let used = api.json(Method::DELETE, "/api/v1/admin/skus/lxd.small", "").await;
    used.refuses(409, "LAT0011", "a node is of it");
    let used = delete(&api, "").await;
    used.refuses(409, "LAT0011", "a node is of it");
    assert!(
        used.body["next_actions"][0]["command"].as_str().unwrap().starts_with("lattice site disable"),
        "{}",
        used.body
    );
    api.json(Method::DELETE, "/api/v1/admin/sites/local", "").await.refuses(422, "LAT0010", "built in");

    let detail = json!({"selector_type": "hostname", "selector_value": "x", "login": {"user": "u", "pass": "p"}});
    let dc2 = "/api/v1/admin/sites/dc2";
    let made = api.json(Method::POST, &format!("{dc2}/power-overrides"), &detail.to_string()).await;
    api.json(Method::POST, &format!("{dc2}/profiles"), r#"{"name":"fast"}"#).await;
    assert_eq!(api.json(Method::DELETE, dc2, "").await.status, StatusCode::OK);
    api.get(dc2).await.refuses(404, "LAT0004", "gone");
    assert_eq!(api.secret(made.body["vault_path"].as_str().unwrap()), None, "and its secrets with it");
    let body = json!({"name": "dc2", "region_code": "eu1", "provider": {"kind": "maas", "api_base_url": "http://m/MAAS",
        "pxe_iface": "a", "pxe_vlan_vid": 1, "node_pxe_iface": "b"}});
    let again = api.json(Method::POST, "/api/v1/admin/sites", &body.to_string()).await;
    assert_eq!(again.status, StatusCode::CREATED, "the name is free: {}", again.body);
    api.events_are_as_described().await;
}

#[tokio::test]
async fn calls_are_counted_against_a_budget_and_sites_are_measured() {
    let api = api().await;
    let calls = api.get(&format!("{SITE}/calls")).await;
    let count = |name: &str| calls.body[name].as_u64();
    assert_eq!((count("calls"), count("polls"), count("retries")), (Some(47), Some(40), Some(2)), "{}", calls.body);
    assert_eq!((count("budget_per_onboarding"), count("poll_interval_ms")), (Some(40), Some(5_000)));
    api.get("/api/v1/admin/sites/local/calls").await.refuses(422, "LAT0010", "nothing is asked there");
    patch(&api, "", json!({"status": "disabled"})).await;
    let text = String::from_utf8_lossy(&api.get("/metrics").await.bytes).into_owned();
    for line in [
        r#"lattice_sites{kind="maas",status="active"} 1"#,
        r#"lattice_sites{kind="maas",status="disabled"} 1"#,
        r#"lattice_sites{kind="manual",status="active"} 1"#,
    ] {
        assert!(text.contains(line), "{line} is not in\n{text}");
    }
}

#[tokio::test]
async fn a_policy_that_would_not_work_is_refused_by_its_knob() {
    let api = api().await;
    for (policy, field) in [
        (json!({"batch_max_parallel": 1_001}), "provider.policy.batch_max_parallel"),
        (json!({"hardware_sync_interval": "often"}), "provider.policy.hardware_sync_interval"),
        (json!({"deploy_timeout_ms": 7_200_000}), "provider.policy.enrollment_token_ttl_seconds"),
    ] {
        let seen = patch(&api, "", json!({"provider": {"policy": policy}})).await;
        seen.refuses(422, "LAT0010", field);
        assert_eq!(seen.body["field"], field);
    }
    let seen = patch(&api, "", json!({"provider": {"policy": {"strict_pxe_preflight": "yes"}}})).await;
    seen.refuses(400, "LAT0001", "a wrong type");
    assert_eq!(seen.body["field"], "provider.policy.strict_pxe_preflight");
    let seen = patch(&api, "", json!({"provider": {"upstream_dns_servers": ["one"]}})).await;
    assert_eq!(seen.body["field"], "provider.upstream_dns_servers[0]");
}
