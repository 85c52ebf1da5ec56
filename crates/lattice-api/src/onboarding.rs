//! Onboardings: jobs that turn machines into nodes. spec: S5 4.1, 4.2, 4.15

use lattice_core::ids::{BatchId, JobId, NodeId, SiteId};
use lattice_core::job::JobStatus;
use lattice_core::node::NodeClass;
use lattice_core::time::Timestamp;
use serde::{Deserialize, Serialize};

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
    /// `maas`, `lxd`, `manual`.
    pub flow: String,
    /// Address of the BMC.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ipmi_ip: Option<String>,
    /// Hardware address of the PXE interface.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pxe_mac: Option<String>,
    /// Name of its profile; absent: the site's own settings. spec: S5 3.7
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<String>,
    /// The provider's own name of the machine: the MAAS system id, the LXD instance.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider_ref: Option<String>,
    /// Who asked for it.
    pub requested_by: String,
    /// Where it stands.
    pub status: JobStatus,
    /// At which stage.
    pub current_stage: String,
    /// Which attempt of that stage.
    pub current_attempt: u32,
    /// Why it stopped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<FailureView>,
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
