//! Jobs: their table and their lists.

use lattice_core::failure::FailureClass;
use lattice_core::ids::{BatchId, Generation, JobId, NodeId, SiteId};
use lattice_core::job::{Job, JobKind, JobLease, JobStatus, StageName};
use lattice_core::node::Node;
use lattice_core::time::Timestamp;
use uuid::Uuid;

use crate::error::StoreError;
use crate::node;
use crate::page::{Cursor, PAGE_MAX, Page, PageRequest};
use crate::sql::{Conditions, Query, Reader, Value};
use crate::store::Store;
use crate::table::{Kind, Table, Writes, col, stable};

/// One row for each job.
///
/// The whole job stands in `body`; what lists, filters and drivers ask for stands in columns beside it. `due_at` is
/// when a driver may take it up: the later of its next time and the end of its lease, 0 for at once, null when
/// nothing is to be done.
pub(crate) const JOBS: Table = Table {
    name: "jobs",
    key: 1,
    writes: Writes::Replace,
    columns: &[
        stable("id", Kind::Id),
        stable("kind", Kind::Text),
        stable("node", Kind::Id),
        stable("site", Kind::Id),
        stable("batch", Kind::Id),
        stable("created_at", Kind::Int),
        stable("automatic", Kind::Int),
        col("hostname", Kind::Text),
        col("status", Kind::Text),
        col("stage", Kind::Text),
        col("attempt", Kind::Int),
        col("round", Kind::Int),
        col("epoch", Kind::Int),
        col("fence", Kind::Int),
        col("next_at", Kind::Int),
        col("due_at", Kind::Int),
        col("failure_class", Kind::Text),
        col("error_code", Kind::Text),
        col("error_message", Kind::Text),
        col("observed_status", Kind::Text),
        col("observed_power", Kind::Text),
        col("observed_addresses", Kind::Text),
        col("observed_at", Kind::Int),
        col("lease_holder", Kind::Text),
        col("lease_until", Kind::Int),
        col("started_at", Kind::Int),
        col("finished_at", Kind::Int),
        col("updated_at", Kind::Int),
        col("generation", Kind::Int),
        col("body", Kind::Text),
    ],
};

const SUMMARY: &str = "SELECT id, kind, node, site, batch, created_at, hostname, status, stage, attempt, round, epoch, \
    next_at, failure_class, error_code, error_message, observed_status, lease_holder, lease_until, started_at, \
    finished_at, updated_at, generation FROM jobs";

/// Statuses of jobs that are not over: those that are not [`JobStatus::is_terminal`].
pub(crate) const LIVE: &str =
    "status IN ('pending', 'running', 'compensating', 'failed_retryable', 'failed_manual_intervention')";

/// Kinds of jobs that own their node: those of which one at most is live, as [`JobKind::owns_its_node`] says.
pub(crate) const OWNING: &str = "kind <> 'bmc_investigation'";

/// Whether a driver has something to do for a job of that status, now or later: to start it or to drive it.
const fn is_runnable(status: JobStatus) -> bool {
    status.is_driven() || matches!(status, JobStatus::Pending)
}

pub(crate) fn row(job: &Job) -> Vec<Value<'_>> {
    let state = &job.state;
    let failure = state.failure.as_ref();
    let observed = job.observed.as_ref();
    vec![
        Value::Id(job.id.uuid()),
        Value::name(job.kind),
        Value::Id(job.node.uuid()),
        Value::Id(job.site.uuid()),
        Value::opt_id(job.batch.map(BatchId::uuid)),
        Value::time(job.created_at),
        Value::flag(job.takes_by_itself()),
        Value::text(&job.hostname),
        Value::name(state.status),
        Value::name(state.stage),
        Value::Int(i64::from(state.attempt)),
        Value::Int(i64::from(state.round)),
        Value::Int(i64::from(state.epoch)),
        Value::count(state.fence.0),
        Value::opt_time(state.next_at),
        due_at(job),
        failure.map_or(Value::Null, |failure| Value::name(failure.class)),
        Value::opt_text(failure.map(|failure| failure.error_code.as_str())),
        Value::opt_text(failure.map(|failure| failure.message.as_str())),
        Value::opt_text(observed.map(|observed| observed.status.as_str())),
        observed.map_or(Value::Null, |observed| Value::name(observed.power)),
        observed.map_or(Value::Null, |observed| Value::json(&observed.addresses)),
        Value::opt_time(observed.map(|observed| observed.at)),
        Value::opt_text(job.lease.as_ref().map(|lease| lease.holder.as_str())),
        Value::opt_time(job.lease.as_ref().map(|lease| lease.until)),
        Value::opt_time(job.started_at),
        Value::opt_time(job.finished_at),
        Value::time(job.updated_at),
        Value::generation(job.generation),
        Value::json(job),
    ]
}

fn due_at(job: &Job) -> Value<'static> {
    if !is_runnable(job.state.status) {
        return Value::Null;
    }
    // A child of a batch is started by whoever gives the permits, and is nobody's business before.
    if job.state.status == JobStatus::Pending && job.batch.is_some() {
        return Value::Null;
    }
    let lease = job.lease.as_ref().map(|lease| lease.until);
    Value::Int(job.state.next_at.max(lease).map_or(0, Timestamp::as_millis))
}

fn read(r: &mut Reader<'_>) -> Result<Job, StoreError> {
    r.json()
}

/// A job as lists show it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobSummary {
    /// Identity.
    pub id: JobId,
    /// What it is for.
    pub kind: JobKind,
    /// On which node.
    pub node: NodeId,
    /// At which site.
    pub site: SiteId,
    /// Part of which batch.
    pub batch: Option<BatchId>,
    /// When it was asked for.
    pub created_at: Timestamp,
    /// The node's hostname.
    pub hostname: String,
    /// Its status.
    pub status: JobStatus,
    /// Its stage.
    pub stage: StageName,
    /// Attempts of the stage.
    pub attempt: u32,
    /// Pass of the flow's way back, from 0.
    pub round: u32,
    /// Clean restarts, from 0.
    pub epoch: u32,
    /// Not before.
    pub next_at: Option<Timestamp>,
    /// Class of its failure.
    pub failure_class: Option<FailureClass>,
    /// Code of its failure.
    pub error_code: Option<String>,
    /// What failed, for people.
    pub error_message: Option<String>,
    /// The provider's word for the machine, as last seen.
    pub observed_status: Option<String>,
    /// Who runs it now.
    pub lease: Option<JobLease>,
    /// When it was started first.
    pub started_at: Option<Timestamp>,
    /// When it ended.
    pub finished_at: Option<Timestamp>,
    /// When its row changed last.
    pub updated_at: Timestamp,
    /// Version of the row.
    pub generation: Generation,
}

fn read_summary(r: &mut Reader<'_>) -> Result<JobSummary, StoreError> {
    Ok(JobSummary {
        id: JobId::new(r.id()?),
        kind: r.name()?,
        node: NodeId::new(r.id()?),
        site: SiteId::new(r.id()?),
        batch: r.opt_id()?.map(BatchId::new),
        created_at: r.time()?,
        hostname: r.text()?,
        status: r.name()?,
        stage: r.name()?,
        attempt: r.small()?,
        round: r.small()?,
        epoch: r.small()?,
        next_at: r.opt_time()?,
        failure_class: r.opt_name()?,
        error_code: r.opt_text()?,
        error_message: r.opt_text()?,
        observed_status: r.opt_text()?,
        lease: match (r.opt_text()?, r.opt_time()?) {
            (Some(holder), Some(until)) => Some(JobLease { holder, until }),
            (Some(_) | None, _) => None,
        },
        started_at: r.opt_time()?,
        finished_at: r.opt_time()?,
        updated_at: r.time()?,
        generation: r.generation()?,
    })
}

/// Which jobs a list has. An empty filter has all.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct JobFilter {
    /// With one of these statuses; the alias `failed` is both failed ones.
    pub statuses: Vec<JobStatus>,
    /// Of one of these kinds.
    pub kinds: Vec<JobKind>,
    /// On this node.
    pub node: Option<NodeId>,
    /// At this site.
    pub site: Option<SiteId>,
    /// Of this batch.
    pub batch: Option<BatchId>,
    /// In this stage.
    pub stage: Option<StageName>,
    /// With a failure of this class.
    pub failure_class: Option<FailureClass>,
    /// Of hosts whose names begin so.
    pub hostname_prefix: Option<String>,
}

impl JobFilter {
    fn conditions(&self) -> Conditions {
        let mut conditions = Conditions::default();
        conditions.one_of("status", self.statuses.iter().map(|status| Value::name(*status)));
        conditions.one_of("kind", self.kinds.iter().map(|kind| Value::name(*kind)));
        if let Some(node) = self.node {
            conditions.add("node = ?", [Value::Id(node.uuid())]);
        }
        if let Some(site) = self.site {
            conditions.add("site = ?", [Value::Id(site.uuid())]);
        }
        if let Some(batch) = self.batch {
            conditions.add("batch = ?", [Value::Id(batch.uuid())]);
        }
        if let Some(stage) = self.stage {
            conditions.add("stage = ?", [Value::name(stage)]);
        }
        if let Some(class) = self.failure_class {
            conditions.add("failure_class = ?", [Value::name(class)]);
        }
        if let Some(prefix) = &self.hostname_prefix {
            let end = format!("{prefix}\u{10ffff}");
            conditions.add("hostname >= ? AND hostname < ?", [Value::owned(prefix.clone()), Value::owned(end)]);
        }
        conditions
    }
}

impl Store {
    /// One page of the jobs that `filter` lets through, the newest first.
    ///
    /// # Errors
    /// A cursor of another list; the database fails.
    pub async fn jobs(&self, filter: &JobFilter, page: &PageRequest) -> Result<Page<JobSummary>, StoreError> {
        let mut conditions = filter.conditions();
        if let Some(cursor) = &page.cursor {
            conditions.add("id < ?", [Value::Id(cursor.last::<Uuid>()?)]);
        }
        let rows = self.fetch(conditions.query(SUMMARY, "ORDER BY id DESC", page.probe()), read_summary).await?;
        Ok(page.page(rows, |last| Cursor::new(&[&last.id])))
    }

    /// How many jobs stand in which status.
    ///
    /// # Errors
    /// The database fails.
    pub async fn job_counts(&self) -> Result<Vec<(JobStatus, u64)>, StoreError> {
        const COUNTS: &str = "SELECT status, COUNT(*) FROM jobs GROUP BY status";
        self.fetch(Query::new(COUNTS, vec![]), |r| Ok((r.name()?, r.count()?))).await
    }

    /// A job.
    ///
    /// # Errors
    /// The database fails.
    pub async fn job(&self, id: JobId) -> Result<Option<Job>, StoreError> {
        const JOB: &str = "SELECT body FROM jobs WHERE id = ?1";
        Ok(self.fetch(Query::new(JOB, vec![Value::Id(id.uuid())]), read).await?.pop())
    }

    /// A job with its node, read at once: what a turn begins with. None when there is no such job, or it has no node.
    ///
    /// # Errors
    /// The database fails.
    pub async fn job_and_node(&self, id: JobId) -> Result<Option<(Job, Node)>, StoreError> {
        let sql = format!(
            "SELECT {}, (SELECT body FROM jobs WHERE id = ?1) FROM nodes \
             WHERE id = (SELECT node FROM jobs WHERE id = ?1)",
            node::COLUMNS
        );
        let query = Query { sql: sql.into(), params: vec![Value::Id(id.uuid())] };
        let found = self.fetch(query, |r| {
            let node = node::read(r)?;
            Ok((read(r)?, node))
        });
        Ok(found.await?.pop())
    }

    /// The newest job that owns a node and is not over.
    ///
    /// # Errors
    /// The database fails.
    pub async fn live_job(&self, node: NodeId) -> Result<Option<Job>, StoreError> {
        let mut conditions = Conditions::default();
        conditions.add("node = ?", [Value::Id(node.uuid())]);
        conditions.add(LIVE, []);
        conditions.add(OWNING, []);
        Ok(self.fetch(conditions.query("SELECT body FROM jobs", "ORDER BY id DESC", 1), read).await?.pop())
    }

    /// Jobs that a driver may take up at `now`: their next time has come and nobody else holds them. The longest
    /// overdue first, at most `limit` of them, never more than [`PAGE_MAX`].
    ///
    /// # Errors
    /// The database fails.
    pub async fn due_jobs(&self, now: Timestamp, limit: usize) -> Result<Vec<Job>, StoreError> {
        const DUE: &str = "SELECT body FROM jobs WHERE due_at <= ?1 ORDER BY due_at, id LIMIT ?2";
        let limit = Value::count(limit.min(PAGE_MAX) as u64);
        self.fetch(Query::new(DUE, vec![Value::time(now), limit]), read).await
    }

    /// When the next job is due: a driver need not look before. None while there is nothing to do.
    ///
    /// # Errors
    /// The database fails.
    pub async fn next_due(&self) -> Result<Option<Timestamp>, StoreError> {
        const NEXT: &str = "SELECT due_at FROM jobs WHERE due_at IS NOT NULL ORDER BY due_at LIMIT 1";
        Ok(self.fetch(Query::new(NEXT, vec![]), |r| r.time()).await?.pop())
    }

    /// Jobs that a driver has something to do for, now or later, by id, after one of them: at most [`PAGE_MAX`].
    /// A driver rebuilds its timers from them.
    ///
    /// # Errors
    /// The database fails.
    pub async fn runnable_jobs(&self, after: Option<JobId>) -> Result<Vec<Job>, StoreError> {
        let mut conditions = Conditions::default();
        conditions.add("due_at IS NOT NULL", []);
        if let Some(after) = after {
            conditions.add("id > ?", [Value::Id(after.uuid())]);
        }
        self.fetch(conditions.query("SELECT body FROM jobs", "ORDER BY id", PAGE_MAX), read).await
    }
}

#[cfg(test)]
mod tests {
    use strum::VariantArray;

    use super::*;

    #[test]
    fn the_live_statuses_in_sql_are_those_that_are_not_terminal() {
        for status in JobStatus::VARIANTS {
            assert_eq!(LIVE.contains(&format!("'{status}'")), !status.is_terminal(), "{status}");
        }
    }
}
