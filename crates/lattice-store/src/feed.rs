//! The outbox: every event in commit order, without gaps, followed from a cursor.

use lattice_core::change::EventRow;
use lattice_core::ids::{EventSeq, JobId, NodeId};

use crate::error::StoreError;
use crate::last::Last;
use crate::page::PAGE_MAX;
use crate::sql::{Conditions, Query, Reader, Value};
use crate::store::Store;
use crate::table::{Kind, Table, Writes, col};

/// One row for each event.
pub(crate) const OUTBOX: Table = Table {
    name: "outbox",
    key: 1,
    writes: Writes::Append,
    columns: &[
        col("seq", Kind::Int),
        col("at", Kind::Int),
        col("name", Kind::Text),
        col("resource_kind", Kind::Text),
        col("resource_id", Kind::Text),
        col("node", Kind::Id),
        col("correlation", Kind::Text),
        col("payload", Kind::Text),
    ],
};

const SELECT: &str = "SELECT seq, at, name, resource_kind, resource_id, node, correlation, payload FROM outbox";

pub(crate) fn row(seq: EventSeq, event: &EventRow) -> Vec<Value<'_>> {
    vec![
        Value::count(seq.0),
        Value::time(event.at),
        Value::text(&event.name),
        Value::text(&event.resource_kind),
        Value::text(&event.resource_id),
        Value::opt_id(event.node.map(NodeId::uuid)),
        Value::text(&event.correlation),
        Value::json(&event.payload),
    ]
}

/// An event with its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// Its place: dense, in commit order.
    pub seq: EventSeq,
    /// What happened.
    pub row: EventRow,
}

fn read(r: &mut Reader<'_>) -> Result<Event, StoreError> {
    Ok(Event {
        seq: EventSeq(r.count()?),
        row: EventRow {
            at: r.time()?,
            name: r.text()?,
            resource_kind: r.text()?,
            resource_id: r.text()?,
            node: r.opt_id()?.map(NodeId::new),
            correlation: r.text()?,
            payload: r.json()?,
        },
    })
}

/// Which events a reader wants. An empty filter lets all through.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct EventFilter {
    /// Those that concern this node: its own and those of its jobs and tokens.
    pub node: Option<NodeId>,
    /// Those of this job.
    pub job: Option<JobId>,
}

/// Wakes a reader of events when there may be new ones.
///
/// The wake only saves waiting: what is new is always read from the outbox after the reader's own cursor.
#[derive(Debug, Clone)]
pub struct Follower {
    last: Last,
}

impl Follower {
    /// Waits until events after `seen` are there; gives the last place known.
    ///
    /// # Errors
    /// The store was closed.
    pub async fn after(&mut self, seen: EventSeq) -> Result<EventSeq, StoreError> {
        self.last.after(seen).await.ok_or(StoreError::Closed)
    }
}

impl Store {
    /// Events after a place, in order; at most `limit` of them, never more than [`PAGE_MAX`].
    ///
    /// # Errors
    /// The database fails.
    pub async fn events(&self, after: EventSeq, filter: &EventFilter, limit: usize) -> Result<Vec<Event>, StoreError> {
        let mut conditions = Conditions::default();
        conditions.add("seq > ?", [Value::count(after.0)]);
        if let Some(node) = filter.node {
            conditions.add("node = ?", [Value::Id(node.uuid())]);
        }
        if let Some(job) = filter.job {
            conditions.add("resource_kind = 'job' AND resource_id = ?", [Value::owned(job.to_string())]);
        }
        self.fetch(conditions.query(SELECT, "ORDER BY seq", limit.clamp(1, PAGE_MAX)), read).await
    }

    /// The last events before a place, the newest first: what a page shows at its start.
    ///
    /// # Errors
    /// The database fails.
    pub async fn latest_events(&self, filter: &EventFilter, limit: usize) -> Result<Vec<Event>, StoreError> {
        let mut conditions = Conditions::default();
        if let Some(node) = filter.node {
            conditions.add("node = ?", [Value::Id(node.uuid())]);
        }
        if let Some(job) = filter.job {
            conditions.add("resource_kind = 'job' AND resource_id = ?", [Value::owned(job.to_string())]);
        }
        self.fetch(conditions.query(SELECT, "ORDER BY seq DESC", limit.clamp(1, PAGE_MAX)), read).await
    }

    /// Place of the last event that is committed; 0 before the first.
    ///
    /// # Errors
    /// The database fails.
    pub async fn last_event(&self) -> Result<EventSeq, StoreError> {
        const LAST: &str = "SELECT event_seq FROM head";
        let rows = self.fetch(Query::new(LAST, vec![]), |r| r.count()).await?;
        Ok(EventSeq(rows.first().copied().unwrap_or(0)))
    }

    /// Something to wait on for new events.
    pub fn follow(&self) -> Follower {
        Follower { last: self.watch() }
    }
}
