//! Lists: bounded pages, continued by a cursor.

use serde::{Deserialize, Serialize};

/// Rows of a page when the caller names no number.
pub const DEFAULT_LIMIT: u32 = 100;

/// Most rows of a page: what one answer may cost. design: 8-interfaces "Lists"
pub const MAX_LIMIT: u32 = 1_000;

/// One page of a list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Page<T> {
    /// Its rows.
    pub items: Vec<T>,
    /// Where the next page begins, to be passed back as `cursor`; absent: this is the last page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// Which page of a list.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
pub struct PageQuery {
    /// `next` of the page before; absent: the first page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
    /// At most so many rows, 1 to 1000; 100 when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[param(minimum = 1, maximum = 1000, default = 100)]
    pub limit: Option<u32>,
}
