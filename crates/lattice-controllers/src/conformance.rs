//! Judges fingerprints: a node's when its row changed, a site's when its approvals did.
//! spec: S1 "Conformance drift"

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use lattice_core::change::Outcome;
use lattice_core::command::Request;
use lattice_core::command::conformance::{JUDGE, judge};
use lattice_core::ids::{CorrelationId, IdSource, JobId, NodeId, SiteId};
use lattice_core::node::Node;
use lattice_core::site::Site;
use lattice_core::time::Timestamp;
use lattice_store::{Event, Store, StoreError};
use tracing::info;

/// Keeps every node's judgement in step with what is approved.
pub struct Conformance {
    store: Store,
    ids: Arc<dyn IdSource>,
    sites: HashMap<SiteId, Site>,
}

impl Conformance {
    /// One that has judged nobody yet: [`Conformance::load`] does.
    pub fn new(store: Store, ids: Arc<dyn IdSource>) -> Self {
        Self { store, ids, sites: HashMap::new() }
    }

    /// Reads the sites and judges every node: what changed while nobody looked is found.
    ///
    /// # Errors
    /// The store fails.
    pub async fn load(&mut self, now: Timestamp) -> Result<Vec<JobId>, StoreError> {
        self.judge_changed_sites(now).await
    }

    /// Takes in what changed, from the store's feed; gives the drains that it began, whose drivers are to be woken.
    ///
    /// # Errors
    /// The store fails; the same events may be handed in again.
    pub async fn take_in(&mut self, events: &[Event], now: Timestamp) -> Result<Vec<JobId>, StoreError> {
        let mut begun = Vec::new();
        if events.iter().any(|event| event.row.resource_kind == "site") {
            begun.extend(self.judge_changed_sites(now).await?);
        }
        // A job that ended may have kept a node from being drained: its node is judged again.
        let changed: BTreeSet<NodeId> = events.iter().filter_map(|event| event.row.node).collect();
        let changed: Vec<NodeId> = changed.into_iter().collect();
        if !self.sites.is_empty() && !changed.is_empty() {
            let nodes = self.store.nodes_by_id(&changed).await?;
            begun.extend(self.judge_all(&nodes, now).await?);
        }
        Ok(begun)
    }

    /// Reads the sites, and judges the nodes of those whose approvals changed, or ended. They count as known only once
    /// all of it was done.
    async fn judge_changed_sites(&mut self, now: Timestamp) -> Result<Vec<JobId>, StoreError> {
        let sites = self.store.sites().await?;
        let changed = |site: &&Site| {
            let known = self.sites.get(&site.id).map_or(&[][..], |known| &known.approved);
            known != site.approved
        };
        // A site without approvals any more is judged once, to take back what was said of its nodes.
        let changed: Vec<Site> = sites.iter().filter(changed).cloned().collect();
        let begun = self.judge_sites(&changed, now).await?;
        self.sites = sites.into_iter().filter(|site| !site.approved.is_empty()).map(|site| (site.id, site)).collect();
        Ok(begun)
    }

    async fn judge_sites(&self, sites: &[Site], now: Timestamp) -> Result<Vec<JobId>, StoreError> {
        let mut begun = Vec::new();
        for site in sites {
            let mut after = None;
            loop {
                let nodes = self.store.nodes_after(after, Some(site.id)).await?;
                let Some(last) = nodes.last() else { break };
                after = Some(last.id);
                for node in &nodes {
                    begun.extend(self.judge_one(node, site, now).await?);
                }
            }
        }
        Ok(begun)
    }

    async fn judge_all(&self, nodes: &[Node], now: Timestamp) -> Result<Vec<JobId>, StoreError> {
        let mut begun = Vec::new();
        for node in nodes {
            if let Some(site) = self.sites.get(&node.site) {
                begun.extend(self.judge_one(node, site, now).await?);
            }
        }
        Ok(begun)
    }

    async fn judge_one(&self, node: &Node, site: &Site, now: Timestamp) -> Result<Option<JobId>, StoreError> {
        let request = Request::of_system(JUDGE, &*self.ids, now, CorrelationId::generate(&*self.ids, now));
        // Asked only of those that would change: most conform.
        if judge(&request, node, site, false).is_none() {
            return Ok(None);
        }
        let is_busy = self.store.live_job(node.id).await?.is_some();
        let Some(judged) = judge(&request, node, site, is_busy) else { return Ok(None) };
        match self.store.commit_one(judged.commit).await? {
            Outcome::Applied { .. } | Outcome::Duplicate { .. } => {
                info!(node_id = %node.id, "conformance judged");
                Ok(judged.job)
            }
            // The row moved on: its own event has it judged again.
            Outcome::Conflict { .. } | Outcome::Missing { .. } | Outcome::Fenced => Ok(None),
        }
    }
}
