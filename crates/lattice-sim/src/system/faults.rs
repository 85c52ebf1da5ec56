//! What befell a life, counted where it does harm: a fault that never befalls tests nothing.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// What befalls hosts, their agents and the servers, beside the weather of network, provider and store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, strum::Display, strum::VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum Fault {
    /// An agent that died finds its state file torn.
    StateTorn,
    /// An agent that died finds no state file.
    StateLost,
    /// An agent that died finds its journal of tasks torn.
    JournalTorn,
    /// An agent that died finds no journal of tasks.
    JournalLost,
    /// The disk of an agent refused to be written.
    DiskFailed,
    /// What is left of an allocation could not be cleaned up.
    CleanFailed,
    /// A step of a wipe failed.
    WipeFailed,
    /// A step of a wipe proved nothing.
    WipeUnproven,
    /// A step of a wipe never ended.
    WipeHung,
    /// A BMC did not say whether its machine is on.
    PowerUnknown,
    /// A BMC refused its login.
    LoginRefused,
    /// A BMC's login was refused so often that it is not tried any more.
    BreakerOpened,
    /// A second server started while the first one lived.
    TwoServers,
    /// The servers' clock was set ahead, or one took over whose clock is ahead.
    ClockAhead,
    /// The servers' clock was set back, or one took over whose clock is behind.
    ClockBehind,
    /// A host came up with another system, and its fingerprint is not approved.
    Drifted,
    /// Lattice itself drained a node for its fingerprint.
    DrainedForDrift,
    /// Lattice itself rebooted a node that fell silent.
    RebootedByItself,
    /// A BMC erased a drive.
    DriveErased,
    /// A BMC forgot what became of an erasure.
    ErasureForgotten,
}

/// How often each befell.
#[derive(Default)]
pub struct Faults(Mutex<BTreeMap<Fault, u64>>);

impl Faults {
    /// It befell.
    pub fn befell(&self, fault: Fault) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner).entry(fault).or_default() += 1;
    }

    /// How often each did.
    pub fn counted(&self) -> BTreeMap<Fault, u64> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
