//! Batches of onboardings: their table, their children's counts, and what stands in the way of a new one.

use std::collections::HashMap;

use lattice_core::batch::{Batch, BatchStatus, Children};
use lattice_core::command::batch::InUse;
use lattice_core::ids::{BatchId, JobId, NodeId, SiteId};
use lattice_core::job::{Job, JobStatus, StageName};
use uuid::Uuid;

use crate::error::StoreError;
use crate::page::{Cursor, PAGE_MAX, Page, PageRequest};
use crate::sql::{Conditions, Query, Value};
use crate::store::Store;
use crate::table::{Kind, Table, Writes, col};

/// One row for each batch; the whole of it stands in `body`.
pub(crate) const BATCHES: Table = Table {
    name: "batches",
    key: 1,
    writes: Writes::Replace,
    columns: &[
        col("id", Kind::Id),
        col("site", Kind::Id),
        col("status", Kind::Text),
        col("control", Kind::Text),
        col("machines", Kind::Int),
        col("created_at", Kind::Int),
        col("finished_at", Kind::Int),
        col("updated_at", Kind::Int),
        col("generation", Kind::Int),
        col("body", Kind::Text),
    ],
};

pub(crate) fn row(batch: &Batch) -> Vec<Value<'_>> {
    vec![
        Value::Id(batch.id.uuid()),
        Value::Id(batch.site.uuid()),
        Value::name(batch.status),
        Value::name(batch.control),
        Value::count(batch.machines),
        Value::time(batch.created_at),
        Value::opt_time(batch.finished_at),
        Value::time(batch.updated_at),
        Value::generation(batch.generation),
        Value::json(batch),
    ]
}

/// Which batches. An empty filter lets all through.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct BatchFilter {
    /// In one of these statuses.
    pub statuses: Vec<BatchStatus>,
    /// At this site.
    pub site: Option<SiteId>,
}

/// Children of a batch that stand in one status at one stage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChildCount {
    /// Their status.
    pub status: JobStatus,
    /// Their stage.
    pub stage: StageName,
    /// How many.
    pub count: u64,
}

impl Store {
    /// A batch.
    ///
    /// # Errors
    /// The database fails.
    pub async fn batch(&self, id: BatchId) -> Result<Option<Batch>, StoreError> {
        const BATCH: &str = "SELECT body FROM batches WHERE id = ?1";
        Ok(self.fetch(Query::new(BATCH, vec![Value::Id(id.uuid())]), |r| r.json()).await?.pop())
    }

    /// One page of the batches that `filter` lets through, the newest first.
    ///
    /// # Errors
    /// A cursor of another list; the database fails.
    pub async fn batches(&self, filter: &BatchFilter, page: &PageRequest) -> Result<Page<Batch>, StoreError> {
        let mut conditions = Conditions::default();
        conditions.one_of("status", filter.statuses.iter().map(|status| Value::name(*status)));
        if let Some(site) = filter.site {
            conditions.add("site = ?", [Value::Id(site.uuid())]);
        }
        if let Some(cursor) = &page.cursor {
            conditions.add("id < ?", [Value::Id(cursor.last::<Uuid>()?)]);
        }
        let query = conditions.query("SELECT body FROM batches", "ORDER BY id DESC", page.probe());
        let rows = self.fetch(query, |r| r.json()).await?;
        Ok(page.page(rows, |last: &Batch| Cursor::new(&[&last.id])))
    }

    /// Batches that are not over, the oldest first, after one of them; at most [`PAGE_MAX`].
    ///
    /// # Errors
    /// The database fails.
    pub async fn live_batches(&self, after: Option<BatchId>) -> Result<Vec<Batch>, StoreError> {
        let mut conditions = Conditions::default();
        conditions.add("finished_at IS NULL", []);
        if let Some(after) = after {
            conditions.add("id > ?", [Value::Id(after.uuid())]);
        }
        self.fetch(conditions.query("SELECT body FROM batches", "ORDER BY id", PAGE_MAX), |r| r.json()).await
    }

    /// How many children of each of these batches stand where; a batch without children is left out.
    ///
    /// # Errors
    /// The database fails.
    pub async fn children_of(&self, batches: &[BatchId]) -> Result<HashMap<BatchId, Children>, StoreError> {
        let mut counts: HashMap<BatchId, Vec<(JobStatus, u64)>> = HashMap::new();
        for some in batches.chunks(PAGE_MAX) {
            let mut conditions = Conditions::default();
            conditions.one_of("batch", some.iter().map(|batch| Value::Id(batch.uuid())));
            const COUNTS: &str = "SELECT batch, status, COUNT(*) FROM jobs";
            // A batch has at most as many groups as there are statuses.
            let query = conditions.query(COUNTS, "GROUP BY batch, status", some.len() * 8);
            let rows = self.fetch(query, |r| Ok((BatchId::new(r.id()?), r.name()?, r.count()?))).await?;
            for (batch, status, count) in rows {
                counts.entry(batch).or_default().push((status, count));
            }
        }
        Ok(counts.into_iter().map(|(batch, counts)| (batch, Children::count(counts))).collect())
    }

    /// Where the children of all batches stand, those of finished ones included.
    ///
    /// # Errors
    /// The database fails.
    pub async fn children_of_all(&self) -> Result<Children, StoreError> {
        const COUNTS: &str = "SELECT status, COUNT(*) FROM jobs WHERE batch IS NOT NULL GROUP BY status";
        let rows = self.fetch(Query::new(COUNTS, vec![]), |r| Ok((r.name()?, r.count()?))).await?;
        Ok(Children::count(rows))
    }

    /// Where the children of a batch stand, by status and stage.
    ///
    /// # Errors
    /// The database fails.
    pub async fn children_by_stage(&self, batch: BatchId) -> Result<Vec<ChildCount>, StoreError> {
        const COUNTS: &str = "SELECT status, stage, COUNT(*) FROM jobs WHERE batch = ?1 GROUP BY status, stage";
        let query = Query::new(COUNTS, vec![Value::Id(batch.uuid())]);
        self.fetch(query, |r| Ok(ChildCount { status: r.name()?, stage: r.name()?, count: r.count()? })).await
    }

    /// The children of a batch that are started next, in the order in which they were asked for.
    ///
    /// # Errors
    /// The database fails.
    pub async fn next_children(&self, batch: BatchId, limit: usize) -> Result<Vec<Job>, StoreError> {
        const NEXT: &str = "SELECT body FROM jobs WHERE batch = ?1 AND status = 'pending' ORDER BY id LIMIT ?2";
        let params = vec![Value::Id(batch.uuid()), Value::count(limit.min(PAGE_MAX) as u64)];
        self.fetch(Query::new(NEXT, params), |r| r.json()).await
    }

    /// Children of a batch that a cancel has to reach: not over, and not being undone. By id, after one of them.
    ///
    /// # Errors
    /// The database fails.
    pub async fn children_to_cancel(
        &self,
        batch: BatchId,
        after: Option<JobId>,
        limit: usize,
    ) -> Result<Vec<Job>, StoreError> {
        let mut conditions = Conditions::default();
        conditions.add("batch = ?", [Value::Id(batch.uuid())]);
        let open =
            [JobStatus::Pending, JobStatus::Running, JobStatus::FailedRetryable, JobStatus::FailedManualIntervention];
        conditions.one_of("status", open.iter().map(|status| Value::name(*status)));
        if let Some(after) = after {
            conditions.add("id > ?", [Value::Id(after.uuid())]);
        }
        self.fetch(conditions.query("SELECT body FROM jobs", "ORDER BY id", limit.min(PAGE_MAX)), |r| r.json()).await
    }

    /// How many onboardings of a site hold a permit: those that run, and those that are being undone.
    ///
    /// # Errors
    /// The database fails.
    pub async fn moving_onboardings(&self, site: SiteId) -> Result<u64, StoreError> {
        const MOVING: &str = "SELECT COUNT(*) FROM jobs WHERE site = ?1 AND kind = 'onboarding' \
            AND status IN ('running', 'compensating')";
        let rows = self.fetch(Query::new(MOVING, vec![Value::Id(site.uuid())]), |r| r.count()).await?;
        Ok(rows.first().copied().unwrap_or(0))
    }

    /// The live node of a site that has this hardware address, in lower case: named when it was onboarded, or found on its
    /// host. Asked once for each onboarding that names one, so it may look at all rows of the site.
    ///
    /// # Errors
    /// The database fails.
    pub async fn node_with_mac(&self, site: SiteId, mac: &str) -> Result<Option<(NodeId, String)>, StoreError> {
        const HOLDER: &str = "SELECT n.id, n.hostname FROM nodes n WHERE n.site = ?1 AND n.live = 1 AND ( \
            EXISTS (SELECT 1 FROM jobs j WHERE j.node = n.id AND j.kind = 'onboarding' AND j.body LIKE ?2) \
            OR EXISTS (SELECT 1 FROM host_facts f WHERE f.node = n.id AND LOWER(f.body) LIKE ?3)) LIMIT 1";
        let params = vec![
            Value::Id(site.uuid()),
            Value::owned(format!("%\"pxe_mac\":\"{mac}\"%")),
            Value::owned(format!("%\"mac\":\"{mac}\"%")),
        ];
        Ok(self.fetch(Query::new(HOLDER, params), |r| Ok((NodeId::new(r.id()?), r.text()?))).await?.pop())
    }

    /// Which of these hostnames, and which of these BMC addresses of a site, live nodes have.
    ///
    /// # Errors
    /// The database fails.
    pub async fn in_use(
        &self,
        site: SiteId,
        hostnames: &[String],
        bmc_addresses: &[String],
    ) -> Result<InUse, StoreError> {
        let mut in_use = InUse::default();
        for some in hostnames.chunks(PAGE_MAX) {
            let mut conditions = Conditions::default();
            conditions.add("live = 1", []);
            conditions.one_of("hostname", some.iter().cloned().map(Value::owned));
            let query = conditions.query("SELECT hostname, id FROM nodes", "", some.len());
            let rows = self.fetch(query, |r| Ok((r.text()?, NodeId::new(r.id()?)))).await?;
            in_use.hostnames.extend(rows);
        }
        for some in bmc_addresses.chunks(PAGE_MAX) {
            let mut conditions = Conditions::default();
            conditions.add("site = ?", [Value::Id(site.uuid())]);
            conditions.add("live = 1", []);
            conditions.one_of("bmc_address", some.iter().cloned().map(Value::owned));
            // Rows of before the address was held free may share one.
            let query = conditions.query("SELECT bmc_address, hostname FROM nodes", "ORDER BY id", PAGE_MAX);
            in_use.bmc_addresses.extend(self.fetch(query, |r| Ok((r.text()?, r.text()?))).await?);
        }
        Ok(in_use)
    }
}
