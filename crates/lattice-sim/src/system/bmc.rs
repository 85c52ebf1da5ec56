//! BMCs of hosts: they answer for a machine whatever its agent does, and show what breaks.

use std::sync::Arc;

use async_trait::async_trait;
use lattice_core::bmc::{Bmc, BmcPolicy, BreakerState, Component, HealthReport, PowerReading, PowerSaid, Severity};
use lattice_core::ids::NodeId;
use lattice_providers::error::{ErrorKind, ProviderError};
use lattice_providers::machine::bmc::{
    BmcAbout, BmcControl, BmcObserver, BmcReaders, BootDevice, Caller, DriveSeen, Erasure, NextBoot, PowerOrder,
    QueueView,
};

use super::cloud::{Cloud, Reach};
use super::host::{Host, Power};

/// The BMC of a node's host.
pub struct Controller {
    reach: Reach,
    node: NodeId,
}

impl Controller {
    /// As one server reaches it.
    pub const fn new(reach: Reach, node: NodeId) -> Self {
        Self { reach, node }
    }

    fn host(cloud: &Cloud, node: NodeId) -> Result<Arc<Host>, ErrorKind> {
        let mut hosts = cloud.hosts().into_iter();
        hosts
            .find(|host| host.node() == Some(node))
            .ok_or_else(|| ErrorKind::Unreachable { detail: "no machine has that BMC".to_owned() })
    }

    fn source(&self) -> String {
        format!("sim {}", self.node)
    }
}

#[async_trait]
impl BmcObserver for Controller {
    async fn power(&self) -> Result<PowerReading, ProviderError> {
        let at = self.reach.cloud_clock().now();
        let power = self.reach.call("bmc power", |cloud| Self::host(cloud, self.node).map(|host| host.power())).await?;
        let said = match power {
            Power::Off => PowerSaid::Off,
            Power::Starting | Power::On => PowerSaid::On,
        };
        Ok(PowerReading { said, at, source: self.source() })
    }

    async fn health(&self, _: Option<u32>) -> Result<HealthReport, ProviderError> {
        let at = self.reach.cloud_clock().now();
        let broken =
            self.reach.call("bmc health", |cloud| Self::host(cloud, self.node).map(|host| host.broken())).await?;
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
        Ok(Vec::new())
    }
}

#[async_trait]
impl BmcControl for Controller {
    async fn order(&self, order: PowerOrder) -> Result<(), ProviderError> {
        self.reach
            .call("bmc order", |cloud| {
                let host = Self::host(cloud, self.node)?;
                match order {
                    PowerOrder::On => host.switch_on(),
                    PowerOrder::Off | PowerOrder::SoftOff => host.cut_power(),
                    PowerOrder::Cycle => host.reboot(),
                }
                Ok(())
            })
            .await
    }

    async fn boot_once(&self, _: BootDevice) -> Result<(), ProviderError> {
        Ok(())
    }

    async fn erase(&self, _: &str) -> Result<Erasure, ProviderError> {
        Err(ProviderError::unusable("bmc erase", "there is nothing to erase here"))
    }
}

#[async_trait]
impl BmcReaders for Reach {
    async fn reader(&self, bmc: &Bmc, _: &BmcPolicy, _: Caller) -> Result<Arc<dyn BmcObserver>, ProviderError> {
        Ok(Arc::new(Controller::new(self.clone(), bmc.node)))
    }

    fn queue(&self, bmc: &Bmc) -> QueueView {
        QueueView { running: None, waiting: Vec::new(), breaker: BreakerState::Closed, refusals: bmc.refusals }
    }
}
