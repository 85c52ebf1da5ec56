//! Components of nodes: what State Manager said of each last, and what it was told.

use lattice_core::component::ComponentReport;
use lattice_core::ids::{NodeId, SiteId};

use crate::error::StoreError;
use crate::page::PAGE_MAX;
use crate::sql::{Query, Value};
use crate::store::Store;
use crate::table::{Kind, Table, Writes, col};

/// One row for each node whose component was looked at; the whole of it stands in `body`.
pub(crate) const COMPONENTS: Table = Table {
    name: "components",
    key: 1,
    writes: Writes::Replace,
    columns: &[col("node", Kind::Id), col("site", Kind::Id), col("body", Kind::Text)],
};

pub(crate) fn row(report: &ComponentReport) -> Vec<Value<'_>> {
    vec![Value::Id(report.node.uuid()), Value::Id(report.site.uuid()), Value::json(report)]
}

impl Store {
    /// What is known of a node's component.
    ///
    /// # Errors
    /// The database fails.
    pub async fn component(&self, node: NodeId) -> Result<Option<ComponentReport>, StoreError> {
        const COMPONENT: &str = "SELECT body FROM components WHERE node = ?1";
        Ok(self.fetch(Query::new(COMPONENT, vec![Value::Id(node.uuid())]), |r| r.json()).await?.pop())
    }

    /// What is known of the components of a site's nodes that are not deleted, in the order of their nodes, after that
    /// one; at most [`PAGE_MAX`].
    ///
    /// # Errors
    /// The database fails.
    pub async fn components(&self, site: SiteId, after: Option<NodeId>) -> Result<Vec<ComponentReport>, StoreError> {
        const FIRST: &str = "SELECT components.body FROM components JOIN nodes ON nodes.id = components.node \
            WHERE nodes.live = 1 AND components.site = ?2 ORDER BY components.node LIMIT ?1";
        const NEXT: &str = "SELECT components.body FROM components JOIN nodes ON nodes.id = components.node \
            WHERE nodes.live = 1 AND components.site = ?2 AND components.node > ?3 ORDER BY components.node LIMIT ?1";
        let (most, site) = (Value::Int(PAGE_MAX as i64), Value::Id(site.uuid()));
        let query = match after {
            None => Query::new(FIRST, vec![most, site]),
            Some(after) => Query::new(NEXT, vec![most, site, Value::Id(after.uuid())]),
        };
        self.fetch(query, |r| r.json()).await
    }
}
