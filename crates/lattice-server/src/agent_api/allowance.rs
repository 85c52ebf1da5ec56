//! How often one connection may send something: a host that goes wild costs little, and holds up nobody.

use std::sync::atomic::{AtomicI64, Ordering};

use lattice_core::time::Timestamp;

/// Heartbeats that one connection may send in a second for long; an agent that works through tasks sends a few.
pub(super) const HEARTBEATS_PER_SECOND: i64 = 100;

/// What is left of it.
pub(super) struct Allowance {
    /// The time, in milliseconds, up to which it was used.
    used: AtomicI64,
    each_ms: i64,
    /// How far it may be ahead: what may come at once.
    ahead_ms: i64,
}

impl Allowance {
    /// Of heartbeats: two seconds' worth of them at once.
    pub(super) const fn of_heartbeats() -> Self {
        Self { used: AtomicI64::new(0), each_ms: 1_000 / HEARTBEATS_PER_SECOND, ahead_ms: 2_000 }
    }

    /// Of what changes a row - registrations, another health, another fingerprint: one in a second, twenty at once.
    pub(super) const fn of_news() -> Self {
        Self { used: AtomicI64::new(0), each_ms: 1_000, ahead_ms: 20_000 }
    }

    /// Takes one at `now`; false when none is left. A clock that was set back begins anew.
    pub(super) fn take(&self, now: Timestamp) -> bool {
        let (now, each, ahead) = (now.as_millis(), self.each_ms, self.ahead_ms);
        let taken = self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used| {
            let used = if used > now + ahead + each { now } else { used.max(now) };
            (used + each <= now + ahead).then_some(used + each)
        });
        taken.is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(allowance: &Allowance, at_ms: i64, tries: usize) -> usize {
        (0..tries).filter(|_| allowance.take(Timestamp::from_millis(at_ms))).count()
    }

    #[test]
    fn a_burst_is_taken_then_the_rate_and_a_clock_set_back_locks_nobody_out() {
        let allowance = Allowance::of_heartbeats();
        assert_eq!(taken(&allowance, 1_000_000, 1_000), 200);
        assert_eq!(taken(&allowance, 1_000_500, 1_000), 50);
        assert_eq!(taken(&allowance, 1_100_000, 1_000), 200, "what was not used is not saved up");
        assert_eq!(taken(&allowance, 500_000, 1_000), 200);
    }
    #[test]
    fn news_come_in_a_burst_then_once_a_second() {
        let allowance = Allowance::of_news();
        assert_eq!(taken(&allowance, 1_000_000, 100), 20);
        assert_eq!(taken(&allowance, 1_003_000, 100), 3);
    }
}
