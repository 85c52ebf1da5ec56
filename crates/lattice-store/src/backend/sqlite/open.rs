//! Opening SQLite files: the lock of the directory, the settings of each connection, the schema.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read, Seek, Write};
use std::path::Path;
use std::sync::Arc;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags, OptionalExtension, TransactionBehavior};

use super::Synchronous;
use crate::error::StoreError;
use crate::migrate::{self, Migration};

/// Name of the file whose lock says that a server uses the directory.
const LOCK_FILE: &str = "lattice.lock";
/// Statements kept prepared for each connection; more than there are different ones in steady use.
const STATEMENTS: usize = 128;

/// The lock of a data directory, until it is dropped.
pub(super) struct DirectoryLock(File);

impl Drop for DirectoryLock {
    /// Closing the file is not enough: a process that is started at this moment has a copy of it, and with it the lock,
    /// until its program begins.
    fn drop(&mut self) {
        // Should this fail, the lock goes with the last copy.
        let _ = self.0.unlock();
    }
}

/// Takes the exclusive lock of the data directory. The system frees it when the process ends, however it ends.
pub(super) fn lock_directory(path: &Path) -> Result<DirectoryLock, StoreError> {
    let directory = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        Some(_) | None => Path::new("."),
    };
    let failed = |source| StoreError::Open { path: path.to_owned(), source: Arc::new(source) };
    std::fs::create_dir_all(directory).map_err(failed)?;
    let mut file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(directory.join(LOCK_FILE))
        .map_err(failed)?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::Error(source)) => return Err(failed(source)),
        Err(TryLockError::WouldBlock) => {
            let mut owner = String::new();
            // Only for the message: an unreadable name is no reason for another error.
            drop(file.read_to_string(&mut owner));
            let owner = if owner.trim().is_empty() { "another process".to_owned() } else { owner.trim().to_owned() };
            return Err(StoreError::DataDirectoryBusy { path: directory.to_owned(), owner });
        }
    }
    file.set_len(0).and_then(|()| file.rewind()).map_err(failed)?;
    write!(file, "process {}", std::process::id()).map_err(failed)?;
    Ok(DirectoryLock(file))
}

/// The connection that writes.
pub(super) fn writer(path: &Path, synchronous: Synchronous) -> Result<Connection, StoreError> {
    let mut connection = Connection::open_with_flags(path, flags(OpenFlags::SQLITE_OPEN_CREATE))?;
    settings(&connection)?;
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.pragma_update(
        None,
        "synchronous",
        match synchronous {
            Synchronous::Full => "FULL",
            Synchronous::Off => "OFF",
        },
    )?;
    // 64 MiB of log between checkpoints: a checkpoint writes each page once, however often it was changed, and
    // syncs twice. Reading so much log again after a crash takes a tenth of a second.
    connection.pragma_update(None, "wal_autocheckpoint", 16_384)?;
    connection.pragma_update(None, "journal_size_limit", 128 * 1_024 * 1_024)?;
    // 64 MiB, in units of -1 KiB: the inner pages of all indexes of 100,000 nodes and their hot leaves.
    connection.pragma_update(None, "cache_size", -65_536)?;
    migrate(&mut connection, migrate::SQLITE)?;
    Ok(connection)
}

/// A connection that reads.
pub(super) fn reader(path: &Path) -> Result<Connection, StoreError> {
    let connection = Connection::open_with_flags(path, flags(OpenFlags::empty()))?;
    settings(&connection)?;
    connection.pragma_update(None, "query_only", true)?;
    connection.pragma_update(None, "cache_size", -16_384)?;
    Ok(connection)
}

/// A database in memory.
pub(super) fn memory() -> Result<Connection, StoreError> {
    let mut connection = Connection::open_in_memory()?;
    settings(&connection)?;
    migrate(&mut connection, migrate::SQLITE)?;
    Ok(connection)
}

/// Brings the schema forward, each step in a transaction of its own with its version.
pub(super) fn migrate(connection: &mut Connection, steps: &'static [Migration]) -> Result<(), StoreError> {
    let known = connection
        .query_row("SELECT name FROM sqlite_master WHERE name = 'schema_version'", [], |_| Ok(()))
        .optional()?;
    let have = match known {
        None => 0,
        Some(()) => connection.query_row("SELECT MAX(version) FROM schema_version", [], |row| row.get(0))?,
    };
    for step in migrate::pending(steps, have)? {
        let tx = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        tx.execute_batch("CREATE TABLE IF NOT EXISTS schema_version (version INTEGER PRIMARY KEY) STRICT")?;
        tx.execute_batch(step.sql)?;
        tx.execute("INSERT INTO schema_version VALUES (?1)", [step.version])?;
        tx.commit()?;
    }
    Ok(())
}

fn flags(more: OpenFlags) -> OpenFlags {
    // Each connection is used by one thread at a time, so SQLite's own mutexes would only cost.
    OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX | more
}

fn settings(connection: &Connection) -> Result<(), StoreError> {
    connection.set_prepared_statement_cache_capacity(STATEMENTS);
    connection.busy_timeout(std::time::Duration::from_secs(5))?;
    connection.pragma_update(None, "temp_store", "MEMORY")?;
    // Without it, each new value of a range condition has the statement prepared anew, for statistics that nobody makes.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    Ok(())
}
