//! BMCs of nodes: what was set, and what was seen last.

use lattice_core::bmc::{Bmc, BmcReport};
use lattice_core::ids::NodeId;

use crate::error::StoreError;
use crate::page::PAGE_MAX;
use crate::sql::{Query, Value};
use crate::store::Store;
use crate::table::{Kind, Table, Writes, col};

/// One row for each node that has a BMC; the whole of it stands in `body`.
pub(crate) const BMCS: Table = Table {
    name: "bmcs",
    key: 1,
    writes: Writes::Replace,
    columns: &[col("node", Kind::Id), col("site", Kind::Id), col("generation", Kind::Int), col("body", Kind::Text)],
};

/// What was seen of each BMC last.
pub(crate) const BMC_REPORTS: Table = Table {
    name: "bmc_reports",
    key: 1,
    writes: Writes::Replace,
    columns: &[col("node", Kind::Id), col("looked_at", Kind::Int), col("body", Kind::Text)],
};

pub(crate) fn row(bmc: &Bmc) -> Vec<Value<'_>> {
    vec![Value::Id(bmc.node.uuid()), Value::Id(bmc.site.uuid()), Value::generation(bmc.generation), Value::json(bmc)]
}

pub(crate) fn report_row(report: &BmcReport) -> Vec<Value<'_>> {
    vec![Value::Id(report.node.uuid()), Value::time(report.looked_at), Value::json(report)]
}

impl Store {
    /// A node's BMC.
    ///
    /// # Errors
    /// The database fails.
    pub async fn bmc(&self, node: NodeId) -> Result<Option<Bmc>, StoreError> {
        const BMC: &str = "SELECT body FROM bmcs WHERE node = ?1";
        Ok(self.fetch(Query::new(BMC, vec![Value::Id(node.uuid())]), |r| r.json()).await?.pop())
    }

    /// What was seen of a node's BMC last.
    ///
    /// # Errors
    /// The database fails.
    pub async fn bmc_report(&self, node: NodeId) -> Result<Option<BmcReport>, StoreError> {
        const REPORT: &str = "SELECT body FROM bmc_reports WHERE node = ?1";
        Ok(self.fetch(Query::new(REPORT, vec![Value::Id(node.uuid())]), |r| r.json()).await?.pop())
    }

    /// How many BMCs of nodes that are not deleted have a credential that is not tried any more.
    ///
    /// # Errors
    /// The database fails.
    pub async fn open_breakers(&self) -> Result<u64, StoreError> {
        const OPEN: &str = "SELECT COUNT(*) FROM bmcs JOIN nodes ON nodes.id = bmcs.node WHERE nodes.live = 1 \
            AND bmcs.body LIKE '%\"breaker\":{\"state\":\"open\"%'";
        Ok(self.fetch(Query::new(OPEN, Vec::new()), |r| r.count()).await?.pop().unwrap_or(0))
    }

    /// These BMCs; at most [`PAGE_MAX`].
    ///
    /// # Errors
    /// The database fails.
    pub async fn locked_out(&self) -> Result<Vec<Bmc>, StoreError> {
        const LOCKED: &str = "SELECT bmcs.body FROM bmcs JOIN nodes ON nodes.id = bmcs.node WHERE nodes.live = 1 \
            AND bmcs.body LIKE '%\"breaker\":{\"state\":\"open\"%' ORDER BY bmcs.node LIMIT ?1";
        self.fetch(Query::new(LOCKED, vec![Value::Int(PAGE_MAX as i64)]), |r| r.json()).await
    }

    /// BMCs of nodes that are not deleted, in the order of their nodes, after that one; at most [`PAGE_MAX`].
    ///
    /// # Errors
    /// The database fails.
    pub async fn bmcs(&self, after: Option<NodeId>) -> Result<Vec<Bmc>, StoreError> {
        const FIRST: &str = "SELECT bmcs.body FROM bmcs JOIN nodes ON nodes.id = bmcs.node WHERE nodes.live = 1 \
            ORDER BY bmcs.node LIMIT ?1";
        const NEXT: &str = "SELECT bmcs.body FROM bmcs JOIN nodes ON nodes.id = bmcs.node WHERE nodes.live = 1 \
            AND bmcs.node > ?2 ORDER BY bmcs.node LIMIT ?1";
        let most = Value::Int(PAGE_MAX as i64);
        let query = match after {
            None => Query::new(FIRST, vec![most]),
            Some(after) => Query::new(NEXT, vec![most, Value::Id(after.uuid())]),
        };
        self.fetch(query, |r| r.json()).await
    }
}
