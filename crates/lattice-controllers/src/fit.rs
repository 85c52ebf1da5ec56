//! Whether any node at all is as an allocation wants it, however it stands now.

use lattice_core::allocation::Wanted;
use lattice_core::sku::Sku;
use lattice_store::{NodeFilter, NodeSort, PageRequest, Store, StoreError};

/// Why no node that there is can ever take this: what there is none of, or the largest there is. None: one could.
///
/// It is no refusal: a fleet grows. One look at the store for each SKU, from the largest down to the first with a node.
///
/// # Errors
/// The database fails.
pub async fn nowhere(store: &Store, wanted: &Wanted, skus: &[Sku]) -> Result<Option<String>, StoreError> {
    if let Some(id) = wanted.node {
        let Some(node) = store.node(id).await? else { return Ok(None) };
        let sku = skus.iter().find(|sku| sku.name == node.sku);
        let short = sku.filter(|sku| sku.gpus < wanted.gpus);
        return Ok(short.map(|sku| {
            let (asked, name, has) = (wanted.gpus, &node.hostname, sku.gpus);
            format!("a node that fits, and there is none: it asks for {asked} GPUs, and {name} has {has}")
        }));
    }
    let mut allowed: Vec<&Sku> =
        skus.iter().filter(|sku| wanted.sku.as_ref().is_none_or(|name| *name == sku.name)).collect();
    allowed.sort_by_key(|sku| std::cmp::Reverse(sku.gpus));
    for sku in allowed {
        let (site, labels) = (wanted.site, wanted.labels.clone());
        let filter = NodeFilter { site, labels, sku: Some(sku.name.clone()), ..NodeFilter::default() };
        if store.nodes(&filter, NodeSort::Oldest, &PageRequest::first(1)).await?.items.is_empty() {
            continue;
        }
        let (asked, largest, name) = (wanted.gpus, sku.gpus, &sku.name);
        let why = "a node that fits, and there is none";
        let says =
            || format!("{why}: it asks for {asked} GPUs, and the largest node that it allows has {largest} ({name})");
        return Ok((largest < asked).then(says));
    }
    Ok(Some(format!("a node that fits, and there is none {}", of_what(wanted))))
}

/// `of that SKU, with rack=c07`.
fn of_what(wanted: &Wanted) -> String {
    let mut parts = Vec::new();
    parts.extend(wanted.sku.as_ref().map(|sku| format!("of SKU {sku}")));
    parts.extend(wanted.site.map(|_| "at that site".to_owned()));
    parts.extend(wanted.labels.iter().map(|(name, value)| format!("with {name}={value}")));
    if parts.is_empty() { "yet".to_owned() } else { parts.join(", ") }
}
