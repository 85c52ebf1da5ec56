//! Power, next boot, drives.

use async_trait::async_trait;
use http::{Method, StatusCode};
use lattice_core::bmc::{HealthReport, PowerReading};
use lattice_core::node::PowerFact;
use serde_json::json;

use super::body::{Collection, Drive, Manager, ResetAction, Storage, System};
use super::client::{RedfishClient, read};
use super::task::TaskSeen;
use crate::error::{ErrorKind, ProviderError};
use crate::machine::bmc::{BmcAbout, BmcControl, BmcObserver, BootDevice, DriveSeen, Erasure, NextBoot, PowerOrder};

/// Drives that are read: a storage server has some dozens.
const MOST_DRIVES: usize = 256;

#[async_trait]
impl BmcObserver for RedfishClient {
    async fn power(&self) -> Result<PowerReading, ProviderError> {
        let asked_at = self.now();
        let system = self.system("power").await?;
        Ok(self.reading(&system, asked_at))
    }

    async fn health(&self, _: Option<u32>) -> Result<HealthReport, ProviderError> {
        self.read_health().await
    }

    async fn next_boot(&self) -> Result<NextBoot, ProviderError> {
        let boot = self.system("next_boot").await?.boot;
        let device = match boot.target.as_str() {
            "Pxe" => Some(BootDevice::Pxe),
            "Hdd" => Some(BootDevice::Disk),
            _ => None,
        };
        Ok(match (boot.enabled.as_str(), device) {
            ("Disabled" | "", _) => NextBoot::Usual,
            ("Once", Some(device)) => NextBoot::Once(device),
            ("Continuous", Some(device)) => NextBoot::Always(device),
            (enabled, _) => NextBoot::Other(crate::message::bounded(&format!("{} {enabled}", boot.target))),
        })
    }

    async fn about(&self) -> Result<BmcAbout, ProviderError> {
        let root = self.root().await?;
        let system = self.system("about").await?;
        let mut about = BmcAbout {
            vendor: if system.manufacturer.is_empty() { root.vendor } else { system.manufacturer },
            model: system.model,
            ..BmcAbout::default()
        };
        if let Some(managers) = root.managers
            && let Some(managers) = self.offered::<Collection>("about", &managers.id).await?
            && let Some(first) = managers.members.first()
            && let Some(manager) = self.offered::<Manager>("about", &first.id).await?
        {
            about.firmware = manager.firmware_version;
        }
        let offers = [
            ("power control", system.actions.reset.is_some()),
            ("memory modules", system.memory.is_some()),
            ("processors and GPUs", system.processors.is_some()),
            ("drives", system.storage.is_some()),
        ];
        about.not_offered = offers.iter().filter(|(_, offered)| !offered).map(|(name, _)| (*name).to_owned()).collect();
        Ok(about)
    }

    async fn drives(&self) -> Result<Vec<DriveSeen>, ProviderError> {
        let call = "drives";
        let none = || ProviderError::not_offered("redfish drives", "this BMC lists no drives");
        let storage = self.system(call).await?.storage.ok_or_else(none)?;
        let Collection { members: subsystems, next } =
            self.offered_collection(call, &storage.id).await?.ok_or_else(none)?;
        if next.is_some() {
            return Err(ProviderError::malformed("redfish drives", "the BMC lists more storage than it gives"));
        }
        let mut drives = Vec::new();
        for subsystem in &subsystems {
            for link in self.get::<Storage>(call, &subsystem.id).await?.drives {
                if drives.len() == MOST_DRIVES {
                    return Err(ProviderError::malformed("redfish drives", "the BMC lists more than 256 drives"));
                }
                let drive: Drive = self.get(call, &link.id).await?;
                let erasable = drive.actions.secure_erase.is_some();
                drives.push(DriveSeen { name: name_of(&drive), id: link.id, erasable });
            }
        }
        Ok(drives)
    }
}

#[async_trait]
impl BmcControl for RedfishClient {
    async fn order(&self, order: PowerOrder) -> Result<(), ProviderError> {
        let call: &'static str = order.into();
        let asked_at = self.now();
        let system = self.system(call).await?;
        let before = self.reading(&system, asked_at).fact();
        if is_there(order, before) {
            return Ok(());
        }
        let action = system.actions.reset.ok_or_else(|| {
            ProviderError::not_offered(format!("redfish {call}"), "this BMC offers no reset of its system")
        })?;
        let word = reset_type(order, &action).ok_or_else(|| {
            ProviderError::not_offered(
                format!("redfish {call}"),
                format!("the BMC knows only {}", action.allowed.join(", ")),
            )
        })?;
        let sent = self.send(call, Method::POST, &action.target, Some(&json!({ "ResetType": word })), None).await;
        let outcome = match sent {
            Ok(answer) => self.finished(call, &answer).await,
            Err(error) => Err(error),
        };
        match outcome {
            // It went there between the look and the order: many BMCs refuse an order that changes nothing.
            Err(error) if matches!(error.kind, ErrorKind::Refused { .. }) => match self.power().await {
                Ok(reading) if is_there(order, reading.fact()) => Ok(()),
                Ok(_) | Err(_) => Err(error),
            },
            other => other,
        }
    }

    async fn offers_boot(&self, device: BootDevice) -> Result<(), ProviderError> {
        let system: System = self.get("offers_boot", self.system_path().await?).await?;
        offered(&system, target_of(device))
    }

    async fn boot_once(&self, device: BootDevice) -> Result<(), ProviderError> {
        let call = "boot_once";
        let target = target_of(device);
        let body = json!({ "Boot": { "BootSourceOverrideEnabled": "Once", "BootSourceOverrideTarget": target } });
        // A version that is lost to another writer is read once more; a second loss is told.
        for last in [false, true] {
            let path = self.system_path().await?;
            let answer = self.send(call, Method::GET, path, None, None).await?;
            let system: System = read(call, &answer.body)?;
            offered(&system, target)?;
            let etag = answer.etag().or(system.etag);
            match self.send(call, Method::PATCH, path, Some(&body), etag.as_deref()).await {
                Ok(answer) => return self.finished(call, &answer).await,
                Err(error) if is_stale(&error) && !last => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    async fn erase(&self, drive: &str, name: &str) -> Result<Erasure, ProviderError> {
        let call = "erase";
        let seen: Drive = self.get(call, drive).await?;
        let there = name_of(&seen);
        if there != name {
            return Ok(Erasure::Another { name: there });
        }
        let Some(action) = seen.actions.secure_erase else {
            return Err(ProviderError::not_offered("redfish erase", "this BMC offers no secure erase of the drive"));
        };
        let answer = self.send(call, Method::POST, &action.target, Some(&json!({})), None).await?;
        match (answer.status, answer.location()) {
            (StatusCode::ACCEPTED, Some(task)) => Ok(Erasure::Running { task }),
            (StatusCode::ACCEPTED, None) => {
                let detail = "it took the order, and does not say where it tells of its end".to_owned();
                Err(ProviderError::new("redfish erase", ErrorKind::Ambiguous { detail }))
            }
            (_, _) => Ok(Erasure::SaidDone),
        }
    }

    async fn erasure(&self, task: &str) -> Result<Erasure, ProviderError> {
        match self.known_task("erasure", task).await {
            Ok(TaskSeen::Done) => Ok(Erasure::SaidDone),
            Ok(TaskSeen::Running { .. }) => Ok(Erasure::Running { task: task.to_owned() }),
            // Some services answer for a task that failed, or is gone, with the failure itself.
            Err(ProviderError { kind: ErrorKind::Refused { status, message }, .. }) => {
                let message = crate::message::bounded(&format!("status {status}: {message}"));
                Err(ProviderError::new("redfish erasure", ErrorKind::PowerFailed { message }))
            }
            Err(other) => Err(other),
        }
    }
}

/// Name, model and serial number.
fn name_of(drive: &Drive) -> String {
    let words = [&drive.name, &drive.model, &drive.serial_number];
    let words: Vec<_> = words.into_iter().filter(|text| !text.is_empty()).map(String::as_str).collect();
    crate::message::bounded(&words.join(" "))
}

const fn is_stale(error: &ProviderError) -> bool {
    matches!(error.kind, ErrorKind::Refused { status: 412, .. })
}

const fn is_there(order: PowerOrder, power: PowerFact) -> bool {
    match order {
        PowerOrder::On => matches!(power, PowerFact::On),
        PowerOrder::Off | PowerOrder::SoftOff => matches!(power, PowerFact::Off),
        PowerOrder::Cycle => false,
    }
}

/// The service's word for an order: the first of ours that it knows. One that lists none is told the standard's first.
fn reset_type(order: PowerOrder, action: &ResetAction) -> Option<&'static str> {
    let words: &[&str] = match order {
        PowerOrder::On => &["On", "ForceOn"],
        PowerOrder::Off => &["ForceOff"],
        PowerOrder::SoftOff => &["GracefulShutdown"],
        PowerOrder::Cycle => &["PowerCycle", "ForceRestart"],
    };
    let knows = |word: &&&str| action.allowed.is_empty() || action.allowed.iter().any(|allowed| allowed == **word);
    words.iter().find(knows).copied()
}
const fn target_of(device: BootDevice) -> &'static str {
    match device {
        BootDevice::Pxe => "Pxe",
        BootDevice::Disk => "Hdd",
    }
}

/// A BMC that lists nothing may have it.
fn offered(system: &System, target: &str) -> Result<(), ProviderError> {
    let allowed = &system.boot.allowed;
    if allowed.is_empty() || allowed.iter().any(|allowed| allowed == target) {
        return Ok(());
    }
    let what = format!("the BMC can start from {} only", allowed.join(", "));
    Err(ProviderError::not_offered("redfish boot_once", what))
}
