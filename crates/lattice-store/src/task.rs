//! Tasks of agents: their table, and what waits for whom.

use lattice_core::agent::task::{Task, TaskKind, TaskStatus};
use lattice_core::ids::{AllocationId, JobId, NodeId, TaskId};
use lattice_core::time::Timestamp;
use uuid::Uuid;

use crate::error::StoreError;
use crate::page::{Cursor, PAGE_MAX, Page, PageRequest};
use crate::sql::{Conditions, Query, Value};
use crate::store::Store;
use crate::table::{Kind, Table, Writes, col};

/// One row for each task; the whole of it stands in `body`.
pub(crate) const TASKS: Table = Table {
    name: "tasks",
    key: 1,
    writes: Writes::Replace,
    columns: &[
        col("id", Kind::Id),
        col("node", Kind::Id),
        col("job", Kind::Id),
        col("allocation", Kind::Id),
        col("key", Kind::Text),
        col("kind", Kind::Text),
        col("status", Kind::Text),
        col("due_at", Kind::Int),
        col("delivered_at", Kind::Int),
        col("finished_at", Kind::Int),
        col("updated_at", Kind::Int),
        col("generation", Kind::Int),
        col("body", Kind::Text),
    ],
};

pub(crate) fn row(task: &Task) -> Vec<Value<'_>> {
    vec![
        Value::Id(task.id.uuid()),
        Value::Id(task.node.uuid()),
        Value::opt_id(task.owner.job().map(JobId::uuid)),
        Value::opt_id(task.allocation().map(AllocationId::uuid)),
        Value::text(&task.key),
        Value::name(task.input.kind()),
        Value::name(task.status),
        Value::opt_time(due_at(task)),
        Value::opt_time(task.delivered_at),
        Value::opt_time(task.finished_at),
        Value::time(task.updated_at),
        Value::generation(task.generation),
        Value::json(task),
    ]
}

/// When it is given up if nothing happens.
fn due_at(task: &Task) -> Option<Timestamp> {
    match task.status {
        TaskStatus::Pending => Some(task.expires_at),
        TaskStatus::Delivered | TaskStatus::Running => Some(task.finish_by),
        TaskStatus::Succeeded | TaskStatus::Failed | TaskStatus::Expired | TaskStatus::Cancelled => None,
    }
}

/// Which tasks. An empty filter lets all through.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TaskFilter {
    /// Of this node.
    pub node: Option<NodeId>,
    /// Issued by this job.
    pub job: Option<JobId>,
    /// About this allocation.
    pub allocation: Option<AllocationId>,
    /// Whose key begins so.
    pub key_prefix: Option<String>,
    /// In one of these statuses.
    pub statuses: Vec<TaskStatus>,
    /// Of one of these kinds.
    pub kinds: Vec<TaskKind>,
}

/// How many tasks of a kind stand in a status.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TaskCount {
    /// Their kind.
    pub kind: TaskKind,
    /// Their status.
    pub status: TaskStatus,
    /// How many.
    pub count: u64,
}

impl Store {
    /// A task.
    ///
    /// # Errors
    /// The database fails.
    pub async fn task(&self, id: TaskId) -> Result<Option<Task>, StoreError> {
        const TASK: &str = "SELECT body FROM tasks WHERE id = ?1";
        Ok(self.fetch(Query::new(TASK, vec![Value::Id(id.uuid())]), |r| r.json()).await?.pop())
    }

    /// The task that was created under an idempotency key.
    ///
    /// # Errors
    /// The database fails.
    pub async fn task_by_key(&self, key: &str) -> Result<Option<Task>, StoreError> {
        const TASK: &str = "SELECT body FROM tasks WHERE key = ?1";
        Ok(self.fetch(Query::new(TASK, vec![Value::owned(key.to_owned())]), |r| r.json()).await?.pop())
    }

    /// One page of the tasks that `filter` lets through, the newest first.
    ///
    /// # Errors
    /// A cursor of another list; the database fails.
    pub async fn tasks(&self, filter: &TaskFilter, page: &PageRequest) -> Result<Page<Task>, StoreError> {
        let mut conditions = Conditions::default();
        if let Some(node) = filter.node {
            conditions.add("node = ?", [Value::Id(node.uuid())]);
        }
        if let Some(job) = filter.job {
            conditions.add("job = ?", [Value::Id(job.uuid())]);
        }
        if let Some(allocation) = filter.allocation {
            conditions.add("allocation = ?", [Value::Id(allocation.uuid())]);
        }
        if let Some(prefix) = &filter.key_prefix {
            conditions.add("key LIKE ?", [Value::owned(format!("{prefix}%"))]);
        }
        conditions.one_of("status", filter.statuses.iter().map(|status| Value::name(*status)));
        conditions.one_of("kind", filter.kinds.iter().map(|kind| Value::name(*kind)));
        if let Some(cursor) = &page.cursor {
            conditions.add("id < ?", [Value::Id(cursor.last::<Uuid>()?)]);
        }
        let query = conditions.query("SELECT body FROM tasks", "ORDER BY id DESC", page.probe());
        let rows = self.fetch(query, |r| r.json()).await?;
        Ok(page.page(rows, |last: &Task| Cursor::new(&[&last.id])))
    }

    /// Tasks of a node that are not over, the oldest first; at most `limit`.
    ///
    /// # Errors
    /// The database fails.
    pub async fn open_tasks(&self, node: NodeId, limit: usize) -> Result<Vec<Task>, StoreError> {
        const OPEN: &str = "SELECT body FROM tasks WHERE node = ?1 AND finished_at IS NULL ORDER BY id LIMIT ?2";
        let params = vec![Value::Id(node.uuid()), Value::count(limit.min(PAGE_MAX) as u64)];
        self.fetch(Query::new(OPEN, params), |r| r.json()).await
    }

    /// Nodes with a task that waits to be handed over, at most [`PAGE_MAX`] after one of them, in their order.
    ///
    /// # Errors
    /// The database fails.
    pub async fn nodes_with_tasks(&self, after: Option<NodeId>) -> Result<Vec<NodeId>, StoreError> {
        let mut conditions = Conditions::default();
        conditions.add("finished_at IS NULL", []);
        conditions.one_of("status", [TaskStatus::Pending, TaskStatus::Delivered].map(Value::name));
        if let Some(after) = after {
            conditions.add("node > ?", [Value::Id(after.uuid())]);
        }
        let query = conditions.query("SELECT DISTINCT node FROM tasks", "ORDER BY node", PAGE_MAX);
        self.fetch(query, |r| Ok(NodeId::new(r.id()?))).await
    }

    /// Nodes with a task that waits since `before` or longer: not handed over, or handed over and not begun. At most
    /// [`PAGE_MAX`] after one of them, in their order.
    ///
    /// # Errors
    /// The database fails.
    pub async fn nodes_to_remind(&self, before: Timestamp, after: Option<NodeId>) -> Result<Vec<NodeId>, StoreError> {
        let mut conditions = Conditions::default();
        conditions.add("finished_at IS NULL", []);
        conditions.one_of("status", [TaskStatus::Pending, TaskStatus::Delivered].map(Value::name));
        conditions.add("updated_at <= ?", [Value::time(before)]);
        if let Some(after) = after {
            conditions.add("node > ?", [Value::Id(after.uuid())]);
        }
        let query = conditions.query("SELECT DISTINCT node FROM tasks", "ORDER BY node", PAGE_MAX);
        self.fetch(query, |r| Ok(NodeId::new(r.id()?))).await
    }

    /// Tasks whose time is over at `now`, the longest overdue first; at most [`PAGE_MAX`].
    ///
    /// # Errors
    /// The database fails.
    pub async fn overdue_tasks(&self, now: Timestamp) -> Result<Vec<Task>, StoreError> {
        const DUE: &str = "SELECT body FROM tasks WHERE finished_at IS NULL AND due_at <= ?1 ORDER BY due_at LIMIT ?2";
        let params = vec![Value::time(now), Value::count(PAGE_MAX as u64)];
        self.fetch(Query::new(DUE, params), |r| r.json()).await
    }

    /// Until when an agent may be handed, or may come back with, a task that is open now; none: no task is open.
    ///
    /// # Errors
    /// The database fails.
    pub async fn last_task_deadline(&self) -> Result<Option<Timestamp>, StoreError> {
        const LAST: &str = "SELECT due_at FROM tasks WHERE finished_at IS NULL ORDER BY due_at DESC LIMIT 1";
        Ok(self.fetch(Query::new(LAST, Vec::new()), |r| r.time()).await?.pop())
    }

    /// How many tasks of each kind are not over, by status.
    ///
    /// # Errors
    /// The database fails.
    pub async fn open_task_counts(&self) -> Result<Vec<TaskCount>, StoreError> {
        const COUNTS: &str = "SELECT kind, status, COUNT(*) FROM tasks WHERE finished_at IS NULL GROUP BY kind, status";
        let query = Query::new(COUNTS, Vec::new());
        self.fetch(query, |r| Ok(TaskCount { kind: r.name()?, status: r.name()?, count: r.count()? })).await
    }
}
