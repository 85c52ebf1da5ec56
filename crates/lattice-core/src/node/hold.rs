//! Holds: why a node that could be used must not be scheduled. design: 2-state-model "Holds"

use serde::{Deserialize, Serialize};

use crate::actor::Actor;
use crate::ids::JobId;
use crate::time::Timestamp;

/// What kind of reason a hold is.
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
pub enum HoldKind {
    /// An operator disabled the node.
    Disabled,
    /// Somebody, or a job, works on it.
    Maintenance,
    /// Its fingerprint differs from the approved one.
    ConformanceDrift,
    /// Its agent is being upgraded.
    AgentUpgrade,
    /// A rollout includes it.
    Rollout,
    /// The provider's state contradicts ours.
    Drift,
    /// Sensitive work ended and it was not wiped yet; only a committed wipe confirmation removes it.
    WipeRequired,
    /// A wipe failed or timed out.
    WipeFailed,
}

impl HoldKind {
    /// Whether an operator may set and clear it by hand; the others belong to the code that set them.
    pub const fn is_manual(self) -> bool {
        match self {
            Self::Maintenance | Self::Rollout | Self::Drift | Self::ConformanceDrift | Self::AgentUpgrade => true,
            Self::Disabled | Self::WipeRequired | Self::WipeFailed => false,
        }
    }
}

/// One reason why a node is not scheduled. At most one of each kind stands on a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Hold {
    /// What kind of reason.
    pub kind: HoldKind,
    /// Who set it.
    pub by: Actor,
    /// Why, in the words of whoever set it.
    pub reason: String,
    /// When it was set.
    pub since: Timestamp,
    /// When it ends by itself.
    pub until: Option<Timestamp>,
    /// The job that owns it and will clear it.
    pub job: Option<JobId>,
}

impl Hold {
    /// Whether it still counts at `now`.
    pub fn is_in_force(&self, now: Timestamp) -> bool {
        self.until.is_none_or(|until| now < until)
    }
}
