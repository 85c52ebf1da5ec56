//! Node classes and their times. spec: S1 "Timeouts", "Heartbeat Protocol"

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Class of a node: the strictest current claim on it, else its default; sensitive over standard over borrowed.
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
    Default,
    strum::Display,
    strum::EnumString,
    strum::IntoStaticStr,
    strum::VariantArray,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum NodeClass {
    /// Lent by somebody who wants it back quickly.
    Borrowed,
    /// The normal class.
    #[default]
    Standard,
    /// Claimed for sensitive work: slow to be given up, wiped before it returns.
    Sensitive,
}

/// How long silence is tolerated. All values in milliseconds; a site may override each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SilenceTimes {
    /// Silence after which a ready node is degraded.
    pub window_ms: u64,
    /// Further silence after which a degraded node is down; counted from the degradation.
    pub grace_ms: u64,
}

impl SilenceTimes {
    /// Silence after which a ready node is degraded.
    pub const fn window(self) -> Duration {
        Duration::from_millis(self.window_ms)
    }
    /// Further silence after which it is down.
    pub const fn grace(self) -> Duration {
        Duration::from_millis(self.grace_ms)
    }
}

/// The times of a site.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct HeartbeatPolicy {
    /// How often an agent sends, in milliseconds.
    pub interval_ms: u64,
    /// Standard nodes.
    pub standard: SilenceTimes,
    /// Sensitive nodes.
    pub sensitive: SilenceTimes,
    /// Borrowed nodes.
    pub borrowed: SilenceTimes,
    /// How long a boot may take when no job's stage says otherwise, in milliseconds.
    pub boot_timeout_ms: u64,
    /// Whether a mass failure holds back what Down does to running work.
    pub brake: bool,
}

impl Default for HeartbeatPolicy {
    /// S1's defaults: 10 s interval; 30 s + 60 s, sensitive 2 min + 5 min, borrowed 30 s + 30 s; boot 10 min.
    fn default() -> Self {
        Self {
            interval_ms: 10_000,
            standard: SilenceTimes { window_ms: 30_000, grace_ms: 60_000 },
            sensitive: SilenceTimes { window_ms: 120_000, grace_ms: 300_000 },
            borrowed: SilenceTimes { window_ms: 30_000, grace_ms: 30_000 },
            boot_timeout_ms: 600_000,
            brake: true,
        }
    }
}

impl HeartbeatPolicy {
    /// The times of one class.
    pub const fn times(&self, class: NodeClass) -> SilenceTimes {
        match class {
            NodeClass::Borrowed => self.borrowed,
            NodeClass::Standard => self.standard,
            NodeClass::Sensitive => self.sensitive,
        }
    }

    /// How long a boot may take when no job says otherwise.
    pub const fn boot_timeout(&self) -> Duration {
        Duration::from_millis(self.boot_timeout_ms)
    }
}
