//! The row of a node's component.

use serde::{Deserialize, Serialize};

use super::{ComponentFlag, Word};
use crate::ids::{NodeId, SiteId};
use crate::time::Timestamp;

/// What State Manager said of a node's component last, and what Lattice told it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct ComponentReport {
    /// Whose.
    pub node: NodeId,
    /// At which site.
    pub site: SiteId,
    /// The component: `x1000c0s1b0n0`.
    pub xname: String,
    /// What State Manager said last; none: it has no such component.
    pub said: Option<Word>,
    /// Since when it says so, as far as it was looked at.
    pub said_since: Timestamp,
    /// When it was looked at last; while nothing changes this is up to five minutes old.
    pub looked_at: Timestamp,
    /// What Lattice told last; none: nothing yet.
    pub told: Option<Word>,
    /// When.
    pub told_at: Option<Timestamp>,
    /// A warning or an alert that another system raised and did not take back: Lattice leaves it as it is.
    #[serde(default)]
    pub raised: Option<ComponentFlag>,
    /// Why the BMC that State Manager has for it is not used; none: it is, the node has another one, or it has none there.
    #[serde(default)]
    pub bmc_problem: Option<String>,
}

impl ComponentReport {
    /// Of a component that was not looked at yet.
    pub const fn none_yet(node: NodeId, site: SiteId, xname: String, now: Timestamp) -> Self {
        Self {
            node,
            site,
            xname,
            said: None,
            said_since: now,
            looked_at: now,
            told: None,
            told_at: None,
            raised: None,
            bmc_problem: None,
        }
    }

    /// What State Manager said, in words.
    pub fn in_words(&self) -> String {
        match (self.said, self.told) {
            (None, _) => format!("State Manager has no component {}", self.xname),
            (Some(said), Some(told)) if said == told => format!("State Manager says {said}, as Lattice told it"),
            (Some(said), Some(told)) => format!("State Manager says {said}; Lattice told it {told}"),
            (Some(said), None) => format!("State Manager says {said}"),
        }
    }
}
