//! Silences whose expiry has come are ended, so that everybody is told. They hide nothing from their expiry on, ended or
//! not.

use lattice_core::change::Outcome;
use lattice_core::command::silence::expire;
use lattice_core::ids::IdSource;
use lattice_core::time::Timestamp;
use lattice_store::{Store, StoreError};

/// Ends the silences that are over at `now`; answers how many.
///
/// # Errors
/// The store fails: the next tick finds the same.
pub async fn expire_silences(store: &Store, ids: &dyn IdSource, now: Timestamp) -> Result<usize, StoreError> {
    let all = store.silences().await?;
    let commits: Vec<_> = all.into_iter().filter_map(|silence| expire(silence, ids, now)).collect();
    if commits.is_empty() {
        return Ok(0);
    }
    let outcomes = store.commit(commits).await?;
    Ok(outcomes.iter().filter(|outcome| matches!(outcome, Outcome::Applied { .. })).count())
}
