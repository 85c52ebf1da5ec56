//! What jobs need of the world, behind traits where it is IO that is not ours.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use lattice_core::ids::{IdSource, NodeId, SiteId};
use lattice_core::site::Site;
use lattice_core::time::{Clock, Timestamp};
use lattice_providers::secret::SecretStore;
use lattice_store::{Store, StoreError};

use crate::bootstrap::BootstrapConfig;
use crate::crash::CrashPlan;
use crate::providers::Providers;

/// Where secrets come from: the operating system's generator, or a seed in tests.
pub trait Entropy: Send + Sync {
    /// Fresh bytes that nobody can guess.
    fn bytes32(&self) -> [u8; 32];
}

/// Entropy of the operating system.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemEntropy;

impl Entropy for SystemEntropy {
    fn bytes32(&self) -> [u8; 32] {
        rand::random()
    }
}

/// What runs on a node right now, as its agent reported last. Lives in the registry of heartbeats.
#[async_trait]
pub trait LiveWork: Send + Sync {
    /// How many allocations run there; none when nothing was heard that could tell.
    async fn live_allocations(&self, node: NodeId) -> Option<u32>;

    /// When its agent was heard last; none when never since this server started.
    async fn last_heard(&self, node: NodeId) -> Option<Timestamp>;
}

/// How long things may take that no site's policy says.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Life of a claim; renewed at a third while an act runs.
    pub lease: Duration,
    /// Longest single act: pushing an agent over a slow link fits in.
    pub act: Duration,
    /// Longest look at a provider.
    pub observe: Duration,
    /// How long a site's row is taken for fresh: a change of its settings works after that.
    pub site_cache: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            lease: Duration::from_secs(30),
            act: Duration::from_secs(120),
            observe: Duration::from_secs(60),
            site_cache: Duration::from_secs(1),
        }
    }
}

/// Everything that a turn needs besides the job's row.
pub struct Tools {
    /// The rows.
    pub store: Store,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// Ids.
    pub ids: Arc<dyn IdSource>,
    /// Tokens and keys.
    pub entropy: Arc<dyn Entropy>,
    /// Credentials, and what a job must keep secret between its stages.
    pub secrets: Arc<dyn SecretStore>,
    /// Systems that are not ours.
    pub providers: Arc<dyn Providers>,
    /// What runs on the nodes.
    pub live_work: Arc<dyn LiveWork>,
    /// What new hosts are told.
    pub bootstrap: BootstrapConfig,
    /// This server's name in leases; the same after a restart on the same data directory.
    pub holder: String,
    /// Times.
    pub limits: Limits,
    /// Where to die, in tests.
    pub crash: CrashPlan,
    /// Sites read lately.
    pub sites: SiteCache,
}

/// Sites read lately: a turn would else read the same row as thousands of others.
#[derive(Default)]
pub struct SiteCache {
    rows: std::sync::Mutex<std::collections::HashMap<SiteId, (Timestamp, Arc<Site>)>>,
    fit: std::sync::Mutex<std::collections::HashMap<SiteId, Fit>>,
    listings: std::sync::Mutex<std::collections::HashMap<SiteId, Arc<Listings>>>,
}

/// The listings of one site: how many were begun, and whether one runs.
#[derive(Default)]
struct Listings {
    begun: std::sync::atomic::AtomicU64,
    whole: tokio::sync::Mutex<u64>,
}

/// What a preflight found.
struct Fit {
    about: String,
    at: Timestamp,
    said: String,
}

impl Tools {
    /// A site, at most [`Limits::site_cache`] old; none when there is none.
    ///
    /// # Errors
    /// The store cannot be read.
    pub async fn site(&self, id: SiteId, now: Timestamp) -> Result<Option<Arc<Site>>, StoreError> {
        match self.sites.fresh(id, now, self.limits.site_cache) {
            Some(site) => Ok(Some(site)),
            None => self.site_now(id, now).await,
        }
    }

    /// A site as it stands now: for the stage that judges whether work may start there.
    ///
    /// # Errors
    /// The store cannot be read.
    pub async fn site_now(&self, id: SiteId, now: Timestamp) -> Result<Option<Arc<Site>>, StoreError> {
        let site = self.store.site(id).await?.map(Arc::new);
        if let Some(site) = &site {
            self.sites.keep(id, now, Arc::clone(site));
        }
        Ok(site)
    }
}

impl SiteCache {
    /// What a preflight about the same said of a site, if that is younger than `life`.
    pub fn found_fit(&self, id: SiteId, about: &str, now: Timestamp, life: Duration) -> Option<String> {
        let fit = self.fit.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        fit.get(&id).filter(|fit| fit.about == about && now.since(fit.at) < life).map(|fit| fit.said.clone())
    }

    /// Has a site list what it has, once for all who ask while an earlier listing runs: it begins after each of them
    /// asked, so it is as fresh as one of their own.
    ///
    /// # Errors
    /// Those of `list`; the next who waits lists again.
    pub async fn listed<E>(&self, id: SiteId, list: impl Future<Output = Result<(), E>>) -> Result<(), E> {
        use std::sync::atomic::Ordering::SeqCst;
        let listings = {
            let mut all = self.listings.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            Arc::clone(all.entry(id).or_default())
        };
        let asked = listings.begun.load(SeqCst);
        let mut whole = listings.whole.lock().await;
        if *whole > asked {
            return Ok(());
        }
        let this = listings.begun.fetch_add(1, SeqCst) + 1;
        list.await?;
        *whole = this;
        Ok(())
    }

    /// Keeps what a preflight found to be well.
    pub fn keep_fit(&self, id: SiteId, about: String, at: Timestamp, said: &str) {
        let mut fit = self.fit.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        fit.insert(id, Fit { about, at, said: said.to_owned() });
    }

    fn fresh(&self, id: SiteId, now: Timestamp, life: Duration) -> Option<Arc<Site>> {
        let rows = self.rows.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        rows.get(&id).filter(|(read, _)| now.since(*read) < life).map(|(_, site)| Arc::clone(site))
    }

    fn keep(&self, id: SiteId, now: Timestamp, site: Arc<Site>) {
        let mut rows = self.rows.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        rows.insert(id, (now, site));
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    /// Two more ask while a listing runs: one listing answers both, and it begins after they asked.
    #[tokio::test]
    async fn who_asks_during_a_listing_shares_the_next_one_and_never_the_one_that_runs() {
        let (cache, lists) = (SiteCache::default(), AtomicU32::new(0));
        let site = SiteId::new(uuid::Uuid::nil());
        let list = || async {
            lists.fetch_add(1, Ordering::SeqCst);
            for _ in 0..10 {
                tokio::task::yield_now().await;
            }
            Ok::<(), Infallible>(())
        };
        let ask = || cache.listed(site, list());
        let later = async {
            while lists.load(Ordering::SeqCst) == 0 {
                tokio::task::yield_now().await;
            }
            tokio::join!(ask(), ask())
        };
        let (one, (two, three)) = tokio::join!(ask(), later);
        assert!(one.is_ok() && two.is_ok() && three.is_ok());
        assert_eq!(lists.load(Ordering::SeqCst), 2);
    }
}
