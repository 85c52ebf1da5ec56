//! Has nodes wiped on which sensitive work ended, as long as the server runs.

use std::sync::Arc;
use std::time::Duration;

use lattice_controllers::begin_wipes;
use tracing::warn;

use crate::http::Parts;

/// How often nodes are looked for: it bounds how long one waits that nobody gets meanwhile.
const TICK: Duration = Duration::from_secs(2);

/// Ticks until stopped; jobs that it creates are woken.
pub fn run(parts: &Parts) -> impl Future<Output = ()> + Send + 'static {
    let (store, ids, clock) = (parts.store.clone(), Arc::clone(&parts.ids), Arc::clone(&parts.clock));
    let (wake, stop) = (Arc::clone(&parts.wake), parts.stop.clone());
    async move {
        let mut timer = tokio::time::interval(TICK);
        timer.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                _ = timer.tick() => {}
            }
            match begin_wipes(&store, &*ids, clock.now()).await {
                Ok(begun) => begun.into_iter().for_each(|job| wake(job)),
                Err(error) => warn!(%error, "wipes wait for the store"),
            }
        }
    }
}
