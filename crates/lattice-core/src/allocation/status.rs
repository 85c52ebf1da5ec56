//! Where an allocation stands, as a table.

use serde::{Deserialize, Serialize};

/// Status of an allocation.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    utoipa::ToSchema,
    strum::Display,
    strum::EnumString,
    strum::IntoStaticStr,
    strum::VariantArray,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum AllocationStatus {
    /// It has no node.
    Requested,
    /// It has a node, whose agent is asked to start it.
    Provisioning,
    /// It runs.
    Active,
    /// Its agent is asked to end it.
    Releasing,
    /// It ended as its user wished.
    Released,
    /// It ended otherwise; an operator may queue it again.
    Failed,
}

impl AllocationStatus {
    /// Whether it has a node, and so keeps that from being empty.
    pub const fn is_placed(self) -> bool {
        match self {
            Self::Provisioning | Self::Active | Self::Releasing => true,
            Self::Requested | Self::Released | Self::Failed => false,
        }
    }

    /// Whether nothing more follows by itself.
    pub const fn is_over(self) -> bool {
        match self {
            Self::Released | Self::Failed => true,
            Self::Requested | Self::Provisioning | Self::Active | Self::Releasing => false,
        }
    }
}

/// What moves an allocation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, strum::Display, strum::VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum AllocationEvent {
    /// A node was found.
    Place,
    /// Its agent started it.
    Started,
    /// Its agent could not start it.
    StartFailed,
    /// Its user, an operator or a drain ends it.
    Release,
    /// Its agent ended it.
    Stopped,
    /// It ended by itself.
    Ended,
    /// It saved its state: it is ended, to go on elsewhere.
    Checkpointed,
    /// Its node was lost.
    NodeLost,
    /// It is queued again.
    Requeue,
}

/// One allowed move.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Edge {
    /// From.
    pub from: AllocationStatus,
    /// By.
    pub event: AllocationEvent,
    /// To.
    pub to: AllocationStatus,
}

const fn edge(from: AllocationStatus, event: AllocationEvent, to: AllocationStatus) -> Edge {
    Edge { from, event, to }
}

use AllocationEvent as E;
use AllocationStatus as S;

/// Every allowed move. What ends as failed and may run elsewhere is queued again by the same decision: its policy says
/// so. spec: S1 "Degraded → Down"; design: 2-state-model "Allocations and ownership"
pub const EDGES: &[Edge] = &[
    edge(S::Requested, E::Place, S::Provisioning),
    edge(S::Requested, E::Release, S::Released),
    edge(S::Provisioning, E::Started, S::Active),
    edge(S::Provisioning, E::StartFailed, S::Failed),
    edge(S::Provisioning, E::Release, S::Releasing),
    edge(S::Active, E::Release, S::Releasing),
    edge(S::Active, E::Ended, S::Released),
    edge(S::Active, E::Checkpointed, S::Releasing),
    edge(S::Releasing, E::Stopped, S::Released),
    edge(S::Provisioning, E::NodeLost, S::Failed),
    edge(S::Active, E::NodeLost, S::Failed),
    edge(S::Releasing, E::NodeLost, S::Released),
    edge(S::Failed, E::Requeue, S::Requested),
];

impl AllocationStatus {
    /// Where `event` leads; none: it does nothing there.
    pub fn next(self, event: AllocationEvent) -> Option<Self> {
        EDGES.iter().find(|edge| edge.from == self && edge.event == event).map(|edge| edge.to)
    }
}

#[cfg(test)]
mod tests {
    use strum::VariantArray;

    use super::*;

    #[test]
    fn every_pair_has_at_most_one_edge_and_every_status_can_end() {
        for from in AllocationStatus::VARIANTS {
            for event in AllocationEvent::VARIANTS {
                let edges = EDGES.iter().filter(|edge| edge.from == *from && edge.event == *event).count();
                assert!(edges <= 1, "{from} {event}");
            }
            let mut seen = vec![*from];
            while let Some(next) =
                EDGES.iter().find(|edge| seen.contains(&edge.from) && !seen.contains(&edge.to)).map(|edge| edge.to)
            {
                seen.push(next);
            }
            assert!(seen.iter().any(|status| status.is_over()), "{from} ends nowhere");
        }
    }

    #[test]
    fn a_lost_node_frees_whatever_was_placed_on_it() {
        for status in AllocationStatus::VARIANTS {
            let lost = status.next(AllocationEvent::NodeLost);
            assert_eq!(lost.is_some(), status.is_placed(), "{status}");
            assert!(lost.is_none_or(AllocationStatus::is_over));
        }
    }
}
