//! The only crate with SQL: commits under guards, queries, leases, the feed of events, migrations, backup.
//!
//! [`Store::commit`] applies [`lattice_core::change::Commit`]s, each whole or not at all, and writes the history, the
//! chained audit and the outbox that follow from them in the same transaction. Two backends stand behind one
//! conformance suite: SQLite for one process, PostgreSQL for several. design: 1-architecture "The store"

mod allocation;
mod apply;
mod audit;
mod backend;
mod backup;
mod batch;
mod bmc;
mod commit;
mod component;
mod credential;
mod error;
mod facts;
mod feed;
mod history;
mod job;
mod last;
mod lease;
mod migrate;
mod node;
mod page;
mod silence;
mod site;
mod site_credential;
mod site_detail;
mod sql;
mod stage;
mod store;
mod table;
mod task;
mod webhook;
mod wipe;

pub use allocation::AllocationFilter;
pub use audit::{AuditBroken, AuditEntry, AuditSummary, audit_verify};
pub use backup::{BackupSummary, check_backup, restore};
pub use batch::{BatchFilter, ChildCount};
pub use error::{Invalid, StoreError};
pub use feed::{Event, EventFilter, Follower};
pub use history::HistoryEntry;
pub use job::{JobFilter, JobSummary};
pub use lease::{Held, Lease};
pub use node::{NodeCount, NodeFilter, NodeSort, NodeSummary};
pub use page::{Cursor, PAGE_MAX, Page, PageRequest};
pub use stage::{BatchRecord, StageRecord, StageTimes};
pub use store::{BackendConfig, Store, StoreConfig, Witness};
pub use task::{TaskCount, TaskFilter};
pub use wipe::WipeFilter;
