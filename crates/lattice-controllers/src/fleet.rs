//! Keeps the registry of heartbeats in step with the store: who may be heard, what silence is reported.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use lattice_core::heartbeat::brake::{self, Silences};
use lattice_core::heartbeat::{Registry, detector};
use lattice_core::ids::{NodeId, OwnershipEpoch, SiteId};
use lattice_core::node::class::{HeartbeatPolicy, SilenceTimes};
use lattice_core::node::{Availability, Node, Status};
use lattice_core::site::SiteBrake;
use lattice_core::time::Timestamp;
use lattice_store::{Event, Store, StoreError};

/// The fleet as the detector sees it: the registry, the sites' times, the boots that have a deadline.
pub struct Fleet {
    store: Store,
    registry: Arc<Registry>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    policies: HashMap<SiteId, HeartbeatPolicy>,
    brakes: HashMap<SiteId, SiteBrake>,
    deadlines: HashMap<NodeId, Timestamp>,
    by_time: BTreeSet<(Timestamp, NodeId)>,
    members: HashMap<SiteId, HashMap<NodeId, Member>>,
    /// The ownership of nodes whose agents have not registered under it yet.
    unconfirmed: HashMap<NodeId, OwnershipEpoch>,
}

/// A node whose silence would be noticed, as its row tells of it.
#[derive(Clone, Copy)]
struct Member {
    silent_since: Option<Timestamp>,
    is_down: bool,
}

/// The silences of one site at one time. What the rows tell outlasts a restart of the server; what was heard tells of those,
/// too, of whom nothing was decided yet: classes have different windows.
pub struct SiteSilences {
    by_rows: Silences,
    by_hearing: Silences,
    members: usize,
}

impl Member {
    fn of(node: &Node, times: SilenceTimes) -> Self {
        let is_down = node.state.availability == Availability::Down;
        Self { silent_since: brake::silent_since(node, times), is_down }
    }
}

impl Fleet {
    /// An empty fleet; [`Fleet::load`] fills it.
    pub fn new(store: Store, registry: Arc<Registry>) -> Self {
        Self { store, registry, state: Mutex::default() }
    }

    /// The registry it keeps in step.
    pub const fn registry(&self) -> &Arc<Registry> {
        &self.registry
    }

    /// Reads all sites and nodes. Silence counts from `now` at the earliest, so a start never makes a node Down.
    ///
    /// # Errors
    /// The store fails.
    pub async fn load(&self, now: Timestamp) -> Result<(), StoreError> {
        self.load_sites().await?;
        self.sync_all(now).await?;
        self.registry.restart_silence(now);
        Ok(())
    }

    /// Takes in what changed, from the store's feed.
    ///
    /// # Errors
    /// The store fails; the same events may be handed in again.
    pub async fn take_in(&self, events: &[Event], now: Timestamp) -> Result<(), StoreError> {
        if events.iter().any(|event| event.row.resource_kind == "site")
            && let Some(pace) = self.load_sites().await?
        {
            self.sync_all(now).await?;
            // Agents learn a shorter interval with their next heartbeat, which comes at the pace that they have: no verdict
            // before that and one full new window.
            self.registry.restart_silence(now + pace);
        }
        let changed: BTreeSet<NodeId> = events
            .iter()
            .filter(|event| event.row.resource_kind == "node")
            .filter_map(|event| event.row.node)
            .collect();
        let changed: Vec<NodeId> = changed.into_iter().collect();
        for node in self.store.nodes_by_id(&changed).await? {
            self.sync(&node, now);
        }
        Ok(())
    }

    /// Brings the registry in step with one row.
    pub fn sync(&self, node: &Node, now: Timestamp) {
        self.count(node);
        self.note_ownership(node);
        if node.state.status == Status::Deleted {
            self.registry.remove(node.id);
            self.set_deadline(node.id, None);
            return;
        }
        self.registry.admit(node.id, node.identity_epoch, now);
        if !node.ownership.is_confirmed() || node.state.availability == Availability::Unknown {
            // It registers again before it is heard, and ends what it lost; of one that was reset nothing else is known.
            self.registry.end_session(node.id);
        }
        let last_heard = self.registry.last_heard(node.id).unwrap_or(now);
        self.registry.watch(node.id, detector::watch(node, self.times(node), last_heard, now));
        self.registry.set_pace(node.id, Duration::from_millis(self.policy(node.site).interval_ms));
        let deadline = node.deadline.filter(|_| node.state.availability == Availability::Booting);
        self.set_deadline(node.id, deadline);
    }

    /// The times of a node: its class at its site.
    pub fn times(&self, node: &Node) -> SilenceTimes {
        self.policy(node.site).times(node.effective_class())
    }

    /// Until when a brake holds back what Down does to a node that was silent too long; none: none does. Of one that an
    /// operator pulled and the one on mass failures, the longer counts. `silences` are those of its site.
    pub fn braked_until(&self, node: &Node, silences: &SiteSilences, now: Timestamp) -> Option<Timestamp> {
        let by_hand = self.lock().brakes.get(&node.site).and_then(|brake| brake.holds(node, now));
        let is_mass = self.policy(node.site).brake && self.is_mass_failure(node, silences, now);
        by_hand.max(is_mass.then(|| now + brake::HOLDS))
    }

    /// The silences of a site, as they are known now.
    pub fn silences(&self, site: SiteId) -> SiteSilences {
        let members: Vec<(NodeId, Member)> =
            self.lock().members.get(&site).into_iter().flatten().map(|(node, member)| (*node, *member)).collect();
        SiteSilences {
            by_rows: Silences::new(members.iter().filter_map(|(_, member)| member.silent_since)),
            by_hearing: Silences::new(members.iter().filter_map(|(node, member)| self.heard_last(*node, *member))),
            members: members.len(),
        }
    }

    fn is_mass_failure(&self, node: &Node, silences: &SiteSilences, now: Timestamp) -> bool {
        let (times, row) = (self.times(node), Member::of(node, self.times(node)));
        let by_row = silences.by_rows.around(brake::silence_began(node, times, now), times.window(), now);
        // Its own row may tell nothing of its silence.
        let by_row = by_row + usize::from(row.silent_since.is_none());
        let by_hearing =
            self.heard_last(node.id, row).map_or(0, |since| silences.by_hearing.around(since, times.window(), now));
        brake::is_mass_failure(by_row.max(by_hearing), silences.members)
    }

    /// Of one that was down when the server began to listen the row alone tells.
    fn heard_last(&self, node: NodeId, member: Member) -> Option<Timestamp> {
        if member.is_down {
            return self.registry.said(node).map(|said| said.at).or(member.silent_since);
        }
        self.registry.last_heard(node)
    }

    /// The ownership under which the agent of `node` is to register, as far as it is known here; none: nothing is open. A
    /// later one may have been committed.
    pub fn unconfirmed(&self, node: NodeId) -> Option<OwnershipEpoch> {
        self.lock().unconfirmed.get(&node).copied()
    }

    fn note_ownership(&self, node: &Node) {
        let unconfirmed = &mut self.lock().unconfirmed;
        if node.state.status == Status::Deleted || node.ownership.is_confirmed() {
            unconfirmed.remove(&node.id);
        } else {
            unconfirmed.insert(node.id, node.ownership.epoch);
        }
    }

    fn count(&self, node: &Node) {
        let member = Member::of(node, self.times(node));
        let mut state = self.lock();
        let members = state.members.entry(node.site).or_default();
        if node.state.status == Status::Deleted || !brake::is_member(node) {
            members.remove(&node.id);
        } else {
            members.insert(node.id, member);
        }
    }

    /// The heartbeat policy of a site; S1's defaults when the site is not known (yet).
    pub fn policy(&self, site: SiteId) -> HeartbeatPolicy {
        self.lock().policies.get(&site).copied().unwrap_or_default()
    }

    /// Nodes whose boot deadline has passed at `now`, at most `limit`.
    pub fn late_boots(&self, now: Timestamp, limit: usize) -> Vec<NodeId> {
        self.lock().by_time.iter().take_while(|(deadline, _)| *deadline <= now).take(limit).map(|(_, id)| *id).collect()
    }

    /// Reads the sites. When the times of one changed: the slowest pace at which agents were told to beat before.
    async fn load_sites(&self) -> Result<Option<Duration>, StoreError> {
        let sites = self.store.sites().await?;
        let policies: HashMap<SiteId, HeartbeatPolicy> = sites.iter().map(|site| (site.id, site.heartbeat)).collect();
        let mut state = self.lock();
        state.brakes = sites.into_iter().filter_map(|site| Some((site.id, site.brake?))).collect();
        if state.policies == policies {
            return Ok(None);
        }
        let before = std::mem::replace(&mut state.policies, policies);
        let slowest = before.values().map(|policy| policy.interval_ms).max().unwrap_or(0);
        Ok(Some(Duration::from_millis(slowest)))
    }

    async fn sync_all(&self, now: Timestamp) -> Result<(), StoreError> {
        let mut nodes = Vec::new();
        self.store.each_node(|node| nodes.push(node)).await?;
        for node in &nodes {
            self.sync(node, now);
        }
        Ok(())
    }

    fn set_deadline(&self, node: NodeId, deadline: Option<Timestamp>) {
        let mut state = self.lock();
        if let Some(earlier) = state.deadlines.remove(&node) {
            state.by_time.remove(&(earlier, node));
        }
        if let Some(deadline) = deadline {
            state.deadlines.insert(node, deadline);
            state.by_time.insert((deadline, node));
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        // Every writer leaves the maps consistent before it can panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
