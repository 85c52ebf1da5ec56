//! Each rule and each look at the end is seen to fire.

mod acts;

use std::collections::{BTreeMap, BTreeSet};

use lattice_core::actor::{Actor, Role};
use lattice_core::agent::task::{CheckpointHow, Limits, Running, WipeEvidence, WipeOutput};
use lattice_core::allocation::{
    Allocation, AllocationCause, AllocationChange, AllocationStatus, Ownership, RequeuePolicy, Wanted, Workload,
};
use lattice_core::change::{Change, Commit, HistoryRow, NodeAction, NodeChange};
use lattice_core::ids::{AllocationId, CorrelationId, Generation, IdSource, NodeId, OpId, OwnershipEpoch, SiteId};
use lattice_core::job::JobKind;
use lattice_core::node::{Availability, DownCause, Hold, HoldKind, Node, NodeClass, NodeState, OnboardingMode, Status};
use lattice_core::time::Timestamp;
use strum::VariantArray;

use super::check::{returned, twice, unclean};
use super::ground::START;
use super::luck::Luck;
use super::metal::Metal;
use super::model::Model;
use super::rest::broken_chain;
use super::rules::RULES;
use super::{Fault, Plan, STEPS, live, live_twice};

struct Bench {
    ids: Luck,
    model: Model,
}

fn system() -> Actor {
    Actor::system("test")
}

impl Bench {
    fn new() -> Self {
        Self { ids: Luck::new(1, "test"), model: Model::default() }
    }

    fn node(&mut self, change: impl FnOnce(&mut Node)) -> Node {
        let mut node = Node {
            id: NodeId::generate(&self.ids, START),
            hostname: format!("n{}", self.model.nodes.len()),
            site: SiteId::new(uuid::Uuid::nil()),
            sku: "sim".to_owned(),
            class: NodeClass::Standard,
            mode: OnboardingMode::Lxd,
            state: NodeState::new(Status::Active, Availability::Ready),
            status_since: START,
            availability_since: START,
            down_cause: None,
            deadline: None,
            boot_failures: 0,
            drain_intent: false,
            minor_issue: None,
            identity_epoch: 1,
            boot_id: None,
            agent_version: None,
            fingerprint: None,
            address: None,
            bmc_address: None,
            provider_ref: None,
            owning_job: None,
            deviates_since: None,
            labels: lattice_core::node::Labels::default(),
            holds: Vec::new(),
            ownership: Ownership::default(),
            created_at: START,
            updated_at: START,
            generation: Generation::FIRST,
        };
        change(&mut node);
        self.model.nodes.insert(node.id, node.clone());
        node
    }

    fn allocation(&mut self, change: impl FnOnce(&mut Allocation)) -> Allocation {
        let mut one = Allocation {
            id: AllocationId::generate(&self.ids, START),
            user: "ada".to_owned(),
            class: NodeClass::Standard,
            wanted: Wanted::default(),
            workload: Workload {
                argv: vec!["/bin/true".to_owned()],
                env: BTreeMap::new(),
                directory: None,
                user: None,
                limits: Limits::default(),
                mounts: Vec::new(),
                checkpoint: CheckpointHow::None,
            },
            requeue: RequeuePolicy::Never,
            status: AllocationStatus::Requested,
            status_since: START,
            why: String::new(),
            node: None,
            epoch: None,
            saved: false,
            evicted: false,
            retry: None,
            placements: 0,
            requested_by: system(),
            requested_at: START,
            correlation: CorrelationId::generate(&self.ids, START),
            updated_at: START,
            generation: Generation::FIRST,
        };
        change(&mut one);
        self.model.allocations.insert(one.id, one.clone());
        one
    }

    fn commit(&self, actor: Actor, changes: Vec<Change>) -> Commit {
        Commit {
            op: OpId::new(self.ids.uuid(START)),
            guards: Vec::new(),
            changes,
            actor,
            reason: String::new(),
            at: START,
            correlation: CorrelationId::generate(&self.ids, START),
        }
    }

    /// The rules that these changes break.
    fn broken(&mut self, actor: Actor, changes: Vec<Change>) -> Vec<&'static str> {
        let commit = self.commit(actor, changes);
        let moved = self.model.apply(&commit);
        RULES.iter().filter(|rule| !(rule.judge)(&self.model, &moved).is_empty()).map(|rule| rule.name).collect()
    }
}

fn next(node: &Node, change: impl FnOnce(&mut Node)) -> Change {
    let mut after = node.successor(START);
    change(&mut after);
    let (action, cause) = (NodeAction::Moved, "test".to_owned());
    Change::Node(Box::new(NodeChange { after, before: Some(node.state), action, cause, detail: String::new() }))
}

fn moves(one: &Allocation, change: impl FnOnce(&mut Allocation)) -> Change {
    let mut after = one.successor(START);
    change(&mut after);
    let cause = AllocationCause::Placed;
    Change::Allocation(Box::new(AllocationChange { after, before: Some(one.status), cause }))
}

fn hold(kind: HoldKind) -> Hold {
    Hold { kind, by: system(), reason: String::new(), since: START, until: None, job: None }
}

fn owned(user: &str, class: NodeClass) -> Ownership {
    Ownership::default().with(user, class, 0)
}

fn state(status: Status, availability: Availability) -> NodeState {
    NodeState::new(status, availability)
}

#[test]
fn what_is_right_breaks_no_rule() {
    let mut bench = Bench::new();
    let (node, one) = (bench.node(|_| {}), bench.allocation(|_| {}));
    let changes = vec![
        moves(&one, |one| {
            (one.status, one.node, one.epoch) =
                (AllocationStatus::Provisioning, Some(node.id), Some(OwnershipEpoch(0)));
        }),
        next(&node, |node| node.ownership = owned("ada", NodeClass::Standard)),
    ];
    assert_eq!(bench.broken(system(), changes), Vec::<&str>::new());
}

#[test]
fn a_forbidden_pair_and_a_skipped_generation_are_seen() {
    let mut bench = Bench::new();
    let node = bench.node(|_| {});
    let changes = vec![next(&node, |node| node.state = state(Status::Active, Availability::Down))];
    assert!(!bench.model.impossible(&[bench.commit(system(), changes.clone())]).is_empty());
    assert_eq!(bench.broken(system(), changes), ["no forbidden pair"]);
    let node = bench.node(|_| {});
    let changes = vec![next(&node, |node| node.generation = node.generation.next())];
    assert_eq!(bench.broken(system(), changes), ["rows change one generation at a time"]);
}

#[test]
fn a_placement_on_a_node_that_must_not_be_used_is_seen() {
    let refused: [fn(&mut Node); 6] = [
        |node| (node.class, node.deviates_since) = (NodeClass::Sensitive, Some(START)),
        |node| node.holds.push(hold(HoldKind::WipeRequired)),
        |node| node.holds.push(hold(HoldKind::Maintenance)),
        |node| node.state = state(Status::Active, Availability::Degraded),
        |node| node.state = state(Status::Quarantined, Availability::Ready),
        |node| node.state = state(Status::Active, Availability::Drained),
    ];
    for spoil in refused {
        let mut bench = Bench::new();
        let (node, one) = (bench.node(spoil), bench.allocation(|_| {}));
        let place = |one: &mut Allocation| {
            (one.status, one.node, one.epoch) =
                (AllocationStatus::Provisioning, Some(node.id), Some(OwnershipEpoch(0)));
        };
        let changes = vec![moves(&one, place), next(&node, |node| node.ownership = owned("ada", NodeClass::Standard))];
        let broken = bench.broken(system(), changes);
        assert_eq!(broken, ["nothing is placed on a node that must not be used"], "{}", node.state);
    }
}

#[test]
fn a_node_that_counts_wrongly_and_an_epoch_that_falls_are_seen() {
    let mut bench = Bench::new();
    let node = bench.node(|_| {});
    let changes = vec![next(&node, |node| node.ownership = owned("ada", NodeClass::Standard))];
    assert_eq!(bench.broken(system(), changes), ["a node owns what is placed on it"]);
    let node = bench.node(|node| node.ownership.epoch = OwnershipEpoch(3));
    let changes = vec![next(&node, |node| node.ownership.epoch = OwnershipEpoch(2))];
    assert_eq!(bench.broken(system(), changes), ["epochs never fall, and a lost ownership ends its epoch"]);
}

#[test]
fn draining_without_a_job_and_a_forgotten_intent_are_seen() {
    let mut bench = Bench::new();
    let node = bench.node(|_| {});
    let changes = vec![next(&node, |node| node.state = state(Status::Draining, Availability::Drained))];
    assert_eq!(bench.broken(system(), changes), ["no draining or removing without a job"]);
    let intent = "a drain intent survives all but an undrain";
    let down = |node: &mut Node| {
        (node.state, node.drain_intent) = (state(Status::Offline, Availability::Down), true);
    };
    let node = bench.node(down);
    let changes = vec![next(&node, |node| node.state = state(Status::Active, Availability::Ready))];
    assert_eq!(bench.broken(system(), changes), [intent]);
    let node = bench.node(down);
    assert_eq!(bench.broken(system(), vec![next(&node, |node| node.drain_intent = false)]), [intent]);
}

#[test]
fn a_sensitive_node_that_escapes_its_wipe_is_seen() {
    let mut bench = Bench::new();
    let node = bench.node(|node| node.ownership.class = Some(NodeClass::Sensitive));
    let changes = vec![next(&node, |node| node.ownership = Ownership::default())];
    assert_eq!(bench.broken(system(), changes), ["sensitive work leaves a wipe behind"]);
    let node = bench.node(|node| node.holds.push(hold(HoldKind::WipeRequired)));
    let changes = vec![next(&node, |node| node.holds.clear())];
    assert_eq!(bench.broken(system(), changes), ["only a wipe ends the need of one"]);
}

/// What a host has is known by the host itself: each device that work soiled must be erased, and then it restarts.
#[test]
fn what_is_left_on_a_host_that_is_given_back_is_seen() {
    let mut bench = Bench::new();
    let node = bench.node(|_| {});
    assert!(unclean(&node, None).is_some_and(|why| why.contains("no host")));
    let metal = (0..50).map(|seed| Metal::new(&Luck::new(seed, "metal"))).find(|metal| metal.facts().disks.len() == 4);
    let metal = metal.expect("some hosts have three NVMe drives");
    assert_eq!(unclean(&node, Some(metal.left(false, Some("boot-1")))), None);
    metal.soil();
    let memory = WipeOutput { inventory: BTreeSet::from(["memory".to_owned()]), evidence: vec![evidence("memory")] };
    metal.erased(&memory, "boot-1");
    let left = metal.left(false, Some("boot-1"));
    assert_eq!(left.soiled.len(), 7, "four GPUs and three drives");
    assert!(unclean(&node, Some(left)).is_some_and(|why| why.contains("not erased: 0000:00:00.0")));
    let all: Vec<_> = metal.left(false, None).soiled.iter().map(|device| evidence(device)).collect();
    metal.erased(&WipeOutput { inventory: BTreeSet::new(), evidence: all }, "boot-1");
    assert!(unclean(&node, Some(metal.left(false, Some("boot-1")))).is_some_and(|why| why.contains("not restarted")));
    assert_eq!(unclean(&node, Some(metal.left(false, Some("boot-2")))), None);
}

fn evidence(device: &str) -> WipeEvidence {
    WipeEvidence {
        device: device.to_owned(),
        model: String::new(),
        serial: String::new(),
        bytes: None,
        method: String::new(),
        tool: String::new(),
        tool_version: String::new(),
        exit_code: 0,
        status_before: String::new(),
        status_after: String::new(),
        started_at: START,
        finished_at: START,
    }
}

#[test]
fn a_brake_that_does_not_hold_and_a_mass_failure_without_one_are_seen() {
    let mut bench = Bench::new();
    let lost = |node: &mut Node| {
        (node.state, node.down_cause) = (state(Status::Offline, Availability::Down), Some(DownCause::HeartbeatLost));
    };
    let node = bench.node(|node| {
        lost(node);
        node.ownership.braked_until = Some(START + std::time::Duration::from_secs(60));
    });
    let changes = vec![next(&node, |node| node.ownership = node.ownership.lost())];
    assert_eq!(bench.broken(system(), changes), ["the brake holds what silence does"]);
    for _ in 0..10 {
        bench.node(|node| node.state.availability = Availability::Degraded);
    }
    let node = bench.node(|node| {
        node.state.availability = Availability::Degraded;
        node.ownership = owned("ada", NodeClass::Standard);
    });
    let changes = vec![next(&node, |node| {
        lost(node);
        node.ownership = node.ownership.lost();
    })];
    assert_eq!(bench.broken(system(), changes), ["a mass failure is braked"]);
}

#[test]
fn what_comes_back_unasked_is_seen() {
    let mut bench = Bench::new();
    let node = bench.node(|node| {
        node.state = state(Status::Offline, Availability::Down);
        node.holds.push(hold(HoldKind::Disabled));
    });
    let changes = vec![next(&node, |node| node.holds.clear())];
    assert_eq!(bench.broken(system(), changes.clone()), ["a disabled node stays down"]);
    bench.model.nodes.insert(node.id, node);
    let operator = Actor { name: "ada".to_owned(), role: Role::PlatformAdmin };
    assert_eq!(bench.broken(operator, changes), Vec::<&str>::new());
    let node = bench.node(|node| node.state = state(Status::Deleted, Availability::Unknown));
    let changes = vec![next(&node, |node| node.state = state(Status::Active, Availability::Ready))];
    assert_eq!(bench.broken(system(), changes), ["what is deleted stays deleted"]);
}

#[test]
fn what_drifted_and_is_not_held_is_seen() {
    let mut bench = Bench::new();
    let node = bench.node(|node| node.class = NodeClass::Sensitive);
    let loose = vec![next(&node, |node| node.deviates_since = Some(START))];
    assert_eq!(bench.broken(system(), loose), ["what drifted gets nothing sensitive"]);
    let node = bench.node(|node| node.class = NodeClass::Sensitive);
    let held = vec![next(&node, |node| {
        node.deviates_since = Some(START);
        node.holds.push(hold(HoldKind::ConformanceDrift));
    })];
    assert_eq!(bench.broken(system(), held), Vec::<&str>::new());
}

/// A job that Lattice begins by itself.
fn by_itself(bench: &mut Bench, node: &Node, kind: JobKind, by: &str) -> Change {
    let mut job = bench.job(node, kind);
    job.requested_by = Actor::system(by);
    job.created()
}

#[test]
fn more_than_the_site_can_spare_is_seen() {
    let mut bench = Bench::new();
    let [first, second] = [(); 2].map(|()| bench.node(|_| {}));
    let drained = by_itself(&mut bench, &first, JobKind::Drain, "conformance");
    let taken = next(&first, |node| {
        (node.state.availability, node.drain_intent) = (Availability::Drained, true);
    });
    assert_eq!(bench.broken(system(), vec![drained, taken]), Vec::<&str>::new(), "one of two may be");
    let another = by_itself(&mut bench, &second, JobKind::Drain, "conformance");
    assert_eq!(bench.broken(system(), vec![another]), ["Lattice itself takes no more than the site can spare"]);
    let by_hand = by_itself(&mut bench, &second, JobKind::Drain, "ada");
    assert_eq!(bench.broken(system(), vec![by_hand]), Vec::<&str>::new(), "an operator may");
}

#[test]
fn a_reboot_by_itself_of_what_did_not_fall_silent_alone_is_seen() {
    let rule = "Lattice itself reboots only what fell silent alone";
    let silent = |node: &mut Node| {
        (node.state, node.down_cause) = (state(Status::Offline, Availability::Down), Some(DownCause::HeartbeatLost));
    };
    let spoilt: [fn(&mut Node); 4] = [
        |_| {},
        |node| node.down_cause = Some(DownCause::CriticalHardware),
        |node| node.holds.push(hold(HoldKind::Maintenance)),
        |node| node.ownership.braked_until = Some(START + std::time::Duration::from_secs(60)),
    ];
    let lively = |bench: &mut Bench| {
        bench.model.automation.auto_remediate = true;
        (0..4).for_each(|_| drop(bench.node(|_| {})));
    };
    let reboots = |bench: &mut Bench, node: &Node| {
        let job = by_itself(bench, node, JobKind::Reboot, "remediator");
        let boots = next(node, |node| node.state = state(Status::Active, Availability::Booting));
        bench.broken(system(), vec![job, boots])
    };
    for (index, spoil) in spoilt.into_iter().enumerate() {
        let mut bench = Bench::new();
        lively(&mut bench);
        let node = bench.node(|node| {
            silent(node);
            spoil(node);
        });
        let broken = reboots(&mut bench, &node);
        assert_eq!(broken.contains(&rule), index > 0, "{index}: {broken:?}");
    }
    let mut bench = Bench::new();
    let node = bench.node(silent);
    assert_eq!(reboots(&mut bench, &node), [rule], "its site does not have that");
    let mut bench = Bench::new();
    lively(&mut bench);
    let earlier = START - std::time::Duration::from_secs(10);
    (0..9).for_each(|_| {
        drop(bench.node(|node| {
            silent(node);
            node.availability_since = earlier;
        }));
    });
    let node = bench.node(silent);
    assert_eq!(reboots(&mut bench, &node), [rule], "most of its site fell silent");
}

#[test]
fn sensitive_work_that_is_queued_again_by_itself_is_seen() {
    let mut bench = Bench::new();
    let node = bench.node(|node| node.ownership = owned("ada", NodeClass::Sensitive));
    let one = bench.allocation(|one| {
        one.class = NodeClass::Sensitive;
        (one.status, one.node, one.epoch) = (AllocationStatus::Active, Some(node.id), Some(OwnershipEpoch(0)));
    });
    let changes = vec![
        moves(&one, |one| (one.status, one.node, one.epoch) = (AllocationStatus::Requested, None, None)),
        next(&node, |node| {
            node.holds.push(hold(HoldKind::WipeRequired));
            node.ownership = node.ownership.lost();
        }),
    ];
    assert_eq!(bench.broken(system(), changes), ["sensitive work is never queued again by itself"]);
}

#[test]
fn work_that_runs_twice_or_outlives_its_ownership_is_seen() {
    let mut bench = Bench::new();
    let (here, there) =
        (bench.node(|_| {}), bench.node(|node| node.state = state(Status::Offline, Availability::Down)));
    let one = bench.allocation(|_| {});
    let running = Running { allocation: one.id, ownership_epoch: OwnershipEpoch(0) };
    let hosts = BTreeMap::from([(here.id, vec![running]), (there.id, vec![running])]);
    assert!(twice(&bench.model, &hosts).is_empty(), "what runs on a node that is down does not count yet");
    let back =
        bench.commit(system(), vec![next(&there, |node| node.state = state(Status::Active, Availability::Ready))]);
    let moved = bench.model.apply(&back);
    assert_eq!(twice(&bench.model, &hosts).len(), 1);
    assert_eq!(returned(&bench.model, &moved, &hosts).len(), 1);
}

#[test]
fn a_gap_in_a_history_is_seen() {
    let row = |before, after| HistoryRow {
        node: NodeId::new(uuid::Uuid::nil()),
        at: Timestamp::default(),
        action: NodeAction::Moved,
        cause: "test".to_owned(),
        before,
        after,
        actor: "test".to_owned(),
        detail: String::new(),
    };
    let (ready, drained) = (state(Status::Active, Availability::Ready), state(Status::Active, Availability::Drained));
    assert_eq!(broken_chain(&[row(None, ready), row(Some(ready), drained)], drained), None);
    assert!(broken_chain(&[row(None, ready), row(Some(drained), ready)], ready).is_some());
    assert!(broken_chain(&[row(None, ready)], drained).is_some());
}

/// One seed is one life: the log of the second is that of the first, and another seed has another.
#[test]
fn a_seed_gives_the_same_life_each_time() {
    let plan = Plan { seed: 7, steps: 40, shows: false };
    let report = live_twice(plan);
    assert_eq!(report.wrong, Vec::<String>::new());
    assert_ne!(report.hash, live(Plan { seed: 8, ..plan }).hash);
}

/// What is never seen to befall tests nothing.
#[test]
fn everything_befalls_some_life() {
    let mut befell = BTreeSet::new();
    let is_all = |befell: &BTreeSet<Fault>| befell.len() == Fault::VARIANTS.len();
    // Among the next twenty all of it happens.
    for seed in 81..=140 {
        let report = live(Plan { seed, steps: STEPS, shows: false });
        assert_eq!(report.wrong, Vec::<String>::new(), "seed {seed}");
        befell.extend(report.faults.into_keys());
        if is_all(&befell) {
            return;
        }
    }
    let never: Vec<&Fault> = Fault::VARIANTS.iter().filter(|fault| !befell.contains(fault)).collect();
    panic!("never seen: {never:?}");
}
