//! Nodes that are lost, ill, or owe a wipe: what is given up at once, and what is not given back.
#![allow(clippy::unwrap_used, reason = "a test stops at what it cannot do")]

#[allow(dead_code, reason = "each test program uses a part of it")]
mod fleet;

use std::time::Duration;

use fleet::{Counter, NOW, facts, node, registration, request, site, sku};
use lattice_core::change::Change;
use lattice_core::command::agent::{self, health_now};
use lattice_core::command::node::{self as commands, Known};
use lattice_core::heartbeat::Vitals;
use lattice_core::node::availability::{AvailabilityEvent, BOOT_FAILURES, Effect};
use lattice_core::node::machine::{Health, NodeEvent};
use lattice_core::node::status::{Owner, StatusEvent};
use lattice_core::node::{Availability, DownCause, Hold, HoldKind, Node, NodeClass, Status, machine};

const BOOT: Duration = Duration::from_secs(600);

fn known<'a>(node: &'a Node, site: &'a lattice_core::site::Site) -> Known<'a> {
    Known { node, job: None, health: Health::Passed, live_allocations: 0, site, placed: &[], has_bmc: false }
}

fn registers(node: &Node, gpus: u32, boot_id: &str) -> Node {
    let facts = facts(gpus);
    let said = registration(&facts, boot_id);
    agent::registered(&request(&Counter::default()), node, &sku(8), &said, BOOT).after.unwrap_or_else(|| node.clone())
}

#[test]
fn three_boots_in_a_row_that_come_up_ill_fail_the_node_and_one_that_is_well_ends_the_row() {
    let booting = node(Status::Active, Availability::Booting);
    let once = registers(&booting, 5, "b1");
    assert_eq!((once.state.availability, once.boot_failures), (Availability::Booting, 1));
    let again = registers(&once, 5, "b1");
    assert_eq!(again.boot_failures, 1, "it is the same boot");
    let well = registers(&again, 8, "b1");
    assert_eq!((well.state.availability, well.boot_failures), (Availability::Ready, 0));
    let mut ill = booting;
    for boot in ["b1", "b2", "b3"] {
        ill = registers(&ill, 5, boot);
    }
    assert_eq!((ill.state.availability, ill.boot_failures), (Availability::Failed, BOOT_FAILURES));
    let more = registers(&ill, 5, "b4");
    assert_eq!(more.state.availability, Availability::Failed, "the row goes on");
    assert_eq!(registers(&more, 8, "b5").state.availability, Availability::Ready);
}

#[test]
fn evidence_and_operators_give_up_what_a_brake_holds_back_and_nothing_twice() {
    let (ids, site) = (Counter::default(), site());
    let mut down = node(Status::Offline, Availability::Down);
    down.down_cause = Some(DownCause::HeartbeatLost);
    down.ownership = down.ownership.with("ada", NodeClass::Standard, 4);
    down.ownership.braked_until = Some(NOW + BOOT);
    let disabled = commands::disable(&known(&down, &site), &request(&ids)).unwrap();
    let after = disabled.commit.changes.iter().find_map(|change| match change {
        Change::Node(change) => Some(change.after.clone()),
        _ => None,
    });
    let after = after.unwrap();
    assert_eq!((after.ownership.allocations, after.ownership.braked_until), (0, None));
    assert_eq!(after.ownership.epoch.0, down.ownership.epoch.0 + 1, "what runs there is fenced");
    let critical = |node: &Node| {
        let event = AvailabilityEvent::CriticalHardware;
        let verdict = agent::Verdict { event, detail: String::new(), placed: &[], braked_until: None };
        agent::judged(&request(&ids), node, verdict).after.unwrap()
    };
    assert_eq!(critical(&down).ownership.allocations, 0);
    assert_eq!(critical(&after).ownership, after.ownership, "it was lost before");
}

#[test]
fn operators_are_alerted_of_a_node_that_is_disabled() {
    let site = site();
    let ready = node(Status::Active, Availability::Ready);
    let planned = commands::disable(&known(&ready, &site), &request(&Counter::default())).unwrap();
    let alerts = |change: &&Change| matches!(change, Change::Note { name, .. } if name == "node.alert.raised");
    assert_eq!(planned.commit.changes.iter().filter(alerts).count(), 1);
}

#[test]
fn an_out_of_band_check_is_promised_only_where_there_is_a_bmc() {
    let (ids, site, ready) = (Counter::default(), site(), node(Status::Active, Availability::Ready));
    for has_bmc in [false, true] {
        let known = Known { has_bmc, ..known(&ready, &site) };
        let planned = commands::disable(&known, &request(&ids)).unwrap();
        assert_eq!(planned.effects.contains(&Effect::BmcCheck), has_bmc);
    }
}

#[test]
fn a_quarantined_node_that_owes_a_wipe_is_not_taken_back() {
    let (ids, site) = (Counter::default(), site());
    let mut quarantined = node(Status::Quarantined, Availability::Ready);
    assert!(commands::recover(&known(&quarantined, &site), &request(&ids)).is_ok());
    quarantined.holds.push(Hold {
        kind: HoldKind::WipeFailed,
        by: request(&ids).actor,
        reason: String::new(),
        since: NOW,
        until: None,
        job: None,
    });
    let refused = commands::recover(&known(&quarantined, &site), &request(&ids)).unwrap_err();
    assert!(refused.to_string().contains("a confirmed wipe"), "{refused}");
    let facts = machine::Facts { health: Health::Passed, ..machine::Facts::of(Owner::Cleanup, request(&ids).actor) };
    assert!(machine::decide(&quarantined, NodeEvent::Status(StatusEvent::Recover), &facts, NOW).is_err());
}

#[test]
fn the_health_check_counts_what_the_last_heartbeat_said() {
    let site = site();
    let well = Vitals { gpu_count: 8, ..Vitals::default() };
    let rows = [
        (well, true),
        (Vitals { gpu_count: 5, ..well }, false),
        (Vitals { ecc_uncorrected: 1, ..well }, false),
        (Vitals { issue: Vitals::issue_mark("a fan stands"), ..well }, false),
    ];
    for (heard, passes) in rows {
        let health = health_now(Health::Passed, &heard, &sku(8));
        assert_eq!(health == Health::Passed, passes, "{heard:?}");
        let mut drained = node(Status::Active, Availability::Drained);
        drained.drain_intent = true;
        let known = Known { health, ..known(&drained, &site) };
        assert_eq!(commands::undrain(&known, &request(&Counter::default())).is_ok(), passes);
    }
    let failed = Health::Failed(vec!["0 disks".to_owned()]);
    assert_eq!(health_now(failed.clone(), &well, &sku(8)), failed);
    assert_eq!(health_now(Health::NotReported, &well, &sku(8)), Health::NotReported);
}
