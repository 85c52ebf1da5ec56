//! Silences: what raises no attention for a while.

use lattice_core::ids::SilenceId;
use lattice_core::silence::Silence;

use crate::error::StoreError;
use crate::page::PAGE_MAX;
use crate::sql::{Query, Value};
use crate::store::Store;
use crate::table::{Kind, Table, Writes, col};

/// One row for each silence that was not lifted and did not end; the whole of it stands in `body`.
pub(crate) const SILENCES: Table = Table {
    name: "silences",
    key: 1,
    writes: Writes::Replace,
    columns: &[col("id", Kind::Id), col("until", Kind::Int), col("generation", Kind::Int), col("body", Kind::Text)],
};

pub(crate) fn row(silence: &Silence) -> Vec<Value<'_>> {
    vec![
        Value::Id(silence.id.uuid()),
        Value::time(silence.until),
        Value::generation(silence.generation),
        Value::json(silence),
    ]
}

impl Store {
    /// A silence.
    ///
    /// # Errors
    /// The database fails.
    pub async fn silence(&self, id: SilenceId) -> Result<Option<Silence>, StoreError> {
        const SILENCE: &str = "SELECT body FROM silences WHERE id = ?1";
        Ok(self.fetch(Query::new(SILENCE, vec![Value::Id(id.uuid())]), |r| r.json()).await?.pop())
    }

    /// All silences, those that end first before the others; there are at most
    /// [`lattice_core::silence::SILENCES_MAX`], and some more when several are created at once.
    ///
    /// # Errors
    /// The database fails.
    pub async fn silences(&self) -> Result<Vec<Silence>, StoreError> {
        const ALL: &str = "SELECT body FROM silences ORDER BY until, id LIMIT ?1";
        self.fetch(Query::new(ALL, vec![Value::Int(PAGE_MAX as i64)]), |r| r.json()).await
    }
}
