//! The process's clock and its source of ids: the only places that read the time or draw random numbers.

use std::time::{SystemTime, UNIX_EPOCH};

use lattice_core::ids::{IdSource, uuid_v7};
use lattice_core::time::{Clock, Timestamp};

/// The system's clock.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Timestamp::from_millis(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
    }
}

/// Measures how long something takes, for metrics alone: nothing is decided by it.
#[derive(Debug, Clone, Copy)]
pub struct Stopwatch(std::time::Instant);

impl Stopwatch {
    /// Begins now.
    pub fn start() -> Self {
        Self(std::time::Instant::now())
    }

    /// Time since the start.
    pub fn elapsed(self) -> std::time::Duration {
        self.0.elapsed()
    }
}

/// Ids from the operating system's entropy.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemIds;

impl IdSource for SystemIds {
    fn uuid(&self, at: Timestamp) -> uuid::Uuid {
        uuid_v7(at, rand::random())
    }
}
