//! What is known of the credentials of sites: paths and dates, never a value. spec: S5 3.2

use lattice_core::ids::SiteId;
use lattice_core::site::credentials::SiteCredential;

use crate::error::StoreError;
use crate::page::PAGE_MAX;
use crate::sql::{Query, Reader, Value};
use crate::store::Store;
use crate::table::{Kind, Table, Writes, col};

/// One row for each credential of a site.
pub(crate) const SITE_CREDENTIALS: Table = Table {
    name: "site_credentials",
    key: 2,
    writes: Writes::Replace,
    columns: &[
        col("site", Kind::Id),
        col("name", Kind::Text),
        col("path", Kind::Text),
        col("set_at", Kind::Int),
        col("set_by", Kind::Text),
        col("validated_at", Kind::Int),
        col("problem", Kind::Text),
        col("generation", Kind::Int),
    ],
};

pub(crate) fn row(credential: &SiteCredential) -> Vec<Value<'_>> {
    vec![
        Value::Id(credential.site.uuid()),
        Value::name(credential.name),
        Value::text(&credential.path),
        Value::opt_time(credential.set_at),
        Value::opt_text(credential.set_by.as_deref()),
        Value::opt_time(credential.validated_at),
        Value::opt_text(credential.problem.as_deref()),
        Value::generation(credential.generation),
    ]
}

fn read(r: &mut Reader<'_>) -> Result<SiteCredential, StoreError> {
    Ok(SiteCredential {
        site: SiteId::new(r.id()?),
        name: r.name()?,
        path: r.text()?,
        set_at: r.opt_time()?,
        set_by: r.opt_text()?,
        validated_at: r.opt_time()?,
        problem: r.opt_text()?,
        generation: r.generation()?,
    })
}

impl Store {
    /// What is known of the credentials of a site; of all sites if none is named. At most [`PAGE_MAX`].
    ///
    /// # Errors
    /// The database fails.
    pub async fn site_credentials(&self, site: Option<SiteId>) -> Result<Vec<SiteCredential>, StoreError> {
        const ALL: &str = "SELECT site, name, path, set_at, set_by, validated_at, problem, generation \
            FROM site_credentials ORDER BY site, name LIMIT ?1";
        const OF: &str = "SELECT site, name, path, set_at, set_by, validated_at, problem, generation \
            FROM site_credentials WHERE site = ?2 ORDER BY name LIMIT ?1";
        let most = Value::Int(PAGE_MAX as i64);
        let query = match site {
            Some(site) => Query::new(OF, vec![most, Value::Id(site.uuid())]),
            None => Query::new(ALL, vec![most]),
        };
        self.fetch(query, read).await
    }
}
