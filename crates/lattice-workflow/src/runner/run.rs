//! Runs or undoes one stage within a turn.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use lattice_core::change::Change;
use lattice_core::failure::FailureClass;
use lattice_core::ids::LeaseEpoch;
use lattice_core::job::flow::Flow;
use lattice_core::job::{Input, Job, StageError, StageEvent, StageEventStatus, StageName, UndoKind};
use lattice_core::node::Node;
use lattice_core::site::Site;
use lattice_core::time::Timestamp;

use super::commit::Sight;
use super::{TurnError, Work};
use crate::crash::SpoilWhen;
use crate::stage::{Context, Delta, Observation, Outcome, StageRunner, error};
use crate::stages::stage_runner;
use crate::tools::Tools;

/// What `next` asks for.
pub(super) struct Run {
    pub(super) stage: StageName,
    pub(super) attempt: u32,
    pub(super) window: u32,
    pub(super) observe: bool,
    pub(super) needs_intent: bool,
    pub(super) intended: bool,
    pub(super) key: String,
}

impl Work {
    pub(super) async fn run(&mut self, run: Run, now: Timestamp) -> Result<(), TurnError> {
        self.begin(run.stage, run.attempt);
        let fence = self.claim(now);
        let runner = stage_runner(run.stage);
        if let Some(error) = self.tools.crash.spoils(run.stage, SpoilWhen::BeforeEffect) {
            self.failed(run.stage, run.attempt, fence, error, Delta::default());
            return Ok(());
        }
        match self.look(runner, &run, now).await {
            Ok(Observation::Done(delta)) => {
                self.succeeded(run.stage, run.attempt, fence, delta);
                Ok(())
            }
            Ok(Observation::Waiting { recheck_at, waiting_for, delta }) => {
                self.waits(fence, recheck_at, waiting_for, delta);
                Ok(())
            }
            Ok(Observation::Failed(error, delta)) => {
                self.failed(run.stage, run.attempt, fence, error, delta);
                Ok(())
            }
            Ok(Observation::CannotTell { why }) if run.intended => {
                let unknown = error(FailureClass::StateAmbiguity, "effect_unknown", why);
                self.failed(run.stage, run.attempt, fence, unknown, Delta::default());
                Ok(())
            }
            Ok(Observation::Absent | Observation::CannotTell { .. }) => self.act(runner, &run, fence).await,
            Err(error) => {
                self.failed(run.stage, run.attempt, fence, error, Delta::default());
                Ok(())
            }
        }
    }

    async fn look(&self, runner: &dyn StageRunner, run: &Run, now: Timestamp) -> Result<Observation, StageError> {
        if !run.observe {
            return Ok(Observation::Absent);
        }
        let job = self.job.clone();
        let Some(ctx) = self.context(&job, run.stage, run.window, now) else { return Err(unknown_stage(run.stage)) };
        within(self.tools.limits.observe, runner.observe(&ctx)).await
    }

    async fn act(&mut self, runner: &dyn StageRunner, run: &Run, fence: LeaseEpoch) -> Result<(), TurnError> {
        // What only reads needs neither a claim nor an intent in the store.
        if run.observe {
            if run.needs_intent && !run.intended {
                let now = self.tools.clock.now();
                self.step(&Input::IntentRecorded { fence }, now);
            }
            self.commit_claim(Sight::OfThisTurn).await?;
            self.tools.crash.pass()?;
        }
        let outcome = self.act_under_lease(runner, run).await?;
        match self.tools.crash.spoils(run.stage, SpoilWhen::AfterEffect).map_or(outcome, Err) {
            Ok(Outcome::Done(delta)) => self.succeeded(run.stage, run.attempt, fence, delta),
            Ok(Outcome::StillGoing { recheck_at, waiting_for, delta }) => {
                self.waits(fence, recheck_at, waiting_for, delta);
            }
            Ok(Outcome::Failed(error, delta)) => self.failed(run.stage, run.attempt, fence, error, delta),
            Err(error) => self.failed(run.stage, run.attempt, fence, error, Delta::default()),
        }
        if run.observe { self.flush().await } else { Ok(()) }
    }

    async fn act_under_lease(
        &mut self,
        runner: &dyn StageRunner,
        run: &Run,
    ) -> Result<Result<Outcome, StageError>, TurnError> {
        let (job, node, tools, site, flow) = self.parts();
        let Some(stage) = flow.stage(run.stage) else { return Ok(Err(unknown_stage(run.stage))) };
        let ctx = Context {
            job: &job,
            node: &node,
            site: &site,
            flow: &flow,
            stage,
            window: run.window,
            now: tools.clock.now(),
            tools: &tools,
        };
        self.under_lease(within(tools.limits.act, runner.act(&ctx, &run.key))).await
    }

    /// What a context is made of, apart from the work itself.
    fn parts(&self) -> (Job, Node, Arc<Tools>, Arc<Site>, Flow) {
        (self.job.clone(), self.node.clone(), self.tools.clone(), self.site.clone(), self.flow.clone())
    }

    /// Acts until its deadline, and renews the lease at a third of its life meanwhile.
    async fn under_lease<T>(&mut self, act: impl Future<Output = T>) -> Result<T, TurnError> {
        let mut act = std::pin::pin!(act);
        let is_leased = self.job.lease.is_some();
        loop {
            let renewal = tokio::time::sleep(self.tools.limits.lease / 3);
            tokio::select! {
                biased;
                outcome = &mut act => return Ok(outcome),
                () = renewal, if is_leased => self.commit_claim(Sight::Any).await?,
            }
        }
    }

    pub(super) async fn undo(
        &mut self,
        stage: StageName,
        kind: UndoKind,
        attempt: u32,
        key: &str,
        now: Timestamp,
    ) -> Result<(), TurnError> {
        let fence = self.claim(now);
        self.commit_claim(Sight::Any).await?;
        self.tools.crash.pass()?;
        let (job, node, tools, site, flow) = self.parts();
        let outcome = match flow.stage(stage) {
            Some(at) => {
                let (job, node, site, flow, tools) = (&job, &node, &site, &flow, &tools);
                let ctx = Context { job, node, site, flow, stage: at, window: 1, now, tools };
                let undo = within(tools.limits.act, stage_runner(stage).undo(&ctx, kind, key));
                self.under_lease(undo).await?
            }
            None => Err(unknown_stage(stage)),
        };
        let now = self.tools.clock.now();
        match outcome {
            Ok(Outcome::Done(delta)) => {
                let message = self.take(delta);
                self.step(&Input::UndoOk { fence }, now);
                self.event(stage, attempt, StageEventStatus::Compensated, message);
            }
            Ok(Outcome::StillGoing { recheck_at, waiting_for, delta }) => {
                self.waits(fence, recheck_at, waiting_for, delta);
            }
            Ok(Outcome::Failed(error, delta)) => {
                self.take(delta);
                self.undo_failed(stage, attempt, fence, error);
            }
            Err(error) => self.undo_failed(stage, attempt, fence, error),
        }
        self.flush().await
    }

    fn undo_failed(&mut self, stage: StageName, attempt: u32, fence: LeaseEpoch, error: StageError) {
        let now = self.tools.clock.now();
        self.event(stage, attempt, StageEventStatus::Failed, format!("undo: {}", error.message));
        self.step(&Input::UndoErr { fence, error }, now);
    }

    /// Notes that the stage began, once.
    fn begin(&mut self, stage: StageName, attempt: u32) {
        let (stored, state) = (&self.stored.state, &self.job.state);
        let is_same = stored.stage == stage
            && stored.stage_entered_at == state.stage_entered_at
            && (stored.wait.is_some() || stored.claimed);
        if attempt == 1 && !is_same {
            self.event(stage, attempt, StageEventStatus::Started, String::new());
        }
    }

    fn claim(&mut self, now: Timestamp) -> LeaseEpoch {
        let fence = LeaseEpoch(self.job.state.fence.0 + 1);
        self.step(&Input::Claim { fence }, now);
        fence
    }

    fn succeeded(&mut self, stage: StageName, attempt: u32, fence: LeaseEpoch, delta: Delta) {
        let skipped = delta.skipped;
        let message = self.take(delta);
        let status = if skipped { StageEventStatus::Skipped } else { StageEventStatus::Succeeded };
        self.event(stage, attempt, status, message);
        self.pending.cause.get_or_insert("stage_ok");
        let now = self.tools.clock.now();
        self.step(&Input::StageOk { fence }, now);
    }

    fn waits(&mut self, fence: LeaseEpoch, recheck_at: Timestamp, waiting_for: String, delta: Delta) {
        self.take(delta);
        let now = self.tools.clock.now();
        self.step(&Input::StageWaiting { fence, recheck_at, waiting_for }, now);
    }

    fn failed(&mut self, stage: StageName, attempt: u32, fence: LeaseEpoch, error: StageError, delta: Delta) {
        self.take_at(delta, true);
        self.event(stage, attempt, StageEventStatus::Failed, format!("{}: {}", error.error_code, error.message));
        self.pending.cause = Some("stage_failed");
        let now = self.tools.clock.now();
        self.step(&Input::StageErr { fence, error }, now);
    }

    /// Takes over what a stage found out; its line for people is left.
    fn take(&mut self, delta: Delta) -> String {
        self.take_at(delta, false)
    }

    /// The same; a failure shows when the provider said so last, even if it had said it before. spec: S5 4.12
    fn take_at(&mut self, delta: Delta, is_failure: bool) -> String {
        if let Some(outputs) = delta.outputs {
            self.job.outputs = outputs;
        }
        // The same words of the provider at another time are not worth a row.
        let mut changes = delta.changes;
        if let Some(observed) = delta.observed {
            let known = self.job.observed.as_ref().is_some_and(|known| {
                (&known.status, known.power, &known.addresses)
                    == (&observed.status, observed.power, &observed.addresses)
            });
            if known && !is_failure {
                changes.retain(|change| !matches!(change, Change::ProviderState(_)));
            } else {
                self.job.observed = Some(observed);
            }
        }
        for change in changes {
            if matches!(change, Change::ProviderState(_)) {
                self.pending.changes.retain(|earlier| !matches!(earlier, Change::ProviderState(_)));
            }
            self.pending.changes.push(change);
        }
        self.pending.asks.extend(delta.node);
        delta.message
    }

    fn event(&mut self, stage: StageName, attempt: u32, status: StageEventStatus, message: String) {
        let round = self.job.state.round;
        self.pending.events.push(StageEvent { stage, attempt, round, status, message });
    }

    fn context<'a>(&'a self, job: &'a Job, stage: StageName, window: u32, now: Timestamp) -> Option<Context<'a>> {
        Some(Context {
            job,
            node: &self.node,
            site: &self.site,
            flow: &self.flow,
            stage: self.flow.stage(stage)?,
            window,
            now,
            tools: &self.tools,
        })
    }
}

fn unknown_stage(stage: StageName) -> StageError {
    error(FailureClass::StateAmbiguity, "unknown_stage", format!("this version has no stage `{stage}` in the flow"))
}

/// Runs something of a stage no longer than its limit; what was cut off is observed by the next turn.
async fn within<T>(limit: Duration, work: impl Future<Output = Result<T, StageError>>) -> Result<T, StageError> {
    match tokio::time::timeout(limit, work).await {
        Ok(result) => result,
        Err(_) => Err(error(
            FailureClass::UpstreamTransient,
            "call_timeout",
            format!("no answer within {}", lattice_core::time::human(limit)),
        )),
    }
}
