//! The only clock of the command line: used for ages when the server does not say what time it is.

use std::time::{SystemTime, UNIX_EPOCH};

/// Milliseconds since 1970 UTC.
pub fn now_millis() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

/// A random key for one request, so that a repeat of it is done at most once.
pub fn fresh_key() -> String {
    use std::hash::{BuildHasher, RandomState};
    let half = || RandomState::new().hash_one(now_millis());
    format!("{:016x}{:016x}", half(), half())
}
