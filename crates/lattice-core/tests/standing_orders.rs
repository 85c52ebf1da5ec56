//! What operators tell a site: drains with a deadline, the brake, approved fingerprints, and what Lattice does by itself.
#![allow(clippy::unwrap_used, reason = "a test stops at what it cannot do")]

#[allow(dead_code, reason = "each test program uses a part of it")]
mod fleet;

use std::time::Duration;

use fleet::{Counter, NOW, node, request, site, sku};
use lattice_core::actor::Actor;
use lattice_core::allocation::{Allocation, AllocationStatus, RequeuePolicy, Wanted};
use lattice_core::change::{Change, Commit};
use lattice_core::command::allocation::{self, NewAllocation};
use lattice_core::command::conformance::{self, JUDGE, judge};
use lattice_core::command::drain::{self, Deadline, Drain, Redrain};
use lattice_core::command::node::{self as commands, Known};
use lattice_core::command::remedy::{Remedy, Standing, remedy};
use lattice_core::command::{Refused, Request, label, site as orders};
use lattice_core::ids::Generation;
use lattice_core::job::{Disposal, Input, Job, JobInput, JobKind, JobState, JobStatus, StageName, flow_for, step};
use lattice_core::node::machine::Health;
use lattice_core::node::{Availability, DownCause, Hold, HoldKind, Labels, Node, NodeClass, NodeState, Status};
use lattice_core::site::{ApprovedFingerprint, AutomationPolicy, Governor, LxdSite, Site, SiteProvider};
use lattice_core::time::Timestamp;
use serde_json::json;

fn known<'a>(node: &'a Node, site: &'a Site, job: Option<&'a Job>) -> Known<'a> {
    Known { node, job, health: Health::Passed, live_allocations: 0, site, placed: &[], has_bmc: false }
}

fn job_of(commit: &Commit) -> Option<Job> {
    commit.changes.iter().find_map(|change| if let Change::Job(job) = change { Some(job.after.clone()) } else { None })
}

fn node_of(commit: &Commit) -> Node {
    let found =
        commit.changes.iter().find_map(|change| if let Change::Node(node) = change { Some(node) } else { None });
    found.unwrap().after.clone()
}

fn site_of(commit: &Commit) -> Site {
    let found =
        commit.changes.iter().find_map(|change| if let Change::Site(site) = change { Some(site) } else { None });
    (**found.unwrap()).clone()
}

fn notes(commit: &Commit) -> Vec<String> {
    let note = |change: &Change| if let Change::Note { name, .. } = change { Some(name.clone()) } else { None };
    commit.changes.iter().filter_map(note).collect()
}

fn labels(all: &[(&str, &str)]) -> Labels {
    all.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

#[test]
fn a_deadline_is_kept_with_the_drain_and_one_that_makes_no_sense_is_refused_by_name() {
    let (ids, site) = (Counter::default(), site());
    let ready = node(Status::Active, Availability::Ready);
    let ask = |seconds| {
        let how = Drain { urgent: false, deadline: Deadline::After(Duration::from_secs(seconds)) };
        drain::drain(&known(&ready, &site, None), &request(&ids), how, &|| [0; 16])
    };
    let job = job_of(&ask(7_200).unwrap().commit).unwrap();
    assert_eq!(job.input, JobInput::Drain { urgent: false, deadline_ms: Some(7_200_000), allocations: 0 });
    for wrong in [0, 31 * 86_400] {
        assert!(matches!(ask(wrong), Err(Refused::Invalid { field: "deadline_ms", .. })), "{wrong}");
    }
}

/// What a second drain comes to.
fn again(site: &Site, draining: (&Node, &Job), placed: &[Allocation], how: Drain, now: Timestamp) -> Option<Redrain> {
    let ids = Counter::default();
    let known = Known { placed, ..known(draining.0, site, Some(draining.1)) };
    let request = Request { now, ..request(&ids) };
    drain::redrain(&known, &request, how, &|| [0; 16]).unwrap()
}

#[test]
fn a_drain_that_runs_becomes_urgent_once_and_asks_each_that_can_save_its_state() {
    let (ids, site) = (Counter::default(), site());
    let ready = node(Status::Active, Availability::Ready);
    let placed = [active_on(&ready, true), active_on(&ready, false)];
    let known = Known { placed: &placed, ..known(&ready, &site, None) };
    let drained = drain::drain(&known, &request(&ids), Drain::default(), &|| [0; 16]).unwrap().commit;
    let (draining, job) = (node_of(&drained), job_of(&drained).unwrap());
    let urgent = Drain { urgent: true, ..Drain::default() };
    let Some(Redrain::Changed(changed)) = again(&site, (&draining, &job), &placed, urgent, NOW) else { panic!() };
    let after = job_of(&changed.planned.commit).unwrap();
    assert_eq!(
        (after.id, &after.input),
        (job.id, &JobInput::Drain { urgent: true, deadline_ms: None, allocations: 2 })
    );
    let asked = |commit: &Commit| commit.changes.iter().filter(|change| matches!(change, Change::Task(_))).count();
    assert_eq!((asked(&drained), asked(&changed.planned.commit)), (0, 1), "of two allocations one can");
    assert_eq!(notes(&changed.planned.commit), ["node.drain_changed"]);
    assert_eq!(changed.planned.job, Some(job.id), "its driver is woken");
    let twice = again(&site, (&draining, &after), &placed, urgent, NOW);
    assert_eq!(twice, Some(Redrain::AlreadySo(job.id)), "the same again changes nothing");
    let later = Drain { urgent: false, deadline: Deadline::After(Duration::from_secs(60)) };
    let Some(Redrain::Changed(changed)) = again(&site, (&draining, &after), &placed, later, NOW) else { panic!() };
    assert!(changed.how.urgent && asked(&changed.planned.commit) == 0, "urgency stays, and nobody is asked twice");
}

#[test]
fn the_deadline_of_a_drain_that_runs_moves_either_way_and_is_taken_away() {
    let (ids, site) = (Counter::default(), site());
    let ready = node(Status::Active, Availability::Ready);
    let how = Drain { urgent: true, deadline: Deadline::After(Duration::from_secs(7_200)) };
    let drained = drain::drain(&known(&ready, &site, None), &request(&ids), how, &|| [0; 16]).unwrap().commit;
    let (draining, mut job) = (node_of(&drained), job_of(&drained).unwrap());
    job.state = step(&flow_for(&job.input, &site), &job.state, &Input::Start, NOW).unwrap().unwrap();
    job.state = JobState { stage: StageName::WaitForDrained, highest_stage: StageName::WaitForDrained, ..job.state };
    let hour = Duration::from_secs(3_600);
    let rows = [
        (600, Deadline::After(Duration::from_secs(60)), Some(660)),
        (700, Deadline::After(Duration::from_secs(5 * 86_400)), Some(700 + 5 * 86_400)),
        (3 * 86_400, Deadline::Never, None),
    ];
    for (at, deadline, expected) in rows {
        let now = NOW + Duration::from_secs(at);
        let how = Drain { urgent: false, deadline };
        let Some(Redrain::Changed(changed)) = again(&site, (&draining, &job), &[], how, now) else {
            panic!("{deadline:?}")
        };
        let fence = job.state.fence;
        job = job_of(&changed.planned.commit).unwrap();
        let expected = expected.map(|seconds| NOW + Duration::from_secs(seconds));
        assert_eq!(job.drain_deadline(), expected);
        let patience = expected.map_or(now + Duration::from_secs(86_400), |deadline| deadline + hour);
        assert_eq!(job.state.deadline, Some(patience), "an operator is asked then, and not before");
        assert_eq!(job.state.fence.0, fence.0 + 1, "a turn that runs decided on what was asked before");
        assert!(changed.how.urgent && job.state.stage == StageName::WaitForDrained);
    }
    let never = Drain { urgent: false, deadline: Deadline::Never };
    assert_eq!(again(&site, (&draining, &job), &[], never, NOW), Some(Redrain::AlreadySo(job.id)));
    for wrong in [0, 31 * 86_400] {
        let how = Drain { urgent: false, deadline: Deadline::After(Duration::from_secs(wrong)) };
        let refused = drain::redrain(&known(&draining, &site, Some(&job)), &request(&ids), how, &|| [0; 16]);
        assert!(matches!(refused, Err(Refused::Invalid { field: "deadline_ms", .. })), "{wrong}");
    }
}

#[test]
fn a_second_drain_that_asks_nothing_new_or_of_another_job_has_its_answer_as_before() {
    let (ids, site) = (Counter::default(), site());
    let ready = node(Status::Active, Availability::Ready);
    let drained = drain::drain(&known(&ready, &site, None), &request(&ids), Drain::default(), &|| [0; 16]).unwrap();
    let (draining, job) = (node_of(&drained.commit), job_of(&drained.commit).unwrap());
    let urgent = Drain { urgent: true, ..Drain::default() };
    let in_status = |status| Job { state: JobState { status, ..job.state.clone() }, ..job.clone() };
    let rows = [
        (job.clone(), Drain::default()),
        (in_status(JobStatus::FailedManualIntervention), urgent),
        (in_status(JobStatus::Compensating), urgent),
        (Job { kind: JobKind::Retire, input: JobInput::Retire { disposal: Disposal::Keep }, ..job.clone() }, urgent),
    ];
    for (job, how) in rows {
        assert_eq!(again(&site, (&draining, &job), &[], how, NOW), None, "{}", job.kind);
        let refused = drain::drain(&known(&draining, &site, Some(&job)), &request(&ids), how, &|| [0; 16]);
        assert!(matches!(refused, Err(Refused::Busy { .. })), "{refused:?}");
    }
}

/// An allocation that runs on the node.
fn active_on(node: &Node, saves: bool) -> Allocation {
    let how = if saves { json!({"signal": {"number": 10}}) } else { json!("none") };
    let workload = serde_json::from_value(json!({"argv": ["/usr/bin/train"], "checkpoint": how})).unwrap();
    let (ids, class) = (Counter::default(), NodeClass::Standard);
    let (wanted, requeue) = (Wanted::default(), RequeuePolicy::OnNodeFailure);
    let new = NewAllocation { user: "ada".into(), class, wanted, workload, requeue };
    let (one, _) = allocation::request(&request(&ids), new).unwrap();
    Allocation { status: AllocationStatus::Active, node: Some(node.id), epoch: Some(node.ownership.epoch), ..one }
}

#[test]
fn undraining_cancels_the_drain_that_is_not_over_in_the_same_commit() {
    let (ids, site) = (Counter::default(), site());
    let ready = node(Status::Active, Availability::Ready);
    let drained = drain::drain(&known(&ready, &site, None), &request(&ids), Drain::default(), &|| [0; 16]).unwrap();
    let (draining, job) = (node_of(&drained.commit), job_of(&drained.commit).unwrap());
    let undrained = commands::undrain(&known(&draining, &site, Some(&job)), &request(&ids)).unwrap();
    assert_eq!(node_of(&undrained.commit).state, NodeState::new(Status::Active, Availability::Ready));
    let cancelled = job_of(&undrained.commit).unwrap();
    assert!(
        matches!(cancelled.state.status, JobStatus::Cancelled | JobStatus::Compensating),
        "{:?}",
        cancelled.state.status
    );
    assert_eq!(undrained.job, Some(job.id), "its driver is woken");
    let other = Job { kind: JobKind::Reboot, input: JobInput::Reboot { boot: None }, ..job };
    let refused = commands::undrain(&known(&draining, &site, Some(&other)), &request(&ids));
    assert!(matches!(refused, Err(Refused::Busy { .. })), "{refused:?}");
}

#[test]
fn a_brake_by_hand_holds_what_it_names_for_as_long_as_it_says() {
    let (ids, site) = (Counter::default(), site());
    let until = NOW + Duration::from_secs(600);
    let commit = orders::brake(&request(&ids), &site, &labels(&[("rack", "c07")]), until).unwrap();
    assert_eq!(notes(&commit), ["site.brake_pulled"]);
    let braked = site_of(&commit);
    assert_eq!(braked.generation, Generation(site.generation.0 + 1));
    let brake = braked.brake.clone().unwrap();
    let mut there = node(Status::Active, Availability::Degraded);
    assert_eq!(brake.holds(&there, NOW), None, "it has no such label");
    there.labels = labels(&[("rack", "c07"), ("row", "4")]);
    assert_eq!(brake.holds(&there, NOW), Some(until));
    assert_eq!(brake.holds(&there, until), None, "it is over");
    for wrong in [NOW, NOW + Duration::from_secs(86_401)] {
        let refused = orders::brake(&request(&ids), &site, &Labels::new(), wrong);
        assert!(matches!(refused, Err(Refused::Invalid { field: "until", .. })));
    }
    let refused = orders::brake(&request(&ids), &site, &labels(&[("ra ck", "x")]), until);
    assert!(matches!(refused, Err(Refused::Invalid { field: "selector", .. })));
    let released = site_of(&orders::let_go(&request(&ids), &braked));
    assert_eq!((released.brake, released.let_go_at), (None, Some(NOW)));
}

#[test]
fn labels_are_merged_and_what_cannot_be_a_label_changes_nothing() {
    let ids = Counter::default();
    let bare = node(Status::Active, Availability::Ready);
    let set = |node: &Node, set: &[(&str, &str)], remove: &[&str]| {
        let remove: Vec<String> = remove.iter().map(|name| (*name).to_owned()).collect();
        label::change(node, &request(&ids), &labels(set), &remove)
    };
    let racked = node_of(&set(&bare, &[("rack", "c07"), ("row", "4")], &[]).unwrap().unwrap().commit);
    assert_eq!(racked.labels, labels(&[("rack", "c07"), ("row", "4")]));
    assert_eq!(set(&racked, &[("rack", "c07")], &["none"]).unwrap(), None, "nothing changes");
    let moved = node_of(&set(&racked, &[("rack", "c08")], &["row"]).unwrap().unwrap().commit);
    assert_eq!(moved.labels, labels(&[("rack", "c08")]));
    assert!(matches!(set(&racked, &[("rack", "c 8")], &[]), Err(Refused::Invalid { field: "labels", .. })));
    let deleted = node(Status::Deleted, Availability::Unknown);
    assert!(set(&deleted, &[("rack", "c07")], &[]).is_err());
}

fn approving(fingerprints: &[&str]) -> Site {
    let one = |fingerprint: &&str| ApprovedFingerprint {
        sku: node(Status::Active, Availability::Ready).sku,
        fingerprint: (*fingerprint).to_owned(),
        by: Actor::system("test"),
        reason: String::new(),
        at: NOW,
    };
    Site { approved: fingerprints.iter().map(one).collect(), ..site() }
}

fn judging(ids: &Counter) -> Request<'_> {
    Request { actor: Actor::system(JUDGE), ..request(ids) }
}

fn reporting(fingerprint: &str, class: NodeClass, availability: Availability) -> Node {
    let status = if availability == Availability::Down { Status::Offline } else { Status::Active };
    Node { fingerprint: Some(fingerprint.to_owned()), class, ..node(status, availability) }
}

#[test]
fn a_standard_node_that_deviates_stays_ready_and_is_marked_once() {
    let ids = Counter::default();
    let site = approving(&["good"]);
    let standard = reporting("bad", NodeClass::Standard, Availability::Ready);
    let judged = judge(&judging(&ids), &standard, &site).unwrap();
    assert_eq!(notes(&judged), ["node.conformance_drift"]);
    let marked = node_of(&judged);
    assert_eq!((marked.state, marked.deviates_since), (standard.state, Some(NOW)));
    assert!(marked.is_schedulable(NOW), "it gets work last, but it gets it");
    assert_eq!(judge(&judging(&ids), &marked, &site), None, "nothing is new");
    assert_eq!(conformance::drain(&judging(&ids), &marked, &site), None, "and nothing is drained");
    let approved = approving(&["good", "bad"]);
    let cleared = node_of(&judge(&judging(&ids), &marked, &approved).unwrap());
    assert_eq!(cleared.deviates_since, None);
    assert_eq!(judge(&judging(&ids), &cleared, &approved), None);
}

/// How the site of a node that drifted stands.
fn sparing(site: &Site, taken: u64) -> Standing<'_> {
    let governor = Governor::new(&AutomationPolicy::default(), 20, taken);
    Standing { site, job: None, report: None, has_bmc: false, governor, fell: 0, members: 20 }
}

#[test]
fn a_sensitive_node_that_deviates_is_held_at_once_and_drained_by_a_job_that_owns_it_as_the_governor_has_room() {
    let ids = Counter::default();
    let site = approving(&["good"]);
    for availability in [Availability::Ready, Availability::Degraded] {
        let sensitive = reporting("bad", NodeClass::Sensitive, availability);
        let held = node_of(&judge(&judging(&ids), &sensitive, &site).unwrap());
        assert_eq!(held.state.availability, availability);
        assert!(held.hold(HoldKind::ConformanceDrift).is_some() && !held.is_schedulable(NOW), "nothing new comes");
        assert_eq!(judge(&judging(&ids), &held, &site), None, "once is enough");
        assert_eq!(remedy(&held, &sparing(&site, 1), NOW), Remedy::Drain);
        let Remedy::Later(why) = remedy(&held, &sparing(&site, 2), NOW) else { panic!("the limit holds") };
        assert_eq!(why, "Lattice has made 2 of the site's 20 nodes unavailable, and may 2 at once");
        let drained = conformance::drain(&judging(&ids), &held, &site).unwrap();
        let after = node_of(&drained.commit);
        assert_eq!(after.state.availability, Availability::Draining);
        assert!(after.drain_intent && after.hold(HoldKind::ConformanceDrift).is_some());
        let job = job_of(&drained.commit).unwrap();
        assert_eq!((job.kind, after.owning_job, drained.job), (JobKind::Drain, Some(job.id), Some(job.id)));
        assert_eq!(remedy(&after, &sparing(&site, 1), NOW), Remedy::NotOurs, "once is enough");
        let cleared = node_of(&judge(&judging(&ids), &after, &approving(&["bad"])).unwrap());
        assert!(cleared.hold(HoldKind::ConformanceDrift).is_none());
        assert_eq!(cleared.state.availability, Availability::Draining, "an operator gives it back");
        let spared = node_of(&judge(&judging(&ids), &held, &approving(&["bad"])).unwrap());
        assert!(spared.is_schedulable(NOW) || availability == Availability::Degraded, "what waited needs nobody");
        let other = Job { kind: JobKind::Reboot, input: JobInput::Reboot { boot: None }, ..job };
        let busy = Standing { job: Some(&other), ..sparing(&site, 1) };
        assert!(matches!(remedy(&held, &busy, NOW), Remedy::Later(_)), "the job that owns it goes first");
    }
    let claimed = reporting("bad", NodeClass::Sensitive, Availability::Ready);
    let held = node_of(&judge(&judging(&ids), &claimed, &site).unwrap());
    let released = Node { class: NodeClass::Standard, ..held };
    let eased = node_of(&judge(&judging(&ids), &released, &site).unwrap());
    assert!(eased.is_schedulable(NOW) && eased.deviates_since == Some(NOW), "what is sensitive no more gets work last");
    assert_eq!(judge(&judging(&ids), &eased, &site), None);
    let drained = reporting("bad", NodeClass::Sensitive, Availability::Drained);
    let refused = commands::undrain(&known(&drained, &site, None), &request(&ids));
    assert!(matches!(refused, Err(Refused::Deviates { .. })), "{refused:?}");
}

#[test]
fn without_an_approval_or_a_report_nobody_deviates() {
    let ids = Counter::default();
    let sensitive = reporting("bad", NodeClass::Sensitive, Availability::Ready);
    assert_eq!(judge(&judging(&ids), &sensitive, &site()), None);
    let silent = Node { fingerprint: None, ..sensitive.clone() };
    assert_eq!(judge(&judging(&ids), &silent, &approving(&["good"])), None);
    let other = Node { sku: "h200".to_owned(), ..sensitive };
    assert_eq!(judge(&judging(&ids), &other, &approving(&["good"])), None);
}

#[test]
fn approvals_are_given_once_and_taken_back_and_a_hold_by_hand_is_not_ours_to_clear() {
    let ids = Counter::default();
    let sku = sku(8);
    let approved = site_of(&orders::approve(&request(&ids), &site(), &sku, "good").unwrap().unwrap());
    assert_eq!(orders::approve(&request(&ids), &approved, &sku, "good").unwrap(), None);
    assert!(matches!(orders::approve(&request(&ids), &approved, &sku, "g d"), Err(Refused::Invalid { .. })));
    let none = site_of(&orders::withdraw(&request(&ids), &approved, &sku.name, "good").unwrap());
    assert!(none.approved.is_empty());
    assert!(orders::withdraw(&request(&ids), &none, &sku.name, "good").is_err());
    let mut held = reporting("good", NodeClass::Standard, Availability::Ready);
    held.holds.push(Hold {
        kind: HoldKind::ConformanceDrift,
        by: request(&ids).actor,
        reason: "by hand".to_owned(),
        since: NOW,
        until: None,
        job: None,
    });
    assert_eq!(judge(&judging(&ids), &held, &approved), None);
}

fn lxd_site(auto_remediate: bool) -> Site {
    let lxd: LxdSite = serde_json::from_value(serde_json::json!({
        "api_url": "https://127.0.0.1:8443", "client_cert_path": "a", "client_key_path": "b", "server_cert_path": "c",
        "image": "debian",
    }))
    .unwrap();
    let automation = AutomationPolicy { auto_remediate, ..AutomationPolicy::default() };
    Site { provider: SiteProvider::Lxd(lxd), automation, ..site() }
}

fn silent(seconds: u64) -> Node {
    let since = Timestamp::from_millis(NOW.as_millis() - i64::try_from(seconds * 1_000).unwrap());
    Node {
        down_cause: Some(DownCause::HeartbeatLost),
        availability_since: since,
        ..node(Status::Offline, Availability::Down)
    }
}

#[test]
fn lattice_reboots_what_fell_silent_only_where_told_to_after_a_while_and_within_the_limit() {
    let policy = AutomationPolicy::default();
    let room = Governor::new(&policy, 100, 0);
    let full = Governor::new(&policy, 100, 10);
    let judge = |node: &Node, site: &Site, governor| {
        let alone = Standing { site, job: None, report: None, has_bmc: false, governor, fell: 1, members: 20 };
        remedy(node, &alone, NOW)
    };
    let site = lxd_site(true);
    assert_eq!(judge(&silent(121), &site, room), Remedy::Reboot);
    assert_eq!(judge(&silent(121), &lxd_site(false), room), Remedy::NotOurs, "off by default");
    assert!(matches!(judge(&silent(60), &site, room), Remedy::Later(_)), "it may come back by itself");
    let Remedy::Later(why) = judge(&silent(121), &site, full) else { panic!("the limit holds") };
    assert_eq!(why, "Lattice has made 10 of the site's 100 nodes unavailable, and may 10 at once");
    let disabled = Node { down_cause: Some(DownCause::Disabled), ..silent(121) };
    assert_eq!(judge(&disabled, &site, room), Remedy::NotOurs);
    let broken = Node { down_cause: Some(DownCause::CriticalHardware), ..silent(121) };
    assert_eq!(judge(&broken, &site, room), Remedy::NotOurs);
    let by_hand = Site { provider: SiteProvider::Manual, ..site.clone() };
    assert!(matches!(judge(&silent(121), &by_hand, room), Remedy::Never(_)), "nothing can switch it");
    let mut held = silent(121);
    held.set_ownership(Default::default(), &Actor::system("test"), NOW);
    held.holds.push(Hold {
        kind: HoldKind::Maintenance,
        by: Actor::system("test"),
        reason: "somebody works on it".to_owned(),
        since: NOW,
        until: None,
        job: None,
    });
    assert!(matches!(judge(&held, &site, room), Remedy::Never(_)));
    let mut braked = silent(121);
    braked.ownership.braked_until = Some(NOW + Duration::from_secs(60));
    assert!(matches!(judge(&braked, &site, room), Remedy::Later(_)), "a mass failure is not rebooted");
}

#[test]
fn lattice_reboots_nothing_that_fell_silent_with_most_of_its_site_whether_it_had_work_or_not() {
    let policy = AutomationPolicy::default();
    let judge = |node: &Node, site: &Site, fell| {
        let governor = Governor::new(&policy, 100, 0);
        remedy(node, &Standing { site, job: None, report: None, has_bmc: false, governor, fell, members: 20 }, NOW)
    };
    let site = lxd_site(true);
    let Remedy::Later(why) = judge(&silent(121), &site, 11) else { panic!("it is rebooted") };
    assert!(why.contains("11 of 20 nodes"), "{why}");
    assert_eq!(judge(&silent(121), &site, 10), Remedy::Reboot, "half is not more than half");
    assert!(matches!(judge(&silent(599), &site, 11), Remedy::Later(_)));
    assert_eq!(judge(&silent(600), &site, 11), Remedy::Reboot, "as long as a brake holds");
    let let_go = Site { let_go_at: Some(NOW), ..site.clone() };
    assert_eq!(judge(&silent(121), &let_go, 11), Remedy::Reboot, "an operator let go");
    let mut without = site;
    without.heartbeat.brake = false;
    assert_eq!(judge(&silent(121), &without, 11), Remedy::Reboot, "the site wants no brake");
}
