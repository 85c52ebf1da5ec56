//! The failure classes: why something failed decides what may be done about it. spec: S5 4.7

use serde::{Deserialize, Serialize};

/// Class of a failure. Stored as a column, never only as text. spec: S5 4.7
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
pub enum FailureClass {
    /// Invalid SKU, malformed input, disabled site.
    InputConfigError,
    /// A site policy or a capability of the provider is missing.
    SiteCapabilityMissing,
    /// The provider, the secret store or the network failed for a moment.
    UpstreamTransient,
    /// The BMC is unreachable or a power cycle failed.
    BmcPowerFailure,
    /// The machine never appeared by PXE.
    PxeDiscoveryFailure,
    /// A disk, an interface or a device that must be there is not.
    HardwareMismatch,
    /// Deployment failed, or its first boot did.
    DeployCloudInitFailure,
    /// The deployed host cannot be reached.
    PostDeployConnectivityFailure,
    /// The provider's hardware sync is not healthy.
    HardwareSyncFailure,
    /// The agent did not enrol in time.
    AgentEnrollmentFailure,
    /// What is observed contradicts what was believed: automation stops and asks.
    StateAmbiguity,
}
