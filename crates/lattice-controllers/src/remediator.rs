//! Reboots nodes that fell silent, where their site says so, and drains sensitive ones whose fingerprint drifted: never more
//! at once than the site's governor allows.
//!
//! One server does it at a time, under a lease that fences a former holder's commits: two that count the same nodes would
//! take more of them together than one may.
//! spec: S1 "Down → Booting", "Conformance drift"

use std::collections::HashMap;
use std::sync::Arc;

use lattice_core::change::{Guard, Outcome};
use lattice_core::command::conformance::{self, JUDGE};
use lattice_core::command::node::{Known, reboot};
use lattice_core::command::remedy::{REMEDIATOR, Remedy, Standing, may_be_ours, remedy};
use lattice_core::command::{Planned, Request};
use lattice_core::heartbeat::brake;
use lattice_core::ids::{CorrelationId, IdSource, JobId, LeaseEpoch, NodeId, SiteId};
use lattice_core::node::machine::Health;
use lattice_core::node::{Availability, HoldKind, Node, Status};
use lattice_core::site::{Governor, Site};
use lattice_core::time::Timestamp;
use lattice_store::{Cursor, Held, NodeFilter, NodeSort, PAGE_MAX, PageRequest, Store, StoreError};
use tracing::info;

/// Name of the lease.
const LEASE: &str = "remediation";

/// Reboots and drains nodes by itself.
pub struct Remediator {
    store: Store,
    ids: Arc<dyn IdSource>,
    lease: Held,
    /// Where the lists of a site go on, where one look does not see all of one.
    further: HashMap<(SiteId, Looks), Cursor>,
}

/// Among which nodes of a site is looked for what is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Looks {
    /// Those that drifted: they are held already, and come first.
    Drifted,
    /// Those that are down.
    Down,
}

impl Looks {
    /// What there is to look at, at a site.
    fn at(site: &Site) -> impl Iterator<Item = Self> + use<> {
        let drifted = (!site.approved.is_empty()).then_some(Self::Drifted);
        drifted.into_iter().chain(site.automation.auto_remediate.then_some(Self::Down))
    }

    fn filter(self, site: SiteId) -> NodeFilter {
        match self {
            Self::Drifted => NodeFilter {
                site: Some(site),
                statuses: vec![Status::Active],
                availabilities: vec![Availability::Ready, Availability::Degraded],
                hold: Some(HoldKind::ConformanceDrift),
                ..NodeFilter::default()
            },
            Self::Down => {
                NodeFilter { site: Some(site), availabilities: vec![Availability::Down], ..NodeFilter::default() }
            }
        }
    }
}

/// What one tick did.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Remediated {
    /// Reboots and drains that were created: their drivers are to be woken.
    pub begun: Vec<JobId>,
    /// Nodes that wait, for the governor or for something else, of those that were looked at: [`PAGE_MAX`] of a site at a
    /// time.
    pub waiting: usize,
}

impl Remediator {
    /// Over the store, in the server of that name.
    pub fn new(store: Store, ids: Arc<dyn IdSource>, server: String) -> Self {
        Self { store, ids, lease: Held::new(LEASE, server), further: HashMap::new() }
    }

    /// Stops in good order: another server may go on at once.
    pub async fn end(mut self) {
        self.lease.release(&self.store).await;
    }

    /// Begins what is due at `now`; nothing while another server does.
    ///
    /// # Errors
    /// The store fails: the next tick finds the same.
    pub async fn tick(&mut self, now: Timestamp) -> Result<Remediated, StoreError> {
        let mut done = Remediated::default();
        let mut sites = self.store.sites().await?;
        sites.retain(|site| Looks::at(site).next().is_some());
        if sites.is_empty() {
            return Ok(done);
        }
        let Some(lease) = self.lease.epoch(&self.store, now).await? else { return Ok(done) };
        for site in &sites {
            let (in_service, taken) = self.store.taken_at(site.id).await?;
            let mut governor = Governor::new(&site.automation, in_service, taken);
            let silenced = self.store.silenced_at(site.id, brake::silenced_since(now)).await?;
            for looks in Looks::at(site) {
                for node in self.page(site.id, looks).await?.into_iter().filter(|node| may_be_ours(node, site)) {
                    // Thousands may wait for one to come back: nothing else about them matters until then.
                    if looks == Looks::Drifted && governor.room().is_err() {
                        done.waiting += 1;
                        continue;
                    }
                    match self.one(&node, &Turn { site, governor, silenced, lease, now }).await? {
                        One::Begun(job) => {
                            governor.take();
                            done.begun.push(job);
                        }
                        One::Waits => done.waiting += 1,
                        One::Nothing => {}
                    }
                }
            }
        }
        Ok(done)
    }

    /// The next nodes of a list, [`PAGE_MAX`] at a time.
    async fn page(&mut self, site: SiteId, looks: Looks) -> Result<Vec<Node>, StoreError> {
        let page = PageRequest { cursor: self.further.remove(&(site, looks)), limit: PAGE_MAX };
        let page = self.store.nodes(&looks.filter(site), NodeSort::Hostname, &page).await?;
        self.further.extend(page.next.map(|next| ((site, looks), next)));
        let ids: Vec<NodeId> = page.items.iter().map(|node| node.id).collect();
        self.store.nodes_by_id(&ids).await
    }

    async fn one(&self, node: &Node, turn: &Turn<'_>) -> Result<One, StoreError> {
        let Turn { site, governor, silenced: (fell, members), lease, now } = *turn;
        let job = self.store.live_job(node.id).await?;
        let report = self.store.bmc_report(node.id).await?;
        let has_bmc = self.store.bmc(node.id).await?.is_some();
        let (job, report) = (job.as_ref(), report.as_ref());
        let standing = Standing { site, job, report, has_bmc, governor, fell, members };
        let planned = match remedy(node, &standing, now) {
            Remedy::Reboot => self.reboot(node, &standing, now).await?,
            Remedy::Drain => conformance::drain(&self.request(JUDGE, now), node, site),
            Remedy::Later(_) => return Ok(One::Waits),
            Remedy::Never(_) | Remedy::NotOurs => return Ok(One::Nothing),
        };
        let Some(mut planned) = planned else { return Ok(One::Nothing) };
        planned.commit.guards.push(Guard::Lease { name: LEASE.to_owned(), epoch: lease });
        match self.store.commit_one(planned.commit).await? {
            Outcome::Applied { .. } | Outcome::Duplicate { .. } => {
                info!(node_id = %node.id, "a reboot or a drain begun by itself");
                Ok(planned.job.map_or(One::Nothing, One::Begun))
            }
            Outcome::Conflict { .. } | Outcome::Missing { .. } | Outcome::Fenced => Ok(One::Waits),
        }
    }

    async fn reboot(
        &self,
        node: &Node,
        standing: &Standing<'_>,
        now: Timestamp,
    ) -> Result<Option<Planned>, StoreError> {
        let placed = self.store.placed_on(node.id).await?;
        let known = Known {
            node,
            job: standing.job,
            health: Health::NotReported,
            live_allocations: node.ownership.allocations,
            site: standing.site,
            placed: &placed,
            has_bmc: standing.has_bmc,
        };
        let mut request = self.request(REMEDIATOR, now);
        request.reason = "it fell silent, and its site has such nodes rebooted".to_owned();
        Ok(reboot(&known, &request, None).ok())
    }

    fn request(&self, by: &str, now: Timestamp) -> Request<'_> {
        Request::of_system(by, &*self.ids, now, CorrelationId::generate(&*self.ids, now))
    }
}

/// What a node is judged by besides its own rows.
struct Turn<'a> {
    site: &'a Site,
    governor: Governor,
    /// Nodes of the site that fell silent lately, and all that could.
    silenced: (u64, u64),
    lease: LeaseEpoch,
    now: Timestamp,
}

enum One {
    Begun(JobId),
    Waits,
    Nothing,
}
