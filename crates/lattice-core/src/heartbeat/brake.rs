//! The brake on mass failures: when most of a site falls silent at once, the fault is likely ours or the network's, and
//! what Down does to running work can wait for evidence. Pure. design: 2-state-model "Brake"

use std::time::Duration;

use crate::node::{Availability, DownCause, Node};
use crate::time::Timestamp;

/// Fewest nodes whose silence is a mass failure.
pub const FEWEST: usize = 10;
/// How long the consequences of Down are held back, unless evidence or an operator comes first.
pub const HOLDS: Duration = Duration::from_secs(600);

/// Since when a node is silent, as its row tells; none: it is not, or not for that reason it is what it is.
pub fn silent_since(node: &Node, grace: Duration) -> Option<Timestamp> {
    match node.state.availability {
        Availability::Degraded if node.minor_issue.is_none() => Some(node.availability_since),
        Availability::Down if node.down_cause == Some(DownCause::HeartbeatLost) => {
            let grace = i64::try_from(grace.as_millis()).unwrap_or(i64::MAX);
            Some(Timestamp::from_millis(node.availability_since.as_millis().saturating_sub(grace)))
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

/// When the silence of a node began that is found at `now` to have lasted too long. One that drains, or has an issue, tells
/// nothing of its silence before.
pub fn silence_began(node: &Node, grace: Duration, now: Timestamp) -> Timestamp {
    let grace_ms = i64::try_from(grace.as_millis()).unwrap_or(i64::MAX);
    silent_since(node, grace).unwrap_or_else(|| Timestamp::from_millis(now.as_millis().saturating_sub(grace_ms)))
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

/// Whether the silence of a node that began at `since` is part of a mass failure: more than half of the site's `members`,
/// and at least [`FEWEST`], fell silent within one `window` around it.
///
/// `silences` are the starts of all silences of the site that still last, this node's among them.
pub fn is_mass_failure(
    silences: impl Iterator<Item = Timestamp>,
    since: Timestamp,
    window: Duration,
    members: usize,
) -> bool {
    let within = |other: Timestamp| other.since(since).max(since.since(other)) <= window;
    let together = silences.filter(|other| within(*other)).count();
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
        is_mass_failure(silences.iter().copied(), at(since), WINDOW, members)
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
}
