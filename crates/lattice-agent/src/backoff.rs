//! Full jitter: after a failure, wait anything between nothing and a ceiling, so that agents that lost the server together
//! do not come back together. The ceiling doubles twice and stays there for as long as a server takes to start again: a
//! fleet is back seconds after it. Then it doubles on: an outage that lasts is asked about less and less.

use std::time::Duration;

/// Doublings at first.
const QUICK: u32 = 2;
/// Failures before the ceiling grows again.
const RESTARTS: u32 = 8;

/// Counts failures in a row.
#[derive(Debug, Clone, Copy)]
pub struct Backoff {
    base: Duration,
    failures: u32,
}

impl Backoff {
    /// No failure yet.
    pub fn new(base: Duration) -> Self {
        Self { base, failures: 0 }
    }

    /// It worked.
    pub fn reset(&mut self) {
        self.failures = 0;
    }

    /// It failed: how long to wait, at most `cap`. `random` is drawn evenly from 0..1.
    pub fn failed(&mut self, cap: Duration, random: f64) -> Duration {
        let doublings = self.failures.min(QUICK).max(self.failures.saturating_sub(RESTARTS - QUICK - 1)).min(16);
        let ceiling = self.base.saturating_mul(1 << doublings).min(cap);
        self.failures = self.failures.saturating_add(1);
        ceiling.mul_f64(random.clamp(0.0, 1.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_and_rest_and_double_up_to_the_cap_and_start_over_after_a_success() {
        let mut backoff = Backoff::new(Duration::from_millis(500));
        let cap = Duration::from_secs(10);
        let waits: Vec<_> = (0..12).map(|_| backoff.failed(cap, 1.0).as_millis()).collect();
        let quick = [500, 1_000, 2_000, 2_000, 2_000, 2_000, 2_000, 2_000];
        assert_eq!(waits, [&quick[..], &[4_000, 8_000, 10_000, 10_000]].concat());
        assert!((0..100).all(|_| backoff.failed(cap, 1.0) == cap));
        backoff.reset();
        assert_eq!(backoff.failed(cap, 0.5).as_millis(), 250);
        assert_eq!(backoff.failed(cap, 0.0).as_millis(), 0);
    }
}
