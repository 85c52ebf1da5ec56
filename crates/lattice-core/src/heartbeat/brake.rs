//! The brake on mass failures: when most of a site falls silent at once, the fault is likely ours or the network's, and
//! what Down does to running work can wait for evidence. Pure. design: 2-state-model "Brake"

use std::time::Duration;

use crate::node::class::SilenceTimes;
use crate::node::{Availability, DownCause, Node};
use crate::time::Timestamp;

/// Fewest nodes whose silence is a mass failure.
pub const FEWEST: usize = 10;
/// How long the consequences of Down are held back, unless evidence or an operator comes first.
pub const HOLDS: Duration = Duration::from_secs(600);

/// When a silent node was heard last, as its row tells; none: it is not silent, or not for that reason it is what it is.
pub fn silent_since(node: &Node, times: SilenceTimes) -> Option<Timestamp> {
    match node.state.availability {
        Availability::Degraded if node.minor_issue.is_none() => Some(node.availability_since - times.window()),
        Availability::Down if node.down_cause == Some(DownCause::HeartbeatLost) => {
            Some(node.availability_since - (times.window() + times.grace()))
        }
        Availability::Unknown
        | Availability::Booting
        | Availability::Ready
        | Availability::Degraded
        | Availability::Down
        | Availability::Draining
        | Availability::Drained
        | Availability::Failed => None,
    }
}

/// When the silence of a node began that is found at `now` to have lasted too long. The row of one that drains, or has an
/// issue, tells nothing of its silence before.
pub fn silence_began(node: &Node, times: SilenceTimes, now: Timestamp) -> Timestamp {
    silent_since(node, times).unwrap_or_else(|| now - (times.window() + times.grace()))
}

/// Whether a node counts among those of its site whose silence would be noticed.
pub fn is_member(node: &Node) -> bool {
    match node.state.availability {
        Availability::Ready | Availability::Degraded | Availability::Draining | Availability::Drained => true,
        Availability::Down => node.down_cause == Some(DownCause::HeartbeatLost),
        Availability::Unknown | Availability::Booting | Availability::Failed => false,
    }
}

/// Whether what the loss of a braked node brings is due: the brake ended, or an operator let go of its site since it went
/// down.
pub fn lets_go(node: &Node, let_go_at: Option<Timestamp>, now: Timestamp) -> bool {
    node.ownership.braked_until.is_some_and(|until| now >= until)
        || let_go_at.is_some_and(|at| at >= node.availability_since)
}

/// When the silences of a site began.
pub struct Silences {
    in_order: Vec<Timestamp>,
}

impl Silences {
    /// Of these nodes, in any order.
    pub fn new(starts: impl Iterator<Item = Timestamp>) -> Self {
        let mut in_order: Vec<Timestamp> = starts.collect();
        in_order.sort_unstable();
        Self { in_order }
    }

    /// How many began within one `window` around `since`, and last for as long at `now`: who was heard since then is not
    /// silent.
    pub fn around(&self, since: Timestamp, window: Duration, now: Timestamp) -> usize {
        let from = self.in_order.partition_point(|start| *start < since - window);
        let latest = (since + window).min(now - window);
        self.in_order.partition_point(|start| *start <= latest).saturating_sub(from)
    }
}

/// From when on a node must have fallen at `now` to be held back still.
pub fn silenced_since(now: Timestamp) -> Timestamp {
    now - HOLDS
}

/// Whether nodes that fell silent `together`, within one window, are a mass failure: more than half of the site's
/// `members`, and at least [`FEWEST`].
pub const fn is_mass_failure(together: usize, members: usize) -> bool {
    together >= FEWEST && together * 2 > members
}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW: Duration = Duration::from_secs(30);

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_millis(1_000_000 + seconds * 1_000)
    }

    fn mass(silences: &[Timestamp], since: i64, members: usize) -> bool {
        let silences = Silences::new(silences.iter().copied());
        is_mass_failure(silences.around(at(since), WINDOW, at(since + 90)), members)
    }

    #[test]
    fn more_than_half_and_at_least_ten_within_one_window_are_a_mass_failure() {
        let silences = vec![at(0); 11];
        assert!(mass(&silences, 0, 20));
        assert!(!mass(&silences, 0, 22), "half is not more than half");
        assert!(!mass(&silences[..9], 0, 9), "nine nodes are a rack, not a mass");
        let spread: Vec<Timestamp> = (0..11).map(|index| at(index * 60)).collect();
        assert!(!mass(&spread, 300, 12), "one after the other is no mass failure");
    }

    #[test]
    fn a_window_has_two_ends_and_who_was_heard_within_it_is_not_silent() {
        let silences = Silences::new([31, 30, 0, -30, -31].into_iter().map(at));
        assert_eq!(silences.around(at(0), WINDOW, at(90)), 3, "thirty seconds before to thirty after");
        assert_eq!(silences.around(at(0), WINDOW, at(59)), 2, "the one at 30 was heard 29 s ago");
        assert_eq!(silences.around(at(0), WINDOW, at(-10)), 0);
    }
}
