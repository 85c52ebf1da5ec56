//! Nodes, sites, onboardings and jobs, from creation to the end.

use http::Method;
use lattice_api::client::ClientError;
use lattice_api::error::Problem;
use lattice_api::hold::SetHold;
use lattice_api::job::{ActOnJob, JobAction, JobQuery};
use lattice_api::node::{ActOnNode, CreateNode, NodeQuery, NodeVerb, Reason};
use lattice_api::onboarding::CreateOnboarding;
use lattice_api::page::PageQuery;
use lattice_api::site::{CreateSite, PatchSite, PowerLogin, SiteCredentials, SiteStatus};
use lattice_core::actor::Role;
use lattice_core::job::JobStatus;
use lattice_core::node::{HoldKind, Status};
use lattice_core::secret::Secret;

use super::fixture::{Api, as_role, request};

fn node(name: &str) -> CreateNode {
    let reason = "new".to_owned();
    CreateNode { hostname: name.to_owned(), sku: "lxd.small".to_owned(), site: None, class: None, reason }
}

fn refused<T>(answer: Result<T, ClientError>) -> Problem {
    match answer {
        Ok(_) => panic!("not refused"),
        Err(ClientError::Refused(problem)) => *problem,
        Err(other) => panic!("{other}"),
    }
}

#[tokio::test]
async fn a_node_is_created_found_explained_and_withdrawn() {
    let api = Api::new().await;
    let admin = api.admin();
    let made = admin.create_node(&node("C07u43")).await.unwrap();
    assert!(made.command.expose().contains(&made.node_id.to_string()) && made.command.expose().contains("lat_enroll_"));
    assert_eq!(*api.woken.lock().unwrap(), [made.job_id.unwrap()]);
    let view = admin.node("c07u43").await.unwrap();
    assert_eq!((view.row.id, view.row.status, view.row.schedulable), (made.node_id, Status::BootstrapIssued, false));
    assert_eq!(view.row.why_not.as_deref(), Some("its bootstrap command was not run yet"));
    assert!(view.verbs.contains(&NodeVerb::Withdraw), "{:?}", view.verbs);
    assert_eq!(admin.node(&made.node_id.to_string()).await.unwrap(), view);
    let said = admin.explain_node("c07u43").await.unwrap();
    assert!(!said.ok && !said.because.is_empty() && said.next_actions.iter().any(|next| next.command.is_some()));
    let taken = refused(admin.create_node(&node("c07u43")).await);
    assert_eq!((taken.status, taken.code.as_str()), (409, "LAT0011"), "{taken:?}");

    let again = admin.reissue_bootstrap("c07u43", &Reason::default()).await.unwrap();
    assert_ne!(again.command.expose(), made.command.expose());
    let tokens = api.store.enrollment_tokens_of(made.node_id).await.unwrap();
    assert_eq!(tokens.iter().filter(|token| token.revoked_at.is_none()).count(), 1, "the token before died");

    let dry = ActOnNode { dry_run: Some(true), ..ActOnNode::default() };
    let would = admin.act_on_node("c07u43", NodeVerb::Withdraw, &dry).await.unwrap();
    assert!(
        !would.changed && would.after.status == Status::Deleted && would.node.row.status == Status::BootstrapIssued
    );
    let done = admin.act_on_node("c07u43", NodeVerb::Withdraw, &ActOnNode::default()).await.unwrap();
    assert!(done.changed && done.node.row.status == Status::Deleted);
    assert_eq!(refused(admin.node("c07u43").await).status, 404, "its name is free again");

    let page = PageQuery { limit: Some(1), ..PageQuery::default() };
    let history = admin.node_history(&made.node_id.to_string(), &page).await.unwrap();
    assert_eq!(
        (history.items.len(), history.items[0].after.status, history.next.is_some()),
        (1, Status::Deleted, true)
    );
    let timeline = admin.node_timeline(&made.node_id.to_string()).await.unwrap();
    assert!(timeline.entries.len() >= 2, "{timeline:?}");
}

#[tokio::test]
async fn holds_are_set_listed_and_cleared_by_hand() {
    let api = Api::new().await;
    let admin = api.admin();
    admin.create_node(&node("a")).await.unwrap();
    admin.create_node(&node("b")).await.unwrap();
    let hold = SetHold { kind: HoldKind::Maintenance, reason: "fan".to_owned(), until: None };
    assert_eq!(admin.set_hold("a", &hold).await.unwrap().row.holds, [HoldKind::Maintenance]);
    admin.set_hold("a", &SetHold { kind: HoldKind::Rollout, ..hold.clone() }).await.unwrap();
    admin.set_hold("b", &hold).await.unwrap();
    let mut query = PageQuery { limit: Some(2), ..PageQuery::default() };
    let first = admin.holds(&query).await.unwrap();
    query.cursor = first.next.clone();
    let second = admin.holds(&query).await.unwrap();
    let seen: Vec<_> =
        first.items.iter().chain(&second.items).map(|hold| (hold.hostname.as_str(), hold.kind)).collect();
    let expected = [("a", HoldKind::Maintenance), ("b", HoldKind::Maintenance), ("a", HoldKind::Rollout)];
    assert_eq!(seen, expected, "kind by kind");
    assert_eq!(admin.node_holds("b").await.unwrap().items, first.items[1..]);
    assert!(admin.clear_hold("b", HoldKind::Maintenance).await.unwrap().row.holds.is_empty());
    let none = refused(admin.clear_hold("b", HoldKind::Maintenance).await);
    assert_eq!((none.status, none.code.as_str()), (409, "LAT0021"));
    let not_by_hand = refused(admin.set_hold("a", &SetHold { kind: HoldKind::WipeFailed, ..hold }).await);
    assert_eq!(not_by_hand.status, 409);
}

#[tokio::test]
async fn a_verb_that_the_state_forbids_is_refused_with_what_helps() {
    let api = Api::new().await;
    let admin = api.admin();
    admin.create_node(&node("a")).await.unwrap();
    for verb in [NodeVerb::Undrain, NodeVerb::Disable, NodeVerb::Recover, NodeVerb::Reactivate, NodeVerb::Reboot] {
        let problem = refused(admin.act_on_node("a", verb, &ActOnNode::default()).await);
        assert_eq!(problem.status, 409, "{verb}: {problem:?}");
        assert!(!problem.because.is_empty() && !problem.next_actions.is_empty(), "{verb}: {problem:?}");
    }
    let urgent = ActOnNode { urgent: Some(true), ..ActOnNode::default() };
    let problem = refused(admin.act_on_node("a", NodeVerb::Undrain, &urgent).await);
    assert_eq!((problem.status, problem.field.as_deref()), (400, Some("urgent")));
    let epoch = admin.node("a").await.unwrap().identity_epoch;
    assert_eq!(admin.revoke_certificates("a", &Reason::default()).await.unwrap().identity_epoch, epoch + 1);
}

#[tokio::test]
async fn lists_are_filtered_and_paged() {
    let api = Api::new().await;
    let admin = api.admin();
    for name in ["a1", "a2", "a3", "b1"] {
        admin.create_node(&node(name)).await.unwrap();
    }
    let mut query = NodeQuery { hostname_prefix: Some("A".to_owned()), limit: Some(2), ..NodeQuery::default() };
    let first = admin.nodes(&query).await.unwrap();
    query.cursor = first.next.clone();
    let second = admin.nodes(&query).await.unwrap();
    let names: Vec<_> = first.items.iter().chain(&second.items).map(|row| row.hostname.as_str()).collect();
    assert_eq!((names, second.next), (vec!["a1", "a2", "a3"], None));
    let by_state = |state: &str| NodeQuery { state: Some(state.to_owned()), ..NodeQuery::default() };
    assert_eq!(admin.nodes(&by_state("bootstrap_issued")).await.unwrap().items.len(), 4);
    assert_eq!(admin.nodes(&by_state("degraded")).await.unwrap().items.len(), 0);
    let elsewhere = NodeQuery { site: Some("mars".to_owned()), ..NodeQuery::default() };
    assert_eq!(refused(admin.nodes(&elsewhere).await).status, 404);
    let fleet = admin.fleet().await.unwrap();
    assert_eq!((fleet.nodes, fleet.schedulable, fleet.counts[0].nodes), (4, 0, 4));
    let live = JobQuery { status: Some("live".to_owned()), limit: Some(3), ..JobQuery::default() };
    let jobs = admin.jobs(&live).await.unwrap();
    assert_eq!((jobs.items.len(), jobs.next.is_some()), (3, true));
    assert!(admin.stage_stats().await.unwrap().stages.is_empty());
}

fn maas(name: &str) -> CreateSite {
    CreateSite {
        name: name.to_owned(),
        region_code: "eu1".to_owned(),
        provider: serde_json::json!({"kind": "maas", "api_base_url": "http://10.0.0.1:5240/MAAS", "pxe_iface": "ens19",
            "pxe_vlan_vid": 46, "node_pxe_iface": "eno1"}),
        heartbeat: None,
        bmc: None,
        automation: None,
        sensitive: None,
    }
}

fn token(text: &str) -> SiteCredentials {
    SiteCredentials { api_token: Some(Secret::new(text.to_owned())), ..SiteCredentials::default() }
}

#[tokio::test]
async fn secrets_of_a_site_are_tried_before_they_are_kept() {
    let api = Api::new().await;
    let admin = api.admin();
    let site = admin.create_site(&maas("dc1")).await.unwrap();
    assert!(!site.credentials_complete);
    let problem = refused(admin.write_credentials("dc1", &token("bad")).await);
    assert_eq!((problem.status, problem.code.as_str()), (422, "LAT0051"));
    assert!(admin.site("dc1").await.unwrap().credentials.iter().all(|row| row.set_at.is_none()), "nothing was noted");
    assert!(admin.write_credentials("dc1", &token("good-token")).await.unwrap().ok);
    let rest = SiteCredentials {
        power: Some(PowerLogin { user: "root".to_owned(), pass: Secret::new("pass-word".to_owned()) }),
        deploy_password: Some(Secret::new("deploy-word".to_owned())),
        ..SiteCredentials::default()
    };
    admin.write_credentials("dc1", &rest).await.unwrap();
    assert!(admin.site("dc1").await.unwrap().credentials_complete);
    let foreign = SiteCredentials { client_key_pem: Some(Secret::new("k".to_owned())), ..SiteCredentials::default() };
    assert_eq!(refused(admin.write_credentials("dc1", &foreign).await).field.as_deref(), Some("client_key_pem"));
    assert_eq!(refused(admin.write_credentials("dc1", &SiteCredentials::default()).await).status, 422);
    assert_eq!(admin.probe_site("dc1").await.unwrap().version.as_deref(), Some("3.5.1"));
    for path in ["/api/v1/admin/audit?limit=1000", "/api/v1/admin/events?limit=1000", "/api/v1/admin/sites/dc1"] {
        let text = String::from_utf8_lossy(&api.get(path).await.bytes).into_owned();
        assert!(text.contains("dc1"), "{path}: {text}");
        for secret in ["good-token", "pass-word", "deploy-word"] {
            assert!(!text.contains(secret), "{secret} is in {path}");
        }
    }
    api.events_are_as_described().await;
}

#[tokio::test]
async fn a_site_is_changed_by_patches_and_disabled() {
    let api = Api::new().await;
    let admin = api.admin();
    admin.create_site(&maas("dc1")).await.unwrap();
    assert_eq!(refused(admin.create_site(&maas("dc1")).await).code, "LAT0011");
    let patch = PatchSite {
        provider: Some(serde_json::json!({"policy": {"batch_max_parallel": 3}, "distro_series": "ubuntu/jammy"})),
        ..PatchSite::default()
    };
    let text = serde_json::to_string(&admin.patch_site("dc1", &patch).await.unwrap().provider).unwrap();
    assert!(
        text.contains("\"batch_max_parallel\":3") && text.contains("ubuntu/jammy") && text.contains("ens19"),
        "{text}"
    );
    for provider in [serde_json::json!({"kind": "lxd"}), serde_json::json!({"api_token_path": "kv/other"})] {
        let patch = PatchSite { provider: Some(provider), ..PatchSite::default() };
        assert_eq!(refused(admin.patch_site("dc1", &patch).await).status, 422);
    }
    let typed = api.get("/api/v1/admin/maas-sites").await;
    assert_eq!(typed.body["items"].as_array().unwrap().len(), 1, "only MAAS sites: {}", typed.body);
    api.get("/api/v1/admin/maas-sites/local").await.refuses(404, "LAT0004", "not a MAAS site");
    assert_eq!(admin.sites(&PageQuery::default()).await.unwrap().items.len(), 2);

    for _ in 0..2 {
        let disabled = api.json(Method::DELETE, "/api/v1/admin/maas-sites/dc1", "").await;
        assert_eq!(disabled.body["status"], "disabled", "twice is once: {}", disabled.body);
    }
    let problem = refused(admin.onboard(&machine()).await);
    assert_eq!((problem.status, problem.code.as_str()), (409, "LAT0050"));
    let enable = PatchSite { status: Some(SiteStatus::Active), ..PatchSite::default() };
    assert_eq!(admin.patch_site("dc1", &enable).await.unwrap().status, SiteStatus::Active);
}

fn machine() -> CreateOnboarding {
    CreateOnboarding {
        site_id: "dc1".to_owned(),
        profile_id: None,
        sku_id: "lxd.small".to_owned(),
        hostname: "c07u43".to_owned(),
        ipmi_ip: Some("10.176.16.128".to_owned()),
        pxe_mac: None,
        xname: None,
        boot_profile: None,
        class: None,
        reason: "rack 7".to_owned(),
    }
}

#[tokio::test]
async fn an_onboarding_is_accepted_once_shown_and_cancelled() {
    let api = Api::new().await;
    let admin = api.admin();
    admin.create_site(&maas("dc1")).await.unwrap();
    let no_bmc = CreateOnboarding { ipmi_ip: None, ..machine() };
    assert_eq!(refused(admin.onboard(&no_bmc).await).field.as_deref(), Some("ipmi_ip"));
    let body = serde_json::to_string(&machine()).unwrap();
    let keyed = || {
        let builder = request(Method::POST, "/api/v1/admin/onboardings").header("idempotency-key", "batch-1/c07u43");
        as_role(builder, Role::PlatformAdmin, &body)
    };
    let accepted = api.send(keyed()).await;
    assert_eq!(
        (accepted.status.as_u16(), accepted.body["status"].as_str()),
        (202, Some("pending")),
        "{}",
        accepted.body
    );
    assert_eq!(api.send(keyed()).await.body, accepted.body, "a repeat is answered as the first was");
    assert_eq!(refused(admin.onboard(&machine()).await).code, "LAT0011");
    let id = accepted.body["onboarding_id"].as_str().unwrap().parse().unwrap();
    let view = admin.onboarding(id).await.unwrap();
    assert_eq!((view.flow.as_str(), view.ipmi_ip.as_deref()), ("maas", Some("10.176.16.128")));
    assert!(view.stages.len() >= 13 && view.actions == [JobAction::Cancel], "{view:?}");
    let job = admin.job(id).await.unwrap();
    assert_eq!((job.row.status, job.reason.as_str()), (JobStatus::Pending, "rack 7"));
    assert!(!admin.explain_job(id).await.unwrap().ok);

    let problem = refused(admin.act_on_job(id, JobAction::RetryStage, &ActOnJob::default()).await);
    assert_eq!((problem.status, problem.code.as_str()), (409, "LAT0042"));
    let done = admin.act_on_job(id, JobAction::Cancel, &ActOnJob::default()).await.unwrap();
    assert!(done.changed && done.job.row.status == JobStatus::Cancelled, "{done:?}");
    let again = admin.act_on_job(id, JobAction::Cancel, &ActOnJob::default()).await.unwrap();
    assert!(!again.changed, "twice is once");
    let node = admin.node(&view.node_id.to_string()).await.unwrap();
    assert_eq!((node.row.status, node.row.owning_job), (Status::Deleted, None));
    let path = format!("/api/v1/admin/onboardings/{id}/retry");
    api.json(Method::POST, &path, "{}").await.refuses(409, "LAT0042", "S5 4.15's spelling");
    let cancelled = JobQuery { status: Some("cancelled".to_owned()), ..JobQuery::default() };
    assert_eq!(admin.onboardings(&cancelled).await.unwrap().items.len(), 1);
}
