//! What must hold whatever happens. Each checker judges by its own knowledge, not by the engine's.

use std::collections::BTreeSet;

use lattice_core::explain::NextAction;
use lattice_core::failure::FailureClass;
use lattice_core::job::{
    Allowed, CompensateTo, FlowName, Input, JobState, JobStatus, OperatorAction, StageName, allowed_node_statuses,
};
use lattice_core::node::Status;
use lattice_core::node::status::STATUS_EDGES;
use strum::VariantArray;

use crate::world::World;

/// What occurred, over many seeds.
#[derive(Default, Clone)]
pub struct Coverage {
    pub statuses: BTreeSet<JobStatus>,
    pub actions: BTreeSet<OperatorAction>,
    pub classes: BTreeSet<FailureClass>,
    pub stages: BTreeSet<StageName>,
    pub undone: BTreeSet<StageName>,
    pub rounds: BTreeSet<u32>,
}

impl Coverage {
    pub fn add(&mut self, other: &Self) {
        self.statuses.extend(&other.statuses);
        self.actions.extend(&other.actions);
        self.classes.extend(&other.classes);
        self.stages.extend(&other.stages);
        self.undone.extend(&other.undone);
        self.rounds.extend(&other.rounds);
    }

    pub fn missing(&self) -> Vec<String> {
        let statuses = JobStatus::VARIANTS.iter().filter(|it| !self.statuses.contains(it)).map(ToString::to_string);
        let actions = OperatorAction::VARIANTS.iter().filter(|it| !self.actions.contains(it)).map(ToString::to_string);
        let classes = FailureClass::VARIANTS.iter().filter(|it| !self.classes.contains(it)).map(ToString::to_string);
        let stages = StageName::VARIANTS.iter().filter(|it| !self.stages.contains(it)).map(ToString::to_string);
        let undone = [
            StageName::RenderCloudInit,
            StageName::DeployViaMaas,
            StageName::CreateLxdInstance,
            StageName::InjectBootstrap,
            StageName::BeginDrain,
            StageName::WaitForAgentEnrollment,
        ];
        let undone = undone.iter().filter(|it| !self.undone.contains(it)).map(|it| format!("undo of {it}"));
        let rounds = [0, 1].iter().filter(|it| !self.rounds.contains(it)).map(|it| format!("round {it}"));
        statuses.chain(actions).chain(classes).chain(stages).chain(undone).chain(rounds).collect()
    }
}

/// What is checked after each change of a job.
pub fn change(before: &JobState, after: &JobState, input: &Input) -> Result<(), String> {
    if before.status.is_terminal() {
        return Err(format!("{input:?} changed a job that was over"));
    }
    if after.fence < before.fence || after.epoch < before.epoch {
        return Err(format!("{input:?} turned the fence or the epoch back"));
    }
    if after.epoch == before.epoch && after.round < before.round {
        return Err(format!("{input:?} turned the round back"));
    }
    if after.epoch > before.epoch && before.compensating_to.is_none() && !matches!(input, Input::Op(_)) {
        return Err(format!("{input:?} began an epoch without a compensation"));
    }
    if after.status.is_driven() && after.deadline.is_none() {
        return Err("works without a deadline".to_owned());
    }
    if after.status == JobStatus::Running && after.limit_at.is_some_and(|limit| after.deadline > Some(limit)) {
        return Err("has a deadline beyond its limit".to_owned());
    }
    if after.seen.len() > 32 || after.warnings.len() > 16 {
        return Err("grows without bound".to_owned());
    }
    if after.status.is_failed() { stopped_well(after) } else { Ok(()) }
}

/// A stopped job says what to do, as a command that its status allows.
fn stopped_well(job: &JobState) -> Result<(), String> {
    let Some(failure) = &job.failure else {
        return Err(format!("stopped without a next action at {}", job.stage));
    };
    let NextAction::Run { command, .. } = &failure.next_action else {
        return Err(format!("stopped without a next action that can be run: {:?}", failure.next_action));
    };
    let action = action(command).ok_or_else(|| format!("`{command}` is no command"))?;
    if !command.contains(&job.id.to_string()) {
        return Err(format!("`{command}` does not name the job"));
    }
    if action.allowed_from(job.status) != Allowed::Yes {
        return Err(format!("`{command}` is not allowed from {}", job.status));
    }
    Ok(())
}

/// The action of a command line.
pub fn action(command: &str) -> Option<OperatorAction> {
    let verb = command.strip_prefix("lattice job ")?.split(' ').next()?;
    OperatorAction::VARIANTS.iter().copied().find(|action| action.verb() == verb)
}

/// The job's status beside its node's.
pub fn pair(flow: FlowName, job: &JobState, node: Status) -> Result<(), String> {
    if allowed_node_statuses(flow, job.status).contains(&node) {
        return Ok(());
    }
    Err(format!("{flow}: job {} may not stand beside node {node}", job.status))
}

/// Each move of the node is an edge of its table.
pub fn moves(from: Status, moves: &[Status]) -> Result<(), String> {
    let mut at = from;
    for to in moves {
        if !STATUS_EDGES.iter().any(|edge| edge.from == at && edge.to == *to) {
            return Err(format!("node moves from {at} to {to}"));
        }
        at = *to;
    }
    Ok(())
}

/// Whether a running operating system is in the way of a release. spec: S5 4.6
pub fn release(flow: FlowName, job: &JobState) -> Result<(), String> {
    let decided = job.compensating_to == Some(CompensateTo::Restart { release_deployed: true });
    if os_runs(flow, job.highest_stage) && !decided {
        return Err(format!("released a machine whose operating system ran, at {}", job.highest_stage));
    }
    Ok(())
}

/// What a cancelled job leaves behind.
pub fn cancelled(flow: FlowName, job: &JobState, node: Status, world: &World) -> Result<(), String> {
    let left: Vec<_> =
        [StageName::RenderCloudInit, StageName::InjectBootstrap, StageName::CreateLxdInstance, StageName::BeginDrain]
            .into_iter()
            .filter(|stage| world.present.contains(stage))
            .collect();
    let machine = world.deployment.is_some() && !os_runs(flow, job.highest_stage);
    if !left.is_empty() || machine {
        return Err(format!("was cancelled and left {left:?}, a deployed machine: {machine}"));
    }
    if os_runs(flow, job.highest_stage) && node != Status::Quarantined {
        return Err(format!("was cancelled with a running operating system, and its node is {node}"));
    }
    Ok(())
}

/// Only a deployed machine is left alone; the other flows have nothing of that kind.
fn os_runs(flow: FlowName, highest: StageName) -> bool {
    use StageName::{EnsureHardwareSyncConfigured, WaitForAgentEnrollment, WaitForHardwareSyncHealthy};
    matches!(flow, FlowName::OnboardingMaas | FlowName::ReimageMaas)
        && [EnsureHardwareSyncConfigured, WaitForHardwareSyncHealthy, WaitForAgentEnrollment].contains(&highest)
}
