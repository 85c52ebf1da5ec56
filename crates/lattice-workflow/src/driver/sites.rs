//! One look at each MAAS site for all jobs that wait for one of its machines. design: 3-jobs "Polling is per site"

use std::collections::{HashMap, HashSet};
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lattice_core::ids::{JobId, SiteId};
use lattice_core::job::{Job, JobInput, StageName};
use lattice_core::site::SiteProvider;
use lattice_providers::machine::maas::SystemId;
use tokio::sync::mpsc;
use tokio::task::{Id, JoinSet};
use tracing::{error, warn};

use super::embedded::Poke;
use crate::tools::Tools;

/// Pause after a look that failed, and while nobody waits.
const IDLE: Duration = Duration::from_secs(1);

/// Who waits for what.
#[derive(Default)]
pub(super) struct Watches {
    sites: Mutex<HashMap<SiteId, SiteWatches>>,
}

#[derive(Default)]
struct SiteWatches {
    machines: HashMap<String, JobId>,
    discovering: HashSet<JobId>,
}

impl Watches {
    /// A job waits: for its machine, or for a machine to appear. True when nobody waited at that site before.
    pub(super) fn watch(&self, job: &Job) -> bool {
        if !matches!(job.input, JobInput::OnboardMaas { .. } | JobInput::ReimageMaas { .. }) {
            return false;
        }
        let mut sites = self.lock();
        let is_new = !sites.contains_key(&job.site);
        let site = sites.entry(job.site).or_default();
        match &job.outputs.provider_ref {
            Some(machine) => {
                site.discovering.remove(&job.id);
                site.machines.insert(machine.clone(), job.id);
            }
            None if job.state.stage == StageName::CreateOrFindInMaas => {
                site.discovering.insert(job.id);
            }
            None => {}
        }
        is_new
    }

    /// A job does not wait any more.
    pub(super) fn forget(&self, job: &Job) {
        if let Some(site) = self.lock().get_mut(&job.site) {
            site.discovering.remove(&job.id);
            if let Some(machine) = &job.outputs.provider_ref {
                site.machines.remove(machine);
            }
        }
    }

    fn watched(&self, site: SiteId) -> (Vec<SystemId>, bool) {
        let sites = self.lock();
        let Some(site) = sites.get(&site) else { return (Vec::new(), false) };
        (site.machines.keys().filter_map(|name| name.parse().ok()).collect(), !site.discovering.is_empty())
    }

    /// The jobs that a change of these machines concerns: a machine that nobody watches may have appeared.
    fn concerned(&self, site: SiteId, changed: &[SystemId]) -> Vec<JobId> {
        let sites = self.lock();
        let Some(site) = sites.get(&site) else { return Vec::new() };
        let mut jobs: HashSet<JobId> =
            changed.iter().filter_map(|id| site.machines.get(id.as_str())).copied().collect();
        if changed.iter().any(|id| !site.machines.contains_key(id.as_str())) {
            jobs.extend(&site.discovering);
        }
        jobs.into_iter().collect()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<SiteId, SiteWatches>> {
        self.sites.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The tasks that look at the sites, and whose each is: a task that panics cannot say it.
#[derive(Default)]
pub(super) struct Followers {
    tasks: JoinSet<()>,
    sites: HashMap<Id, SiteId>,
}

impl Followers {
    /// Has `task` look at a site.
    pub(super) fn start(&mut self, site: SiteId, task: impl Future<Output = ()> + Send + 'static) {
        let task = self.tasks.spawn(task);
        self.sites.insert(task.id(), site);
    }

    /// A site that nobody looks at any more, since its task ended by a defect of ours. Never comes back while all look.
    pub(super) async fn lost(&mut self) -> SiteId {
        loop {
            match self.tasks.join_next_with_id().await {
                Some(Ok((id, ()))) => drop(self.sites.remove(&id)),
                Some(Err(panicked)) => {
                    if let Some(site) = self.sites.remove(&panicked.id()) {
                        error!(site_id = %site, error = %panicked, "a look at the site ended without a result");
                        return site;
                    }
                }
                None => std::future::pending().await,
            }
        }
    }
}

/// Looks at a site for as long as the process lives, and wakes the jobs whose machines changed.
pub(super) async fn follow(tools: Arc<Tools>, watches: Arc<Watches>, site: SiteId, pokes: mpsc::Sender<Poke>) {
    loop {
        let (machines, discovers) = watches.watched(site);
        if machines.is_empty() && !discovers {
            tokio::time::sleep(IDLE).await;
            continue;
        }
        let pause = match look(&tools, site, &machines).await {
            Some((changed, pause)) => {
                for job in watches.concerned(site, &changed) {
                    if pokes.send(Poke::Job(job)).await.is_err() {
                        return;
                    }
                }
                pause
            }
            None => IDLE,
        };
        tokio::time::sleep(pause).await;
    }
}

async fn look(tools: &Tools, site: SiteId, machines: &[SystemId]) -> Option<(Vec<SystemId>, Duration)> {
    let site = tools.site(site, tools.clock.now()).await.ok()??;
    let SiteProvider::Maas(settings) = &site.provider else { return None };
    let pause = Duration::from_millis(settings.policy.poll_interval_ms);
    match tools.providers.maas(&site).await {
        Ok(region) => match region.poll(machines).await {
            Ok(changed) => Some((changed, pause)),
            Err(error) => {
                warn!(site_id = %site.id, %error, "site cannot be observed");
                Some((Vec::new(), pause))
            }
        },
        Err(error) => {
            warn!(site_id = %site.id, %error, "site has no usable client");
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_site_whose_follower_panics_is_named_and_the_others_go_on() {
        let sites: Vec<SiteId> = (1..3).map(|n| SiteId::new(uuid::Uuid::from_u128(n))).collect();
        let mut followers = Followers::default();
        followers.start(sites[0], std::future::pending());
        followers.start(sites[1], async { panic!("a planned panic") });
        assert_eq!(followers.lost().await, sites[1]);
        assert_eq!(followers.tasks.len(), 1);
    }
}
