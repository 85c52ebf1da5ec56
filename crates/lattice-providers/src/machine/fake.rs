//! Machines in memory behind the traits of all providers: for benchmarks and crash tests of what acts on them.
//!
//! Deterministic: nothing happens but what is called. Every change is recorded with the key that caused it, so that
//! a test can show that no effect happened twice.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use lattice_core::node::PowerFact;
use lattice_core::time::Clock;

use crate::error::{ErrorKind, ProviderError};
use crate::observer::{MachineObservation, MachineObserver, MachineState};
use crate::provider::{CommandOutput, Creation, GuestAccess, GuestFile, MachineProvider, NewInstance, Stop};

/// A kind of call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FakeCall {
    /// Reading one or all machines.
    Observe,
    /// Creating one.
    Create,
    /// Starting one.
    Start,
    /// Stopping one.
    Stop,
    /// Deleting one.
    Delete,
    /// Writing a file into one.
    PushFile,
    /// Running a command in one.
    Exec,
}

impl FakeCall {
    /// As it stands in errors.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Observe => "observe",
            Self::Create => "create",
            Self::Start => "start",
            Self::Stop => "stop",
            Self::Delete => "delete",
            Self::PushFile => "push_file",
            Self::Exec => "exec",
        }
    }
}

/// A change that happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FakeEffect {
    /// What kind.
    pub call: FakeCall,
    /// To which machine.
    pub machine: String,
    /// The key that caused it; the path for a file, the program for a command.
    pub key: String,
}

/// A failure to come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FakeFailure {
    /// Which call fails.
    pub call: FakeCall,
    /// Whether it takes effect all the same: the answer is lost then.
    pub effect: FailedEffect,
    /// The error that the caller gets.
    pub error: ErrorKind,
}

/// What a failing call does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailedEffect {
    /// Nothing.
    None,
    /// All that it would have done.
    Done,
}

/// How long each call takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FakeLatency {
    /// Reads.
    pub observe: Duration,
    /// All others.
    pub change: Duration,
}

/// The provider.
pub struct FakeProvider {
    clock: Arc<dyn Clock>,
    latency: FakeLatency,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    machines: BTreeMap<String, FakeMachine>,
    effects: Vec<FakeEffect>,
    failures: VecDeque<FakeFailure>,
    calls: BTreeMap<FakeCall, u64>,
}

struct FakeMachine {
    state: MachineState,
    power: PowerFact,
    stamp: String,
}

impl FakeProvider {
    /// A provider without machines.
    pub fn new(clock: Arc<dyn Clock>, latency: FakeLatency) -> Self {
        Self { clock, latency, state: Mutex::default() }
    }

    /// Makes a later call fail: the first one of its kind that finds this failure in the queue.
    pub fn fail_next(&self, failure: FakeFailure) {
        self.locked().failures.push_back(failure);
    }

    /// Changes that happened, in order.
    pub fn effects(&self) -> Vec<FakeEffect> {
        self.locked().effects.clone()
    }

    /// Calls of a kind so far, failed ones included.
    pub fn calls(&self, call: FakeCall) -> u64 {
        self.locked().calls.get(&call).copied().unwrap_or_default()
    }

    /// What the machine's power is from now on, whoever did it; nothing for a machine that is not there.
    pub fn set_power(&self, machine: &str, power: PowerFact) {
        if let Some(machine) = self.locked().machines.get_mut(machine) {
            machine.power = power;
        }
    }

    /// Takes a machine away behind everybody's back.
    pub fn vanish(&self, machine: &str) {
        self.locked().machines.remove(machine);
    }

    fn locked(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts the call, waits its time, then does `work` unless a failure prevents it.
    async fn act<T>(
        &self,
        call: FakeCall,
        work: impl FnOnce(&mut State) -> Result<T, ErrorKind>,
    ) -> Result<T, ProviderError> {
        let latency = if call == FakeCall::Observe { self.latency.observe } else { self.latency.change };
        if !latency.is_zero() {
            tokio::time::sleep(latency).await;
        }
        let mut state = self.locked();
        *state.calls.entry(call).or_default() += 1;
        let outcome = match state.failure_of(call) {
            None => work(&mut state),
            Some(failure) => {
                if failure.effect == FailedEffect::Done {
                    // The caller must not learn what came of it.
                    let _ = work(&mut state);
                }
                Err(failure.error)
            }
        };
        outcome.map_err(|kind| ProviderError::new(format!("fake {}", call.name()), kind))
    }

    fn observation(&self, name: &str, machine: &FakeMachine) -> MachineObservation {
        MachineObservation {
            provider_ref: name.to_owned(),
            name: name.to_owned(),
            state: machine.state,
            status: if machine.state == MachineState::Running { "Running" } else { "Stopped" }.to_owned(),
            power: machine.power,
            addresses: Vec::new(),
            stamp: Some(machine.stamp.clone()),
            observed_at: self.clock.now(),
        }
    }

    async fn switch(
        &self,
        call: FakeCall,
        name: &str,
        wanted: (MachineState, PowerFact),
        key: &str,
    ) -> Result<(), ProviderError> {
        self.act(call, |state| {
            let machine = state.machine(name)?;
            if (machine.state, machine.power) != wanted {
                (machine.state, machine.power) = wanted;
                state.record(call, name, key);
            }
            Ok(())
        })
        .await
    }
}

impl State {
    fn failure_of(&mut self, call: FakeCall) -> Option<FakeFailure> {
        let index = self.failures.iter().position(|failure| failure.call == call)?;
        self.failures.remove(index)
    }

    fn machine(&mut self, name: &str) -> Result<&mut FakeMachine, ErrorKind> {
        let message = "there is no such machine".to_owned();
        self.machines.get_mut(name).ok_or(ErrorKind::NotFound { message })
    }

    fn record(&mut self, call: FakeCall, machine: &str, key: &str) {
        self.effects.push(FakeEffect { call, machine: machine.to_owned(), key: key.to_owned() });
    }
}

#[async_trait]
impl MachineObserver for FakeProvider {
    async fn observe(&self, provider_ref: &str) -> Result<Option<MachineObservation>, ProviderError> {
        self.act(FakeCall::Observe, |state| {
            Ok(state.machines.get(provider_ref).map(|machine| self.observation(provider_ref, machine)))
        })
        .await
    }

    async fn observe_all(&self) -> Result<Vec<MachineObservation>, ProviderError> {
        self.act(FakeCall::Observe, |state| {
            Ok(state.machines.iter().map(|(name, machine)| self.observation(name, machine)).collect())
        })
        .await
    }
}

#[async_trait]
impl MachineProvider for FakeProvider {
    async fn create(&self, new: &NewInstance, key: &str) -> Result<Creation, ProviderError> {
        self.act(FakeCall::Create, |state| match state.machines.get(&new.name) {
            Some(there) if there.stamp == key => Ok(Creation::Adopted(self.observation(&new.name, there))),
            Some(_) => Err(ErrorKind::SeveralMatch { what: format!("machine {} was made by another job", new.name) }),
            None => {
                let machine =
                    FakeMachine { state: MachineState::Stopped, power: PowerFact::Off, stamp: key.to_owned() };
                let created = Creation::Created(self.observation(&new.name, &machine));
                state.machines.insert(new.name.clone(), machine);
                state.record(FakeCall::Create, &new.name, key);
                Ok(created)
            }
        })
        .await
    }

    async fn start(&self, provider_ref: &str, key: &str) -> Result<(), ProviderError> {
        self.switch(FakeCall::Start, provider_ref, (MachineState::Running, PowerFact::On), key).await
    }

    async fn stop(&self, provider_ref: &str, _how: Stop, key: &str) -> Result<(), ProviderError> {
        self.switch(FakeCall::Stop, provider_ref, (MachineState::Stopped, PowerFact::Off), key).await
    }

    async fn delete(&self, provider_ref: &str, key: &str) -> Result<(), ProviderError> {
        self.act(FakeCall::Delete, |state| {
            if state.machines.remove(provider_ref).is_some() {
                state.record(FakeCall::Delete, provider_ref, key);
            }
            Ok(())
        })
        .await
    }
}

#[async_trait]
impl GuestAccess for FakeProvider {
    async fn push_file(&self, provider_ref: &str, file: &GuestFile) -> Result<(), ProviderError> {
        self.act(FakeCall::PushFile, |state| {
            state.machine(provider_ref)?;
            state.record(FakeCall::PushFile, provider_ref, &file.path);
            Ok(())
        })
        .await
    }

    async fn exec(
        &self,
        provider_ref: &str,
        command: &[&str],
        _limit: Duration,
    ) -> Result<CommandOutput, ProviderError> {
        self.act(FakeCall::Exec, |state| {
            if state.machine(provider_ref)?.state != MachineState::Running {
                return Err(ErrorKind::Refused { status: 400, message: "the machine does not run".to_owned() });
            }
            state.record(FakeCall::Exec, provider_ref, command.first().copied().unwrap_or_default());
            Ok(CommandOutput { code: Some(0), stdout: Vec::new(), stderr: Vec::new(), truncated: false })
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lattice_core::time::Timestamp;

    struct FixedClock;
    impl Clock for FixedClock {
        fn now(&self) -> Timestamp {
            Timestamp::from_millis(1)
        }
    }

    fn provider() -> FakeProvider {
        FakeProvider::new(Arc::new(FixedClock), FakeLatency::default())
    }

    fn new_instance(name: &str) -> NewInstance {
        NewInstance {
            name: name.to_owned(),
            image: "bb".to_owned(),
            profiles: Vec::new(),
            config: BTreeMap::new(),
            user_data: None,
            loopback_port: None,
        }
    }

    #[tokio::test]
    async fn a_repeated_call_changes_nothing() {
        let fake = provider();
        for _ in 0..2 {
            fake.create(&new_instance("a"), "k").await.unwrap();
            fake.start("a", "k/start").await.unwrap();
        }
        for _ in 0..2 {
            fake.delete("a", "k/delete").await.unwrap();
        }
        let keys: Vec<_> = fake.effects().into_iter().map(|effect| effect.key).collect();
        assert_eq!(keys, ["k", "k/start", "k/delete"]);
        assert_eq!(fake.calls(FakeCall::Create), 2);
    }

    #[tokio::test]
    async fn a_lost_answer_has_its_effect_and_a_refusal_has_none() {
        let fake = provider();
        let lost = ErrorKind::Ambiguous { detail: "lost".to_owned() };
        let down = ErrorKind::Unreachable { detail: "down".to_owned() };
        let fail = |effect, error| FakeFailure { call: FakeCall::Create, effect, error };
        fake.fail_next(fail(FailedEffect::None, down.clone()));
        fake.fail_next(fail(FailedEffect::Done, lost.clone()));
        assert_eq!(fake.create(&new_instance("a"), "k").await.unwrap_err().kind, down);
        assert_eq!(fake.observe("a").await.unwrap(), None);
        assert_eq!(fake.create(&new_instance("a"), "k").await.unwrap_err().kind, lost);
        assert!(matches!(fake.create(&new_instance("a"), "k").await.unwrap(), Creation::Adopted(_)));
        assert_eq!(fake.effects().len(), 1);
    }

    #[tokio::test]
    async fn what_happens_behind_its_back_is_seen() {
        let fake = provider();
        fake.create(&new_instance("a"), "k").await.unwrap();
        fake.start("a", "k").await.unwrap();
        fake.set_power("a", PowerFact::Unknown);
        assert_eq!(fake.observe("a").await.unwrap().unwrap().power, PowerFact::Unknown);
        fake.vanish("a");
        assert!(fake.start("a", "k").await.unwrap_err().is_not_found());
        assert!(fake.exec("a", &["true"], Duration::ZERO).await.unwrap_err().is_not_found());
    }
}
