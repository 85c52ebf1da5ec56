//! The failure detector: what silence, and hearing again, mean for a node. Pure. spec: S1 "Transitions"

use std::time::Duration;

use super::registry::Watch;
use crate::node::availability::AvailabilityEvent;
use crate::node::class::SilenceTimes;
use crate::node::{Availability, Node, Status};
use crate::time::Timestamp;

/// What the registry should report about a node in this state at `now`, heard last at `last_heard`.
///
/// A ready node is reported after its window. A degraded one after the grace, counted from the degradation, and as
/// soon as it is heard again. A draining or drained one after both. Others are not judged by their silence.
pub fn watch(node: &Node, times: SilenceTimes, last_heard: Timestamp, now: Timestamp) -> Watch {
    let tolerated = match node.state.status {
        Status::BootstrapIssued | Status::Deleted => None,
        Status::Enrolling
        | Status::Active
        | Status::Offline
        | Status::Quarantined
        | Status::Draining
        | Status::Retired
        | Status::Removing => match node.state.availability {
            Availability::Ready => Some(times.window()),
            Availability::Degraded => Some(silence_before_down(node, times, last_heard, now)),
            Availability::Draining | Availability::Drained => Some(times.window() + times.grace()),
            Availability::Unknown | Availability::Booting | Availability::Down | Availability::Failed => None,
        },
    };
    Watch { silence: tolerated, report_return: node.state.availability == Availability::Degraded }
}

/// Silence after which a degraded node is down: up to its degradation, but at least the window, then the grace.
///
/// Degraded in the future: the clock was set back since, or the server that saw it has another one. That time says nothing.
fn silence_before_down(node: &Node, times: SilenceTimes, last_heard: Timestamp, now: Timestamp) -> Duration {
    let degraded_after =
        if node.availability_since > now { Duration::ZERO } else { node.availability_since.since(last_heard) };
    degraded_after.max(times.window()) + times.grace()
}

/// What the silence of a node, heard last at `last_heard`, means at `now`; none when it is still tolerated.
///
/// Never earlier than [`watch`] says, whoever asks: a row that changed since the scan is judged as it is now.
pub fn silence_verdict(
    node: &Node,
    times: SilenceTimes,
    last_heard: Timestamp,
    now: Timestamp,
) -> Option<AvailabilityEvent> {
    let tolerated = watch(node, times, last_heard, now).silence?;
    if now.since(last_heard) < tolerated {
        return None;
    }
    match node.state.availability {
        Availability::Ready => Some(AvailabilityEvent::HeartbeatMissed),
        Availability::Degraded | Availability::Draining | Availability::Drained => {
            Some(AvailabilityEvent::GraceExpired)
        }
        Availability::Unknown | Availability::Booting | Availability::Down | Availability::Failed => None,
    }
}

/// Whether a booting node's deadline has passed. While a job owns it, the deadline is that of the job's stage.
pub fn boot_is_late(node: &Node, now: Timestamp) -> bool {
    node.state.availability == Availability::Booting && node.deadline.is_some_and(|deadline| now >= deadline)
}
