//! What an operator reads of an onboarding that stopped, and what it begins anew with.

use http::Method;
use lattice_core::actor::Role;
use lattice_core::change::{Change, JobChange};
use lattice_core::explain::NextAction;
use lattice_core::failure::FailureClass;
use lattice_core::ids::JobId;
use lattice_core::job::{BootDisk, Failure, JobInput, JobStatus, Observed, StageEvent, StageEventStatus, StageName};
use lattice_core::node::{HostFacts, NicFact, PowerFact};
use lattice_core::time::Clock;
use serde_json::{Value, json};

use super::fixture::{Api, Seen, as_role, request};

async fn api() -> Api {
    let api = Api::new().await;
    let body = json!({"name": "dc1", "region_code": "eu1", "provider": {"kind": "maas",
        "api_base_url": "http://10.0.0.1:5240/MAAS", "pxe_iface": "ens19", "pxe_vlan_vid": 46,
        "node_pxe_iface": "eno8303"}});
    assert_eq!(api.json(Method::POST, "/api/v1/admin/sites", &body.to_string()).await.status, 201);
    api
}

async fn onboard(api: &Api, hostname: &str, ip: &str, pxe_mac: Option<&str>) -> Seen {
    let body = json!({"site_id": "dc1", "sku_id": "lxd.small", "hostname": hostname, "ipmi_ip": ip,
        "pxe_mac": pxe_mac});
    api.json(Method::POST, "/api/v1/admin/onboardings", &body.to_string()).await
}

fn id_of(seen: &Seen) -> JobId {
    assert_eq!(seen.status, 202, "{}", seen.body);
    seen.body["onboarding_id"].as_str().unwrap().parse().unwrap()
}

/// Stops a job as its driver would, with all that it found out.
async fn stop(api: &Api, id: JobId) {
    let mut job = api.store.job(id).await.unwrap().unwrap();
    let (before, now) = (job.state.status, api.clock.now());
    (job.state.stage, job.state.status, job.state.attempt) = (StageName::DeployViaMaas, JobStatus::FailedRetryable, 3);
    job.state.failure = Some(Failure {
        stage: StageName::DeployViaMaas,
        class: FailureClass::UpstreamTransient,
        error_code: "maas_unavailable".to_owned(),
        message: "503 from the region".to_owned(),
        at: now,
        next_action: NextAction::run(format!("lattice job resume {id}"), "asks the region again"),
    });
    job.outputs.provider_ref = Some("abc123".to_owned());
    job.outputs.power_credentials = Some("site_default".to_owned());
    job.outputs.boot_disk =
        Some(BootDisk { id: "7".to_owned(), name: "sda".to_owned(), model: "DELLBOSS VD".to_owned() });
    job.outputs.roce_applied = Some(8);
    job.outputs.user_data_sha256 = Some("0".repeat(64));
    job.outputs.ssh_address = Some("10.176.16.43".to_owned());
    job.outputs.deployed = true;
    job.outputs.warnings = vec!["apply_roce_phase2: one subnet was made".to_owned()];
    let addresses = vec!["10.176.16.43".to_owned()];
    job.observed = Some(Observed { status: "Deployed".to_owned(), power: PowerFact::On, addresses, at: now });
    job.generation = job.generation.next();
    let event = StageEvent {
        stage: StageName::DeployViaMaas,
        attempt: 3,
        round: 0,
        status: StageEventStatus::Failed,
        message: "503 from the region".to_owned(),
    };
    let change = JobChange {
        after: job,
        before: Some(before),
        cause: "stage_failed".to_owned(),
        stage_events: vec![event],
        visible: true,
    };
    api.commit(vec![Change::Job(Box::new(change))]).await;
}

#[tokio::test]
async fn an_onboarding_that_stopped_shows_what_was_seen_and_found_out() {
    let api = api().await;
    let id = id_of(&onboard(&api, "c07u43", "10.176.16.128", None).await);
    stop(&api, id).await;
    let viewer = as_role(request(Method::GET, &format!("/api/v1/admin/onboardings/{id}")), Role::ProjectViewer, "");
    let seen = api.send(viewer).await;
    let found = &seen.body["diagnostics"];
    let expected = json!({
        "failure_class": "upstream_transient", "error_code": "maas_unavailable",
        "error_message": "503 from the region", "retry_count": 3,
        "boot_disk": {"id": "7", "name": "sda", "model": "DELLBOSS VD"}, "power_credentials": "site_default",
        "roce_applied": 8, "cloud_init_rendered": true, "deploy_ip_addresses": ["10.176.16.43"],
        "ssh_address": "10.176.16.43", "warnings": ["apply_roce_phase2: one subnet was made"],
    });
    for (field, value) in expected.as_object().unwrap() {
        assert_eq!(found[field], *value, "{field}: {found}");
    }
    assert_eq!((&found["observed"]["status"], &found["observed"]["power"]), (&json!("Deployed"), &json!("on")));
    let first = &found["recommended_actions"][0];
    assert!(first["command"].as_str().unwrap().starts_with("lattice job "), "{first}");
    assert!(first["api"]["path"].as_str().unwrap().contains(&id.to_string()), "{first}");
    assert_eq!((&seen.body["current_stage"], &seen.body["current_attempt"]), (&json!("deploy_via_maas"), &json!(3)));
}

async fn settings(api: &Api, id: JobId) -> Value {
    match api.store.job(id).await.unwrap().unwrap().input {
        JobInput::OnboardMaas { settings, .. } => serde_json::to_value(settings).unwrap(),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_job_that_begins_anew_takes_the_settings_that_stand_now_and_one_that_goes_on_does_not() {
    let api = api().await;
    let id = id_of(&onboard(&api, "c07u43", "10.176.16.128", None).await);
    stop(&api, id).await;
    let before = settings(&api, id).await;
    let patch = json!({"provider": {"distro_series": "ubuntu/jammy", "policy": {"require_hw_sync": false}}});
    assert_eq!(api.json(Method::PATCH, "/api/v1/admin/sites/dc1", &patch.to_string()).await.status, 200);
    let ask = async |verb: &str| {
        let seen = api.json(Method::POST, &format!("/api/v1/admin/jobs/{id}/{verb}"), "{}").await;
        assert_eq!(seen.status, 200, "{verb}: {}", seen.body);
    };
    ask("retry-stage").await;
    assert_eq!(settings(&api, id).await, before, "what goes on keeps what it began with");
    stop(&api, id).await;
    ask("rerun").await;
    let after = settings(&api, id).await;
    assert_eq!((&after["distro_series"], &after["policy"]["require_hw_sync"]), (&json!("ubuntu/jammy"), &json!(false)));
    let audit = api.get(&format!("/api/v1/admin/audit?resource_kind=job&resource_id={id}&limit=1")).await;
    let row = &audit.body["items"][0];
    assert_eq!((row["action"].as_str(), row["actor"].as_str()), (Some("job.settings_renewed"), Some("platform_admin")));
    assert_eq!(
        row["after"]["detail"],
        "distro_series: ubuntu/noble → ubuntu/jammy; policy.require_hw_sync: true → false"
    );
    stop(&api, id).await;
    ask("rerun").await;
    let renewed = api.get("/api/v1/admin/events?limit=1000").await;
    let names = renewed.body["events"].as_array().unwrap().iter().map(|event| event["name"].as_str().unwrap());
    assert_eq!(names.filter(|name| *name == "job.settings_renewed").count(), 1, "nothing differs the second time");
    api.events_are_as_described().await;
}

#[tokio::test]
async fn a_hardware_address_serves_one_node_of_a_site() {
    let api = api().await;
    let first = onboard(&api, "c07u43", "10.176.16.128", Some("52:54:00:AA:00:13")).await;
    id_of(&first);
    let taken = onboard(&api, "c07u44", "10.176.16.129", Some("52:54:00:aa:00:13")).await;
    taken.refuses(409, "LAT0011", "named by another onboarding");
    assert!(taken.body["detail"].as_str().unwrap().contains("c07u43"), "{}", taken.body);
    let nics = ["02:00:00:00:00:07"].map(|mac| NicFact {
        name: "eno8303".to_owned(),
        mac: mac.to_owned(),
        firmware: String::new(),
        speed_mbps: 0,
    });
    let facts = HostFacts { nics: nics.to_vec(), ..HostFacts::default() };
    let node = first.body["node_id"].as_str().unwrap().parse().unwrap();
    api.commit(vec![Change::HostFacts { node, facts }]).await;
    let found = onboard(&api, "c07u45", "10.176.16.130", Some("02:00:00:00:00:07")).await;
    found.refuses(409, "LAT0011", "found on another host");
    id_of(&onboard(&api, "c07u46", "10.176.16.131", Some("02:00:00:00:00:08")).await);
    onboard(&api, "c07u47", "10.176.16.132", Some("x")).await.refuses(422, "LAT0010", "none at all");
}

#[tokio::test]
async fn batches_are_measured() {
    let api = api().await;
    let nodes: Vec<Value> =
        (1..=3).map(|n| json!({"hostname": format!("c07u{n}"), "ipmi_ip": format!("10.176.16.{n}")})).collect();
    let body = json!({"site_id": "dc1", "sku_id": "lxd.small", "nodes": nodes}).to_string();
    let seen = api.json(Method::POST, "/api/v1/admin/onboardings/batch", &body).await;
    assert_eq!(seen.status, 202, "{}", seen.body);
    let id: JobId = seen.body["onboardings"][0]["onboarding_id"].as_str().unwrap().parse().unwrap();
    stop(&api, id).await;
    let metrics = String::from_utf8(api.get("/metrics").await.bytes.to_vec()).unwrap();
    for line in [
        r#"lattice_batches{status="pending"} 1"#,
        r#"lattice_batch_machines{status="pending"} 2"#,
        r#"lattice_batch_machines{status="failed_retryable"} 1"#,
        r#"lattice_batch_machines{status="completed"} 0"#,
        r#"lattice_onboarding_permits{state="used"} 0"#,
    ] {
        assert!(metrics.contains(line), "{line} is not in\n{metrics}");
    }
    api.events_are_as_described().await;
}
