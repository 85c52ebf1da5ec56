//! What State Manager can say of a component: a state and a flag.

use serde::{Deserialize, Serialize};

/// State of a component. It is what somebody told State Manager, Lattice among others: never evidence of power.
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
pub enum ComponentState {
    /// Nothing is there.
    Empty,
    /// Something is there.
    Populated,
    /// It is off.
    Off,
    /// It is on.
    On,
    /// It was ready, and is not any more.
    Standby,
    /// It stops.
    Halt,
    /// It is booted, and may be used.
    Ready,
    /// None of the others, or none at all.
    Unknown,
}

/// What stands beside a state. Later ones are graver, as far as they compare.
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
pub enum ComponentFlag {
    /// Not set, or none of the others.
    Unknown,
    /// Nothing is wrong.
    Ok,
    /// Something is, and it works.
    Warning,
    /// It does not work.
    Alert,
    /// Another system keeps it for itself.
    Locked,
}

/// A state with its flag.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Word {
    /// The state.
    pub state: ComponentState,
    /// The flag.
    pub flag: ComponentFlag,
}

impl Word {
    /// A state with its flag.
    pub const fn new(state: ComponentState, flag: ComponentFlag) -> Self {
        Self { state, flag }
    }
}

impl std::fmt::Display for Word {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.state, self.flag)
    }
}
