//! What sensors and event log of an IPMI BMC say is wrong. spec: S1 "Any → Down (hardware failure)"

use lattice_core::bmc::{Component, HealthReport, Severity};

use super::tool::{Effect, IpmiClient};
use crate::error::{ErrorKind, ProviderError};
use crate::message;

/// Findings of one report that are kept: an event log may repeat one fault a thousand times.
const MOST: usize = 64;

impl IpmiClient {
    pub(super) async fn read_health(&self, since: Option<u32>) -> Result<HealthReport, ProviderError> {
        let mut report = HealthReport::new(self.now(), self.source());
        // ipmitool fills an empty repository when it is listed, and this must only read: the count is asked first.
        let count = match self.run("health", Effect::Reads, &["sdr", "info"]).await {
            Ok(text) => number_of(&text, "Record Count").unwrap_or(0),
            Err(error) if is_not_offered(&error) => 0,
            Err(error) => return Err(error),
        };
        if count == 0 {
            report.not_read.push("sensors: the BMC has no records of them".to_owned());
        } else {
            let text = self.listing("health", Effect::Reads, &["sdr", "elist", "all"]).await?;
            for line in text.lines() {
                sensor(line, &mut report);
            }
        }
        match self.listing("health", Effect::Reads, &["sel", "elist"]).await {
            Ok(text) => self.log(&text, since, &mut report).await?,
            Err(error) if is_not_offered(&error) => report.not_read.push("event log".to_owned()),
            Err(error) => return Err(error),
        }
        report.not_read.push("GPUs, but for sensors that name them".to_owned());
        Ok(report)
    }

    /// Reads the log from where the last look ended. A log that ends before that was cleared, and begins anew with its
    /// first entry; unless it was not listed to its end, which its own count tells.
    async fn log(&self, text: &str, since: Option<u32>, report: &mut HealthReport) -> Result<(), ProviderError> {
        let ids: Vec<u32> = text.lines().filter_map(entry_id).collect();
        // An empty log has a beginning too: what comes later is new.
        let newest = ids.iter().copied().max().unwrap_or(0);
        report.log_position = Some(newest);
        let Some(position) = since else { return Ok(()) };
        if newest >= position {
            events(text, position, report);
            return Ok(());
        }
        let count = match self.run("health", Effect::Reads, &["sel", "info"]).await {
            Ok(info) => number_of(&info, "Entries"),
            Err(error) if is_not_offered(&error) => None,
            Err(error) => return Err(error),
        };
        if count.is_some_and(|count| usize::try_from(count) == Ok(ids.len())) {
            events(text, 0, report);
        } else {
            report.not_read.push("event log: it was not listed to its end".to_owned());
            report.log_position = since;
        }
        Ok(())
    }
}

const fn is_not_offered(error: &ProviderError) -> bool {
    matches!(error.kind, ErrorKind::NotOffered { .. })
}

fn number_of(text: &str, what: &str) -> Option<u32> {
    text.lines().find_map(|line| line.strip_prefix(what)?.split_once(':')?.1.trim().parse().ok())
}

fn entry_id(line: &str) -> Option<u32> {
    let (id, _) = line.split_once('|')?;
    u32::from_str_radix(id.trim(), 16).ok()
}

/// A line of `sdr elist`: name | number | status | entity | states.
fn sensor(line: &str, report: &mut HealthReport) {
    let fields: Vec<_> = line.split('|').map(str::trim).collect();
    let &[name, _, status, entity, states] = fields.as_slice() else { return };
    for state in states.split(',').map(str::trim).filter(|state| !state.is_empty()) {
        if let Some((component, severity)) = meaning(name, entity, state) {
            add(report, component, severity, name, state);
        }
    }
    // A threshold that is crossed: critical to the sensor, a warning to the node.
    if matches!(status, "cr" | "nr" | "nc") {
        let level = if status == "nc" { "beyond its warning threshold" } else { "beyond its critical threshold" };
        add(report, Component::Cooling, Severity::Warning, name, &format!("{level}: {states}"));
    }
}

/// Entries after `since`, in the log's own order; those that were taken back by a later one do not stand.
fn events(text: &str, since: u32, report: &mut HealthReport) {
    let mut standing: Vec<(&str, &str)> = Vec::new();
    for line in text.lines().filter(|line| entry_id(line).is_some_and(|id| id > since)) {
        let fields: Vec<_> = line.split('|').map(str::trim).collect();
        let [_, _, _, sensor, state, direction, ..] = fields.as_slice() else { continue };
        match *direction {
            "Asserted" => standing.push((sensor, state)),
            "Deasserted" => standing.retain(|event| event != &(*sensor, *state)),
            _ => {}
        }
    }
    standing.dedup();
    for (sensor, state) in standing {
        if let Some((component, severity)) = meaning(sensor, "", state) {
            add(report, component, severity, sensor, state);
        }
    }
}

fn add(report: &mut HealthReport, component: Component, severity: Severity, part: &str, detail: &str) {
    let part = message::bounded(part);
    let detail = message::bounded(detail);
    let known = report.evidence.iter().any(|evidence| {
        evidence.detail == detail && (part.ends_with(&evidence.part) || evidence.part.ends_with(&part))
    });
    if !known && report.evidence.len() < MOST {
        report.found(component, severity, &part, detail);
    }
}

/// What a discrete state says of which part; none: it is well, or nothing to us. Words of IPMI 2.0, table 42-3.
fn meaning(sensor: &str, entity: &str, state: &str) -> Option<(Component, Severity)> {
    let name = sensor.to_ascii_lowercase();
    let gpu = name.contains("gpu");
    let supply =
        entity.starts_with("10.") || name.contains("power supply") || name.starts_with("psu") || name.starts_with("ps");
    Some(match state {
        "Failure detected" if supply => (Component::PowerSupply, Severity::Critical),
        "Predictive failure"
        | "Power Supply AC lost"
        | "AC lost or out-of-range"
        | "AC out-of-range, but present"
        | "Config Error"
        | "Power Supply Inactive"
            if supply =>
        {
            (Component::PowerSupply, Severity::Warning)
        }
        "Uncorrectable ECC" => (Component::Memory, Severity::Critical),
        "Correctable ECC"
        | "Correctable ECC logging limit reached"
        | "Parity"
        | "Memory Device Disabled"
        | "Memory Scrub Failed"
        | "Configuration error"
        | "Critical Overtemperature" => (Component::Memory, Severity::Warning),
        "Bus Fatal Error" | "Bus Uncorrectable error" | "Device Absent" | "Device Removed" | "Device disabled"
            if gpu =>
        {
            (Component::Gpu, Severity::Critical)
        }
        "Bus Fatal Error" | "Bus Uncorrectable error" | "PCI PERR" | "PCI SERR" | "Bus Degraded" => {
            (Component::Other, Severity::Warning)
        }
        "Drive Fault" | "Predictive Failure" | "In Failed Array" => (Component::Storage, Severity::Warning),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use lattice_core::time::Timestamp;

    fn report() -> HealthReport {
        HealthReport::new(Timestamp::from_millis(1), "ipmi 10.0.0.7")
    }

    #[track_caller]
    fn check(report: &HealthReport, want: &[&str]) {
        let told: Vec<_> = report.evidence.iter().map(|evidence| format!("{} {evidence}", evidence.severity)).collect();
        assert_eq!(told, want);
    }

    #[test]
    fn sensors_say_what_failed() {
        let mut report = report();
        for line in [
            "PSU1             | 01h | ok  | 10.1 | Presence detected, Failure detected",
            "PSU2             | 02h | ok  | 10.2 | Presence detected, Power Supply AC lost",
            "DIM1             | 03h | ok  | 32.1 | Uncorrectable ECC",
            "DIM2             | 04h | ok  | 32.2 | Correctable ECC",
            "GPU0             | 05h | ok  | 11.1 | Bus Uncorrectable error",
            "NIC0             | 06h | ok  | 11.2 | Bus Uncorrectable error",
            "Inlet Temp       | 07h | cr  |  7.1 | 52 degrees C",
            "CPU Temp         | 08h | ok  |  3.1 | 40 degrees C",
            "Fan 1            | 09h | ns  | 29.1 | No Reading",
            "garbage",
        ] {
            sensor(line, &mut report);
        }
        check(
            &report,
            &[
                "critical power_supply PSU1: Failure detected",
                "warning power_supply PSU2: Power Supply AC lost",
                "critical memory DIM1: Uncorrectable ECC",
                "warning memory DIM2: Correctable ECC",
                "critical gpu GPU0: Bus Uncorrectable error",
                "warning other NIC0: Bus Uncorrectable error",
                "warning cooling Inlet Temp: beyond its critical threshold: 52 degrees C",
            ],
        );
    }

    const LOG: &str = "   1 |  Pre-Init  |0000024192| Power Supply PSU1 | Failure detected | Asserted\n\
                       \u{20}  2 | 11/21/2026 | 10:00:00 | Memory DIM1 | Uncorrectable ECC | Asserted\n\
                       \u{20}  3 | 11/21/2026 | 10:00:01 | Power Supply PSU2 | Failure detected | Asserted\n\
                       \u{20}  a | 11/21/2026 | 10:00:02 | Power Supply PSU2 | Failure detected | Deasserted\n";

    #[test]
    fn a_log_s_old_entries_are_history_and_its_new_ones_evidence() {
        let mut later = report();
        events(LOG, 1, &mut later);
        check(&later, &["critical memory Memory DIM1: Uncorrectable ECC"]);
        let mut all_seen = report();
        events(LOG, 10, &mut all_seen);
        check(&all_seen, &[]);
        assert_eq!(LOG.lines().filter_map(entry_id).max(), Some(10));
        assert_eq!(entry_id("SEL has no entries"), None);
    }

    #[test]
    fn an_empty_repository_is_not_listed_since_that_would_fill_it() {
        let count = |text: &str| number_of(text, "Record Count");
        assert_eq!(count("SDR Version : 0x51\nRecord Count                        : 0\n"), Some(0));
        assert_eq!(count("Record Count                        : 31\n"), Some(31));
        assert_eq!(count("nothing"), None);
    }
}
