//! Looks at the BMCs of all nodes, at a bounded rate: power, hardware, and what that means for the node.
//!
//! One server looks at a time, under a lease: a BMC is slow, and the bound on how many are asked at once is the site's.
//! What a former holder saw is not kept. The breakers of this process are kept by whatever server it is: its jobs call
//! BMCs too.
//! spec: S1 "Any → Down (hardware failure)", "Degraded → Down"

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use lattice_core::bmc::{Bmc, BmcPolicy};
use lattice_core::change::{Commit, Guard, Outcome};
use lattice_core::command::Request;
use lattice_core::command::bmc::{Look, OfNode, breaker_moved, investigate, looked};
use lattice_core::ids::{CorrelationId, IdSource, JobId, LeaseEpoch, NodeId, SiteId};
use lattice_core::node::{Availability, Node};
use lattice_core::site::Site;
use lattice_core::time::Timestamp;
use lattice_providers::machine::bmc::{BmcReaders, Caller};
use lattice_store::{Held, PAGE_MAX, Store, StoreError};
use tokio::task::{JoinError, JoinSet};
use tracing::{info, warn};

use crate::Fleet;

/// Name of the lease.
const LEASE: &str = "bmcs";

/// How often the list of BMCs is read again: one that was set is looked at within this time.
const REREAD: Duration = Duration::from_secs(5);

/// Looks at BMCs as long as the server runs.
pub struct BmcWatch {
    store: Store,
    fleet: Arc<Fleet>,
    readers: Arc<dyn BmcReaders>,
    ids: Arc<dyn IdSource>,
    lease: Held,
    bmcs: Vec<Bmc>,
    sites: HashMap<SiteId, Site>,
    read_at: Option<Timestamp>,
    looked_at: HashMap<NodeId, Timestamp>,
    looking: HashMap<NodeId, SiteId>,
    looks: JoinSet<Ended>,
}

/// A look that ended, and under which lease it was begun.
struct Ended {
    node: NodeId,
    lease: LeaseEpoch,
    look: Look,
}

/// What one tick did.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct BmcsWatched {
    /// Looks that were begun.
    pub begun: usize,
    /// Looks that ended and were kept.
    pub kept: usize,
    /// Nodes that critical evidence took down.
    pub down: Vec<NodeId>,
    /// Out-of-band checks that were created: their drivers are to be woken.
    pub investigations: Vec<JobId>,
}

impl BmcWatch {
    /// A watch that has not looked yet, in the server of that name.
    pub fn new(
        store: Store,
        fleet: Arc<Fleet>,
        readers: Arc<dyn BmcReaders>,
        ids: Arc<dyn IdSource>,
        server: String,
    ) -> Self {
        Self {
            store,
            fleet,
            readers,
            ids,
            lease: Held::new(LEASE, server),
            bmcs: Vec::new(),
            sites: HashMap::new(),
            read_at: None,
            looked_at: HashMap::new(),
            looking: HashMap::new(),
            looks: JoinSet::new(),
        }
    }

    /// Keeps what was seen since the last tick, and begins the looks that are due at `now`, unless another server looks;
    /// never waits for a BMC.
    ///
    /// # Errors
    /// Our own store fails: looks that are lost are made again.
    pub async fn tick(&mut self, now: Timestamp) -> Result<BmcsWatched, StoreError> {
        let mut watched = BmcsWatched::default();
        while let Some(ended) = self.looks.try_join_next() {
            self.ended(ended, now, &mut watched).await?;
        }
        let is_stale = self.read_at.is_none_or(|at| now.since(at) >= REREAD);
        if is_stale {
            self.read(now).await?;
        }
        if self.bmcs.is_empty() {
            return Ok(watched);
        }
        let Some(lease) = self.lease.epoch(&self.store, now).await? else { return Ok(watched) };
        if is_stale {
            self.investigate_down(lease, now, &mut watched).await?;
        }
        self.begin(lease, now, &mut watched);
        Ok(watched)
    }

    /// Stops in good order: looks that are under way are dropped, and another server may look at once.
    pub async fn end(mut self) {
        self.looks.shutdown().await;
        self.lease.release(&self.store).await;
    }

    /// Waits for every look that is under way, and keeps it.
    ///
    /// # Errors
    /// As [`BmcWatch::tick`].
    pub async fn settle(&mut self, now: Timestamp) -> Result<BmcsWatched, StoreError> {
        let mut watched = BmcsWatched::default();
        while let Some(ended) = self.looks.join_next().await {
            self.ended(ended, now, &mut watched).await?;
        }
        Ok(watched)
    }

    async fn ended(
        &mut self,
        ended: Result<Ended, JoinError>,
        now: Timestamp,
        watched: &mut BmcsWatched,
    ) -> Result<(), StoreError> {
        match ended {
            Ok(ended) => self.keep(ended, now, watched).await,
            Err(error) => {
                warn!(%error, "a look at a BMC was lost");
                // Which one is not known: those that were under way are looked at again when they are due.
                self.looking.clear();
                Ok(())
            }
        }
    }

    /// Reads sites and BMCs, and keeps the breakers that moved here.
    async fn read(&mut self, now: Timestamp) -> Result<(), StoreError> {
        self.sites = self.store.sites().await?.into_iter().map(|site| (site.id, site)).collect();
        let mut bmcs = Vec::new();
        loop {
            let page = self.store.bmcs(bmcs.last().map(|bmc: &Bmc| bmc.node)).await?;
            let is_last = page.len() < PAGE_MAX;
            bmcs.extend(page);
            if is_last {
                break;
            }
        }
        self.bmcs = bmcs;
        let known: HashSet<NodeId> = self.bmcs.iter().map(|bmc| bmc.node).collect();
        self.looked_at.retain(|node, _| known.contains(node));
        for bmc in &self.bmcs {
            self.keep_breaker(bmc, now).await?;
        }
        self.read_at = Some(now);
        Ok(())
    }

    /// Creates the out-of-band checks of nodes that are down.
    async fn investigate_down(
        &self,
        lease: LeaseEpoch,
        now: Timestamp,
        watched: &mut BmcsWatched,
    ) -> Result<(), StoreError> {
        let of_bmcs: Vec<NodeId> = self.bmcs.iter().map(|bmc| bmc.node).collect();
        for some in of_bmcs.chunks(PAGE_MAX) {
            for node in self.store.nodes_by_id(some).await? {
                if node.state.availability == Availability::Down {
                    self.investigate(&node, lease, now, watched).await?;
                }
            }
        }
        Ok(())
    }

    /// Creates the out-of-band check of a node that is down.
    async fn investigate(
        &self,
        node: &Node,
        lease: LeaseEpoch,
        now: Timestamp,
        watched: &mut BmcsWatched,
    ) -> Result<(), StoreError> {
        let Some(site) = self.sites.get(&node.site) else { return Ok(()) };
        let report = self.store.bmc_report(node.id).await?;
        let Some((commit, job)) = investigate(&self.request(now), node, site, report.as_ref()) else { return Ok(()) };
        if let Outcome::Applied { .. } = self.store.commit_one(under(lease, commit)).await? {
            info!(node_id = %node.id, job_id = %job, "out-of-band check created");
            watched.investigations.push(job);
        }
        Ok(())
    }

    fn begin(&mut self, lease: LeaseEpoch, now: Timestamp, watched: &mut BmcsWatched) {
        let mut busy: HashMap<SiteId, u32> = HashMap::new();
        for site in self.looking.values() {
            *busy.entry(*site).or_default() += 1;
        }
        // Those that were looked at longest ago come first, so that a short limit starves nobody.
        let mut due: Vec<(Timestamp, usize)> = Vec::new();
        for (index, bmc) in self.bmcs.iter().enumerate() {
            let interval = self.sites.get(&bmc.site).and_then(|site| site.bmc.health_interval());
            let last = self.looked_at.get(&bmc.node).copied();
            let is_due = interval.is_some_and(|pause| last.is_none_or(|last| now.since(last) >= pause));
            if is_due && !self.looking.contains_key(&bmc.node) {
                due.push((last.unwrap_or_default(), index));
            }
        }
        due.sort_unstable();
        for (_, index) in due {
            let bmc = &self.bmcs[index];
            let Some(site) = self.sites.get(&bmc.site) else { continue };
            let running = busy.entry(bmc.site).or_default();
            if *running >= site.bmc.health_parallel {
                continue;
            }
            *running += 1;
            self.looking.insert(bmc.node, bmc.site);
            self.looked_at.insert(bmc.node, now);
            let (readers, store) = (Arc::clone(&self.readers), self.store.clone());
            let (bmc, policy) = (bmc.clone(), site.bmc.clone());
            self.looks.spawn(async move {
                let look = look(&*readers, &store, &bmc, &policy).await;
                Ended { node: bmc.node, lease, look }
            });
            watched.begun += 1;
        }
    }

    async fn keep(&mut self, ended: Ended, now: Timestamp, watched: &mut BmcsWatched) -> Result<(), StoreError> {
        let Ended { node: id, lease, look } = ended;
        self.looking.remove(&id);
        let Some((node, sku)) = self.store.node_and_sku(id).await? else { return Ok(()) };
        let gpus = sku.map_or(0, |sku| sku.gpus);
        let earlier = self.store.bmc_report(id).await?;
        let placed = self.store.placed_on(id).await?;
        let of_node = OfNode { gpus_of_sku: gpus, placed: &placed };
        let seen = looked(&self.request(now), &node, earlier.as_ref(), look, of_node);
        let commits = seen.commits.into_iter().map(|commit| under(lease, commit)).collect();
        let outcomes = self.store.commit(commits).await?;
        let is_kept = outcomes.iter().all(|outcome| matches!(outcome, Outcome::Applied { .. }));
        if !is_kept {
            // Somebody moved the node meanwhile, or looks now instead: it is looked at again, by who may, at once.
            self.looked_at.remove(&id);
            return Ok(());
        }
        watched.kept += 1;
        if let Some(after) = seen.moved {
            // Its ownership is lost: it registers again before it is heard.
            self.fleet.registry().end_session(after.id);
            self.fleet.sync(&after, now);
            info!(node_id = %after.id, state = %after.state, cause = "critical_hardware", "node moved");
            watched.down.push(after.id);
            self.investigate(&after, lease, now, watched).await?;
        }
        let Some(bmc) = self.store.bmc(id).await? else { return Ok(()) };
        self.keep_breaker(&bmc, now).await
    }

    /// What became of the breaker is kept, so that it outlives this process.
    async fn keep_breaker(&self, bmc: &Bmc, now: Timestamp) -> Result<(), StoreError> {
        let view = self.readers.queue(bmc);
        if let Some(commit) = breaker_moved(&self.request(now), bmc, &view.breaker, view.refusals) {
            // Another server may have kept it first.
            self.store.commit_one(commit).await?;
        }
        Ok(())
    }

    fn request(&self, now: Timestamp) -> Request<'_> {
        Request::of_system("bmc-watch", &*self.ids, now, CorrelationId::generate(&*self.ids, now))
    }
}

/// The commit, fenced: it comes to nothing once another server took the lease.
fn under(lease: LeaseEpoch, mut commit: Commit) -> Commit {
    commit.guards.push(Guard::Lease { name: LEASE.to_owned(), epoch: lease });
    commit
}

async fn look(readers: &dyn BmcReaders, store: &Store, bmc: &Bmc, policy: &BmcPolicy) -> Look {
    let failed = |error: String| Look { power: Err(error.clone()), health: Err(error) };
    let since = match store.bmc_report(bmc.node).await {
        Ok(report) => report.and_then(|report| report.log_position()),
        Err(error) => return failed(error.to_string()),
    };
    let caller = Caller { who: "health poll".to_owned(), why: "power and hardware".to_owned() };
    match readers.reader(bmc, policy, caller).await {
        Ok(reader) => {
            let power = reader.power().await.map_err(|error| error.to_string());
            // What refuses the first question is not asked the second.
            let health = match &power {
                Ok(_) => reader.health(since).await.map_err(|error| error.to_string()),
                Err(error) => Err(error.clone()),
            };
            Look { power, health }
        }
        Err(error) => failed(error.to_string()),
    }
}
