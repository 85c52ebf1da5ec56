//! What a BMC says of its machine's hardware, and which of it takes a node down at once.
//! spec: S1 "Any → Down (hardware failure)"

use serde::{Deserialize, Serialize};

use crate::time::Timestamp;

/// A part of a machine.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    utoipa::ToSchema,
    strum::Display,
    strum::EnumString,
    strum::IntoStaticStr,
    strum::VariantArray,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Component {
    /// A power supply.
    PowerSupply,
    /// A memory module.
    Memory,
    /// A GPU on the bus.
    Gpu,
    /// A temperature or a fan.
    Cooling,
    /// A drive or its controller.
    Storage,
    /// Something else.
    Other,
}

/// How grave it is.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    utoipa::ToSchema,
    strum::Display,
    strum::EnumString,
    strum::IntoStaticStr,
    strum::VariantArray,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Severity {
    /// Worth a look.
    Warning,
    /// A power supply failed, memory has uncorrectable errors, or a GPU is off the bus: the node goes down.
    Critical,
}

/// One thing that a BMC says is wrong.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Evidence {
    /// Which part.
    pub component: Component,
    /// How grave it is.
    pub severity: Severity,
    /// The BMC's name for the part: `PSU1`, `DIMM_A3`.
    pub part: String,
    /// What it says of it, in its own words.
    pub detail: String,
}

impl std::fmt::Display for Evidence {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}: {}", self.component, self.part, self.detail)
    }
}

/// One look at a machine's hardware.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct HealthReport {
    /// When it was asked for.
    pub at: Timestamp,
    /// Who said it.
    pub source: String,
    /// What is wrong; nothing here and nothing in `not_read` is a clean bill.
    pub evidence: Vec<Evidence>,
    /// GPUs that are on the bus; none: the BMC does not list GPUs, or not all that it lists could be read.
    pub gpus_present: Option<u32>,
    /// What this BMC does not offer, or did not give: about these nothing is known.
    pub not_read: Vec<String>,
    /// The newest entry of its event log; none: it has no log that is read.
    pub log_position: Option<u32>,
}

impl HealthReport {
    /// A report of nothing yet.
    pub fn new(at: Timestamp, source: impl Into<String>) -> Self {
        let source = source.into();
        Self { at, source, evidence: Vec::new(), gpus_present: None, not_read: Vec::new(), log_position: None }
    }

    /// Adds one thing that is wrong.
    pub fn found(&mut self, component: Component, severity: Severity, part: &str, detail: impl Into<String>) {
        self.evidence.push(Evidence { component, severity, part: part.to_owned(), detail: detail.into() });
    }
}

/// The evidence that takes the node down at once. A GPU that a BMC calls absent may be an empty slot: it is off the bus
/// when fewer are left than its SKU has.
///
/// spec: S1 "Any → Down (hardware failure)"
pub fn judge(report: &HealthReport, gpus_of_sku: u32) -> Vec<Evidence> {
    let too_few = report.gpus_present.is_some_and(|present| present < gpus_of_sku);
    report
        .evidence
        .iter()
        .filter(|evidence| evidence.severity == Severity::Critical || (evidence.component == Component::Gpu && too_few))
        .map(|evidence| Evidence { severity: Severity::Critical, ..evidence.clone() })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(component: Component, severity: Severity) -> HealthReport {
        let mut report = HealthReport::new(Timestamp::from_millis(1), "redfish 10.0.0.7");
        report.found(component, severity, "x", "failed");
        report
    }

    #[test]
    fn warnings_take_no_node_down_and_critical_evidence_does() {
        assert!(judge(&report(Component::PowerSupply, Severity::Warning), 8).is_empty());
        assert!(judge(&report(Component::Cooling, Severity::Warning), 8).is_empty());
        for component in [Component::PowerSupply, Component::Memory, Component::Gpu] {
            assert_eq!(judge(&report(component, Severity::Critical), 8).len(), 1, "{component}");
        }
    }

    #[test]
    fn an_absent_gpu_is_off_the_bus_only_when_the_sku_has_more_than_are_left() {
        let mut absent = report(Component::Gpu, Severity::Warning);
        assert!(judge(&absent, 8).is_empty(), "a BMC that lists no GPUs proves nothing");
        for (present, critical) in [(8, 0), (7, 1)] {
            absent.gpus_present = Some(present);
            assert_eq!(judge(&absent, 8).len(), critical, "{present}");
        }
    }
}
