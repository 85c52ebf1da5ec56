//! Events: what happened, in commit order, without gaps. `GET /api/v1/admin/events`.

use lattice_core::actor::Role;
use lattice_core::agent::task::{TaskErrorCode, TaskKind, TaskOwner, TaskStatus};
use lattice_core::allocation::{AllocationStatus, RequeuePolicy};
use lattice_core::batch::{BatchCause, BatchControl, BatchStatus, Children};
use lattice_core::bmc::BreakerState;
use lattice_core::change::EventRow;
use lattice_core::failure::FailureClass;
use lattice_core::ids::{
    AllocationId, BatchId, CertificateId, EventSeq, JobId, NodeId, OverrideId, OwnershipEpoch, ProfileId, RoceId,
    SiteId, TaskId,
};
use lattice_core::job::{JobKind, JobStatus, StageName};
use lattice_core::node::{Availability, HoldKind, Labels, NodeClass, Status};
use lattice_core::silence::IncidentKind;
use lattice_core::site::credentials::CredentialName;
use lattice_core::site::{MaasPolicy, PowerSelector, ProfileSettings, SiteStatus};
use lattice_core::time::Timestamp;
use lattice_core::webhook::{EventPattern, WebhookStatus};
use lattice_core::wipe::WipeTarget;
use serde::{Deserialize, Serialize};

use crate::page::MAX_LIMIT;

/// One event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Event {
    /// Its place in the feed: dense, in commit order. The id of the SSE event.
    #[schema(value_type = u64)]
    pub seq: EventSeq,
    /// When.
    pub at: Timestamp,
    /// Dotted name: `node.moved`, `node.onboarding.completed`.
    pub name: String,
    /// About what kind of thing.
    pub resource_kind: String,
    /// About which.
    pub resource_id: String,
    /// The node it concerns, if one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<NodeId>,
    /// What it belongs to.
    pub correlation: String,
    /// Ids and enums; its fields depend on the name. `api/events.json` describes them.
    #[schema(value_type = Object)]
    pub payload: serde_json::Value,
}

impl Event {
    /// The event of a stored row.
    pub fn of(seq: EventSeq, row: EventRow) -> Self {
        Self {
            seq,
            at: row.at,
            name: row.name,
            resource_kind: row.resource_kind,
            resource_id: row.resource_id,
            node: row.node,
            correlation: row.correlation,
            payload: row.payload,
        }
    }
}

/// Which events. With `Accept: text/event-stream` they are followed, else one page is answered.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
pub struct EventQuery {
    /// Only events after this place; `Last-Event-ID` stands over it. A page starts at the beginning when it is
    /// absent, a stream at the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<u64>,
    /// At most so many events in a page, 1 to 1000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
    /// Only events that concern this node, by its id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<NodeId>,
    /// Only events about this job, by its id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<JobId>,
}

/// Some events after a place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct EventPage {
    /// The events, oldest first.
    pub events: Vec<Event>,
    /// Where to go on: everything up to here was looked at. Pass it back as `after`.
    #[schema(value_type = u64)]
    pub last: EventSeq,
    /// Whether there may be more right now.
    pub more: bool,
}

/// Largest page of events.
pub const MAX_EVENTS: u32 = MAX_LIMIT;

/// Payload of the events about a node's row: `node.created`, `node.moved`, `node.hold_set` …
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct NodePayload {
    /// The node's name.
    pub hostname: String,
    /// At which site.
    pub site: SiteId,
    /// Inventory status after it.
    pub status: Status,
    /// Availability after it.
    pub availability: Availability,
    /// By which event of the state machine, or what was changed.
    pub cause: String,
    /// For people; may be empty.
    pub detail: String,
    /// Holds that stand after it.
    pub holds: Vec<HoldKind>,
}

/// Payload of `job.changed` and of a job's milestones: `node.onboarding.completed` … spec: S5 8.0
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct JobPayload {
    /// What it is for.
    pub kind: JobKind,
    /// On which node.
    pub node: NodeId,
    /// The node's name.
    pub hostname: String,
    /// At which site.
    pub site: SiteId,
    /// Part of which batch; null when of none.
    pub batch: Option<BatchId>,
    /// Where it stands.
    pub status: JobStatus,
    /// At which stage.
    pub stage: StageName,
    /// Attempts of that stage that ended with an error or a timeout.
    pub attempt: u32,
    /// Pass over the flow's back edge, from 0.
    pub round: u32,
    /// What happened: `started`, `stage_ok`, an operator's action.
    pub cause: String,
    /// Class of its failure; null when there is none.
    pub failure_class: Option<FailureClass>,
    /// What failed; null when nothing did.
    pub error_code: Option<String>,
}

/// Payload of `site.created`, `site.updated` and `site.removed`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct SitePayload {
    /// Its name.
    pub name: String,
    /// Whether new onboardings are accepted.
    pub status: SiteStatus,
    /// `maas`, `lxd` or `manual`.
    pub kind: String,
    /// How onboardings go, at a MAAS site.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<MaasPolicy>,
    /// The profile of onboardings that name none, at a MAAS site; absent: the site's own settings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default_profile_id: Option<ProfileId>,
}

/// Payload of `site.credential_set`, `site.credential_validated` and `site.credential_refused`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct SiteCredentialPayload {
    /// Which credential.
    pub name: CredentialName,
    /// Where it is kept in the secret store.
    pub path: String,
    /// What is wrong with it; null when nothing is.
    pub problem: Option<String>,
}

/// Payload of `node.bmc.set`, `node.bmc.breaker_opened` … Never a login.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct BmcPayload {
    /// Host or address, and the port when it is not the protocol's own.
    pub address: String,
    /// `redfish` or `ipmi`.
    pub protocol: String,
    /// Whether its credential is tried.
    pub breaker: BreakerState,
    /// How often its credential was refused in a row.
    pub refusals: u32,
}

/// Payload of `site.profile.created`, `site.profile.updated` and `site.profile.removed`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct ProfilePayload {
    /// Which profile.
    pub profile: ProfileId,
    /// Its name.
    pub name: String,
    /// Whether new onboardings may name it.
    pub status: SiteStatus,
    /// What it sets.
    pub settings: ProfileSettings,
}

/// Payload of `site.power_override.created`, `site.power_override.updated` and `site.power_override.removed`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct PowerOverridePayload {
    /// Which override.
    #[serde(rename = "override")]
    pub id: OverrideId,
    /// What is compared.
    pub selector_type: PowerSelector,
    /// With what.
    pub selector_value: String,
    /// Whether it is looked at.
    pub status: SiteStatus,
}

/// Payload of `site.roce_assigned` and `site.roce_removed`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct RocePayload {
    /// Which assignment.
    pub assignment: RoceId,
    /// Of which host.
    pub hostname: String,
    /// Of which interface.
    pub interface: String,
    /// The address with its prefix.
    pub ipv4_cidr: String,
}

/// Payload of `sku.created`, `sku.updated` and `sku.removed`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct SkuPayload {
    /// Its name.
    pub name: String,
    /// GPUs that a machine of it has.
    pub gpus: u32,
}

/// Payload of `enrollment_token.issued`, `enrollment_token.used` …
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct EnrollmentTokenPayload {
    /// For which node.
    pub node: NodeId,
    /// From when on it is refused.
    pub expires_at: Timestamp,
}

/// Payload of `api_token.issued` and `api_token.revoked`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct ApiTokenPayload {
    /// Who it is.
    pub name: String,
    /// What it may do.
    pub role: Role,
}

/// Payload of events that say something in words alone: `secrets.unavailable`, `webhook.tested` …
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct NotePayload {
    /// For people.
    pub detail: String,
}

/// Payload of `webhook.created`, `webhook.gave_up` …
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct WebhookPayload {
    /// What people call it.
    pub name: String,
    /// Host and port of its address.
    pub host: String,
    /// Which events it gets.
    #[schema(value_type = Vec<String>)]
    pub events: Vec<EventPattern>,
    /// Only events of this site; null: of all.
    pub site: Option<SiteId>,
    /// Whether it gets them.
    pub status: WebhookStatus,
    /// Why it gets none; empty while it does.
    pub reason: String,
}

/// Payload of `silence.created`, `silence.lifted` and `silence.expired`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct SilencePayload {
    /// Incidents of which kind; null: of every kind that is about nodes.
    pub kind: Option<IncidentKind>,
    /// About which nodes, by name; empty: about any.
    pub nodes: Vec<String>,
    /// About nodes with these labels; empty: about any.
    #[schema(value_type = std::collections::BTreeMap<String, String>)]
    pub selector: Labels,
    /// About nodes of this site; null: of any.
    pub site: Option<SiteId>,
    /// When it ends by itself.
    pub until: Timestamp,
    /// Who created it.
    pub owner: String,
    /// Why.
    pub reason: String,
}

/// Payload of `allocation.requested`, `allocation.requeued` … Never what is started.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct AllocationPayload {
    /// Whose it is.
    pub user: String,
    /// Class of its claim.
    pub class: NodeClass,
    /// Where it stands.
    pub status: AllocationStatus,
    /// Its node; null: it has none.
    pub node: Option<NodeId>,
    /// The ownership under which it was placed.
    pub ownership_epoch: Option<OwnershipEpoch>,
    /// The only SKU it may go to; null: any.
    pub sku: Option<String>,
    /// GPUs that it has for itself.
    pub gpus: u32,
    /// When it is queued again.
    pub requeue: RequeuePolicy,
    /// How often it was placed.
    pub placements: u32,
    /// Why it stands there.
    pub why: String,
}

/// Payload of `onboarding.batch.created`, `onboarding.batch.completed` …
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct BatchPayload {
    /// At which site.
    pub site: SiteId,
    /// What kind of machines.
    pub sku: String,
    /// Where it stands.
    pub status: BatchStatus,
    /// What operators want of it.
    pub control: BatchControl,
    /// What happened.
    #[schema(value_type = String)]
    pub cause: BatchCause,
    /// How many machines.
    pub machines: u64,
    /// How many of them stand where.
    pub children: Children,
}

/// Payload of `task.issued`, `task.succeeded` … Never its input: arguments and variables are the user's.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct TaskPayload {
    /// Whose agent.
    pub node: NodeId,
    /// What it is to do.
    pub kind: TaskKind,
    /// Where it stands.
    pub status: TaskStatus,
    /// What it is done for.
    pub owner: TaskOwner,
    /// The allocation that it is about; null when about none.
    pub allocation: Option<AllocationId>,
    /// Why it was refused or not done; null when it was not.
    pub error_code: Option<TaskErrorCode>,
    /// From when on it is not begun any more.
    pub expires_at: Timestamp,
}

/// Payload of `node.wipe_began`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct WipeBeganPayload {
    /// Its job.
    pub job: JobId,
}

/// Payload of `node.wipe_step_proven`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct WipeStepPayload {
    /// The wipe's job.
    pub job: JobId,
    /// What was erased.
    pub erased: WipeTarget,
    /// The task that did it.
    pub task: TaskId,
    /// Each device.
    pub devices: Vec<WipedDevice>,
}

/// A device in a [`WipeStepPayload`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct WipedDevice {
    /// Its name on the host.
    pub device: String,
    /// Its serial number; empty: it shows none.
    pub serial: String,
    /// How it was erased.
    pub method: String,
    /// By what tool.
    pub tool: String,
    /// The tool's version.
    pub tool_version: String,
    /// How the tool ended.
    pub exit_code: i32,
    /// What the device said of itself afterwards.
    pub result: String,
}

/// Payload of `node.wipe_failed`. spec: S1 "Wipe Failure Handling"
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct WipeFailedPayload {
    /// `critical`.
    pub severity: String,
    /// The wipe's job.
    pub job: JobId,
    /// When it began.
    pub wipe_started_at: Timestamp,
    /// In which step it ended.
    pub stage: StageName,
    /// Why, for programs.
    pub error_code: String,
    /// Why, for people.
    pub reason: String,
    /// What an operator does about it.
    pub operator_action: String,
}

/// Payload of `node.wipe_confirmed`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct WipeConfirmedPayload {
    /// The wipe's job.
    pub job: JobId,
    /// When it began.
    pub wipe_started_at: Timestamp,
    /// Kernel boot in which the last step ended.
    pub boot_before: String,
    /// Kernel boot that runs now.
    pub boot_after: String,
    /// One for each device.
    pub certificates: Vec<CertificateId>,
}

/// Payload of `node.wipe_certified`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct WipeCertifiedPayload {
    /// The certificate.
    pub certificate: CertificateId,
    /// The wipe's job.
    pub job: JobId,
    /// The task that erased the device.
    pub task: TaskId,
    /// What was erased.
    pub erased: WipeTarget,
    /// The device's name on its host.
    pub device: String,
    /// Its serial number; empty: it shows none.
    pub serial: String,
    /// The key that signed.
    pub key_id: String,
}
