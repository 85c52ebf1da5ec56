//! The clock of the simulator: the one place where it learns the time of day.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use lattice_core::time::{Clock, Timestamp};

/// The time of this machine.
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(i64::try_from(since_epoch().as_millis()).unwrap_or(i64::MAX))
    }
}

/// The time of this machine as the simulated region writes it.
pub fn now() -> jiff::Timestamp {
    let micros = i64::try_from(since_epoch().as_micros()).unwrap_or(i64::MAX);
    jiff::Timestamp::from_microsecond(micros).unwrap_or(jiff::Timestamp::MAX)
}

/// How long it is until `at`; nothing when it has passed.
pub fn until(at: jiff::Timestamp) -> Duration {
    Duration::try_from(at.duration_since(now())).unwrap_or(Duration::ZERO)
}

fn since_epoch() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}
