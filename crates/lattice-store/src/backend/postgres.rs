//! PostgreSQL: several servers over one database, set-based statements, one committer for each server.

mod batch;
mod committer;
pub(crate) mod export;
mod listener;
mod open;
mod preload;

use std::sync::Arc;

use deadpool_postgres::{Object, Pool};
use lattice_core::change::Outcome;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio_postgres::types::{IsNull, ToSql, Type, to_sql_checked};
use uuid::Uuid;

use crate::commit::Prepared;
use crate::error::StoreError;
use crate::last::{self, Last};
use crate::sql::{Columns, Query, Reader, Value};

/// Calls that may wait for the committer before their callers wait for room.
const QUEUE: usize = 1_024;

/// How often something is begun anew whose connection was gone, or whose transaction lost to another one. Each
/// attempt takes another connection, so more than there are in the pool.
const ATTEMPTS: u32 = 10;

/// A PostgreSQL database.
pub(crate) struct Database {
    pool: Pool,
    work: mpsc::Sender<Work>,
    last: Last,
    listener: JoinHandle<()>,
}

/// Commits of one call.
pub(crate) struct Work {
    prepared: Vec<Prepared>,
    reply: oneshot::Sender<Result<Vec<Outcome>, StoreError>>,
}

impl Database {
    /// Connects, migrates, starts the committer and the listener.
    pub(crate) async fn open(url: &str) -> Result<Self, StoreError> {
        let config = open::config(url)?;
        let pool = open::pool(config.clone())?;
        open::prepare_database(&pool).await?;
        let (sender, last) = last::channel();
        let sender = Arc::new(sender);
        let (work, queue) = mpsc::channel(QUEUE);
        tokio::spawn(committer::run(pool.clone(), queue, sender.clone()));
        let listener = tokio::spawn(listener::run(config, sender));
        Ok(Self { pool, work, last, listener })
    }

    pub(crate) fn watch(&self) -> Last {
        self.last.clone()
    }

    /// The connections, for what needs a transaction of its own.
    pub(crate) const fn pool(&self) -> &Pool {
        &self.pool
    }

    pub(crate) async fn commit(&self, prepared: Vec<Prepared>) -> Result<Vec<Outcome>, StoreError> {
        let (reply, answer) = oneshot::channel();
        self.work.send(Work { prepared, reply }).await.map_err(|_| StoreError::Closed)?;
        // A committer that ended without an answer may have been committing.
        answer.await.map_err(|_| StoreError::Unknown { why: "the committer ended".to_owned() })?
    }

    /// Reads, or runs a statement whose repeat does no harm: one that met a dead connection is run again.
    pub(crate) async fn fetch<T>(
        &self,
        query: Query,
        read: fn(&mut Reader<'_>) -> Result<T, StoreError>,
    ) -> Result<Vec<T>, StoreError> {
        let mut attempt = 0;
        loop {
            let client = connection(&self.pool).await?;
            let rows = match rows(&client, &query).await {
                Ok(rows) => rows,
                Err(error) if is_lost(&error) && attempt < ATTEMPTS => {
                    attempt += 1;
                    drop(Object::take(client));
                    continue;
                }
                Err(error) => return Err(StoreError::postgres(&error)),
            };
            return rows.iter().map(|row| read(&mut Reader::new(row))).collect();
        }
    }
}

impl Drop for Database {
    /// The committer ends by itself, after what was handed to it.
    fn drop(&mut self) {
        self.listener.abort();
    }
}

/// A connection of the pool.
pub(crate) async fn connection(pool: &Pool) -> Result<Object, StoreError> {
    pool.get().await.map_err(|error| match &error {
        deadpool_postgres::PoolError::Backend(inner) => StoreError::postgres(inner),
        _ => StoreError::Postgres { why: error.to_string() },
    })
}

/// Whether the connection is gone, or is being taken away, rather than the statement refused.
pub(super) fn is_lost(error: &tokio_postgres::Error) -> bool {
    error.code().is_none_or(|code| code.code().starts_with("57P") || code.code().starts_with("08"))
}

async fn rows(client: &Object, query: &Query) -> Result<Vec<tokio_postgres::Row>, tokio_postgres::Error> {
    // In SQLite's dialect `?1` is the first parameter; no statement of ours has a question mark for anything else.
    let sql = query.sql.replace('?', "$");
    let statement = client.prepare_cached(&sql).await?;
    let params: Vec<&(dyn ToSql + Sync)> = query.params.iter().map(|value| value as &(dyn ToSql + Sync)).collect();
    client.query(&statement, &params).await
}

impl ToSql for Value<'_> {
    fn to_sql(
        &self,
        ty: &Type,
        out: &mut tokio_postgres::types::private::BytesMut,
    ) -> Result<IsNull, Box<dyn std::error::Error + Sync + Send>> {
        match self {
            Self::Null => Ok(IsNull::Yes),
            Self::Int(value) => value.to_sql_checked(ty, out),
            Self::Text(text) => text.as_ref().to_sql_checked(ty, out),
            Self::Id(id) => id.to_sql_checked(ty, out),
        }
    }

    fn accepts(ty: &Type) -> bool {
        <i64 as ToSql>::accepts(ty) || <&str as ToSql>::accepts(ty) || <Uuid as ToSql>::accepts(ty)
    }

    to_sql_checked!();
}

impl Columns for tokio_postgres::Row {
    fn int(&self, index: usize) -> Result<Option<i64>, StoreError> {
        self.try_get(index).map_err(|error| corrupt(index, &error))
    }
    fn text(&self, index: usize) -> Result<Option<&str>, StoreError> {
        self.try_get(index).map_err(|error| corrupt(index, &error))
    }
    fn id(&self, index: usize) -> Result<Option<Uuid>, StoreError> {
        self.try_get(index).map_err(|error| corrupt(index, &error))
    }
}

fn corrupt(index: usize, error: &tokio_postgres::Error) -> StoreError {
    StoreError::corrupt(format!("column {index}"), error)
}
