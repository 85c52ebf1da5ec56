//! The row of a job: its state, what it was asked, what its stages found out.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::flows::Restart;
use super::{Flow, JobState, StageName, flows};
use crate::actor::{Actor, Role};
use crate::bmc::{BootDevice, DriveErasure};
use crate::change::{Change, JobChange};
use crate::command::Request;
use crate::command::boots::BOOTS;
use crate::ids::{BatchId, CorrelationId, Generation, JobId, NodeId, SiteId, TokenId};
use crate::node::status::Owner;
use crate::node::{Node, PowerFact};
use crate::site::{MaasSettings, Site, SiteProvider};
use crate::time::Timestamp;
use crate::wipe::{WipeReboot, WipeRun};

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
    /// A node's machine is power-cycled.
    Reboot,
    /// A node's OS is replaced; its identity is kept.
    Reimage,
    /// A node that went down is looked at through its BMC.
    BmcInvestigation,
    /// A node is wiped after sensitive work.
    SensitiveWipe,
    /// A node's BMC erases its drives.
    SecureErase,
}

impl JobKind {
    /// Whether at most one of them is live on a node, beside no other: all that change something.
    pub const fn owns_its_node(self) -> bool {
        match self {
            Self::Onboarding
            | Self::Drain
            | Self::Retire
            | Self::Remove
            | Self::Reboot
            | Self::Reimage
            | Self::SensitiveWipe
            | Self::SecureErase => true,
            Self::BmcInvestigation => false,
        }
    }

    /// As whom it asks for moves of its node's status.
    pub const fn owner(self) -> Owner {
        match self {
            Self::Onboarding => Owner::Onboarding,
            Self::Drain | Self::Retire => Owner::Retirement,
            Self::Remove => Owner::Removal,
            Self::Reimage => Owner::Reimage,
            Self::SensitiveWipe => Owner::Cleanup,
            Self::Reboot | Self::BmcInvestigation | Self::SecureErase => Owner::Operator,
        }
    }
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
        /// Image, network and policy as they stood when it was accepted. spec: S5 3.7
        settings: Box<MaasSettings>,
    },
    /// Onboarding as an LXD instance. spec: S5 10
    OnboardLxd {
        /// Name of the instance.
        hostname: String,
    },
    /// Onboarding of a machine of an OpenCHAMI system. At least one of its names is given.
    OnboardOpenchami {
        /// Hostname to give.
        hostname: String,
        /// The component: `x1000c0s1b0n0`.
        xname: Option<String>,
        /// Hardware address of the interface that it boots from.
        mac: Option<String>,
        /// Address of its BMC.
        bmc_address: Option<String>,
        /// What it boots; none: what the site says.
        boot_profile: Option<String>,
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
        /// How long after its creation what still runs is stopped, in milliseconds; none: it ends in its own time.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        deadline_ms: Option<u64>,
        /// Allocations that were placed there when it was asked for.
        #[serde(default)]
        allocations: u32,
    },
    /// Retirement. design: 2-state-model "Jobs"
    Retire {
        /// Whether the machine is released at its provider later.
        disposal: Disposal,
    },
    /// Removal of a retired node.
    Remove,
    /// Off and on again, through the provider. spec: S1 "Down → Booting"
    Reboot {
        /// What its BMC has it start from, this once; none: as it always does.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        boot: Option<BootDevice>,
    },
    /// Its OS is replaced. spec: S1 "Down → Booting" (reimage)
    Reimage {
        /// The image, by the name that its site knows; none: the one that the site gives to new nodes.
        image: Option<String>,
    },
    /// Its OS is replaced through MAAS: the machine is released, and deployed again. spec: S5 7.3
    ReimageMaas {
        /// Image, network and policy as they stood when it was accepted. spec: S5 3.7
        settings: Box<MaasSettings>,
    },
    /// An out-of-band look at a node that went down. spec: S1 "Degraded → Down"
    InvestigateBmc,
    /// The wipe after sensitive work. spec: S1 "Sensitive Release Sequence"
    WipeSensitive {
        /// Who restarts the host at its end.
        reboot: WipeReboot,
    },
    /// Drives are erased by the node's BMC.
    SecureErase {
        /// The BMC's names of them, or `all`.
        drives: Vec<String>,
        /// The machine stays on: its BMC reaches its drives only then.
        #[serde(default)]
        powered_on: bool,
    },
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
    /// The machines that were there when discovery began.
    pub discovery_known: Vec<String>,
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
    /// When the hardware sync was seeded last.
    pub hw_sync_seeded_at: Option<Timestamp>,
    /// How the last deploy failure was classified: `datasource_like`, `generic`.
    pub deploy_failure: Option<String>,
    /// The machine was deployed by this job.
    pub deployed: bool,
    /// What it boots from the network, and how.
    pub netboot: Option<Netboot>,
    /// When its power was seen to be off, before it was switched on.
    pub off_at: Option<Timestamp>,
    /// How many boots in a row had come up ill when its power was seen to be off.
    #[serde(skip_serializing_if = "is_zero")]
    pub ill_boots: u32,
    /// What power control was told last and has not said the end of: its own name of it.
    pub power_order: Option<String>,
    /// How far a wipe is, once it began.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wipe: Option<WipeRun>,
    /// The drain of a wipe: this job began it, so it takes it back.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub drained: bool,
    /// Whether the BMC was told what to start from: it is told once, however often the node is booted by this job.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub boot_told: bool,
    /// The drives that the BMC erases, and how far it is with each.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub erasures: Vec<DriveErasure>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for it so")]
const fn is_zero(count: &u32) -> bool {
    *count == 0
}

/// How a machine boots from the network.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Netboot {
    /// Hardware address of the interface that it boots from.
    pub mac: String,
    /// The addresses that it has then: who takes its enrolment token must come from one of them.
    pub addresses: Vec<String>,
    /// Name of what it boots.
    pub profile: Option<String>,
    /// When it had asked for its boot script last, before it was switched on.
    pub asked_before: Option<Timestamp>,
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

impl JobInput {
    /// What a job that was asked this is for.
    pub const fn kind(&self) -> JobKind {
        match self {
            Self::OnboardMaas { .. }
            | Self::OnboardLxd { .. }
            | Self::OnboardOpenchami { .. }
            | Self::OnboardManual { .. } => JobKind::Onboarding,
            Self::Drain { .. } => JobKind::Drain,
            Self::Retire { .. } => JobKind::Retire,
            Self::Remove => JobKind::Remove,
            Self::Reboot { .. } => JobKind::Reboot,
            Self::Reimage { .. } | Self::ReimageMaas { .. } => JobKind::Reimage,
            Self::InvestigateBmc => JobKind::BmcInvestigation,
            Self::WipeSensitive { .. } => JobKind::SensitiveWipe,
            Self::SecureErase { .. } => JobKind::SecureErase,
        }
    }
}

/// A job that is about to be created.
#[derive(Debug, Clone)]
pub struct NewJob<'a> {
    /// On which node.
    pub node: &'a Node,
    /// At which site.
    pub site: &'a Site,
    /// What it is asked.
    pub input: JobInput,
    /// Part of which batch.
    pub batch: Option<BatchId>,
}

impl NewJob<'_> {
    /// The row of the new job: pending, at the first stage of its flow.
    pub fn build(self, request: &Request) -> Job {
        let id = JobId::generate(request.ids, request.now);
        let flow = flow_for(&self.input, self.site);
        Job {
            id,
            kind: self.input.kind(),
            node: self.node.id,
            site: self.node.site,
            batch: self.batch,
            hostname: self.node.hostname.clone(),
            state: JobState::pending(id, flow.first().name, request.now),
            input: self.input,
            outputs: JobOutputs::default(),
            observed: None,
            lease: None,
            requested_by: request.actor.clone(),
            reason: request.reason.clone(),
            correlation: request.correlation,
            created_at: request.now,
            started_at: None,
            finished_at: None,
            updated_at: request.now,
            generation: Generation::FIRST,
        }
    }
}

/// How long a drain may last before an operator is asked: a day, the longest that work on a node usually takes.
const DRAIN_PATIENCE: Duration = Duration::from_secs(86_400);

/// A drain with a deadline asks an operator an hour after it: time to stop what is left.
fn drain_patience(deadline_ms: Option<u64>) -> Duration {
    const AFTER_DEADLINE: Duration = Duration::from_secs(3_600);
    deadline_ms.map_or(DRAIN_PATIENCE, |after| Duration::from_millis(after) + AFTER_DEADLINE)
}

/// Life of the token in a manual bootstrap command. The built-in site has no policy of its own, so it is the default of
/// those that have. spec: S5 3.6 `enrollment_token_ttl_seconds`
pub const MANUAL_TOKEN_TTL: Duration = Duration::from_secs(7_200);

/// The flow that serves a job. Through MAAS it has the values of the policy that stood when the job was accepted.
pub fn flow_for(input: &JobInput, site: &Site) -> Flow {
    match (input, &site.provider) {
        (JobInput::OnboardMaas { settings, .. }, _) => flows::onboarding_maas(&settings.policy),
        (JobInput::OnboardLxd { .. }, SiteProvider::Lxd(lxd)) => flows::onboarding_lxd(lxd),
        // The kind of a site never changes; a row that contradicts it gets the strictest flow of its input.
        (JobInput::OnboardOpenchami { .. }, SiteProvider::Openchami(site)) => flows::onboarding_openchami(&site.policy),
        (JobInput::OnboardLxd { .. }, SiteProvider::Manual | SiteProvider::Maas(_) | SiteProvider::Openchami(_))
        | (JobInput::OnboardOpenchami { .. }, SiteProvider::Manual | SiteProvider::Maas(_) | SiteProvider::Lxd(_))
        | (JobInput::OnboardManual { .. }, _) => flows::onboarding_manual(MANUAL_TOKEN_TTL),
        (JobInput::Drain { deadline_ms, .. }, _) => flows::drain(drain_patience(*deadline_ms)),
        (JobInput::Retire { .. }, _) => flows::retire(DRAIN_PATIENCE),
        (JobInput::Remove, SiteProvider::Lxd(_)) => flows::remove_lxd(),
        (JobInput::Remove, SiteProvider::Manual | SiteProvider::Maas(_) | SiteProvider::Openchami(_)) => {
            flows::remove()
        }
        (JobInput::Reboot { .. }, SiteProvider::Openchami(site)) => flows::reboot_openchami(&site.policy),
        (JobInput::Reboot { .. }, SiteProvider::Manual | SiteProvider::Maas(_) | SiteProvider::Lxd(_)) => {
            flows::reboot(site.heartbeat.boot_timeout())
        }
        (JobInput::Reimage { .. }, SiteProvider::Openchami(site)) => flows::reimage_openchami(&site.policy),
        (JobInput::ReimageMaas { settings }, _) => flows::reimage_maas(&settings.policy),
        // Refused when it is asked for; a row that contradicts its site's kind only looks.
        (JobInput::Reimage { .. }, SiteProvider::Manual | SiteProvider::Maas(_) | SiteProvider::Lxd(_)) => {
            flows::bmc_investigation()
        }
        (JobInput::InvestigateBmc, _) => flows::bmc_investigation(),
        (JobInput::SecureErase { .. }, _) => flows::secure_erase(),
        (JobInput::WipeSensitive { reboot }, provider) => {
            let restart = match (reboot, provider) {
                (WipeReboot::Agent, _) => Restart::Agent,
                (WipeReboot::Power, SiteProvider::Openchami(site)) => Restart::Network(&site.policy),
                (WipeReboot::Power, SiteProvider::Manual | SiteProvider::Maas(_) | SiteProvider::Lxd(_)) => {
                    Restart::Power(site.heartbeat.boot_timeout())
                }
            };
            flows::sensitive_wipe(DRAIN_PATIENCE, site.sensitive.wipe_timeout(), restart)
        }
    }
}

impl Job {
    /// Takes over what the engine decided. A new epoch begins with nothing found out: what stages of the one before saw
    /// may be gone, as the machine that somebody deleted.
    pub fn take_state(&mut self, state: JobState) {
        if state.epoch != self.state.epoch {
            self.outputs = JobOutputs::default();
        }
        self.state = state;
    }

    /// When what still runs is stopped, of a drain that was given a deadline.
    pub fn drain_deadline(&self) -> Option<Timestamp> {
        let JobInput::Drain { deadline_ms: Some(after), .. } = self.input else { return None };
        Some(self.created_at + Duration::from_millis(after))
    }

    /// Whether Lattice takes the node out with it by itself: what the governor counts. One that boots a node again
    /// finds it out already.
    pub fn takes_by_itself(&self) -> bool {
        self.requested_by.role == Role::System && self.requested_by.name != BOOTS
    }

    /// The change that creates this job.
    pub fn created(self) -> Change {
        Change::Job(Box::new(JobChange {
            after: self,
            before: None,
            cause: "created".to_owned(),
            stage_events: Vec::new(),
            visible: true,
        }))
    }
}
