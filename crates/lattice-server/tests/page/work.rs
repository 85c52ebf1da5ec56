//! What runs on a node, what its agent was asked, what its BMC says, and what a site was told.

use lattice_core::actor::Actor;
use lattice_core::allocation::{Allocation, AllocationCause, AllocationChange, RequeuePolicy, Retry, Wanted, Workload};
use lattice_core::bmc::{BmcEndpoint, BmcReport, BmcWay, CipherSuite, PowerReading, PowerSaid};
use lattice_core::change::{Change, NodeAction, NodeChange};
use lattice_core::command::allocation::{self, NewAllocation};
use lattice_core::command::{Request, bmc, site as orders};
use lattice_core::component::{ComponentFlag, ComponentReport, ComponentState, Word};
use lattice_core::ids::{CorrelationId, OpId};
use lattice_core::node::{Availability, DownCause, Labels, Node, NodeClass, NodeState, Status};

use crate::fleet::{MODEL, seed};
use crate::server::{START, TOKEN, TestServer, Time, VIEWER};

fn request(server: &TestServer) -> Request<'_> {
    Request {
        actor: Actor::system("test"),
        reason: "switch <b>replaced</b>".to_owned(),
        now: START,
        ids: &*server.ids,
        op: OpId::generate(&*server.ids, START),
        correlation: CorrelationId::generate(&*server.ids, START),
    }
}

#[tokio::test]
async fn a_node_shows_its_work_its_tasks_and_its_bmc() {
    let server = TestServer::start(Time::Stands).await;
    seed(&server).await;
    let node = server.store.node_by_hostname("c07u01").await.unwrap().unwrap();
    let site = server.store.site(node.site).await.unwrap().unwrap();
    let workload: Workload = serde_json::from_value(serde_json::json!({"argv": ["/usr/bin/train"]})).unwrap();
    let new = NewAllocation {
        user: "ada <admin>".into(),
        class: NodeClass::Sensitive,
        wanted: Wanted { gpus: 4, ..Wanted::default() },
        workload,
        requeue: RequeuePolicy::Never,
    };
    let (one, asked) = allocation::request(&request(&server), new).unwrap();
    server.store.commit_one(asked).await.unwrap();
    let placed = allocation::place(&request(&server), &one, &node, [1; 16]).unwrap();
    server.store.commit_one(placed).await.unwrap();
    let endpoint = BmcEndpoint {
        address: "10.1.0.7".parse().unwrap(),
        port: None,
        credential_path: "kv/bmcs/c07u01".to_owned(),
        way: BmcWay::Ipmi { cipher: CipherSuite::Three },
    };
    let node = server.store.node(node.id).await.unwrap().unwrap();
    let set = bmc::set(&request(&server), &node, &site, None, endpoint).unwrap();
    server.store.commit_one(set).await.unwrap();
    let mut report = BmcReport::none_yet(node.id, node.site, START);
    report.power = Some(PowerReading { said: PowerSaid::On, at: START, source: "ipmi 10.1.0.7".to_owned() });
    server.commit(START, vec![Change::BmcReport(Box::new(report))]).await;
    let said = Word::new(ComponentState::Off, ComponentFlag::Alert);
    let component = ComponentReport {
        said: Some(said),
        raised: Some(ComponentFlag::Alert),
        told: Some(Word::new(ComponentState::Ready, ComponentFlag::Ok)),
        told_at: Some(START),
        bmc_problem: Some("no <login>".to_owned()),
        ..ComponentReport::none_yet(node.id, node.site, "x1000c0s1b0n0".to_owned(), START)
    };
    server.commit(START, vec![Change::ComponentReport(Box::new(component))]).await;
    let (status, page) = server.page("/ui/nodes/c07u01", TOKEN).await;
    assert_eq!(status, 200, "{page}");
    for part in [
        "<span class=\"mono\">off/alert</span>",
        "8 of 8 GPUs, hottest 61 °C, no uncorrectable memory errors",
        "raised by another system",
        "<span class=\"mono\">ready/ok</span>",
        "no &#60;login&#62;",
        "ada &#60;admin&#62;",
        "<span class=\"pill info\">provisioning</span>",
        "lattice allocation release",
        "allocation.start",
        "10.1.0.7:623",
        "<span class=\"pill ok\">on</span>",
        "lattice node bmc check c07u01",
    ] {
        assert!(page.contains(part), "{part} is not in {page}");
    }
    assert!(!page.contains("Reboot from"), "what runs is drained first");
    let (_, page) = server.page("/ui/nodes/c07u01", VIEWER).await;
    assert!(page.contains("disabled"), "a guest may not release it");
    let node = server.store.node(node.id).await.unwrap().unwrap();
    let after = Node {
        state: NodeState::new(Status::Offline, Availability::Down),
        down_cause: Some(DownCause::HeartbeatLost),
        ..node.successor(START)
    };
    let (before, action, cause) = (Some(node.state), NodeAction::Moved, "grace_expired".to_owned());
    let down = NodeChange { after, before, action, cause, detail: String::new() };
    server.commit(START, vec![Change::Node(Box::new(down))]).await;
    let (_, page) = server.page("/ui/nodes/c07u01", TOKEN).await;
    for part in ["Reboot from…", "lattice node reboot c07u01 --boot", "pxe"] {
        assert!(page.contains(part), "{part} is not in {page}");
    }
}

#[tokio::test]
async fn a_site_shows_its_brake_its_limit_and_its_fingerprints() {
    let server = TestServer::start(Time::Stands).await;
    let fleet = seed(&server).await;
    let site = server.store.site(fleet.site).await.unwrap().unwrap();
    let until = START + std::time::Duration::from_secs(600);
    let brake = orders::brake(&request(&server), &site, &Labels::new(), until).unwrap();
    server.store.commit_one(brake).await.unwrap();
    let site = server.store.site(fleet.site).await.unwrap().unwrap();
    let sku = server.store.sku(MODEL).await.unwrap().unwrap();
    let approve = orders::approve(&request(&server), &site, &sku, "sha256:golden").unwrap().unwrap();
    server.store.commit_one(approve).await.unwrap();
    let (status, page) = server.page("/ui/sites/dc1", TOKEN).await;
    assert_eq!(status, 200, "{page}");
    for part in [
        "<span class=\"pill warn\">pulled</span>",
        "switch &#60;b&#62;replaced",
        "lattice site brake dc1 --release",
        "sha256:golden",
        "<span class=\"pill ok\">approved</span>",
        "<span class=\"pill warn\">deviates</span>",
        "at most ",
    ] {
        assert!(page.contains(part), "{part} is not in {page}");
    }
}

#[tokio::test]
async fn what_waits_for_a_node_is_listed_with_its_reason() {
    let server = TestServer::start(Time::Stands).await;
    seed(&server).await;
    let workload: Workload = serde_json::from_value(serde_json::json!({"argv": ["/usr/bin/train"]})).unwrap();
    let new = |user: &str| NewAllocation {
        user: user.into(),
        class: NodeClass::Standard,
        wanted: Wanted { gpus: 4, ..Wanted::default() },
        workload: workload.clone(),
        requeue: RequeuePolicy::Always,
    };
    let asked = async |user: &str| {
        let (one, commit) = allocation::request(&request(&server), new(user)).unwrap();
        server.store.commit_one(commit).await.unwrap();
        one
    };
    let (waits, fails, runs) = (asked("grace <i>").await, asked("edsger").await, asked("ada").await);
    let why = allocation::waits(&request(&server), &waits, "no node of <b>dc1</b> has 4 GPUs free").unwrap();
    server.store.commit_one(why).await.unwrap();
    let node = server.store.node_by_hostname("c07u01").await.unwrap().unwrap();
    let failed = server.store.allocation(fails.id).await.unwrap().unwrap();
    let after = Allocation { retry: Some(Retry { failures: 2, node: node.id }), ..failed.successor(START) };
    let again = AllocationChange { after, before: Some(failed.status), cause: AllocationCause::Requeued };
    server.commit(START, vec![Change::Allocation(Box::new(again))]).await;
    let placed = allocation::place(&request(&server), &runs, &node, [1; 16]).unwrap();
    server.store.commit_one(placed).await.unwrap();
    let (status, page) = server.page("/ui/allocations", TOKEN).await;
    assert_eq!(status, 200, "{page}");
    insta::assert_snapshot!("allocations", &page[page.find("<tbody").unwrap()..page.find("</tbody>").unwrap()]);
    let (_, page) = server.page("/ui/allocations?status=provisioning&user=ada", TOKEN).await;
    assert!(page.contains(&runs.id.to_string()) && !page.contains(&waits.id.to_string()), "{page}");
    let (_, page) = server.page("/ui/allocations?user=nobody", TOKEN).await;
    assert!(page.contains("No allocation matches"), "{page}");
    let (status, page) = server.page("/ui/allocations?status=gone", TOKEN).await;
    assert!(status == 400 && page.contains("provisioning"), "it names what there is: {status} {page}");
    let (status, page) = server.page("/ui/allocations", VIEWER).await;
    assert!(status == 200 && page.contains(&waits.id.to_string()) && page.contains("disabled"), "{page}");
}

#[tokio::test]
async fn a_server_that_stands_by_says_so_on_every_page() {
    let server = TestServer::start(Time::Stands).await;
    let says = async || server.page("/ui/", TOKEN).await.1.contains("Another server hears the agents");
    assert!(!says().await);
    server.registry.stand_by(true);
    assert!(says().await);
}
