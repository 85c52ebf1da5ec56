//! Pages of lists: bounded, continued by a cursor.

use std::fmt;

use crate::error::StoreError;

/// Most rows of one page: what one answer may cost. Also the page of the figure "list 1,000 of 100,000 nodes".
pub const PAGE_MAX: usize = 1_000;

/// Where a list goes on. Opaque to those who pass it back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cursor(String);

impl Cursor {
    /// A cursor as it was given back; the list that it belongs to refuses a wrong one.
    pub fn from_text(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    pub(crate) fn new(parts: &[&dyn fmt::Display]) -> Self {
        Self(parts.iter().map(ToString::to_string).collect::<Vec<_>>().join("~"))
    }

    /// The last of its parts; the one before may hold any text.
    pub(crate) fn last<T: std::str::FromStr>(&self) -> Result<T, StoreError> {
        let last = self.0.rsplit('~').next().unwrap_or_default();
        last.parse().map_err(|_| self.bad())
    }

    /// Everything before its last part.
    pub(crate) fn first(&self) -> Result<&str, StoreError> {
        self.0.rsplit_once('~').map(|(first, _)| first).ok_or_else(|| self.bad())
    }

    pub(crate) fn bad(&self) -> StoreError {
        StoreError::BadCursor { cursor: self.0.chars().take(64).collect() }
    }
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Which page of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PageRequest {
    /// Where to go on; none: from the start.
    pub cursor: Option<Cursor>,
    /// At most so many rows; values outside 1 to [`PAGE_MAX`] are moved into it.
    pub limit: usize,
}

impl PageRequest {
    /// The first page of `limit` rows.
    pub const fn first(limit: usize) -> Self {
        Self { cursor: None, limit }
    }

    pub(crate) fn bounded(&self) -> usize {
        self.limit.clamp(1, PAGE_MAX)
    }

    /// One row more than asked for, so that the page knows whether there is another one.
    pub(crate) fn probe(&self) -> usize {
        self.bounded() + 1
    }

    /// Makes the page from the rows of the probe.
    pub(crate) fn page<T>(&self, mut rows: Vec<T>, cursor: impl FnOnce(&T) -> Cursor) -> Page<T> {
        let more = rows.len() > self.bounded();
        rows.truncate(self.bounded());
        let next = if more { rows.last().map(cursor) } else { None };
        Page { items: rows, next }
    }
}

/// One page of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page<T> {
    /// Its rows.
    pub items: Vec<T>,
    /// Where the next page begins; none: this is the last one.
    pub next: Option<Cursor>,
}
