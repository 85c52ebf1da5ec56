//! BMCs of hosts: they answer for a machine whatever its agent does, and show what breaks.

use std::sync::Arc;

use async_trait::async_trait;
use lattice_core::bmc::{Bmc, BmcPolicy, Component, HealthReport, PowerReading, PowerSaid, Severity};
use lattice_core::ids::NodeId;
use lattice_core::secret::Secret;
use lattice_core::time::Clock;
use lattice_providers::error::{ErrorKind, ProviderError};
use lattice_providers::machine::bmc::{
    BmcAbout, BmcControl, BmcLogin, BmcObserver, BmcReaders, BootDevice, Caller, DriveSeen, Erasure, Gated, NextBoot,
    PowerOrder, QueueView,
};

use super::acts::{Deed, For};
use super::cloud::{Cloud, Reach};
use super::faults::Fault;
use super::host::{Host, Power};

/// The BMC of a node's host.
pub struct Controller {
    reach: Reach,
    node: NodeId,
    caller: Caller,
}

impl Controller {
    /// As one server reaches it, for somebody.
    pub const fn new(reach: Reach, node: NodeId, caller: Caller) -> Self {
        Self { reach, node, caller }
    }

    /// What one caller looks at: another's look proves nothing to it.
    fn looked_at(&self) -> String {
        format!("{} of {}", self.caller.who, self.node)
    }

    /// The machine of that name, whatever is installed on it.
    fn host(&self, cloud: &Cloud) -> Result<Arc<Host>, ErrorKind> {
        let name = self.reach.ground().model().name(self.node);
        cloud.host(&name).ok_or_else(|| ErrorKind::Unreachable { detail: "no machine has that BMC".to_owned() })
    }

    /// The host, if its BMC takes the login that is known.
    fn login(&self, cloud: &Cloud) -> Result<Arc<Host>, ErrorKind> {
        let host = self.host(cloud)?;
        if host.is_locked() {
            self.reach.ground().faults.befell(Fault::LoginRefused);
            return Err(ErrorKind::Unauthorised { message: "wrong password".to_owned() });
        }
        Ok(host)
    }

    /// The same behind its gate: one call at a time, and none with a login that was refused too often.
    pub fn gated(self, bmc: &Bmc) -> Gated {
        let (gate, caller) = (self.reach.gate(bmc), self.caller.clone());
        let login = BmcLogin { user: "sim".to_owned(), password: Secret::new("sim".to_owned()) };
        let clock = Arc::clone(&self.reach.ground().clock) as Arc<dyn Clock>;
        Gated::new(Arc::new(self), gate, &login, caller, clock)
    }

    /// What is about to be done to the machine is judged.
    fn judge(&self, deed: Deed) {
        let name = self.host(&self.reach.cloud).map(|host| host.name.clone()).unwrap_or_default();
        let whose = For::of_caller(&self.caller.who, &self.caller.why);
        self.reach.judge(deed, (&name, &self.caller.who), whose, &self.looked_at());
    }

    fn source(&self) -> String {
        format!("sim {}", self.node)
    }
}

#[async_trait]
impl BmcObserver for Controller {
    async fn power(&self) -> Result<PowerReading, ProviderError> {
        let at = self.reach.cloud_clock().now();
        let power = self.reach.call("bmc power", |cloud| self.login(cloud).map(|host| host.power())).await?;
        let ground = self.reach.ground();
        let said = match power {
            _ if ground.bmcs.once_in(ground.weather().unknown) => {
                ground.faults.befell(Fault::PowerUnknown);
                PowerSaid::Unknown { why: "it is busy".to_owned() }
            }
            Power::Off => PowerSaid::Off,
            Power::Starting | Power::On => PowerSaid::On,
        };
        let reading = PowerReading { said, at, source: self.source() };
        self.reach.saw(&self.looked_at(), reading.fact(), None);
        Ok(reading)
    }

    async fn health(&self, _: Option<u32>) -> Result<HealthReport, ProviderError> {
        let at = self.reach.cloud_clock().now();
        let broken = self.reach.call("bmc health", |cloud| self.login(cloud).map(|host| host.broken())).await?;
        let mut report = HealthReport::new(at, self.source());
        if broken {
            report.found(Component::PowerSupply, Severity::Critical, "PSU 1", "failed");
        }
        Ok(report)
    }

    async fn next_boot(&self) -> Result<NextBoot, ProviderError> {
        Ok(NextBoot::Usual)
    }

    async fn about(&self) -> Result<BmcAbout, ProviderError> {
        Ok(BmcAbout::default())
    }

    async fn drives(&self) -> Result<Vec<DriveSeen>, ProviderError> {
        let drives = self.reach.call("bmc drives", |cloud| self.login(cloud).map(|host| host.drives())).await?;
        let drive = |id: String| DriveSeen { name: format!("simulated {id}"), id, erasable: true };
        Ok(drives.into_iter().map(drive).collect())
    }
}

#[async_trait]
impl BmcControl for Controller {
    async fn order(&self, order: PowerOrder) -> Result<(), ProviderError> {
        let deed = match order {
            PowerOrder::On => Deed::On,
            PowerOrder::Off | PowerOrder::SoftOff | PowerOrder::Cycle => Deed::Off,
        };
        self.judge(deed);
        self.reach
            .call("bmc order", |cloud| {
                let host = self.login(cloud)?;
                match order {
                    PowerOrder::On => host.switch_on(),
                    PowerOrder::Off | PowerOrder::SoftOff => host.cut_power(),
                    PowerOrder::Cycle => host.reboot(),
                }
                Ok(())
            })
            .await
    }

    async fn offers_boot(&self, _: BootDevice) -> Result<(), ProviderError> {
        Ok(())
    }

    async fn boot_once(&self, _: BootDevice) -> Result<(), ProviderError> {
        Ok(())
    }

    async fn erase(&self, drive: &str, name: &str) -> Result<Erasure, ProviderError> {
        self.judge(Deed::Erase);
        let begun = self.reach.call("bmc erase", |cloud| {
            let host = self.login(cloud)?;
            if name != format!("simulated {drive}") {
                return Ok(Erasure::Another { name: format!("simulated {drive}") });
            }
            let task = host.begin_erase(drive);
            let task = task.ok_or_else(|| ErrorKind::NotFound { message: "there is no such drive".to_owned() })?;
            self.reach.ground().faults.befell(Fault::DriveErased);
            Ok(Erasure::Running { task })
        });
        begun.await
    }

    async fn erasure(&self, task: &str) -> Result<Erasure, ProviderError> {
        let ground = self.reach.ground();
        let asked = self.reach.call("bmc erasure", |cloud| {
            let host = self.login(cloud)?;
            if ground.bmcs.once_in(ground.weather().unknown / 2) {
                ground.faults.befell(Fault::ErasureForgotten);
                host.forget_erasures();
            }
            match host.is_erased(task) {
                Some(true) => Ok(Erasure::SaidDone),
                Some(false) => Ok(Erasure::Running { task: task.to_owned() }),
                None => Err(ErrorKind::NotFound { message: "there is no such task".to_owned() }),
            }
        });
        asked.await
    }
}

#[async_trait]
impl BmcReaders for Reach {
    async fn reader(&self, bmc: &Bmc, _: &BmcPolicy, caller: Caller) -> Result<Arc<dyn BmcObserver>, ProviderError> {
        Ok(Arc::new(Controller::new(self.clone(), bmc.node, caller).gated(bmc)))
    }

    fn queue(&self, bmc: &Bmc) -> QueueView {
        self.gate(bmc).view()
    }
}
