//! Reading machines of any provider.

use std::net::IpAddr;

use async_trait::async_trait;
use lattice_core::node::PowerFact;
use lattice_core::time::Timestamp;

use crate::error::ProviderError;

/// Name under which the key of the effect that made a machine is stamped on it, where a provider can carry it.
pub const STAMP: &str = "lattice-key";

/// What a machine is doing, in words that fit every provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum MachineState {
    /// An operating system is there and meant to run.
    Running,
    /// It is there and rests.
    Stopped,
    /// The provider is at work on it.
    Changing,
    /// The provider failed at something with it.
    Failed,
    /// The provider's word is not known.
    Unknown,
}

/// One look at a machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MachineObservation {
    /// The provider's own name for it.
    pub provider_ref: String,
    /// The name people use.
    pub name: String,
    /// What it is doing.
    pub state: MachineState,
    /// The same in the provider's own word.
    pub status: String,
    /// Power, as read at `observed_at` or earlier; unknown is not off.
    pub power: PowerFact,
    /// Addresses.
    pub addresses: Vec<IpAddr>,
    /// Key of the effect that made it, when the provider carries one.
    pub stamp: Option<String>,
    /// When the provider was asked.
    pub observed_at: Timestamp,
}

/// Reads the machines of one site. Never changes anything.
#[async_trait]
pub trait MachineObserver: Send + Sync {
    /// The machine now; `None` when the provider proves that it has none of that name.
    ///
    /// # Errors
    /// The provider cannot be read: nothing is known then, least of all absence.
    async fn observe(&self, provider_ref: &str) -> Result<Option<MachineObservation>, ProviderError>;

    /// All machines; a provider may answer from what it follows, with the time of each look.
    ///
    /// # Errors
    /// The provider cannot be read.
    async fn observe_all(&self) -> Result<Vec<MachineObservation>, ProviderError>;
}
