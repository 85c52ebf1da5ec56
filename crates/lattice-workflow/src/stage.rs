//! What a stage is for the runner: it observes, acts, and can be undone. design: 3-jobs "`turn(job)`"

use async_trait::async_trait;
use lattice_core::change::Change;
use lattice_core::failure::FailureClass;
use lattice_core::ids::{OpId, SiteId};
use lattice_core::job::{Flow, Job, JobOutputs, Observed, OperatorAction, Stage, StageError, UndoKind};
use lattice_core::node::availability::AvailabilityEvent;
use lattice_core::node::{Node, PowerFact, ProviderState};
use lattice_core::site::{LxdSite, MaasSite, OpenchamiSite, Site, SiteProvider};
use lattice_core::time::Timestamp;

use crate::tools::Tools;

/// Everything a stage may look at. It changes nothing but through what it returns.
pub struct Context<'a> {
    /// The job as stored, or as it will be stored with this turn's earlier results.
    pub job: &'a Job,
    /// The job's node, fresh.
    pub node: &'a Node,
    /// The job's site.
    pub site: &'a Site,
    /// The table that the job follows.
    pub flow: &'a Flow,
    /// The stage's row of that table.
    pub stage: &'a Stage,
    /// Which time window of the stage, from 1.
    pub window: u32,
    /// When this turn looked at the clock.
    pub now: Timestamp,
    /// The outside world.
    pub tools: &'a Tools,
}

impl Context<'_> {
    /// Settings of the MAAS site.
    ///
    /// # Errors
    /// The site is of another kind.
    pub fn maas_site(&self) -> Result<&MaasSite, StageError> {
        match &self.site.provider {
            SiteProvider::Maas(site) => Ok(site),
            SiteProvider::Manual | SiteProvider::Lxd(_) | SiteProvider::Openchami(_) => Err(self.wrong_site("maas")),
        }
    }

    /// Settings of the LXD site.
    ///
    /// # Errors
    /// The site is of another kind.
    pub fn lxd_site(&self) -> Result<&LxdSite, StageError> {
        match &self.site.provider {
            SiteProvider::Lxd(site) => Ok(site),
            SiteProvider::Manual | SiteProvider::Maas(_) | SiteProvider::Openchami(_) => Err(self.wrong_site("lxd")),
        }
    }

    /// Settings of the OpenCHAMI site.
    ///
    /// # Errors
    /// The site is of another kind.
    pub fn openchami_site(&self) -> Result<&OpenchamiSite, StageError> {
        match &self.site.provider {
            SiteProvider::Openchami(site) => Ok(site),
            SiteProvider::Manual | SiteProvider::Maas(_) | SiteProvider::Lxd(_) => Err(self.wrong_site("openchami")),
        }
    }

    /// The provider's name of the machine.
    ///
    /// # Errors
    /// No earlier stage found it.
    pub fn provider_ref(&self) -> Result<&str, StageError> {
        self.job.outputs.provider_ref.as_deref().ok_or_else(|| {
            error(
                FailureClass::StateAmbiguity,
                "machine_unknown",
                format!("no earlier stage found the machine of {}", self.job.hostname),
            )
        })
    }

    /// A fresh id of a commit or row.
    pub fn op(&self) -> OpId {
        OpId::generate(&*self.tools.ids, self.now)
    }

    /// The outputs, to be changed and returned.
    pub fn outputs(&self) -> JobOutputs {
        self.job.outputs.clone()
    }

    fn wrong_site(&self, wanted: &str) -> StageError {
        error(
            FailureClass::InputConfigError,
            "wrong_site_kind",
            format!(
                "site {} is a {} site, this stage needs a {wanted} site",
                self.site.name,
                self.site.provider.kind()
            ),
        )
    }
}

/// A failure of a stage.
pub fn error(class: FailureClass, error_code: &str, message: impl Into<String>) -> StageError {
    StageError {
        class,
        error_code: error_code.to_owned(),
        message: message.into(),
        retry_after: None,
        choices: Vec::new(),
        recovery: None,
    }
}

/// Our own rows cannot be read.
pub fn store_failed(failure: lattice_store::StoreError) -> StageError {
    error(FailureClass::UpstreamTransient, "store_failed", format!("our own rows cannot be read: {failure}"))
}

/// The same failure, recovered by that action of an operator.
pub fn recovered_by(action: OperatorAction, error: StageError) -> StageError {
    StageError { recovery: Some(action), ..error }
}

/// What a stage found out or did, to be committed with its result.
#[derive(Debug, Clone, Default)]
pub struct Delta {
    /// The outputs after it; none: unchanged.
    pub outputs: Option<JobOutputs>,
    /// What the provider was seen to say.
    pub observed: Option<Observed>,
    /// Rows that change with it, neither the job's nor the node's.
    pub changes: Vec<Change>,
    /// What it asks of the node, in order.
    pub node: Vec<NodeAsk>,
    /// One line for people.
    pub message: String,
    /// There was nothing to do.
    pub skipped: bool,
}

impl Delta {
    /// Nothing but a line for people.
    pub fn said(message: impl Into<String>) -> Self {
        Self { message: message.into(), ..Self::default() }
    }

    /// With these outputs.
    #[must_use]
    pub fn outputs(mut self, outputs: JobOutputs) -> Self {
        self.outputs = Some(outputs);
        self
    }

    /// With what the provider said of the machine; also kept as the node's provider state.
    #[must_use]
    pub fn seen(mut self, ctx: &Context<'_>, seen: Seen) -> Self {
        self.changes.push(Change::ProviderState(seen.state(ctx)));
        self.observed =
            Some(Observed { status: seen.status, power: seen.power, addresses: seen.addresses, at: ctx.now });
        self
    }

    /// With something asked of the node.
    #[must_use]
    pub fn ask(mut self, ask: NodeAsk) -> Self {
        self.node.push(ask);
        self
    }

    /// Marked as nothing to do.
    #[must_use]
    pub fn skipped(mut self) -> Self {
        self.skipped = true;
        self
    }

    /// Whether committing it would change any row but the job's times.
    pub fn is_empty(&self) -> bool {
        self.outputs.is_none() && self.observed.is_none() && self.changes.is_empty() && self.node.is_empty()
    }
}

/// What a provider was seen to say of a machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    /// The provider's name of it.
    pub provider_ref: String,
    /// The provider's own word for its status.
    pub status: String,
    /// Power as read.
    pub power: PowerFact,
    /// Addresses.
    pub addresses: Vec<String>,
}

impl Seen {
    fn state(&self, ctx: &Context<'_>) -> ProviderState {
        let site: SiteId = ctx.site.id;
        ProviderState {
            node: ctx.node.id,
            site,
            provider_ref: self.provider_ref.clone(),
            status: self.status.clone(),
            power: self.power,
            addresses: self.addresses.clone(),
            observed_at: ctx.now,
        }
    }
}

/// Something a stage asks of its node; decided by the node's tables when it is committed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NodeAsk {
    /// An event of the availability. One that does nothing where the node stands by then is dropped.
    Availability {
        /// Which.
        event: AvailabilityEvent,
        /// Longest boot, where a boot starts.
        boot_timeout: std::time::Duration,
    },
    /// An event of the availability without which the stage's result is not true: refused, the job stops.
    Require(AvailabilityEvent),
    /// The provider's name of it.
    ProviderRef(String),
    /// Address at which the host answers.
    Address(String),
    /// Fresh evidence that its OS or instance is gone.
    ProvenGone,
    /// Its wipe is confirmed, and its health check passed since.
    Wiped,
    /// The hold `maintenance` outlives the job, for that reason: an operator clears it.
    StaysInMaintenance(String),
}

/// What is there, before anything is done.
#[derive(Debug)]
pub enum Observation {
    /// The effect is there.
    Done(Delta),
    /// The effect is certainly not there: it may be brought about.
    Absent,
    /// It is coming about by itself; nothing is to be done but to look again.
    Waiting {
        /// When to look again, at the latest.
        recheck_at: Timestamp,
        /// What for, in words for people.
        waiting_for: String,
        /// What was found out meanwhile.
        delta: Delta,
    },
    /// It cannot come about.
    Failed(StageError, Delta),
    /// What is seen does not tell whether the effect happened.
    CannotTell {
        /// What was seen.
        why: String,
    },
}

/// What became of an act.
#[derive(Debug)]
pub enum Outcome {
    /// The effect is there.
    Done(Delta),
    /// It goes on elsewhere.
    StillGoing {
        /// When to look again, at the latest.
        recheck_at: Timestamp,
        /// What for, in words for people.
        waiting_for: String,
        /// What was found out meanwhile.
        delta: Delta,
    },
    /// It failed.
    Failed(StageError, Delta),
}

impl From<StageError> for Observation {
    fn from(error: StageError) -> Self {
        Self::Failed(error, Delta::default())
    }
}

impl From<StageError> for Outcome {
    fn from(error: StageError) -> Self {
        Self::Failed(error, Delta::default())
    }
}

/// One stage. `observe` never changes anything; `act` is called only where `observe` found the effect absent.
///
/// Both return errors of the outside world as `Err`: the runner gives them to the engine.
#[async_trait]
pub trait StageRunner: Send + Sync {
    /// Looks whether the effect is there.
    ///
    /// # Errors
    /// It could not be looked at.
    async fn observe(&self, ctx: &Context<'_>) -> Result<Observation, StageError>;

    /// Brings the effect about, under `key`. Cancelled at its deadline; the next turn observes again.
    ///
    /// # Errors
    /// It failed, or it is unknown whether it did: the next turn observes.
    async fn act(&self, ctx: &Context<'_>, key: &str) -> Result<Outcome, StageError>;

    /// Takes the effect back, after looking whether there is anything to take back. Called again until it is done.
    ///
    /// # Errors
    /// It could not be taken back this time.
    async fn undo(&self, ctx: &Context<'_>, kind: UndoKind, key: &str) -> Result<Outcome, StageError> {
        let _ = (ctx, kind, key);
        Ok(Outcome::Done(Delta::said("nothing to undo").skipped()))
    }
}
