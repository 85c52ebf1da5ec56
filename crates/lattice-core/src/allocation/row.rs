//! The row of an allocation.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::AllocationStatus;
use crate::actor::Actor;
use crate::agent::task::{AllocationStart, CheckpointHow, Limits, Mount, User};
use crate::ids::{AllocationId, CorrelationId, Generation, NodeId, OwnershipEpoch, SiteId};
use crate::node::{Labels, NodeClass};
use crate::time::Timestamp;

/// When an allocation whose node was lost, or that could not be started, is queued again.
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
pub enum RequeuePolicy {
    /// Never by itself.
    Never,
    /// When its node was lost.
    #[default]
    OnNodeFailure,
    /// Also when it could not be started.
    Always,
}

/// Where an allocation may go.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, utoipa::ToSchema, Default)]
pub struct Wanted {
    /// Only on this node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<NodeId>,
    /// Only at this site.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub site: Option<SiteId>,
    /// Only on nodes of this SKU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sku: Option<String>,
    /// GPUs that it needs for itself.
    #[serde(default)]
    pub gpus: u32,
    /// Only on nodes with all of these labels.
    #[serde(default, skip_serializing_if = "Labels::is_empty")]
    pub labels: Labels,
}

/// What is started: a program without a shell, with this environment and no other. Secrets do not belong here.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Workload {
    /// Program, by its absolute path, and its arguments.
    pub argv: Vec<String>,
    /// Its whole environment.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// Its working directory; none: `/`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub directory: Option<String>,
    /// User and group it runs as; none: the agent's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<User>,
    /// What it may use at most.
    #[serde(default)]
    pub limits: Limits,
    /// What is mounted for it.
    #[serde(default)]
    pub mounts: Vec<Mount>,
    /// How it is told to save its state, when its node is drained urgently.
    #[serde(default = "cannot_checkpoint")]
    pub checkpoint: CheckpointHow,
}

fn cannot_checkpoint() -> CheckpointHow {
    CheckpointHow::None
}

impl Workload {
    /// What the agent is told.
    pub fn start(&self, allocation: AllocationId, ownership_epoch: OwnershipEpoch) -> AllocationStart {
        AllocationStart {
            allocation,
            ownership_epoch,
            argv: self.argv.clone(),
            env: self.env.clone(),
            directory: self.directory.clone(),
            user: self.user,
            limits: self.limits,
            mounts: self.mounts.clone(),
        }
    }
}

/// How the tries to start an allocation went.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Retry {
    /// How many failed in a row.
    pub failures: u32,
    /// Where the last one failed: another node is preferred.
    pub node: NodeId,
}

impl Retry {
    /// Pause after the first try that failed; it doubles with each.
    const FIRST_PAUSE: Duration = Duration::from_secs(5);
    /// The longest pause.
    const LONGEST_PAUSE: Duration = Duration::from_secs(60);

    /// After one more try that failed, on `node`.
    pub fn after(before: Option<Self>, node: NodeId) -> Self {
        Self { failures: before.map_or(0, |before| before.failures).saturating_add(1), node }
    }

    /// How long nothing is tried after the last failure.
    pub fn pause(self) -> Duration {
        let doubled = 2_u32.saturating_pow(self.failures.saturating_sub(1));
        Self::FIRST_PAUSE.saturating_mul(doubled).min(Self::LONGEST_PAUSE)
    }
}

/// A user's work that has, wants or had a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Allocation {
    /// Identity.
    pub id: AllocationId,
    /// Whose it is: while it is placed, its node belongs to them.
    pub user: String,
    /// Class of its claim.
    pub class: NodeClass,
    /// Where it may go.
    pub wanted: Wanted,
    /// What is started.
    pub workload: Workload,
    /// When it is queued again.
    pub requeue: RequeuePolicy,
    /// Where it stands.
    pub status: AllocationStatus,
    /// Since when.
    pub status_since: Timestamp,
    /// Why it stands there, for people: what it waits for, how it ended.
    pub why: String,
    /// Its node; kept when it is over, so that its story can be told.
    pub node: Option<NodeId>,
    /// The ownership under which it was placed.
    pub epoch: Option<OwnershipEpoch>,
    /// It saved its state for a drain: once it ended it is queued again.
    #[serde(default)]
    pub saved: bool,
    /// It is being stopped because its node is drained past its deadline: its policy says whether it goes on elsewhere.
    #[serde(default)]
    pub evicted: bool,
    /// How often it was placed.
    pub placements: u32,
    /// It was queued again because it could not be started; none: for another reason, or it was started since.
    #[serde(default)]
    pub retry: Option<Retry>,
    /// Who asked.
    pub requested_by: Actor,
    /// When.
    pub requested_at: Timestamp,
    /// What it belongs to.
    pub correlation: CorrelationId,
    /// When the row changed last.
    pub updated_at: Timestamp,
    /// Version of the row.
    pub generation: Generation,
}

impl Allocation {
    /// Its node, while it keeps that from being empty.
    pub fn placed_on(&self) -> Option<NodeId> {
        self.node.filter(|_| self.status.is_placed())
    }

    /// Until when nothing is tried, because the last start failed; none: it may be placed.
    pub fn pauses_until(&self, now: Timestamp) -> Option<Timestamp> {
        // A clock that was set back since makes nobody wait for longer.
        self.retry_at().filter(|until| self.status_since <= now && now < *until)
    }

    /// When it is tried again, if it waits because the last start failed.
    pub fn retry_at(&self) -> Option<Timestamp> {
        let retry = self.retry.filter(|_| self.status == AllocationStatus::Requested)?;
        Some(self.status_since + retry.pause())
    }

    /// Whether it can save its state.
    pub fn is_checkpointable(&self) -> bool {
        match self.workload.checkpoint {
            CheckpointHow::None => false,
            CheckpointHow::Signal { .. } | CheckpointHow::Command { .. } => true,
        }
    }

    /// The row after this one: one generation on, changed at `now`.
    #[must_use]
    pub fn successor(&self, now: Timestamp) -> Self {
        Self { generation: self.generation.next(), updated_at: now, ..self.clone() }
    }
}

/// What happened to an allocation: the last word of its events, `allocation.placed`.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    Hash,
    Serialize,
    Deserialize,
    strum::Display,
    strum::IntoStaticStr,
    strum::VariantArray,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum AllocationCause {
    /// It was asked for.
    Requested,
    /// It waits for something else than before.
    Waiting,
    /// A node was found.
    Placed,
    /// It runs.
    Active,
    /// It is being ended.
    Releasing,
    /// It ended as its user wished.
    Released,
    /// It ended otherwise.
    Failed,
    /// It is queued again: an outer scheduler may place it. spec: S1 "Degraded → Down"
    Requeued,
}

/// A changed allocation row.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AllocationChange {
    /// The row after the change.
    pub after: Allocation,
    /// Status before; none when it is created.
    pub before: Option<AllocationStatus>,
    /// What happened.
    pub cause: AllocationCause,
}
