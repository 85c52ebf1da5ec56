//! The machine below the agent.

mod cgroup;
mod enter;
mod fingerprint;
mod linux;
mod pci;
mod process;
mod reading;
mod wipe;
mod workplace;

use std::sync::Arc;

use async_trait::async_trait;
use lattice_api::agent::HealthSummary;
use lattice_core::node::HostFacts;

use crate::hands::{Hands, NoHands};

pub use enter::{enter, scrub_memory};
pub use fingerprint::fingerprint;
pub use linux::LinuxHost;
pub use workplace::Workplace;

/// The machine below the agent: the real one, or a simulated one.
#[async_trait]
pub trait Host: Send + Sync {
    /// Kernel boot id: another one after each boot.
    ///
    /// # Errors
    /// When it cannot be read.
    async fn boot_id(&self) -> std::io::Result<String>;

    /// What the machine has, as far as it can be read. A heartbeat waits for it: it takes some seconds at most, once the
    /// machine could be read at all.
    async fn facts(&self) -> HostFacts;

    /// How it is now.
    async fn health(&self) -> HealthSummary;

    /// What acts on it; the default can do nothing.
    fn hands(&self) -> Arc<dyn Hands> {
        Arc::new(NoHands)
    }
}
