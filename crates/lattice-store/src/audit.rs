//! The audit: derived in each commit, chained by hashes, verified from an export without a database.

use std::io::{BufRead, Write};
use std::sync::Arc;

use lattice_core::change::{AuditRow, Resource, audit_hash};
use serde::{Deserialize, Serialize};

use crate::error::StoreError;
use crate::page::{Cursor, PAGE_MAX, Page, PageRequest};
use crate::sql::{Conditions, Query, Reader, Value};
use crate::store::Store;
use crate::table::{Kind, Table, Writes, col};

/// One row for each thing that was done or refused.
pub(crate) const AUDIT: Table = Table {
    name: "audit",
    key: 1,
    writes: Writes::Append,
    columns: &[
        col("seq", Kind::Int),
        col("at", Kind::Int),
        col("actor", Kind::Text),
        col("role", Kind::Text),
        col("action", Kind::Text),
        col("resource_kind", Kind::Text),
        col("resource_id", Kind::Text),
        col("reason", Kind::Text),
        col("before_json", Kind::Text),
        col("after_json", Kind::Text),
        col("result", Kind::Text),
        col("correlation", Kind::Text),
        col("hash", Kind::Text),
    ],
};

const SELECT: &str = "SELECT seq, at, actor, role, action, resource_kind, resource_id, reason, before_json, \
    after_json, result, correlation, hash FROM audit";

pub(crate) fn row<'a>(seq: u64, row: &'a AuditRow, hash: &str) -> Vec<Value<'a>> {
    vec![
        Value::count(seq),
        Value::time(row.at),
        Value::text(&row.actor),
        Value::text(&row.role),
        Value::text(&row.action),
        Value::text(&row.resource_kind),
        Value::text(&row.resource_id),
        Value::text(&row.reason),
        Value::json(&row.before),
        Value::json(&row.after),
        Value::text(&row.result),
        Value::text(&row.correlation),
        Value::owned(hash.to_owned()),
    ]
}

/// One audit row with its place in the chain; one line of an export.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditEntry {
    /// Its place, from 1, without gaps.
    pub seq: u64,
    /// What was done or refused.
    pub row: AuditRow,
    /// Hash over the row and the hash before it, in hex.
    pub hash: String,
}

pub(crate) fn read(r: &mut Reader<'_>) -> Result<AuditEntry, StoreError> {
    Ok(AuditEntry {
        seq: r.count()?,
        row: AuditRow {
            at: r.time()?,
            actor: r.text()?,
            role: r.text()?,
            action: r.text()?,
            resource_kind: r.text()?,
            resource_id: r.text()?,
            reason: r.text()?,
            before: r.json()?,
            after: r.json()?,
            result: r.text()?,
            correlation: r.text()?,
        },
        hash: r.text()?,
    })
}

/// Rows after a place, in order.
pub(crate) fn after(seq: u64, limit: usize) -> Query {
    let mut conditions = Conditions::default();
    conditions.add("seq > ?", [Value::count(seq)]);
    conditions.query(SELECT, "ORDER BY seq", limit)
}

/// What a verified export holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditSummary {
    /// How many rows.
    pub rows: u64,
    /// Hash of the last one, to be compared with one kept elsewhere: only that shows a cut end.
    pub last_hash: String,
}

/// Why an export is not a whole chain.
#[derive(Debug, thiserror::Error)]
pub enum AuditBroken {
    /// A line cannot be read.
    #[error("line {line} of the export cannot be read: {why}")]
    Unreadable {
        /// Which line, from 1.
        line: u64,
        /// What is wrong with it.
        why: String,
    },
    /// A row is missing, or there twice.
    #[error("line {line} has audit row {seq} where row {expected} must stand")]
    Gap {
        /// Which line, from 1.
        line: u64,
        /// What stands there.
        seq: u64,
        /// What must.
        expected: u64,
    },
    /// A row, or one before it, was changed after it was written.
    #[error("audit row {seq} does not match its hash: it, or the row before it, was changed")]
    Changed {
        /// Which row.
        seq: u64,
    },
}

/// Checks an export, JSON lines from the first row on, against its own chain. Needs no database.
///
/// # Errors
/// The first line that cannot be read, is out of place, or does not match its hash.
pub fn audit_verify(export: impl BufRead) -> Result<AuditSummary, AuditBroken> {
    let mut last_hash = "0".repeat(64);
    let mut rows = 0;
    for (line, text) in (1..).zip(export.lines()) {
        let unreadable = |why: String| AuditBroken::Unreadable { line, why };
        let text = text.map_err(|error| unreadable(error.to_string()))?;
        let entry: AuditEntry = serde_json::from_str(&text).map_err(|error| unreadable(error.to_string()))?;
        if entry.seq != rows + 1 {
            return Err(AuditBroken::Gap { line, seq: entry.seq, expected: rows + 1 });
        }
        if entry.hash != audit_hash(&last_hash, &entry.row) {
            return Err(AuditBroken::Changed { seq: entry.seq });
        }
        last_hash = entry.hash;
        rows += 1;
    }
    Ok(AuditSummary { rows, last_hash })
}

impl Store {
    /// One page of the audit, the newest first; of one resource, or of all.
    ///
    /// # Errors
    /// A cursor of another list; the database fails.
    pub async fn audit(&self, resource: Option<&Resource>, page: &PageRequest) -> Result<Page<AuditEntry>, StoreError> {
        let mut conditions = Conditions::default();
        if let Some(resource) = resource {
            let id = Value::owned(resource.id());
            conditions.add("resource_kind = ? AND resource_id = ?", [Value::text(resource.kind()), id]);
        }
        if let Some(cursor) = &page.cursor {
            conditions.add("seq < ?", [Value::count(cursor.last::<u64>()?)]);
        }
        let rows = self.fetch(conditions.query(SELECT, "ORDER BY seq DESC", page.probe()), read).await?;
        Ok(page.page(rows, |last| Cursor::new(&[&last.seq])))
    }

    /// Writes the audit as JSON lines, from the first row to the last that is committed when it is reached.
    /// [`audit_verify`] reads it.
    ///
    /// # Errors
    /// The database fails; `to` does not take it.
    pub async fn audit_export(&self, mut to: impl Write) -> Result<AuditSummary, StoreError> {
        let mut summary = AuditSummary { rows: 0, last_hash: "0".repeat(64) };
        loop {
            let entries = self.fetch(after(summary.rows, PAGE_MAX), read).await?;
            if entries.is_empty() {
                return Ok(summary);
            }
            for entry in entries {
                let line = serde_json::to_string(&entry).expect("an audit row has only text keys");
                writeln!(to, "{line}")
                    .map_err(|source| StoreError::Open { path: "the export".into(), source: Arc::new(source) })?;
                summary = AuditSummary { rows: entry.seq, last_hash: entry.hash };
            }
        }
    }
}
