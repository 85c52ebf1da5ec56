//! Changing machines of any provider. Only jobs may.

use std::collections::BTreeMap;
use std::time::Duration;

use async_trait::async_trait;
use lattice_core::secret::Secret;

use crate::error::ProviderError;
use crate::observer::{MachineObservation, MachineObserver};

/// An instance to be created.
#[derive(Clone)]
pub struct NewInstance {
    /// Its name: what it is found by.
    pub name: String,
    /// Image, by the provider's name for it.
    pub image: String,
    /// Profiles, in order.
    pub profiles: Vec<String>,
    /// The provider's own settings.
    pub config: BTreeMap<String, String>,
    /// Cloud-init's user-data; it holds the enrolment token.
    pub user_data: Option<Secret<String>>,
    /// Port of this host's loopback that the instance reaches at the same port of its own.
    pub loopback_port: Option<u16>,
}

/// An instance that is there now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Creation {
    /// This call created it.
    Created(MachineObservation),
    /// An earlier call with the same key created it.
    Adopted(MachineObservation),
}

impl Creation {
    /// What is there.
    pub fn into_observation(self) -> MachineObservation {
        match self {
            Self::Created(observation) | Self::Adopted(observation) => observation,
        }
    }
}

/// How to stop a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// Ask its operating system, and wait this long.
    Soft {
        /// Longest wait.
        within: Duration,
    },
    /// Cut its power.
    Hard,
}

/// Creates, starts, stops and deletes the machines of one site.
///
/// `key` is the idempotency key of the effect. Each call may be repeated with the same key: it finds what it did.
#[async_trait]
pub trait MachineProvider: MachineObserver {
    /// Creates an instance without starting it, stamped with `key`; adopts the one of that name with that stamp.
    ///
    /// # Errors
    /// [`SeveralMatch`](crate::error::ErrorKind::SeveralMatch) when the name belongs to an instance with another stamp.
    async fn create(&self, new: &NewInstance, key: &str) -> Result<Creation, ProviderError>;

    /// Starts it; one that runs is success.
    ///
    /// # Errors
    /// [`NotFound`](crate::error::ErrorKind::NotFound), or the provider's refusal.
    async fn start(&self, provider_ref: &str, key: &str) -> Result<(), ProviderError>;

    /// Stops it; one that rests is success.
    ///
    /// # Errors
    /// [`NotFound`](crate::error::ErrorKind::NotFound), or the provider's refusal.
    async fn stop(&self, provider_ref: &str, how: Stop, key: &str) -> Result<(), ProviderError>;

    /// Deletes it, running or not; one that is not there is success.
    ///
    /// # Errors
    /// The provider's refusal.
    async fn delete(&self, provider_ref: &str, key: &str) -> Result<(), ProviderError>;
}

/// A file to be put into a machine.
#[derive(Clone)]
pub struct GuestFile {
    /// Absolute path inside; its directory must be there.
    pub path: String,
    /// Content.
    pub content: Secret<Vec<u8>>,
    /// Permission bits.
    pub mode: u32,
}

/// What a command left behind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandOutput {
    /// Its exit status; `None` when a signal ended it.
    pub code: Option<i32>,
    /// Beginning of its standard output.
    pub stdout: Vec<u8>,
    /// Beginning of its standard error.
    pub stderr: Vec<u8>,
    /// Whether more was written than is kept.
    pub truncated: bool,
}

/// Reaches into a running machine through its provider.
#[async_trait]
pub trait GuestAccess: Send + Sync {
    /// Writes a file as root, in place of the one that is there.
    ///
    /// # Errors
    /// [`NotFound`](crate::error::ErrorKind::NotFound), or the provider's refusal.
    async fn push_file(&self, provider_ref: &str, file: &GuestFile) -> Result<(), ProviderError>;

    /// Runs a program as root, without a shell, and waits for its end for at most `limit`.
    ///
    /// # Errors
    /// [`Ambiguous`](crate::error::ErrorKind::Ambiguous) when it did not end in time: it may still run.
    async fn exec(&self, provider_ref: &str, command: &[&str], limit: Duration)
    -> Result<CommandOutput, ProviderError>;
}
