//! Drives that a BMC erases by its own means. What it says of that is its word: no wipe is proven by it.

use serde::{Deserialize, Serialize};

use crate::time::Timestamp;

/// In place of the names of drives: every one that the BMC lists.
pub const EVERY_DRIVE: &str = "all";
/// Longest name of a drive, in bytes.
pub const DRIVE_NAME: usize = 256;
/// Most drives that are named at once.
pub const DRIVES: usize = 256;

/// A drive that a BMC erases, and how far it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct DriveErasure {
    /// The BMC's own name of it.
    pub drive: String,
    /// Name, model and serial number, as the BMC told them when it was chosen.
    pub name: String,
    /// How far it is.
    #[serde(flatten)]
    pub state: ErasureState,
}

/// How far the erasure of a drive is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum ErasureState {
    /// Its BMC was not told yet.
    Waiting,
    /// Its BMC is told now: whether it was, and what became of it, is not known before its answer is kept.
    Told {
        /// When.
        since: Timestamp,
    },
    /// Its BMC was told, and is at it.
    Running {
        /// Where the BMC says how far it is.
        task: String,
        /// When it was told.
        since: Timestamp,
    },
    /// Its BMC says that it is done.
    SaidDone {
        /// When it said so.
        at: Timestamp,
    },
}
