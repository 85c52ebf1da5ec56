//! Evidence of a wipe: without it, a wipe that a device reports as done is not a wipe. spec: S1 "Sensitive Release Sequence"

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::TaskInput;
use crate::time::Timestamp;

/// What was wiped on a host, in one step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct WipeOutput {
    /// Every device of that kind that the host shows, by name.
    pub inventory: BTreeSet<String>,
    /// One record for each device that was wiped.
    pub evidence: Vec<WipeEvidence>,
}

/// How one device was wiped.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct WipeEvidence {
    /// Its name on the host: `nvme0n1`, `0000:26:00.0`, `memory`.
    pub device: String,
    /// Its model, as the host shows it; empty: it shows none.
    pub model: String,
    /// Its serial number; empty: it shows none.
    pub serial: String,
    /// How much was wiped, in bytes; none: the tool does not say.
    pub bytes: Option<u64>,
    /// How: `crypto`, `user_data`, `gpu_reset`, `overwrite`.
    pub method: String,
    /// Program that did it, by its path.
    pub tool: String,
    /// The program's own version.
    pub tool_version: String,
    /// How the program ended.
    pub exit_code: i32,
    /// What the device said of itself before.
    pub status_before: String,
    /// What the device said of itself after.
    pub status_after: String,
    /// When it began, by the host's clock.
    pub started_at: Timestamp,
    /// When it ended, by the host's clock.
    pub finished_at: Timestamp,
}

/// Why evidence proves nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoEvidence {
    /// The task was no wipe, or its output is another's.
    #[error("the output is not the one of this wipe")]
    NotAWipe,
    /// A device that the host has, or that was to be wiped, has no record.
    #[error("nothing proves that {device} was wiped")]
    Uncovered {
        /// Which.
        device: String,
    },
    /// Fewer devices than the host should have.
    #[error("the host shows {found} devices, {expected} were expected: what is not seen is not wiped")]
    TooFew {
        /// As the host shows.
        found: usize,
        /// As the task said.
        expected: usize,
    },
    /// A record is there and says too little or the contrary.
    #[error("the record of {device} {problem}")]
    Weak {
        /// Which.
        device: String,
        /// What is wrong with it.
        problem: &'static str,
    },
}

impl WipeOutput {
    /// Whether it proves that what `input` asked for was done.
    ///
    /// # Errors
    /// [`NoEvidence`] says what is missing.
    pub fn proves(&self, input: &TaskInput) -> Result<(), NoEvidence> {
        self.evidence.iter().try_for_each(WipeEvidence::check)?;
        let covered: BTreeSet<&str> = self.evidence.iter().map(|record| record.device.as_str()).collect();
        let wanted: Vec<&String> = match input {
            TaskInput::GpuScrub(scrub) => {
                let (found, expected) = (self.inventory.len(), scrub.gpus as usize);
                if found < expected {
                    return Err(NoEvidence::TooFew { found, expected });
                }
                self.inventory.iter().collect()
            }
            TaskInput::NvmeErase(erase) => self.inventory.difference(&erase.keep).chain(&erase.devices).collect(),
            TaskInput::RamScrub(_) if self.evidence.is_empty() => {
                return Err(NoEvidence::Uncovered { device: "memory".to_owned() });
            }
            TaskInput::RamScrub(_) => Vec::new(),
            TaskInput::NodeDrain(_)
            | TaskInput::AllocationStart(_)
            | TaskInput::AllocationStop(_)
            | TaskInput::AllocationCheckpoint(_)
            | TaskInput::HeartbeatCheck(_)
            | TaskInput::NodeReboot(_) => return Err(NoEvidence::NotAWipe),
        };
        match wanted.into_iter().find(|device| !covered.contains(device.as_str())) {
            Some(device) => Err(NoEvidence::Uncovered { device: device.clone() }),
            None => Ok(()),
        }
    }
}

impl WipeEvidence {
    /// Whether it says enough to prove anything.
    ///
    /// # Errors
    /// [`NoEvidence::Weak`] says what is wrong with it.
    pub fn check(&self) -> Result<(), NoEvidence> {
        let problem = if self.device.is_empty() {
            "names no device"
        } else if self.exit_code != 0 {
            "says that the tool failed"
        } else if self.tool.is_empty() || self.tool_version.is_empty() {
            "names no tool, or not its version"
        } else if self.status_after.is_empty() || self.status_before.is_empty() {
            "does not have what the device said of itself"
        } else if self.bytes == Some(0) {
            "says that nothing was wiped"
        } else if self.finished_at < self.started_at {
            "ends before it begins"
        } else {
            return Ok(());
        };
        Err(NoEvidence::Weak { device: self.device.clone(), problem })
    }
}
