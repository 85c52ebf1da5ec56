//! What runs on nodes, as the registry of heartbeats knows it.

use std::sync::Arc;

use async_trait::async_trait;
use lattice_core::heartbeat::Registry;
use lattice_core::ids::NodeId;
use lattice_core::time::Timestamp;
use lattice_store::Store;
use lattice_workflow::tools::LiveWork;

/// Answers from the registry, which has the count that each agent reported last, and from the nodes' rows, which have what
/// was placed: whichever says more. Who was not heard here said nothing.
pub struct RegistryWork {
    registry: Arc<Registry>,
    store: Store,
}

impl RegistryWork {
    /// Over the registry that heartbeats go to.
    pub const fn new(registry: Arc<Registry>, store: Store) -> Self {
        Self { registry, store }
    }
}

#[async_trait]
impl LiveWork for RegistryWork {
    async fn live_allocations(&self, node: NodeId) -> Option<u32> {
        let reported = self.registry.said(node)?.vitals.allocations;
        // A store that cannot be read tells nothing: then nothing counts as empty.
        let row = self.store.node(node).await.ok()??;
        Some(reported.max(row.ownership.allocations))
    }

    async fn last_heard(&self, node: NodeId) -> Option<Timestamp> {
        self.registry.last_heard(node)
    }
}
