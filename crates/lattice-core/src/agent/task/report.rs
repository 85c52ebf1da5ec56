//! What an agent says about a task.

use serde::{Deserialize, Serialize};

use super::{TaskKind, WipeOutput};
use crate::ids::{AllocationId, OwnershipEpoch, TaskId};
use crate::time::Timestamp;

/// Longest detail that is kept, in bytes.
const LONGEST_DETAIL: usize = 2_048;

/// One report about one task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct TaskReport {
    /// Which task.
    pub task: TaskId,
    /// When it was so, by the agent's clock.
    pub at: Timestamp,
    /// What.
    #[serde(flatten)]
    pub progress: Progress,
}

/// How far a task is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum Progress {
    /// The agent works on it.
    Running,
    /// Done.
    Succeeded {
        /// What came out of it.
        output: TaskOutput,
    },
    /// Refused, or not done.
    Failed {
        /// Why, for programs.
        code: TaskErrorCode,
        /// Why, for people; no secret.
        detail: String,
        /// What was done nevertheless.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        output: Option<TaskOutput>,
    },
}

impl Progress {
    /// It was not done. The detail is cut to what is kept.
    pub fn failed(code: TaskErrorCode, detail: impl Into<String>) -> Self {
        let mut detail: String = detail.into();
        if detail.len() > LONGEST_DETAIL {
            let end = (0..=LONGEST_DETAIL).rev().find(|at| detail.is_char_boundary(*at)).unwrap_or(0);
            detail.truncate(end);
        }
        Self::Failed { code, detail, output: None }
    }

    /// Whether nothing more follows.
    pub const fn is_final(&self) -> bool {
        match self {
            Self::Running => false,
            Self::Succeeded { .. } | Self::Failed { .. } => true,
        }
    }
}

/// Why a task was refused or not done.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    utoipa::ToSchema,
    strum::Display,
    strum::EnumString,
    strum::IntoStaticStr,
    strum::VariantArray,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum TaskErrorCode {
    /// Refused: the envelope is not one, or is too large.
    Malformed,
    /// Refused: no signature of a key that the agent trusts.
    UnknownKey,
    /// Refused: the signature does not fit.
    BadSignature,
    /// Refused: it is for another node.
    WrongNode,
    /// Refused: the node got another identity since it was issued.
    StaleEpoch,
    /// Refused: it came too late.
    Expired,
    /// Refused: it is from the future, by more than clocks may differ.
    NotYetValid,
    /// Refused: its nonce or its id was used before, for something else.
    Replayed,
    /// Refused: this agent does not know such a task.
    UnknownKind,
    /// Refused: this host cannot do it; the detail says what it lacks.
    MissingCapability,
    /// Refused: its input cannot be right.
    InvalidInput,
    /// Refused: too many tasks are open on this host.
    Busy,
    /// Refused: the host takes no new allocations.
    Draining,
    /// Refused: the allocation runs under a later ownership.
    StaleOwnership,
    /// The allocation does not run here.
    NotRunning,
    /// The agent died in the middle, and the host does not show that it was done.
    Interrupted,
    /// It took too long.
    TimedOut,
    /// It was tried and went wrong.
    EffectFailed,
    /// A wipe without evidence is not a wipe.
    NoEvidence,
}

/// What came out of a task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(tag = "kind", content = "result")]
pub enum TaskOutput {
    /// What runs on a host that takes nothing new.
    #[serde(rename = "node.drain")]
    Drain {
        /// What runs.
        running: Vec<Running>,
    },
    /// The process that was started.
    #[serde(rename = "allocation.start")]
    Started {
        /// Its first process.
        pid: u32,
        /// When that started, in clock ticks since boot.
        start_ticks: u64,
        /// Its scope, below the root of the cgroups.
        cgroup: String,
        /// Limits that this host's cgroups cannot enforce: `memory`, `cpu`, `pids`.
        #[serde(default)]
        not_limited: Vec<String>,
    },
    /// How it ended.
    #[serde(rename = "allocation.stop")]
    Stopped {
        /// How.
        how: StopResult,
        /// How its first process ended, if the agent saw it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        exit: Option<ExitStatus>,
    },
    /// Whether its state was saved.
    #[serde(rename = "allocation.checkpoint")]
    Checkpoint {
        /// Whether.
        result: CheckpointResult,
    },
    /// What was cleared.
    #[serde(rename = "node.gpu_scrub")]
    GpuScrub(WipeOutput),
    /// What was erased.
    #[serde(rename = "node.nvme_erase")]
    NvmeErase(WipeOutput),
    /// What was overwritten.
    #[serde(rename = "node.ram_scrub")]
    RamScrub(WipeOutput),
    /// How the host is.
    #[serde(rename = "node.heartbeat_check")]
    HeartbeatCheck {
        /// Kernel boot id.
        boot_id: String,
        /// Version of the agent.
        agent_version: String,
        /// GPUs on the bus.
        gpu_count: u32,
        /// A minor issue that the host found on itself.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        minor_issue: Option<String>,
        /// What runs.
        running: Vec<Running>,
    },
    /// The host was restarted.
    #[serde(rename = "node.reboot")]
    Rebooted {
        /// Boot that ended.
        before: String,
        /// Boot that runs.
        after: String,
    },
}

impl TaskOutput {
    /// Of which kind of task it is the output.
    pub const fn kind(&self) -> TaskKind {
        match self {
            Self::Drain { .. } => TaskKind::NodeDrain,
            Self::Started { .. } => TaskKind::AllocationStart,
            Self::Stopped { .. } => TaskKind::AllocationStop,
            Self::Checkpoint { .. } => TaskKind::AllocationCheckpoint,
            Self::GpuScrub(_) => TaskKind::GpuScrub,
            Self::NvmeErase(_) => TaskKind::NvmeErase,
            Self::RamScrub(_) => TaskKind::RamScrub,
            Self::HeartbeatCheck { .. } => TaskKind::HeartbeatCheck,
            Self::Rebooted { .. } => TaskKind::NodeReboot,
        }
    }

    /// The evidence of a wipe, if it is one.
    pub const fn wipe(&self) -> Option<&WipeOutput> {
        match self {
            Self::GpuScrub(wiped) | Self::NvmeErase(wiped) | Self::RamScrub(wiped) => Some(wiped),
            Self::Drain { .. }
            | Self::Started { .. }
            | Self::Stopped { .. }
            | Self::Checkpoint { .. }
            | Self::HeartbeatCheck { .. }
            | Self::Rebooted { .. } => None,
        }
    }
}

/// An allocation that runs on a host. spec: S1 "Agent Restart and State Recovery"
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Running {
    /// Which one.
    pub allocation: AllocationId,
    /// Ownership under which it was started; 0: the host cannot tell, so it is older than any.
    pub ownership_epoch: OwnershipEpoch,
}

/// How an allocation ended when it was stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema, strum::Display)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum StopResult {
    /// It ended by itself when it was asked to.
    Graceful,
    /// It was killed when its grace was over.
    Killed,
    /// Nothing of it ran.
    WasGone,
}

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ExitStatus {
    /// By itself, with this code.
    Code(i32),
    /// By this signal.
    Signal(i32),
}

/// What became of a request to save an allocation's state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema, strum::Display)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum CheckpointResult {
    /// It is saved.
    Done,
    /// The allocation cannot save its state.
    Unsupported,
}
