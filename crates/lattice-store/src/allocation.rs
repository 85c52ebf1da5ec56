//! Allocations: their table, and who waits for what.

use std::collections::HashMap;

use lattice_core::allocation::{Allocation, AllocationStatus};
use lattice_core::ids::{AllocationId, NodeId};
use uuid::Uuid;

use crate::error::StoreError;
use crate::page::{Cursor, PAGE_MAX, Page, PageRequest};
use crate::sql::{Conditions, Query, Value};
use crate::store::Store;
use crate::table::{Kind, Table, Writes, col};

/// One row for each allocation; the whole of it stands in `body`. `placed` is 1 while it keeps its node from being empty.
pub(crate) const ALLOCATIONS: Table = Table {
    name: "allocations",
    key: 1,
    writes: Writes::Replace,
    columns: &[
        col("id", Kind::Id),
        col("node", Kind::Id),
        col("placed", Kind::Int),
        col("user_name", Kind::Text),
        col("status", Kind::Text),
        col("requested_at", Kind::Int),
        col("updated_at", Kind::Int),
        col("generation", Kind::Int),
        col("body", Kind::Text),
    ],
};

pub(crate) fn row(allocation: &Allocation) -> Vec<Value<'_>> {
    vec![
        Value::Id(allocation.id.uuid()),
        Value::opt_id(allocation.node.map(NodeId::uuid)),
        Value::flag(allocation.status.is_placed()),
        Value::text(&allocation.user),
        Value::name(allocation.status),
        Value::time(allocation.requested_at),
        Value::time(allocation.updated_at),
        Value::generation(allocation.generation),
        Value::json(allocation),
    ]
}

/// Which allocations. An empty filter lets all through.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AllocationFilter {
    /// That have, or had last, this node.
    pub node: Option<NodeId>,
    /// Of this user.
    pub user: Option<String>,
    /// In one of these statuses.
    pub statuses: Vec<AllocationStatus>,
}

impl Store {
    /// An allocation.
    ///
    /// # Errors
    /// The database fails.
    pub async fn allocation(&self, id: AllocationId) -> Result<Option<Allocation>, StoreError> {
        const ONE: &str = "SELECT body FROM allocations WHERE id = ?1";
        Ok(self.fetch(Query::new(ONE, vec![Value::Id(id.uuid())]), |r| r.json()).await?.pop())
    }

    /// One page of the allocations that `filter` lets through, the newest first.
    ///
    /// # Errors
    /// A cursor of another list; the database fails.
    pub async fn allocations(
        &self,
        filter: &AllocationFilter,
        page: &PageRequest,
    ) -> Result<Page<Allocation>, StoreError> {
        let mut conditions = Conditions::default();
        if let Some(node) = filter.node {
            conditions.add("node = ?", [Value::Id(node.uuid())]);
        }
        if let Some(user) = &filter.user {
            conditions.add("user_name = ?", [Value::owned(user.clone())]);
        }
        conditions.one_of("status", filter.statuses.iter().map(|status| Value::name(*status)));
        if let Some(cursor) = &page.cursor {
            conditions.add("id < ?", [Value::Id(cursor.last::<Uuid>()?)]);
        }
        let query = conditions.query("SELECT body FROM allocations", "ORDER BY id DESC", page.probe());
        let rows = self.fetch(query, |r| r.json()).await?;
        Ok(page.page(rows, |last: &Allocation| Cursor::new(&[&last.id])))
    }

    /// What is placed on a node.
    ///
    /// # Errors
    /// The database fails.
    pub async fn placed_on(&self, node: NodeId) -> Result<Vec<Allocation>, StoreError> {
        const PLACED: &str = "SELECT body FROM allocations WHERE node = ?1 AND placed = 1 ORDER BY id";
        self.fetch(Query::new(PLACED, vec![Value::Id(node.uuid())]), |r| r.json()).await
    }

    /// What is placed on each of these nodes; those with nothing are left out.
    ///
    /// # Errors
    /// The database fails.
    pub async fn placed_on_any(&self, nodes: &[NodeId]) -> Result<HashMap<NodeId, Vec<Allocation>>, StoreError> {
        let mut placed: HashMap<NodeId, Vec<Allocation>> = HashMap::new();
        for nodes in nodes.chunks(PAGE_MAX) {
            let mut conditions = Conditions::default();
            conditions.add("placed = 1", []);
            conditions.one_of("node", nodes.iter().map(|node| Value::Id(node.uuid())));
            // A node has few: those of one user at a time.
            let query = conditions.query("SELECT body FROM allocations", "ORDER BY id", usize::MAX >> 1);
            let found: Vec<Allocation> = self.fetch(query, |r| r.json()).await?;
            for allocation in found {
                if let Some(node) = allocation.node {
                    placed.entry(node).or_default().push(allocation);
                }
            }
        }
        Ok(placed)
    }

    /// How many allocations run on each node that has any.
    ///
    /// # Errors
    /// The database fails.
    pub async fn active_counts(&self) -> Result<Vec<(NodeId, u64)>, StoreError> {
        const COUNTS: &str = "SELECT node, COUNT(*) FROM allocations WHERE placed = 1 AND status = 'active' \
            GROUP BY node ORDER BY node";
        self.fetch(Query::new(COUNTS, Vec::new()), |r| Ok((NodeId::new(r.id()?), r.count()?))).await
    }

    /// How many allocations there are in each status that occurs.
    ///
    /// # Errors
    /// The database fails.
    pub async fn allocation_counts(&self) -> Result<Vec<(AllocationStatus, u64)>, StoreError> {
        const COUNTS: &str = "SELECT status, COUNT(*) FROM allocations GROUP BY status ORDER BY status";
        self.fetch(Query::new(COUNTS, Vec::new()), |r| Ok((r.name()?, r.count()?))).await
    }

    /// Nodes that are down and whose loss the brake holds back.
    ///
    /// # Errors
    /// The database fails.
    pub async fn braked_nodes(&self) -> Result<Vec<NodeId>, StoreError> {
        const BRAKED: &str = "SELECT id FROM nodes WHERE availability = 'down' AND id IN \
            (SELECT node FROM allocations WHERE placed = 1) AND ownership LIKE '%braked_until%' ORDER BY id";
        self.fetch(Query::new(BRAKED, Vec::new()), |r| Ok(NodeId::new(r.id()?))).await
    }

    /// One page of those in one status, the longest waiting first.
    ///
    /// # Errors
    /// A cursor of another list; the database fails.
    pub async fn allocations_in(
        &self,
        status: AllocationStatus,
        page: &PageRequest,
    ) -> Result<Page<Allocation>, StoreError> {
        let mut conditions = Conditions::default();
        conditions.add("status = ?", [Value::name(status)]);
        if let Some(cursor) = &page.cursor {
            let (at, id) = (cursor.first()?, cursor.last::<Uuid>()?);
            let at = at.parse().map_err(|_| cursor.bad())?;
            conditions.add("(requested_at, id) > (?, ?)", [Value::Int(at), Value::Id(id)]);
        }
        let query = conditions.query("SELECT body FROM allocations", "ORDER BY requested_at, id", page.probe());
        let rows = self.fetch(query, |r| r.json()).await?;
        Ok(page.page(rows, |last: &Allocation| Cursor::new(&[&last.requested_at.as_millis(), &last.id])))
    }
}
