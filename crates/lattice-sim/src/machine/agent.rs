//! How a machine starts the node agent. The code of the agent is given by the caller.

use async_trait::async_trait;
use lattice_api::agent::Bootstrap;
use lattice_core::node::HostFacts;

/// Starts node agents on behalf of machines.
#[async_trait]
pub trait AgentLauncher: Send + Sync + 'static {
    /// Starts the agent of a machine that has booted. The future is dropped when the machine loses power.
    ///
    /// # Errors
    /// A sentence for the log of the machine. The machine stays up without an agent.
    async fn launch(&self, boot: MachineBoot) -> Result<Box<dyn RunningAgent>, String>;

    /// The disks of a machine were given up: whatever its agent kept there is gone.
    async fn wipe(&self, label: &str);
}

/// An agent that runs.
#[async_trait]
pub trait RunningAgent: Send {
    /// Power is cut: ends the agent without a farewell.
    async fn stop(self: Box<Self>);
}

/// A machine that has booted an installed system and starts its agent.
#[derive(Clone)]
pub struct MachineBoot {
    /// The name on the label; it names the place where the agent's state is kept across power cycles.
    pub label: String,
    /// Host name of the system.
    pub hostname: String,
    /// Its record in MAAS.
    pub system_id: String,
    /// Which deployment it is; state of an earlier one must not be used.
    pub deployment: u64,
    /// A new one for each boot, as `/proc/sys/kernel/random/boot_id` is.
    pub boot_id: String,
    /// What the agent finds when it looks at its host.
    pub facts: HostFacts,
    /// What cloud-init left for the agent.
    pub bootstrap: Bootstrap,
}

/// Starts nothing: for sites whose clients need no agent.
pub struct NoAgent;

#[async_trait]
impl AgentLauncher for NoAgent {
    async fn launch(&self, _boot: MachineBoot) -> Result<Box<dyn RunningAgent>, String> {
        Err("this site starts no agents".to_owned())
    }

    async fn wipe(&self, _label: &str) {}
}
