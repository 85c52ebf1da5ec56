//! What runs on nodes, as the registry of heartbeats knows it.

use std::sync::Arc;

use async_trait::async_trait;
use lattice_core::heartbeat::Registry;
use lattice_core::ids::NodeId;
use lattice_core::time::Timestamp;
use lattice_workflow::tools::LiveWork;

/// Answers from the registry: the count that each agent reported last.
pub struct RegistryWork {
    registry: Arc<Registry>,
}

impl RegistryWork {
    /// Over the registry that heartbeats go to.
    pub const fn new(registry: Arc<Registry>) -> Self {
        Self { registry }
    }
}

#[async_trait]
impl LiveWork for RegistryWork {
    async fn live_allocations(&self, node: NodeId) -> Option<u32> {
        self.registry.vitals(node).map(|vitals| vitals.allocations)
    }

    async fn last_heard(&self, node: NodeId) -> Option<Timestamp> {
        self.registry.last_heard(node)
    }
}
