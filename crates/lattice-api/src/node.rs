//! Nodes: the inventory row, what explains it, and the operator's verbs.

pub use lattice_core::bmc::BootDevice;
use lattice_core::change::NodeAction;
pub use lattice_core::component::ComponentReport;
use lattice_core::ids::{Generation, JobId, NodeId, SiteId};
pub use lattice_core::job::Disposal;
pub use lattice_core::node::HoldKind;
pub use lattice_core::node::{Availability, Status};
use lattice_core::node::{DownCause, HostFacts, Labels, NodeClass, NodeState, OnboardingMode, ProviderState};
use lattice_core::secret::Secret;
use lattice_core::time::Timestamp;
use serde::{Deserialize, Serialize};

use crate::allocation::{AllocationImpact, AllocationRow};
use crate::explanation::Explanation;
use crate::hold::HoldView;

/// A node in a list. No workflow stages here: they belong to its job. spec: S2 9.1
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct NodeRow {
    /// Identity; never reused.
    pub id: NodeId,
    /// Unique among nodes that are not deleted.
    pub hostname: String,
    /// Where it belongs.
    pub site_id: SiteId,
    /// The site's name.
    pub site: String,
    /// Name of its SKU.
    pub sku: String,
    /// Class when nothing claims it.
    pub class: NodeClass,
    /// How it came.
    pub mode: OnboardingMode,
    /// Inventory status.
    pub status: Status,
    /// Availability.
    pub availability: Availability,
    /// Since when the status is what it is.
    pub status_since: Timestamp,
    /// Since when the availability is what it is.
    pub availability_since: Timestamp,
    /// Whether it may be given work: active, ready, no hold.
    pub schedulable: bool,
    /// The most important reason why it may not; absent when it may.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why_not: Option<String>,
    /// Holds in force.
    pub holds: Vec<HoldKind>,
    /// When its agent was heard last; absent: not by the server that answers, since it started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub heard_at: Option<Timestamp>,
    /// The job that is responsible for it now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owning_job: Option<JobId>,
    /// Address at which the host answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// Version that the agent reported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_version: Option<String>,
    /// Version of the row: `If-Match`.
    pub generation: Generation,
}

/// A node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct NodeView {
    /// What a list shows of it.
    #[serde(flatten)]
    pub row: NodeRow,
    /// Why it is down; only then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub down_cause: Option<DownCause>,
    /// When a boot counts as failed; only while booting.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Timestamp>,
    /// Boots failed in a row.
    pub boot_failures: u32,
    /// Whether recovery ends in drained instead of ready.
    pub drain_intent: bool,
    /// A minor health issue, as reported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub minor_issue: Option<String>,
    /// Certificates of another epoch are refused.
    pub identity_epoch: u64,
    /// Kernel boot id of the agent's last registration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub boot_id: Option<String>,
    /// Conformance fingerprint that the agent reported last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fingerprint: Option<String>,
    /// Since when that is none of the approved ones: it gets work last, and no sensitive work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deviates_since: Option<Timestamp>,
    /// What operators say of it.
    #[serde(default, skip_serializing_if = "Labels::is_empty")]
    pub labels: Labels,
    /// Address of its BMC.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bmc_address: Option<String>,
    /// The provider's own name for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider_ref: Option<String>,
    /// When it was created.
    pub created_at: Timestamp,
    /// When its row changed last.
    pub updated_at: Timestamp,
    /// Its holds, with who, why and since.
    pub hold_details: Vec<HoldView>,
    /// What is placed on it. spec: S1 "Operator Commands"
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub allocations: Vec<AllocationRow>,
    /// How it is, by its heartbeats.
    pub health: NodeHealth,
    /// What its agent found on the host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<HostFacts>,
    /// What its provider said last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider: Option<ProviderState>,
    /// What State Manager says of it, and what it was told, at an OpenCHAMI site.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub component: Option<ComponentReport>,
    /// Why it is not schedulable, or that it is.
    pub explanation: Explanation,
    /// Which verbs its states allow now; each may still be refused for its health or its job.
    pub verbs: Vec<NodeVerb>,
    /// Where more is told.
    pub links: NodeLinks,
}

/// How a node is, as far as the server that answers heard it. spec: S1 "Operator Commands", "Heartbeat Protocol"
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct NodeHealth {
    /// What its last heartbeat said; absent: not known here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub said: Option<SaidHealth>,
    /// Why nothing is known here, or why what was said is old; absent: it is how the node is now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub caveat: Option<String>,
    /// GPUs that its SKU asks for; absent when there is no such SKU any more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpus_expected: Option<u32>,
}

/// What a heartbeat said of a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct SaidHealth {
    /// When.
    pub at: Timestamp,
    /// How old that is, in milliseconds.
    pub age_ms: u64,
    /// GPUs on the bus.
    pub gpus: u32,
    /// Highest temperature of a GPU in degrees Celsius; absent when none can be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_temperature_c: Option<i16>,
    /// Uncorrectable memory errors since boot.
    pub ecc_uncorrected: u64,
    /// Whether it reported a minor issue on itself.
    pub minor_issue: bool,
    /// Allocations that ran.
    pub allocations: u32,
}

/// Paths about one node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct NodeLinks {
    /// Everything that happened, merged.
    pub timeline: String,
    /// Changes of its states.
    pub history: String,
    /// Its events, live.
    pub events: String,
    /// Why it is not schedulable.
    pub explain: String,
    /// Its owning job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<String>,
}

/// What an operator asks of a node. spec: S1 "Operator Commands", S2 3.3
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
    strum::VariantArray,
)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
pub enum NodeVerb {
    /// Empty it: no new work, running work ends.
    Drain,
    /// Give a draining or drained node back.
    Undrain,
    /// Down at once; heartbeats do not undo it.
    Disable,
    /// Give a disabled node back.
    Enable,
    /// Boot it again: a job power-cycles it through its provider. A manual node is power-cycled by hand, and fails unless its
    /// agent registers in time.
    Reboot,
    /// Give up on a boot that failed: once its agent registers, its health check decides.
    Reset,
    /// Replace its OS: a job boots or deploys another image, and the node enrols again.
    Reimage,
    /// Block it from scheduling until it is proven healthy.
    Quarantine,
    /// Give a quarantined node back.
    Recover,
    /// Take it out of scheduling for good; its identity stays.
    Retire,
    /// Give a retired node back.
    Reactivate,
    /// End a retired node's identity.
    Remove,
    /// Resume, or create anew, the job that a draining or removing node waits for.
    Resume,
    /// Withdraw a bootstrap that nobody used.
    Withdraw,
    /// Have its BMC erase drives of it, out of band: for a machine whose wipe failed, or that leaves. Its OS is lost.
    SecureErase,
    /// Wipe it after sensitive work; again after a failure when it is forced. spec: S1 "Wipe Failure Handling"
    Wipe,
}

impl NodeVerb {
    /// Its command line: `lattice node drain`; a wipe is S1's `lattice admin node wipe NODE`.
    pub fn command(self, node: &str) -> String {
        match self {
            Self::Wipe => format!("lattice admin node wipe {node} --force"),
            Self::SecureErase => format!("lattice node secure-erase {node} --drive all"),
            Self::Drain
            | Self::Undrain
            | Self::Disable
            | Self::Enable
            | Self::Reboot
            | Self::Reset
            | Self::Reimage
            | Self::Quarantine
            | Self::Recover
            | Self::Retire
            | Self::Reactivate
            | Self::Remove
            | Self::Resume
            | Self::Withdraw => format!("lattice node {self} {node}"),
        }
    }

    /// Whether people are asked before it is done, and with which words. spec: S1 "Operator Commands"
    pub const fn confirmation(self, urgent: bool, deadline: bool) -> Option<&'static str> {
        match self {
            Self::Drain if urgent && deadline => {
                Some("running allocations will be checkpointed, and stopped at the deadline")
            }
            Self::Drain if urgent => Some("running allocations will be checkpointed"),
            Self::Drain if deadline => Some("what still runs at the deadline will be stopped"),
            Self::Disable => Some("running allocations will be requeued or failed"),
            Self::Reimage => Some("its OS is replaced: what is on it is lost"),
            Self::Remove => Some("the node's identity ends and cannot be reused"),
            Self::SecureErase => Some("what is on these drives is destroyed, its OS too"),
            Self::Wipe => Some("what is on its GPUs, its NVMe drives and in its memory is destroyed, and it restarts"),
            Self::Drain
            | Self::Undrain
            | Self::Enable
            | Self::Reboot
            | Self::Reset
            | Self::Quarantine
            | Self::Recover
            | Self::Retire
            | Self::Reactivate
            | Self::Resume
            | Self::Withdraw => None,
        }
    }
}

/// Body of every verb: `POST /api/v1/admin/nodes/{id}/{verb}`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ActOnNode {
    /// Why.
    #[serde(default)]
    pub reason: String,
    /// Ask checkpointable work to checkpoint; only for `drain`. A drain that runs becomes urgent, and stays so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub urgent: Option<bool>,
    /// After how many milliseconds what still runs is stopped and, unless its policy is `never`, queued again elsewhere;
    /// only for `drain`. A drain that runs gets this one, counted from now. Sensitive work is never stopped by it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline_ms: Option<u64>,
    /// Take the deadline of a drain that runs away: what runs ends in its own time. Only for `drain`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub no_deadline: Option<bool>,
    /// What the node's BMC has it start from, this once; absent: as it always does. Only for `reboot`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub boot: Option<BootDevice>,
    /// The image, by the name that its site knows; absent: the one of new nodes. Only for `reimage`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// What becomes of the machine; only for `retire`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disposal: Option<Disposal>,
    /// The drives, by their names at the BMC as a check of it lists them, or `all`. Only for `secure-erase`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drives: Option<Vec<String>>,
    /// Erase while the machine is on: for a BMC that reaches its drives only then. Only for `secure-erase`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub powered_on: Option<bool>,
    /// After a wipe that failed, and where none is needed, too; only for `wipe`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub force: Option<bool>,
    /// Decide, and say what would happen, but change nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dry_run: Option<bool>,
}

/// What a verb came to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct NodeActionAnswer {
    /// Whether something changed; false: a dry run, or it was so already.
    pub changed: bool,
    /// States before.
    pub before: NodeState,
    /// States after; what they would be in a dry run.
    pub after: NodeState,
    /// What follows from it, in words: a job, an alert, a BMC check.
    pub effects: Vec<String>,
    /// What it means for each allocation that is placed there.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub allocations: Vec<AllocationImpact>,
    /// How long such a job has usually taken; absent where none is created, or none of its kind was done yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usually: Option<UsualTime>,
    /// The job that was created, resumed, or is at it already.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job_id: Option<JobId>,
    /// The node as it stands now.
    pub node: NodeView,
}

/// How long something has usually taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct UsualTime {
    /// Half of them were done within so many milliseconds.
    pub p50_ms: u64,
    /// 19 of 20 were.
    pub p95_ms: u64,
    /// From how many.
    pub runs: u64,
}

/// Creates a node that an operator bootstraps by hand, at a manual site.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateNode {
    /// Its name.
    pub hostname: String,
    /// Its SKU, by name.
    pub sku: String,
    /// The site, by id or name; the built-in `local` when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub site: Option<String>,
    /// Default class; `standard` when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<NodeClass>,
    /// Why.
    #[serde(default)]
    pub reason: String,
}

/// A node that waits for its bootstrap.
#[derive(Clone, Serialize, Deserialize, utoipa::ToSchema)]
pub struct NodeBootstrap {
    /// The node.
    pub node_id: NodeId,
    /// The job that waits for its agent; absent when the node was onboarded before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job_id: Option<JobId>,
    /// One line to run as root on the machine. It holds the one-time token and is shown this once.
    #[serde(serialize_with = "crate::expose")]
    #[schema(value_type = String)]
    pub command: Secret<String>,
    /// From when on the token in it is refused.
    pub expires_at: Timestamp,
}

/// Sets labels of a node and takes others away; those that are not named stay.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ChangeLabels {
    /// Labels to set.
    #[serde(default, skip_serializing_if = "Labels::is_empty")]
    pub set: Labels,
    /// Names of labels to take away.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub remove: Vec<String>,
    /// Why.
    #[serde(default)]
    pub reason: String,
}

/// Asks for a new bootstrap command; the earlier token is withdrawn.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Reason {
    /// Why.
    #[serde(default)]
    pub reason: String,
}

/// One row of a node's history.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct HistoryEntry {
    /// Place in the history, growing.
    pub seq: u64,
    /// When.
    pub at: Timestamp,
    /// What happened.
    pub action: NodeAction,
    /// By which event.
    pub cause: String,
    /// States before; absent at creation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<NodeState>,
    /// States after.
    pub after: NodeState,
    /// Who.
    pub actor: String,
    /// For people.
    pub detail: String,
}

/// Where a row of a timeline comes from.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, utoipa::ToSchema, strum::Display,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum TimelineSource {
    /// A change of the node's states, holds or identity.
    Node,
    /// A stage of one of its jobs.
    Job,
    /// What its provider said.
    Provider,
    /// Something that was asked, or refused.
    Audit,
    /// Something that its agent was asked to do.
    Task,
}

/// One row of a node's timeline: history, job stages, provider and audit, merged.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct TimelineEntry {
    /// When.
    pub at: Timestamp,
    /// Where it comes from.
    pub source: TimelineSource,
    /// What happened, in a few words.
    pub title: String,
    /// For people; may be empty.
    pub detail: String,
    /// Who.
    pub actor: String,
    /// Which job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job_id: Option<JobId>,
    /// Whether it is a failure or a refusal.
    pub bad: bool,
}

/// The newest rows of a timeline, newest first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Timeline {
    /// The rows.
    pub entries: Vec<TimelineEntry>,
}

/// Which nodes, in which order.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
pub struct NodeQuery {
    /// `next` of the page before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
    /// At most so many rows, 1 to 1000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
    /// Only nodes in this inventory status.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<Status>,
    /// Only nodes with this availability.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub availability: Option<Availability>,
    /// Only nodes whose inventory status or availability has this name. spec: S1 `lattice node list --state=degraded`
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
    /// Only nodes of this site, by its id or name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub site: Option<String>,
    /// Only nodes of this SKU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sku: Option<String>,
    /// Only nodes whose name begins with this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hostname_prefix: Option<String>,
    /// Only nodes with these labels: `rack=c07`, several with commas between.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// Deleted nodes too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deleted: Option<bool>,
}
