//! How often one connection may send heartbeats: a host that goes wild costs little, and holds up nobody.

use std::sync::atomic::{AtomicI64, Ordering};

use lattice_core::time::Timestamp;

/// Heartbeats that one connection may send in a second for long; an agent that works through tasks sends a few.
pub(super) const HEARTBEATS_PER_SECOND: i64 = 100;
const EACH_MS: i64 = 1_000 / HEARTBEATS_PER_SECOND;
/// How far it may be ahead: twice as many at once.
const AHEAD_MS: i64 = 2_000;

/// What is left of it: the time, in milliseconds, up to which it was used.
#[derive(Default)]
pub(super) struct Allowance(AtomicI64);

impl Allowance {
    /// Takes one at `now`; false when none is left. A clock that was set back begins anew.
    pub(super) fn take(&self, now: Timestamp) -> bool {
        let now = now.as_millis();
        let taken = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used| {
            let used = if used > now + AHEAD_MS + EACH_MS { now } else { used.max(now) };
            (used + EACH_MS <= now + AHEAD_MS).then_some(used + EACH_MS)
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
        let allowance = Allowance::default();
        assert_eq!(taken(&allowance, 1_000_000, 1_000), 200);
        assert_eq!(taken(&allowance, 1_000_500, 1_000), 50);
        assert_eq!(taken(&allowance, 1_100_000, 1_000), 200, "what was not used is not saved up");
        assert_eq!(taken(&allowance, 500_000, 1_000), 200);
    }
}
