//! The audit: who did what, when, why, and the hash chain that shows tampering.

use lattice_core::change::AuditRow;
use lattice_core::time::Timestamp;
use serde::{Deserialize, Serialize};

/// One row of the audit. Its `hash` is SHA-256 over the hash before it (64 zeros for the first row), a line feed and the
/// row's canonical JSON, in hex.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct AuditEntry {
    /// Place in the chain, dense from 1.
    pub seq: u64,
    /// When.
    pub at: Timestamp,
    /// Who.
    pub actor: String,
    /// In which role.
    pub role: String,
    /// What: `node.moved`, `job.retry_stage`, `site.created`.
    pub action: String,
    /// On what kind of thing.
    pub resource_kind: String,
    /// On which.
    pub resource_id: String,
    /// Why, in the actor's words.
    pub reason: String,
    /// Short picture before; null at creation.
    #[schema(value_type = Object)]
    pub before: serde_json::Value,
    /// Short picture after.
    #[schema(value_type = Object)]
    pub after: serde_json::Value,
    /// `applied` or `refused`.
    pub result: String,
    /// What it belongs to.
    pub correlation: String,
    /// Hash of this row and the one before it.
    pub hash: String,
}

impl AuditEntry {
    /// The entry of a stored row.
    pub fn of(seq: u64, row: AuditRow, hash: String) -> Self {
        Self {
            seq,
            at: row.at,
            actor: row.actor,
            role: row.role,
            action: row.action,
            resource_kind: row.resource_kind,
            resource_id: row.resource_id,
            reason: row.reason,
            before: row.before,
            after: row.after,
            result: row.result,
            correlation: row.correlation,
            hash,
        }
    }
}

/// Which rows of the audit.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
pub struct AuditQuery {
    /// `next` of the page before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
    /// At most so many rows, 1 to 1000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
    /// Only rows on this kind of thing; needs `resource_id`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource_kind: Option<String>,
    /// Only rows on this thing, by its id; needs `resource_kind`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource_id: Option<String>,
}

/// What verifying the whole chain found. It tells a changed, missing or added row; only a hash kept elsewhere tells a cut
/// end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct AuditVerification {
    /// Whether every hash follows from the row and the one before it.
    pub ok: bool,
    /// How many rows were checked.
    pub rows: u64,
    /// Hash of the last row that was checked; 64 zeros when there is none.
    pub head: String,
    /// The first thing that is wrong.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}
