//! Judges fingerprints: a node's when its row changed, a site's when its approvals did.
//! spec: S1 "Conformance drift"

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use lattice_core::change::Outcome;
use lattice_core::command::Request;
use lattice_core::command::conformance::{JUDGE, judge};
use lattice_core::ids::{CorrelationId, IdSource, NodeId, SiteId};
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
    pub async fn load(&mut self, now: Timestamp) -> Result<(), StoreError> {
        self.judge_changed_sites(now).await
    }

    /// Takes in what changed, from the store's feed.
    ///
    /// # Errors
    /// The store fails; the same events may be handed in again.
    pub async fn take_in(&mut self, events: &[Event], now: Timestamp) -> Result<(), StoreError> {
        if events.iter().any(|event| event.row.resource_kind == "site") {
            self.judge_changed_sites(now).await?;
        }
        let changed: BTreeSet<NodeId> = events.iter().filter_map(|event| event.row.node).collect();
        let changed: Vec<NodeId> = changed.into_iter().collect();
        let judges = self.sites.values().any(|site| !site.approved.is_empty());
        if !judges || changed.is_empty() {
            return Ok(());
        }
        for node in &self.store.nodes_by_id(&changed).await? {
            if let Some(site) = self.sites.get(&node.site) {
                self.judge_one(node, site, now).await?;
            }
        }
        Ok(())
    }

    /// Reads the sites, and judges the nodes of those whose approvals changed, or ended. They count as known only once
    /// all of it was done.
    async fn judge_changed_sites(&mut self, now: Timestamp) -> Result<(), StoreError> {
        let sites = self.store.sites().await?;
        // One that was not known is judged, too: what was said of its nodes may have lost its reason while nobody looked.
        let changed = |site: &&Site| self.sites.get(&site.id).is_none_or(|known| known.approved != site.approved);
        let changed: Vec<Site> = sites.iter().filter(changed).cloned().collect();
        self.judge_sites(&changed, now).await?;
        self.sites = sites.into_iter().map(|site| (site.id, site)).collect();
        Ok(())
    }

    async fn judge_sites(&self, sites: &[Site], now: Timestamp) -> Result<(), StoreError> {
        for site in sites {
            let mut after = None;
            loop {
                let nodes = self.store.nodes_after(after, Some(site.id)).await?;
                let Some(last) = nodes.last() else { break };
                after = Some(last.id);
                for node in &nodes {
                    self.judge_one(node, site, now).await?;
                }
            }
        }
        Ok(())
    }

    async fn judge_one(&self, node: &Node, site: &Site, now: Timestamp) -> Result<(), StoreError> {
        let request = Request::of_system(JUDGE, &*self.ids, now, CorrelationId::generate(&*self.ids, now));
        let mut commit = judge(&request, node, site);
        while let Some(judged) = commit {
            match self.store.commit_one(judged).await? {
                Outcome::Applied { .. } | Outcome::Duplicate { .. } => {
                    info!(node_id = %node.id, "conformance judged");
                    break;
                }
                Outcome::Missing { .. } | Outcome::Fenced => break,
                // The row moved on: it is judged as it is now.
                Outcome::Conflict { .. } => {
                    let request = Request::of_system(JUDGE, &*self.ids, now, request.correlation);
                    let moved = self.store.node(node.id).await?;
                    commit = moved.and_then(|node| judge(&request, &node, site));
                }
            }
        }
        Ok(())
    }
}
