//! The row of a job: its state, what it was asked, what its stages found out.

use serde::{Deserialize, Serialize};

use super::{JobState, StageName};
use crate::actor::Actor;
use crate::ids::{BatchId, CorrelationId, Generation, JobId, NodeId, SiteId, TokenId};
use crate::node::PowerFact;
use crate::time::Timestamp;

/// What a job is for.
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
pub enum JobKind {
    /// A machine becomes a node.
    Onboarding,
    /// A node is emptied.
    Drain,
    /// A node is taken out of scheduling for good, its identity kept.
    Retire,
    /// A retired node is removed and its identity ended.
    Remove,
}

/// What a job was asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(tag = "flow", rename_all = "snake_case")]
pub enum JobInput {
    /// Onboarding through MAAS. spec: S5 4.1
    OnboardMaas {
        /// Hostname to give.
        hostname: String,
        /// Address of the BMC.
        ipmi_ip: String,
        /// Seen or given; used to find the machine.
        pxe_mac: Option<String>,
    },
    /// Onboarding as an LXD instance. spec: S5 10
    OnboardLxd {
        /// Name of the instance.
        hostname: String,
    },
    /// Onboarding by the bootstrap command.
    OnboardManual {
        /// Hostname as the operator gave it.
        hostname: String,
    },
    /// S1's drain.
    Drain {
        /// Ask checkpointable work to checkpoint.
        urgent: bool,
    },
    /// Retirement. design: 2-state-model "Jobs"
    Retire {
        /// Whether the machine is released at its provider later.
        disposal: Disposal,
    },
    /// Removal of a retired node.
    Remove,
}

/// What becomes of a retired node's machine. design: 2-state-model "Jobs"
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
    Default,
    strum::Display,
    strum::EnumString,
    strum::IntoStaticStr,
    strum::VariantArray,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Disposal {
    /// Stays as it is.
    #[default]
    Keep,
    /// Is released at its provider.
    Release,
}

/// What the stages found out, for later stages and for people. No secret ever stands here.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema, Default)]
#[serde(default)]
pub struct JobOutputs {
    /// The provider's name of the machine.
    pub provider_ref: Option<String>,
    /// Where the BMC login was taken from: `site_default` or an override.
    pub power_credentials: Option<String>,
    /// When discovery began, in this epoch; machines seen earlier are not claimed.
    pub discovery_since: Option<Timestamp>,
    /// MAAS id and name of the boot disk.
    pub boot_disk: Option<BootDisk>,
    /// RoCE addresses applied.
    pub roce_applied: Option<u32>,
    /// Things that did not stop the job and that a person should know.
    pub warnings: Vec<String>,
    /// The enrolment token that was issued; the secret is kept in the secret store until it is used.
    pub token: Option<TokenId>,
    /// Digest of the rendered first-boot payload.
    pub user_data_sha256: Option<String>,
    /// Public SSH host key of this deployment, pinned.
    pub ssh_host_key: Option<String>,
    /// Address that SSH is tried at.
    pub ssh_address: Option<String>,
    /// How the last deploy failure was classified: `datasource_like`, `generic`.
    pub deploy_failure: Option<String>,
    /// The machine was deployed by this job.
    pub deployed: bool,
}

/// A disk, as the provider names it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct BootDisk {
    /// The provider's id of it.
    pub id: String,
    /// Its name in the OS.
    pub name: String,
    /// Its model.
    pub model: String,
}

/// What the provider was last seen to say, as the job saw it. spec: S5 4.12
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Observed {
    /// The provider's own word.
    pub status: String,
    /// Power as read.
    pub power: PowerFact,
    /// Addresses.
    pub addresses: Vec<String>,
    /// When it was seen.
    pub at: Timestamp,
}

/// Who runs a job now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct JobLease {
    /// The server.
    pub holder: String,
    /// Until when, unless it is renewed.
    pub until: Timestamp,
}

/// Durable work on one node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Job {
    /// Identity; also the id of the onboarding or decommission it is.
    pub id: JobId,
    /// What it is for.
    pub kind: JobKind,
    /// On which node.
    pub node: NodeId,
    /// At which site.
    pub site: SiteId,
    /// Part of which batch.
    pub batch: Option<BatchId>,
    /// The node's hostname, for lists.
    pub hostname: String,
    /// What it was asked.
    pub input: JobInput,
    /// Where it stands; only the engine changes it.
    pub state: JobState,
    /// What its stages found out.
    pub outputs: JobOutputs,
    /// Decisions that an operator attached: `boot_disk` = `nvme0n1`.
    pub decisions: std::collections::BTreeMap<String, String>,
    /// What the provider was last seen to say.
    pub observed: Option<Observed>,
    /// Who runs it.
    pub lease: Option<JobLease>,
    /// Who asked for it.
    pub requested_by: Actor,
    /// Why.
    pub reason: String,
    /// Ties together all it caused.
    pub correlation: CorrelationId,
    /// When it was asked for.
    pub created_at: Timestamp,
    /// When it was started first.
    pub started_at: Option<Timestamp>,
    /// When it ended.
    pub finished_at: Option<Timestamp>,
    /// When its row changed last.
    pub updated_at: Timestamp,
    /// Version of the row.
    pub generation: Generation,
}

/// What happened in a stage. spec: S5 4.2.1 `node_onboarding_events`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct StageEvent {
    /// Which stage.
    pub stage: StageName,
    /// Which attempt, from 1.
    pub attempt: u32,
    /// Which round, from 0.
    pub round: u32,
    /// What happened.
    pub status: StageEventStatus,
    /// For people; bounded, without secrets.
    pub message: String,
}

/// What may happen in a stage. spec: S5 4.2.1
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
pub enum StageEventStatus {
    /// It began.
    Started,
    /// It is done.
    Succeeded,
    /// It failed.
    Failed,
    /// It was undone.
    Compensated,
    /// It had nothing to do.
    Skipped,
}
