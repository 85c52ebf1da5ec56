//! Power, next boot, and what IPMI does not offer.

use async_trait::async_trait;
use lattice_core::bmc::{HealthReport, PowerReading, PowerSaid};
use lattice_core::node::PowerFact;

use super::tool::{Effect, IpmiClient};
use crate::error::{ErrorKind, ProviderError};
use crate::machine::bmc::{BmcAbout, BmcControl, BmcObserver, BootDevice, DriveSeen, Erasure, NextBoot, PowerOrder};
use crate::message;

#[async_trait]
impl BmcObserver for IpmiClient {
    async fn power(&self) -> Result<PowerReading, ProviderError> {
        let at = self.now();
        let text = self.run("power", Effect::Reads, &["chassis", "power", "status"]).await?;
        Ok(PowerReading { said: power_said(&text), at, source: self.source().to_owned() })
    }

    async fn health(&self, since: Option<u32>) -> Result<HealthReport, ProviderError> {
        self.read_health(since).await
    }

    async fn next_boot(&self) -> Result<NextBoot, ProviderError> {
        let text = self.run("next_boot", Effect::Reads, &["chassis", "bootparam", "get", "5"]).await?;
        next_boot(&text)
    }

    async fn about(&self) -> Result<BmcAbout, ProviderError> {
        let text = self.run("about", Effect::Reads, &["mc", "info"]).await?;
        let value = |name: &str| {
            let line = text.lines().find(|line| line.starts_with(name));
            line.and_then(|line| line.split_once(':')).map_or_else(String::new, |(_, value)| message::bounded(value))
        };
        Ok(BmcAbout {
            vendor: value("Manufacturer Name"),
            model: value("Product Name"),
            firmware: value("Firmware Revision"),
            not_offered: vec!["drives and their secure erase".to_owned()],
        })
    }

    async fn drives(&self) -> Result<Vec<DriveSeen>, ProviderError> {
        Err(ProviderError::not_offered("ipmi drives", "IPMI knows no drives"))
    }
}

#[async_trait]
impl BmcControl for IpmiClient {
    async fn order(&self, order: PowerOrder) -> Result<(), ProviderError> {
        let call: &'static str = order.into();
        let word = match order {
            PowerOrder::On => "on",
            PowerOrder::Off => "off",
            PowerOrder::SoftOff => "soft",
            PowerOrder::Cycle => "cycle",
        };
        let outcome = self.run(call, Effect::Changes, &["chassis", "power", word]).await;
        let there = match order {
            PowerOrder::On => PowerFact::On,
            PowerOrder::Off | PowerOrder::SoftOff => PowerFact::Off,
            PowerOrder::Cycle => return outcome.map(drop),
        };
        match outcome {
            // "Not in the present state" is a failure to some BMCs. The state says whether it is one to us.
            Err(error) if matches!(error.kind, ErrorKind::PowerFailed { .. }) => match self.power().await {
                Ok(reading) if reading.fact() == there => Ok(()),
                Ok(_) | Err(_) => Err(error),
            },
            other => other.map(drop),
        }
    }

    /// IPMI knows all of them, and tells nobody which of them the machine has.
    async fn offers_boot(&self, _: BootDevice) -> Result<(), ProviderError> {
        Ok(())
    }

    async fn boot_once(&self, device: BootDevice) -> Result<(), ProviderError> {
        let word = match device {
            BootDevice::Pxe => "pxe",
            BootDevice::Disk => "disk",
        };
        self.run("boot_once", Effect::Changes, &["chassis", "bootdev", word]).await.map(drop)
    }

    async fn erase(&self, _: &str, _: &str) -> Result<Erasure, ProviderError> {
        Err(ProviderError::not_offered("ipmi erase", "IPMI has no secure erase: use Redfish or the node's agent"))
    }

    async fn erasure(&self, _: &str) -> Result<Erasure, ProviderError> {
        Err(ProviderError::not_offered("ipmi erasure", "IPMI has no secure erase: use Redfish or the node's agent"))
    }
}

fn power_said(text: &str) -> PowerSaid {
    match text.trim() {
        "Chassis Power is on" => PowerSaid::On,
        "Chassis Power is off" => PowerSaid::Off,
        other => PowerSaid::Unknown { why: message::bounded(&format!("ipmitool said `{other}`")) },
    }
}

fn next_boot(text: &str) -> Result<NextBoot, ProviderError> {
    let data = text.lines().find_map(|line| line.strip_prefix("Boot parameter data: "));
    let bytes = data.and_then(|data| hex::decode(data.trim()).ok()).filter(|bytes| bytes.len() >= 2);
    let Some([flags, device, ..]) = bytes.as_deref() else {
        return Err(ProviderError::malformed("ipmi next_boot", "ipmitool printed no boot flags"));
    };
    // IPMI 2.0 28.13, parameter 5: bit 6 of the first byte is "persistent", bits 5 to 2 of the second the device.
    let once = flags & 0x40 == 0;
    Ok(match (device >> 2) & 0x0f {
        0 => NextBoot::Usual,
        1 if once => NextBoot::Once(BootDevice::Pxe),
        2 if once => NextBoot::Once(BootDevice::Disk),
        1 => NextBoot::Always(BootDevice::Pxe),
        2 => NextBoot::Always(BootDevice::Disk),
        other => NextBoot::Other(format!("device {other}")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_for_power_that_is_neither_on_nor_off_is_unknown() {
        assert_eq!(power_said("Chassis Power is on\n"), PowerSaid::On);
        assert_eq!(power_said("Chassis Power is off\n"), PowerSaid::Off);
        for odd in ["", "Chassis Power is unknown", "Chassis Power is offline"] {
            assert!(matches!(power_said(odd), PowerSaid::Unknown { .. }), "{odd}");
        }
    }

    #[test]
    fn boot_flags_are_read_from_their_bytes() {
        let of = |data: &str| next_boot(&format!("Boot parameter version: 1\nBoot parameter data: {data}\n"));
        assert_eq!(of("8004000000"), Ok(NextBoot::Once(BootDevice::Pxe)));
        assert_eq!(of("c008000000"), Ok(NextBoot::Always(BootDevice::Disk)));
        assert_eq!(of("0000000000"), Ok(NextBoot::Usual));
        assert_eq!(of("8014000000"), Ok(NextBoot::Other("device 5".to_owned())));
        assert!(next_boot("nothing").is_err());
    }
}
