//! Keeps State Managers and this store in step as long as the server runs.

use std::sync::Arc;
use std::time::Duration;

use lattice_workflow::components::Components;
use tracing::warn;

use crate::http::Parts;

/// How often it is looked for sites that are due.
const TICK: Duration = Duration::from_secs(1);

/// Ticks until stopped, and at once when State Manager told of something.
pub fn run(parts: &Parts, mut components: Components) -> impl Future<Output = ()> + Send + 'static {
    let (clock, metrics) = (Arc::clone(&parts.clock), Arc::clone(&parts.metrics));
    let (notices, stop) = (Arc::clone(&parts.notices), parts.stop.clone());
    async move {
        let mut timer = tokio::time::interval(TICK);
        timer.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => return components.end().await,
                _ = timer.tick() => {}
                () = notices.any() => {}
            }
            match components.tick(clock.now()).await {
                Ok(tended) => metrics.components(&tended),
                Err(error) => warn!(%error, "components wait for the store"),
            }
        }
    }
}
