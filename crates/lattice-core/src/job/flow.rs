//! What a flow is: stages in order, with everything about them as data. spec: S5 4.6, 4.10

use std::time::Duration;

use super::flows::FlowName;
use super::operator_action::DecisionKind;
use super::stage::StageName;
use super::state::CompensateTo;
use crate::failure::FailureClass;
use crate::node::Status;

/// How a stage may be entered again after a crash, a retry or a rerun. spec: S5 4.10
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reentry {
    /// It only reads: run it.
    Pure,
    /// Observe first; repeating the effect changes nothing.
    ObserveFirst,
    /// Observe first, commit the intent, act once: a repeated effect does harm.
    NeverBlind,
}

/// When a stage is entered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Enter {
    /// After the stage before it.
    InSequence,
    /// Only when that stage failed with that class; the sequence passes over it.
    OnFailure {
        /// Whose failure.
        of: StageName,
        /// Which class.
        class: FailureClass,
    },
    /// Only from a back-edge of the flow; the sequence passes over it.
    BackEdge,
}

/// How often errors in a row are tried again by themselves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Attempts {
    /// That many attempts, the first included.
    Bounded(u32),
    /// Until the stage's timeout.
    UntilTimeout,
}

/// Pause before the next attempt: doubles from `first` to `max`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backoff {
    /// After the first error.
    pub first: Duration,
    /// At most.
    pub max: Duration,
}

impl Backoff {
    /// Pause after that many errors in a row, the first one being 1.
    pub fn after(self, errors: u32) -> Duration {
        let factor = 1_u32 << errors.saturating_sub(1).min(16);
        self.first.saturating_mul(factor).min(self.max)
    }
}

/// Longest time of a stage, and what it means when it is over. Judged only with a fresh observation: the last
/// look happens at the deadline, and may still find the success. spec: S5 4.14
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timeout {
    /// Length of one window.
    pub after: Duration,
    /// Class of the failure.
    pub class: FailureClass,
    /// Code of the failure.
    pub error_code: &'static str,
    /// How many windows, the first included.
    pub windows: u32,
}

/// What happens when a stage's attempts are used up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failing {
    /// The class decides.
    ByClass,
    /// An operator must look, whatever the class.
    ForOperator,
    /// The stage is not essential: a warning is kept, the job goes on. Never for `state_ambiguity`.
    Continues,
}

/// What undoes a stage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum UndoKind {
    /// The enrolment token dies.
    RevokeEnrollmentToken,
    /// Abort what runs in MAAS and release the machine back to Ready.
    ReleaseToReady,
    /// Stop and delete the LXD instance.
    DeleteInstance,
    /// Take the drain back.
    Undrain,
    /// What the machine booted before is set again.
    RestoreBootParameters,
    /// The drive that its BMC erases is waited for.
    AwaitErasure,
}

/// How a stage is undone. Undoing observes first, always.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Undo {
    /// What it does.
    pub kind: UndoKind,
    /// Attempts, the first included.
    pub attempts: u32,
    /// Pause between them.
    pub backoff: Backoff,
    /// Longest time, waiting included.
    pub timeout: Duration,
    /// Once that stage was entered in this epoch, this is not undone any more.
    pub until: Option<StageName>,
}

/// One stage as data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stage {
    /// Its name.
    pub name: StageName,
    /// When it is entered.
    pub enter: Enter,
    /// How it may be repeated.
    pub reentry: Reentry,
    /// Errors in a row.
    pub attempts: Attempts,
    /// Pause between attempts.
    pub backoff: Backoff,
    /// Longest time.
    pub timeout: Timeout,
    /// What happens when it fails for good.
    pub failing: Failing,
    /// The last safe stage: where `resume` continues when this one failed. None: here.
    pub resume_at: Option<StageName>,
    /// What undoes it.
    pub undo: Option<Undo>,
    /// Decisions it can be given.
    pub decisions: &'static [DecisionKind],
    /// Status that its node has while it runs, if it changes it.
    pub node_during: Option<Status>,
    /// Status that its node has once it succeeded, if it changes it.
    pub node_after: Option<Status>,
}

/// A bounded way back: a failure with that class and code at one of those stages leads to `to`, in a new round.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BackEdge {
    /// Where it may start.
    pub from: &'static [StageName],
    /// With which class.
    pub class: FailureClass,
    /// With which code.
    pub error_code: &'static str,
    /// The stage that clears the way, where something has to be cleared.
    pub via: Option<StageName>,
    /// Where the new round starts.
    pub to: StageName,
    /// How many times it is taken without an operator, per epoch.
    pub max_rounds: u32,
}

/// Longest time of several stages together, from the entry of the first of them to the end of the job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limit {
    /// The stage whose entry starts it.
    pub from: StageName,
    /// How long.
    pub after: Duration,
    /// Class of the failure.
    pub class: FailureClass,
    /// Code of the failure.
    pub error_code: &'static str,
}

/// A flow: the stages of a kind of job, in order, with the values of the policy at hand.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Flow {
    /// Which flow.
    pub name: FlowName,
    /// Version of the table.
    pub version: u32,
    /// Its stages, in order.
    pub stages: Vec<Stage>,
    /// Its way back, if it has one.
    pub back_edge: Option<BackEdge>,
    /// Longest time of its later stages together, if there is one.
    pub limit: Option<Limit>,
}

impl Flow {
    /// Place of a stage; None when the table does not have it (any more).
    pub fn position(&self, name: StageName) -> Option<usize> {
        self.stages.iter().position(|stage| stage.name == name)
    }

    /// A stage by name.
    pub fn stage(&self, name: StageName) -> Option<&Stage> {
        self.stages.iter().find(|stage| stage.name == name)
    }

    /// The stage that every job of it starts with.
    pub fn first(&self) -> &Stage {
        self.stages.first().expect("a flow has stages: a test walks them")
    }

    /// The stage after that one in sequence; None after the last.
    pub fn after(&self, name: StageName) -> Option<&Stage> {
        let position = self.position(name)?;
        self.stages[position + 1..].iter().find(|stage| stage.enter == Enter::InSequence)
    }

    /// The stage of the sequence at which a job stands: that of a detour is where the sequence was left.
    pub fn in_sequence(&self, name: StageName) -> Option<StageName> {
        match self.stage(name)?.enter {
            Enter::InSequence => Some(name),
            Enter::OnFailure { of, .. } => Some(of),
            Enter::BackEdge => self.back_edge.as_ref()?.from.first().copied(),
        }
    }

    /// The detour that a failure of that stage leads into.
    pub fn detour(&self, of: StageName, class: FailureClass) -> Option<&Stage> {
        self.stages.iter().find(|stage| stage.enter == Enter::OnFailure { of, class })
    }

    /// The last stage that an undo is due for: entered in this epoch (up to `highest`), before `below` if given,
    /// and still to be undone by the rule of that stage. design: 3-jobs "Compensation"
    pub fn next_undo(&self, highest: StageName, below: Option<StageName>, to: CompensateTo) -> Option<&Stage> {
        let highest = self.position(highest)?;
        let end = below.and_then(|name| self.position(name)).unwrap_or(highest + 1).min(highest + 1);
        self.stages[..end].iter().rev().find(|stage| stage.undo.is_some_and(|undo| self.is_due(undo, highest, to)))
    }

    /// Whether restarting would meet an effect that the rule does not undo by itself.
    pub fn keeps_effects(&self, highest: StageName) -> bool {
        let Some(highest) = self.position(highest) else { return false };
        self.stages.iter().filter_map(|stage| stage.undo).any(|undo| self.is_passed(undo, highest))
    }

    fn is_due(&self, undo: Undo, highest: usize, to: CompensateTo) -> bool {
        match to {
            CompensateTo::Cancelled => !self.is_passed(undo, highest),
            CompensateTo::Restart { release_deployed } => release_deployed || !self.is_passed(undo, highest),
        }
    }

    fn is_passed(&self, undo: Undo, highest: usize) -> bool {
        undo.until.and_then(|name| self.position(name)).is_some_and(|limit| highest >= limit)
    }
}
