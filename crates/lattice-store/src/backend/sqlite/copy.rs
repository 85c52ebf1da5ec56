//! Copies of a whole SQLite database, and what must be true of one before anybody relies on it.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use lattice_core::change::audit_hash;
use rusqlite::backup::{Backup, StepResult};
use rusqlite::{Connection, OpenFlags};

use super::{Synchronous, open, rows};
use crate::audit;
use crate::backup::BackupSummary;
use crate::error::StoreError;
use crate::migrate;
use crate::sql::{Query, Reader, Value};
use crate::table::Table;

/// Rows of one step when tables are moved one by one.
pub(crate) const CHUNK: usize = 1_000;

/// Copies a database as it stands now into a file. Writers go on meanwhile: the copy is of one moment.
pub(crate) fn to_file(from: &Connection, to: &Path) -> Result<(), StoreError> {
    let mut target = Connection::open(to)?;
    let copy = Backup::new(from, &mut target)?;
    // All pages in one step: in WAL mode a long reader hinders nobody, and several steps would start again whenever
    // somebody writes between them.
    match copy.step(-1)? {
        StepResult::Done => {}
        StepResult::More | StepResult::Busy | StepResult::Locked | _ => {
            return Err(StoreError::BadCopy { path: to.to_owned(), why: "the copy did not finish".to_owned() });
        }
    }
    drop(copy);
    finish(target, to)
}

/// An empty database of our schema, to be filled table by table.
pub(crate) fn create(path: &Path) -> Result<Connection, StoreError> {
    open::writer(path, Synchronous::Off)
}

/// Puts rows into a table of a new database.
pub(crate) fn fill(connection: &Connection, table: &Table, rows: &[Vec<Value<'_>>]) -> Result<(), StoreError> {
    let tx = connection.unchecked_transaction()?;
    let mut statement = tx.prepare_cached(&table.insert_statement())?;
    for row in rows {
        statement.execute(rusqlite::params_from_iter(row))?;
    }
    drop(statement);
    tx.commit()?;
    Ok(())
}

/// Makes a filled file stand for itself: no log beside it, all of it on the disk.
pub(crate) fn finish(connection: Connection, path: &Path) -> Result<(), StoreError> {
    connection.query_row("PRAGMA journal_mode = DELETE", [], |_| Ok(()))?;
    connection.close().map_err(|(_, error)| error)?;
    sync(path)
}

/// Gives a finished file its name, once it is known to be good.
pub(crate) fn publish(partial: &Path, to: &Path) -> Result<(), StoreError> {
    std::fs::rename(partial, to).map_err(|source| open_error(to, source))?;
    match to.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => sync(parent),
        Some(_) | None => sync(Path::new(".")),
    }
}

/// Opens a backup for reading.
///
/// # Errors
/// It is no database, or was made by a newer version.
pub(crate) fn source(path: &Path) -> Result<Connection, StoreError> {
    // SQLite would make the file that is not there.
    File::open(path).map_err(|source| open_error(path, source))?;
    let connection = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
    let bad = |error: rusqlite::Error| StoreError::BadCopy { path: path.to_owned(), why: error.to_string() };
    let version = connection.query_row("SELECT MAX(version) FROM schema_version", [], |row| row.get(0)).map_err(bad)?;
    migrate::pending(migrate::SQLITE, version)?;
    Ok(connection)
}

/// Reads a backup back: its pages, its audit chain, and whether its numbers agree with each other.
///
/// # Errors
/// [`StoreError::BadCopy`] with the first thing that is wrong.
pub(crate) fn verify(path: &Path) -> Result<BackupSummary, StoreError> {
    let connection = source(path)?;
    read_back(&connection, path).map_err(|error| match error {
        StoreError::Sqlite(why) => StoreError::BadCopy { path: path.to_owned(), why: why.to_string() },
        StoreError::Corrupt { what, why } => {
            StoreError::BadCopy { path: path.to_owned(), why: format!("{what}: {why}") }
        }
        other => other,
    })
}

fn read_back(connection: &Connection, path: &Path) -> Result<BackupSummary, StoreError> {
    let bad = |why: String| Err(StoreError::BadCopy { path: path.to_owned(), why });
    let pages: String = connection.query_row("PRAGMA integrity_check(1)", [], |row| row.get(0))?;
    if pages != "ok" {
        return bad(pages);
    }
    let one = |sql: &'static str| -> Result<u64, StoreError> {
        let found = rows(connection, &Query::new(sql, vec![]), |r| r.count())?;
        found.first().copied().ok_or_else(|| StoreError::corrupt(sql, "no row"))
    };
    let summary = BackupSummary {
        nodes: one("SELECT COUNT(*) FROM nodes")?,
        jobs: one("SELECT COUNT(*) FROM jobs")?,
        events: one("SELECT event_seq FROM head")?,
        audit_rows: one("SELECT audit_seq FROM head")?,
        bytes: std::fs::metadata(path).map_err(|source| open_error(path, source))?.len(),
    };
    let counted = one("SELECT COALESCE(SUM(n), 0) FROM node_counts")?;
    if counted != summary.nodes {
        return bad(format!("{} nodes, {counted} counted", summary.nodes));
    }
    let last = one("SELECT COALESCE(MAX(seq), 0) FROM outbox")?;
    if last != summary.events {
        return bad(format!("the last event is {last}, the head says {}", summary.events));
    }
    match chain(connection, summary.audit_rows)? {
        None => Ok(summary),
        Some(why) => bad(why),
    }
}

/// Walks the audit chain; gives what is wrong with it.
fn chain(connection: &Connection, rows_expected: u64) -> Result<Option<String>, StoreError> {
    let mut hash = "0".repeat(64);
    let mut seen = 0;
    loop {
        let entries = rows(connection, &audit::after(seen, CHUNK), audit::read)?;
        if entries.is_empty() {
            break;
        }
        for entry in entries {
            if entry.seq != seen + 1 || entry.hash != audit_hash(&hash, &entry.row) {
                return Ok(Some(format!("the audit chain breaks at row {}", seen + 1)));
            }
            (seen, hash) = (entry.seq, entry.hash);
        }
    }
    let stored: String = connection.query_row("SELECT audit_hash FROM head", [], |row| row.get(0))?;
    let whole = seen == rows_expected && stored == hash;
    Ok((!whole).then(|| format!("the audit ends at row {seen}, the head says {rows_expected}")))
}

/// Hands out the rows of a table, some at a time.
pub(crate) fn each_chunk(
    connection: &Connection,
    table: &Table,
    mut each: impl FnMut(Vec<Vec<Value<'static>>>),
) -> Result<(), StoreError> {
    let mut statement = connection.prepare(&table.select_statement())?;
    let mut found = statement.query([])?;
    let mut chunk = Vec::new();
    while let Some(row) = found.next()? {
        chunk.push(table.read(&mut Reader::new(row))?);
        if chunk.len() == CHUNK {
            each(std::mem::take(&mut chunk));
        }
    }
    if !chunk.is_empty() {
        each(chunk);
    }
    Ok(())
}

fn sync(path: &Path) -> Result<(), StoreError> {
    File::open(path).and_then(|file| file.sync_all()).map_err(|source| open_error(path, source))
}

fn open_error(path: &Path, source: std::io::Error) -> StoreError {
    StoreError::Open { path: path.to_owned(), source: Arc::new(source) }
}
