//! SQLite: WAL, `synchronous=FULL`, one writer with group commit, a few readers.

pub(crate) mod copy;
mod lookup;
mod open;
mod writer;

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;

use lattice_core::change::Outcome;
use rusqlite::Connection;
use rusqlite::types::{ToSqlOutput, ValueRef};
use tokio::sync::{Semaphore, mpsc, oneshot};
use uuid::Uuid;

use crate::commit::Prepared;
use crate::error::StoreError;
use crate::last::{self, Last};
use crate::sql::{Columns, Query, Reader, Value};
use writer::Writer;

/// Readers at once. More do not help: reads come from the page cache and need a processor each.
const READERS: usize = 4;
/// Calls that may wait for the writer before their callers wait for room. One group commit takes up to
/// [`writer::GROUP_MAX`] commits, so this is a few milliseconds of work.
const QUEUE: usize = 1_024;

/// When SQLite tells the disk to keep what was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Synchronous {
    /// At every commit.
    Full,
    /// Never.
    Off,
}

/// A SQLite database.
pub(crate) struct Database {
    access: Access,
    last: Last,
}

enum Access {
    /// Everything runs on the caller's thread.
    Inline(Box<Mutex<Writer>>),
    /// One thread writes, a few read.
    Threads { work: Option<mpsc::Sender<Work>>, thread: Option<JoinHandle<()>>, readers: Arc<Readers> },
}

/// What the writer's thread is asked.
pub(crate) enum Work {
    /// Commits of one call.
    Commit(Vec<Prepared>, oneshot::Sender<Result<Vec<Outcome>, StoreError>>),
    /// A read of a few rows.
    Read(Box<dyn FnOnce(&Connection) + Send>),
    /// Something that needs the writer's connection alone.
    Run(Box<dyn FnOnce(&mut Writer) + Send>),
}

struct Readers {
    idle: Mutex<Vec<Connection>>,
    permits: Arc<Semaphore>,
}

impl Database {
    /// Opens a file, locks its directory, migrates it.
    pub(crate) fn open(path: &Path, inline: bool, synchronous: Synchronous) -> Result<Self, StoreError> {
        let lock = open::lock_directory(path)?;
        let connection = open::writer(path, synchronous)?;
        let (sender, last) = last::channel();
        let writer = Writer::new(connection, Some(lock), sender)?;
        if inline {
            return Ok(Self { access: Access::Inline(Box::new(Mutex::new(writer))), last });
        }
        let idle = (0..READERS).map(|_| open::reader(path)).collect::<Result<Vec<_>, _>>()?;
        let readers = Arc::new(Readers { idle: Mutex::new(idle), permits: Arc::new(Semaphore::new(READERS)) });
        let (work, queue) = mpsc::channel(QUEUE);
        let thread = std::thread::Builder::new()
            .name("lattice-store".to_owned())
            .spawn(move || writer.run(queue))
            .map_err(|source| StoreError::Open { path: path.to_owned(), source: Arc::new(source) })?;
        Ok(Self { access: Access::Threads { work: Some(work), thread: Some(thread), readers }, last })
    }

    /// A database in memory.
    pub(crate) fn memory() -> Result<Self, StoreError> {
        let (sender, last) = last::channel();
        let writer = Writer::new(open::memory()?, None, sender)?;
        Ok(Self { access: Access::Inline(Box::new(Mutex::new(writer))), last })
    }

    pub(crate) fn watch(&self) -> Last {
        self.last.clone()
    }

    pub(crate) async fn commit(&self, prepared: Vec<Prepared>) -> Result<Vec<Outcome>, StoreError> {
        match &self.access {
            Access::Inline(writer) => {
                let mut outcomes = lock(writer).commit(&[&prepared])?;
                Ok(outcomes.pop().expect("one answer for one call"))
            }
            Access::Threads { work, .. } => {
                let (reply, answer) = oneshot::channel();
                send(work.as_ref(), Work::Commit(prepared, reply)).await?;
                answer.await.map_err(|_| StoreError::Closed)?
            }
        }
    }

    pub(crate) async fn fetch<T: Send + 'static>(
        &self,
        query: Query,
        read: fn(&mut Reader<'_>) -> Result<T, StoreError>,
    ) -> Result<Vec<T>, StoreError> {
        match &self.access {
            Access::Inline(writer) => rows(lock(writer).connection(), &query, read),
            Access::Threads { .. } => self.with_reader(move |connection| rows(connection, &query, read)).await?,
        }
    }

    /// The same on the writer's connection, which has in memory what was just written.
    pub(crate) async fn fetch_beside_commits<T: Send + 'static>(
        &self,
        query: Query,
        read: fn(&mut Reader<'_>) -> Result<T, StoreError>,
    ) -> Result<Vec<T>, StoreError> {
        match &self.access {
            Access::Inline(writer) => rows(lock(writer).connection(), &query, read),
            Access::Threads { work, .. } => {
                let (reply, answer) = oneshot::channel();
                let job = Box::new(move |connection: &Connection| drop(reply.send(rows(connection, &query, read))));
                send(work.as_ref(), Work::Read(job)).await?;
                answer.await.map_err(|_| StoreError::Closed)?
            }
        }
    }

    /// Runs something that only reads, beside the writer.
    pub(crate) async fn with_reader<T: Send + 'static>(
        &self,
        run: impl FnOnce(&Connection) -> T + Send + 'static,
    ) -> Result<T, StoreError> {
        match &self.access {
            Access::Inline(writer) => Ok(run(lock(writer).connection())),
            Access::Threads { readers, .. } => {
                let permit = readers.permits.clone().acquire_owned().await.map_err(|_| StoreError::Closed)?;
                let readers = readers.clone();
                let task = tokio::task::spawn_blocking(move || {
                    let connection = lock(&readers.idle).pop().expect("as many connections as permits");
                    let answer = run(&connection);
                    lock(&readers.idle).push(connection);
                    drop(permit);
                    answer
                });
                task.await.map_err(|_| StoreError::Closed)
            }
        }
    }

    pub(crate) async fn change_row<T: Send + 'static>(
        &self,
        query: Query,
        read: fn(&mut Reader<'_>) -> Result<T, StoreError>,
    ) -> Result<Vec<T>, StoreError> {
        self.with_writer(move |writer| rows(writer.connection(), &query, read)).await?
    }

    /// Runs something alone with the writer's connection, between two group commits.
    pub(crate) async fn with_writer<T: Send + 'static>(
        &self,
        run: impl FnOnce(&mut Writer) -> T + Send + 'static,
    ) -> Result<T, StoreError> {
        match &self.access {
            Access::Inline(writer) => Ok(run(&mut lock(writer))),
            Access::Threads { work, .. } => {
                let (reply, answer) = oneshot::channel();
                let job = Box::new(move |writer: &mut Writer| drop(reply.send(run(writer))));
                send(work.as_ref(), Work::Run(job)).await?;
                answer.await.map_err(|_| StoreError::Closed)
            }
        }
    }
}

impl Drop for Database {
    /// Waits until the writer has ended, so that the directory is free when this returns.
    fn drop(&mut self) {
        match &mut self.access {
            Access::Inline(_) => {}
            Access::Threads { work, thread, .. } => {
                drop(work.take());
                if let Some(thread) = thread.take() {
                    // A panic of the writer was printed by the writer; nothing more can be done about it here.
                    drop(thread.join());
                }
            }
        }
    }
}

async fn send(work: Option<&mpsc::Sender<Work>>, item: Work) -> Result<(), StoreError> {
    work.ok_or(StoreError::Closed)?.send(item).await.map_err(|_| StoreError::Closed)
}

/// A panic while the lock was held leaves a transaction that SQLite rolls back: the data stays whole.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

fn rows<T>(
    connection: &Connection,
    query: &Query,
    read: fn(&mut Reader<'_>) -> Result<T, StoreError>,
) -> Result<Vec<T>, StoreError> {
    let mut statement = connection.prepare_cached(&query.sql)?;
    let mut rows = statement.query(rusqlite::params_from_iter(&query.params))?;
    let mut answer = Vec::new();
    while let Some(row) = rows.next()? {
        answer.push(read(&mut Reader::new(row))?);
    }
    Ok(answer)
}

impl rusqlite::ToSql for Value<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(match self {
            Self::Null => ValueRef::Null,
            Self::Int(value) => ValueRef::Integer(*value),
            Self::Text(text) => ValueRef::Text(text.as_bytes()),
            Self::Id(id) => ValueRef::Blob(id.as_bytes()),
        }))
    }
}

impl Columns for rusqlite::Row<'_> {
    fn int(&self, index: usize) -> Result<Option<i64>, StoreError> {
        self.get_ref(index)?.as_i64_or_null().map_err(|error| StoreError::corrupt(column(index), error))
    }
    fn text(&self, index: usize) -> Result<Option<&str>, StoreError> {
        self.get_ref(index)?.as_str_or_null().map_err(|error| StoreError::corrupt(column(index), error))
    }
    fn id(&self, index: usize) -> Result<Option<Uuid>, StoreError> {
        let bytes = self.get_ref(index)?.as_blob_or_null();
        let bytes = bytes.map_err(|error| StoreError::corrupt(column(index), error))?;
        bytes.map(Uuid::from_slice).transpose().map_err(|error| StoreError::corrupt(column(index), error))
    }
}

fn column(index: usize) -> String {
    format!("column {index}")
}
