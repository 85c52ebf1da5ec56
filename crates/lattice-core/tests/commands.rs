//! What people and agents ask for: commits, refusals, and explanations whose next actions are commands.
#![allow(clippy::unwrap_used, reason = "a test stops at what it cannot do")]

use lattice_core::actor::{Actor, Role};
use lattice_core::change::{Change, Commit, Guard, NodeChange, Resource, audit_hash, derive};
use lattice_core::command::create::{self, DrawnToken, MaasMachine, NewNode};
use lattice_core::command::drain;
use lattice_core::command::node::{self as command, Known, ResumeNode};
use lattice_core::command::remedy::Remedy;
use lattice_core::command::{Planned, Refused, Request, agent, hold};
use lattice_core::explain::{Explain, NextAction};
use lattice_core::explanation::{self, NodeContext};
use lattice_core::ids::{CorrelationId, Generation, IdSource, OpId, SiteId, uuid_v7};
use lattice_core::job::{Disposal, Job, JobInput, JobKind, JobStatus};
use lattice_core::node::class::HeartbeatPolicy;
use lattice_core::node::machine::Health;
use lattice_core::node::row::NicFact;
use lattice_core::node::{
    Availability, DownCause, GpuFact, HoldKind, HostFacts, Node, NodeClass, NodeState, Status, health,
};
use lattice_core::site::{MaasSite, Site, SiteProvider, SiteStatus};
use lattice_core::sku::{NicRule, Sku};
use lattice_core::time::Timestamp;
use std::sync::atomic::{AtomicU8, Ordering};

const NOW: Timestamp = Timestamp::from_millis(1_700_000_000_000);

#[derive(Default)]
struct Counter(AtomicU8);

impl IdSource for Counter {
    fn uuid(&self, at: Timestamp) -> uuid::Uuid {
        uuid_v7(at, [self.0.fetch_add(1, Ordering::Relaxed); 10])
    }
}

fn request(ids: &Counter) -> Request<'_> {
    Request {
        actor: Actor { name: "ops-ci".into(), role: Role::PlatformAdmin },
        reason: "test".into(),
        now: NOW,
        ids,
        op: OpId::generate(ids, NOW),
        correlation: CorrelationId::generate(ids, NOW),
    }
}

fn site() -> Site {
    Site {
        id: SiteId::new(uuid_v7(NOW, [9; 10])),
        name: "local".into(),
        region_code: "lab".into(),
        provider: SiteProvider::Manual,
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
    }
}

/// Its machines are switched through MAAS.
fn maas() -> Site {
    let maas: MaasSite = serde_json::from_str(
        r#"{"api_base_url": "http://maas", "api_token_path": "a", "default_power_creds_path": "b",
            "deploy_password_path": "c", "pxe_iface": "d", "pxe_vlan_vid": 1, "node_pxe_iface": "e"}"#,
    )
    .unwrap();
    Site { provider: SiteProvider::Maas(maas), ..site() }
}

fn sku() -> Sku {
    Sku {
        name: "mi300x.192g.8gpu".into(),
        gpus: 1,
        gpu_vendor: Some("amd".into()),
        gpu_model: None,
        nics: Vec::new(),
        disks: Vec::new(),
        created_at: NOW,
        updated_at: NOW,
        generation: Generation::FIRST,
    }
}

fn facts() -> HostFacts {
    let gpu = GpuFact { address: "0000:c1:00.0".into(), vendor: "amd".into(), model: "MI300X".into() };
    HostFacts { gpus: vec![gpu], ..HostFacts::default() }
}

/// A registration of a host with those facts, in its first boot.
fn registration(facts: &HostFacts) -> agent::Registration<'_> {
    agent::Registration {
        facts,
        fingerprint: "f1",
        boot_id: "b1",
        agent_version: "0.1.0",
        ecc_uncorrected: 0,
        minor_issue: None,
        address: None,
    }
}

fn created(ids: &Counter) -> (Node, Job, Planned) {
    let (site, sku) = (site(), sku());
    let new = NewNode { site: &site, sku: &sku, hostname: "C07u31".into(), class: NodeClass::Standard, batch: None };
    let token = DrawnToken { hash: "abc".into(), ttl_seconds: 60 };
    let planned = create::manual(&request(ids), &new, &token).unwrap();
    let node = node_of(&planned.commit);
    let job = planned.commit.changes.iter().find_map(|change| match change {
        Change::Job(change) => Some(change.after.clone()),
        _ => None,
    });
    (node, job.unwrap(), planned)
}

fn node_of(commit: &Commit) -> Node {
    node_change(commit).after.clone()
}

fn node_change(commit: &Commit) -> &NodeChange {
    let found = commit.changes.iter().find_map(|change| match change {
        Change::Node(change) => Some(&**change),
        _ => None,
    });
    found.expect("the commit changes a node")
}

fn at(status: Status, availability: Availability) -> Node {
    let ids = Counter::default();
    let mut node = created(&ids).0;
    node.state = NodeState::new(status, availability);
    node.owning_job = None;
    node
}

fn known<'a>(node: &'a Node, site: &'a Site) -> Known<'a> {
    Known { node, job: None, health: Health::Passed, live_allocations: 0, site, placed: &[], has_bmc: false }
}

#[test]
fn a_manual_node_comes_with_its_token_and_the_job_that_waits_for_it() {
    let (node, job, planned) = created(&Counter::default());
    assert_eq!(node.hostname, "c07u31");
    assert_eq!(node.state, NodeState::new(Status::BootstrapIssued, Availability::Unknown));
    assert_eq!((node.owning_job, planned.job), (Some(job.id), Some(job.id)));
    assert_eq!((job.kind, job.state.status), (JobKind::Onboarding, JobStatus::Pending));
    assert!(planned.commit.changes.iter().any(|change| matches!(change, Change::EnrollmentToken(_))));
}

#[test]
fn bad_names_and_wrong_sites_are_refused_with_the_field_and_the_remedy() {
    let ids = Counter::default();
    let (mut site, sku) = (site(), sku());
    for bad in ["", "-a", "a-", "a_b", "c07.u43", &"x".repeat(64)] {
        let new = NewNode { site: &site, sku: &sku, hostname: bad.into(), class: NodeClass::Standard, batch: None };
        let refused = create::manual(&request(&ids), &new, &DrawnToken { hash: String::new(), ttl_seconds: 1 });
        assert!(matches!(refused, Err(Refused::Invalid { field: "hostname", .. })), "{bad}");
    }
    let new = NewNode { site: &site, sku: &sku, hostname: "a".into(), class: NodeClass::Standard, batch: None };
    let machine = MaasMachine { ipmi_ip: "10.0.0.1", pxe_mac: None, profile: None };
    assert!(matches!(create::maas(&request(&ids), &new, machine), Err(Refused::WrongSiteKind { .. })));
    assert!(matches!(create::lxd(&request(&ids), &new), Err(Refused::WrongSiteKind { .. })));
    site.status = SiteStatus::Disabled;
    let new = NewNode { site: &site, sku: &sku, hostname: "a".into(), class: NodeClass::Standard, batch: None };
    let refused =
        create::manual(&request(&ids), &new, &DrawnToken { hash: String::new(), ttl_seconds: 1 }).unwrap_err();
    assert!(
        matches!(refused.next_actions()[0], NextAction::Run { ref command, .. } if command == "lattice site enable local")
    );
}

#[test]
fn an_agent_walks_a_node_from_its_token_to_ready() {
    let ids = Counter::default();
    let (node, _, planned) = created(&ids);
    let token = planned.commit.changes.iter().find_map(|change| match change {
        Change::EnrollmentToken(token) => Some(token.clone()),
        _ => None,
    });
    let enrolled = agent::enrolled(&request(&ids), &node, &token.unwrap(), "key", std::time::Duration::from_secs(600));
    let node = enrolled.after.unwrap();
    assert_eq!(node.state, NodeState::new(Status::Enrolling, Availability::Booting));
    let facts = facts();
    let registration = registration(&facts);
    let registered =
        agent::registered(&request(&ids), &node, &sku(), &registration, std::time::Duration::from_secs(600));
    assert_eq!(registered.commits.len(), 2, "registration, then the passed health check");
    assert_ne!(registered.commits[0].op, registered.commits[1].op);
    assert_eq!(registered.after.unwrap().state, NodeState::new(Status::Enrolling, Availability::Ready));
}

#[test]
fn a_host_that_is_not_what_its_sku_asks_stays_booting_and_says_why() {
    let ids = Counter::default();
    let node = at(Status::Enrolling, Availability::Booting);
    let facts = HostFacts::default();
    let registration = registration(&facts);
    let registered =
        agent::registered(&request(&ids), &node, &sku(), &registration, std::time::Duration::from_secs(600));
    assert_eq!(registered.after.unwrap().state.availability, Availability::Booting);
    assert!(node_change(&registered.commits[0]).detail.contains("0 GPUs on the bus"));
}

#[test]
fn a_gpu_that_leaves_the_bus_degrades_its_node_until_it_is_back() {
    let ids = Counter::default();
    let sku = Sku { gpus: 8, ..sku() };
    let mut node = at(Status::Active, Availability::Ready);
    let beat = |gpu_count, minor_issue| agent::Heartbeat {
        sku: Some(&sku),
        gpu_count,
        ecc_uncorrected: 0,
        minor_issue,
        fingerprint: None,
    };
    let errors = |ecc_uncorrected| agent::Heartbeat { ecc_uncorrected, ..beat(8, None) };
    let rows = [
        (beat(8, None), Availability::Ready, None),
        (beat(7, None), Availability::Degraded, Some("7 of 8 GPUs on the bus")),
        (beat(7, None), Availability::Degraded, Some("7 of 8 GPUs on the bus")),
        (beat(6, None), Availability::Degraded, Some("6 of 8 GPUs on the bus")),
        // Its sensors hang: the count means nothing.
        (beat(0, Some("sensors did not answer")), Availability::Degraded, Some("sensors did not answer")),
        (beat(8, None), Availability::Ready, None),
        (errors(2), Availability::Degraded, Some("2 uncorrectable memory errors since its boot")),
        (beat(8, None), Availability::Ready, None),
        (agent::Heartbeat { sku: None, ..beat(3, None) }, Availability::Ready, None),
    ];
    for (beat, availability, issue) in rows {
        let before = node.clone();
        if let Some(after) = agent::heard(&request(&ids), &node, &beat).after {
            node = after;
        }
        assert_eq!((node.state.availability, node.minor_issue.as_deref()), (availability, issue), "{beat:?}");
        let changed = before.state.availability != node.state.availability || before.minor_issue != node.minor_issue;
        assert_eq!(before.generation != node.generation, changed, "nothing is committed for nothing: {beat:?}");
    }
}

#[test]
fn a_ready_node_that_registers_with_fewer_gpus_is_degraded_and_recovers_with_all() {
    let ids = Counter::default();
    let mut node = at(Status::Active, Availability::Ready);
    node.boot_id = Some("b1".into());
    for (facts, availability) in [(HostFacts::default(), Availability::Degraded), (facts(), Availability::Ready)] {
        let registration = registration(&facts);
        let limit = std::time::Duration::from_secs(600);
        node = agent::registered(&request(&ids), &node, &sku(), &registration, limit).after.unwrap();
        assert_eq!(node.state, NodeState::new(Status::Active, availability));
    }
    assert_eq!(node.minor_issue, None);
}

#[test]
fn what_heartbeats_cannot_see_degrades_a_ready_node_until_a_registration_passes() {
    let ids = Counter::default();
    let rule = NicRule { count: 1, min_speed_mbps: 100_000, firmware: Vec::new() };
    let sku = Sku { nics: vec![rule], ..sku() };
    let nic =
        NicFact { name: "ens1".into(), mac: "0c:42:a1:00:00:01".into(), speed_mbps: 200_000, firmware: "28".into() };
    let (without, with) = (facts(), HostFacts { nics: vec![nic], ..facts() });
    let registered = |node: &Node, facts: &HostFacts| {
        let said = registration(facts);
        agent::registered(&request(&ids), node, &sku, &said, std::time::Duration::from_secs(600)).after.unwrap()
    };
    let ready = Node { boot_id: Some("b1".into()), ..at(Status::Active, Availability::Ready) };
    let ill = registered(&ready, &without);
    assert_eq!(ill.state, NodeState::new(Status::Active, Availability::Degraded));
    assert!(ill.minor_issue.as_ref().unwrap().contains("0 interfaces of at least 100000"), "{:?}", ill.minor_issue);
    let well =
        agent::Heartbeat { sku: Some(&sku), gpu_count: 1, ecc_uncorrected: 0, minor_issue: None, fingerprint: None };
    assert!(agent::heard(&request(&ids), &ill, &well).commits.is_empty(), "a heartbeat knows nothing of it");
    let back = registered(&ill, &with);
    assert_eq!((back.state.availability, back.minor_issue), (Availability::Ready, None));
}

#[test]
fn a_well_node_that_registers_again_and_says_nothing_new_writes_no_row() {
    let ids = Counter::default();
    let limit = std::time::Duration::from_secs(600);
    let facts = facts();
    let said = agent::Registration { address: Some("10.0.0.7"), ..registration(&facts) };
    let register = |node: &Node, said: &agent::Registration<'_>| {
        agent::registered(&request(&ids), node, &sku(), said, limit).commits.len()
    };
    let ready = at(Status::Active, Availability::Ready);
    let known = agent::registered(&request(&ids), &ready, &sku(), &said, limit).after.expect("the first one is news");
    let none = HostFacts::default();
    let rows = [
        (said.clone(), 0),
        (agent::Registration { address: None, ..said.clone() }, 0),
        (agent::Registration { boot_id: "b2", ..said.clone() }, 1),
        (agent::Registration { fingerprint: "f2", ..said.clone() }, 1),
        (agent::Registration { agent_version: "0.2.0", ..said.clone() }, 1),
        (agent::Registration { address: Some("10.0.0.8"), ..said.clone() }, 1),
        (agent::Registration { minor_issue: Some("a fan stands"), ..said.clone() }, 1),
        (agent::Registration { facts: &none, ..said.clone() }, 2),
    ];
    for (said, commits) in rows {
        assert_eq!(register(&known, &said), commits, "{said:?}");
    }
    let down = Node { state: NodeState::new(Status::Offline, Availability::Down), ..known };
    assert!(register(&down, &said) > 0, "who was lost is told of");
}

#[test]
fn a_disabled_node_is_enabled_once_its_agent_ended_what_it_lost() {
    let (ids, site, facts) = (Counter::default(), site(), facts());
    let said = registration(&facts);
    let idle = at(Status::Active, Availability::Ready);
    let used = Node { ownership: idle.ownership.with("ada", NodeClass::Standard, 4), ..idle.clone() };
    let disabled = |node: &Node| node_of(&command::disable(&known(node, &site), &request(&ids)).unwrap().commit);
    let enabled =
        |node: &Node| command::enable(&known(node, &site), &request(&ids)).map(|planned| node_of(&planned.commit));
    let lost = disabled(&used);
    let refused = enabled(&lost).unwrap_err();
    assert!(refused.because().iter().any(|why| why.contains("its agent registers again")), "{refused:?}");
    let chained = agent::registered(&request(&ids), &lost, &sku(), &said, std::time::Duration::from_secs(600));
    let registered = chained.after.expect("that it ended what it lost is news");
    assert_eq!(enabled(&registered).unwrap().state, idle.state);
    assert_eq!(enabled(&disabled(&idle)).unwrap().state, idle.state, "nothing was placed: nothing is to be ended");
}

#[test]
fn each_commit_of_a_chain_stands_only_with_the_one_before() {
    let (ids, facts) = (Counter::default(), facts());
    let said = agent::Registration { boot_id: "b2", ..registration(&facts) };
    let booting = at(Status::Offline, Availability::Booting);
    let chained = agent::registered(&request(&ids), &booting, &sku(), &said, std::time::Duration::from_secs(600));
    let [first, second] = &chained.commits[..] else { panic!("{:?}", chained.commits) };
    assert_eq!((&first.guards[..], &second.guards[..]), (&[][..], &[Guard::After { op: first.op }][..]));
}

#[test]
fn lifecycle_verbs_create_the_job_that_owns_the_node_in_the_same_commit() {
    let ids = Counter::default();
    let site = site();
    let ready = at(Status::Active, Availability::Ready);
    let retired = at(Status::Retired, Availability::Drained);
    let cases: [(&str, Result<Planned, Refused>, Status); 3] = [
        (
            "drain",
            drain::drain(&known(&ready, &site), &request(&ids), drain::Drain::default(), &|| [0; 16]),
            Status::Active,
        ),
        ("retire", command::retire(&known(&ready, &site), &request(&ids), Disposal::Keep), Status::Draining),
        ("remove", command::remove(&known(&retired, &site), &request(&ids)), Status::Removing),
    ];
    for (name, planned, status) in cases {
        let planned = planned.unwrap();
        let after = node_of(&planned.commit);
        assert_eq!(after.state.status, status, "{name}");
        assert!(planned.job.is_some() && after.owning_job == planned.job, "{name}");
        assert!(planned.commit.changes.iter().any(|change| matches!(change, Change::Job(_))), "{name}");
    }
}

#[test]
fn a_node_that_a_job_owns_refuses_a_second_one_and_names_the_first() {
    let ids = Counter::default();
    let site = site();
    let (_, job, _) = created(&ids);
    let node = at(Status::Active, Availability::Ready);
    let busy = Known { job: Some(&job), ..known(&node, &site) };
    let refused = command::retire(&busy, &request(&ids), Disposal::Keep).unwrap_err();
    assert!(matches!(refused, Refused::Busy { .. }));
    assert!(format!("{:?}", refused.next_actions()).contains(&job.id.to_string()));
}

#[test]
fn resuming_never_duplicates_a_live_job_and_recreates_a_lost_one() {
    let ids = Counter::default();
    let site = site();
    let (_, mut job, _) = created(&ids);
    let node = at(Status::Draining, Availability::Drained);
    let resume = |job: Option<&Job>| command::resume(&Known { job, ..known(&node, &site) }, &request(&ids));
    job.state.status = JobStatus::Running;
    assert_eq!(resume(Some(&job)).unwrap(), ResumeNode::Live(job.id));
    job.state.status = JobStatus::FailedRetryable;
    assert_eq!(resume(Some(&job)).unwrap(), ResumeNode::Job(job.id));
    assert!(matches!(resume(None).unwrap(), ResumeNode::Created(_)));
    let ready = at(Status::Active, Availability::Ready);
    assert!(matches!(command::resume(&known(&ready, &site), &request(&ids)), Err(Refused::NothingToResume { .. })));
}

#[test]
fn holds_belong_to_whoever_set_them() {
    let ids = Counter::default();
    let node = at(Status::Active, Availability::Ready);
    let held = node_of(&hold::set(&node, &request(&ids), HoldKind::Maintenance, None).unwrap().commit);
    assert!(!held.is_schedulable(NOW));
    let free = node_of(&hold::clear(&held, &request(&ids), HoldKind::Maintenance).unwrap().commit);
    assert!(free.is_schedulable(NOW));
    for kind in [HoldKind::Disabled, HoldKind::WipeRequired, HoldKind::WipeFailed] {
        assert!(matches!(hold::set(&node, &request(&ids), kind, None), Err(Refused::HoldNotManual { .. })), "{kind}");
    }
    assert!(matches!(hold::clear(&node, &request(&ids), HoldKind::Maintenance), Err(Refused::NoSuchHold { .. })));
    assert!(matches!(
        hold::set(&node, &request(&ids), HoldKind::Maintenance, Some(NOW)),
        Err(Refused::Invalid { field: "until", .. })
    ));
}

#[test]
fn every_state_is_explained_and_every_command_in_it_is_ours() {
    use strum::VariantArray;
    let site = site();
    for status in Status::VARIANTS {
        for availability in Availability::VARIANTS {
            let node = at(*status, *availability);
            if !node.state.is_allowed() {
                continue;
            }
            let context = NodeContext {
                site: &site,
                placed: &[],
                job: None,
                last_heard: None,
                health: &Health::NotReported,
                bmc: None,
                component: None,
                remedy: &Remedy::NotOurs,
            };
            let told = explanation::node(&node, &context, NOW);
            assert_eq!(told.fine, node.is_schedulable(NOW), "{}", node.state);
            assert!(told.fine || !told.because.is_empty(), "{} is not explained", node.state);
            for action in &told.next {
                if let NextAction::Run { command, effect } = action {
                    assert!(command.starts_with("lattice ") && !effect.is_empty(), "{command}");
                }
            }
        }
    }
}

/// The commands that an explanation of the node prints.
fn advised(node: &Node, site: &Site) -> Vec<String> {
    let context = NodeContext {
        site,
        placed: &[],
        job: None,
        last_heard: None,
        health: &Health::NotReported,
        bmc: None,
        component: None,
        remedy: &Remedy::NotOurs,
    };
    let commands = explanation::node(node, &context, NOW).next.into_iter().filter_map(|next| match next {
        NextAction::Run { command, effect } => Some(format!("{command}: {effect}")),
        NextAction::WaitUntil { .. } | NextAction::Fix { .. } => None,
    });
    commands.collect()
}

#[test]
fn a_reboot_is_advised_for_what_is_missed_and_says_who_does_it() {
    for (status, is_missed) in [(Status::Offline, true), (Status::Retired, false), (Status::Removing, false)] {
        for availability in [Availability::Down, Availability::Failed] {
            let mut node = at(status, availability);
            node.down_cause = Some(DownCause::HeartbeatLost);
            let reboot = advised(&node, &site()).into_iter().find(|line| line.starts_with("lattice node reboot"));
            assert_eq!(reboot.is_some(), is_missed, "{status} {availability}");
            let through_maas = advised(&node, &maas()).into_iter().find(|line| line.starts_with("lattice node reboot"));
            if let (Some(by_hand), Some(by_job)) = (reboot, through_maas) {
                assert!(by_hand.contains("by hand") && by_job.contains("a job power-cycles it"), "{by_hand}; {by_job}");
            }
        }
    }
    let retired = advised(&at(Status::Retired, Availability::Drained), &site());
    assert!(retired.iter().any(|line| line.starts_with("lattice node reactivate")), "{retired:?}");
}

#[test]
fn a_sku_that_asks_for_no_gpus_counts_none() {
    let none = Sku { gpus: 0, gpu_vendor: None, ..sku() };
    assert_eq!(health::check(&none, &facts(), Some("print")), Health::Passed);
    let node = at(Status::Active, Availability::Ready);
    let beat =
        agent::Heartbeat { sku: Some(&none), gpu_count: 8, ecc_uncorrected: 0, minor_issue: None, fingerprint: None };
    let ids = Counter::default();
    assert!(agent::heard(&request(&ids), &node, &beat).commits.is_empty(), "a container sees the GPUs of its host");
}

#[test]
fn a_reboot_by_hand_moves_the_node_at_once_and_one_by_a_job_moves_nothing_yet() {
    let node = at(Status::Offline, Availability::Down);
    let ids = Counter::default();
    let by_hand = command::reboot(&known(&node, &site()), &request(&ids), None).unwrap();
    assert_eq!((node_of(&by_hand.commit).state.availability, by_hand.job), (Availability::Booting, None));
    let site = maas();
    let by_job = command::reboot(&known(&node, &site), &request(&ids), None).unwrap();
    let after = node_of(&by_job.commit);
    assert_eq!((after.state, after.owning_job), (node.state, by_job.job));
    assert!(by_job.job.is_some());
    let pxe = Some(lattice_core::bmc::BootDevice::Pxe);
    let refused = command::reboot(&known(&node, &site), &request(&ids), pxe);
    assert!(matches!(refused, Err(Refused::NoBmc { .. })), "MAAS chooses that itself: {refused:?}");
    let with_bmc = Known { has_bmc: true, ..known(&node, &site) };
    let told = command::reboot(&with_bmc, &request(&ids), pxe).unwrap();
    let job =
        told.commit.changes.iter().find_map(|one| if let Change::Job(job) = one { Some(&job.after) } else { None });
    assert_eq!(job.map(|job| &job.input), Some(&JobInput::Reboot { boot: pxe }));
    let ready = at(Status::Active, Availability::Ready);
    assert!(command::reboot(&known(&ready, &site), &request(&ids), None).is_err(), "what works is drained first");
}

#[test]
fn each_change_of_a_node_brings_history_audit_and_an_event_without_secrets() {
    let (_, _, planned) = created(&Counter::default());
    for change in &planned.commit.changes {
        let derived = derive(&planned.commit, change);
        let audit = derived.audit.as_ref().expect("audited");
        assert_eq!(audit.actor, "ops-ci");
        assert_eq!(audit.result, "applied");
        let text = format!("{:?}", derived);
        assert!(!text.contains("abc"), "the token's hash leaked: {text}");
        assert_eq!(derived.history.is_some(), matches!(change, Change::Node(_)));
    }
}

#[test]
fn the_audit_chain_breaks_when_a_row_is_changed() {
    let ids = Counter::default();
    let request = request(&ids);
    let note = |detail: &str| {
        let change = Change::Note {
            name: "system.note".into(),
            resource: Resource::System("test".into()),
            detail: detail.into(),
        };
        derive(&request.commit(Vec::new(), Vec::new()), &change).audit.unwrap()
    };
    let zeros = "0".repeat(64);
    let first = audit_hash(&zeros, &note("one"));
    assert_ne!(audit_hash(&first, &note("two")), audit_hash(&first, &note("Two")));
    assert_ne!(audit_hash(&zeros, &note("two")), audit_hash(&first, &note("two")));
}
