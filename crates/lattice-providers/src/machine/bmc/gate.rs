//! One call at a time per BMC, in order, visible; and no call with a credential that was refused too often.

use std::collections::{HashMap, VecDeque};
use std::future::Future;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use lattice_core::bmc::{Bmc, Breaker, BreakerState, CredentialMark, HealthReport, PowerReading};
use lattice_core::ids::{Generation, NodeId};
use lattice_core::secret::token_hash;
use lattice_core::time::{Clock, Timestamp};

use super::{BmcAbout, BmcControl, BmcLogin, BmcObserver, BootDevice, DriveSeen, Erasure, NextBoot, PowerOrder};
use crate::error::{ErrorKind, ProviderError};

/// Calls that may wait for one BMC: one job, one poll and some people. More means that it hangs.
const LONGEST_QUEUE: usize = 16;
/// When a BMC's queue is full.
const LATER: Duration = Duration::from_secs(15);

/// Who calls a BMC, and what for: shown to whoever waits behind it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    /// `job 0190…`, `health poll`, `operator ada`.
    pub who: String,
    /// `power_off`, `out-of-band check`.
    pub why: String,
}

/// A call that runs or waits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Waiting {
    /// Whose.
    pub caller: Caller,
    /// Since when it runs or waits.
    pub since: Timestamp,
    ticket: u64,
}

/// Who uses a BMC and who waits for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueueView {
    /// The call that runs.
    pub running: Option<Waiting>,
    /// Those behind it, first come first.
    pub waiting: Vec<Waiting>,
    /// Whether the credential is tried.
    pub breaker: BreakerState,
    /// Its refusals in a row.
    pub refusals: u32,
}

/// The gates of all BMCs of this process.
#[derive(Default)]
pub struct BmcGates {
    gates: Mutex<HashMap<(IpAddr, u16), Arc<Gate>>>,
}

impl BmcGates {
    /// The gate of the BMC at this address; everybody gets the same one.
    pub fn of(&self, address: IpAddr, port: u16) -> Arc<Gate> {
        let mut gates = self.gates.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(gates.entry((address, port)).or_default())
    }
}

/// The gate of one BMC.
#[derive(Default)]
pub struct Gate {
    turn: tokio::sync::Mutex<()>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    breaker: Breaker,
    running: Option<Waiting>,
    waiting: VecDeque<Waiting>,
    next_ticket: u64,
    /// What was seen of each row: several nodes may be behind one BMC.
    seen: HashMap<NodeId, Generation>,
    /// Nothing that opened until then counts any more: a login was taken later, or an operator vouched for it.
    forgiven: Timestamp,
}

impl State {
    /// Takes over a row that is news. A row that is open wins over what is closed here, unless a login was taken here
    /// since, or what opened it was forgiven: two nodes behind one BMC do not undo each other's reset.
    fn adopt(&mut self, bmc: &Bmc) {
        let before = self.seen.insert(bmc.node, bmc.generation);
        match &bmc.breaker {
            BreakerState::Open { since, .. } | BreakerState::HalfOpen { since } => {
                if *since > self.forgiven && self.open_since().is_none_or(|own| own < *since) {
                    self.breaker = Breaker::restored(bmc.breaker.clone(), bmc.refusals);
                }
            }
            BreakerState::Closed => {
                // The first look at a row tells of no change, unless it was set after the breaker opened.
                let is_vouched_for = self.open_since().is_some_and(|since| bmc.set_at > since);
                if before.is_some() || is_vouched_for {
                    self.close();
                }
            }
        }
    }

    fn close(&mut self) {
        self.forgiven = self.open_since().map_or(self.forgiven, |since| since.max(self.forgiven));
        self.breaker.reset();
    }

    const fn open_since(&self) -> Option<Timestamp> {
        match self.breaker.state() {
            BreakerState::Open { since, .. } | BreakerState::HalfOpen { since } => Some(*since),
            BreakerState::Closed => None,
        }
    }
}

impl Gate {
    /// Who uses it, who waits, and whether its credential is tried.
    pub fn view(&self) -> QueueView {
        let state = self.state();
        QueueView {
            running: state.running.clone(),
            waiting: state.waiting.iter().cloned().collect(),
            breaker: state.breaker.state().clone(),
            refusals: state.breaker.refusals(),
        }
    }

    /// Takes over what the row says of the breaker, when it is news: what an earlier process knew, or what an operator
    /// did at another server.
    pub fn adopt(&self, bmc: &Bmc) {
        let mut state = self.state();
        if state.seen.get(&bmc.node).is_none_or(|seen| *seen < bmc.generation) {
            state.adopt(bmc);
        }
    }

    /// An operator has the credential tried again.
    pub fn reset_breaker(&self) {
        self.state().close();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Every change of the state is whole before the lock is given back.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes a call when it is its turn and the credential may be tried, and learns from its end.
    async fn pass<T>(
        &self,
        by: &Passenger<'_>,
        call: impl Future<Output = Result<T, ProviderError>>,
    ) -> Result<T, ProviderError> {
        let place = self.enqueue(by)?;
        let turn = self.turn.lock().await;
        let running = place.run(by.clock.now());
        // Asked at its turn, not before: the calls ahead of it may have been refused.
        let admitted = self.state().breaker.admit(by.mark);
        admitted.map_err(|open| ProviderError::new(by.call, ErrorKind::LockedOut { message: open.to_string() }))?;
        let outcome = call.await;
        self.learn(by, &outcome);
        drop(running);
        drop(turn);
        outcome
    }

    fn learn<T>(&self, by: &Passenger<'_>, outcome: &Result<T, ProviderError>) {
        let mut state = self.state();
        let mut accepted = || {
            state.breaker.accepted();
            state.forgiven = by.clock.now().max(state.forgiven);
        };
        match outcome {
            Ok(_) => accepted(),
            Err(error) => match error.kind {
                ErrorKind::Unauthorised { .. } => {
                    let who = format!("{} ({})", by.caller.who, by.caller.why);
                    state.breaker.refused(by.mark, &who, by.clock.now());
                }
                // It looked at the credential and took it.
                ErrorKind::Forbidden { .. }
                | ErrorKind::NotFound { .. }
                | ErrorKind::Refused { .. }
                | ErrorKind::NotOffered { .. }
                | ErrorKind::PowerFailed { .. } => accepted(),
                // Nothing is known about the credential.
                ErrorKind::Unreachable { .. }
                | ErrorKind::Timeout { .. }
                | ErrorKind::Ambiguous { .. }
                | ErrorKind::RetryLater { .. }
                | ErrorKind::ServerFailed { .. }
                | ErrorKind::Malformed { .. }
                | ErrorKind::BadCertificate { .. }
                | ErrorKind::SeveralMatch { .. }
                | ErrorKind::NoCredential { .. }
                | ErrorKind::LockedOut { .. }
                | ErrorKind::Unusable { .. } => {}
            },
        }
    }

    fn enqueue(&self, by: &Passenger<'_>) -> Result<Place<'_>, ProviderError> {
        let mut state = self.state();
        if state.waiting.len() >= LONGEST_QUEUE {
            return Err(ProviderError::new(by.call, ErrorKind::RetryLater { after: LATER }));
        }
        let ticket = state.next_ticket;
        state.next_ticket += 1;
        state.waiting.push_back(Waiting { caller: by.caller.clone(), since: by.clock.now(), ticket });
        Ok(Place { gate: self, ticket })
    }
}

struct Passenger<'a> {
    call: &'static str,
    caller: &'a Caller,
    mark: &'a CredentialMark,
    clock: &'a dyn Clock,
}

/// A place in the queue, given up when its call ends or is cancelled.
struct Place<'a> {
    gate: &'a Gate,
    ticket: u64,
}

impl Place<'_> {
    fn run(self, now: Timestamp) -> Self {
        let mut state = self.gate.state();
        if let Some(at) = state.waiting.iter().position(|waiting| waiting.ticket == self.ticket) {
            state.running = state.waiting.remove(at).map(|waiting| Waiting { since: now, ..waiting });
        }
        drop(state);
        self
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let mut state = self.gate.state();
        state.waiting.retain(|waiting| waiting.ticket != self.ticket);
        if state.running.as_ref().is_some_and(|running| running.ticket == self.ticket) {
            state.running = None;
        }
    }
}

/// A BMC behind its gate, for one caller.
pub struct Gated {
    bmc: Arc<dyn BmcControl>,
    gate: Arc<Gate>,
    caller: Caller,
    mark: CredentialMark,
    clock: Arc<dyn Clock>,
}

impl Gated {
    /// `bmc` logs in with `login`; the breaker tells credentials apart by a digest of it that never leaves memory.
    pub fn new(
        bmc: Arc<dyn BmcControl>,
        gate: Arc<Gate>,
        login: &BmcLogin,
        caller: Caller,
        clock: Arc<dyn Clock>,
    ) -> Self {
        let mark = CredentialMark(token_hash(&format!("{}\n{}", login.user, login.password.expose())));
        Self { bmc, gate, caller, mark, clock }
    }

    async fn pass<T>(
        &self,
        call: &'static str,
        work: impl Future<Output = Result<T, ProviderError>>,
    ) -> Result<T, ProviderError> {
        let by = Passenger { call, caller: &self.caller, mark: &self.mark, clock: &*self.clock };
        self.gate.pass(&by, work).await
    }
}

#[async_trait]
impl BmcObserver for Gated {
    async fn power(&self) -> Result<PowerReading, ProviderError> {
        self.pass("bmc power", self.bmc.power()).await
    }
    async fn health(&self, since: Option<u32>) -> Result<HealthReport, ProviderError> {
        self.pass("bmc health", self.bmc.health(since)).await
    }
    async fn next_boot(&self) -> Result<NextBoot, ProviderError> {
        self.pass("bmc next_boot", self.bmc.next_boot()).await
    }
    async fn about(&self) -> Result<BmcAbout, ProviderError> {
        self.pass("bmc about", self.bmc.about()).await
    }
    async fn drives(&self) -> Result<Vec<DriveSeen>, ProviderError> {
        self.pass("bmc drives", self.bmc.drives()).await
    }
}

#[async_trait]
impl BmcControl for Gated {
    async fn order(&self, order: PowerOrder) -> Result<(), ProviderError> {
        self.pass("bmc order", self.bmc.order(order)).await
    }
    async fn offers_boot(&self, device: BootDevice) -> Result<(), ProviderError> {
        self.pass("bmc offers_boot", self.bmc.offers_boot(device)).await
    }
    async fn boot_once(&self, device: BootDevice) -> Result<(), ProviderError> {
        self.pass("bmc boot_once", self.bmc.boot_once(device)).await
    }
    async fn erase(&self, drive: &str, name: &str) -> Result<Erasure, ProviderError> {
        self.pass("bmc erase", self.bmc.erase(drive, name)).await
    }
    async fn erasure(&self, task: &str) -> Result<Erasure, ProviderError> {
        self.pass("bmc erasure", self.bmc.erasure(task)).await
    }
}
