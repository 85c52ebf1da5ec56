//! The history of nodes: derived in each commit, read by people.

use lattice_core::change::HistoryRow;
use lattice_core::ids::{Generation, NodeId};
use lattice_core::node::NodeState;

use crate::error::StoreError;
use crate::page::{Cursor, Page, PageRequest};
use crate::sql::{Conditions, Reader, Value};
use crate::store::Store;
use crate::table::{Kind, Table, Writes, col};

/// One row for each version of each node.
pub(crate) const HISTORY: Table = Table {
    name: "history",
    key: 2,
    writes: Writes::Append,
    columns: &[
        col("node", Kind::Id),
        col("generation", Kind::Int),
        col("at", Kind::Int),
        col("action", Kind::Text),
        col("cause", Kind::Text),
        col("before_status", Kind::Text),
        col("before_availability", Kind::Text),
        col("status", Kind::Text),
        col("availability", Kind::Text),
        col("actor", Kind::Text),
        col("detail", Kind::Text),
    ],
};

const SELECT: &str = "SELECT node, generation, at, action, cause, before_status, before_availability, status, \
    availability, actor, detail FROM history";

pub(crate) fn row(row: &HistoryRow, generation: Generation) -> Vec<Value<'_>> {
    vec![
        Value::Id(row.node.uuid()),
        Value::generation(generation),
        Value::time(row.at),
        Value::name(row.action),
        Value::text(&row.cause),
        row.before.map_or(Value::Null, |state| Value::name(state.status)),
        row.before.map_or(Value::Null, |state| Value::name(state.availability)),
        Value::name(row.after.status),
        Value::name(row.after.availability),
        Value::text(&row.actor),
        Value::text(&row.detail),
    ]
}

/// One entry of a node's history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HistoryEntry {
    /// Version of the node that it led to.
    pub generation: Generation,
    /// What happened.
    pub row: HistoryRow,
}

fn read(r: &mut Reader<'_>) -> Result<HistoryEntry, StoreError> {
    let node = NodeId::new(r.id()?);
    let generation = r.generation()?;
    let (at, action, cause) = (r.time()?, r.name()?, r.text()?);
    let before = match (r.opt_name()?, r.opt_name()?) {
        (Some(status), Some(availability)) => Some(NodeState { status, availability }),
        (Some(_) | None, _) => None,
    };
    let after = NodeState { status: r.name()?, availability: r.name()? };
    let row = HistoryRow { node, at, action, cause, before, after, actor: r.text()?, detail: r.text()? };
    Ok(HistoryEntry { generation, row })
}

impl Store {
    /// One page of a node's history, the newest first.
    ///
    /// # Errors
    /// A cursor of another list; the database fails.
    pub async fn history(&self, node: NodeId, page: &PageRequest) -> Result<Page<HistoryEntry>, StoreError> {
        let mut conditions = Conditions::default();
        conditions.add("node = ?", [Value::Id(node.uuid())]);
        if let Some(cursor) = &page.cursor {
            conditions.add("generation < ?", [Value::count(cursor.last::<u64>()?)]);
        }
        let rows = self.fetch(conditions.query(SELECT, "ORDER BY generation DESC", page.probe()), read).await?;
        Ok(page.page(rows, |last| Cursor::new(&[&last.generation.0])))
    }
}
