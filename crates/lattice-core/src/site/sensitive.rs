//! What a site says about sensitive work: how its nodes are wiped after it. spec: S1 "Wipe Failure Handling"

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Rules for the wipes of a site.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SensitivePolicy {
    /// Longest time of a wipe, from its first step to its confirmation, in milliseconds.
    pub wipe_timeout_ms: u64,
    /// Whether an NVMe drive that the running system uses may be left as it is. It cannot be erased from within that
    /// system: without this, the wipe of such a node fails.
    pub keep_system_drive: bool,
}

impl Default for SensitivePolicy {
    /// S1's 30 minutes; every NVMe drive is erased.
    fn default() -> Self {
        Self { wipe_timeout_ms: 1_800_000, keep_system_drive: false }
    }
}

impl SensitivePolicy {
    /// Longest time of a wipe. spec: S1 `sensitive.wipe_timeout`
    pub const fn wipe_timeout(self) -> Duration {
        Duration::from_millis(self.wipe_timeout_ms)
    }
}
