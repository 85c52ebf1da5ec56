//! Backup and restore: online, in one file, read back before anybody relies on it.
//!
//! A backup is a SQLite database, whatever it was taken from: it can be restored into either backend.

use std::path::{Path, PathBuf};

use crate::backend::postgres;
use crate::backend::sqlite::copy;
use crate::error::StoreError;
use crate::store::{BackendConfig, Store};

/// What a backup holds, as it was read back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BackupSummary {
    /// Nodes, deleted ones included.
    pub nodes: u64,
    /// Jobs.
    pub jobs: u64,
    /// Place of the last event.
    pub events: u64,
    /// Rows of the audit, their chain intact.
    pub audit_rows: u64,
    /// Size of the file in bytes.
    pub bytes: u64,
}

impl Store {
    /// Writes a backup of one moment while the store goes on, and reads it back. The file gets its name only when it
    /// is good and on the disk.
    ///
    /// # Errors
    /// [`StoreError::TargetExists`]; [`StoreError::BadCopy`]; [`StoreError::Open`]; the database fails.
    pub async fn backup(&self, to: &Path) -> Result<BackupSummary, StoreError> {
        refuse_existing(to)?;
        let partial = partial_of(to);
        remove_stale(&partial)?;
        self.copy_to(partial.clone()).await?;
        let to = to.to_owned();
        let checked = tokio::task::spawn_blocking(move || {
            let summary = copy::verify(&partial)?;
            copy::publish(&partial, &to)?;
            Ok(summary)
        });
        checked.await.map_err(|_| StoreError::Closed)?
    }
}

/// Reads a backup back: its pages, its audit chain, and whether its numbers agree with each other.
///
/// # Errors
/// [`StoreError::BadCopy`] with the first thing that is wrong; [`StoreError::Open`].
pub fn check_backup(path: &Path) -> Result<BackupSummary, StoreError> {
    copy::verify(path)
}

/// Puts a backup where a store is to be opened, and reads it back there. Nothing may be there yet.
///
/// # Errors
/// [`StoreError::TargetExists`]; [`StoreError::BadCopy`]: the backup or its copy is damaged;
/// [`StoreError::SchemaNewer`]; [`StoreError::Unsupported`]: into memory; the database fails.
pub async fn restore(from: &Path, to: &BackendConfig) -> Result<BackupSummary, StoreError> {
    let summary = copy::verify(from)?;
    match to {
        BackendConfig::Sqlite { path } => {
            refuse_existing(path)?;
            // The log of a database that is gone would be played into the new one.
            refuse_existing(&beside(path, "-wal"))?;
            let partial = partial_of(path);
            remove_stale(&partial)?;
            copy::to_file(&copy::source(from)?, &partial)?;
            let restored = copy::verify(&partial)?;
            copy::publish(&partial, path)?;
            Ok(restored)
        }
        BackendConfig::Postgres { url } => {
            let database = postgres::Database::open(url).await?;
            postgres::export::from_file(database.pool(), copy::source(from)?).await?;
            Ok(summary)
        }
        BackendConfig::SqliteMemory => {
            Err(StoreError::Unsupported { what: "restoring into memory", instead: "name a file" })
        }
    }
}

fn refuse_existing(path: &Path) -> Result<(), StoreError> {
    if path.exists() { Err(StoreError::TargetExists { path: path.to_owned() }) } else { Ok(()) }
}

fn partial_of(path: &Path) -> PathBuf {
    beside(path, ".partial")
}

fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(suffix);
    path.with_file_name(name)
}

/// An earlier attempt that did not finish.
fn remove_stale(partial: &Path) -> Result<(), StoreError> {
    match std::fs::remove_file(partial) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(source) => Err(StoreError::Open { path: partial.to_owned(), source: source.into() }),
    }
}
