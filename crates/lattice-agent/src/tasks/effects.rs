//! Doing what a task says, and finding out whether it was done.

use std::time::Duration;

use lattice_core::agent::task::{Progress, Statement, TaskErrorCode, TaskInput, TaskKind, TaskOutput, WipeOutput};
use tracing::warn;

use super::Tasks;
use crate::hands::HandError;

/// Longest look at the host after a crash. design: 4 "On the host" (bounded probe)
const PROBE: Duration = Duration::from_secs(10);

impl Tasks {
    /// Does it, within the time that its kind has.
    pub(super) async fn perform(&self, statement: &Statement) -> Progress {
        let limit = statement.input.kind().term().finish_within;
        match tokio::time::timeout(limit, self.effect(statement)).await {
            Ok(Ok(output)) => Progress::Succeeded { output },
            Ok(Err(HandError { code, detail })) => Progress::failed(code, detail),
            Err(_) => Progress::failed(TaskErrorCode::TimedOut, format!("not done within {} s", limit.as_secs())),
        }
    }

    async fn effect(&self, statement: &Statement) -> Result<TaskOutput, HandError> {
        match &statement.input {
            TaskInput::NodeDrain(drain) => self.workloads.drain(drain.mode).await,
            TaskInput::AllocationStart(start) => self.workloads.start(start).await,
            TaskInput::AllocationStop(stop) => self.workloads.stop(stop).await,
            TaskInput::AllocationCheckpoint(checkpoint) => {
                Ok(TaskOutput::Checkpoint { result: self.workloads.checkpoint(checkpoint).await? })
            }
            TaskInput::GpuScrub(_) => Ok(TaskOutput::GpuScrub(self.wipe(&statement.input).await?)),
            TaskInput::NvmeErase(_) => Ok(TaskOutput::NvmeErase(self.wipe(&statement.input).await?)),
            TaskInput::RamScrub(_) => Ok(TaskOutput::RamScrub(self.wipe(&statement.input).await?)),
            TaskInput::HeartbeatCheck(_) => {
                let health = self.ground.host.health().await;
                Ok(TaskOutput::HeartbeatCheck {
                    boot_id: self.workloads.boot_id(),
                    agent_version: self.version.clone(),
                    gpu_count: health.gpu_count,
                    minor_issue: health.minor_issue,
                    running: self.workloads.running(),
                })
            }
            TaskInput::NodeReboot(reboot) => self.reboot(&reboot.boot_id).await,
        }
    }

    /// A wipe whose evidence would be refused is not done: better said here, where the cause is known.
    async fn wipe(&self, input: &TaskInput) -> Result<WipeOutput, HandError> {
        let wiped = self.hands.wipe(input, &*self.ground.clock).await?;
        match wiped.proves(input) {
            Ok(()) => Ok(wiped),
            Err(missing) => Err(HandError { code: TaskErrorCode::NoEvidence, detail: missing.to_string() }),
        }
    }

    /// Asks for it and waits for its own end: what comes back is said by the next agent.
    async fn reboot(&self, before: &str) -> Result<TaskOutput, HandError> {
        let present = self.workloads.boot_id();
        if present != before {
            return Ok(TaskOutput::Rebooted { before: before.to_owned(), after: present });
        }
        self.hands.reboot().await?;
        std::future::pending().await
    }

    /// What became of a task that was begun by an agent that died. Nothing is done blindly: what can be seen is said,
    /// what changes nothing when it is done again is done again, everything else is said to be interrupted.
    pub(super) async fn probe(&self, statement: &Statement, begun_in: &str) -> Progress {
        let kind = statement.input.kind();
        warn!(task_id = %statement.task, %kind, "task was interrupted: the host is looked at");
        match tokio::time::timeout(PROBE, self.look(statement, begun_in)).await {
            Ok(Some(output)) => Progress::Succeeded { output },
            Ok(None) if kind.is_repeatable() => self.perform(statement).await,
            Ok(None) => interrupted(kind),
            Err(_) => Progress::failed(TaskErrorCode::Interrupted, "the host could not be looked at in time"),
        }
    }

    async fn look(&self, statement: &Statement, begun_in: &str) -> Option<TaskOutput> {
        match &statement.input {
            TaskInput::AllocationStart(start) => self.workloads.probe_start(start).await,
            TaskInput::NodeReboot(_) => {
                let after = self.workloads.boot_id();
                (after != begun_in).then(|| TaskOutput::Rebooted { before: begun_in.to_owned(), after })
            }
            TaskInput::NodeDrain(_)
            | TaskInput::AllocationStop(_)
            | TaskInput::AllocationCheckpoint(_)
            | TaskInput::GpuScrub(_)
            | TaskInput::NvmeErase(_)
            | TaskInput::RamScrub(_)
            | TaskInput::HeartbeatCheck(_) => None,
        }
    }
}

fn interrupted(kind: TaskKind) -> Progress {
    let detail = format!("the agent ended in the middle of `{kind}`, and the host does not show that it was done");
    Progress::failed(TaskErrorCode::Interrupted, detail)
}
