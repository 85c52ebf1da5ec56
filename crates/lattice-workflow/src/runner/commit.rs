//! The one commit in which a turn's results become durable.

use lattice_core::actor::Actor;
use lattice_core::change::{Change, Commit, Guard, JobChange, Outcome};
use lattice_core::command::{Request, wipe};
use lattice_core::failure::FailureClass;
use lattice_core::ids::{Generation, LeaseEpoch, OpId};
use lattice_core::job::{Input, Job, JobLease, JobState, node_moves};
use lattice_core::node::machine::Refused;
use lattice_core::time::Timestamp;
use lattice_store::StoreError;
use tracing::info;

use super::{Pending, TurnError, Work};
use crate::node_change::{Wish, fold};
use crate::stage::error;

/// How often a commit is made again because the node's row moved meanwhile, or its outcome is unknown.
const REPEATS: u32 = 8;

/// Of which node a commit holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sight {
    /// Of whatever it is by now.
    Any,
    /// Of the one that this turn saw: a look may take long, and what was decided of a node that moved since is decided
    /// anew.
    OfThisTurn,
}

impl Work {
    /// Commits what changed, if anything did, and gives the job back.
    pub(super) async fn flush(&mut self) -> Result<(), TurnError> {
        self.job.lease = None;
        if self.is_unchanged() {
            self.pending = Pending::default();
            return Ok(());
        }
        self.commit("turn", Sight::Any).await
    }

    /// Commits the claim, and all that stands before it, so that the act may begin.
    ///
    /// # Errors
    /// [`TurnError::Superseded`]: somebody else was faster, or the node is not in the state that was seen.
    pub(super) async fn commit_claim(&mut self, sight: Sight) -> Result<(), TurnError> {
        let until = self.tools.clock.now() + self.tools.limits.lease;
        self.job.lease = Some(JobLease { holder: self.tools.holder.clone(), until });
        self.commit("claimed", sight).await
    }

    /// Whether what is not committed yet would change the node.
    pub(super) fn changes_node(&self) -> bool {
        let moves = || node_moves(&self.flow, &self.stored.state, &self.job.state, self.node.state.status);
        !self.pending.asks.is_empty() || !moves().is_empty()
    }

    /// Whether nothing happened that is worth a row: a look that found what was found before.
    fn is_unchanged(&self) -> bool {
        let pending = &self.pending;
        pending.events.is_empty()
            && pending.changes.is_empty()
            && pending.asks.is_empty()
            && self.stored.lease.is_none()
            && self.stored.outputs == self.job.outputs
            && self.stored.observed == self.job.observed
            && essence(&self.stored.state) == essence(&self.job.state)
    }

    async fn commit(&mut self, cause: &'static str, sight: Sight) -> Result<(), TurnError> {
        let (now, seen) = (self.tools.clock.now(), self.node.state);
        let mut refusals = 0_u32;
        for _ in 0..REPEATS {
            let commit = match self.compose(cause, now).await {
                Ok(commit) => self.guarded(commit, sight),
                Err(refused) => {
                    refusals += 1;
                    self.node_refused(&refused, refusals, now).await?;
                    continue;
                }
            };
            match self.send(&commit).await? {
                Outcome::Applied { .. } | Outcome::Duplicate { .. } => return self.committed(commit),
                Outcome::Conflict { resource, .. } if resource.starts_with("node") => {
                    self.reread_node().await?;
                    if sight == Sight::OfThisTurn && self.node.state != seen {
                        return Err(TurnError::Superseded);
                    }
                }
                Outcome::Conflict { .. } | Outcome::Fenced | Outcome::Missing { .. } => {
                    return Err(TurnError::Superseded);
                }
            }
        }
        Err(TurnError::Superseded)
    }

    /// A commit that changes the node holds of that node alone anyway.
    fn guarded(&self, mut commit: Commit, sight: Sight) -> Commit {
        let changes_node = commit.changes.iter().any(|change| matches!(change, Change::Node(_)));
        if sight == Sight::OfThisTurn && !changes_node {
            commit.guards.push(Guard::NodeGeneration { node: self.node.id, have: self.node.generation });
        }
        commit
    }

    /// Sends a commit; an unknown outcome is asked for again, under the same op id.
    async fn send(&self, commit: &Commit) -> Result<Outcome, TurnError> {
        let mut sent = 0;
        loop {
            sent += 1;
            match self.tools.store.commit_one(commit.clone()).await {
                Err(StoreError::Unknown { .. }) if sent < REPEATS => {}
                outcome => return Ok(outcome?),
            }
        }
    }

    /// The node's table refuses what the job wants of it. It may have moved since it was read: then the turn begins
    /// again. If it stands as it did, the job stops and asks.
    async fn node_refused(&mut self, refused: &Refused, refusals: u32, now: Timestamp) -> Result<(), TurnError> {
        let before = self.node.generation;
        self.reread_node().await?;
        if self.node.generation != before || refusals > 1 {
            return Err(TurnError::Superseded);
        }
        let failure = error(FailureClass::StateAmbiguity, "node_state_refuses", refused.to_string());
        let fence = LeaseEpoch(self.stored.state.fence.0 + 1);
        if self.job.state.epoch != self.stored.state.epoch {
            self.job.outputs = self.stored.outputs.clone();
        }
        self.job.state = self.stored.state.clone();
        self.pending.asks.clear();
        let stopped =
            self.step(&Input::Claim { fence }, now) && self.step(&Input::StageErr { fence, error: failure }, now);
        if stopped { Ok(()) } else { Err(TurnError::Superseded) }
    }

    pub(super) async fn reread_node(&mut self) -> Result<(), TurnError> {
        self.node = self.tools.store.node(self.job.node).await?.ok_or(TurnError::Superseded)?;
        Ok(())
    }

    async fn compose(&self, cause: &'static str, now: Timestamp) -> Result<Commit, Refused> {
        let actor = Actor::system("jobs");
        let moves = node_moves(&self.flow, &self.stored.state, &self.job.state, self.node.state.status);
        let live_allocations = match moves.is_empty() && self.pending.asks.is_empty() {
            true => 0,
            false => self.tools.live_work.live_allocations(self.node.id).await.unwrap_or(0),
        };
        let after = Job {
            generation: Generation(self.stored.generation.0 + 1),
            updated_at: now,
            finished_at: self.job.finished_at.or_else(|| self.job.state.status.is_terminal().then_some(now)),
            ..self.job.clone()
        };
        let wish = Wish { job: &after, asks: &self.pending.asks, moves: &moves, live_allocations, actor: &actor };
        let fails = wipe::fails(after.kind, &self.stored.state, &after.state);
        let node = match fails {
            true => Some(wipe::failed(&self.request(now), &self.node, &after, &after.state)?.change),
            false => fold(&self.node, &wish, now)?,
        };
        let told = match fails {
            true => wipe::told_of_failure(&self.node, &after, &after.state, now),
            false => Vec::new(),
        };
        let visible = !self.pending.events.is_empty() || essence(&self.stored.state) != essence(&after.state);
        let job = JobChange {
            after,
            before: Some(self.stored.state.status),
            cause: self.pending.cause.unwrap_or(cause).to_owned(),
            stage_events: self.pending.events.clone(),
            visible,
        };
        let mut changes = vec![Change::Job(Box::new(job))];
        changes.extend(node.map(|change| Change::Node(Box::new(change))));
        changes.extend(told);
        changes.extend(self.pending.changes.iter().cloned());
        Ok(Commit {
            op: OpId::generate(&*self.tools.ids, now),
            guards: Vec::new(),
            changes,
            actor,
            reason: self.job.reason.clone(),
            at: now,
            correlation: self.job.correlation,
        })
    }

    fn request(&self, now: Timestamp) -> Request<'_> {
        Request::of_system("jobs", &*self.tools.ids, now, self.job.correlation)
    }

    fn committed(&mut self, commit: Commit) -> Result<(), TurnError> {
        for change in commit.changes {
            match change {
                Change::Job(change) => self.adopt(*change),
                Change::Node(change) => self.node = change.after,
                Change::Batch(_)
                | Change::Task(_)
                | Change::Allocation(_)
                | Change::HostFacts { .. }
                | Change::ProviderState(_)
                | Change::BmcReport(_)
                | Change::ComponentReport(_)
                | Change::Bmc { .. }
                | Change::Site(_)
                | Change::SiteCredential { .. }
                | Change::Sku(_)
                | Change::Profile(_)
                | Change::PowerOverride(_)
                | Change::Roce(_)
                | Change::Removed(_)
                | Change::EnrollmentToken(_)
                | Change::ApiToken(_)
                | Change::Webhook(_)
                | Change::Silence(_)
                | Change::WebhookStep(_)
                | Change::Wipe { .. }
                | Change::WipeCertificate(_)
                | Change::Refusal { .. }
                | Change::Note { .. } => {}
            }
        }
        self.pending = Pending::default();
        self.tools.crash.pass()?;
        Ok(())
    }

    fn adopt(&mut self, change: JobChange) {
        let (before, after) = (&self.stored.state, &change.after.state);
        if before.status != after.status || before.stage != after.stage {
            let error_code = after.failure.as_ref().map(|failure| failure.error_code.as_str());
            info!(job_id = %change.after.id, node_id = %change.after.node, correlation_id = %change.after.correlation,
                stage = %after.stage, attempt = after.attempt, from = %before.status, to = %after.status,
                error_code, "job changed");
        }
        self.stored = change.after.clone();
        self.job = change.after;
    }
}

/// The state without what changes at every look.
fn essence(state: &JobState) -> JobState {
    let mut essence = JobState { fence: LeaseEpoch(0), claimed: false, next_at: None, ..state.clone() };
    if let Some(wait) = &mut essence.wait {
        wait.until = Timestamp::from_millis(0);
    }
    essence
}
