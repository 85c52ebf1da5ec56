//! What all parts of a life share: its log, its time, its chances, what was found wrong.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use lattice_core::time::{Clock, Timestamp};
use lattice_providers::secret::{SecretError, SecretObject, SecretPath, SecretStore};

use super::faults::Faults;
use super::log::Log;
use super::luck::Luck;
use super::model::Model;

/// When every life begins.
pub const START: Timestamp = Timestamp::from_millis(1_763_712_000_000);

/// What all parts of a life share.
pub struct Ground {
    /// What happened.
    pub log: Log,
    /// The time of the servers.
    pub clock: Arc<LifeClock>,
    /// New ids and secrets.
    pub ids: Arc<Luck>,
    /// What befalls messages.
    pub network: Luck,
    /// What befalls calls of providers.
    pub provider: Luck,
    /// What befalls commits.
    pub store: Luck,
    /// What hosts do.
    pub hosts: Arc<Luck>,
    /// What befalls BMCs.
    pub bmcs: Luck,
    /// What befell.
    pub faults: Faults,
    /// What is known from the commits.
    pub model: Mutex<Model>,
    /// How bad it is at the moment.
    weather: Mutex<Weather>,
    wrong: Mutex<Vec<String>>,
    /// When something was committed last.
    committed_at: Mutex<tokio::time::Instant>,
    /// When servers heard each host, the last times first, and what their clock said then.
    heard: Mutex<BTreeMap<String, VecDeque<(tokio::time::Instant, Timestamp)>>>,
    /// When the servers' clock was set last, and by how many milliseconds.
    clock_set: Mutex<Option<(tokio::time::Instant, i64)>>,
}

/// Times at which a host was heard that are remembered: a verdict may be on its way while it is heard again.
const HEARD: usize = 4;

/// How bad it is at the moment; each in a thousand.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Weather {
    /// Requests and answers that are lost.
    pub lost: u64,
    /// Messages that come seconds late: later ones overtake them.
    pub late: u64,
    /// Requests that arrive twice.
    pub doubled: u64,
    /// Calls of providers that fail, with or without an effect.
    pub provider: u64,
    /// Commits whose outcome the caller does not learn.
    pub store: u64,
    /// Answers of BMCs that do not say whether a machine is on.
    pub unknown: u64,
    /// Changes of an agent's own files, cleanings and steps of wipes that go wrong.
    pub hosts: u64,
}

impl Ground {
    /// Of a seed.
    pub fn new(seed: u64, shows: bool) -> Self {
        let luck = |purpose| Luck::new(seed, purpose);
        Self {
            log: Log::new(shows),
            clock: Arc::new(LifeClock::new()),
            ids: Arc::new(luck("ids")),
            network: luck("network"),
            provider: luck("provider"),
            store: luck("store"),
            hosts: Arc::new(luck("hosts")),
            bmcs: luck("bmcs"),
            faults: Faults::default(),
            model: Mutex::default(),
            weather: Mutex::default(),
            wrong: Mutex::default(),
            committed_at: Mutex::new(tokio::time::Instant::now()),
            heard: Mutex::default(),
            clock_set: Mutex::default(),
        }
    }

    /// How bad it is.
    pub fn weather(&self) -> Weather {
        *self.weather.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on it is like this.
    pub fn set_weather(&self, weather: Weather) {
        *self.weather.lock().unwrap_or_else(PoisonError::into_inner) = weather;
    }

    /// Something is committed now.
    pub fn committed(&self) {
        *self.committed_at.lock().unwrap_or_else(PoisonError::into_inner) = tokio::time::Instant::now();
    }

    /// For how long nothing was committed.
    pub fn quiet_for(&self) -> Duration {
        self.committed_at.lock().unwrap_or_else(PoisonError::into_inner).elapsed()
    }

    /// The clock of the servers is set: it is wrong by so much from now on.
    pub fn set_clock(&self, wrong_by_ms: i64) {
        let by = wrong_by_ms - self.clock.wrong_by();
        self.clock.jump(wrong_by_ms);
        *self.clock_set.lock().unwrap_or_else(PoisonError::into_inner) = Some((tokio::time::Instant::now(), by));
    }

    /// What the clock of the servers would say, had it not been set within that time.
    pub fn unset_now(&self, within: Duration) -> Timestamp {
        let set = *self.clock_set.lock().unwrap_or_else(PoisonError::into_inner);
        let by = set.filter(|(at, _)| at.elapsed() <= within).map_or(0, |(_, by)| by);
        Timestamp::from_millis(self.clock.now().as_millis() - by)
    }

    /// A server heard that host, then.
    pub fn heard(&self, host: &str, at: (tokio::time::Instant, Timestamp)) {
        let mut heard = self.heard.lock().unwrap_or_else(PoisonError::into_inner);
        let times = heard.entry(host.to_owned()).or_default();
        times.push_front(at);
        times.truncate(HEARD);
    }

    /// For how long nobody heard that host, by a clock that never jumps, as it was when the servers' clock said `at`;
    /// none: it was not heard before.
    pub fn silent_for(&self, host: &str, at: Timestamp) -> Option<Duration> {
        let heard = self.heard.lock().unwrap_or_else(PoisonError::into_inner);
        let (last, _) = heard.get(host)?.iter().find(|(_, clock)| *clock <= at)?;
        Some(last.elapsed())
    }

    /// What is known from the commits.
    pub fn model(&self) -> MutexGuard<'_, Model> {
        self.model.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Something is that must not be.
    pub fn wrong(&self, what: impl Into<String>) {
        let what = what.into();
        self.log.say(format!("WRONG {what}"));
        self.wrong.lock().unwrap_or_else(PoisonError::into_inner).push(what);
    }

    /// All that was found wrong.
    pub fn all_wrong(&self) -> Vec<String> {
        self.wrong.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// The time of a life: that of its runtime, which stands still while anything can be done. One for the servers, one for each
/// host, whose clock may be wrong.
pub struct LifeClock {
    begun: tokio::time::Instant,
    wrong_by_ms: AtomicI64,
}

impl LifeClock {
    /// A right one.
    pub fn new() -> Self {
        Self { begun: tokio::time::Instant::now(), wrong_by_ms: AtomicI64::new(0) }
    }

    /// The same time, on a clock of its own.
    pub const fn another(&self) -> Self {
        Self { begun: self.begun, wrong_by_ms: AtomicI64::new(0) }
    }

    /// How wrong it is.
    pub fn wrong_by(&self) -> i64 {
        self.wrong_by_ms.load(Ordering::Relaxed)
    }

    /// It jumps: it is wrong by so much from now on.
    pub fn jump(&self, wrong_by_ms: i64) {
        self.wrong_by_ms.store(wrong_by_ms, Ordering::Relaxed);
    }
}

impl Clock for LifeClock {
    fn now(&self) -> Timestamp {
        let right = START + self.begun.elapsed();
        Timestamp::from_millis(right.as_millis() + self.wrong_by_ms.load(Ordering::Relaxed))
    }
}

/// Secrets that outlive servers.
#[derive(Default)]
pub struct Secrets(Mutex<BTreeMap<String, SecretObject>>);

#[async_trait]
impl SecretStore for Secrets {
    async fn read(&self, path: &SecretPath) -> Result<SecretObject, SecretError> {
        let found = self.0.lock().unwrap_or_else(PoisonError::into_inner).get(path.as_str()).cloned();
        found.ok_or_else(|| SecretError::NotFound { path: path.clone() })
    }

    async fn write(&self, path: &SecretPath, object: SecretObject) -> Result<(), SecretError> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(path.as_str().to_owned(), object);
        Ok(())
    }

    async fn delete(&self, path: &SecretPath) -> Result<(), SecretError> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(path.as_str());
        Ok(())
    }
}
