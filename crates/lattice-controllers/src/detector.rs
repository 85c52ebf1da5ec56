//! The failure detector's loop body: scan, read the rows, decide, commit in one batch.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use lattice_core::allocation::Allocation;
use lattice_core::change::{Commit, Guard, Outcome};
use lattice_core::command::{Request, agent};
use lattice_core::heartbeat::{Silence, detector};
use lattice_core::ids::{CorrelationId, IdSource, LeaseEpoch, NodeId, SiteId};
use lattice_core::node::availability::AvailabilityEvent;
use lattice_core::node::{Availability, Node};
use lattice_core::time::{Timestamp, human};
use lattice_store::{Store, StoreError};
use tracing::info;

use crate::Fleet;
use crate::fleet::SiteSilences;

/// Name of the lease of the server that hears the agents, and judges who is silent.
pub const HEARS: &str = "agents";
/// Late boots judged in one tick.
const BOOTS_PER_TICK: usize = 10_000;
/// Nodes judged together. When a fleet falls silent at once, the store writes these while the next ones are read and
/// judged; and nobody else's commit waits behind more than these, about 0.1 s of work.
const AT_ONCE: usize = 2_000;
/// How soon agents are heard again after a server was not there: they wait 10 s at most.
const COMES_BACK: Duration = Duration::from_secs(15);

/// Turns silence and late boots into transitions.
pub struct Detector {
    store: Store,
    fleet: Arc<Fleet>,
    ids: Arc<dyn IdSource>,
}

/// What one tick did, by event.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Judged {
    /// Transitions that were committed.
    pub applied: HashMap<AvailabilityEvent, u64>,
    /// Nodes whose row changed under the decision; the next tick judges them anew.
    pub lost_races: u64,
}

struct Verdict {
    event: AvailabilityEvent,
    after: Node,
}

/// What was decided and is not committed yet; one commit for each verdict.
#[derive(Default)]
struct Decided {
    commits: Vec<Commit>,
    verdicts: Vec<Verdict>,
}

impl Detector {
    /// A detector over the fleet that is kept in step elsewhere.
    pub fn new(store: Store, fleet: Arc<Fleet>, ids: Arc<dyn IdSource>) -> Self {
        Self { store, fleet, ids }
    }

    /// Judges everybody who is silent, or boots too long, at `now`; under the lease of whoever hears the agents, where
    /// several servers could.
    ///
    /// # Errors
    /// The store fails: nothing is lost, the next tick finds the same.
    pub async fn tick(&self, now: Timestamp, lease: Option<LeaseEpoch>) -> Result<Judged, StoreError> {
        let mut silent = Vec::new();
        self.fleet.registry().silent(now, &mut silent);
        // Who came up while nobody listened registers within seconds: a deadline that ended meanwhile waits for that.
        let has_listened = self.fleet.registry().listens_for(now) >= COMES_BACK;
        let late = if has_listened { self.fleet.late_boots(now, BOOTS_PER_TICK) } else { Vec::new() };
        if silent.is_empty() && late.is_empty() {
            return Ok(Judged::default());
        }
        let silent: HashSet<NodeId> = silent.iter().map(|Silence { node, .. }| *node).collect();
        let mut wanted: Vec<NodeId> = silent.iter().copied().chain(late).collect();
        wanted.sort_unstable();
        wanted.dedup();
        let mut judged = Judged::default();
        let mut decided = Decided::default();
        let mut silences = HashMap::new();
        for some in wanted.chunks(AT_ONCE) {
            let next = async {
                let nodes = self.store.nodes_by_id(some).await?;
                let owned: Vec<NodeId> =
                    nodes.iter().filter(|node| node.ownership.allocations > 0).map(|node| node.id).collect();
                let placed = self.store.placed_on_any(&owned).await?;
                Ok::<_, StoreError>(self.decide(&nodes, &placed, (&silent, &mut silences), (now, lease)))
            };
            let (committed, next) = tokio::join!(self.commit(decided, now, &mut judged), next);
            committed?;
            decided = next?;
        }
        self.commit(decided, now, &mut judged).await?;
        Ok(judged)
    }

    fn decide(
        &self,
        nodes: &[Node],
        placed: &HashMap<NodeId, Vec<Allocation>>,
        (silent, silences): (&HashSet<NodeId>, &mut HashMap<SiteId, SiteSilences>),
        (now, lease): (Timestamp, Option<LeaseEpoch>),
    ) -> Decided {
        let correlation = CorrelationId::generate(&*self.ids, now);
        let mut decided = Decided::default();
        for node in nodes {
            // It may have been heard since the scan, and its row say so by now.
            let last_heard = silent.get(&node.id).and_then(|id| self.fleet.registry().last_heard(*id));
            let Some((event, detail)) = self.judge(node, last_heard, now) else {
                // The row moved on since the scan: watch it as it is now.
                self.fleet.sync(node, now);
                continue;
            };
            let request = Request::of_system("detector", &*self.ids, now, correlation);
            let placed = placed.get(&node.id).map_or(&[][..], Vec::as_slice);
            let is_lost = event == AvailabilityEvent::GraceExpired && !placed.is_empty();
            let braked_until = if is_lost {
                let of_site = silences.entry(node.site).or_insert_with(|| self.fleet.silences(node.site));
                self.fleet.braked_until(node, of_site, now)
            } else {
                None
            };
            let verdict = agent::Verdict { event, detail, placed, braked_until };
            let mut chained = agent::judged(&request, node, verdict);
            if let (Some(after), Some(mut commit), true) =
                (chained.after, chained.commits.pop(), chained.commits.is_empty())
            {
                commit.guards.extend(lease.map(|epoch| Guard::Lease { name: HEARS.to_owned(), epoch }));
                decided.commits.push(commit);
                decided.verdicts.push(Verdict { event, after });
            }
        }
        decided
    }

    fn judge(&self, node: &Node, heard: Option<Timestamp>, now: Timestamp) -> Option<(AvailabilityEvent, String)> {
        if detector::boot_is_late(node, now) {
            return Some((AvailabilityEvent::BootDeadline, "its agent did not register in time".to_owned()));
        }
        let heard = heard?;
        let event = detector::silence_verdict(node, self.fleet.times(node), heard, now)?;
        Some((event, format!("silent for {}", human(now.since(heard)))))
    }

    async fn commit(&self, decided: Decided, now: Timestamp, judged: &mut Judged) -> Result<(), StoreError> {
        let outcomes = self.store.commit(decided.commits).await?;
        for (Verdict { event, after }, outcome) in decided.verdicts.into_iter().zip(outcomes) {
            match outcome {
                Outcome::Applied { .. } | Outcome::Duplicate { .. } => {
                    if after.state.availability == Availability::Down {
                        // Its ownership is lost: it registers again before it is heard.
                        self.fleet.registry().end_session(after.id);
                    }
                    self.fleet.sync(&after, now);
                    info!(node_id = %after.id, state = %after.state, cause = %event, "node moved");
                    *judged.applied.entry(event).or_default() += 1;
                }
                Outcome::Conflict { .. } | Outcome::Missing { .. } | Outcome::Fenced => judged.lost_races += 1,
            }
        }
        Ok(())
    }
}
