//! One life of one job: the driver's turns, crashes, operators, late effects.

use std::time::Duration;

use lattice_core::explain::{Explain, NextAction};
use lattice_core::failure::FailureClass;
use lattice_core::ids::{JobId, LeaseEpoch, OpId, uuid_v7};
use lattice_core::job::{
    Attempts, CompensateTo, Decisions, Enter, Failing, Flow, FlowName, Input, JobState, JobStatus, Next, NotProven, Op,
    OperatorAction, ParkedFor, Proof, Refused, StageName, UndoKind, allowed_node_statuses, flows, flows::Restart, next,
    node_moves, step,
};
use lattice_core::node::Status;
use lattice_core::site::{LxdSite, MaasPolicy, OpenchamiPolicy};
use lattice_core::time::Timestamp;
use strum::VariantArray;

use crate::checkers::{self, Coverage};
use crate::dice::Dice;
use crate::world::{Seen, World, error};

const LEASE: Duration = Duration::from_secs(30);
/// No hostile life needs more turns; a retry without bound does.
const TURNS: u32 = 3_000;

/// A way to be wrong, of the driver or of the tables, that a checker must notice.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mutant {
    None,
    ActsBlindly,
    IgnoresLeases,
    TakesDoubtForNo,
    AcceptsStaleResults,
    ReleasesAnyway,
    NeverGivesUp,
    StopsWithoutAWord,
    LeavesItsNode,
    SkipsUndo,
}

/// An effect of a driver that died, under way.
struct Late {
    at: Timestamp,
    effect: Effect,
}

#[derive(Clone)]
enum Effect {
    Act { stage: StageName, key: String },
    Undo { kind: UndoKind },
}

pub struct Life {
    flow: Flow,
    job: JobState,
    node: Status,
    world: World,
    dice: Dice,
    now: Timestamp,
    /// Until when a driver that died holds the job.
    lease_until: Option<Timestamp>,
    late: Vec<Late>,
    /// Results that were given; any may be given again.
    given: Vec<Input>,
    operations: u64,
    /// How many more times an operator does something of their own accord.
    visits: u64,
    mutant: Mutant,
    pub coverage: Coverage,
    pub log: Option<Vec<String>>,
}

type Checked<T = ()> = Result<T, String>;

impl Life {
    pub fn new(seed: u64, mutant: Mutant) -> Self {
        let mut dice = Dice::new(seed);
        let now = Timestamp::from_millis(1_800_000_000_000);
        let flow = mutated(some_flow(&mut dice), mutant);
        let id = JobId::new(uuid_v7(now, [7; 10]));
        let job = JobState::pending(id, flow.first().name, now);
        let node = match flow.name {
            FlowName::OnboardingMaas | FlowName::OnboardingLxd | FlowName::OnboardingOpenchami => Status::Enrolling,
            FlowName::OnboardingManual => Status::BootstrapIssued,
            FlowName::Drain | FlowName::Retire | FlowName::SensitiveWipe => {
                dice.pick(&[Status::Active, Status::Offline, Status::Quarantined])
            }
            FlowName::Remove | FlowName::RemoveLxd => Status::Retired,
            FlowName::Reboot | FlowName::RebootOpenchami | FlowName::BmcInvestigation => Status::Offline,
            FlowName::ReimageOpenchami | FlowName::ReimageMaas | FlowName::SecureErase => {
                dice.pick(&[Status::Active, Status::Offline, Status::Quarantined, Status::Retired])
            }
        };
        let world = World::new(&flow, &mut dice);
        let coverage = Coverage { statuses: [job.status].into(), ..Coverage::default() };
        Self {
            flow,
            job,
            node,
            world,
            dice,
            now,
            lease_until: None,
            late: Vec::new(),
            given: Vec::new(),
            operations: 0,
            visits: 0,
            mutant,
            coverage,
            log: None,
        }
    }

    /// Hostility, then healing, then the end.
    pub fn live(&mut self) -> Checked {
        self.hostility()?;
        self.pass(LEASE)?;
        self.world.heal(self.now);
        self.note(|_| "the world heals".to_owned());
        self.healing()?;
        self.end()
    }

    fn hostility(&mut self) -> Checked {
        self.visits = self.dice.below(12);
        for _ in 0..TURNS {
            self.disturb()?;
            match next(&self.flow, &self.job, self.now) {
                Next::Done => return Ok(()),
                Next::Park { why: ParkedFor::Operator } if self.visits == 0 => return Ok(()),
                Next::Park { why: ParkedFor::Operator } => {
                    let wait = Duration::from_secs(self.dice.below(600));
                    self.pass(wait)?;
                    self.some_operation()?;
                }
                other => self.drive(other)?,
            }
        }
        Err(format!("does not settle: {TURNS} turns, now at {}", self.job.stage))
    }

    fn healing(&mut self) -> Checked {
        let mut operations = 0;
        for _ in 0..TURNS {
            match next(&self.flow, &self.job, self.now) {
                Next::Done => return Ok(()),
                Next::Park { why: ParkedFor::Operator } if operations > 12 => {
                    return Err(format!("does not converge: {:?}", self.job.failure));
                }
                Next::Park { why: ParkedFor::Operator } => {
                    operations += 1;
                    self.follow_advice()?;
                }
                other => self.drive(other)?,
            }
        }
        Err(format!("does not settle in a healed world, at {}", self.job.stage))
    }

    fn end(&mut self) -> Checked {
        self.pass(LEASE)?;
        let job = &self.job;
        if !job.status.is_terminal() {
            return Err(format!("ended as {}", job.status));
        }
        match job.status {
            JobStatus::Cancelled => checkers::cancelled(self.flow.name, job, self.node, &self.world),
            JobStatus::Completed => {
                let lacks = self.flow.stages.iter().find(|stage| {
                    stage.enter == Enter::InSequence
                        && !self.world.is_there(stage.name, stage.reentry, self.now)
                        && !job.warnings.iter().any(|warning| warning.stage == stage.name)
                });
                lacks.map_or(Ok(()), |stage| Err(format!("completed without {}", stage.name)))
            }
            _ => Ok(()),
        }
    }

    /// Things that happen by themselves.
    fn disturb(&mut self) -> Checked {
        if self.dice.percent(3) {
            self.some_operation()?;
        }
        if self.dice.percent(6) && !self.given.is_empty() {
            self.stale()?;
        }
        if self.dice.percent(3) {
            let input = if self.dice.percent(50) { Input::Timer } else { Input::Wake };
            self.give(input)?;
        }
        if self.dice.percent(2) {
            self.world.finish_unasked(self.now);
        }
        let is_enrolled = self.world.present.contains(&StageName::WaitForAgentEnrollment);
        if is_enrolled && self.job.status.is_failed() && self.dice.percent(20) {
            self.give(Input::LateSuccess)?;
        }
        let is_blocked = self.node == Status::Enrolling && self.job.status == JobStatus::FailedManualIntervention;
        if is_blocked && self.dice.percent(10) {
            self.note(|_| "an operator quarantines the node".to_owned());
            self.node = Status::Quarantined;
        }
        if self.node == Status::BootstrapIssued && self.dice.percent(10) && self.job.status == JobStatus::Running {
            self.node = Status::Enrolling;
        }
        Ok(())
    }

    /// A result that was given before is given again: nothing may change.
    fn stale(&mut self) -> Checked {
        let index = self.dice.below(self.given.len() as u64) as usize;
        let input = self.given[index].clone();
        if self.mutant == Mutant::AcceptsStaleResults {
            self.job.claimed = true;
            if let Input::StageOk { fence } | Input::StageErr { fence, .. } = &input {
                self.job.fence = *fence;
            }
        }
        match step(&self.flow, &self.job, &input, self.now) {
            Ok(None) => Ok(()),
            other => Err(format!("a stale result changed the job: {input:?} gave {other:?}")),
        }
    }

    fn drive(&mut self, next: Next) -> Checked {
        match next {
            Next::Park { why: ParkedFor::Start } => self.give(Input::Start).map(|_| ()),
            Next::Park { why } => Err(format!("parked for {why}")),
            Next::Sleep { until } => self.pass(until.since(self.now)),
            Next::Run { .. } | Next::Undo { .. } => {
                if self.mutant != Mutant::IgnoresLeases
                    && let Some(until) = self.lease_until.take()
                {
                    self.pass(until.since(self.now))?;
                }
                self.turn(next)
            }
            Next::Done => Ok(()),
        }
    }

    fn turn(&mut self, next: Next) -> Checked {
        let fence = LeaseEpoch(self.job.fence.0 + 1);
        self.give(Input::Claim { fence })?;
        if self.crashes() {
            return Ok(());
        }
        self.pass(Duration::from_millis(50))?;
        let input = match next {
            Next::Run { stage, needs_intent, intended, key, .. } => {
                self.coverage.stages.insert(stage);
                self.run(fence, stage, needs_intent, intended, &key)?
            }
            Next::Undo { stage, kind, .. } => {
                self.coverage.undone.insert(stage);
                self.undo(fence, stage, kind)?
            }
            Next::Sleep { .. } | Next::Park { .. } | Next::Done => None,
        };
        let Some(input) = input else { return Ok(()) };
        if self.world.is_hostile && self.dice.percent(2) {
            // An operator comes between the act and its report.
            self.lease_until = Some(self.now + LEASE);
            self.some_operation()?;
        }
        let is_fenced_off = self.job.fence != fence;
        if let Input::StageErr { error, .. } | Input::UndoErr { error, .. } = &input {
            self.coverage.classes.insert(error.class);
        }
        self.given.push(input.clone());
        let changed = self.give(input)?;
        if changed == is_fenced_off {
            return Err(format!("a result changed the job: {changed}; it was fenced off: {is_fenced_off}"));
        }
        Ok(())
    }

    /// The driver dies here; its lease stands for a while.
    fn crashes(&mut self) -> bool {
        let crashes = self.world.is_hostile && self.dice.percent(4);
        if crashes {
            self.note(|_| "the driver dies".to_owned());
            self.lease_until = Some(self.now + LEASE);
        }
        crashes
    }

    fn run(
        &mut self,
        fence: LeaseEpoch,
        stage: StageName,
        needs_intent: bool,
        intended: bool,
        key: &str,
    ) -> Checked<Option<Input>> {
        let err = |error| Ok(Some(Input::StageErr { fence, error }));
        match self.world.observe(stage, intended, self.now, &mut self.dice) {
            Seen::Done if self.mutant == Mutant::ActsBlindly && needs_intent => {}
            Seen::Done => {
                if stage == StageName::WaitForAgentEnrollment && self.node == Status::BootstrapIssued {
                    // Who enrolled has been in contact.
                    self.node = Status::Enrolling;
                }
                return Ok(Some(Input::StageOk { fence }));
            }
            Seen::Going { recheck_at } => {
                return Ok(Some(Input::StageWaiting { fence, recheck_at, waiting_for: "the world".to_owned() }));
            }
            Seen::Failed(error) => return err(error),
            Seen::Unclear if self.mutant == Mutant::TakesDoubtForNo => {}
            Seen::Unclear => return err(error(FailureClass::StateAmbiguity, "unclear")),
            Seen::NotDone => {}
        }
        if needs_intent && !intended {
            self.give(Input::IntentRecorded { fence })?;
            if self.crashes() {
                return Ok(None);
            }
        }
        let effect = Effect::Act { stage, key: key.to_owned() };
        if !self.lands(effect)? {
            return Ok(None);
        }
        if self.world.is_hostile && self.dice.percent(4) {
            return err(error(FailureClass::UpstreamTransient, "lost_answer"));
        }
        Ok(Some(Input::StageOk { fence }))
    }

    fn undo(&mut self, fence: LeaseEpoch, stage: StageName, kind: UndoKind) -> Checked<Option<Input>> {
        if self.world.is_hostile && self.dice.percent(15) {
            let class = self.dice.pick(FailureClass::VARIANTS);
            return Ok(Some(Input::UndoErr { fence, error: error(class, "undo") }));
        }
        if self.world.is_hostile && self.dice.percent(15) {
            let recheck_at = self.now + Duration::from_secs(self.dice.below(600));
            return Ok(Some(Input::StageWaiting { fence, recheck_at, waiting_for: format!("the undo of {stage}") }));
        }
        let is_there = kind != UndoKind::ReleaseToReady || self.world.deployment.is_some();
        if is_there && !self.lands(Effect::Undo { kind })? {
            return Ok(None);
        }
        Ok(Some(Input::UndoOk { fence }))
    }

    /// Whether the driver survives its effect. If it does not, the effect may land, now or up to the lease's end.
    fn lands(&mut self, effect: Effect) -> Checked<bool> {
        if !self.crashes() {
            self.land(effect)?;
            return Ok(!self.crashes());
        }
        if self.dice.percent(50) {
            let at = self.now + Duration::from_millis(self.dice.below(LEASE.as_millis() as u64));
            self.late.push(Late { at, effect });
        }
        Ok(false)
    }

    fn land(&mut self, effect: Effect) -> Checked {
        match effect {
            Effect::Act { stage, key } => {
                self.note(|_| format!("  lands: {key}"));
                self.world.act(stage, &key, self.now, &mut self.dice)
            }
            Effect::Undo { kind } => {
                self.note(|_| format!("  lands: undo {kind:?}"));
                if kind == UndoKind::ReleaseToReady {
                    checkers::release(self.flow.name, &self.job)?;
                }
                self.world.undo(kind);
                Ok(())
            }
        }
    }

    /// Time passes, and what is under way lands in its order.
    fn pass(&mut self, time: Duration) -> Checked {
        let end = self.now + time;
        loop {
            let due = self.late.iter().enumerate().filter(|(_, late)| late.at <= end).min_by_key(|(_, late)| late.at);
            let Some((index, _)) = due else { break };
            let late = self.late.swap_remove(index);
            self.now = late.at.max(self.now);
            self.land(late.effect)?;
        }
        self.now = end.max(self.now);
        if self.lease_until.is_some_and(|until| until <= self.now) {
            self.lease_until = None;
        }
        Ok(())
    }

    fn some_operation(&mut self) -> Checked {
        let Some(visits) = self.visits.checked_sub(1) else { return Ok(()) };
        self.visits = visits;
        let action = self.dice.pick(OperatorAction::VARIANTS);
        let decisions = Decisions {
            boot_disk: self.dice.percent(5).then(|| "nvme0n1".to_owned()),
            machine: None,
            release_deployed: action == OperatorAction::RestartClean && self.dice.percent(50),
            os_gone: false,
        };
        let age = Duration::from_secs(self.dice.below(150));
        let observed = self.proof().map(|proof| Proof { at: proof.at - age, ..proof });
        let op = self.op(action, decisions, observed);
        let applied = self.operate(op.clone())?;
        if applied.is_ok() {
            match step(&self.flow, &self.job, &Input::Op(op.clone()), self.now) {
                Ok(None) => {}
                Ok(Some(_)) => return Err(format!("{op:?} was applied twice")),
                // Answered without a change the first time, and so not remembered: that is fine.
                Err(_) => {}
            }
        }
        Ok(())
    }

    fn proof(&self) -> Option<Proof> {
        let proves = self.world.proven(&self.flow, self.now)?;
        Some(Proof { proves, at: self.now })
    }

    fn op(&mut self, action: OperatorAction, decisions: Decisions, observed: Option<Proof>) -> Op {
        self.operations += 1;
        let request_id = OpId::new(uuid_v7(Timestamp::from_millis(self.operations as i64), [1; 10]));
        let lease_until = self.lease_until.filter(|_| self.mutant != Mutant::IgnoresLeases);
        Op { request_id, action, observed, decisions, lease_until }
    }

    fn operate(&mut self, op: Op) -> Checked<Result<(), Refused>> {
        let action = op.action;
        match step(&self.flow, &self.job, &Input::Op(op.clone()), self.now) {
            Err(refused) => {
                self.note(|_| format!("refused: {refused}"));
                if refused.because().is_empty() || refused.next_actions().is_empty() {
                    return Err(format!("{refused:?} does not explain itself"));
                }
                Ok(Err(refused))
            }
            Ok(Some(after)) if action == OperatorAction::AdoptObservedState && !self.may_stand(&after) => {
                // As `command::job::act` refuses it: the node was quarantined meanwhile.
                self.note(|_| "refused: its node may not stand beside that".to_owned());
                Ok(Err(Refused::NothingObserved {
                    job: JobId::new(uuid_v7(self.now, [2; 10])),
                    why: NotProven::Absent,
                }))
            }
            Ok(_) => {
                self.coverage.actions.insert(action);
                self.give(Input::Op(op)).map(|_| Ok(()))
            }
        }
    }

    fn may_stand(&self, after: &JobState) -> bool {
        let moves = node_moves(&self.flow, &self.job, after, self.node);
        let node = moves.last().copied().unwrap_or(self.node);
        allowed_node_statuses(self.flow.name, after.status).contains(&node)
    }

    /// Does what the job recommends; where that is refused, what the refusal recommends.
    fn follow_advice(&mut self) -> Checked {
        self.pass(Duration::from_secs(10))?;
        let advice = self.job.failure.as_ref().map(|failure| failure.next_action.clone());
        let Some(NextAction::Run { command, .. }) = advice else {
            return Err("stopped without a next action".to_owned());
        };
        if let Err(refused) = self.obey(&command)? {
            let NextAction::Run { command, .. } = refused.next_actions().remove(0) else {
                return Err(format!("{refused:?} recommends nothing that can be run"));
            };
            if let Err(refused) = self.obey(&command)? {
                return Err(format!("`{command}` was recommended, and refused: {refused}"));
            }
        }
        Ok(())
    }

    fn obey(&mut self, command: &str) -> Checked<Result<(), Refused>> {
        let action = checkers::action(command).ok_or_else(|| format!("`{command}` is no command"))?;
        let decisions = Decisions {
            boot_disk: command.contains("--boot-disk").then(|| "nvme0n1".to_owned()),
            machine: command.contains("--machine").then(|| "abc123".to_owned()),
            release_deployed: command.contains("--release-deployed"),
            os_gone: command.contains("--os-gone"),
        };
        let observed = self.proof();
        let op = self.op(action, decisions, observed);
        self.operate(op)
    }

    /// Gives the engine an input and commits what comes out; whether anything changed.
    fn give(&mut self, input: Input) -> Checked<bool> {
        let after = step(&self.flow, &self.job, &input, self.now).map_err(|refused| refused.to_string())?;
        let Some(mut after) = after else { return Ok(false) };
        if self.mutant == Mutant::StopsWithoutAWord && after.status.is_failed() {
            after.failure = None;
        }
        self.note(|life| {
            format!("{input:?}\n  {} {} -> {} {}", life.job.status, life.job.stage, after.status, after.stage)
        });
        checkers::change(&self.job, &after, &input)?;
        let moves = node_moves(&self.flow, &self.job, &after, self.node);
        checkers::moves(self.node, &moves)?;
        if self.mutant != Mutant::LeavesItsNode {
            self.node = moves.last().copied().unwrap_or(self.node);
        }
        checkers::pair(self.flow.name, &after, self.node)?;
        self.coverage.statuses.insert(after.status);
        self.coverage.rounds.insert(after.round);
        let is_restart = matches!(self.job.compensating_to, Some(CompensateTo::Restart { .. }));
        if after.epoch > self.job.epoch && is_restart && self.world.deployment.is_some() {
            return Err("began an epoch beside a deployment of the one before".to_owned());
        }
        self.job = after;
        Ok(true)
    }

    fn note(&mut self, line: impl FnOnce(&Self) -> String) {
        if self.log.is_some() {
            let line = format!("{} {}", self.now, line(self));
            self.log.iter_mut().for_each(|log| log.push(line.clone()));
        }
    }
}

fn some_flow(dice: &mut Dice) -> Flow {
    let policy = MaasPolicy {
        strict_pxe_preflight: dice.percent(50),
        require_hw_sync: dice.percent(70),
        max_deploy_retry_attempts: dice.below(3) as u32,
        ..MaasPolicy::default()
    };
    let patience = Duration::from_secs(3_600);
    match dice.below(19) {
        0 => flows::onboarding_lxd(&lxd_site()),
        1 => flows::onboarding_manual(Duration::from_secs(7_200)),
        2 => flows::drain(patience),
        3 => flows::retire(patience),
        4 => flows::remove(),
        5 => flows::remove_lxd(),
        6 => flows::reboot(Duration::from_secs(600)),
        7 => flows::bmc_investigation(),
        8 => flows::onboarding_openchami(&OpenchamiPolicy::default()),
        9 => flows::reboot_openchami(&OpenchamiPolicy::default()),
        10 => flows::reimage_openchami(&OpenchamiPolicy::default()),
        16 => flows::secure_erase(),
        17 | 18 => flows::reimage_maas(&policy),
        11 => {
            let (policy, boot) = (OpenchamiPolicy::default(), Duration::from_secs(600));
            let restart = dice.pick(&[Restart::Power(boot), Restart::Agent, Restart::Network(&policy)]);
            flows::sensitive_wipe(patience, Duration::from_secs(1_800), restart)
        }
        _ => flows::onboarding_maas(&policy),
    }
}

fn lxd_site() -> LxdSite {
    let json = r#"{"api_url": "https://lxd", "client_cert_path": "a", "client_key_path": "b",
        "server_cert_path": "c", "image": "noble"}"#;
    serde_json::from_str(json).expect("an LXD site")
}

fn mutated(mut flow: Flow, mutant: Mutant) -> Flow {
    for stage in &mut flow.stages {
        match mutant {
            Mutant::ReleasesAnyway => {
                if let Some(undo) = &mut stage.undo {
                    undo.until = None;
                }
            }
            Mutant::NeverGivesUp => {
                stage.attempts = Attempts::Bounded(u32::MAX);
                stage.failing = Failing::ByClass;
            }
            Mutant::SkipsUndo => stage.undo = None,
            Mutant::None
            | Mutant::ActsBlindly
            | Mutant::IgnoresLeases
            | Mutant::TakesDoubtForNo
            | Mutant::AcceptsStaleResults
            | Mutant::StopsWithoutAWord
            | Mutant::LeavesItsNode => {}
        }
    }
    flow
}
