//! What kind of trouble a secret store has: it decides whether trying again helps.

use std::time::Duration;

use lattice_core::failure::FailureClass;

/// How long a stage leaves a secret store alone that did not give what it should: long enough for a restart and an
/// unsealing by hand within its three attempts. spec: S5 4.6 "Vault unreachable … retry 3x with backoff"
pub const PATIENCE: Duration = Duration::from_secs(30);

/// Kinds of trouble. One spelling for metrics, error codes and events.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    strum::Display,
    strum::EnumString,
    strum::IntoStaticStr,
    strum::VariantArray,
)]
#[strum(serialize_all = "snake_case")]
pub enum SecretTrouble {
    /// The store works; what was asked for is not in it.
    Missing,
    /// The store is sealed, cannot be reached, is too slow, or fails inside: it may come back by itself.
    Unavailable,
    /// The store refuses our login, or what the login may do.
    Refused,
    /// The store, or what we are told about it, must be put right first.
    Misconfigured,
}

impl SecretTrouble {
    /// The class of a stage's failure. spec: S5 4.7 "MAAS API timeout, Vault/network transient"
    ///
    /// A refused login is tried again too: whoever rotates it puts the new one in place moments later.
    pub const fn class(self) -> FailureClass {
        match self {
            Self::Unavailable | Self::Refused => FailureClass::UpstreamTransient,
            Self::Missing | Self::Misconfigured => FailureClass::SiteCapabilityMissing,
        }
    }

    /// The error code of a stage's failure.
    pub const fn error_code(self) -> &'static str {
        match self {
            Self::Missing => "secret_missing",
            Self::Unavailable => "secret_store_unavailable",
            Self::Refused => "secret_store_refused",
            Self::Misconfigured => "secret_store_misconfigured",
        }
    }

    /// How long to leave the store alone before the same is tried again; none: trying again does not help.
    pub const fn retry_after(self) -> Option<Duration> {
        match self {
            Self::Unavailable | Self::Refused => Some(PATIENCE),
            Self::Missing | Self::Misconfigured => None,
        }
    }
}
