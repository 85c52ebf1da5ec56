//! The two databases. Each knows its dialect, its transactions and its threads; neither knows what a commit means.

pub(crate) mod postgres;
pub(crate) mod sqlite;
