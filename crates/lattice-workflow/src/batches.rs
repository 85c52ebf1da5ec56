//! Gives permits to the children of batches, cancels those of cancelled ones, and keeps each batch's status in step
//! with its children. Decided in `lattice_core::batch`, from rows alone: after a crash it begins with what stands there.
//! design: 3-jobs "Batches"
//!
//! One server does it at a time, under a lease that fences a former holder's commits; so no two of them give the
//! same permit. A start carries the batch's generation: nothing starts under an operator who pauses at that moment.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use lattice_core::actor::Actor;
use lattice_core::batch::admission::{Admission, Asking, SiteRoom, admit, parallel};
use lattice_core::batch::{Batch, BatchControl, Children, cancel_request, follow};
use lattice_core::change::{Change, Commit, Guard, Outcome};
use lattice_core::command::Request;
use lattice_core::command::job::{self as commands, Asked};
use lattice_core::ids::{JobId, LeaseEpoch, OpId, SiteId};
use lattice_core::job::{Decisions, Job, OperatorAction};
use lattice_core::time::Timestamp;
use lattice_store::{Held, PAGE_MAX};
use tokio::sync::oneshot;
use tracing::{info, warn};

use crate::driver::embedded::Waker;
use crate::runner::TurnError;
use crate::tools::Tools;

/// Name of the lease.
const LEASE: &str = "batches";

/// Shortest pause between two looks: events come in bursts, and a permit that is free for a tenth of a second longer
/// is not missed by a machine that takes an hour.
const PAUSE: Duration = Duration::from_millis(100);

/// Longest pause: another server's lease may have run out, without an event.
const LONGEST: Duration = Duration::from_secs(10);

/// Children that are cancelled in one transaction.
const TOGETHER: usize = 100;

/// Looks after batches.
pub struct Batches {
    tools: Arc<Tools>,
    lease: Held,
}

impl Batches {
    /// With these tools; nothing is remembered from one look to the next but the lease.
    pub fn new(tools: Arc<Tools>) -> Self {
        let lease = Held::new(LEASE, tools.holder.clone());
        Self { tools, lease }
    }

    /// Looks whenever something happened, and wakes the jobs that it moved, until it is stopped.
    pub(crate) async fn run(mut self, waker: Waker, mut stop: oneshot::Receiver<()>) {
        let mut events = self.tools.store.follow();
        loop {
            let seen = self.tools.store.last_event().await.unwrap_or_default();
            match self.tick().await {
                Ok(moved) => {
                    for job in moved {
                        waker.job(job).await;
                    }
                }
                Err(TurnError::Crashed(_)) => return,
                Err(error) => warn!(%error, "batches wait for the store"),
            }
            let happened = async {
                tokio::time::sleep(PAUSE).await;
                tokio::time::timeout(LONGEST, events.after(seen)).await
            };
            tokio::select! {
                biased;
                _ = &mut stop => return self.lease.release(&self.tools.store).await,
                woken = happened => match woken {
                    Ok(Ok(_)) | Err(_) => {}
                    Ok(Err(_)) => return,
                },
            }
        }
    }

    /// One look at every batch that is not over; the jobs that it started or cancelled.
    ///
    /// # Errors
    /// The store fails: what was committed stands, the next look finds the rest.
    pub async fn tick(&mut self) -> Result<Vec<JobId>, TurnError> {
        let mut moved = Vec::new();
        let live = self.live().await?;
        if live.is_empty() {
            return Ok(moved);
        }
        let Some(lease) = self.lease.epoch(&self.tools.store, self.tools.clock.now()).await? else { return Ok(moved) };
        let mut sites: BTreeMap<SiteId, Vec<Batch>> = BTreeMap::new();
        for batch in live {
            sites.entry(batch.site).or_default().push(batch);
        }
        for (site, batches) in sites {
            moved.extend(self.look(site, &batches, lease).await?);
        }
        Ok(moved)
    }

    async fn live(&self) -> Result<Vec<Batch>, TurnError> {
        let mut live: Vec<Batch> = Vec::new();
        loop {
            let page = self.tools.store.live_batches(live.last().map(|batch| batch.id)).await?;
            let is_last = page.len() < PAGE_MAX;
            live.extend(page);
            if is_last {
                return Ok(live);
            }
        }
    }

    async fn look(&self, site: SiteId, batches: &[Batch], lease: LeaseEpoch) -> Result<Vec<JobId>, TurnError> {
        let mut moved = Vec::new();
        for batch in batches.iter().filter(|batch| batch.control == BatchControl::Cancel) {
            moved.extend(self.cancel_children(batch, lease).await?);
        }
        let asking = self.asking(batches).await?;
        let Some(row) = self.tools.store.site(site).await? else { return Ok(moved) };
        let running = self.tools.store.moving_onboardings(site).await?;
        let room = SiteRoom { status: row.status, parallel: parallel(&row), running };
        for (admission, asking) in admit(room, &asking).into_iter().zip(&asking) {
            moved.extend(self.start_children(asking.batch, &admission, lease).await?);
        }
        for asking in self.asking(batches).await? {
            self.keep_in_step(asking.batch, &asking.children, lease).await?;
        }
        Ok(moved)
    }

    async fn asking<'a>(&self, batches: &'a [Batch]) -> Result<Vec<Asking<'a>>, TurnError> {
        let ids: Vec<_> = batches.iter().map(|batch| batch.id).collect();
        let children = self.tools.store.children_of(&ids).await?;
        let of = |batch: &Batch| children.get(&batch.id).copied().unwrap_or_default();
        Ok(batches.iter().map(|batch| Asking { batch, children: of(batch) }).collect())
    }

    async fn start_children(
        &self,
        batch: &Batch,
        admission: &Admission,
        lease: LeaseEpoch,
    ) -> Result<Vec<JobId>, TurnError> {
        if admission.start == 0 {
            return Ok(Vec::new());
        }
        let children = self.tools.store.next_children(batch.id, admission.start as usize).await?;
        let mut starts = Vec::new();
        for job in children {
            let now = self.tools.clock.now();
            let request = self.request(batch, OpId::generate(&*self.tools.ids, now), now);
            let (Some(node), Some(site)) =
                (self.tools.store.node(job.node).await?, self.tools.store.site(job.site).await?)
            else {
                continue;
            };
            match commands::start(&request, &job, &node, &site) {
                Ok(Some(changes)) => starts.push((job.id, self.commit(&request, batch, lease, changes))),
                Ok(None) => {}
                Err(refused) => warn!(job_id = %job.id, error = %refused, "a child of a batch cannot be started"),
            }
        }
        self.send(starts).await
    }

    /// Cancels every child that is not over and was not asked yet.
    async fn cancel_children(&self, batch: &Batch, lease: LeaseEpoch) -> Result<Vec<JobId>, TurnError> {
        let mut moved = Vec::new();
        let mut after = None;
        loop {
            let children = self.tools.store.children_to_cancel(batch.id, after, TOGETHER).await?;
            let is_last = children.len() < TOGETHER;
            after = children.last().map(|job| job.id);
            let mut cancels = Vec::new();
            for job in &children {
                if let Some(commit) = self.cancel(batch, job, lease).await? {
                    cancels.push((job.id, commit));
                }
            }
            moved.extend(self.send(cancels).await?);
            if is_last {
                return Ok(moved);
            }
        }
    }

    async fn cancel(&self, batch: &Batch, job: &Job, lease: LeaseEpoch) -> Result<Option<Commit>, TurnError> {
        let (Some(node), Some(site)) = (self.tools.store.node(job.node).await?, self.tools.store.site(job.site).await?)
        else {
            return Ok(None);
        };
        let now = self.tools.clock.now();
        let request = self.request(batch, cancel_request(batch.id, job.id), now);
        let asked = Asked { action: OperatorAction::Cancel, decisions: Decisions::default(), observed: None };
        match commands::act(&request, job, &node, &site, &asked) {
            Ok(Some(planned)) => Ok(Some(self.commit(&request, batch, lease, planned.commit.changes))),
            // It was asked before: what its undo came to is an operator's business.
            Ok(None) => Ok(None),
            Err(refused) => {
                info!(job_id = %job.id, because = %refused, "a child of a cancelled batch is not cancelled yet");
                Ok(None)
            }
        }
    }

    /// Writes a status that changed, with its event.
    async fn keep_in_step(&self, batch: &Batch, children: &Children, lease: LeaseEpoch) -> Result<(), TurnError> {
        let now = self.tools.clock.now();
        let Some(change) = follow(batch, children, now) else { return Ok(()) };
        let (from, to) = (batch.status, change.after.status);
        let request = self.request(batch, OpId::generate(&*self.tools.ids, now), now);
        let guards = vec![Guard::Lease { name: LEASE.to_owned(), epoch: lease }];
        let commit = request.commit(guards, vec![Change::Batch(Box::new(change))]);
        if let Outcome::Applied { .. } = self.tools.store.commit_one(commit).await? {
            info!(batch_id = %batch.id, site_id = %batch.site, correlation_id = %batch.correlation, %from, %to,
                "batch changed");
        }
        // A batch that an operator changed meanwhile is looked at anew: his commit is an event.
        self.tools.crash.pass()?;
        Ok(())
    }

    fn commit(&self, request: &Request, batch: &Batch, lease: LeaseEpoch, changes: Vec<Change>) -> Commit {
        let guards = vec![
            Guard::Lease { name: LEASE.to_owned(), epoch: lease },
            Guard::BatchGeneration { batch: batch.id, have: batch.generation },
        ];
        request.commit(guards, changes)
    }

    /// Commits; the jobs whose change is durable. The others changed meanwhile: the next look finds them as they are.
    async fn send(&self, commits: Vec<(JobId, Commit)>) -> Result<Vec<JobId>, TurnError> {
        if commits.is_empty() {
            return Ok(Vec::new());
        }
        let (jobs, commits): (Vec<JobId>, Vec<Commit>) = commits.into_iter().unzip();
        let outcomes = self.tools.store.commit(commits).await?;
        self.tools.crash.pass()?;
        let applied = |outcome: &Outcome| match outcome {
            Outcome::Applied { .. } | Outcome::Duplicate { .. } => true,
            Outcome::Conflict { .. } | Outcome::Missing { .. } | Outcome::Fenced => false,
        };
        Ok(jobs.into_iter().zip(&outcomes).filter(|(_, outcome)| applied(outcome)).map(|(job, _)| job).collect())
    }

    fn request(&self, batch: &Batch, op: OpId, now: Timestamp) -> Request<'_> {
        Request {
            actor: Actor::system("batches"),
            reason: batch.reason.clone(),
            now,
            ids: &*self.tools.ids,
            op,
            correlation: batch.correlation,
        }
    }
}
