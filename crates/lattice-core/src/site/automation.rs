//! What Lattice may do at a site by itself, and what operators told it there: the governor, the brake by hand, approved
//! fingerprints. Pure. design: 2-state-model "Brake", 8-interfaces "Security"

use serde::{Deserialize, Serialize};

use crate::actor::Actor;
use crate::node::Node;
use crate::node::label::{self, Labels};
use crate::time::Timestamp;

/// What Lattice may do at a site by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct AutomationPolicy {
    /// Whether a node that is down for its silence is power-cycled by itself.
    pub auto_remediate: bool,
    /// How long such a node is down before it is, in milliseconds.
    pub remediate_after_ms: u64,
    /// How many of the site's nodes Lattice itself may make unavailable at once, in percent of those in service; at least
    /// one, unless it is 0.
    pub max_unavailable_percent: u8,
}

impl Default for AutomationPolicy {
    /// Nothing is rebooted by itself; else after 2 min, and at most a tenth of the site at once.
    fn default() -> Self {
        Self { auto_remediate: false, remediate_after_ms: 120_000, max_unavailable_percent: 10 }
    }
}

/// How a site stands towards its limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Governor {
    /// Nodes in service: active or offline.
    pub in_service: u64,
    /// Nodes that Lattice itself has made unavailable, and that are not back yet.
    pub taken: u64,
    /// How many it may.
    pub limit: u64,
}

impl Governor {
    /// The standing of a site with that policy.
    pub fn new(policy: &AutomationPolicy, in_service: u64, taken: u64) -> Self {
        let share = in_service * u64::from(policy.max_unavailable_percent) / 100;
        let limit = if policy.max_unavailable_percent == 0 { 0 } else { share.max(1) };
        Self { in_service, taken, limit }
    }

    /// Whether one more may be taken; if not, what is waited for.
    ///
    /// # Errors
    /// The limit is reached: in words for people.
    pub fn room(&self) -> Result<(), String> {
        if self.taken < self.limit {
            return Ok(());
        }
        Err(format!(
            "Lattice has made {} of the site's {} nodes unavailable, and may {} at once",
            self.taken, self.in_service, self.limit
        ))
    }

    /// One more is taken.
    pub fn take(&mut self) {
        self.taken += 1;
    }
}

/// A brake that an operator pulled: what Down does to running work waits, for as long as this.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct SiteBrake {
    /// When it ends by itself.
    pub until: Timestamp,
    /// Only for nodes with these labels; empty: for all of the site.
    #[serde(default)]
    pub selector: Labels,
    /// Who pulled it.
    pub by: Actor,
    /// Why.
    pub reason: String,
    /// When.
    pub since: Timestamp,
}

impl SiteBrake {
    /// Until when it holds back what the loss of `node` brings; none: it is over, or it means others.
    pub fn holds(&self, node: &Node, now: Timestamp) -> Option<Timestamp> {
        (now < self.until && label::selects(&self.selector, &node.labels)).then_some(self.until)
    }
}

/// A conformance fingerprint that nodes of a SKU may have at a site.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct ApprovedFingerprint {
    /// Of which SKU.
    pub sku: String,
    /// The fingerprint, as agents report it.
    pub fingerprint: String,
    /// Who approved it.
    pub by: Actor,
    /// Why.
    pub reason: String,
    /// When.
    pub at: Timestamp,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenth_of_the_site_but_at_least_one_node_and_none_at_zero() {
        let policy = AutomationPolicy::default();
        assert_eq!(Governor::new(&policy, 100, 0).limit, 10);
        assert_eq!(Governor::new(&policy, 3, 0).limit, 1);
        assert!(Governor::new(&policy, 3, 0).room().is_ok());
        assert!(Governor::new(&policy, 100, 10).room().is_err());
        let none = AutomationPolicy { max_unavailable_percent: 0, ..policy };
        assert!(Governor::new(&none, 100, 0).room().is_err());
    }
}
