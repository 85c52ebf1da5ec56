//! One turn of a job: claim, observe, check, act, commit, next. design: 3-jobs "`turn(job)`"
//!
//! A look that finds nothing to do needs no claim in the store: its result is committed against the generation of
//! the row, and nothing at all is written when nothing changed. A claim is written before every act.

mod commit;
mod run;

use std::borrow::Cow;
use std::sync::Arc;

use lattice_core::change::Change;
use lattice_core::ids::JobId;
use lattice_core::job::{
    Flow, Input, Job, JobInput, JobStatus, Next, ParkedFor, StageEvent, StageName, flow_for, next, step,
};
use lattice_core::node::{Availability, Node};
use lattice_core::site::Site;
use lattice_core::time::Timestamp;
use lattice_store::StoreError;
use tracing::warn;

use crate::crash::Crashed;
use crate::enrollment::{boot_before_secrets, job_secrets};
use crate::stage::NodeAsk;
use crate::tools::Tools;

/// Most stages that one turn runs through before others get their turn.
const STAGES_A_TURN: u32 = 32;
/// How often a turn begins again because somebody else changed the job meanwhile.
const RESTARTS: u32 = 5;

/// Why a turn is made now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Occasion {
    /// What the job waits for may have come: look, whatever its next time says.
    pub woken: bool,
    /// Permits of its site and batch are there: it may start.
    pub permitted: bool,
}

/// How a turn ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Turn {
    /// Look again then, or when something happens to its machine.
    Sleep {
        /// When.
        until: Timestamp,
        /// The job as it stands.
        job: Arc<Job>,
    },
    /// Nothing, until somebody does something.
    Parked {
        /// What is missing.
        why: ParkedFor,
        /// The job as it stands.
        job: Arc<Job>,
    },
    /// Nothing, ever.
    Over {
        /// The job as it stands.
        job: Arc<Job>,
    },
    /// Another server runs it.
    Held {
        /// Until when.
        until: Timestamp,
    },
    /// There is no such job.
    Missing,
}

/// Why a turn did not end.
#[derive(Debug, thiserror::Error)]
pub enum TurnError {
    /// Somebody changed the job meanwhile: begin again with the row as it is.
    #[error("the job was changed by somebody else")]
    Superseded,
    /// The store failed.
    #[error("the store failed")]
    Store(#[from] StoreError),
    /// A test wanted it to.
    #[error(transparent)]
    Crashed(#[from] Crashed),
}

/// Runs turns. One for all jobs of a process.
#[derive(Clone)]
pub struct Runner {
    tools: Arc<Tools>,
}

impl Runner {
    /// A runner with these tools.
    pub const fn new(tools: Arc<Tools>) -> Self {
        Self { tools }
    }

    /// Its tools.
    pub fn tools(&self) -> &Tools {
        &self.tools
    }

    /// Its tools, to be shared.
    pub fn shared_tools(&self) -> Arc<Tools> {
        Arc::clone(&self.tools)
    }

    /// Makes one turn: as many stages as can be run now.
    ///
    /// # Errors
    /// The store failed; the job is as it was, or as far as it was committed.
    pub async fn turn(&self, id: JobId, occasion: Occasion) -> Result<Turn, TurnError> {
        for _ in 0..RESTARTS {
            match self.attempt(id, occasion).await {
                Err(TurnError::Superseded) => {}
                ended => return ended,
            }
        }
        // Somebody changes the job faster than it can be run: let them finish.
        Ok(Turn::Held { until: self.tools.clock.now() + std::time::Duration::from_secs(1) })
    }

    async fn attempt(&self, id: JobId, occasion: Occasion) -> Result<Turn, TurnError> {
        let now = self.tools.clock.now();
        let Some((job, node)) = self.tools.store.job_and_node(id).await? else { return Ok(Turn::Missing) };
        if job.state.status.is_terminal() {
            return Ok(Turn::Over { job: Arc::new(job) });
        }
        if let Some(lease) = job.lease.as_ref().filter(|lease| lease.holder != self.tools.holder && lease.until > now) {
            return Ok(Turn::Held { until: lease.until });
        }
        let parked = |job: Job| Turn::Parked { why: ParkedFor::KnownStage, job: Arc::new(job) };
        // An operator may just have enabled the site, and asked for another try.
        let judges = matches!(job.state.stage, StageName::LoadSiteConfig | StageName::LoadLxdSiteConfig);
        let tools = &self.tools;
        let site = if judges { tools.site_now(job.site, now).await? } else { tools.site(job.site, now).await? };
        let Some(site) = site else { return Ok(parked(job)) };
        let flow = flow_for(&job.input, &site);
        // The settings are those that the job was accepted with; where it is reached and with what key may change.
        let site = match site.seen_by(&job.input) {
            Cow::Borrowed(_) => site,
            Cow::Owned(seen) => Arc::new(seen),
        };
        let mut work = Work::new(Arc::clone(&self.tools), job, node, site, flow);
        work.take_up(occasion, now).await;
        for _ in 0..STAGES_A_TURN {
            if let Some(turn) = work.go_on().await? {
                return Ok(turn);
            }
        }
        work.flush().await?;
        Ok(Turn::Sleep { until: self.tools.clock.now(), job: Arc::new(work.job) })
    }
}

/// A job in the middle of a turn.
struct Work {
    tools: Arc<Tools>,
    site: Arc<Site>,
    flow: Flow,
    node: Node,
    /// As it stands in the store.
    stored: Job,
    /// As it will stand.
    job: Job,
    /// What else will be committed with it.
    pending: Pending,
}

/// What was found out and not committed yet.
#[derive(Default)]
struct Pending {
    events: Vec<StageEvent>,
    changes: Vec<Change>,
    asks: Vec<NodeAsk>,
    cause: Option<&'static str>,
}

impl Work {
    fn new(tools: Arc<Tools>, job: Job, node: Node, site: Arc<Site>, flow: Flow) -> Self {
        Self { tools, site, flow, node, stored: job.clone(), job, pending: Pending::default() }
    }

    /// What the occasion of the turn means for the job.
    async fn take_up(&mut self, occasion: Occasion, now: Timestamp) {
        if occasion.permitted && self.job.state.status == JobStatus::Pending && self.step(&Input::Start, now) {
            self.job.started_at.get_or_insert(now);
            self.pending.cause = Some("started");
        }
        if occasion.woken {
            self.step(&Input::Wake, now);
        }
        self.judge_late_success(now).await;
    }

    /// Whether the job turned out to have succeeded after it had failed, and was brought further by it.
    async fn judge_late_success(&mut self, now: Timestamp) -> bool {
        let is_late = self.may_be_late_success()
            && matches!(step(&self.flow, &self.job.state, &Input::LateSuccess, now), Ok(Some(_)))
            && self.forgets_secrets().await
            && self.step(&Input::LateSuccess, now);
        if is_late {
            self.pending.cause = Some("late_success");
        }
        is_late
    }

    /// What was kept secret for the enrolment is not needed any more. False when it cannot be forgotten now: the job
    /// stays as it is until it is woken again, so that no secret outlives it unseen.
    async fn forgets_secrets(&self) -> bool {
        let before = self.job.outputs.netboot.is_some().then(|| boot_before_secrets(self.job.id));
        for path in before.into_iter().chain([job_secrets(self.job.id)]) {
            if let Err(failed) = self.tools.secrets.delete(&path).await {
                warn!(job_id = %self.job.id, error = %failed, "secrets of a late success cannot be forgotten");
                return false;
            }
        }
        true
    }

    /// The job failed, and its own agent is there and healthy nevertheless. spec: S5 4.13
    fn may_be_late_success(&self) -> bool {
        let has_token = self.job.outputs.token.is_some() || matches!(self.job.input, JobInput::OnboardManual { .. });
        let is_healthy = self.node.state.availability == Availability::Ready;
        self.job.state.status.is_failed() && has_token && is_healthy
    }

    /// Gives the engine an input; whether it changed the job.
    fn step(&mut self, input: &Input, now: Timestamp) -> bool {
        // Only `Op` is refused, and operators' requests do not come this way.
        match step(&self.flow, &self.job.state, input, now) {
            Ok(Some(state)) => {
                self.job.take_state(state);
                true
            }
            Ok(None) | Err(_) => false,
        }
    }

    /// Does what is next. None: there is more to do at once.
    async fn go_on(&mut self) -> Result<Option<Turn>, TurnError> {
        let now = self.tools.clock.now();
        match next(&self.flow, &self.job.state, now) {
            Next::Run { stage, attempt, window, observe, needs_intent, intended, key } => {
                self.run(run::Run { stage, attempt, window, observe, needs_intent, intended, key }, now).await?;
                // The next stage looks at the node as this one leaves it.
                if self.changes_node() {
                    self.flush().await?;
                }
                Ok(None)
            }
            Next::Undo { stage, kind, attempt, key } => {
                self.undo(stage, kind, attempt, &key, now).await?;
                Ok(None)
            }
            Next::Sleep { until } => {
                self.flush().await?;
                Ok(Some(Turn::Sleep { until, job: Arc::new(self.job.clone()) }))
            }
            Next::Park { why } => {
                self.flush().await?;
                // Its agent may have come while this turn failed, and nobody wakes a job that has failed.
                if why == ParkedFor::Operator {
                    self.reread_node().await?;
                    if self.judge_late_success(now).await {
                        return Ok(None);
                    }
                }
                Ok(Some(Turn::Parked { why, job: Arc::new(self.job.clone()) }))
            }
            Next::Done => {
                self.flush().await?;
                Ok(Some(Turn::Over { job: Arc::new(self.job.clone()) }))
            }
        }
    }
}
