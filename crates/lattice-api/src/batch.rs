//! Batches of onboardings: many machines in one request, with limits, progress and one status. spec: S5 4.1, 4.4

use lattice_core::actor::Actor;
use lattice_core::ids::{BatchId, CorrelationId, Generation, JobId, NodeId, SiteId};
use lattice_core::job::{StageEventStatus, StageName};
use lattice_core::node::NodeClass;
use lattice_core::time::Timestamp;
use serde::{Deserialize, Serialize};

use crate::job::JobRow;

pub use lattice_core::batch::{BatchControl, BatchStatus, Children, MACHINES_MAX};
pub use lattice_core::command::batch::BatchAction;

/// Onboards machines of one kind at one site, all of them or, if one of them cannot be accepted, none. spec: S5 4.1
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateBatch {
    /// The site, by its id or name.
    pub site_id: String,
    /// The profile, by its id or name; absent: the site's default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile_id: Option<String>,
    /// The SKU, by its name.
    pub sku_id: String,
    /// The machines, 1 to 1000.
    pub nodes: Vec<BatchMachine>,
    /// Default class of the nodes; `standard` when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<NodeClass>,
    /// So many at once, if that is less than the site's policy allows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_parallel: Option<u32>,
    /// Why.
    #[serde(default)]
    pub reason: String,
}

/// One machine of a batch: identity and discovery alone; site, profile and SKU are those of the batch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct BatchMachine {
    /// Hostname to give.
    pub hostname: String,
    /// Address of the BMC; MAAS sites need it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ipmi_ip: Option<String>,
}

/// A batch was accepted. spec: S5 4.1
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct BatchAccepted {
    /// The batch.
    pub batch_id: BatchId,
    /// Its onboardings, in the order of the request.
    pub onboardings: Vec<BatchOnboarding>,
}

/// One onboarding of a batch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct BatchOnboarding {
    /// The machine's name.
    pub hostname: String,
    /// The onboarding; also the id of its job.
    pub onboarding_id: JobId,
    /// The node that the machine becomes.
    pub node_id: NodeId,
}

/// A batch in a list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct BatchRow {
    /// Identity.
    pub id: BatchId,
    /// Where its machines are.
    pub site_id: SiteId,
    /// That site's name.
    pub site: String,
    /// What kind of machines.
    pub sku: String,
    /// Profile of its onboardings; absent: the site's own settings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<String>,
    /// Where it stands; follows from what is wanted of it and where its onboardings stand.
    pub status: BatchStatus,
    /// What operators want of it.
    pub control: BatchControl,
    /// How many machines.
    pub machines: u64,
    /// How many of its onboardings stand where.
    pub children: Children,
    /// Who asked for it.
    pub requested_by: Actor,
    /// Why.
    pub reason: String,
    /// When it was asked for.
    pub created_at: Timestamp,
    /// When its first onboarding was started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Timestamp>,
    /// When its last onboarding was over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<Timestamp>,
    /// When its row changed last.
    pub updated_at: Timestamp,
    /// Version of the row: `If-Match`.
    pub generation: Generation,
}

/// A batch. spec: S5 4.4 "batch summary"
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct BatchView {
    /// What a list shows of it.
    #[serde(flatten)]
    pub row: BatchRow,
    /// Onboardings of it that may run at once.
    pub limit: u64,
    /// Who wanted last what is wanted of it.
    pub control_by: Actor,
    /// Since when.
    pub control_since: Timestamp,
    /// How long the rest will take; absent when nothing is left to do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_left: Option<TimeLeft>,
    /// Onboardings that stopped, newest first; at most 50. `GET /onboardings?batch_id=…` has all.
    pub stopped: Vec<JobRow>,
    /// Onboardings that run, newest first; at most 50.
    pub moving: Vec<JobRow>,
    /// What may be asked of it now.
    pub actions: Vec<BatchAction>,
    /// Ties together all it caused.
    #[schema(value_type = String)]
    pub correlation_id: CorrelationId,
}

/// How long something will take, from finished runs of its stages on machines of the same SKU.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct TimeLeft {
    /// Half of such batches are done within this, in milliseconds; absent when it is not known yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p50_ms: Option<u64>,
    /// 19 of 20 are done within this, in milliseconds; absent when it is not known yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p95_ms: Option<u64>,
    /// The stages that never finished on such a machine, for which nothing is known yet.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub not_known: Vec<StageName>,
}

/// Which batches.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
pub struct BatchQuery {
    /// `next` of the page before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
    /// At most so many rows, 1 to 1000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
    /// Only batches in this status; `live` means all that are not over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<String>,
    /// Only batches at this site, by its id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub site_id: Option<SiteId>,
}

/// An operator's action on a batch.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ActOnBatch {
    /// Why.
    #[serde(default)]
    pub reason: String,
}

/// What an operator's action came to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct BatchActionAnswer {
    /// Whether something changed; false: it was so already.
    pub changed: bool,
    /// The batch after it.
    pub batch: BatchView,
}

/// One line of a batch's log: what happened in a stage of one of its machines. spec: S5 4.4 "per-node logs"
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct BatchLogLine {
    /// When.
    pub at: Timestamp,
    /// Which machine.
    pub hostname: String,
    /// Its onboarding.
    pub onboarding_id: JobId,
    /// Which stage.
    pub stage: StageName,
    /// Which attempt, from 1.
    pub attempt: u32,
    /// What happened.
    pub status: StageEventStatus,
    /// For people.
    pub message: String,
}

/// Which lines of a batch's log.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
pub struct BatchLogQuery {
    /// `next` of the page before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
    /// At most so many lines, 1 to 1000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
    /// Only lines of this machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hostname: Option<String>,
}
