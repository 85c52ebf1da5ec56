//! Backup out of PostgreSQL and restore into it. The file is a SQLite database of the same tables.

use std::path::{Path, PathBuf};

use deadpool_postgres::{Object, Pool};
use rusqlite::Connection;
use tokio::sync::mpsc;

use super::{batch, connection};
use crate::backend::sqlite::copy;
use crate::error::StoreError;
use crate::sql::{Reader, Value};
use crate::table::{ALL, Table};

type Chunk = (&'static Table, Vec<Vec<Value<'static>>>);

/// Writes everything, as it stands at one moment, into a file that is not finished yet.
pub(crate) async fn to_file(pool: &Pool, partial: PathBuf) -> Result<(), StoreError> {
    // One chunk is read while another is written.
    let (chunks, queue) = mpsc::channel(1);
    let file = tokio::task::spawn_blocking(move || write_file(&partial, queue));
    let client = connection(pool).await?;
    let read = read_tables(&client, chunks).await;
    // The open transaction ends with its connection.
    drop(Object::take(client));
    file.await.map_err(|_| StoreError::Closed)??;
    read
}

async fn read_tables(client: &Object, chunks: mpsc::Sender<Chunk>) -> Result<(), StoreError> {
    let failed = |error: tokio_postgres::Error| StoreError::postgres(&error);
    client.batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY").await.map_err(failed)?;
    for table in ALL {
        let declare = format!("DECLARE rows CURSOR FOR {}", table.select_statement());
        client.batch_execute(&declare).await.map_err(failed)?;
        loop {
            let rows = client.query(&format!("FETCH {} FROM rows", copy::CHUNK), &[]).await.map_err(failed)?;
            if rows.is_empty() {
                break;
            }
            let rows = rows.iter().map(|row| table.read(&mut Reader::new(row))).collect::<Result<_, _>>()?;
            // A writer that is gone says why itself.
            if chunks.send((table, rows)).await.is_err() {
                return Ok(());
            }
        }
        client.batch_execute("CLOSE rows").await.map_err(failed)?;
    }
    Ok(())
}

fn write_file(partial: &Path, mut queue: mpsc::Receiver<Chunk>) -> Result<(), StoreError> {
    let file = copy::create(partial)?;
    while let Some((table, rows)) = queue.blocking_recv() {
        copy::fill(&file, table, &rows)?;
    }
    copy::finish(file, partial)
}

/// Fills a database that is still empty from a verified backup, in one transaction.
pub(crate) async fn from_file(pool: &Pool, backup: Connection) -> Result<(), StoreError> {
    let client = connection(pool).await?;
    let filled = fill(&client, backup).await;
    if filled.is_err() {
        // The open transaction ends with its connection.
        drop(Object::take(client));
    }
    filled
}

async fn fill(client: &Object, backup: Connection) -> Result<(), StoreError> {
    let failed = |error: tokio_postgres::Error| StoreError::postgres(&error);
    client.batch_execute("BEGIN").await.map_err(failed)?;
    let seq: i64 = client.query_one("SELECT event_seq FROM head FOR UPDATE", &[]).await.map_err(failed)?.get(0);
    if seq != 0 {
        return Err(StoreError::TargetExists { path: "the database".into() });
    }
    let (chunks, mut queue) = mpsc::channel::<Chunk>(1);
    let reading = tokio::task::spawn_blocking(move || {
        ALL.iter().try_for_each(|table| {
            // A writer that is gone says why itself.
            copy::each_chunk(&backup, table, |rows| drop(chunks.blocking_send((table, rows))))
        })
    });
    while let Some((table, rows)) = queue.recv().await {
        batch::write_rows(client, table, &rows).await.map_err(failed)?;
    }
    reading.await.map_err(|_| StoreError::Closed)??;
    client.batch_execute("COMMIT").await.map_err(failed)
}
