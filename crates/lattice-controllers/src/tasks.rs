//! Tasks of agents that nobody began or reported about in time are given up. design: 4 "Identity and transport"

use lattice_core::change::{Change, Outcome};
use lattice_core::command::{Request, task};
use lattice_core::ids::IdSource;
use lattice_core::time::Timestamp;
use lattice_store::{Store, StoreError};

/// Gives up what is overdue at `now`; answers how many.
///
/// A report that is committed at the same time wins or loses as a whole: both change the same row.
///
/// # Errors
/// The store fails: the next tick finds the same.
pub async fn expire_tasks(store: &Store, ids: &dyn IdSource, now: Timestamp) -> Result<usize, StoreError> {
    let overdue = store.overdue_tasks(now).await?;
    let commits = overdue.iter().filter_map(|one| {
        let request = Request {
            reason: "its time was over".to_owned(),
            ..Request::of_system("deadlines", ids, now, one.correlation)
        };
        let change = task::expired(&request, one)?;
        Some(request.commit(Vec::new(), vec![Change::Task(Box::new(change))]))
    });
    let outcomes = store.commit(commits.collect()).await?;
    Ok(outcomes.iter().filter(|outcome| matches!(outcome, Outcome::Applied { .. })).count())
}
