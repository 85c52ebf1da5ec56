//! Where a process may die: after each commit and before each act. Tests choose the place, production never does.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counts the places at which a crash matters and dies at a chosen one.
#[derive(Debug)]
pub struct CrashPlan {
    passed: AtomicU64,
    dies_at: Option<u64>,
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
        Self { passed: AtomicU64::new(0), dies_at: None }
    }

    /// Dies at the place of that number, from 0, and from then on at every place: the dead do nothing.
    pub const fn at(place: u64) -> Self {
        Self { passed: AtomicU64::new(0), dies_at: Some(place) }
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
