//! Onboardings: jobs that turn machines into nodes. spec: S5 4.1, 4.2, 4.15

use lattice_core::failure::FailureClass;
use lattice_core::ids::{BatchId, JobId, NodeId, SiteId};
use lattice_core::job::{BootDisk, JobStatus, Observed};
use lattice_core::node::NodeClass;
use lattice_core::time::Timestamp;
use serde::{Deserialize, Serialize};

use crate::error::NextStep;
use crate::job::{FailureView, JobAction, StageEventView, StageView};

/// Onboards one machine through its site's provider. spec: S5 4.1
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateOnboarding {
    /// The site, by its id or name.
    pub site_id: String,
    /// The profile, by its id or name; absent: the site's default one. The site's own settings are a profile too, its
    /// implicit one, with the site's own id. spec: S5 3.7
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile_id: Option<String>,
    /// The SKU, by its name.
    pub sku_id: String,
    /// Hostname to give.
    pub hostname: String,
    /// Address of the BMC; MAAS sites need it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ipmi_ip: Option<String>,
    /// Hardware address of the PXE interface, where it is known; never needed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pxe_mac: Option<String>,
    /// The component at an OpenCHAMI site: `x1000c0s1b0n0`. There one of `xname`, `pxe_mac` and `ipmi_ip` is needed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub xname: Option<String>,
    /// What it boots at an OpenCHAMI site; absent: what the site says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub boot_profile: Option<String>,
    /// Default class of the node; `standard` when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<NodeClass>,
    /// Why.
    #[serde(default)]
    pub reason: String,
}

/// An onboarding was accepted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct OnboardingAccepted {
    /// The onboarding; also the id of its job.
    pub onboarding_id: JobId,
    /// The node that the machine becomes.
    pub node_id: NodeId,
    /// `pending`.
    pub status: JobStatus,
}

/// An onboarding. spec: S5 4.2.1 `node_onboardings`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct OnboardingView {
    /// The onboarding; also the id of its job.
    pub onboarding_id: JobId,
    /// Part of which batch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batch_id: Option<BatchId>,
    /// The node.
    pub node_id: NodeId,
    /// At which site.
    pub site_id: SiteId,
    /// Its hostname.
    pub hostname: String,
    /// `maas`, `lxd`, `openchami`, `manual`.
    pub flow: String,
    /// Address of the BMC.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ipmi_ip: Option<String>,
    /// Hardware address of the PXE interface.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pxe_mac: Option<String>,
    /// Name of its profile, or of what it boots; absent: the site's own settings. spec: S5 3.7
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<String>,
    /// The provider's own name of the machine: the MAAS system id, the LXD instance.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider_ref: Option<String>,
    /// Who asked for it.
    pub requested_by: String,
    /// Of the driver that runs it: the same id.
    pub workflow_id: JobId,
    /// Where it stands.
    pub status: JobStatus,
    /// At which stage.
    pub current_stage: String,
    /// Which attempt of that stage.
    pub current_attempt: u32,
    /// Why it stopped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<FailureView>,
    /// What was seen and found out; without secrets.
    pub diagnostics: Diagnostics,
    /// When it was asked for.
    pub requested_at: Timestamp,
    /// When it was started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Timestamp>,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completed_at: Option<Timestamp>,
    /// When it changed last.
    pub updated_at: Timestamp,
    /// Its stages in order.
    pub stages: Vec<StageView>,
    /// What may be asked of it now.
    pub actions: Vec<JobAction>,
    /// What happened in its stages, oldest first.
    pub events: Vec<StageEventView>,
}

/// What an operator needs to judge an onboarding, beside its stages. Words of others are one bounded line, without
/// markup and without secrets. spec: S5 4.5, 4.12
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Diagnostics {
    /// Class of the failure; also while a stage is tried again after an error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure_class: Option<FailureClass>,
    /// What failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error_code: Option<String>,
    /// What the provider, or the stage, said of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error_message: Option<String>,
    /// Attempts of the present stage that ended with an error or a timeout.
    pub retry_count: u32,
    /// Status, power and addresses of the machine as its provider was last seen to say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed: Option<Observed>,
    /// The disk that it boots from, once it is chosen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub boot_disk: Option<BootDisk>,
    /// Where the BMC login was taken from: `site_default` or an override.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub power_credentials: Option<String>,
    /// RoCE addresses that were applied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub roce_applied: Option<u32>,
    /// Whether the first-boot payload was made.
    pub cloud_init_rendered: bool,
    /// How the last failure of the deployment was classified.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deploy_failure: Option<String>,
    /// Addresses of the deployed host.
    pub deploy_ip_addresses: Vec<String>,
    /// Address that SSH is tried at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ssh_address: Option<String>,
    /// What became of the enrolment token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enrollment_token: Option<TokenState>,
    /// What did not stop it and a person should know.
    pub warnings: Vec<String>,
    /// What to do next, best first; while it moves, what it waits for.
    pub recommended_actions: Vec<NextStep>,
}

/// What became of an enrolment token.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, utoipa::ToSchema, strum::Display,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum TokenState {
    /// It waits for its host.
    Issued,
    /// Its host used it.
    Used,
    /// It was withdrawn.
    Revoked,
    /// Its time is over.
    Expired,
}
