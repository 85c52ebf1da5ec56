//! Everything that can be persisted, and what is derived from it.
//!
//! A [`Commit`] carries its ids and times, so applying it is deterministic. From each [`Change`] the store derives
//! the history row, the audit row and the outbox events: nobody writes those by hand. design: 1-architecture

mod derive;

pub use derive::{AuditRow, Derived, EventRow, HistoryRow, audit_hash, derive};

use serde::{Deserialize, Serialize};

use crate::actor::Actor;
use crate::agent::task::TaskChange;
use crate::allocation::AllocationChange;
use crate::batch::BatchChange;
use crate::bmc::{Bmc, BmcCause, BmcReport};
use crate::component::ComponentReport;
use crate::credential::{ApiToken, EnrollmentToken};
use crate::ids::{
    AllocationId, ApiTokenId, BatchId, CorrelationId, EventSeq, Generation, JobId, LeaseEpoch, NodeId, OpId, ProfileId,
    SilenceId, SiteId, TaskId, TokenId, WebhookId,
};
use crate::job::{Job, StageEvent};
use crate::node::{HostFacts, Node, NodeState, ProviderState};
use crate::silence::Silence;
use crate::site::credentials::{CredentialCause, SiteCredential};
use crate::site::{PowerOverride, RoceRow, Site, SiteProfile};
use crate::sku::Sku;
use crate::time::Timestamp;
use crate::webhook::delivery::WebhookStep;
use crate::webhook::{Webhook, WebhookChange};
use crate::wipe::{CertificateFile, WipeTold};

/// What happened to a node, in the words of its history. One spelling for SQL, JSON and page.
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
pub enum NodeAction {
    /// The row was created.
    Created,
    /// Status, availability or both moved.
    Moved,
    /// A hold was set.
    HoldSet,
    /// A hold was cleared.
    HoldCleared,
    /// The agent registered.
    Registered,
    /// Something else of the row changed: address, agent version, owner.
    Updated,
    /// All earlier certificates were revoked.
    Revoked,
}

/// A changed node row: the whole row after, and what is needed to tell the story.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NodeChange {
    /// The row after the change; its generation is one more than the stored one, or the first.
    pub after: Node,
    /// Both states before; none when it is created.
    pub before: Option<NodeState>,
    /// What happened.
    pub action: NodeAction,
    /// The state machine's event, or what was changed: `heartbeat_missed`, `maintenance`.
    pub cause: String,
    /// One line for people; may be empty.
    pub detail: String,
}

/// A changed job row with what happened in its stages.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JobChange {
    /// The row after the change.
    pub after: Job,
    /// Status before; none when it is created.
    pub before: Option<crate::job::JobStatus>,
    /// What happened: `created`, `claimed`, `stage_ok`, an operator action.
    pub cause: String,
    /// Stage events of this change, in order. spec: S5 4.2.1
    pub stage_events: Vec<StageEvent>,
    /// Whether it is told to the outside (outbox, audit); a mere claim or lease renewal is not.
    pub visible: bool,
}

/// Everything that can be persisted.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Change {
    /// A node row.
    Node(Box<NodeChange>),
    /// What the agent found on its host; replaces the earlier.
    HostFacts {
        /// Whose.
        node: NodeId,
        /// What.
        facts: HostFacts,
    },
    /// What the provider said; replaces the earlier.
    ProviderState(ProviderState),
    /// What a node's BMC said; replaces the earlier.
    BmcReport(Box<BmcReport>),
    /// What State Manager said of a node's component, and what it was told; replaces the earlier.
    ComponentReport(Box<ComponentReport>),
    /// The row of a node's BMC; its login is in the secret store.
    Bmc {
        /// The row after the change.
        after: Bmc,
        /// Why it changes.
        cause: BmcCause,
    },
    /// A job row.
    Job(Box<JobChange>),
    /// A batch row.
    Batch(Box<BatchChange>),
    /// A row of an agent's task.
    Task(Box<TaskChange>),
    /// An allocation's row.
    Allocation(Box<AllocationChange>),
    /// A site row.
    Site(Box<Site>),
    /// What is known of a site's credential; never its value.
    SiteCredential {
        /// The row after the change.
        after: SiteCredential,
        /// Why it changes.
        cause: CredentialCause,
    },
    /// A SKU row.
    Sku(Sku),
    /// A profile row.
    Profile(Box<SiteProfile>),
    /// A power-credential override's row; its login is in the secret store.
    PowerOverride(PowerOverride),
    /// A RoCE assignment's row.
    Roce(RoceRow),
    /// A row is removed; it stood like this.
    Removed(Box<Removed>),
    /// An enrolment token row.
    EnrollmentToken(EnrollmentToken),
    /// An API token row.
    ApiToken(ApiToken),
    /// A webhook row.
    Webhook(Box<WebhookChange>),
    /// A silence's row; it never changes but for its removal.
    Silence(Box<Silence>),
    /// How far a webhook is, and the attempt that brought it there. Nobody is told: what is told would be delivered.
    WebhookStep(Box<WebhookStep>),
    /// Something happened in the wipe of a node; no row changes.
    Wipe {
        /// Of which node.
        node: NodeId,
        /// What.
        told: Box<WipeTold>,
    },
    /// The certificate of a wiped device: a row that never changes.
    WipeCertificate(Box<CertificateFile>),
    /// Something was refused, and must be seen in the audit; no row changes.
    Refusal {
        /// What was asked: `enroll`, `job.retry_stage`.
        action: String,
        /// On what.
        resource: Resource,
        /// Why it was refused, without any secret.
        detail: String,
    },
    /// Something happened that no row shows: an alert, a backup, a brake.
    Note {
        /// Event name, dotted: `node.alert.down`.
        name: String,
        /// About what.
        resource: Resource,
        /// For people.
        detail: String,
    },
}

/// A row that is removed, as it stood: its generation is the guard. Nodes and jobs are never removed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", content = "row", rename_all = "snake_case")]
#[expect(clippy::large_enum_variant, reason = "one is made for each removal, and none is kept")]
pub enum Removed {
    /// A site.
    Site(Site),
    /// A SKU.
    Sku(Sku),
    /// A profile.
    Profile(SiteProfile),
    /// A power-credential override.
    PowerOverride(PowerOverride),
    /// A RoCE assignment.
    Roce(RoceRow),
    /// A webhook, with its progress and its deliveries.
    Webhook(Webhook),
    /// A silence: lifted, or over.
    Silence(Silence),
}

/// What an audit row or an event is about.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(tag = "kind", content = "id", rename_all = "snake_case")]
pub enum Resource {
    /// A node.
    Node(NodeId),
    /// A job.
    Job(JobId),
    /// A batch of onboardings.
    Batch(BatchId),
    /// A task of an agent.
    Task(TaskId),
    /// An allocation.
    Allocation(AllocationId),
    /// A site.
    Site(SiteId),
    /// A SKU, by name.
    Sku(String),
    /// An enrolment token.
    EnrollmentToken(TokenId),
    /// An API token.
    ApiToken(ApiTokenId),
    /// A webhook.
    Webhook(WebhookId),
    /// A silence.
    Silence(SilenceId),
    /// The control plane itself.
    System(String),
}

impl Resource {
    /// Kind as in JSON and SQL.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Node(_) => "node",
            Self::Job(_) => "job",
            Self::Batch(_) => "batch",
            Self::Task(_) => "task",
            Self::Allocation(_) => "allocation",
            Self::Site(_) => "site",
            Self::Sku(_) => "sku",
            Self::EnrollmentToken(_) => "enrollment_token",
            Self::ApiToken(_) => "api_token",
            Self::Webhook(_) => "webhook",
            Self::Silence(_) => "silence",
            Self::System(_) => "system",
        }
    }

    /// Id as text.
    pub fn id(&self) -> String {
        match self {
            Self::Node(id) => id.to_string(),
            Self::Job(id) => id.to_string(),
            Self::Batch(id) => id.to_string(),
            Self::Task(id) => id.to_string(),
            Self::Allocation(id) => id.to_string(),
            Self::Site(id) => id.to_string(),
            Self::EnrollmentToken(id) => id.to_string(),
            Self::ApiToken(id) => id.to_string(),
            Self::Webhook(id) => id.to_string(),
            Self::Silence(id) => id.to_string(),
            Self::Sku(text) | Self::System(text) => text.clone(),
        }
    }
}

/// What must hold for a commit besides the generations of the rows it changes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Guard {
    /// The row of this node, which the commit does not change, has this generation.
    NodeGeneration {
        /// Which.
        node: NodeId,
        /// Expected version.
        have: Generation,
    },
    /// The row of this job, which the commit does not change, has this generation.
    JobGeneration {
        /// Which.
        job: JobId,
        /// Expected version.
        have: Generation,
    },
    /// The row of this batch, which the commit does not change, has this generation: nobody paused it meanwhile.
    BatchGeneration {
        /// Which.
        batch: BatchId,
        /// Expected version.
        have: Generation,
    },
    /// The row of this task, which the commit does not change, has this generation: no report came meanwhile.
    TaskGeneration {
        /// Which.
        task: TaskId,
        /// Expected version.
        have: Generation,
    },
    /// The row of this site, which the commit does not change, has this generation.
    SiteGeneration {
        /// Which.
        site: SiteId,
        /// Expected version.
        have: Generation,
    },
    /// The row of this profile, which the commit does not change, has this generation.
    ProfileGeneration {
        /// Which.
        profile: ProfileId,
        /// Expected version.
        have: Generation,
    },
    /// The row of this SKU, which the commit does not change, has this generation.
    SkuGeneration {
        /// Its name.
        sku: String,
        /// Expected version.
        have: Generation,
    },
    /// The row of this webhook, which the commit does not change, has this generation: nobody disabled it meanwhile.
    WebhookGeneration {
        /// Which.
        webhook: WebhookId,
        /// Expected version.
        have: Generation,
    },
    /// The lease of this name is still held under this epoch; else the outcome is `Fenced`.
    Lease {
        /// Name: `site/<id>`, `driver`.
        name: String,
        /// Epoch under which the writer acts.
        epoch: LeaseEpoch,
    },
    /// No live node has this hostname at this site.
    HostnameFree {
        /// The hostname.
        hostname: String,
    },
    /// No live node of this site has this BMC.
    BmcAddressFree {
        /// Where.
        site: SiteId,
        /// The address, as it is printed.
        address: String,
    },
    /// No node, not even a deleted one, was ever of this site: its history would have no place.
    SiteUnused {
        /// Which.
        site: SiteId,
    },
    /// No live node is of this SKU.
    SkuUnused {
        /// Its name.
        sku: String,
    },
    /// No unfinished job owns this node.
    NoLiveJob {
        /// Which.
        node: NodeId,
    },
    /// The commit of this op was applied: the next one of a chain builds on its rows. A generation alone does not say
    /// it: somebody else's change may have come in the place of the one before.
    After {
        /// Which.
        op: OpId,
    },
}

/// Changes that stand or fall together.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Commit {
    /// Makes a repeat safe.
    pub op: OpId,
    /// What must hold.
    pub guards: Vec<Guard>,
    /// What changes; at most one change per row.
    pub changes: Vec<Change>,
    /// Who did it.
    pub actor: Actor,
    /// Why, in the actor's words; may be empty.
    pub reason: String,
    /// When.
    pub at: Timestamp,
    /// What it belongs to.
    pub correlation: CorrelationId,
}

/// What became of a commit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum Outcome {
    /// Everything is durable; the last event's place in the outbox.
    Applied {
        /// Place of the last event derived from it.
        seq: EventSeq,
    },
    /// Somebody else changed a row first, or a unique key is taken; nothing of the commit is durable.
    Conflict {
        /// Which row or key.
        resource: String,
        /// What stands there now: a generation, or who has the key.
        have: String,
    },
    /// The lease is no longer held under that epoch; nothing of the commit is durable.
    Fenced,
    /// A row that must be there is not; nothing of the commit is durable.
    Missing {
        /// Which.
        resource: String,
    },
    /// The same op id was committed before: nothing was done again, this was its outcome.
    Duplicate {
        /// Place of the last event derived from the first one.
        seq: EventSeq,
    },
}
