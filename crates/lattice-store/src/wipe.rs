//! Certificates of wiped devices, and the nodes that must be wiped.

use lattice_core::ids::{CertificateId, NodeId};
use lattice_core::wipe::CertificateFile;
use uuid::Uuid;

use crate::error::StoreError;
use crate::page::{Cursor, PAGE_MAX, Page, PageRequest};
use crate::sql::{Conditions, Query, Value};
use crate::store::Store;
use crate::table::{Kind, Table, Writes, col};

/// One row for each certificate; the whole of it stands in `body`.
pub(crate) const WIPE_CERTIFICATES: Table = Table {
    name: "wipe_certificates",
    key: 1,
    writes: Writes::Append,
    columns: &[
        col("id", Kind::Id),
        col("node", Kind::Id),
        col("job", Kind::Id),
        col("device", Kind::Text),
        col("serial", Kind::Text),
        col("confirmed_at", Kind::Int),
        col("body", Kind::Text),
    ],
};

pub(crate) fn row(file: &CertificateFile) -> Vec<Value<'_>> {
    let one = &file.certificate;
    vec![
        Value::Id(one.id.uuid()),
        Value::Id(one.node.uuid()),
        Value::Id(one.job.uuid()),
        Value::text(&one.evidence.device),
        Value::text(&one.evidence.serial),
        Value::time(one.confirmed_at),
        Value::json(file),
    ]
}

/// Which certificates. An empty filter lets all through.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct WipeFilter {
    /// Of this node.
    pub node: Option<NodeId>,
    /// Of the device with this serial number, whichever node it was in.
    pub serial: Option<String>,
}

impl Store {
    /// A certificate.
    ///
    /// # Errors
    /// The database fails.
    pub async fn wipe_certificate(&self, id: CertificateId) -> Result<Option<CertificateFile>, StoreError> {
        const ONE: &str = "SELECT body FROM wipe_certificates WHERE id = ?1";
        Ok(self.fetch(Query::new(ONE, vec![Value::Id(id.uuid())]), |r| r.json()).await?.pop())
    }

    /// One page of the certificates that `filter` lets through, the newest first.
    ///
    /// # Errors
    /// A cursor of another list; the database fails.
    pub async fn wipe_certificates(
        &self,
        filter: &WipeFilter,
        page: &PageRequest,
    ) -> Result<Page<CertificateFile>, StoreError> {
        let mut conditions = Conditions::default();
        if let Some(node) = filter.node {
            conditions.add("node = ?", [Value::Id(node.uuid())]);
        }
        if let Some(serial) = &filter.serial {
            conditions.add("serial = ?", [Value::owned(serial.clone())]);
        }
        if let Some(cursor) = &page.cursor {
            conditions.add("id < ?", [Value::Id(cursor.last::<Uuid>()?)]);
        }
        let query = conditions.query("SELECT body FROM wipe_certificates", "ORDER BY id DESC", page.probe());
        let rows = self.fetch(query, |r| r.json()).await?;
        Ok(page.page(rows, |last: &CertificateFile| Cursor::new(&[&last.certificate.id])))
    }

    /// Nodes that must be wiped and that no job owns, at most [`PAGE_MAX`] after one of them, in their order.
    ///
    /// # Errors
    /// The database fails.
    pub async fn nodes_to_wipe(&self, after: Option<NodeId>) -> Result<Vec<NodeId>, StoreError> {
        let mut conditions = Conditions::default();
        conditions.add("hold_kinds <> ''", []);
        conditions.add("hold_kinds LIKE '%wipe_required%'", []);
        conditions.add("owning_job IS NULL", []);
        conditions.add("live = 1", []);
        if let Some(after) = after {
            conditions.add("id > ?", [Value::Id(after.uuid())]);
        }
        let query = conditions.query("SELECT id FROM nodes", "ORDER BY id", PAGE_MAX);
        self.fetch(query, |r| Ok(NodeId::new(r.id()?))).await
    }
}
