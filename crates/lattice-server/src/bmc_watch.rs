//! Runs the watch over BMCs as long as the server does.

use std::sync::Arc;
use std::time::Duration;

use lattice_controllers::{BmcWatch, Fleet};
use lattice_core::node::availability::AvailabilityEvent;
use tracing::warn;

use crate::http::Parts;

/// Ticks until stopped, in the server of that name; checks that it creates are woken.
pub fn run(
    parts: &Parts,
    fleet: Arc<Fleet>,
    server: String,
    pause: Duration,
) -> impl Future<Output = ()> + Send + 'static {
    let mut watch = BmcWatch::new(parts.store.clone(), fleet, parts.bmcs.clone(), parts.ids.clone(), server);
    let (clock, metrics) = (Arc::clone(&parts.clock), Arc::clone(&parts.metrics));
    let (wake, stop) = (Arc::clone(&parts.wake), parts.stop.clone());
    async move {
        let mut timer = tokio::time::interval(pause);
        timer.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => return watch.end().await,
                _ = timer.tick() => {}
            }
            match watch.tick(clock.now()).await {
                Ok(watched) => {
                    watched.down.iter().for_each(|_| metrics.transition(AvailabilityEvent::CriticalHardware.into()));
                    watched.investigations.into_iter().for_each(|job| wake(job));
                }
                Err(error) => warn!(%error, "watch over BMCs waits for the store"),
            }
        }
    }
}
