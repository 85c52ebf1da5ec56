//! Why something is not moving, and what would move it: the answer of `lattice explain`. design: 8-interfaces

mod allocation;
mod batch;
mod job;
mod node;

pub use allocation::{allocation, holds_up};
pub use batch::{BatchContext, Holder, batch};
pub use job::job;
pub use node::{NodeContext, node};

use serde::{Deserialize, Serialize};

use crate::explain::NextAction;
use crate::failure::FailureClass;
use crate::time::Timestamp;

/// The condition that is not met, its age, who owns it, and what would unblock it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Explanation {
    /// What is explained: a hostname, a job id.
    pub subject: String,
    /// Where it stands: `enrolling / unknown`, `failed_retryable at deploy_via_maas`.
    pub state: String,
    /// One sentence: `schedulable`, or why it is not.
    pub headline: String,
    /// Whether nothing is wrong and nothing is waited for.
    pub fine: bool,
    /// The conditions that are not met, the most important first.
    pub because: Vec<Unmet>,
    /// What to do, best first.
    pub next: Vec<NextAction>,
}

/// One condition that is not met.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Unmet {
    /// The condition and its value, in words.
    pub what: String,
    /// Since when.
    pub since: Option<Timestamp>,
    /// Who owns it: a job, an operator, the detector, the agent.
    pub owner: String,
    /// Class, when it is a failure.
    pub class: Option<FailureClass>,
}

/// What a failure class means for whoever has to act. spec: S5 4.7
pub const fn meaning(class: FailureClass) -> &'static str {
    match class {
        FailureClass::InputConfigError => "the request or the site is wrong: correct it, retrying will not help",
        FailureClass::SiteCapabilityMissing => "the site lacks something: an operator must add it",
        FailureClass::UpstreamTransient => "the provider failed for a moment: retrying helps",
        FailureClass::BmcPowerFailure => "the BMC does not do as told: check its address, cable and login",
        FailureClass::PxeDiscoveryFailure => "the machine never appeared: check PXE and its cabling",
        FailureClass::HardwareMismatch => "retrying will not help; an operator must decide",
        FailureClass::DeployCloudInitFailure => "the deployment or its first boot failed",
        FailureClass::PostDeployConnectivityFailure => "the deployed host cannot be reached",
        FailureClass::HardwareSyncFailure => "the provider does not receive the host's hardware sync",
        FailureClass::AgentEnrollmentFailure => "the agent did not come in time",
        FailureClass::StateAmbiguity => "what is seen contradicts what was believed; automation stopped",
    }
}
