//! PostgreSQL: not in this version yet.

use lattice_core::change::Outcome;
use lattice_core::ids::EventSeq;
use tokio::sync::watch;

use crate::commit::Prepared;
use crate::error::StoreError;
use crate::sql::{Query, Reader};

/// A PostgreSQL database.
pub(crate) enum Database {}

impl Database {
    pub(crate) async fn open(_url: &str) -> Result<Self, StoreError> {
        Err(StoreError::Unsupported { what: "PostgreSQL", instead: "use a SQLite file" })
    }
    pub(crate) async fn commit(&self, _prepared: Vec<Prepared>) -> Result<Vec<Outcome>, StoreError> {
        match *self {}
    }
    pub(crate) async fn fetch<T>(
        &self,
        _query: Query,
        _read: fn(&mut Reader<'_>) -> Result<T, StoreError>,
    ) -> Result<Vec<T>, StoreError> {
        match *self {}
    }
    pub(crate) fn watch(&self) -> watch::Receiver<EventSeq> {
        match *self {}
    }
}
