//! What a Redfish service says is wrong: power supplies, memory, GPUs, and the rest as warnings.
//! spec: S1 "Any → Down (hardware failure)"

use lattice_core::bmc::{Component, HealthReport, Severity};
use lattice_core::node::PowerFact;

use super::body::{Chassis, Collection, MemoryMetrics, Part, Power, PowerSubsystem, Status, System, Thermal};
use super::client::RedfishClient;
use crate::error::ProviderError;
use crate::message;

/// Members of one collection that are read: a server has some dozens of memory modules.
const MOST_PARTS: usize = 128;

/// Members of a collection.
struct Parts {
    read: Vec<Part>,
    /// Every one that there is was read.
    are_all: bool,
}

impl RedfishClient {
    /// Reads as little as tells the truth: a summary that is well spares its members.
    pub(super) async fn read_health(&self) -> Result<HealthReport, ProviderError> {
        let mut report = HealthReport::new(self.now(), self.source());
        let system = self.system("health").await?;
        self.memory(&system, &mut report).await?;
        // The bus of a machine that is not on has nothing on it: that proves nothing about its GPUs.
        if self.reading(&system, report.at).fact() == PowerFact::On {
            self.processors(&system, &mut report).await?;
            self.pcie(&system, &mut report).await?;
        } else {
            report.not_read.push("processors and GPUs: the machine is not on".to_owned());
        }
        if system.links.chassis.is_empty() {
            report.not_read.push("chassis: the system names none".to_owned());
        }
        for link in &system.links.chassis {
            match self.offered::<Chassis>("health", &link.id).await? {
                Some(chassis) => self.chassis(&chassis, &mut report).await?,
                None => report.not_read.push("chassis".to_owned()),
            }
        }
        // What the parts above explain is not said twice.
        if is_bad(&system.status) && report.evidence.is_empty() {
            found(&mut report, Component::Other, Severity::Warning, "system", &system.status);
        }
        Ok(report)
    }

    async fn memory(&self, system: &System, report: &mut HealthReport) -> Result<(), ProviderError> {
        let rollup = system.memory_summary.as_ref().map(|summary| summary.status.health_rollup.as_str());
        if rollup == Some("OK") {
            return Ok(());
        }
        let Some(modules) = self.parts(system.memory.as_ref(), "memory modules", report).await? else {
            return Ok(());
        };
        for module in modules.read.iter().filter(|module| is_there(&module.status)) {
            if module.status.health == "Critical" {
                found(report, Component::Memory, Severity::Critical, module.called(), &module.status);
                continue;
            }
            let Some(metrics) = &module.metrics else { continue };
            let trips = self.offered::<MemoryMetrics>("health", &metrics.id).await?;
            let trips = trips.and_then(|metrics| metrics.health_data?.alarm_trips);
            match trips {
                Some(trips) if trips.uncorrectable => {
                    report.found(Component::Memory, Severity::Critical, module.called(), "uncorrectable ECC error");
                }
                Some(trips) if trips.correctable => {
                    report.found(Component::Memory, Severity::Warning, module.called(), "correctable ECC errors");
                }
                Some(_) | None if is_bad(&module.status) => {
                    found(report, Component::Memory, Severity::Warning, module.called(), &module.status);
                }
                Some(_) | None => {}
            }
        }
        Ok(())
    }

    async fn processors(&self, system: &System, report: &mut HealthReport) -> Result<(), ProviderError> {
        let Some(Parts { read: parts, are_all }) =
            self.parts(system.processors.as_ref(), "processors and GPUs", report).await?
        else {
            return Ok(());
        };
        let gpus: Vec<_> = parts.iter().filter(|part| part.processor_type == "GPU").collect();
        // One that could not be read, or does not say what it is, may be a GPU on the bus: then there is no count.
        if are_all && !gpus.is_empty() && parts.iter().all(|part| !part.processor_type.is_empty()) {
            let present = gpus.iter().filter(|gpu| is_there(&gpu.status) && !is_gone(&gpu.status)).count();
            report.gpus_present = u32::try_from(present).ok();
        }
        for part in &parts {
            let is_gpu = part.processor_type == "GPU";
            let component = if is_gpu { Component::Gpu } else { Component::Other };
            if is_gpu && is_gone(&part.status) {
                found(report, component, Severity::Critical, part.called(), &part.status);
            } else if is_bad(&part.status) || (is_gpu && part.status.state == "Absent") {
                found(report, component, Severity::Warning, part.called(), &part.status);
            }
        }
        Ok(())
    }

    /// PCIe devices say what they are in their functions only: those are read for the ones that are not well.
    async fn pcie(&self, system: &System, report: &mut HealthReport) -> Result<(), ProviderError> {
        for link in system.pcie_devices.iter().take(MOST_PARTS) {
            let Some(device) = self.offered::<Part>("health", &link.id).await? else {
                report.not_read.push(message::bounded(&format!("PCIe device: {}", link.id)));
                continue;
            };
            if !is_bad(&device.status) && !is_gone(&device.status) {
                continue;
            }
            let gpu = self.is_accelerator(&device).await?;
            let (component, severity) = match (gpu, is_gone(&device.status)) {
                (true, true) => (Component::Gpu, Severity::Critical),
                (true, false) => (Component::Gpu, Severity::Warning),
                (false, _) => (Component::Other, Severity::Warning),
            };
            found(report, component, severity, device.called(), &device.status);
        }
        Ok(())
    }

    async fn is_accelerator(&self, device: &Part) -> Result<bool, ProviderError> {
        let Some(functions) = &device.functions else { return Ok(false) };
        let Some(functions) = self.offered_collection("health", &functions.id).await? else { return Ok(false) };
        for link in functions.members.iter().take(MOST_PARTS) {
            let function = self.offered::<Part>("health", &link.id).await?;
            let class = function.map(|function| function.device_class).unwrap_or_default();
            if matches!(class.as_str(), "DisplayController" | "ProcessingAccelerators") {
                return Ok(true);
            }
        }
        Ok(false)
    }

    async fn chassis(&self, chassis: &Chassis, report: &mut HealthReport) -> Result<(), ProviderError> {
        match self.power_supplies(chassis, report).await? {
            Some(supplies) => {
                for supply in supplies.iter().filter(|supply| is_there(&supply.status)) {
                    if supply.status.health == "Critical" {
                        found(report, Component::PowerSupply, Severity::Critical, supply.called(), &supply.status);
                    } else if is_bad(&supply.status) || supply.status.state == "UnavailableOffline" {
                        found(report, Component::PowerSupply, Severity::Warning, supply.called(), &supply.status);
                    }
                }
            }
            None => report.not_read.push(message::bounded(&format!("power supplies of chassis {}", chassis.id))),
        }
        if let Some(link) = &chassis.thermal
            && let Some(thermal) = self.offered::<Thermal>("health", &link.id).await?
        {
            for part in thermal.temperatures.iter().chain(&thermal.fans).filter(|part| is_bad(&part.status)) {
                found(report, Component::Cooling, Severity::Warning, part.called(), &part.status);
            }
        }
        Ok(())
    }

    /// In the newer form where it is offered, else in the older one.
    async fn power_supplies(
        &self,
        chassis: &Chassis,
        report: &mut HealthReport,
    ) -> Result<Option<Vec<Part>>, ProviderError> {
        if let Some(link) = &chassis.power_subsystem
            && let Some(power) = self.offered::<PowerSubsystem>("health", &link.id).await?
            && power.power_supplies.is_some()
        {
            let supplies = self.parts(power.power_supplies.as_ref(), "power supplies", report).await?;
            return Ok(supplies.map(|supplies| supplies.read));
        }
        let Some(link) = &chassis.power else { return Ok(None) };
        Ok(self.offered::<Power>("health", &link.id).await?.map(|power| power.power_supplies))
    }

    /// The members of a collection; `None`, and told in the report, where it is not offered.
    async fn parts(
        &self,
        link: Option<&super::body::Link>,
        what: &str,
        report: &mut HealthReport,
    ) -> Result<Option<Parts>, ProviderError> {
        let collection = match link {
            Some(link) => self.offered_collection("health", &link.id).await?,
            None => None,
        };
        let Some(Collection { members, next }) = collection else {
            report.not_read.push(what.to_owned());
            return Ok(None);
        };
        let listed = members.len().min(MOST_PARTS);
        if next.is_some() || members.len() > listed {
            report.not_read.push(format!("{what} beyond the first {listed}"));
        }
        let mut read = Vec::new();
        for member in members.iter().take(MOST_PARTS) {
            match self.offered::<Part>("health", &member.id).await? {
                Some(part) => read.push(part),
                None => report.not_read.push(message::bounded(&format!("{what}: {}", member.id))),
            }
        }
        let are_all = next.is_none() && read.len() == members.len();
        Ok(Some(Parts { read, are_all }))
    }
}

fn found(report: &mut HealthReport, component: Component, severity: Severity, part: &str, status: &Status) {
    report.found(component, severity, &message::bounded(part), message::bounded(&status.told()));
}

fn is_bad(status: &Status) -> bool {
    matches!(status.health.as_str(), "Warning" | "Critical")
}

/// Not an empty slot.
fn is_there(status: &Status) -> bool {
    status.state != "Absent"
}

/// There once, and not on the bus any more.
fn is_gone(status: &Status) -> bool {
    status.state == "UnavailableOffline" || (status.health == "Critical" && status.state != "Absent")
}
