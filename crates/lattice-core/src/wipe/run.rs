//! What a wipe erases, and how far it is.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::agent::task::TaskKind;
use crate::ids::TaskId;
use crate::time::Timestamp;

/// What one step of a wipe erases.
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
pub enum WipeTarget {
    /// The memory of a GPU.
    GpuMemory,
    /// An NVMe drive.
    NvmeDrive,
    /// The host's main memory.
    MainMemory,
}

impl WipeTarget {
    /// The task that erases it.
    pub const fn task(self) -> TaskKind {
        match self {
            Self::GpuMemory => TaskKind::GpuScrub,
            Self::NvmeDrive => TaskKind::NvmeErase,
            Self::MainMemory => TaskKind::RamScrub,
        }
    }

    /// In words: `clear the memory of its GPUs`.
    pub const fn in_words(self) -> &'static str {
        match self {
            Self::GpuMemory => "clear the memory of its GPUs",
            Self::NvmeDrive => "erase its NVMe drives",
            Self::MainMemory => "overwrite its free memory",
        }
    }
}

/// Who restarts the host at the end of a wipe.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum WipeReboot {
    /// Its BMC or its provider: off and on again.
    Power,
    /// Its agent, by a signed task: nothing else can reach its power.
    Agent,
}

/// How far a wipe is; kept by its job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct WipeRun {
    /// When its first step was asked for.
    pub started_at: Timestamp,
    /// Kernel boot in which its last step ended: another one is the proof of the restart.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub boot: Option<String>,
    /// The steps that are proven, in order.
    #[serde(default)]
    pub steps: Vec<ProvenStep>,
}

impl WipeRun {
    /// What nothing proves to be erased yet.
    pub fn unproven(&self) -> Option<WipeTarget> {
        use strum::VariantArray;
        let is_proven = |target: &WipeTarget| self.steps.iter().any(|step| step.target == *target);
        WipeTarget::VARIANTS.iter().copied().find(|target| !is_proven(target))
    }
}

/// A step whose evidence was accepted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct ProvenStep {
    /// What it erased.
    pub target: WipeTarget,
    /// The task that did it, with its evidence.
    pub task: TaskId,
    /// The devices.
    pub devices: BTreeSet<String>,
    /// Devices of that kind that were left as they are: the drive that the system runs from, where the site allows it.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub kept: BTreeSet<String>,
}
