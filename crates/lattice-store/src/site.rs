//! Sites and SKUs: where machines come from, and what they must have.

use lattice_core::ids::SiteId;
use lattice_core::site::Site;
use lattice_core::sku::Sku;

use crate::error::StoreError;
use crate::page::PAGE_MAX;
use crate::sql::{Query, Value};
use crate::store::Store;
use crate::table::{Kind, Table, Writes, col};

/// One row for each site; the whole of it stands in `body`.
pub(crate) const SITES: Table = Table {
    name: "sites",
    key: 1,
    writes: Writes::Replace,
    columns: &[
        col("id", Kind::Id),
        col("name", Kind::Text),
        col("kind", Kind::Text),
        col("status", Kind::Text),
        col("created_at", Kind::Int),
        col("updated_at", Kind::Int),
        col("generation", Kind::Int),
        col("body", Kind::Text),
    ],
};

/// One row for each SKU; the whole of it stands in `body`.
pub(crate) const SKUS: Table = Table {
    name: "skus",
    key: 1,
    writes: Writes::Replace,
    columns: &[
        col("name", Kind::Text),
        col("created_at", Kind::Int),
        col("updated_at", Kind::Int),
        col("generation", Kind::Int),
        col("body", Kind::Text),
    ],
};

pub(crate) fn row(site: &Site) -> Vec<Value<'_>> {
    vec![
        Value::Id(site.id.uuid()),
        Value::text(&site.name),
        Value::text(site.provider.kind()),
        Value::name(site.status),
        Value::time(site.created_at),
        Value::time(site.updated_at),
        Value::generation(site.generation),
        Value::json(site),
    ]
}

pub(crate) fn sku_row(sku: &Sku) -> Vec<Value<'_>> {
    vec![
        Value::text(&sku.name),
        Value::time(sku.created_at),
        Value::time(sku.updated_at),
        Value::generation(sku.generation),
        Value::json(sku),
    ]
}

impl Store {
    /// All sites, by name; at most [`PAGE_MAX`].
    ///
    /// # Errors
    /// The database fails.
    pub async fn sites(&self) -> Result<Vec<Site>, StoreError> {
        const SITES: &str = "SELECT body FROM sites ORDER BY name LIMIT ?1";
        self.fetch(Query::new(SITES, vec![Value::Int(PAGE_MAX as i64)]), |r| r.json()).await
    }

    /// A site.
    ///
    /// # Errors
    /// The database fails.
    pub async fn site(&self, id: SiteId) -> Result<Option<Site>, StoreError> {
        const SITE: &str = "SELECT body FROM sites WHERE id = ?1";
        Ok(self.fetch(Query::new(SITE, vec![Value::Id(id.uuid())]), |r| r.json()).await?.pop())
    }

    /// The site of that name.
    ///
    /// # Errors
    /// The database fails.
    pub async fn site_by_name(&self, name: &str) -> Result<Option<Site>, StoreError> {
        const SITE: &str = "SELECT body FROM sites WHERE name = ?1";
        Ok(self.fetch(Query::new(SITE, vec![Value::owned(name.to_owned())]), |r| r.json()).await?.pop())
    }

    /// All SKUs, by name; at most [`PAGE_MAX`].
    ///
    /// # Errors
    /// The database fails.
    pub async fn skus(&self) -> Result<Vec<Sku>, StoreError> {
        const SKUS: &str = "SELECT body FROM skus ORDER BY name LIMIT ?1";
        self.fetch(Query::new(SKUS, vec![Value::Int(PAGE_MAX as i64)]), |r| r.json()).await
    }

    /// The SKU of that name.
    ///
    /// # Errors
    /// The database fails.
    pub async fn sku(&self, name: &str) -> Result<Option<Sku>, StoreError> {
        const SKU: &str = "SELECT body FROM skus WHERE name = ?1";
        Ok(self.fetch(Query::new(SKU, vec![Value::owned(name.to_owned())]), |r| r.json()).await?.pop())
    }
}
