//! Where an allocation goes: the fullest node that fits, so that whole nodes stay free for those that need one.

use std::collections::BTreeMap;

use super::Allocation;
use crate::node::{Node, NodeClass, label};
use crate::time::Timestamp;

/// A node that may be considered, with what its SKU says.
#[derive(Debug, Clone)]
pub struct Candidate {
    /// Its row.
    pub node: Node,
    /// GPUs that its SKU has.
    pub gpus: u32,
}

/// Why a node does not fit.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
pub enum Misfit {
    /// It is another than the one that was named.
    #[error("is not the node that was named")]
    NotNamed,
    /// It is at another site.
    #[error("is at another site")]
    Site,
    /// It is of another SKU.
    #[error("is of another SKU")]
    Sku,
    /// It has not the labels that were asked for.
    #[error("has other labels")]
    Labels,
    /// Its fingerprint is none of the approved ones, and the work is sensitive.
    #[error("deviates from the approved fingerprints, and the work is sensitive")]
    Deviates,
    /// It may not be given new work.
    #[error("is not schedulable: {0}")]
    NotSchedulable(String),
    /// It belongs to another user, or to another class of claim.
    #[error("belongs to another user or class")]
    Owned,
    /// Too few of its GPUs are free.
    #[error("has too few free GPUs")]
    Gpus,
}

/// Why it may not be given new work, in one word or two.
fn unschedulable(node: &Node, now: Timestamp) -> String {
    match node.holds.iter().find(|hold| hold.is_in_force(now)) {
        Some(hold) => format!("hold {}", hold.kind),
        None => node.state.to_string(),
    }
}

fn misfit(allocation: &Allocation, candidate: &Candidate, now: Timestamp) -> Option<Misfit> {
    let (wanted, node) = (&allocation.wanted, &candidate.node);
    if wanted.node.is_some_and(|named| named != node.id) {
        return Some(Misfit::NotNamed);
    }
    if wanted.site.is_some_and(|site| site != node.site) {
        return Some(Misfit::Site);
    }
    if wanted.sku.as_ref().is_some_and(|sku| *sku != node.sku) {
        return Some(Misfit::Sku);
    }
    if !label::selects(&wanted.labels, &node.labels) {
        return Some(Misfit::Labels);
    }
    if !node.is_schedulable(now) {
        return Some(Misfit::NotSchedulable(unschedulable(node, now)));
    }
    if node.deviates_since.is_some() && NodeClass::Sensitive == allocation.class.max(node.class) {
        return Some(Misfit::Deviates);
    }
    let owned = &node.ownership;
    let shares = owned.owner.as_deref() == Some(allocation.user.as_str()) && owned.class == Some(allocation.class);
    if owned.owner.is_some() && !shares {
        return Some(Misfit::Owned);
    }
    (wanted.gpus > candidate.gpus.saturating_sub(owned.gpus)).then_some(Misfit::Gpus)
}

/// Nodes that get work last: lent ones for work that is not, those whose fingerprint is not approved. spec: S1 "Conformance drift"
fn is_last(allocation: &Allocation, node: &Node) -> bool {
    let lent = node.class == NodeClass::Borrowed && allocation.class != NodeClass::Borrowed;
    lent || node.deviates_since.is_some()
}

/// The node for `allocation` among `candidates`: one that fits, with as little as possible left over; one on which it
/// could not be started just before only if there is no other.
///
/// # Errors
/// None fits: how many for which reason, for people.
pub fn place<'a>(
    allocation: &Allocation,
    candidates: &'a [Candidate],
    now: Timestamp,
) -> Result<&'a Candidate, String> {
    let mut misfits: BTreeMap<Misfit, usize> = BTreeMap::new();
    let failed_on = allocation.retry.map(|retry| retry.node);
    let mut best = None;
    for candidate in candidates {
        if let Some(misfit) = misfit(allocation, candidate, now) {
            *misfits.entry(misfit).or_default() += 1;
            continue;
        }
        let node = &candidate.node;
        let free = candidate.gpus.saturating_sub(node.ownership.gpus);
        let rank = (failed_on == Some(node.id), is_last(allocation, node), free, node.hostname.as_str());
        if best.is_none_or(|(_, other)| rank < other) {
            best = Some((candidate, rank));
        }
    }
    best.map(|(candidate, _)| candidate).ok_or_else(|| why_not(candidates.len(), &misfits))
}

fn why_not(all: usize, misfits: &BTreeMap<Misfit, usize>) -> String {
    if all == 0 {
        return "a node that fits: there is none of that name, site and SKU".to_owned();
    }
    let reasons: Vec<String> = misfits.iter().map(|(misfit, count)| format!("{count} {misfit}")).collect();
    format!("a node that fits: of {all}, {}", reasons.join("; "))
}
