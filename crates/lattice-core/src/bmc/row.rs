//! The rows of a node's BMC: what was set, and what was seen last.

use serde::{Deserialize, Serialize};

use super::{BmcEndpoint, BreakerState, Evidence, HealthReport, PowerReading};
use crate::ids::{Generation, JobId, NodeId, SiteId};
use crate::time::Timestamp;

/// A node's BMC, as an operator set it, and whether its credential is tried.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bmc {
    /// Whose.
    pub node: NodeId,
    /// At which site.
    pub site: SiteId,
    /// Where it is and how it is talked to.
    pub endpoint: BmcEndpoint,
    /// Whether its credential is tried.
    pub breaker: BreakerState,
    /// Its refusals in a row.
    pub refusals: u32,
    /// When it was set.
    pub set_at: Timestamp,
    /// By whom.
    pub set_by: String,
    /// Version of the row.
    pub generation: Generation,
}

/// Why the row of a BMC changes.
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
    strum::Display,
    strum::IntoStaticStr,
    strum::VariantArray,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum BmcCause {
    /// It was set, or its credential was.
    Set,
    /// Its credential was refused too often.
    BreakerOpened,
    /// Its credential was taken again.
    BreakerClosed,
    /// An operator has its credential tried again.
    BreakerReset,
}

/// What was seen of a node's BMC last. Each part has its own time; a look that failed leaves the others as they are.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct BmcReport {
    /// Whose.
    pub node: NodeId,
    /// At which site.
    pub site: SiteId,
    /// When it was looked at last, whatever came of it.
    pub looked_at: Timestamp,
    /// Power, as read last.
    pub power: Option<PowerReading>,
    /// Hardware, as read last.
    pub health: Option<HealthReport>,
    /// The evidence that took the node down, or would have; kept until the hardware is well and the node is back.
    pub critical: Vec<Evidence>,
    /// When that was seen first.
    pub critical_at: Option<Timestamp>,
    /// Why the last look failed; none: it did not.
    pub failure: Option<String>,
    /// The out-of-band check of the last time that the node went down.
    #[serde(default)]
    pub investigation: Option<Investigation>,
}

/// The out-of-band check of one time that a node was down.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Investigation {
    /// The job that did it, or does.
    pub job: JobId,
    /// Since when the node was down.
    pub down_since: Timestamp,
}

impl BmcReport {
    /// Of a BMC that was not looked at yet.
    pub const fn none_yet(node: NodeId, site: SiteId, now: Timestamp) -> Self {
        Self {
            node,
            site,
            looked_at: now,
            power: None,
            health: None,
            critical: Vec::new(),
            critical_at: None,
            failure: None,
            investigation: None,
        }
    }

    /// The newest entry of its event log that was seen: later ones are news.
    pub fn log_position(&self) -> Option<u32> {
        self.health.as_ref().and_then(|health| health.log_position)
    }
}
