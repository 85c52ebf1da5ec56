//! One BMC: what it says, and what it can be told. Reading and changing are apart.

mod clients;
mod gate;

pub use clients::{BmcClients, BmcReaders};
pub use gate::{BmcGates, Caller, Gate, Gated, QueueView, Waiting};

use async_trait::async_trait;
pub use lattice_core::bmc::BootDevice;
use lattice_core::bmc::{HealthReport, PowerReading};
use lattice_core::secret::Secret;

use crate::error::ProviderError;

/// A user of a BMC.
#[derive(Clone)]
pub struct BmcLogin {
    /// Its name.
    pub user: String,
    /// Its password.
    pub password: Secret<String>,
}

/// What a BMC says it is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BmcAbout {
    /// Who made the machine or the BMC.
    pub vendor: String,
    /// What it is.
    pub model: String,
    /// Version of the BMC's firmware.
    pub firmware: String,
    /// What it does not offer.
    pub not_offered: Vec<String>,
}

/// What a machine starts from at its next start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NextBoot {
    /// As its firmware is set.
    Usual,
    /// From this device, once.
    Once(BootDevice),
    /// From this device, at every start: somebody else set it.
    Always(BootDevice),
    /// From something else, in the BMC's word.
    Other(String),
}

/// What a BMC can be told about power.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum PowerOrder {
    /// Switch it on.
    On,
    /// Cut its power.
    Off,
    /// Ask its operating system to stop.
    SoftOff,
    /// Off and on again, without waiting for its operating system.
    Cycle,
}

/// A drive that a BMC knows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DriveSeen {
    /// The BMC's own name for it, for calls.
    pub id: String,
    /// Name, model and serial number, for people.
    pub name: String,
    /// Whether the BMC offers to erase it.
    pub erasable: bool,
}

/// What became of an erasure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Erasure {
    /// The BMC says that it is done. That is its word, not evidence.
    SaidDone,
    /// It goes on; ask there.
    Running {
        /// The task's address.
        task: String,
    },
    /// Another drive is there: nothing was told.
    Another {
        /// Its name.
        name: String,
    },
}

/// Reads one BMC. Never changes anything.
#[async_trait]
pub trait BmcObserver: Send + Sync {
    /// The machine's power now. A BMC that answers and does not say is an `unknown` with its reason, not an error.
    ///
    /// # Errors
    /// The BMC cannot be read: nothing is known then.
    async fn power(&self) -> Result<PowerReading, ProviderError>;

    /// What is wrong with its hardware. Entries of its event log count from after `since`; without it none counts, and
    /// the report says where the log ends.
    ///
    /// # Errors
    /// The BMC cannot be read at all; parts that it does not give are named in the report.
    async fn health(&self, since: Option<u32>) -> Result<HealthReport, ProviderError>;

    /// What the machine starts from next.
    ///
    /// # Errors
    /// The BMC cannot be read, or its answer makes no sense.
    async fn next_boot(&self) -> Result<NextBoot, ProviderError>;

    /// What it says it is: the cheapest call that proves the credential.
    ///
    /// # Errors
    /// The BMC cannot be read.
    async fn about(&self) -> Result<BmcAbout, ProviderError>;

    /// Its machine's drives.
    ///
    /// # Errors
    /// [`NotOffered`](crate::error::ErrorKind::NotOffered) when it lists none; or it cannot be read.
    async fn drives(&self) -> Result<Vec<DriveSeen>, ProviderError>;
}

/// Changes what one BMC controls. Only jobs may.
#[async_trait]
pub trait BmcControl: BmcObserver {
    /// Gives an order; that it was taken says nothing about the power, which is read again. A machine that is there
    /// already is success.
    ///
    /// # Errors
    /// [`NotOffered`](crate::error::ErrorKind::NotOffered), or the BMC's refusal.
    async fn order(&self, order: PowerOrder) -> Result<(), ProviderError>;

    /// Whether it says that it could start from `device`. Changes nothing.
    ///
    /// # Errors
    /// [`NotOffered`](crate::error::ErrorKind::NotOffered): it says what it can start from, and that is not among it; or it
    /// cannot be read.
    async fn offers_boot(&self, device: BootDevice) -> Result<(), ProviderError>;

    /// The next start, and only that one, is from `device`.
    ///
    /// # Errors
    /// [`NotOffered`](crate::error::ErrorKind::NotOffered), or the BMC's refusal.
    async fn boot_once(&self, device: BootDevice) -> Result<(), ProviderError>;

    /// Erases a drive by its own means, if it is still the one of that `name`, as [`BmcObserver::drives`] told it. Destructive.
    ///
    /// # Errors
    /// [`NotOffered`](crate::error::ErrorKind::NotOffered) when the BMC has no such action for the drive;
    /// [`Ambiguous`](crate::error::ErrorKind::Ambiguous) when it took the order and does not say where it tells of its end.
    async fn erase(&self, drive: &str, name: &str) -> Result<Erasure, ProviderError>;

    /// How far an erasure is that goes on, by its `task`.
    ///
    /// # Errors
    /// It failed; or the BMC does not know it any more: what became of it nobody says then.
    async fn erasure(&self, task: &str) -> Result<Erasure, ProviderError>;
}
