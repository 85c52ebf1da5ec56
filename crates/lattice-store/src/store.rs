//! The store: one handle over either backend.

use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use lattice_core::change::{Commit, Outcome};

use crate::backend::postgres;
use crate::backend::sqlite::{self, Synchronous};
use crate::commit::Prepared;
use crate::error::StoreError;
use crate::last::Last;
use crate::sql::{Query, Reader};

/// Where the data is.
#[derive(Clone, PartialEq, Eq)]
pub enum BackendConfig {
    /// A file of this process alone; its directory is locked.
    Sqlite {
        /// The database file; it is made when it is not there.
        path: PathBuf,
    },
    /// Memory: gone with the store. Always inline.
    SqliteMemory,
    /// A PostgreSQL database, shared by several servers.
    Postgres {
        /// `postgres://user@host:5432/lattice`; may hold a password, so it is never printed.
        url: String,
    },
}

impl std::fmt::Debug for BackendConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Sqlite { path } => write!(f, "sqlite {}", path.display()),
            Self::SqliteMemory => f.write_str("sqlite in memory"),
            Self::Postgres { .. } => f.write_str("postgres"),
        }
    }
}

/// How to open a store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreConfig {
    /// Where the data is.
    pub backend: BackendConfig,
    /// Run every statement on the caller's thread: for the deterministic simulation. SQLite only.
    pub inline: bool,
}

impl StoreConfig {
    /// A database file, with a writer thread and readers of its own.
    pub fn sqlite(path: impl Into<PathBuf>) -> Self {
        Self { backend: BackendConfig::Sqlite { path: path.into() }, inline: false }
    }

    /// A database in memory, on the caller's thread.
    pub const fn memory() -> Self {
        Self { backend: BackendConfig::SqliteMemory, inline: true }
    }

    /// A PostgreSQL database.
    pub fn postgres(url: impl Into<String>) -> Self {
        Self { backend: BackendConfig::Postgres { url: url.into() }, inline: false }
    }
}

/// The store. Clones share one database; it is closed with the last of them.
#[derive(Clone)]
pub struct Store {
    backend: Arc<Backend>,
    reads: Reads,
    witness: Option<Arc<dyn Witness>>,
}

/// Stands beside every commit of a handle: the simulation interleaves, ends and checks servers there. A server has none.
#[async_trait]
pub trait Witness: Send + Sync {
    /// Commits are about to be made.
    ///
    /// # Errors
    /// They are not made, and the caller gets this.
    async fn before(&self, commits: &[Commit]) -> Result<(), StoreError>;

    /// They were made, with these outcomes; nobody else's came in between.
    fn made(&self, commits: &[Commit], outcomes: &[Outcome]);

    /// The answer is on its way to the caller.
    ///
    /// # Errors
    /// The caller gets this in place of the outcomes.
    async fn after(&self) -> Result<(), StoreError>;
}

/// Where a handle reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reads {
    /// On connections of their own: never behind a commit.
    Apart,
    /// Where commits are made, between two of them.
    BesideCommits,
}

enum Backend {
    Sqlite(Box<sqlite::Database>),
    Postgres(postgres::Database),
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match *self.backend {
            Backend::Sqlite(_) => "Store(sqlite)",
            Backend::Postgres(_) => "Store(postgres)",
        })
    }
}

impl Store {
    fn over(backend: Backend) -> Self {
        Self { backend: Arc::new(backend), reads: Reads::Apart, witness: None }
    }

    /// Opens the store: locks a SQLite file's directory, migrates the schema forward.
    ///
    /// # Errors
    /// [`StoreError::DataDirectoryBusy`], [`StoreError::SchemaNewer`], [`StoreError::Open`]; the database fails.
    pub async fn open(config: StoreConfig) -> Result<Self, StoreError> {
        let backend = match config.backend {
            BackendConfig::Sqlite { path } => {
                Backend::Sqlite(Box::new(sqlite::Database::open(&path, config.inline, Synchronous::Full)?))
            }
            BackendConfig::SqliteMemory => Backend::Sqlite(Box::new(sqlite::Database::memory()?)),
            BackendConfig::Postgres { .. } if config.inline => {
                return Err(StoreError::Unsupported { what: "an inline store", instead: "use SQLite for it" });
            }
            BackendConfig::Postgres { url } => Backend::Postgres(postgres::Database::open(&url).await?),
        };
        Ok(Self::over(backend))
    }

    /// Opens a SQLite file whose commits are answered before they are durable: a power cut loses them. It exists so
    /// that the crash test can be seen to fail without `synchronous=FULL`; a server never uses it.
    ///
    /// # Errors
    /// As [`Store::open`].
    #[doc(hidden)]
    pub fn open_without_sync(path: &std::path::Path) -> Result<Self, StoreError> {
        let database = sqlite::Database::open(path, true, Synchronous::Off)?;
        Ok(Self::over(Backend::Sqlite(Box::new(database))))
    }

    /// The same store, for those who read a few rows by their keys in order to commit next: jobs and agents.
    ///
    /// SQLite forgets all that a reading connection knows with every commit of another one; the writing connection has
    /// it all in memory. A read there costs a fifth, and waits for the group of commits before it, as the commit that
    /// follows would. With PostgreSQL it makes no difference.
    #[must_use]
    pub fn reading_beside_commits(&self) -> Self {
        Self { reads: Reads::BesideCommits, ..self.clone() }
    }

    /// The same store with a witness of its commits: for the simulation alone.
    #[must_use]
    pub fn witnessed_by(&self, witness: Arc<dyn Witness>) -> Self {
        Self { witness: Some(witness), ..self.clone() }
    }

    /// Applies commits in their order; each stands or falls alone, and has one outcome.
    ///
    /// All that are `Applied` are durable when this returns. Dropping the future does not undo anything.
    ///
    /// # Errors
    /// [`StoreError::InvalidCommit`]: one of them can never be applied, and none was. [`StoreError::Unknown`]: they
    /// may be durable or not; the same call again is safe. All others: none is durable.
    pub async fn commit(&self, commits: Vec<Commit>) -> Result<Vec<Outcome>, StoreError> {
        match &self.witness {
            None => self.make(commits).await,
            Some(_) if commits.is_empty() => Ok(Vec::new()),
            Some(witness) => {
                witness.before(&commits).await?;
                let outcomes = self.make(commits.clone()).await?;
                witness.made(&commits, &outcomes);
                witness.after().await?;
                Ok(outcomes)
            }
        }
    }

    async fn make(&self, commits: Vec<Commit>) -> Result<Vec<Outcome>, StoreError> {
        let prepared = commits.into_iter().map(Prepared::new).collect::<Result<Vec<_>, _>>()?;
        if prepared.is_empty() {
            return Ok(Vec::new());
        }
        match &*self.backend {
            Backend::Sqlite(database) => database.commit(prepared).await,
            Backend::Postgres(database) => database.commit(prepared).await,
        }
    }

    /// Applies one commit.
    ///
    /// # Errors
    /// As [`Store::commit`].
    pub async fn commit_one(&self, commit: Commit) -> Result<Outcome, StoreError> {
        Ok(self.commit(vec![commit]).await?.pop().expect("one outcome for one commit"))
    }

    /// Rows of a query, as what they stand for.
    pub(crate) async fn fetch<T: Send + 'static>(
        &self,
        query: Query,
        read: fn(&mut Reader<'_>) -> Result<T, StoreError>,
    ) -> Result<Vec<T>, StoreError> {
        match (&*self.backend, self.reads) {
            (Backend::Sqlite(database), Reads::Apart) => database.fetch(query, read).await,
            (Backend::Sqlite(database), Reads::BesideCommits) => database.fetch_beside_commits(query, read).await,
            (Backend::Postgres(database), Reads::Apart | Reads::BesideCommits) => database.fetch(query, read).await,
        }
    }

    /// Runs one statement that writes and gives rows back, in a transaction of its own.
    pub(crate) async fn change_row<T: Send + 'static>(
        &self,
        query: Query,
        read: fn(&mut Reader<'_>) -> Result<T, StoreError>,
    ) -> Result<Vec<T>, StoreError> {
        match &*self.backend {
            Backend::Sqlite(database) => database.change_row(query, read).await,
            Backend::Postgres(database) => database.fetch(query, read).await,
        }
    }

    /// Writes all of it into a SQLite file that is not finished yet.
    pub(crate) async fn copy_to(&self, partial: PathBuf) -> Result<(), StoreError> {
        match &*self.backend {
            Backend::Sqlite(database) => {
                database.with_reader(move |connection| sqlite::copy::to_file(connection, &partial)).await?
            }
            Backend::Postgres(database) => postgres::export::to_file(database.pool(), partial).await,
        }
    }

    pub(crate) fn watch(&self) -> Last {
        match &*self.backend {
            Backend::Sqlite(database) => database.watch(),
            Backend::Postgres(database) => database.watch(),
        }
    }
}
