//! Boots that came up ill: which of them Lattice tries again by itself, and what it says where it does not.
#![allow(clippy::unwrap_used, reason = "a test stops at what it cannot do")]

#[allow(dead_code, reason = "each test program uses a part of it")]
mod fleet;

use std::time::Duration;

use fleet::{Counter, NOW, facts, node, registration, request, site, sku};
use lattice_core::actor::Actor;
use lattice_core::change::{Change, Guard};
use lattice_core::command::Refused;
use lattice_core::command::agent::{self, Chained};
use lattice_core::command::boots::{self, BOOTS, Standing};
use lattice_core::command::node::{Known, reset};
use lattice_core::command::remedy::Remedy;
use lattice_core::explain::{Code, Explain, NextAction};
use lattice_core::explanation::{self, NodeContext};
use lattice_core::job::{Job, JobInput, JobKind, NewJob};
use lattice_core::node::availability::BOOT_FAILURES;
use lattice_core::node::machine::Health;
use lattice_core::node::{Availability, Hold, HoldKind, Node, NodeState, Status};
use lattice_core::site::Site;

const BOOT: Duration = Duration::from_secs(600);

/// Its agent registers with that boot and five of eight GPUs; what asks for another boot is carried out.
fn comes_up_ill(node: &Node, boot_id: &str, job: Option<&Job>, has_bmc: bool) -> Chained {
    let facts = facts(5);
    let said = registration(&facts, boot_id);
    let (ids, site) = (Counter::default(), site());
    let request = request(&ids);
    let chained = agent::registered(&request, node, &sku(8), &said, BOOT);
    boots::carried_out(&request, chained, &Standing { site: &site, job, has_bmc })
}

fn booting() -> Node {
    node(Status::Active, Availability::Booting)
}

fn job_of(chained: &Chained) -> Option<Job> {
    let changes = chained.commits.iter().flat_map(|commit| &commit.changes);
    changes.filter_map(|change| if let Change::Job(job) = change { Some(job.after.clone()) } else { None }).next()
}

fn noted(chained: &Chained) -> Option<String> {
    let changes = chained.commits.iter().flat_map(|commit| &commit.changes);
    changes
        .filter_map(|change| match change {
            Change::Note { name, detail, .. } if name == "node.boot_not_repeated" => Some(detail.clone()),
            _ => None,
        })
        .next()
}

fn explained(node: &Node, job: Option<&Job>) -> (Vec<String>, Vec<NextAction>) {
    let context = NodeContext {
        site: &site(),
        placed: &[],
        job,
        last_heard: Some(NOW),
        health: &Health::NotReported,
        bmc: None,
        component: None,
        remedy: &Remedy::NotOurs,
    };
    let told = explanation::node(node, &context, NOW);
    (told.because.into_iter().map(|unmet| unmet.what).collect(), told.next)
}

#[test]
fn the_commit_that_counts_an_ill_boot_begins_the_next_one() {
    let chained = comes_up_ill(&booting(), "b1", None, true);
    let job = job_of(&chained).expect("a job boots it again");
    assert_eq!(
        (job.kind, &job.input, &job.requested_by),
        (JobKind::Reboot, &JobInput::Reboot { boot: None }, &Actor::system(BOOTS))
    );
    assert!(job.reason.starts_with("boot 1 of 3 came up ill: "), "{}", job.reason);
    assert!(!job.takes_by_itself(), "the node is out already: no governor counts it anew");
    let after = chained.after.clone().unwrap();
    assert_eq!((after.state, after.owning_job), (booting().state, Some(job.id)));
    assert_eq!(after.deadline, Some(NOW + BOOT));
    let last = chained.commits.last().unwrap();
    let counts = |change: &Change| matches!(change, Change::Node(change) if change.after == after);
    let begins = |change: &Change| matches!(change, Change::Job(_));
    assert!(last.changes.iter().any(counts) && last.changes.iter().any(begins), "one commit");
    let guard = Guard::NoLiveJob { node: after.id };
    assert!(chained.commits[0].guards.contains(&guard), "a boot counts only with what follows from it");
    assert_eq!(noted(&chained), None);
}

#[test]
fn a_job_that_owns_the_node_sees_to_its_boots_itself() {
    let (ids, site, node) = (Counter::default(), site(), booting());
    let job =
        NewJob { node: &node, site: &site, input: JobInput::Reboot { boot: None }, batch: None }.build(&request(&ids));
    let chained = comes_up_ill(&node, "b1", Some(&job), true);
    assert_eq!((job_of(&chained), noted(&chained)), (None, None));
    assert_eq!(chained.after.unwrap().boot_failures, 1);
}

#[test]
fn the_third_ill_boot_fails_the_node_and_nothing_boots_it() {
    let mut at = booting();
    at.boot_failures = BOOT_FAILURES - 1;
    let chained = comes_up_ill(&at, "b3", None, true);
    let failed = chained.after.clone().unwrap();
    assert_eq!(failed.state, NodeState::new(Status::Offline, Availability::Failed));
    assert_eq!((job_of(&chained), noted(&chained)), (None, None));
    let alerts = |change: &&Change| matches!(change, Change::Note { name, .. } if name == "node.alert.raised");
    assert_eq!(chained.commits.iter().flat_map(|commit| &commit.changes).filter(alerts).count(), 1);
    let (because, _) = explained(&failed, None);
    assert_eq!(because, ["3 boots in a row came up ill: nothing boots it again by itself"]);
    let more = comes_up_ill(&failed, "b4", None, true);
    assert_eq!((more.after.as_ref().unwrap().state, job_of(&more)), (failed.state, None));
}

#[test]
fn what_nothing_can_switch_or_somebody_works_on_is_not_booted_and_both_are_said() {
    let hold =
        |kind| Hold { kind, by: Actor::system("test"), reason: String::new(), since: NOW, until: None, job: None };
    let held = |kind| Node { holds: vec![hold(kind)], ..booting() };
    let rows = [
        (booting(), false, Some("nothing can switch it")),
        (held(HoldKind::Maintenance), true, Some("it has the hold `maintenance`")),
        (held(HoldKind::WipeRequired), true, Some("it has the hold `wipe_required`")),
        (node(Status::Retired, Availability::Booting), true, Some("it is retired")),
        (held(HoldKind::Drift), true, None),
        (Node { drain_intent: true, ..booting() }, true, None),
        (node(Status::Quarantined, Availability::Booting), true, None),
    ];
    for (before, has_bmc, never) in rows {
        let chained = comes_up_ill(&before, "b1", None, has_bmc);
        let after = chained.after.clone().unwrap();
        let case = format!("{} {:?}", before.state, before.holds);
        assert_eq!((after.boot_failures, after.state), (1, before.state), "{case}");
        assert_eq!((&after.holds, after.drain_intent), (&before.holds, before.drain_intent), "{case}");
        assert_eq!(job_of(&chained).is_none(), never.is_some(), "{case}");
        let Some(never) = never else {
            assert_eq!(noted(&chained), None, "{case}");
            continue;
        };
        let told = noted(&chained).unwrap();
        assert!(told.contains("boot 1 of 3 came up ill") && told.contains(never) && told.contains("by hand"), "{told}");
        let (because, next) = explained(&after, None);
        let why = because.iter().find(|what| what.starts_with("it is not booted again by itself")).expect("it is said");
        assert!(why.contains(never) || has_bmc, "{why}");
        assert!(
            next.iter().any(|next| matches!(next, NextAction::Fix { what } if what.contains("by hand"))),
            "{next:?}"
        );
    }
}

#[test]
fn an_ill_boot_that_its_job_tries_again_is_followed() {
    let chained = comes_up_ill(&booting(), "b1", None, true);
    let (job, after) = (job_of(&chained).unwrap(), chained.after.unwrap());
    let (because, next) = explained(&after, Some(&job));
    assert!(because.contains(&"boot 1 of 3 came up ill".to_owned()), "{because:?}");
    let follows = format!("lattice job watch {}", job.id);
    assert!(next.iter().any(|next| matches!(next, NextAction::Run { command, .. } if *command == follows)), "{next:?}");
}

fn known<'a>(node: &'a Node, job: Option<&'a Job>, site: &'a Site) -> Known<'a> {
    Known { node, job, health: Health::NotReported, live_allocations: 0, site, placed: &[], has_bmc: false }
}

#[test]
fn a_failed_node_is_reset_and_owes_what_it_owed() {
    let site = site();
    let hold =
        |kind| Hold { kind, by: Actor::system("test"), reason: String::new(), since: NOW, until: None, job: None };
    let mut failed = node(Status::Offline, Availability::Failed);
    failed.boot_failures = BOOT_FAILURES;
    failed.drain_intent = true;
    failed.holds = vec![hold(HoldKind::WipeRequired), hold(HoldKind::Maintenance)];
    let (told, next) = explained(&failed, None);
    assert!(told[0].starts_with("3 boots in a row came up ill"), "{told:?}");
    let advised = |next: &[NextAction], word: &str| {
        next.iter().any(|next| matches!(next, NextAction::Run { command, .. } if command.contains(word)))
    };
    assert!(advised(&next, "lattice node reset") && advised(&next, "lattice node reboot"), "{next:?}");

    let planned = reset(&known(&failed, None, &site), &request(&Counter::default())).unwrap();
    let [Change::Node(change)] = planned.commit.changes.as_slice() else { panic!("{planned:?}") };
    let after = &change.after;
    assert_eq!(after.state, NodeState::new(Status::Offline, Availability::Unknown));
    assert_eq!((after.boot_failures, after.drain_intent, &after.holds), (0, true, &failed.holds));
    let (told, next) = explained(after, None);
    assert_eq!(told[0], "its agent has not registered since it was reset");
    assert!(advised(&next, "lattice node reboot"), "{next:?}");
    let ill = comes_up_ill(after, "b9", None, false).after.unwrap();
    assert_eq!((ill.state.availability, ill.boot_failures), (Availability::Booting, 1), "the row begins anew");

    let job = NewJob { node: &failed, site: &site, input: JobInput::Reboot { boot: None }, batch: None };
    let job = job.build(&request(&Counter::default()));
    let owned = reset(&known(&failed, Some(&job), &site), &request(&Counter::default())).unwrap_err();
    assert!(matches!(owned, Refused::Busy { .. }), "{owned}");
    assert!(!advised(&explained(&failed, Some(&job)).1, "lattice node reset"), "it would be refused");
    for availability in [Availability::Booting, Availability::Ready, Availability::Down, Availability::Unknown] {
        let status = if availability == Availability::Ready { Status::Active } else { Status::Offline };
        let refused =
            reset(&known(&node(status, availability), None, &site), &request(&Counter::default())).unwrap_err();
        assert_eq!(refused.code(), Code::NodeState, "{availability}");
    }
    for status in [Status::Quarantined, Status::Retired] {
        assert!(reset(&known(&node(status, Availability::Failed), None, &site), &request(&Counter::default())).is_ok());
    }
}
