//! Tables as lists of columns: from them both backends build the statements that write rows.

use crate::allocation::ALLOCATIONS;
use crate::apply::OPS;
use crate::audit::AUDIT;
use crate::batch::BATCHES;
use crate::bmc::{BMC_REPORTS, BMCS};
use crate::component::COMPONENTS;
use crate::credential::{API_TOKENS, ENROLLMENT_TOKENS};
use crate::error::StoreError;
use crate::facts::{HOST_FACTS, PROVIDER_STATES};
use crate::feed::OUTBOX;
use crate::history::HISTORY;
use crate::job::JOBS;
use crate::node::NODES;
use crate::silence::SILENCES;
use crate::site::{SITES, SKUS};
use crate::site_credential::SITE_CREDENTIALS;
use crate::site_detail::{OVERRIDES, PROFILES, ROCE};
use crate::sql::{Reader, Value};
use crate::stage::STAGE_EVENTS;
use crate::task::TASKS;
use crate::webhook::{WEBHOOK_DELIVERIES, WEBHOOK_PROGRESS, WEBHOOKS};
use crate::wipe::WIPE_CERTIFICATES;

/// Type of a column, as both backends know it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// `INTEGER`, `BIGINT`.
    Int,
    /// `TEXT`.
    Text,
    /// 16 bytes, `UUID`.
    Id,
}

/// One column.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Column {
    /// Its name.
    pub(crate) name: &'static str,
    /// Its type.
    pub(crate) kind: Kind,
    /// Whether it seldom changes: a lean update leaves it, and so its indexes, alone.
    pub(crate) stable: bool,
}

/// A column that changes.
pub(crate) const fn col(name: &'static str, kind: Kind) -> Column {
    Column { name, kind, stable: false }
}

/// A column that seldom changes.
pub(crate) const fn stable(name: &'static str, kind: Kind) -> Column {
    Column { name, kind, stable: true }
}

/// How rows get into a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Writes {
    /// Each row is new.
    Append,
    /// A row with the same key is replaced.
    Replace,
}

/// One table; its first `key` columns are the primary key.
#[derive(Debug)]
pub(crate) struct Table {
    /// Its name.
    pub(crate) name: &'static str,
    /// How many columns the key has.
    pub(crate) key: usize,
    /// How rows get in.
    pub(crate) writes: Writes,
    /// All columns, in the order in which rows give their values.
    pub(crate) columns: &'static [Column],
}

impl Table {
    /// Names of all columns, with commas.
    pub(crate) fn names(&self) -> String {
        self.columns.iter().map(|column| column.name).collect::<Vec<_>>().join(", ")
    }

    /// Statement that inserts or replaces one row, with `?1` as its first value.
    pub(crate) fn insert_statement(&self) -> String {
        let marks: Vec<_> = (1..=self.columns.len()).map(|index| format!("?{index}")).collect();
        let (names, marks, conflict) = (self.names(), marks.join(", "), self.conflict_clause());
        format!("INSERT INTO {} ({names}) VALUES ({marks}){conflict}", self.name)
    }

    /// Statement that reads all rows.
    pub(crate) fn select_statement(&self) -> String {
        format!("SELECT {} FROM {}", self.names(), self.name)
    }

    /// One whole row, as it stands.
    pub(crate) fn read(&self, r: &mut Reader<'_>) -> Result<Vec<Value<'static>>, StoreError> {
        self.columns
            .iter()
            .map(|column| {
                Ok(match column.kind {
                    Kind::Int => r.opt_int()?.map_or(Value::Null, Value::Int),
                    Kind::Text => r.opt_text()?.map_or(Value::Null, Value::owned),
                    Kind::Id => Value::opt_id(r.opt_id()?),
                })
            })
            .collect()
    }

    /// What a replaced row takes over: `a = excluded.a, …`.
    pub(crate) fn conflict_clause(&self) -> String {
        match self.writes {
            Writes::Append => String::new(),
            Writes::Replace => {
                let key: Vec<_> = self.columns[..self.key].iter().map(|column| column.name).collect();
                let set: Vec<_> =
                    self.columns[self.key..].iter().map(|column| format!("{0} = excluded.{0}", column.name)).collect();
                format!(" ON CONFLICT ({}) DO UPDATE SET {}", key.join(", "), set.join(", "))
            }
        }
    }
}

/// The one row that says how far the outbox and the audit are.
pub(crate) const HEAD: Table = Table {
    name: "head",
    key: 1,
    writes: Writes::Replace,
    columns: &[
        col("one", Kind::Int),
        col("event_seq", Kind::Int),
        col("audit_seq", Kind::Int),
        col("audit_hash", Kind::Text),
    ],
};

/// How many nodes of each site stand in which states.
pub(crate) const NODE_COUNTS: Table = Table {
    name: "node_counts",
    key: 3,
    writes: Writes::Replace,
    columns: &[col("site", Kind::Id), col("status", Kind::Text), col("availability", Kind::Text), col("n", Kind::Int)],
};

/// Who holds which lease. Its epochs go into a backup too, so that a fence never goes back.
pub(crate) const LEASES: Table = Table {
    name: "leases",
    key: 1,
    writes: Writes::Replace,
    columns: &[col("name", Kind::Text), col("holder", Kind::Text), col("epoch", Kind::Int), col("until", Kind::Int)],
};

/// Every table, as a backup moves them from one backend to the other.
pub(crate) const ALL: &[&Table] = &[
    &HEAD,
    &OPS,
    &NODES,
    &NODE_COUNTS,
    &HISTORY,
    &JOBS,
    &STAGE_EVENTS,
    &BATCHES,
    &TASKS,
    &ALLOCATIONS,
    &SITES,
    &SITE_CREDENTIALS,
    &SKUS,
    &PROFILES,
    &OVERRIDES,
    &ROCE,
    &ENROLLMENT_TOKENS,
    &API_TOKENS,
    &SILENCES,
    &WEBHOOKS,
    &WEBHOOK_PROGRESS,
    &WEBHOOK_DELIVERIES,
    &HOST_FACTS,
    &PROVIDER_STATES,
    &BMCS,
    &BMC_REPORTS,
    &COMPONENTS,
    &WIPE_CERTIFICATES,
    &OUTBOX,
    &AUDIT,
    &LEASES,
];
