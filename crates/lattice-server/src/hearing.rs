//! Hears the agents, and judges who is silent: one server of a database at a time, under a lease. design: 1-architecture
//! "Several servers"

use std::sync::Arc;
use std::time::Duration;

use lattice_controllers::{Detector, Judged};
use lattice_core::heartbeat::Registry;
use lattice_core::ids::LeaseEpoch;
use lattice_core::time::{Clock, Timestamp};
use lattice_store::{Held, Store, StoreError};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::metrics::Metrics;

/// How often it is said that this server listens while it waits for the store.
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
    /// The same, knowing whether another server hears: a server that starts again turns no agent away. Where the store does
    /// not say, nobody is heard until it does.
    pub async fn begin(mut self) -> Self {
        self.registry.stand_by(true);
        if let Err(error) = self.hears().await {
            warn!(%error, "who hears the agents waits for the store");
        }
        self
    }

    /// Ticks until stopped; then another server may hear at once.
    pub async fn run(mut self, mut timer: tokio::time::Interval, stop: CancellationToken) {
        let mut counted = self.registry.beats();
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => return self.end().await,
                _ = timer.tick() => {}
            }
            self.while_waiting().tick();
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

    /// Agents are sent away before another server may hear them.
    async fn end(mut self) {
        self.registry.stand_by(true);
        self.metrics.hears_agents(false);
        self.lease.release(&self.store).await;
    }

    fn while_waiting(&self) -> Waiting {
        let (registry, clock) = (Arc::clone(&self.registry), Arc::clone(&self.clock));
        Waiting { registry, clock, until: self.lease.until() }
    }

    /// Under which lease this server hears the agents; none: another one does. Silence counts from when it begins to hear.
    async fn hears(&mut self) -> Result<Option<LeaseEpoch>, StoreError> {
        let waiting = self.while_waiting();
        let lease = waiting.during(self.lease.epoch(&self.store, self.clock.now())).await;
        let now = self.clock.now();
        let hears = match &lease {
            Ok(lease) => lease.is_some(),
            // Until its end nobody else has it.
            Err(_) => !self.registry.stands_by() && self.lease.until().is_some_and(|until| now < until),
        };
        if hears && self.registry.stands_by() {
            info!("this server hears the agents");
            self.registry.restart_silence(now);
        } else if !hears && !self.registry.stands_by() {
            warn!("another server hears the agents: this one stands by");
        }
        self.registry.heard_at(self.lease.elsewhere().map(str::to_owned));
        self.registry.stand_by(!hears);
        self.metrics.hears_agents(hears);
        lease
    }

    async fn judge(&self, lease: LeaseEpoch) {
        let judging = self.detector.tick(self.clock.now(), Some(lease));
        match self.while_waiting().during(judging).await {
            Ok(Judged { applied, .. }) => {
                applied
                    .iter()
                    .for_each(|(event, count)| (0..*count).for_each(|_| self.metrics.transition((*event).into())));
            }
            Err(error) => warn!(%error, "detector waits for the store"),
        }
    }
}

/// What goes on while the store is waited for.
struct Waiting {
    registry: Arc<Registry>,
    clock: Arc<dyn Clock>,
    /// When the lease ends, unless it is renewed.
    until: Option<Timestamp>,
}

impl Waiting {
    /// What comes of `work`; heartbeats are heard meanwhile.
    async fn during<T>(&self, work: impl Future<Output = T>) -> T {
        let mut work = std::pin::pin!(work);
        loop {
            tokio::select! {
                biased;
                done = &mut work => return done,
                () = tokio::time::sleep(LISTENS_EACH) => self.tick(),
            }
        }
    }

    /// Says that this server listens: a time in which it did not makes nobody silent. Without its lease it hears nobody.
    fn tick(&self) {
        let now = self.clock.now();
        if let Some(missed_ms) = self.registry.listens(now) {
            warn!(missed_ms, "this server stood still, or its clock was set: that time counts for no node's silence");
        }
        if !self.registry.stands_by() && self.until.is_none_or(|until| now >= until) {
            warn!("the lease of this server ended: it hears no agents until it has it again");
            self.registry.stand_by(true);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicI64, AtomicU8, Ordering};

    use lattice_controllers::{Fleet, HEARS};
    use lattice_core::ids::{IdSource, uuid_v7};
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
            lease: Held::new(HEARS, name.to_owned()).reached_at(format!("https://{name}:8443")),
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
            assert_eq!(second.registry.elsewhere().as_deref(), Some("https://a:8443"), "it knows where they are heard");
        }
        pass(31);
        assert_eq!(hear(&mut second).await, (true, false), "the first one stood still for longer than its lease");
        assert_eq!(second.registry.listens_for(clock.now()), Duration::ZERO, "silence counts from now");
        assert_eq!(hear(&mut first).await, (false, true));
        assert_eq!(
            (first.registry.elsewhere().as_deref(), second.registry.elsewhere()),
            (Some("https://b:8443"), None)
        );
        second.while_waiting().tick();
        assert!(!second.registry.stands_by());
        pass(31);
        second.while_waiting().tick();
        assert!(second.registry.stands_by(), "the store does not answer, and the lease is over");
        assert_eq!(hear(&mut second).await, (true, false), "nobody else took it");
        let stop = CancellationToken::new();
        stop.cancel();
        let left = Arc::clone(&second.registry);
        second.run(tokio::time::interval(LISTENS_EACH), stop).await;
        assert!(left.stands_by(), "agents are sent away before another server hears them");
        pass(6);
        assert_eq!(hear(&mut first).await, (true, false), "a server that stops makes room at once");
    }
}
