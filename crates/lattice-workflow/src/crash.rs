//! Where a process may die: after each commit and before each act; and which stage fails, in which way. Tests choose
//! the place, production never does.

use std::sync::atomic::{AtomicU64, Ordering};

use lattice_core::failure::FailureClass;
use lattice_core::job::{StageError, StageName};

use crate::stage::error;

/// Counts the places at which a crash matters and dies at a chosen one; spoils a chosen stage.
#[derive(Debug)]
pub struct CrashPlan {
    passed: AtomicU64,
    dies_at: Option<u64>,
    spoil: Option<Spoil>,
}

/// A stage that fails each time it is run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Spoil {
    /// Which.
    pub stage: StageName,
    /// With which class.
    pub class: FailureClass,
    /// Before it did anything, or after its effect.
    pub when: SpoilWhen,
}

/// When a stage is made to fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpoilWhen {
    /// Nothing was looked at or done yet.
    BeforeEffect,
    /// The effect is there, and the stage says that it failed.
    AfterEffect,
}

/// The process is to be taken for dead: whoever sees it drops all its memory and starts again from the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the process died, as planned, at place {place}")]
pub struct Crashed {
    /// Which place.
    pub place: u64,
}

impl CrashPlan {
    /// Never dies.
    pub const fn never() -> Self {
        Self { passed: AtomicU64::new(0), dies_at: None, spoil: None }
    }

    /// Dies at the place of that number, from 0, and from then on at every place: the dead do nothing.
    pub const fn at(place: u64) -> Self {
        Self { passed: AtomicU64::new(0), dies_at: Some(place), spoil: None }
    }

    /// The same, and a stage that fails.
    #[must_use]
    pub const fn spoiling(mut self, spoil: Option<Spoil>) -> Self {
        self.spoil = spoil;
        self
    }

    /// The error with which a stage is made to fail at this moment, if it is.
    pub fn spoils(&self, stage: StageName, when: SpoilWhen) -> Option<StageError> {
        let spoil = self.spoil.filter(|spoil| spoil.stage == stage && spoil.when == when)?;
        Some(error(spoil.class, "spoiled", format!("stage `{stage}` was made to fail")))
    }

    /// How many places were passed.
    pub fn passed(&self) -> u64 {
        self.passed.load(Ordering::Relaxed)
    }

    /// Passes a place.
    ///
    /// # Errors
    /// It is the chosen one, or a later one.
    pub fn pass(&self) -> Result<(), Crashed> {
        let place = self.passed.fetch_add(1, Ordering::Relaxed);
        match self.dies_at {
            Some(dies_at) if place >= dies_at => Err(Crashed { place }),
            Some(_) | None => Ok(()),
        }
    }
}
