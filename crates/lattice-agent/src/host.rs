//! The machine below the agent.

mod fingerprint;
mod linux;
mod pci;

use async_trait::async_trait;
use lattice_api::agent::HealthSummary;
use lattice_core::node::HostFacts;

pub use fingerprint::fingerprint;
pub use linux::LinuxHost;

/// The machine below the agent: the real one, or a simulated one.
#[async_trait]
pub trait Host: Send + Sync {
    /// Kernel boot id: another one after each boot.
    ///
    /// # Errors
    /// When it cannot be read.
    async fn boot_id(&self) -> std::io::Result<String>;

    /// What the machine has, as far as it can be read.
    async fn facts(&self) -> HostFacts;

    /// How it is now.
    async fn health(&self) -> HealthSummary;

    /// Whether the process that had `pid` and started at `start_ticks` after boot still lives.
    fn lives(&self, pid: u32, start_ticks: u64) -> bool;
}
