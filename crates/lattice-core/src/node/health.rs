//! The health check: what the host has, against what its SKU asks. design: 2-state-model "Health check"

use super::HostFacts;
use super::machine::Health;
use crate::sku::Sku;

/// Judges a host against its SKU. GPU count, NIC firmware and disk rules must match, and the conformance fingerprint
/// must have been reported; a rule that the SKU does not have is not asked for. spec: S1 "Booting → Ready"
pub fn check(sku: &Sku, facts: &HostFacts, fingerprint: Option<&str>) -> Health {
    let mut missing = Vec::new();
    let gpus = facts.gpus.len();
    if sku.gpus > 0 && gpus != sku.gpus as usize {
        missing.push(format!("{} GPUs on the bus, {} asks for {}", gpus, sku.name, sku.gpus));
    }
    for gpu in &facts.gpus {
        if let Some(vendor) = sku.gpu_vendor.as_deref().filter(|vendor| *vendor != gpu.vendor) {
            missing.push(format!("GPU {} is from {}, {} asks for {vendor}", gpu.address, gpu.vendor, sku.name));
        }
        if let Some(model) = sku.gpu_model.as_deref().filter(|model| !contains(&gpu.model, model)) {
            missing.push(format!("GPU {} is a {}, {} asks for {model}", gpu.address, gpu.model, sku.name));
        }
    }
    for rule in &sku.nics {
        let found = facts
            .nics
            .iter()
            .filter(|nic| nic.speed_mbps >= rule.min_speed_mbps)
            .filter(|nic| rule.firmware.is_empty() || rule.firmware.contains(&nic.firmware))
            .count();
        if found < rule.count as usize {
            let firmware = if rule.firmware.is_empty() { "any".to_owned() } else { rule.firmware.join(" or ") };
            missing.push(format!(
                "{found} interfaces of at least {} Mbit/s with firmware {firmware}, {} asks for {}",
                rule.min_speed_mbps, sku.name, rule.count
            ));
        }
    }
    for rule in &sku.disks {
        let found = facts
            .disks
            .iter()
            .filter(|disk| disk.size_bytes >= rule.min_size_bytes && contains(&disk.model, &rule.model))
            .count();
        if found < rule.count as usize {
            missing.push(format!(
                "{found} disks of at least {} bytes with a model like `{}`, {} asks for {}",
                rule.min_size_bytes, rule.model, sku.name, rule.count
            ));
        }
    }
    if fingerprint.is_none_or(str::is_empty) {
        missing.push("its conformance fingerprint was not reported".to_owned());
    }
    if missing.is_empty() { Health::Passed } else { Health::Failed(missing) }
}

fn contains(text: &str, part: &str) -> bool {
    text.to_lowercase().contains(&part.to_lowercase())
}
