//! The rows of a node: the hot one, what its host has, what its provider said.

use serde::{Deserialize, Serialize};

use super::{Availability, DownCause, Hold, HoldKind, NodeClass, NodeState, Status};
use crate::actor::Actor;
use crate::allocation::Ownership;
use crate::ids::{Generation, JobId, NodeId, SiteId};
use crate::node::label::Labels;
use crate::time::Timestamp;

/// How a node came, and so which provider looks after it.
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
pub enum OnboardingMode {
    /// An operator ran the bootstrap command on it.
    Manual,
    /// Through a MAAS region.
    Maas,
    /// An instance of an LXD server.
    Lxd,
    /// Through OpenCHAMI.
    Openchami,
}

/// One machine under control.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Node {
    /// Identity; never reused.
    pub id: NodeId,
    /// Unique among nodes that are not deleted.
    pub hostname: String,
    /// Where it belongs.
    pub site: SiteId,
    /// Name of its SKU.
    pub sku: String,
    /// Class when nothing claims it.
    pub class: NodeClass,
    /// How it came.
    pub mode: OnboardingMode,
    /// Both states.
    pub state: NodeState,
    /// Since when its status is what it is.
    pub status_since: Timestamp,
    /// Since when its availability is what it is.
    pub availability_since: Timestamp,
    /// Why it is down; only then.
    pub down_cause: Option<DownCause>,
    /// When a boot counts as failed; only while booting.
    pub deadline: Option<Timestamp>,
    /// Boots failed in a row.
    pub boot_failures: u32,
    /// Whether recovery ends in drained instead of ready.
    pub drain_intent: bool,
    /// A minor health issue that keeps it degraded, as reported.
    pub minor_issue: Option<String>,
    /// Certificates with another epoch are refused: growing it revokes all earlier ones at once.
    pub identity_epoch: u64,
    /// Kernel boot id of the agent's last registration.
    pub boot_id: Option<String>,
    /// Version that the agent reported.
    pub agent_version: Option<String>,
    /// Conformance fingerprint that the agent reported last.
    pub fingerprint: Option<String>,
    /// Since when that is none of the approved ones; a node that deviates gets work last, and no sensitive work.
    pub deviates_since: Option<Timestamp>,
    /// What operators say of it: `rack=c07`.
    pub labels: Labels,
    /// Address at which the host answers.
    pub address: Option<String>,
    /// Address of its BMC.
    pub bmc_address: Option<String>,
    /// The provider's own name for it: MAAS system id, LXD instance.
    pub provider_ref: Option<String>,
    /// The job that is responsible for it now.
    pub owning_job: Option<JobId>,
    /// Why it must not be scheduled, besides its states.
    pub holds: Vec<Hold>,
    /// To whom it belongs while something is allocated on it.
    pub ownership: Ownership,
    /// When it was created.
    pub created_at: Timestamp,
    /// When its row changed last.
    pub updated_at: Timestamp,
    /// Version of the row.
    pub generation: Generation,
}

impl Node {
    /// Whether it may be given new work at `now`: active, ready, no hold in force.
    pub fn is_schedulable(&self, now: Timestamp) -> bool {
        self.state == NodeState::new(Status::Active, Availability::Ready)
            && !self.holds.iter().any(|hold| hold.is_in_force(now))
    }

    /// The hold of that kind, if one stands.
    pub fn hold(&self, kind: HoldKind) -> Option<&Hold> {
        self.holds.iter().find(|hold| hold.kind == kind)
    }

    /// A job of it is over: it owns the node no more, and what it held the node back for is gone. Whether it did either.
    pub fn leave_job(&mut self, job: JobId) -> bool {
        let owned = self.owning_job == Some(job);
        if owned {
            self.owning_job = None;
        }
        let holds = self.holds.len();
        self.holds.retain(|hold| hold.job != Some(job));
        owned || self.holds.len() != holds
    }

    /// Its class now: the strictest current claim, else its default.
    pub fn effective_class(&self) -> NodeClass {
        self.ownership.class.unwrap_or(self.class)
    }

    /// Its ownership becomes `next`. When sensitive work ends, what it may have left must be wiped: the hold says so in
    /// the very row that ends it, and with other sensitive work of that user still there too: the node is emptied then.
    /// design: 2-state-model "Holds"; spec: S1 "Sensitive Release Sequence"
    pub fn set_ownership(&mut self, next: Ownership, by: &Actor, now: Timestamp) {
        if self.ownership.is_sensitive() && next.allocations < self.ownership.allocations {
            let owner = self.ownership.owner.as_deref().unwrap_or("a user");
            let reason = format!("sensitive work of {owner} ended: nobody gets it before it is wiped");
            self.require_wipe(reason, by, now);
        }
        self.ownership = next;
    }

    /// Nobody gets it before a wipe of it is confirmed.
    pub fn require_wipe(&mut self, reason: String, by: &Actor, now: Timestamp) {
        self.holds.retain(|hold| hold.kind != HoldKind::WipeRequired);
        let kind = HoldKind::WipeRequired;
        self.holds.push(Hold { kind, by: by.clone(), reason, since: now, until: None, job: None });
    }

    /// Whether a wipe of it has to be confirmed before anybody gets it.
    pub fn owes_wipe(&self) -> bool {
        self.holds.iter().any(|hold| matches!(hold.kind, HoldKind::WipeRequired | HoldKind::WipeFailed))
    }

    /// Its wipe is confirmed: the only thing that takes the holds of a wipe away.
    pub fn wiped(&mut self) {
        self.holds.retain(|hold| !matches!(hold.kind, HoldKind::WipeRequired | HoldKind::WipeFailed));
    }

    /// The row after this one: one generation on, changed at `now`.
    #[must_use]
    pub fn successor(&self, now: Timestamp) -> Self {
        Self { generation: self.generation.next(), updated_at: now, ..self.clone() }
    }
}

/// What an agent found on its host. Reported at registration; judged against the SKU.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema, Default)]
pub struct HostFacts {
    /// Models of the GPUs found on the bus, one entry each.
    pub gpus: Vec<GpuFact>,
    /// Network interfaces.
    pub nics: Vec<NicFact>,
    /// Whole disks.
    pub disks: Vec<DiskFact>,
    /// Memory in MiB.
    pub memory_mib: u64,
    /// Logical processors.
    pub cpus: u32,
    /// Kernel release.
    pub kernel: String,
    /// Operating system's pretty name.
    pub os: String,
}

/// One GPU on the bus.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct GpuFact {
    /// PCI address.
    pub address: String,
    /// `nvidia`, `amd`, `intel` or the PCI vendor id.
    pub vendor: String,
    /// PCI device id or marketing name.
    pub model: String,
}

/// One network interface.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct NicFact {
    /// Name in the OS.
    pub name: String,
    /// Hardware address.
    pub mac: String,
    /// Firmware version; empty when it cannot be read.
    pub firmware: String,
    /// Link speed in Mbit/s; 0 when unknown.
    pub speed_mbps: u32,
}

/// One whole disk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct DiskFact {
    /// Name in the OS.
    pub name: String,
    /// Model.
    pub model: String,
    /// Size in bytes.
    pub size_bytes: u64,
    /// Whether the running system uses it: mounted, swapped to, or part of something that is.
    #[serde(default)]
    pub in_use: bool,
}

/// What the provider said about a node's machine, with the time it said it. spec: S5 6.5 `node_maas_state`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct ProviderState {
    /// Whose machine.
    pub node: NodeId,
    /// At which site.
    pub site: SiteId,
    /// The provider's own name for it.
    pub provider_ref: String,
    /// The provider's own word for its status: `Deployed`, `Ready`, `Running` …
    pub status: String,
    /// Power as read.
    pub power: PowerFact,
    /// Addresses that the provider reports.
    pub addresses: Vec<String>,
    /// When the provider said it.
    pub observed_at: Timestamp,
}

/// Power as a provider read it. Unknown is not off.
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
pub enum PowerFact {
    /// Positively on.
    On,
    /// Positively off.
    Off,
    /// Not read, or the answer cannot be trusted.
    Unknown,
}
