//! Keeps each OpenCHAMI site's State Manager and this store in step: what it says of nodes is kept as evidence, what
//! stands here is told there, its BMCs are used for nodes without one, and it is asked to tell of changes.
//!
//! Decided in `lattice_core::component`, from rows and one listing: after a crash it begins with what stands there. One
//! server does it at a time, under a lease that fences a former holder's commits. Telling a state twice changes nothing.

mod bmcs;
mod notices;
mod round;
mod subscription;

pub use bmcs::IMPORTER;
pub use notices::{Notices, Verified};

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use lattice_core::change::{Change, Guard, Resource};
use lattice_core::command::Request;
use lattice_core::ids::{CorrelationId, EventSeq, LeaseEpoch, SiteId};
use lattice_core::site::{OpenchamiSite, Site, SiteProvider};
use lattice_core::time::Timestamp;
use lattice_store::{EventFilter, Held, StoreError};
use tokio::task::{Id, JoinError, JoinSet};
use tracing::{info, warn};

use crate::tools::Tools;
use round::{Occasion, Round, round};

/// Name of the lease.
const LEASE: &str = "components";
/// How often the list of sites is read again: a setting works within this time.
const REREAD: Duration = Duration::from_secs(5);
/// Shortest pause between two rounds of a site, whatever happens there: what comes meanwhile is in the next one.
const PAUSE: Duration = Duration::from_secs(1);
/// Events taken from the feed at once.
const FEED_PAGE: usize = 1_000;

/// Looks after the components of all OpenCHAMI sites.
pub struct Components {
    tools: Arc<Tools>,
    notices: Arc<Notices>,
    lease: Held,
    sites: Vec<Arc<Site>>,
    read_at: Option<Timestamp>,
    seen: Option<EventSeq>,
    standings: HashMap<SiteId, Standing>,
    rounds: JoinSet<Ended>,
    running: HashMap<Id, SiteId>,
}

type Ended = (SiteId, Result<Round, StoreError>);

/// How it stands with one site.
#[derive(Default)]
struct Standing {
    begun: Option<Timestamp>,
    whole: Option<Timestamp>,
    is_wanted: bool,
    is_used: Option<bool>,
    trouble: Option<String>,
}

/// What one tick did.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Tended {
    /// Rounds that were begun.
    pub begun: usize,
    /// Components that were told a state.
    pub told: u64,
    /// Components of which another system had changed what is said.
    pub changed: u64,
    /// BMCs that were taken over.
    pub bmcs: u64,
    /// Rounds that could not be ended, or only in part.
    pub troubled: u64,
}

impl Components {
    /// One that has not looked yet; `notices` says when State Manager told of something.
    pub fn new(tools: Arc<Tools>, notices: Arc<Notices>) -> Self {
        Self {
            lease: Held::new(LEASE, tools.holder.clone()),
            tools,
            notices,
            sites: Vec::new(),
            read_at: None,
            seen: None,
            standings: HashMap::new(),
            rounds: JoinSet::new(),
            running: HashMap::new(),
        }
    }

    /// Where notices are taken.
    pub const fn notices(&self) -> &Arc<Notices> {
        &self.notices
    }

    /// Keeps what rounds came to, and begins those that are due at `now`; never waits for a State Manager.
    ///
    /// # Errors
    /// Our own store fails: what was lost is done again.
    pub async fn tick(&mut self, now: Timestamp) -> Result<Tended, StoreError> {
        let mut tended = Tended::default();
        while let Some(ended) = self.rounds.try_join_next_with_id() {
            self.ended(ended, now, &mut tended).await?;
        }
        if self.read_at.is_none_or(|at| now.since(at) >= REREAD) {
            let all = self.tools.store.sites().await?;
            self.sites = all.into_iter().filter(|site| settings(site).is_some()).map(Arc::new).collect();
            self.read_at = Some(now);
        }
        if self.sites.is_empty() {
            return Ok(tended);
        }
        self.mark_wanted().await?;
        if let Some(lease) = self.lease.epoch(&self.tools.store, now).await? {
            self.begin(lease, now, &mut tended);
        }
        Ok(tended)
    }

    /// Stops in good order: rounds that are under way are dropped, and another server may go on at once.
    pub async fn end(mut self) {
        self.rounds.shutdown().await;
        self.lease.release(&self.tools.store).await;
    }

    /// Waits for every round that is under way.
    ///
    /// # Errors
    /// As [`Components::tick`].
    pub async fn settle(&mut self, now: Timestamp) -> Result<Tended, StoreError> {
        let mut tended = Tended::default();
        while let Some(ended) = self.rounds.join_next_with_id().await {
            self.ended(ended, now, &mut tended).await?;
        }
        Ok(tended)
    }

    /// Sites with a node that moved, and those of which State Manager told something.
    async fn mark_wanted(&mut self) -> Result<(), StoreError> {
        let mut wanted: HashSet<SiteId> = self.notices.take();
        let mut seen = match self.seen {
            Some(seen) => seen,
            None => self.tools.store.last_event().await?,
        };
        loop {
            let events = self.tools.store.events(seen, &EventFilter::default(), FEED_PAGE).await?;
            let is_last = events.len() < FEED_PAGE;
            seen = events.last().map_or(seen, |event| event.seq);
            let of_nodes = events.iter().filter(|event| event.row.resource_kind == "node");
            wanted.extend(of_nodes.filter_map(|event| event.row.payload["site"].as_str()?.parse::<SiteId>().ok()));
            if is_last {
                break;
            }
        }
        self.seen = Some(seen);
        for site in wanted {
            self.standings.entry(site).or_default().is_wanted = true;
        }
        Ok(())
    }

    fn begin(&mut self, lease: LeaseEpoch, now: Timestamp, tended: &mut Tended) {
        let running: HashSet<SiteId> = self.running.values().copied().collect();
        for site in self.sites.iter().filter(|site| !running.contains(&site.id)) {
            let Some(settings) = settings(site) else { continue };
            let standing = self.standings.entry(site.id).or_default();
            let since = |at: Option<Timestamp>, pause: Duration| at.is_none_or(|at| now.since(at) >= pause);
            let interval = Duration::from_millis(settings.policy.component_interval_ms);
            let is_whole = since(standing.whole, interval);
            let is_due = is_whole || (standing.is_wanted && since(standing.begun, PAUSE));
            if !is_due {
                continue;
            }
            standing.begun = Some(now);
            standing.is_wanted = false;
            if is_whole {
                standing.whole = Some(now);
            }
            let (tools, site, id) = (Arc::clone(&self.tools), Arc::clone(site), site.id);
            let occasion = Occasion { lease, is_whole, was_used: standing.is_used };
            let task = self.rounds.spawn(async move { (id, round(&tools, &site, occasion).await) });
            self.running.insert(task.id(), id);
            tended.begun += 1;
        }
    }

    async fn ended(
        &mut self,
        ended: Result<(Id, Ended), JoinError>,
        now: Timestamp,
        tended: &mut Tended,
    ) -> Result<(), StoreError> {
        let (task, (site, round)) = match ended {
            Ok(ended) => ended,
            Err(error) => {
                warn!(%error, "a look at a State Manager ended without a result");
                self.running.remove(&error.id());
                return Ok(());
            }
        };
        self.running.remove(&task);
        let round = round?;
        tended.told += round.told;
        tended.changed += round.changed;
        tended.bmcs += round.bmcs;
        tended.troubled += u64::from(round.trouble.is_some());
        let standing = self.standings.entry(site).or_default();
        standing.is_used = round.is_used;
        standing.is_wanted |= round.asks_again;
        self.keep_trouble(site, round.trouble, now).await
    }

    /// Says once that a State Manager is lost, and once that it is back.
    async fn keep_trouble(&mut self, site: SiteId, trouble: Option<String>, now: Timestamp) -> Result<(), StoreError> {
        let standing = self.standings.entry(site).or_default();
        let note = match (&standing.trouble, &trouble) {
            (None, Some(why)) => ("site.state_manager_lost", why.clone()),
            (Some(_), None) => ("site.state_manager_back", "it answers again".to_owned()),
            (Some(_), Some(_)) | (None, None) => return Ok(()),
        };
        let (name, detail) = note;
        info!(site_id = %site, name, detail, "state manager");
        standing.trouble = trouble;
        let note = Change::Note { name: name.to_owned(), resource: Resource::Site(site), detail };
        let request = request(&self.tools, now);
        self.tools.store.commit_one(request.commit(Vec::new(), vec![note])).await.map(drop)
    }
}

/// The settings of an OpenCHAMI site.
const fn settings(site: &Site) -> Option<&OpenchamiSite> {
    match &site.provider {
        SiteProvider::Openchami(settings) => Some(settings),
        SiteProvider::Manual | SiteProvider::Maas(_) | SiteProvider::Lxd(_) => None,
    }
}

fn request(tools: &Tools, now: Timestamp) -> Request<'_> {
    Request::of_system("components", &*tools.ids, now, CorrelationId::generate(&*tools.ids, now))
}

fn guard(lease: LeaseEpoch) -> Vec<Guard> {
    vec![Guard::Lease { name: LEASE.to_owned(), epoch: lease }]
}
