//! What a Redfish service answers, as far as it is read. Everything may be absent or null.

use serde::{Deserialize, Deserializer};

/// A reference to another resource.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Link {
    #[serde(rename = "@odata.id")]
    pub(super) id: String,
}

/// The service's root.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Root {
    pub(super) systems: Option<Link>,
    pub(super) managers: Option<Link>,
    #[serde(default, deserialize_with = "nullable")]
    pub(super) vendor: String,
}

/// Any collection, or a page of one.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Collection {
    #[serde(default)]
    pub(super) members: Vec<Link>,
    /// Where it goes on.
    #[serde(rename = "Members@odata.nextLink")]
    pub(super) next: Option<String>,
}

/// A machine.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct System {
    #[serde(default, deserialize_with = "nullable")]
    pub(super) manufacturer: String,
    #[serde(default, deserialize_with = "nullable")]
    pub(super) model: String,
    pub(super) power_state: Option<String>,
    #[serde(default, deserialize_with = "nullable")]
    pub(super) boot: Boot,
    #[serde(default, deserialize_with = "nullable")]
    pub(super) status: Status,
    pub(super) memory_summary: Option<Summary>,
    pub(super) memory: Option<Link>,
    pub(super) processors: Option<Link>,
    pub(super) storage: Option<Link>,
    #[serde(default, rename = "PCIeDevices", deserialize_with = "nullable")]
    pub(super) pcie_devices: Vec<Link>,
    #[serde(default, deserialize_with = "nullable")]
    pub(super) links: SystemLinks,
    #[serde(default, deserialize_with = "nullable")]
    pub(super) actions: SystemActions,
    #[serde(rename = "@odata.etag")]
    pub(super) etag: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct SystemLinks {
    #[serde(default, deserialize_with = "nullable")]
    pub(super) chassis: Vec<Link>,
}

#[derive(Debug, Default, Deserialize)]
pub(super) struct SystemActions {
    #[serde(rename = "#ComputerSystem.Reset")]
    pub(super) reset: Option<ResetAction>,
}

/// An action and what it takes.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct ResetAction {
    pub(super) target: String,
    #[serde(default, rename = "ResetType@Redfish.AllowableValues", deserialize_with = "nullable")]
    pub(super) allowed: Vec<String>,
}

/// What a machine starts from.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Boot {
    #[serde(default, rename = "BootSourceOverrideEnabled", deserialize_with = "nullable")]
    pub(super) enabled: String,
    #[serde(default, rename = "BootSourceOverrideTarget", deserialize_with = "nullable")]
    pub(super) target: String,
    #[serde(default, rename = "BootSourceOverrideTarget@Redfish.AllowableValues", deserialize_with = "nullable")]
    pub(super) allowed: Vec<String>,
}

/// State and health of any resource.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Status {
    #[serde(default, deserialize_with = "nullable")]
    pub(super) state: String,
    #[serde(default, deserialize_with = "nullable")]
    pub(super) health: String,
}

impl Status {
    /// In words, as the service said it.
    pub(super) fn told(&self) -> String {
        let or = |word: &str| if word.is_empty() { "not said".to_owned() } else { word.to_owned() };
        format!("health {}, state {}", or(&self.health), or(&self.state))
    }
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Summary {
    #[serde(default, deserialize_with = "nullable")]
    pub(super) status: SummaryStatus,
}

/// A summary rolls its members up, in one of two spellings.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct SummaryStatus {
    #[serde(default, alias = "HealthRollUp", deserialize_with = "nullable")]
    pub(super) health_rollup: String,
}

/// A memory module, a processor, a PCIe device, a power supply: what they have in common.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Part {
    #[serde(default, deserialize_with = "nullable")]
    pub(super) id: String,
    #[serde(default, deserialize_with = "nullable")]
    pub(super) name: String,
    #[serde(default, deserialize_with = "nullable")]
    pub(super) status: Status,
    #[serde(default, deserialize_with = "nullable")]
    pub(super) processor_type: String,
    pub(super) metrics: Option<Link>,
    #[serde(default, rename = "PCIeFunctions", deserialize_with = "nullable")]
    pub(super) functions: Option<Link>,
    #[serde(default, deserialize_with = "nullable")]
    pub(super) device_class: String,
}

impl Part {
    /// What people call it.
    pub(super) fn called(&self) -> &str {
        if self.name.is_empty() { &self.id } else { &self.name }
    }
}

/// What a memory module counts.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct MemoryMetrics {
    pub(super) health_data: Option<MemoryHealth>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct MemoryHealth {
    pub(super) alarm_trips: Option<AlarmTrips>,
}

#[derive(Debug, Deserialize)]
pub(super) struct AlarmTrips {
    #[serde(default, rename = "UncorrectableECCError", deserialize_with = "nullable")]
    pub(super) uncorrectable: bool,
    #[serde(default, rename = "CorrectableECCError", deserialize_with = "nullable")]
    pub(super) correctable: bool,
}

/// A chassis.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Chassis {
    #[serde(default, deserialize_with = "nullable")]
    pub(super) id: String,
    pub(super) power: Option<Link>,
    pub(super) power_subsystem: Option<Link>,
    pub(super) thermal: Option<Link>,
}

/// A chassis' power, in the older form.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Power {
    #[serde(default, deserialize_with = "nullable")]
    pub(super) power_supplies: Vec<Part>,
}

/// A chassis' power, in the newer form.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct PowerSubsystem {
    pub(super) power_supplies: Option<Link>,
}

/// Temperatures and fans.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Thermal {
    #[serde(default, deserialize_with = "nullable")]
    pub(super) temperatures: Vec<Part>,
    #[serde(default, deserialize_with = "nullable")]
    pub(super) fans: Vec<Part>,
}

/// The controller and drives of a storage subsystem.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Storage {
    #[serde(default, deserialize_with = "nullable")]
    pub(super) drives: Vec<Link>,
}

/// A drive.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Drive {
    #[serde(default, deserialize_with = "nullable")]
    pub(super) name: String,
    #[serde(default, deserialize_with = "nullable")]
    pub(super) model: String,
    #[serde(default, deserialize_with = "nullable")]
    pub(super) serial_number: String,
    #[serde(default, deserialize_with = "nullable")]
    pub(super) actions: DriveActions,
}

#[derive(Debug, Default, Deserialize)]
pub(super) struct DriveActions {
    #[serde(rename = "#Drive.SecureErase")]
    pub(super) secure_erase: Option<Target>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Target {
    pub(super) target: String,
}

/// The BMC itself.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Manager {
    #[serde(default, deserialize_with = "nullable")]
    pub(super) firmware_version: String,
}

/// A task, or the monitor of one.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Task {
    #[serde(default, deserialize_with = "nullable")]
    pub(super) task_state: String,
    #[serde(default, deserialize_with = "nullable")]
    pub(super) task_status: String,
    #[serde(default, deserialize_with = "nullable")]
    pub(super) messages: Vec<Message>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Message {
    #[serde(default, deserialize_with = "nullable")]
    pub(super) message: String,
}

/// A service's error.
#[derive(Debug, Deserialize)]
pub(super) struct ErrorBody {
    pub(super) error: ErrorDetail,
}

#[derive(Debug, Deserialize)]
pub(super) struct ErrorDetail {
    #[serde(default, deserialize_with = "nullable")]
    pub(super) message: String,
    #[serde(default, rename = "@Message.ExtendedInfo", deserialize_with = "nullable")]
    pub(super) extended: Vec<Message>,
}

impl ErrorBody {
    /// The most telling words: those of the extended information, which name the property.
    pub(super) fn told(&self) -> &str {
        let extended = self.error.extended.iter().map(|message| message.message.as_str());
        extended.chain([self.error.message.as_str()]).find(|text| !text.is_empty()).unwrap_or("no reason given")
    }
}

/// Null is as good as absent.
fn nullable<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(deserializer: D) -> Result<T, D::Error> {
    Option::<T>::deserialize(deserializer).map(Option::unwrap_or_default)
}
