//! Batches against random lives: permits are never exceeded, what is paused starts nothing, a cancel reaches every
//! child, and the status follows the children.
#![allow(clippy::unwrap_used, reason = "a test stops at what it cannot do")]

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use lattice_core::actor::{Actor, Role};
use lattice_core::batch::admission::{Asking, Held, Parallel, SiteRoom, admit, batch_limit};
use lattice_core::batch::estimate::{Standing, TimeLeft, Usual, time_left};
use lattice_core::batch::{
    Batch, BatchCause, BatchControl, BatchStatus, Children, MACHINES_MAX, cancel_request, follow, status,
};
use lattice_core::change::{Change, Guard, derive};
use lattice_core::command::batch::{BatchAction, BatchRefused, InUse, NewBatch, NewMachine, control, create};
use lattice_core::command::{Refused, Request};
use lattice_core::explanation::{self, BatchContext, Holder};
use lattice_core::ids::{BatchId, CorrelationId, Generation, IdSource, JobId, NodeId, OpId, SiteId, uuid_v7};
use lattice_core::job::{Enter, JobStatus, StageName, flows};
use lattice_core::node::NodeClass;
use lattice_core::node::class::HeartbeatPolicy;
use lattice_core::site::{LxdSite, MaasPolicy, MaasSite, Site, SiteProvider, SiteStatus};
use lattice_core::sku::Sku;
use lattice_core::time::Timestamp;
use proptest::prelude::*;

const NOW: Timestamp = Timestamp::from_millis(1_763_712_000_000);

#[derive(Default)]
struct Counter(AtomicU64);

impl IdSource for Counter {
    fn uuid(&self, at: Timestamp) -> uuid::Uuid {
        let mut random = [0; 10];
        random[2..].copy_from_slice(&self.0.fetch_add(1, Ordering::Relaxed).to_be_bytes());
        uuid_v7(at, random)
    }
}

fn request(ids: &Counter) -> Request<'_> {
    Request {
        actor: Actor { name: "ops-ci".into(), role: Role::PlatformAdmin },
        reason: "rack 7".into(),
        now: NOW,
        ids,
        op: OpId::generate(ids, NOW),
        correlation: CorrelationId::generate(ids, NOW),
    }
}

fn site(provider: SiteProvider) -> Site {
    Site {
        id: SiteId::new(uuid_v7(NOW, [9; 10])),
        name: "dc1".into(),
        region_code: "eu".into(),
        provider,
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

fn maas() -> Site {
    let settings = serde_json::json!({
        "api_base_url": "http://10.1.1.1:5240/MAAS", "api_token_path": "a", "default_power_creds_path": "b",
        "deploy_password_path": "c", "pxe_iface": "eth0", "pxe_vlan_vid": 0, "node_pxe_iface": "eno1",
    });
    site(SiteProvider::Maas(serde_json::from_value::<MaasSite>(settings).unwrap()))
}

fn lxd() -> Site {
    let settings = serde_json::json!({
        "api_url": "https://127.0.0.1:8443", "client_cert_path": "a", "client_key_path": "b", "server_cert_path": "c",
        "image": "busybox", "agent_binary": null,
    });
    site(SiteProvider::Lxd(serde_json::from_value::<LxdSite>(settings).unwrap()))
}

fn sku() -> Sku {
    Sku {
        name: "mi300x.192g.8gpu".into(),
        gpus: 8,
        gpu_vendor: None,
        gpu_model: None,
        nics: Vec::new(),
        disks: Vec::new(),
        created_at: NOW,
        updated_at: NOW,
        generation: Generation::FIRST,
    }
}

fn machine(hostname: &str, ipmi_ip: &str) -> NewMachine {
    NewMachine { hostname: hostname.into(), ipmi_ip: (!ipmi_ip.is_empty()).then(|| ipmi_ip.into()) }
}

fn planned(
    site: &Site,
    machines: Vec<NewMachine>,
    in_use: &InUse,
) -> Result<lattice_core::command::batch::PlannedBatch, BatchRefused> {
    let sku = sku();
    let new = NewBatch { site, sku: &sku, profile: None, class: NodeClass::Standard, max_parallel: None, machines };
    create(&request(&Counter::default()), &new, in_use)
}

fn batch(control: BatchControl) -> Batch {
    let actor = Actor { name: "ops-ci".into(), role: Role::PlatformAdmin };
    Batch {
        id: BatchId::new(uuid_v7(NOW, [7; 10])),
        site: SiteId::new(uuid_v7(NOW, [9; 10])),
        sku: "mi300x.192g.8gpu".into(),
        profile: None,
        profile_parallel: None,
        machines: 4,
        max_parallel: None,
        control,
        control_by: actor.clone(),
        control_since: NOW,
        status: BatchStatus::Pending,
        status_since: NOW,
        requested_by: actor,
        reason: String::new(),
        correlation: CorrelationId::new(uuid_v7(NOW, [8; 10])),
        created_at: NOW,
        started_at: None,
        finished_at: None,
        updated_at: NOW,
        generation: Generation::FIRST,
    }
}

#[test]
fn a_batch_is_one_commit_of_nodes_jobs_and_its_parent() {
    let made = planned(&maas(), vec![machine("C07u43", "10.0.0.1"), machine("c07u44", "10.0.0.2")], &InUse::default());
    let made = made.unwrap();
    let kinds: Vec<&str> = made
        .commit
        .changes
        .iter()
        .map(|change| match change {
            Change::Node(_) => "node",
            Change::Job(job) => {
                assert_eq!((job.after.batch, job.after.state.status), (Some(made.batch), JobStatus::Pending));
                "job"
            }
            Change::Batch(batch) => {
                assert_eq!((batch.cause, batch.after.machines), (BatchCause::Created, 2));
                "batch"
            }
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(kinds, ["node", "job", "node", "job", "batch"], "the batch's event is the last one");
    assert_eq!(made.commit.guards.len(), 8, "each name and address is free, site and SKU are as they were");
    let names: Vec<&str> = made.children.iter().map(|child| child.hostname.as_str()).collect();
    assert_eq!(names, ["c07u43", "c07u44"], "in the order of the request");
    let event = derive(&made.commit, made.commit.changes.last().unwrap()).events.remove(0);
    assert_eq!((event.name.as_str(), event.resource_kind.as_str()), ("onboarding.batch.created", "batch"));
    assert_eq!(event.payload["children"]["pending"], 2);
}

#[test]
fn every_wrong_machine_is_named_and_nothing_is_created() {
    let mut in_use = InUse::default();
    in_use.hostnames.insert("taken".into(), NodeId::new(uuid_v7(NOW, [1; 10])));
    in_use.bmc_addresses.insert("10.0.0.9".into(), "c01u01".into());
    let machines = vec![
        machine("fine", "10.0.0.1"),
        machine("bad_name", "10.0.0.2"),
        machine("c1", "10.0.0.300"),
        machine("c2", ""),
        machine("FINE", "10.0.0.4"),
        machine("c3", "10.0.0.1"),
        machine("taken", "10.0.0.5"),
        machine("c4", "10.0.0.9"),
    ];
    let Err(BatchRefused::Fields(wrong)) = planned(&maas(), machines, &in_use) else { panic!("accepted") };
    let rows: Vec<(&str, bool)> = wrong.iter().map(|field| (field.field.as_str(), field.taken)).collect();
    assert_eq!(
        rows,
        [
            ("nodes[1].hostname", false),
            ("nodes[2].ipmi_ip", false),
            ("nodes[3].ipmi_ip", false),
            ("nodes[4].hostname", false),
            ("nodes[5].ipmi_ip", false),
            ("nodes[6].hostname", true),
            ("nodes[7].ipmi_ip", true),
        ]
    );
    assert_eq!(wrong[3].problem, "fine stands in nodes[0] already");
    assert_eq!(wrong[6].problem, "10.0.0.9 is the BMC of c01u01 already");
}

#[test]
fn a_batch_that_cannot_be_is_refused_as_a_whole() {
    let disabled = Site { status: SiteStatus::Disabled, ..maas() };
    let one = || vec![machine("a", "10.0.0.1")];
    let many = (0..=MACHINES_MAX).map(|n| machine(&format!("c{n}"), "10.0.0.1")).collect();
    let rows = [
        (disabled, one(), "site dc1 is disabled"),
        (site(SiteProvider::Manual), one(), "site dc1 is a manual site: this needs a maas, lxd or openchami site"),
        (maas(), Vec::new(), "`nodes` must name 1 to 1000 machines, not 0"),
        (maas(), many, "`nodes` must name 1 to 1000 machines, not 1001"),
    ];
    for (site, machines, expected) in rows {
        let Err(BatchRefused::Whole(refused)) = planned(&site, machines, &InUse::default()) else {
            panic!("{expected}")
        };
        assert_eq!(refused.to_string(), expected);
    }
    let lxd = lxd();
    assert!(planned(&lxd, vec![machine("a", "")], &InUse::default()).is_ok());
    assert!(matches!(planned(&lxd, one(), &InUse::default()), Err(BatchRefused::Fields(_))));
}

#[test]
fn the_status_follows_from_control_and_children() {
    use BatchControl::{Cancel, Pause, Run};
    let children = |pending, running, succeeded, failed, cancelled| Children {
        pending,
        running,
        compensating: 0,
        succeeded,
        failed_retryable: failed,
        failed_manual_intervention: 0,
        cancelled,
    };
    let rows = [
        (Run, children(4, 0, 0, 0, 0), BatchStatus::Pending),
        (Pause, children(4, 0, 0, 0, 0), BatchStatus::Paused),
        (Cancel, children(4, 0, 0, 0, 0), BatchStatus::Cancelling),
        (Run, children(2, 2, 0, 0, 0), BatchStatus::Running),
        (Pause, children(2, 2, 0, 0, 0), BatchStatus::Paused),
        (Pause, children(0, 2, 2, 0, 0), BatchStatus::Running),
        (Run, children(1, 0, 0, 3, 0), BatchStatus::Running),
        (Run, children(0, 1, 2, 1, 0), BatchStatus::Running),
        (Run, children(0, 0, 3, 1, 0), BatchStatus::PartialFailure),
        (Pause, children(0, 0, 3, 1, 0), BatchStatus::PartialFailure),
        (Run, children(0, 0, 0, 4, 0), BatchStatus::Failed),
        (Run, children(0, 0, 0, 3, 1), BatchStatus::Failed),
        (Cancel, children(0, 0, 3, 1, 0), BatchStatus::Cancelling),
        (Run, children(0, 0, 4, 0, 0), BatchStatus::Completed),
        (Run, children(0, 0, 3, 0, 1), BatchStatus::Completed),
        (Run, children(0, 0, 0, 0, 4), BatchStatus::Cancelled),
        (Cancel, children(0, 0, 2, 0, 2), BatchStatus::Cancelled),
        (Cancel, children(0, 0, 4, 0, 0), BatchStatus::Completed),
    ];
    for (control, children, expected) in rows {
        assert_eq!(status(control, &children), expected, "{control} {children:?}");
    }
}

#[test]
fn operators_pause_resume_and_cancel_and_a_batch_that_is_over_refuses() {
    let ids = Counter::default();
    let children = Children { pending: 2, running: 2, ..Children::default() };
    let over = Children { succeeded: 4, ..Children::default() };
    let rows = [
        (BatchControl::Run, children, BatchAction::Pause, Ok(Some(BatchControl::Pause))),
        (BatchControl::Pause, children, BatchAction::Pause, Ok(None)),
        (BatchControl::Pause, children, BatchAction::Resume, Ok(Some(BatchControl::Run))),
        (BatchControl::Run, children, BatchAction::Resume, Ok(None)),
        (BatchControl::Pause, children, BatchAction::Cancel, Ok(Some(BatchControl::Cancel))),
        (BatchControl::Cancel, children, BatchAction::Cancel, Ok(None)),
        (BatchControl::Cancel, children, BatchAction::Resume, Err(BatchStatus::Cancelling)),
        (BatchControl::Run, over, BatchAction::Cancel, Err(BatchStatus::Completed)),
    ];
    for (from, children, asked, expected) in rows {
        let got = match control(&request(&ids), &batch(from), &children, asked) {
            Ok(None) => Ok(None),
            Ok(Some(commit)) => {
                let [Change::Batch(change)] = commit.changes.as_slice() else { panic!("{commit:?}") };
                assert_eq!(change.after.status, status(change.after.control, &children));
                Ok(Some(change.after.control))
            }
            Err(Refused::BatchOver { status, .. }) => Err(status),
            Err(other) => panic!("{other}"),
        };
        assert_eq!(got, expected, "{from} {asked}");
    }
}

#[test]
fn a_child_is_cancelled_under_the_same_request_each_time() {
    let (batch, child) = (BatchId::new(uuid_v7(NOW, [7; 10])), JobId::new(uuid_v7(NOW, [1; 10])));
    assert_eq!(cancel_request(batch, child), cancel_request(batch, child));
    assert_ne!(cancel_request(batch, child), cancel_request(batch, JobId::new(uuid_v7(NOW, [2; 10]))));
}

#[test]
fn the_time_left_is_the_work_shared_by_those_that_run_and_not_known_without_data() {
    let flow = flows::onboarding_maas(&MaasPolicy::default());
    let stages: Vec<StageName> =
        flow.stages.iter().filter(|stage| stage.enter == Enter::InSequence).map(|stage| stage.name).collect();
    let minutes = |minutes: u64| Duration::from_secs(60 * minutes);
    let mut usual: HashMap<StageName, Usual> =
        stages.iter().map(|stage| (*stage, Usual { p50: minutes(1), p95: minutes(2) })).collect();
    let one_machine = stages.len() as u64;
    let first = Standing { stage: stages[0], children: 20 };
    let left = |usual: &HashMap<_, _>, parallel| time_left(&flow, &[first], usual, parallel);
    let known = |p50, p95| TimeLeft::Known(Usual { p50: minutes(p50), p95: minutes(p95) });
    assert_eq!(left(&usual, 10), known(2 * one_machine, 4 * one_machine), "two rounds of ten");
    assert_eq!(left(&usual, 100), known(one_machine, 2 * one_machine), "never shorter than one machine");
    let last = Standing { stage: *stages.last().unwrap(), children: 3 };
    assert_eq!(time_left(&flow, &[last], &usual, 1), known(3, 6));
    usual.remove(&StageName::DeployViaMaas);
    assert_eq!(left(&usual, 10), TimeLeft::NotKnown(vec![StageName::DeployViaMaas]));
    assert_eq!(time_left(&flow, &[last], &usual, 1), known(3, 6), "what lies behind need not be known");
}

#[test]
fn an_explanation_names_the_permit_its_holders_and_what_helps() {
    let holder = |n: u8, code: Option<&str>| Holder {
        hostname: format!("c07u{n}"),
        job: JobId::new(uuid_v7(NOW, [n; 10])),
        stage: StageName::WaitForReady,
        error_code: code.map(str::to_owned),
        since: NOW,
    };
    let context = BatchContext {
        children: Children { pending: 2, running: 1, failed_manual_intervention: 1, ..Children::default() },
        held: Some(Held::BatchFull { running: 1, limit: 1 }),
        site: "dc1",
        holders: vec![holder(1, None)],
        others: 3,
        stopped: vec![holder(2, Some("boot_disk_not_found"))],
        next: Some("c07u3".into()),
    };
    let said = explanation::batch(&batch(BatchControl::Run), &context, NOW + Duration::from_secs(60));
    let facts: Vec<&str> = said.because.iter().map(|unmet| unmet.what.as_str()).collect();
    assert_eq!(
        facts,
        [
            "1 of 1 permits of the batch are taken",
            "c07u1 holds one: at wait_for_ready",
            "c07u3 is started next",
            "c07u2 stopped at wait_for_ready, 60 s ago: boot_disk_not_found",
        ]
    );
    assert!(!said.fine && said.next.len() == 2, "{said:?}");
    let paused = BatchContext { held: Some(Held::Paused), stopped: Vec::new(), ..context };
    let said = explanation::batch(&batch(BatchControl::Pause), &paused, NOW);
    assert_eq!(said.because[0].what, "ops-ci paused it");
}

/// Something that happens in a life of batches.
#[derive(Debug, Clone)]
enum Step {
    /// Permits are given.
    Admit,
    /// A child moves on: which batch, which child, where to.
    Child(usize, usize, u8),
    /// An operator asks.
    Asks(usize, u8),
    /// The limits change.
    Limits(u32, u32),
    /// The site is disabled or enabled.
    Site(bool),
    /// Single onboardings run at the site.
    Singles(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => Just(Step::Admit),
        6 => (0..3_usize, 0..12_usize, 0..6_u8).prop_map(|(batch, child, to)| Step::Child(batch, child, to)),
        1 => (0..3_usize, 0..4_u8).prop_map(|(batch, asked)| Step::Asks(batch, asked)),
        1 => (1..6_u32, 1..9_u32).prop_map(|(batch, site)| Step::Limits(batch, site)),
        1 => any::<bool>().prop_map(Step::Site),
        1 => (0..4_u64).prop_map(Step::Singles),
    ];
    proptest::collection::vec(step, 1..80)
}

/// Batches and their children, as rows would say.
struct World {
    ids: Counter,
    batches: Vec<(Batch, Vec<JobStatus>)>,
    room: SiteRoom,
    singles: u64,
}

impl World {
    fn new() -> Self {
        let ids = Counter::default();
        let batches = [12, 7, 1].map(|size| {
            let id = BatchId::generate(&ids, NOW);
            (Batch { id, machines: size, ..batch(BatchControl::Run) }, vec![JobStatus::Pending; size as usize])
        });
        let parallel = Parallel { batch: 3, site: 5 };
        let room = SiteRoom { status: SiteStatus::Active, parallel, running: 0 };
        Self { ids, batches: batches.into(), room, singles: 0 }
    }

    fn children(&self, index: usize) -> Children {
        Children::count(self.batches[index].1.iter().map(|status| (*status, 1)))
    }

    fn running(&self) -> u64 {
        self.singles + (0..self.batches.len()).map(|index| self.children(index).moving()).sum::<u64>()
    }

    fn step(&mut self, step: &Step) {
        match step {
            Step::Admit => self.admit(),
            Step::Child(batch, child, to) => self.child(*batch, *child, *to),
            Step::Asks(index, asked) => {
                let asked = [BatchAction::Pause, BatchAction::Resume, BatchAction::Resume, BatchAction::Cancel]
                    [usize::from(*asked)];
                let children = self.children(*index);
                let commit = control(&request(&self.ids), &self.batches[*index].0, &children, asked);
                if let Ok(Some(commit)) = commit
                    && let [Change::Batch(change)] = commit.changes.as_slice()
                {
                    self.batches[*index].0 = change.after.clone();
                }
            }
            Step::Limits(batch, site) => self.room.parallel = Parallel { batch: *batch, site: *site },
            Step::Site(active) => {
                self.room.status = if *active { SiteStatus::Active } else { SiteStatus::Disabled };
            }
            Step::Singles(singles) => self.singles = *singles,
        }
        self.follow();
    }

    /// A child moves along an edge of its own table, whatever its batch does.
    fn child(&mut self, batch: usize, child: usize, to: u8) {
        use JobStatus::{
            Cancelled, Compensating, Completed, FailedManualIntervention, FailedRetryable, Pending, Reconciled, Running,
        };
        let Some(status) = self.batches[batch].1.get_mut(child) else { return };
        let edges: &[JobStatus] = match *status {
            Pending => &[Cancelled],
            Running => &[Completed, FailedRetryable, FailedManualIntervention, Compensating],
            FailedRetryable | FailedManualIntervention => &[Running, Running, Reconciled, Compensating],
            Compensating => &[Cancelled, FailedManualIntervention, Running],
            Completed | Cancelled | Reconciled => return,
        };
        if let Some(next) = edges.get(usize::from(to)) {
            *status = *next;
        }
    }

    fn admit(&mut self) {
        let asking: Vec<Children> = (0..self.batches.len()).map(|index| self.children(index)).collect();
        let asking: Vec<Asking<'_>> =
            self.batches.iter().zip(asking).map(|((batch, _), children)| Asking { batch, children }).collect();
        let before = self.running();
        let room = SiteRoom { running: before, ..self.room };
        let admissions = admit(room, &asking);
        let mut started = 0;
        for (admission, asking) in admissions.iter().zip(&asking) {
            started += admission.start;
            let (children, limit) = (asking.children, batch_limit(asking.batch, room.parallel));
            let closed = asking.batch.control != BatchControl::Run || room.status == SiteStatus::Disabled;
            assert!(!closed || admission.start == 0, "{admission:?} was started while it was closed");
            assert!(admission.start == 0 || children.moving() + admission.start <= limit, "{admission:?} over {limit}");
            assert!(admission.start <= children.pending);
            assert!(admission.start == 0 || before + started <= u64::from(room.parallel.site), "the site is over");
            let waits = children.pending > admission.start;
            assert_eq!(admission.held.is_some(), waits, "who waits knows for what: {admission:?}");
            match admission.held {
                Some(Held::BatchFull { running, limit: of }) => assert!(running >= of && of == limit),
                Some(Held::SiteFull { running, limit }) => assert!(running >= limit),
                Some(Held::Paused | Held::Cancelled | Held::SiteDisabled) => assert!(closed),
                None => {}
            }
        }
        let starts: Vec<u64> = admissions.iter().map(|admission| admission.start).collect();
        for (index, start) in starts.into_iter().enumerate() {
            let pending = self.batches[index].1.iter_mut().filter(|status| **status == JobStatus::Pending);
            pending.take(usize::try_from(start).unwrap()).for_each(|status| *status = JobStatus::Running);
        }
    }

    fn follow(&mut self) {
        for index in 0..self.batches.len() {
            let children = self.children(index);
            let row = &self.batches[index].0;
            if let Some(change) = follow(row, &children, NOW) {
                assert_eq!(change.before, Some(row.status));
                assert_eq!(change.after.generation, row.generation.next());
                self.batches[index].0 = change.after;
            }
            let row = &self.batches[index].0;
            assert_eq!(row.status, status(row.control, &children));
            assert_eq!(row.finished_at.is_some(), row.status.is_terminal());
            assert_eq!(row.status.is_terminal(), children.over() == row.machines, "{row:?} {children:?}");
            assert_eq!(follow(row, &children, NOW), None, "twice is once");
            let (moves, waits) = (children.moving() > 0, children.pending > 0);
            match row.status {
                BatchStatus::Pending => assert_eq!(children.pending, row.machines),
                BatchStatus::Running => assert!(moves || waits),
                BatchStatus::Paused => assert!(waits && row.control == BatchControl::Pause),
                BatchStatus::Cancelling => assert!(row.control == BatchControl::Cancel),
                BatchStatus::PartialFailure => assert!(!moves && children.failed() > 0 && children.succeeded > 0),
                BatchStatus::Failed => assert!(!moves && children.failed() > 0 && children.succeeded == 0),
                BatchStatus::Completed => assert!(children.succeeded > 0),
                BatchStatus::Cancelled => assert!(children.cancelled > 0),
            }
        }
    }

    /// Everybody who can finish finishes, and failed children are resumed.
    fn settle(&mut self) {
        self.room.status = SiteStatus::Active;
        self.singles = 0;
        for index in 0..self.batches.len() {
            if self.batches[index].0.control == BatchControl::Pause {
                self.step(&Step::Asks(index, 1));
            }
        }
        for _ in 0..200 {
            self.step(&Step::Admit);
            for batch in 0..self.batches.len() {
                let cancels = self.batches[batch].0.control == BatchControl::Cancel;
                for child in 0..self.batches[batch].1.len() {
                    let status = &mut self.batches[batch].1[child];
                    *status = match (*status, cancels) {
                        (JobStatus::Running, false) => JobStatus::Completed,
                        (JobStatus::FailedRetryable | JobStatus::FailedManualIntervention, false) => JobStatus::Running,
                        (JobStatus::Completed | JobStatus::Reconciled, _) => *status,
                        (JobStatus::Pending, false) => JobStatus::Pending,
                        (
                            JobStatus::Pending
                            | JobStatus::Running
                            | JobStatus::FailedRetryable
                            | JobStatus::FailedManualIntervention,
                            true,
                        )
                        | (JobStatus::Compensating | JobStatus::Cancelled, _) => JobStatus::Cancelled,
                    };
                }
            }
            self.follow();
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_life_of_batches_exceeds_a_permit_and_each_of_them_ends(steps in steps()) {
        let mut world = World::new();
        for step in &steps {
            world.step(step);
        }
        world.settle();
        for (batch, children) in &world.batches {
            prop_assert!(batch.status.is_terminal(), "{} {children:?}", batch.status);
        }
    }
}

#[test]
fn a_single_onboarding_holds_its_bmc_address_too() {
    let made = planned(&maas(), vec![machine("a", "2001:DB8::1")], &InUse::default()).unwrap();
    let address = made.commit.guards.iter().find_map(|guard| {
        if let Guard::BmcAddressFree { address, .. } = guard { Some(address.as_str()) } else { None }
    });
    assert_eq!(address, Some("2001:db8::1"), "as it is stored");
}
