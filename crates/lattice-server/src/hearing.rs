//! Hears the agents, and judges who is silent: one server of a database at a time, under a lease. design: 1-architecture
//! "Several servers"

use std::sync::Arc;
use std::time::Duration;

use lattice_controllers::{Detector, Judged};
use lattice_core::heartbeat::Registry;
use lattice_core::ids::LeaseEpoch;
use lattice_core::time::Clock;
use lattice_store::{Held, Store, StoreError};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::metrics::Metrics;

/// How often it is said that this server listens while the detector waits for the store.
const LISTENS_EACH: Duration = Duration::from_millis(500);

/// What hears, and what judges.
pub struct Hearing {
    /// Of the server that hears.
    pub lease: Held,
    /// Where the lease is.
    pub store: Store,
    /// Who was heard when.
    pub registry: Arc<Registry>,
    /// Judges.
    pub detector: Detector,
    /// The present time.
    pub clock: Arc<dyn Clock>,
    /// What is counted.
    pub metrics: Arc<Metrics>,
}

impl Hearing {
    /// Ticks until stopped; then another server may hear at once.
    pub async fn run(mut self, mut timer: tokio::time::Interval, stop: CancellationToken) {
        let mut counted = self.registry.beats();
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => return self.lease.release(&self.store).await,
                _ = timer.tick() => {}
            }
            self.listens();
            match self.hears().await {
                Ok(Some(lease)) => self.judge(lease).await,
                Ok(None) => {}
                Err(error) => warn!(%error, "who hears the agents waits for the store"),
            }
            let beats = self.registry.beats();
            self.metrics.heartbeats(beats - counted);
            counted = beats;
        }
    }

    /// Says that this server listens; a time in which it did not makes nobody silent.
    fn listens(&self) {
        if let Some(missed_ms) = self.registry.listens(self.clock.now()) {
            warn!(missed_ms, "this server stood still, or its clock was set: that time counts for no node's silence");
        }
    }

    /// Under which lease this server hears the agents; none: another one does. Silence counts from when it begins to hear.
    async fn hears(&mut self) -> Result<Option<LeaseEpoch>, StoreError> {
        let lease = self.lease.epoch(&self.store, self.clock.now()).await;
        let now = self.clock.now();
        let hears = match &lease {
            Ok(lease) => lease.is_some(),
            // Until its end nobody else has it.
            Err(_) => !self.registry.stands_by() && self.lease.is_held(now),
        };
        if hears && self.registry.stands_by() {
            info!("this server hears the agents");
            self.registry.restart_silence(now);
        } else if !hears && !self.registry.stands_by() {
            warn!("another server hears the agents: this one stands by");
        }
        self.registry.stand_by(!hears);
        lease
    }

    async fn judge(&self, lease: LeaseEpoch) {
        // The store may take its time; meanwhile heartbeats are heard.
        let judging = self.detector.tick(self.clock.now(), Some(lease));
        let mut judging = std::pin::pin!(judging);
        let judged = loop {
            tokio::select! {
                biased;
                judged = &mut judging => break judged,
                () = tokio::time::sleep(LISTENS_EACH) => self.listens(),
            }
        };
        match judged {
            Ok(Judged { applied, .. }) => {
                applied
                    .iter()
                    .for_each(|(event, count)| (0..*count).for_each(|_| self.metrics.transition((*event).into())));
            }
            Err(error) => warn!(%error, "detector waits for the store"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicI64, AtomicU8, Ordering};

    use lattice_controllers::{Fleet, HEARS};
    use lattice_core::ids::{IdSource, uuid_v7};
    use lattice_core::time::Timestamp;
    use lattice_store::StoreConfig;

    use super::*;

    struct At(AtomicI64);

    impl Clock for At {
        fn now(&self) -> Timestamp {
            Timestamp::from_millis(self.0.load(Ordering::Relaxed))
        }
    }

    #[derive(Default)]
    struct Ids(AtomicU8);

    impl IdSource for Ids {
        fn uuid(&self, at: Timestamp) -> uuid::Uuid {
            uuid_v7(at, [self.0.fetch_add(1, Ordering::Relaxed); 10])
        }
    }

    fn server(name: &str, store: &Store, clock: &Arc<At>) -> Hearing {
        let registry = Arc::new(Registry::new());
        registry.stand_by(true);
        let fleet = Arc::new(Fleet::new(store.clone(), Arc::clone(&registry)));
        Hearing {
            lease: Held::new(HEARS, name.to_owned()),
            store: store.clone(),
            registry,
            detector: Detector::new(store.clone(), fleet, Arc::new(Ids::default())),
            clock: clock.clone(),
            metrics: Arc::new(Metrics::default()),
        }
    }

    #[tokio::test]
    async fn one_server_hears_at_a_time_and_the_next_one_once_the_first_stood_still_or_stopped() {
        let store = Store::open(StoreConfig::memory()).await.unwrap();
        let clock = Arc::new(At(AtomicI64::new(1_763_712_000_000)));
        let (mut first, mut second) = (server("a", &store, &clock), server("b", &store, &clock));
        let pass = |seconds: i64| clock.0.fetch_add(seconds * 1_000, Ordering::Relaxed);
        let hear = async |one: &mut Hearing| (one.hears().await.unwrap().is_some(), one.registry.stands_by());
        assert_eq!(hear(&mut first).await, (true, false));
        for _ in 0..20 {
            pass(10);
            assert_eq!(hear(&mut first).await, (true, false), "it keeps the lease");
            assert_eq!(hear(&mut second).await, (false, true));
        }
        pass(31);
        assert_eq!(hear(&mut second).await, (true, false), "the first one stood still for longer than its lease");
        assert_eq!(second.registry.listens_for(clock.now()), Duration::ZERO, "silence counts from now");
        assert_eq!(hear(&mut first).await, (false, true));
        let stop = CancellationToken::new();
        stop.cancel();
        second.run(tokio::time::interval(LISTENS_EACH), stop).await;
        pass(6);
        assert_eq!(hear(&mut first).await, (true, false), "a server that stops makes room at once");
    }
}
