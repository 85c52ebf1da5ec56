//! Runs those who judge nodes by the standing orders of their site: fingerprints, and reboots by itself.

use std::sync::Arc;
use std::time::Duration;

use lattice_controllers::{Conformance, Remediator};
use lattice_core::ids::{EventSeq, JobId};
use lattice_store::{EventFilter, StoreError};
use tracing::warn;

use crate::http::Parts;

/// Pause between two looks at nodes that may be rebooted.
const REMEDY_SCAN: Duration = Duration::from_secs(5);
/// Pause before a store that failed is asked again.
const AGAIN: Duration = Duration::from_secs(1);
/// Events taken from the feed at once.
const FEED_PAGE: usize = 1_000;

/// Reboots what is due, until stopped.
pub fn remedy(parts: &Parts) -> impl Future<Output = ()> + Send + 'static {
    let remediator = Remediator::new(parts.store.clone(), parts.ids.clone());
    let (clock, wake, stop) = (Arc::clone(&parts.clock), Arc::clone(&parts.wake), parts.stop.clone());
    async move {
        let mut timer = tokio::time::interval(REMEDY_SCAN);
        timer.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                _ = timer.tick() => {}
            }
            match remediator.tick(clock.now()).await {
                Ok(done) => done.begun.into_iter().for_each(|job| wake(job)),
                Err(error) => warn!(%error, "remediation waits for the store"),
            }
        }
    }
}

/// Judges everybody once, then whoever changes, until stopped.
pub fn conformance(parts: &Parts) -> impl Future<Output = ()> + Send + 'static {
    let (store, stop) = (parts.store.clone(), parts.stop.clone());
    let (clock, wake) = (Arc::clone(&parts.clock), Arc::clone(&parts.wake));
    let mut judge = Conformance::new(store.clone(), parts.ids.clone());
    async move {
        let mut follower = store.follow();
        let mut seen: Option<EventSeq> = None;
        loop {
            let judged: Result<(EventSeq, Vec<JobId>), StoreError> = async {
                match seen {
                    // What happens while all are judged is taken in after it.
                    None => {
                        let last = store.last_event().await?;
                        Ok((last, judge.load(clock.now()).await?))
                    }
                    Some(seen) => {
                        let events = store.events(seen, &EventFilter::default(), FEED_PAGE).await?;
                        let begun = judge.take_in(&events, clock.now()).await?;
                        Ok((events.last().map_or(seen, |event| event.seq), begun))
                    }
                }
            }
            .await;
            let last = match judged {
                Ok((last, begun)) => {
                    begun.into_iter().for_each(|job| wake(job));
                    seen = Some(last);
                    last
                }
                Err(error) => {
                    warn!(%error, "conformance waits for the store");
                    tokio::select! {
                    biased;
                            () = stop.cancelled() => return,
                            () = tokio::time::sleep(AGAIN) => continue,
                        }
                }
            };
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                woken = follower.after(last) => {
                    if woken.is_err() {
                        return;
                    }
                }
            }
        }
    }
}
