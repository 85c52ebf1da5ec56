//! Permits: which children of which batches may start now, and what holds the others back. spec: S5 3.6, 4.4

use serde::{Deserialize, Serialize};

use super::{Batch, BatchControl, Children};
use crate::ids::BatchId;
use crate::site::{MaasPolicy, Site, SiteProvider, SiteStatus};

/// How many onboardings may run at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Parallel {
    /// Of one batch. spec: S5 3.6 `batch_max_parallel`
    pub batch: u32,
    /// Of the whole site, single onboardings included.
    pub site: u32,
}

/// The limits of a site. Sites whose provider has no policy for it get MAAS's defaults.
pub fn parallel(site: &Site) -> Parallel {
    let (batch, site) = match &site.provider {
        SiteProvider::Maas(maas) => (maas.policy.batch_max_parallel, maas.policy.site_max_parallel),
        SiteProvider::Openchami(site) => (site.policy.batch_max_parallel, site.policy.site_max_parallel),
        SiteProvider::Manual | SiteProvider::Lxd(_) => {
            let policy = MaasPolicy::default();
            (policy.batch_max_parallel, policy.site_max_parallel)
        }
    };
    Parallel { batch: batch.max(1), site: site.max(1) }
}

/// The limit of one batch: its profile's, else its site's, or what its operator asked for, if that is less.
pub fn batch_limit(batch: &Batch, parallel: Parallel) -> u64 {
    let policy = batch.profile_parallel.unwrap_or(parallel.batch);
    u64::from(batch.max_parallel.unwrap_or(policy).min(policy).max(1))
}

/// A site as far as permits are concerned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SiteRoom {
    /// A disabled site starts nothing new. spec: S5 3.5
    pub status: SiteStatus,
    /// Its limits.
    pub parallel: Parallel,
    /// Onboardings that run there now: children of all batches, and single ones. A single one needs no permit, since
    /// an operator asked for that very machine, and takes its place all the same.
    pub running: u64,
}

/// A batch that is not over, with its children.
#[derive(Debug, Clone, Copy)]
pub struct Asking<'a> {
    /// The batch.
    pub batch: &'a Batch,
    /// Its children.
    pub children: Children,
}

/// What a batch is given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Admission {
    /// Which batch.
    pub batch: BatchId,
    /// So many of its pending children may start now.
    pub start: u64,
    /// What holds the rest of its pending children back; none when none is left.
    pub held: Option<Held>,
}

/// What a pending child waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "held_by", rename_all = "snake_case")]
pub enum Held {
    /// An operator paused the batch.
    Paused,
    /// An operator cancelled the batch.
    Cancelled,
    /// The site is disabled.
    SiteDisabled,
    /// As many children of the batch run as may.
    BatchFull {
        /// So many run.
        running: u64,
        /// So many may.
        limit: u64,
    },
    /// As many onboardings run at the site as may.
    SiteFull {
        /// So many run.
        running: u64,
        /// So many may.
        limit: u64,
    },
}

/// Gives the free permits of a site to its batches, in the order given: the oldest first, so that none starves.
///
/// Never gives more than is free, whatever runs already; a limit that was lowered is reached by waiting.
pub fn admit(site: SiteRoom, batches: &[Asking<'_>]) -> Vec<Admission> {
    let site_limit = u64::from(site.parallel.site);
    let mut running = site.running;
    batches
        .iter()
        .map(|asking| {
            let held = closed(site.status, asking.batch.control);
            let limit = batch_limit(asking.batch, site.parallel);
            let moving = asking.children.moving();
            let start = match held {
                Some(_) => 0,
                None => {
                    let free = limit.saturating_sub(moving).min(site_limit.saturating_sub(running));
                    free.min(asking.children.pending)
                }
            };
            running += start;
            let full = if moving + start >= limit {
                Held::BatchFull { running: moving + start, limit }
            } else {
                Held::SiteFull { running, limit: site_limit }
            };
            let is_left = asking.children.pending > start;
            Admission { batch: asking.batch.id, start, held: is_left.then_some(held.unwrap_or(full)) }
        })
        .collect()
}

const fn closed(site: SiteStatus, control: BatchControl) -> Option<Held> {
    match (control, site) {
        (BatchControl::Cancel, _) => Some(Held::Cancelled),
        (BatchControl::Pause, _) => Some(Held::Paused),
        (BatchControl::Run, SiteStatus::Disabled) => Some(Held::SiteDisabled),
        (BatchControl::Run, SiteStatus::Active) => None,
    }
}
