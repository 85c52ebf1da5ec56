//! What an agent does to its host: the boundary between its bookkeeping and the machine.

use std::time::Duration;

use async_trait::async_trait;
use lattice_core::agent::task::{
    AllocationStart, CheckpointHow, CheckpointResult, ExitStatus, Running, StopResult, TaskErrorCode, TaskInput,
    WipeOutput,
};
use lattice_core::time::Clock;

use crate::state::AllocationState;

/// Why the host did not do it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{code}: {detail}")]
pub struct HandError {
    /// For programs.
    pub code: TaskErrorCode,
    /// For people; no secret.
    pub detail: String,
}

impl HandError {
    /// It was tried and went wrong.
    pub fn failed(detail: impl Into<String>) -> Self {
        Self { code: TaskErrorCode::EffectFailed, detail: detail.into() }
    }

    /// This host cannot do it.
    pub fn lacks(detail: impl Into<String>) -> Self {
        Self { code: TaskErrorCode::MissingCapability, detail: detail.into() }
    }
}

/// A first process that was started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Born {
    /// Its id.
    pub pid: u32,
    /// When it started, in clock ticks since boot.
    pub start_ticks: u64,
    /// Limits that the host cannot enforce.
    pub not_limited: Vec<String>,
}

/// A scope that was found on the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// Below the cgroup root.
    pub cgroup: String,
    /// What its name says; none: it is no name that an agent gives.
    pub running: Option<Running>,
    /// The oldest process in it, and when that started; none: it is empty.
    pub process: Option<(u32, u64)>,
}

/// Acts on the host: the real one, or a simulated one.
#[async_trait]
pub trait Hands: Send + Sync {
    /// What this host lacks to do that; none: it can.
    fn lacks(&self, input: &TaskInput) -> Option<String>;

    /// Name of the scope of an allocation, below the cgroup root.
    fn scope(&self, running: Running) -> String;

    /// Starts the first process of an allocation in its scope.
    ///
    /// # Errors
    /// Nothing of it runs then, though its scope may be there.
    async fn start(&self, start: &AllocationStart, scope: &str) -> Result<Born, HandError>;

    /// Whether the first process lives; when it does not, how it ended, if this agent saw it.
    async fn first_process(&self, one: &AllocationState) -> Result<(), Option<ExitStatus>>;

    /// Asks what runs in the scope to end, and kills it when `grace` is over.
    ///
    /// # Errors
    /// Something in it cannot be ended.
    async fn stop(&self, one: &AllocationState, grace: Duration) -> Result<StopResult, HandError>;

    /// Has it save its state.
    ///
    /// # Errors
    /// It was told to and did not, in time or at all.
    async fn checkpoint(
        &self,
        one: &AllocationState,
        how: &CheckpointHow,
        timeout: Duration,
    ) -> Result<CheckpointResult, HandError>;

    /// Ends what is left in a scope, and removes it: what was mounted for it ends with its processes, and the host's own
    /// mounts at those places stay. Nothing there is success.
    ///
    /// # Errors
    /// A process in it survived, or something of it cannot be removed.
    async fn clean(&self, cgroup: &str) -> Result<(), HandError>;

    /// Every scope below the slice of workloads.
    async fn scopes(&self) -> Vec<Found>;

    /// Wipes what `input` says, with a record for each device.
    ///
    /// # Errors
    /// A device was not wiped, or its wipe cannot be proven.
    async fn wipe(&self, input: &TaskInput, clock: &dyn Clock) -> Result<WipeOutput, HandError>;

    /// Restarts the host: returns once it was asked for.
    ///
    /// # Errors
    /// It cannot be asked for.
    async fn reboot(&self) -> Result<(), HandError>;
}

/// A host on which nothing can be run or wiped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct NoHands;

const NOTHING: &str = "nothing can be run on this host";

#[async_trait]
impl Hands for NoHands {
    fn lacks(&self, input: &TaskInput) -> Option<String> {
        match input {
            TaskInput::NodeDrain(_) | TaskInput::HeartbeatCheck(_) => None,
            TaskInput::AllocationStart(_)
            | TaskInput::AllocationStop(_)
            | TaskInput::AllocationCheckpoint(_)
            | TaskInput::GpuScrub(_)
            | TaskInput::NvmeErase(_)
            | TaskInput::RamScrub(_)
            | TaskInput::NodeReboot(_) => Some(NOTHING.to_owned()),
        }
    }
    fn scope(&self, running: Running) -> String {
        format!("alloc-{}-{}.scope", running.allocation, running.ownership_epoch.0)
    }
    async fn start(&self, _: &AllocationStart, _: &str) -> Result<Born, HandError> {
        Err(HandError::lacks(NOTHING))
    }
    async fn first_process(&self, _: &AllocationState) -> Result<(), Option<ExitStatus>> {
        Err(None)
    }
    async fn stop(&self, _: &AllocationState, _: Duration) -> Result<StopResult, HandError> {
        Ok(StopResult::WasGone)
    }
    async fn checkpoint(
        &self,
        _: &AllocationState,
        _: &CheckpointHow,
        _: Duration,
    ) -> Result<CheckpointResult, HandError> {
        Err(HandError::lacks(NOTHING))
    }
    async fn clean(&self, _: &str) -> Result<(), HandError> {
        Ok(())
    }
    async fn scopes(&self) -> Vec<Found> {
        Vec::new()
    }
    async fn wipe(&self, _: &TaskInput, _: &dyn Clock) -> Result<WipeOutput, HandError> {
        Err(HandError::lacks(NOTHING))
    }
    async fn reboot(&self) -> Result<(), HandError> {
        Err(HandError::lacks(NOTHING))
    }
}
