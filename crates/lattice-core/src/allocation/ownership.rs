//! Whom a node belongs to while something is allocated on it. It stands in the node's row: whoever places, ends or loses
//! an allocation changes that row, so its generation guards all three against each other.

use serde::{Deserialize, Serialize};

use crate::ids::OwnershipEpoch;
use crate::node::NodeClass;
use crate::time::Timestamp;

/// Ownership of one node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema, Default)]
pub struct Ownership {
    /// The user to whom it belongs; none: to nobody.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// Class of the claim.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<NodeClass>,
    /// Grows when ownership is lost: what was started under an earlier one is stopped before the node may be ready.
    pub epoch: OwnershipEpoch,
    /// The epoch in which its agent registered last, or in which nothing was left to be ended: below `epoch`, what it
    /// lost may still run.
    #[serde(default)]
    pub confirmed: OwnershipEpoch,
    /// Allocations that are placed on it.
    pub allocations: u32,
    /// GPUs that they have together.
    pub gpus: u32,
    /// Down would have ended it, and the mass-failure brake holds that back until then. design: 2-state-model "Brake"
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub braked_until: Option<Timestamp>,
}

impl Ownership {
    /// With one allocation more, of this user and class.
    #[must_use]
    pub fn with(&self, user: &str, class: NodeClass, gpus: u32) -> Self {
        Self {
            owner: Some(user.to_owned()),
            class: Some(class),
            allocations: self.allocations + 1,
            gpus: self.gpus + gpus,
            ..self.clone()
        }
    }

    /// With one allocation less; the last one ends the ownership.
    #[must_use]
    pub fn without(&self, gpus: u32) -> Self {
        let allocations = self.allocations.saturating_sub(1);
        if allocations == 0 {
            return Self { epoch: self.epoch, confirmed: self.confirmed, ..Self::default() };
        }
        Self { allocations, gpus: self.gpus.saturating_sub(gpus), ..self.clone() }
    }

    /// After it was lost: nobody's, under the next epoch.
    #[must_use]
    pub fn lost(&self) -> Self {
        let epoch = OwnershipEpoch(self.epoch.0 + 1);
        let is_nothing_lost = self.allocations == 0 && self.is_confirmed();
        Self { epoch, confirmed: if is_nothing_lost { epoch } else { self.confirmed }, ..Self::default() }
    }

    /// After its agent registered: it runs nothing that was lost.
    #[must_use]
    pub fn registered(&self) -> Self {
        Self { confirmed: self.epoch, ..self.clone() }
    }

    /// Whether what was lost with an earlier epoch has been ended, as its agent says.
    pub fn is_confirmed(&self) -> bool {
        self.confirmed == self.epoch
    }

    /// Whether sensitive work may have left something on the node that must be wiped once this ownership ends.
    pub fn is_sensitive(&self) -> bool {
        self.class == Some(NodeClass::Sensitive)
    }
}
