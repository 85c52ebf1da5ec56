//! Nodes on which sensitive work ended are wiped: the job is created here, once. spec: S1 "Sensitive Release Sequence"

use lattice_core::change::Outcome;
use lattice_core::command::{Request, wipe};
use lattice_core::ids::{CorrelationId, IdSource, JobId};
use lattice_core::time::Timestamp;
use lattice_store::{PAGE_MAX, Store, StoreError};
use tracing::info;

/// Creates the wipes that are due at `now`; gives their jobs, to be woken.
///
/// The guard of the commit lets one job at a time own a node: whoever comes second finds it at the next tick.
///
/// # Errors
/// The store fails: nothing is half done, the next tick finds the same.
pub async fn begin_wipes(store: &Store, ids: &dyn IdSource, now: Timestamp) -> Result<Vec<JobId>, StoreError> {
    let mut begun = Vec::new();
    let mut last = None;
    loop {
        let page = store.nodes_to_wipe(last).await?;
        last = page.last().copied();
        for node in store.nodes_by_id(&page).await? {
            let Some(site) = store.site(node.site).await? else { continue };
            let has_bmc = store.bmc(node.id).await?.is_some();
            let request = Request::of_system("wipes", ids, now, CorrelationId::generate(ids, now));
            let Some(planned) = wipe::due(&request, &node, &site, has_bmc) else { continue };
            if let (Outcome::Applied { .. }, Some(job)) = (store.commit_one(planned.commit).await?, planned.job) {
                info!(node_id = %node.id, job_id = %job, "wipe created");
                begun.push(job);
            }
        }
        if page.len() < PAGE_MAX {
            return Ok(begun);
        }
    }
}
