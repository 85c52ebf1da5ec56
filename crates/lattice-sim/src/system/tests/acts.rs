//! What destroys is judged: what is right passes, and each thing that is wrong with it is seen.

use std::time::Duration;

use lattice_core::agent::task::Running;
use lattice_core::allocation::AllocationStatus;
use lattice_core::ids::{JobId, LeaseEpoch, OwnershipEpoch, TaskId};
use lattice_core::job::{Job, JobInput, JobKind, JobLease, JobOutputs, JobState, JobStatus, StageName};
use lattice_core::node::{Availability, HoldKind, PowerFact, Status};
use lattice_core::wipe::{ProvenStep, WipeRun, WipeTarget};
use strum::VariantArray;

use super::super::acts::{Act, Deed, For, Seen, misdeeds, miswipes};
use super::{Bench, START, hold, state, system};

const KEY: &str = "the key of the effect";

/// A case: the rows, and what is asked for.
struct Case {
    bench: Bench,
    job: Job,
    act: Act<'static>,
}

impl Case {
    /// One in which nothing is wrong.
    fn of(kind: JobKind, (deed, stage, undo): (Deed, StageName, bool)) -> Self {
        let mut bench = Bench::new();
        let (status, availability) = match kind {
            JobKind::Remove => (Status::Removing, Availability::Drained),
            JobKind::Onboarding => (Status::Enrolling, Availability::Booting),
            JobKind::Drain
            | JobKind::Retire
            | JobKind::Reboot
            | JobKind::Reimage
            | JobKind::BmcInvestigation
            | JobKind::SecureErase
            | JobKind::SensitiveWipe => (Status::Active, Availability::Drained),
        };
        let node = bench.node(|node| node.state = state(status, availability));
        let mut job = bench.job(&node, kind);
        job.state.stage = stage;
        job.state.status = if undo { JobStatus::Compensating } else { JobStatus::Running };
        let power = match deed {
            Deed::On | Deed::Erase => PowerFact::Off,
            Deed::Off | Deed::Delete => PowerFact::On,
        };
        let act = Act {
            deed,
            key: KEY,
            whose: Some(For { job: job.id, stage, undo }),
            server: "lattice-1",
            at: START,
            unset: START,
            seen: Some(Seen { at: START, power, key: None }),
            stamp: Some(format!("onboarding_lxd/{}/g0/r0/create_lxd_instance", job.id)),
            running: Vec::new(),
        };
        Self { bench, job, act }
    }

    fn wrong(mut self) -> Vec<String> {
        self.bench.model.jobs.insert(self.job.id, self.job);
        misdeeds(&self.bench.model, &self.act)
    }

    /// The same, spoilt in one way: that one thing is seen.
    fn spoilt(mut self, spoil: impl FnOnce(&mut Self), why: &str) {
        spoil(&mut self);
        let wrong = self.wrong();
        assert!(wrong.len() == 1 && wrong[0].contains(why), "wanted `{why}`, got {wrong:?}");
    }
}

impl Bench {
    pub(super) fn job(&mut self, node: &lattice_core::node::Node, kind: JobKind) -> Job {
        let id = JobId::generate(&self.ids, START);
        let node = self.model.nodes.get_mut(&node.id).expect("it was made here");
        node.owning_job = Some(id);
        let lease = JobLease { holder: "lattice-1".to_owned(), until: START + Duration::from_secs(30) };
        let step = |target| ProvenStep {
            target,
            task: TaskId::generate(&self.ids, START),
            devices: Default::default(),
            kept: Default::default(),
        };
        let steps = WipeTarget::VARIANTS.iter().copied().map(step).collect();
        let wipe = Some(WipeRun { started_at: START, boot: None, steps });
        Job {
            id,
            kind,
            node: node.id,
            site: node.site,
            batch: None,
            hostname: node.hostname.clone(),
            input: JobInput::Remove,
            state: JobState { fence: LeaseEpoch(1), ..JobState::pending(id, StageName::PowerOff, START) },
            outputs: JobOutputs { wipe, ..JobOutputs::default() },
            observed: None,
            lease: Some(lease),
            requested_by: system(),
            reason: String::new(),
            correlation: lattice_core::ids::CorrelationId::generate(&self.ids, START),
            created_at: START,
            started_at: None,
            finished_at: None,
            updated_at: START,
            generation: lattice_core::ids::Generation::FIRST,
        }
    }
}

fn cut() -> Case {
    Case::of(JobKind::Reboot, (Deed::Off, StageName::PowerOff, false))
}

fn removal() -> Case {
    Case::of(JobKind::Remove, (Deed::Delete, StageName::DeleteInstance, false))
}

#[test]
fn what_jobs_may_do_is_nothing_wrong() {
    for (kind, what) in [
        (JobKind::Reboot, (Deed::Off, StageName::PowerOff, false)),
        (JobKind::Reboot, (Deed::On, StageName::PowerOn, false)),
        (JobKind::SensitiveWipe, (Deed::Off, StageName::PowerOff, false)),
        (JobKind::SecureErase, (Deed::Erase, StageName::EraseDrives, false)),
        (JobKind::Remove, (Deed::Off, StageName::StopInstance, false)),
        (JobKind::Remove, (Deed::Delete, StageName::DeleteInstance, false)),
        (JobKind::Onboarding, (Deed::On, StageName::CreateLxdInstance, false)),
        (JobKind::Onboarding, (Deed::Delete, StageName::CreateLxdInstance, true)),
    ] {
        assert_eq!(Case::of(kind, what).wrong(), Vec::<String>::new(), "{kind} {what:?}");
    }
}

#[test]
fn what_no_job_asks_for_is_seen() {
    cut().spoilt(|case| case.act.whose = None, "is no job's");
    cut().spoilt(|case| case.job.kind = JobKind::Drain, "no such job does that there");
    cut().spoilt(|case| case.job.state.stage = StageName::PowerOn, "the job is running at power_on");
    cut().spoilt(|case| case.job.state.status = JobStatus::Cancelled, "the job is cancelled");
    cut().spoilt(|case| case.job.lease = None, "does not hold the job");
    cut().spoilt(|case| case.act.server = "lattice-2", "does not hold the job");
}

#[test]
fn what_nobody_looked_at_is_seen() {
    cut().spoilt(|case| case.act.seen = None, "nobody looked");
    cut().spoilt(|case| case.act.seen = Some(Seen { at: START, power: PowerFact::Unknown, key: None }), "Unknown");
    cut().spoilt(|case| case.act.seen = Some(Seen { at: START, power: PowerFact::Off, key: None }), "Off");
    let another = || Some(Seen { at: START, power: PowerFact::On, key: Some("another".to_owned()) });
    cut().spoilt(|case| case.act.seen = another(), "nobody looked");
    let late = |case: &mut Case| {
        case.act.at = START + Duration::from_secs(121);
        case.act.unset = case.act.at;
        case.job.lease.as_mut().expect("it has one").until = case.act.at + Duration::from_secs(1);
    };
    cut().spoilt(late, "what was seen is of");
}

#[test]
fn what_takes_something_that_counts_is_seen() {
    let ready = |case: &mut Case| {
        case.bench.model.nodes.values_mut().for_each(|node| node.state = state(Status::Active, Availability::Ready));
    };
    cut().spoilt(ready, "the node is active / ready");
    let placed = |case: &mut Case| {
        let node = case.job.node;
        case.bench.allocation(|one| {
            (one.status, one.node, one.epoch) = (AllocationStatus::Active, Some(node), Some(OwnershipEpoch(0)));
        });
    };
    cut().spoilt(placed, "is placed there");
    removal().spoilt(placed, "is placed there");
    let active = |case: &mut Case| {
        case.bench.model.nodes.values_mut().for_each(|node| node.state = state(Status::Active, Availability::Drained));
    };
    removal().spoilt(active, "the node is active / drained");
    removal().spoilt(|case| case.act.stamp = Some("somebody".to_owned()), "made for another");
    let erase = || Case::of(JobKind::SecureErase, (Deed::Erase, StageName::EraseDrives, false));
    erase().spoilt(placed, "is placed there");
    let on = |case: &mut Case| case.act.seen = Some(Seen { at: START, power: PowerFact::On, key: None });
    erase().spoilt(on, "its power was seen to be On");
    let unproven = |case: &mut Case| case.job.outputs.wipe = None;
    Case::of(JobKind::SensitiveWipe, (Deed::Off, StageName::PowerOff, false)).spoilt(unproven, "nothing proves");
}

#[test]
fn a_wipe_that_nobody_needs_or_of_running_work_is_seen() {
    let mut bench = Bench::new();
    let node = bench.node(|node| node.holds.push(hold(HoldKind::WipeRequired)));
    assert_eq!(miswipes(&bench.model, Some(node.id), &[]), Vec::<String>::new());
    let running = Running { allocation: bench.allocation(|_| {}).id, ownership_epoch: OwnershipEpoch(0) };
    assert_eq!(miswipes(&bench.model, Some(node.id), &[running]).len(), 1);
    assert_eq!(miswipes(&bench.model, None, &[]).len(), 1);
    let node = bench.node(|_| {});
    assert_eq!(miswipes(&bench.model, Some(node.id), &[]).len(), 1);
}

/// Whose an act is, is read out of its key and of a BMC's caller.
#[test]
fn an_act_says_whose_it_is() {
    let job = JobId::generate(&Bench::new().ids, START);
    let (stage, undo) = (StageName::CreateLxdInstance, true);
    let key = format!("onboarding_lxd/{job}/g0/r2/create_lxd_instance");
    assert_eq!(For::of_key(&key), Some(For { job, stage, undo: false }));
    assert_eq!(For::of_key(&format!("{key}/undo")), Some(For { job, stage, undo }));
    let stage = StageName::PowerOff;
    assert_eq!(For::of_caller(&format!("job {job}"), "power_off"), Some(For { job, stage, undo: false }));
    assert_eq!((For::of_key("drift"), For::of_caller("health poll", "power")), (None, None));
}
