//! What an agent can be asked to do, by name. design: 4 "Operations"

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Kind of a task: one spelling for SQL, JSON, metrics and the agent's capabilities.
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
pub enum TaskKind {
    /// Accept nothing new, or accept again; report what runs.
    #[serde(rename = "node.drain")]
    #[strum(serialize = "node.drain")]
    NodeDrain,
    /// Start the processes of an allocation in a scope of their own.
    #[serde(rename = "allocation.start")]
    #[strum(serialize = "allocation.start")]
    AllocationStart,
    /// End them: asked first, then killed.
    #[serde(rename = "allocation.stop")]
    #[strum(serialize = "allocation.stop")]
    AllocationStop,
    /// Have an allocation save its state. spec: S1 "Ready → Draining"
    #[serde(rename = "allocation.checkpoint")]
    #[strum(serialize = "allocation.checkpoint")]
    AllocationCheckpoint,
    /// Clear the memory of GPUs. spec: S1 "Sensitive Release Sequence"
    #[serde(rename = "node.gpu_scrub")]
    #[strum(serialize = "node.gpu_scrub")]
    GpuScrub,
    /// Erase NVMe drives. spec: S1 "Sensitive Release Sequence"
    #[serde(rename = "node.nvme_erase")]
    #[strum(serialize = "node.nvme_erase")]
    NvmeErase,
    /// Overwrite free memory. spec: S1 "Sensitive Release Sequence"
    #[serde(rename = "node.ram_scrub")]
    #[strum(serialize = "node.ram_scrub")]
    RamScrub,
    /// Say how the host is and what runs on it, now.
    #[serde(rename = "node.heartbeat_check")]
    #[strum(serialize = "node.heartbeat_check")]
    HeartbeatCheck,
    /// Restart the host.
    #[serde(rename = "node.reboot")]
    #[strum(serialize = "node.reboot")]
    NodeReboot,
}

/// How long a task may wait and take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Term {
    /// From its issue: an agent that gets it later refuses it.
    pub start_within: Duration,
    /// From then on: a task that nobody reported about is given up.
    pub finish_within: Duration,
}

impl TaskKind {
    /// How long it may wait and take where nobody says otherwise. A host that is silent for that long is Down.
    ///
    /// Scrubs: the 30 minutes of a wipe. spec: S1 "Wipe Failure Handling"
    pub const fn term(self) -> Term {
        const fn term(start_secs: u64, finish_secs: u64) -> Term {
            Term { start_within: Duration::from_secs(start_secs), finish_within: Duration::from_secs(finish_secs) }
        }
        match self {
            Self::HeartbeatCheck => term(60, 60),
            Self::NodeDrain => term(300, 60),
            Self::AllocationStart => term(300, 120),
            Self::AllocationStop => term(600, 600),
            Self::AllocationCheckpoint => term(300, 600),
            Self::GpuScrub | Self::NvmeErase | Self::RamScrub => term(600, 1_800),
            Self::NodeReboot => term(300, 900),
        }
    }

    /// Whether it destroys data: its success is believed with evidence alone.
    pub const fn is_wipe(self) -> bool {
        match self {
            Self::GpuScrub | Self::NvmeErase | Self::RamScrub => true,
            Self::NodeDrain
            | Self::AllocationStart
            | Self::AllocationStop
            | Self::AllocationCheckpoint
            | Self::HeartbeatCheck
            | Self::NodeReboot => false,
        }
    }

    /// Whether doing it a second time changes nothing: after a crash it is done again once the host was looked at.
    /// Everything else is settled by looking alone. design: 4 "On the host"
    pub const fn is_repeatable(self) -> bool {
        match self {
            Self::NodeDrain | Self::AllocationStop | Self::HeartbeatCheck => true,
            Self::AllocationStart
            | Self::AllocationCheckpoint
            | Self::GpuScrub
            | Self::NvmeErase
            | Self::RamScrub
            | Self::NodeReboot => false,
        }
    }
}
