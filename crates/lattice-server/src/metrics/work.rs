//! What is counted of nodes and their work, besides their states.

use lattice_core::allocation::AllocationStatus;
use lattice_core::node::{DownCause, HoldKind, Status};
use lattice_core::site::Governor;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use super::{Metrics, StatusLabels, clamp};

/// Kinds of holds.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct HoldLabels {
    kind: String,
}

/// Nodes that are down: their status, and why.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct DownLabels {
    status: String,
    cause: String,
}

/// Names of sites: few, and chosen by people.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct SiteNameLabels {
    site: String,
}

/// What is read of nodes and their work at a scrape, besides their states.
#[derive(Debug, Clone, Default)]
pub struct WorkFigures {
    /// Allocations by status.
    pub allocations: Vec<(AllocationStatus, u64)>,
    /// Nodes by the kinds of their holds.
    pub holds: Vec<(HoldKind, u64)>,
    /// Nodes that are down, by status and cause.
    pub down: Vec<(Status, Option<DownCause>, u64)>,
    /// Nodes whose fingerprint is not approved.
    pub deviating: u64,
    /// Nodes that are down, and whose loss a brake holds back.
    pub braked: u64,
    /// BMCs whose credential is not tried any more.
    pub breakers_open: u64,
    /// Silences in force.
    pub silences: u64,
    /// How each site stands towards what Lattice may do there by itself.
    pub governors: Vec<(String, Governor)>,
}

/// Nodes and their work.
#[derive(Default)]
pub(super) struct WorkMetrics {
    allocations: Family<StatusLabels, Gauge>,
    holds: Family<HoldLabels, Gauge>,
    down: Family<DownLabels, Gauge>,
    deviating: Gauge,
    braked: Gauge,
    breakers_open: Gauge,
    silences: Gauge,
    taken: Family<SiteNameLabels, Gauge>,
    limit: Family<SiteNameLabels, Gauge>,
}

impl WorkMetrics {
    pub(super) fn register(&self, registry: &mut Registry) {
        registry.register("lattice_allocations", "Allocations by their status", self.allocations.clone());
        registry.register("lattice_held_nodes", "Nodes with a hold, by its kind", self.holds.clone());
        registry.register("lattice_down_nodes", "Nodes that are down, by status and cause", self.down.clone());
        registry.register(
            "lattice_deviating_nodes",
            "Nodes whose fingerprint is none of the approved ones",
            self.deviating.clone(),
        );
        registry.register(
            "lattice_braked_nodes",
            "Nodes that are down, and whose loss a brake holds back",
            self.braked.clone(),
        );
        registry.register(
            "lattice_bmc_breakers_open",
            "BMCs whose credential was refused too often and is not tried any more",
            self.breakers_open.clone(),
        );
        registry.register(
            "lattice_silences",
            "Silences in force; no other figure depends on them",
            self.silences.clone(),
        );
        registry.register(
            "lattice_automation_unavailable_nodes",
            "Nodes that Lattice itself has made unavailable",
            self.taken.clone(),
        );
        registry.register(
            "lattice_automation_unavailable_limit",
            "How many nodes Lattice itself may make unavailable at once",
            self.limit.clone(),
        );
    }
}

impl Metrics {
    /// Sets nodes and their work as they stand at a scrape.
    pub fn observe_work(&self, figures: &WorkFigures) {
        let work = &self.work;
        work.allocations.clear();
        for (status, count) in &figures.allocations {
            work.allocations.get_or_create(&StatusLabels { status: status.to_string() }).set(clamp(*count));
        }
        work.holds.clear();
        for (kind, count) in &figures.holds {
            work.holds.get_or_create(&HoldLabels { kind: kind.to_string() }).set(clamp(*count));
        }
        work.down.clear();
        for (status, cause, count) in &figures.down {
            let cause = cause.map_or_else(|| "unknown".to_owned(), |cause| cause.to_string());
            work.down.get_or_create(&DownLabels { status: status.to_string(), cause }).set(clamp(*count));
        }
        work.deviating.set(clamp(figures.deviating));
        work.braked.set(clamp(figures.braked));
        work.breakers_open.set(clamp(figures.breakers_open));
        work.silences.set(clamp(figures.silences));
        work.taken.clear();
        work.limit.clear();
        for (site, governor) in &figures.governors {
            let labels = SiteNameLabels { site: site.clone() };
            work.taken.get_or_create(&labels).set(clamp(governor.taken));
            work.limit.get_or_create(&labels).set(clamp(governor.limit));
        }
    }
}
