//! What the store answers when it does not do what was asked.

use std::path::PathBuf;
use std::sync::Arc;

use lattice_core::explain::{Code, Explain, NextAction};
use lattice_core::ids::{NodeId, OpId};
use lattice_core::node::NodeState;

/// Why the store did not do what was asked.
#[derive(Debug, Clone, thiserror::Error)]
pub enum StoreError {
    /// The data directory cannot be used at all.
    #[error("cannot open the store at {path}")]
    Open {
        /// The database file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: Arc<std::io::Error>,
    },
    /// Another process holds the exclusive lock of the data directory.
    #[error("the data directory {path} is in use by {owner}")]
    DataDirectoryBusy {
        /// The directory.
        path: PathBuf,
        /// Who wrote itself into the lock file: `process 4711`.
        owner: String,
    },
    /// The data was written by a newer version of Lattice.
    #[error("the data has schema {have}, this version knows schemas up to {known}")]
    SchemaNewer {
        /// Schema of the data.
        have: u32,
        /// Newest schema that this binary knows.
        known: u32,
    },
    /// The commit itself is wrong: a bug of its writer. Nothing of the call was applied.
    #[error("commit {op} cannot be applied: {why}")]
    InvalidCommit {
        /// Which.
        op: OpId,
        /// What is wrong with it.
        why: Invalid,
    },
    /// The connection or the disk failed while the transaction was being committed: it may be durable or not.
    /// Repeating the same commits, with the same op ids, is safe and tells.
    #[error("the outcome of the commit is unknown: {why}")]
    Unknown {
        /// What failed.
        why: String,
    },
    /// SQLite failed; nothing of the call is durable.
    #[error("SQLite failed")]
    Sqlite(#[source] Arc<rusqlite::Error>),
    /// PostgreSQL failed or cannot be reached; nothing of the call is durable.
    #[error("PostgreSQL failed: {why}")]
    Postgres {
        /// What it said.
        why: String,
    },
    /// A stored row cannot be read back as what it should be.
    #[error("stored data cannot be read: {what}: {why}")]
    Corrupt {
        /// Which column or row.
        what: String,
        /// What is wrong with it.
        why: String,
    },
    /// The cursor was not made by this list, or was changed on its way.
    #[error("`{cursor}` is not a cursor of this list")]
    BadCursor {
        /// As it was given, cut to 64 characters.
        cursor: String,
    },
    /// The store was closed, or its writer stopped after a failure that it reported.
    #[error("the store is closed")]
    Closed,
    /// A backup or a restore would overwrite something.
    #[error("{path} exists already")]
    TargetExists {
        /// What stands there.
        path: PathBuf,
    },
    /// A backup, read back, is not what it should be; it must not be relied on.
    #[error("the copy at {path} is not usable: {why}")]
    BadCopy {
        /// The copy.
        path: PathBuf,
        /// What was found.
        why: String,
    },
    /// This backend cannot do it.
    #[error("{what} is not possible with this backend: {instead}")]
    Unsupported {
        /// What was asked.
        what: &'static str,
        /// What to do instead.
        instead: &'static str,
    },
}

/// What is wrong with a commit, whatever the database holds.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Invalid {
    /// The two states of a node may not stand together. design: 2-state-model "Which pairs may stand together"
    #[error("node {node} would be {state}, a pair that may not stand together")]
    ForbiddenPair {
        /// Which node.
        node: NodeId,
        /// What it would be.
        state: NodeState,
    },
    /// Two changes of one row: which of them would stand is not defined.
    #[error("it changes {resource} twice")]
    Twice {
        /// Which row.
        resource: String,
    },
    /// Generations start at 1.
    #[error("{resource} has generation 0")]
    GenerationZero {
        /// Which row.
        resource: String,
    },
    /// A creation says what was before, or a change does not: its history would be false.
    #[error("{resource} says that it was {claimed} before, at generation {generation}")]
    FalseBefore {
        /// Which row.
        resource: String,
        /// What the change claims.
        claimed: String,
        /// Generation after the change.
        generation: u64,
    },
}

impl From<rusqlite::Error> for StoreError {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sqlite(Arc::new(error))
    }
}

impl StoreError {
    /// A PostgreSQL failure, with the server's own words where it gave some.
    pub(crate) fn postgres(error: &tokio_postgres::Error) -> Self {
        let why = match error.as_db_error() {
            Some(db) => format!("{} ({})", db.message(), db.code().code()),
            None => chain(error),
        };
        Self::Postgres { why }
    }

    /// A stored value that is not what it should be.
    pub(crate) fn corrupt(what: impl Into<String>, why: impl ToString) -> Self {
        Self::Corrupt { what: what.into(), why: why.to_string() }
    }
}

fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(inner) = source {
        text = format!("{text}: {inner}");
        source = inner.source();
    }
    text
}

impl Explain for StoreError {
    fn code(&self) -> Code {
        match self {
            Self::DataDirectoryBusy { .. } => Code::DataDirectoryBusy,
            Self::SchemaNewer { .. } => Code::SchemaNewer,
            Self::BadCursor { .. } => Code::Malformed,
            Self::TargetExists { .. } => Code::Taken,
            Self::Unsupported { .. } => Code::Unsupported,
            Self::Closed | Self::Unknown { .. } | Self::Postgres { .. } => Code::Unavailable,
            Self::Open { .. }
            | Self::InvalidCommit { .. }
            | Self::Sqlite(_)
            | Self::Corrupt { .. }
            | Self::BadCopy { .. } => Code::Internal,
        }
    }

    fn because(&self) -> Vec<String> {
        match self {
            Self::Open { source, .. } => vec![source.to_string()],
            Self::Sqlite(source) => vec![source.to_string()],
            Self::DataDirectoryBusy { owner, .. } => {
                vec![format!("{owner} holds the lock; two servers would overwrite each other's decisions")]
            }
            Self::SchemaNewer { have, known } => {
                vec![format!("a newer version of Lattice migrated it to schema {have}; this one ends at {known}")]
            }
            Self::InvalidCommit { why, .. } => vec![why.to_string()],
            Self::Unknown { why } | Self::Postgres { why } | Self::Corrupt { why, .. } | Self::BadCopy { why, .. } => {
                vec![why.clone()]
            }
            Self::BadCursor { .. } | Self::Closed | Self::TargetExists { .. } | Self::Unsupported { .. } => Vec::new(),
        }
    }

    fn next_actions(&self) -> Vec<NextAction> {
        let fix = |what: String| vec![NextAction::Fix { what }];
        match self {
            Self::Open { path, .. } => fix(format!("make {} a file that this user may write", path.display())),
            Self::DataDirectoryBusy { path, owner } => fix(format!(
                "stop {owner}, or give this server another data directory than {}; several servers need PostgreSQL",
                path.display()
            )),
            Self::SchemaNewer { .. } => fix("install the version that wrote the data, or a later one, or restore a \
                backup that this version made"
                .to_owned()),
            Self::InvalidCommit { .. } => fix("report this defect with the server's log".to_owned()),
            Self::Unknown { .. } => fix("repeat the request with the same idempotency key".to_owned()),
            Self::Sqlite(_) => fix("check that the disk has room and no errors".to_owned()),
            Self::Postgres { .. } => fix("check that PostgreSQL answers at the configured address".to_owned()),
            Self::Corrupt { .. } => fix("restore the last backup, or report this defect".to_owned()),
            Self::BadCursor { .. } => fix("start the list again without a cursor".to_owned()),
            Self::Closed => fix("start the server again".to_owned()),
            Self::TargetExists { path } => fix(format!("name another target, or move {} away", path.display())),
            Self::BadCopy { path, .. } => fix(format!("make another backup; do not rely on {}", path.display())),
            Self::Unsupported { instead, .. } => fix((*instead).to_owned()),
        }
    }
}
