//! Reboots and drains nodes by the standing orders of their site, as long as the server runs.

use std::sync::Arc;
use std::time::Duration;

use lattice_controllers::Remediator;
use tracing::warn;

use crate::http::Parts;

/// Pause between two looks at nodes that may be rebooted or drained.
const REMEDY_SCAN: Duration = Duration::from_secs(5);

/// Reboots and drains what is due, until stopped, in the server of that name.
pub fn remedy(parts: &Parts, server: String) -> impl Future<Output = ()> + Send + 'static {
    let mut remediator = Remediator::new(parts.store.clone(), parts.ids.clone(), server);
    let (clock, wake, stop) = (Arc::clone(&parts.clock), Arc::clone(&parts.wake), parts.stop.clone());
    async move {
        let mut timer = tokio::time::interval(REMEDY_SCAN);
        timer.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => return remediator.end().await,
                _ = timer.tick() => {}
            }
            match remediator.tick(clock.now()).await {
                Ok(done) => done.begun.into_iter().for_each(|job| wake(job)),
                Err(error) => warn!(%error, "remediation waits for the store"),
            }
        }
    }
}
