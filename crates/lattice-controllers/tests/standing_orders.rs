//! The brake by hand, labels, fingerprints and reboots by itself, over the real store.
#![allow(clippy::unwrap_used, reason = "a test stops at what it cannot do")]

mod world;

use std::time::Duration;

use lattice_controllers::{Conformance, Remediated, Remediator, begin_wipes};
use lattice_core::actor::Actor;
use lattice_core::allocation::AllocationStatus;
use lattice_core::change::{Change, JobChange};
use lattice_core::command::site as orders;
use lattice_core::ids::{EventSeq, NodeId};
use lattice_core::job::{Job, JobKind, JobStatus};
use lattice_core::node::{Availability, DownCause, Labels, NodeClass, NodeState, Status};
use lattice_core::site::{AutomationPolicy, LxdSite, Site, SiteProvider};
use lattice_store::{EventFilter, NodeFilter, NodeSort, PageRequest};
use world::{START, World, at};

fn rack(name: &str) -> Labels {
    [("rack".to_owned(), name.to_owned())].into()
}

async fn site(world: &World) -> Site {
    world.store.site(world.site.id).await.unwrap().unwrap()
}

async fn change_site(world: &World, change: impl FnOnce(&mut Site)) {
    let before = site(world).await;
    let mut after = Site { generation: before.generation.next(), ..before };
    change(&mut after);
    world.commit(vec![Change::Site(Box::new(after))], START).await;
}

#[tokio::test]
async fn a_brake_by_hand_holds_one_rack_back_and_letting_go_gives_its_work_up_at_once() {
    let world = World::new().await;
    let nodes = world.add_nodes(2).await;
    world.change(nodes[0], |node| node.labels = rack("c07")).await;
    world.change(nodes[1], |node| node.labels = rack("c08")).await;
    let held = world.ask("ada", 8, |new| new.wanted.labels = rack("c07")).await;
    let lost = world.ask("bob", 8, |new| new.wanted.labels = rack("c08")).await;
    assert_eq!(world.started(held, at(1)).await.node, Some(nodes[0]), "it goes where its label says");
    assert_eq!(world.allocation(lost).await.node, Some(nodes[1]));
    let until = at(3_600);
    let commit = orders::brake(&world.request(at(2)), &site(&world).await, &rack("c07"), until).unwrap();
    world.store.commit_one(commit).await.unwrap();
    world.tick(at(3)).await;
    world.tick(at(35)).await;
    world.tick(at(130)).await;
    for node in &nodes {
        assert_eq!(world.node(*node).await.state.availability, Availability::Down, "states move on time");
    }
    assert_eq!(world.allocation(lost).await.status, AllocationStatus::Requested, "the other rack is not braked");
    assert_eq!(world.allocation(held).await.status, AllocationStatus::Active);
    assert_eq!(world.node(nodes[0]).await.ownership.braked_until, Some(until));
    let let_go = orders::let_go(&world.request(at(140)), &site(&world).await);
    world.store.commit_one(let_go).await.unwrap();
    world.tick(at(141)).await;
    assert_eq!(world.allocation(held).await.status, AllocationStatus::Requested);
}

#[tokio::test]
async fn a_list_by_label_has_the_nodes_with_all_of_them_and_no_others() {
    let world = World::new().await;
    let nodes = world.add_nodes(3).await;
    world.change(nodes[0], |node| node.labels = rack("c07")).await;
    world.change(nodes[1], |node| node.labels = rack("C07")).await;
    let filter = NodeFilter { labels: rack("c07"), ..NodeFilter::default() };
    let page = world.store.nodes(&filter, NodeSort::Hostname, &PageRequest::first(10)).await.unwrap();
    let found: Vec<NodeId> = page.items.iter().map(|node| node.id).collect();
    assert_eq!(found, [nodes[0]], "a value has its case");
}

#[tokio::test]
async fn approving_a_fingerprint_judges_the_site_and_a_changed_one_judges_its_node() {
    let world = World::new().await;
    let nodes = world.add_nodes(3).await;
    for id in &nodes {
        world.change(*id, |node| node.fingerprint = Some("good".into())).await;
    }
    world.change(nodes[1], |node| node.fingerprint = Some("bad".into())).await;
    world
        .change(nodes[2], |node| {
            node.fingerprint = Some("bad".into());
            node.class = NodeClass::Sensitive;
        })
        .await;
    let mut judge = Conformance::new(world.store.clone(), world.ids.clone());
    judge.load(at(1)).await.unwrap();
    assert!(world.names("node.conformance_drift").await.is_empty(), "nothing is approved");
    let sku = world.store.sku("mi300x.192g.8gpu").await.unwrap().unwrap();
    let seen = world.store.last_event().await.unwrap();
    let commit = orders::approve(&world.request(at(2)), &site(&world).await, &sku, "good").unwrap().unwrap();
    world.store.commit_one(commit).await.unwrap();
    let events = world.store.events(seen, &EventFilter::default(), 1_000).await.unwrap();
    judge.take_in(&events, at(3)).await.unwrap();
    assert_eq!(world.node(nodes[0]).await.deviates_since, None);
    let standard = world.node(nodes[1]).await;
    assert_eq!((standard.state.availability, standard.deviates_since), (Availability::Ready, Some(at(3))));
    assert!(!world.node(nodes[2]).await.is_schedulable(at(3)), "nothing new comes to the sensitive one");
    let begun = remediator(&world, "lattice-1").tick(at(3)).await.unwrap().begun;
    assert_eq!(world.node(nodes[2]).await.state.availability, Availability::Draining);
    let job = world.store.job(begun[0]).await.unwrap().unwrap();
    assert_eq!((begun.len(), job.kind, job.requested_by.name.as_str()), (1, JobKind::Drain, "conformance"));
    let work = world.ask("ada", 8, |_| {}).await;
    world.tick(at(4)).await;
    assert_eq!(world.allocation(work).await.node, Some(nodes[0]), "who deviates gets work last");

    let seen = world.store.last_event().await.unwrap();
    world.change(nodes[0], |node| node.fingerprint = Some("other".into())).await;
    let events = world.store.events(seen, &EventFilter::default(), 1_000).await.unwrap();
    judge.take_in(&events, at(5)).await.unwrap();
    assert_eq!(world.node(nodes[0]).await.deviates_since, Some(at(5)));
    assert_eq!(world.names("node.conformance_drift").await.len(), 3);

    let seen = world.store.last_event().await.unwrap();
    change_site(&world, |site| site.approved.clear()).await;
    let events = world.store.events(seen, &EventFilter::default(), 1_000).await.unwrap();
    judge.take_in(&events, at(6)).await.unwrap();
    for id in &nodes {
        let node = world.node(*id).await;
        assert!(node.deviates_since.is_none() && node.holds.is_empty(), "nobody is judged any more");
    }
    let mut again = Conformance::new(world.store.clone(), world.ids.clone());
    let last = world.store.last_event().await.unwrap();
    again.load(at(7)).await.unwrap();
    assert_eq!(world.store.last_event().await.unwrap(), last, "a restart says nothing anew");
    assert!(last > EventSeq(0));
}

fn remediator(world: &World, server: &str) -> Remediator {
    Remediator::new(world.store.clone(), world.ids.clone(), server.to_owned())
}

/// The site has silent nodes rebooted, a quarter of it at once.
async fn reboots_a_quarter(world: &World) {
    let lxd: LxdSite = serde_json::from_value(serde_json::json!({
        "api_url": "https://127.0.0.1:8443", "client_cert_path": "a", "client_key_path": "b", "server_cert_path": "c",
        "image": "debian",
    }))
    .unwrap();
    change_site(world, |site| {
        site.provider = SiteProvider::Lxd(lxd);
        site.automation = AutomationPolicy { auto_remediate: true, max_unavailable_percent: 25, ..site.automation };
    })
    .await;
}

#[tokio::test]
async fn a_wipe_that_lattice_began_takes_the_place_of_a_reboot() {
    let world = World::new().await;
    let nodes = world.add_nodes(8).await;
    reboots_a_quarter(&world).await;
    world.change(nodes[0], |node| node.require_wipe("it ended".to_owned(), &Actor::system("allocator"), START)).await;
    assert_eq!(world.store.taken_at(world.site.id).await.unwrap(), (8, 0));
    assert_eq!(begin_wipes(&world.store, &*world.ids, START).await.unwrap().len(), 1);
    assert_eq!(world.store.taken_at(world.site.id).await.unwrap(), (8, 1), "it is being wiped");
    world.tick(at(31)).await;
    world.tick(at(130)).await;
    let mut remediator = remediator(&world, "lattice-1");
    let done = remediator.tick(at(260)).await.unwrap();
    assert_eq!(done.begun.len(), 1, "two at once, and one of them is the wipe");
    assert_eq!(world.store.taken_at(world.site.id).await.unwrap(), (8, 2));
}

#[tokio::test]
async fn silent_nodes_are_rebooted_by_themselves_and_never_more_than_the_governor_allows() {
    let world = World::new().await;
    let nodes = world.add_nodes(8).await;
    reboots_a_quarter(&world).await;
    world.tick(at(31)).await;
    world.tick(at(130)).await;
    for id in &nodes {
        assert_eq!(world.node(*id).await.state.availability, Availability::Down);
    }
    let mut remediator = remediator(&world, "lattice-1");
    let early = remediator.tick(at(131)).await.unwrap();
    assert_eq!((early.begun.len(), early.waiting), (0, 8), "they may come back by themselves");
    let done = remediator.tick(at(260)).await.unwrap();
    assert_eq!((done.begun.len(), done.waiting), (2, 6), "a quarter of eight");
    let again = remediator.tick(at(261)).await.unwrap();
    assert_eq!((again.begun.len(), again.waiting), (0, 8), "until these are over");
    for id in done.begun {
        let job = world.store.job(id).await.unwrap().unwrap();
        assert_eq!((job.kind, job.requested_by.name.as_str()), (JobKind::Reboot, "remediator"));
    }
    let later = world.store.taken_at(world.site.id).await.unwrap();
    assert_eq!(later, (8, 2));
    assert_eq!(Duration::from_millis(site(&world).await.automation.remediate_after_ms), Duration::from_secs(120));
}

#[tokio::test]
async fn drains_for_drift_and_reboots_share_one_limit_and_what_waits_is_drained_when_there_is_room() {
    let world = World::new().await;
    let nodes = world.add_nodes(8).await;
    reboots_a_quarter(&world).await;
    for id in &nodes[..3] {
        world
            .change(*id, |node| {
                node.fingerprint = Some("bad".into());
                node.class = NodeClass::Sensitive;
            })
            .await;
    }
    let sku = world.store.sku("mi300x.192g.8gpu").await.unwrap().unwrap();
    let commit = orders::approve(&world.request(START), &site(&world).await, &sku, "good").unwrap().unwrap();
    world.store.commit_one(commit).await.unwrap();
    let mut judge = Conformance::new(world.store.clone(), world.ids.clone());
    judge.load(START).await.unwrap();
    world.change(nodes[7], |node| node.require_wipe("it ended".to_owned(), &Actor::system("allocator"), START)).await;
    assert_eq!(begin_wipes(&world.store, &*world.ids, START).await.unwrap().len(), 1);
    let mut remediator = remediator(&world, "lattice-1");
    let done = remediator.tick(at(5)).await.unwrap();
    assert_eq!((done.begun.len(), done.waiting), (1, 2), "two at once, and one of them is the wipe");
    assert_eq!(world.node(nodes[0]).await.state.availability, Availability::Draining);
    world.tick(at(31)).await;
    world.tick(at(130)).await;
    let done = remediator.tick(at(260)).await.unwrap();
    assert!(done.begun.is_empty(), "of those that fell silent none is rebooted either");
    for id in &nodes[..3] {
        assert!(!world.node(*id).await.is_schedulable(at(260)), "nothing new comes to any of them");
    }
}

/// A sensitive node whose fingerprint is not the one that is approved.
async fn drift(world: &World, id: NodeId) {
    world
        .change(id, |node| {
            node.fingerprint = Some("bad".into());
            node.class = NodeClass::Sensitive;
        })
        .await;
}

async fn approve(world: &World, fingerprint: &str) {
    let sku = world.store.sku("mi300x.192g.8gpu").await.unwrap().unwrap();
    let commit = orders::approve(&world.request(START), &site(world).await, &sku, fingerprint).unwrap().unwrap();
    world.store.commit_one(commit).await.unwrap();
}

#[tokio::test]
async fn what_is_approved_meanwhile_is_not_drained_though_it_was_not_judged_anew() {
    let world = World::new().await;
    let nodes = world.add_nodes(2).await;
    drift(&world, nodes[0]).await;
    approve(&world, "good").await;
    let mut judge = Conformance::new(world.store.clone(), world.ids.clone());
    judge.load(START).await.unwrap();
    approve(&world, "bad").await;
    assert!(world.node(nodes[0]).await.deviates_since.is_some(), "nobody looked yet");
    assert_eq!(remediator(&world, "lattice-1").tick(at(5)).await.unwrap(), Remediated::default());
}

#[tokio::test]
async fn a_withdrawal_that_nobody_judged_before_a_restart_is_judged_after_it() {
    let world = World::new().await;
    let nodes = world.add_nodes(1).await;
    drift(&world, nodes[0]).await;
    approve(&world, "good").await;
    Conformance::new(world.store.clone(), world.ids.clone()).load(START).await.unwrap();
    assert!(!world.node(nodes[0]).await.holds.is_empty());
    change_site(&world, |site| site.approved.clear()).await;
    Conformance::new(world.store.clone(), world.ids.clone()).load(at(1)).await.unwrap();
    let node = world.node(nodes[0]).await;
    assert!(node.holds.is_empty() && node.deviates_since.is_none(), "{:?}", node.holds);
}

#[tokio::test]
async fn a_node_that_was_drained_for_drift_takes_no_room_from_its_own_reboot() {
    let world = World::new().await;
    let nodes = world.add_nodes(3).await;
    reboots_a_quarter(&world).await;
    drift(&world, nodes[0]).await;
    approve(&world, "good").await;
    Conformance::new(world.store.clone(), world.ids.clone()).load(START).await.unwrap();
    let mut remediator = remediator(&world, "lattice-1");
    let drained = remediator.tick(at(1)).await.unwrap().begun;
    assert_eq!(world.store.taken_at(world.site.id).await.unwrap(), (3, 1), "one may be");
    let job = world.store.job(drained[0]).await.unwrap().unwrap();
    let (before, cause) = (Some(job.state.status), "completed".to_owned());
    let mut after = Job { generation: job.generation.next(), ..job };
    after.state.status = JobStatus::Completed;
    let over = JobChange { after, before, cause, stage_events: Vec::new(), visible: true };
    world.commit(vec![Change::Job(Box::new(over))], START).await;
    world
        .change(nodes[0], |node| {
            node.state = NodeState::new(Status::Offline, Availability::Down);
            (node.down_cause, node.availability_since) = (Some(DownCause::HeartbeatLost), at(10));
            node.owning_job = None;
        })
        .await;
    assert_eq!(world.store.taken_at(world.site.id).await.unwrap(), (3, 0));
    assert_eq!(remediator.tick(at(200)).await.unwrap().begun.len(), 1, "it is rebooted");
}

#[tokio::test]
async fn a_thousand_nodes_that_must_not_be_rebooted_keep_no_other_from_it() {
    let world = World::new().await;
    let nodes = world.add_nodes(1_001).await;
    reboots_a_quarter(&world).await;
    let last_by_name = nodes[999];
    for id in nodes {
        world
            .change(id, |node| {
                node.state = NodeState::new(Status::Offline, Availability::Down);
                node.down_cause = Some(if id != last_by_name { DownCause::Disabled } else { DownCause::HeartbeatLost });
            })
            .await;
    }
    let mut remediator = remediator(&world, "lattice-1");
    assert_eq!(remediator.tick(at(260)).await.unwrap(), Remediated::default(), "the first thousand are disabled");
    assert_eq!(remediator.tick(at(261)).await.unwrap().begun.len(), 1);
    assert!(world.store.live_job(last_by_name).await.unwrap().is_some());
}

/// Eight nodes that are down for their silence, at a site that has two of them rebooted at once.
async fn eight_silent() -> World {
    let world = World::new().await;
    world.add_nodes(8).await;
    reboots_a_quarter(&world).await;
    world.tick(at(31)).await;
    world.tick(at(130)).await;
    world
}

#[tokio::test]
async fn of_two_servers_one_reboots_and_the_other_takes_over_when_its_lease_has_run_out() {
    let world = eight_silent().await;
    let (mut first, mut second) = (remediator(&world, "lattice-1"), remediator(&world, "lattice-2"));
    assert_eq!(first.tick(at(240)).await.unwrap().waiting, 8, "it has the lease, and nothing is due yet");
    let (one, other) = tokio::join!(first.tick(at(260)), second.tick(at(260)));
    assert_eq!(one.unwrap().begun.len(), 2);
    assert_eq!(other.unwrap(), Remediated::default(), "it does not even look");
    assert_eq!(second.tick(at(289)).await.unwrap(), Remediated::default(), "the lease was renewed at 260");
    assert_eq!(second.tick(at(294)).await.unwrap().waiting, 8, "the other one is gone");
    assert_eq!(first.tick(at(295)).await.unwrap(), Remediated::default(), "it comes back too late");
    assert_eq!(world.store.taken_at(world.site.id).await.unwrap(), (8, 2));
}

#[tokio::test]
async fn a_server_that_lost_the_lease_while_it_decided_reboots_nothing() {
    let world = eight_silent().await;
    let mut first = remediator(&world, "lattice-1");
    assert_eq!(first.tick(at(255)).await.unwrap().begun.len(), 2);
    change_site(&world, |site| site.automation.max_unavailable_percent = 50).await;
    let later = at(286);
    let taken = world.store.acquire("remediation", "lattice-2", later, Duration::from_secs(30)).await.unwrap();
    assert!(taken.is_some(), "the first one's lease has run out by that clock");
    let fenced = first.tick(at(260)).await.unwrap();
    assert_eq!((fenced.begun.len(), fenced.waiting), (0, 8), "it believes that it has it");
    assert_eq!(world.store.taken_at(world.site.id).await.unwrap(), (8, 2), "there is room for two more");
}

#[tokio::test]
async fn a_server_that_stops_in_good_order_is_not_waited_for() {
    let world = eight_silent().await;
    let (mut first, mut second) = (remediator(&world, "lattice-1"), remediator(&world, "lattice-2"));
    assert_eq!(first.tick(at(255)).await.unwrap().begun.len(), 2);
    first.end().await;
    assert_eq!(second.tick(at(256)).await.unwrap().waiting, 8);
}

#[tokio::test]
async fn a_server_that_starts_again_under_its_name_waits_for_nothing() {
    let world = eight_silent().await;
    assert_eq!(remediator(&world, "lattice-1").tick(at(240)).await.unwrap().waiting, 8);
    assert_eq!(remediator(&world, "lattice-1").tick(at(260)).await.unwrap().begun.len(), 2);
}
