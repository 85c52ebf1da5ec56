//! Interfaces and subnets.

use std::net::IpAddr;

use super::body::{Interface, LinkMode, Subnet, SystemId};
use super::call::Call;
use super::client::MaasClient;
use crate::error::ProviderError;

/// An interface of a machine.
#[derive(Debug, Clone, Copy)]
pub struct InterfaceRef<'a> {
    /// The machine.
    pub machine: &'a SystemId,
    /// Number of the interface.
    pub id: u64,
}

/// An address configuration to add.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NewLink {
    /// Where the address comes from.
    pub mode: LinkMode,
    /// Number of the subnet.
    pub subnet: u64,
    /// The address, for [`LinkMode::Static`].
    pub address: Option<IpAddr>,
}

/// A subnet to create.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewSubnet {
    /// The network.
    pub cidr: ipnet::IpNet,
    /// Name.
    pub name: String,
    /// Number of the VLAN; `None`: a new fabric's untagged one.
    pub vlan: Option<u64>,
}

impl MaasClient {
    /// The machine's interfaces.
    ///
    /// # Errors
    /// The region cannot be read, or the machine is not there.
    pub async fn interfaces(&self, system_id: &SystemId) -> Result<Vec<Interface>, ProviderError> {
        self.json(Call::get("interfaces.list", format!("nodes/{system_id}/interfaces/"))).await
    }

    /// Adds an address configuration.
    ///
    /// # Errors
    /// [`Refused`](crate::error::ErrorKind::Refused) when the address is used or the machine's state forbids it.
    pub async fn link_subnet(&self, interface: InterfaceRef<'_>, link: NewLink) -> Result<Interface, ProviderError> {
        let Some(mode) = link.mode.parameter() else {
            return Err(ProviderError::unusable("maas interfaces.link_subnet", "the link's mode is not known"));
        };
        let call = Call::post("interfaces.link_subnet", path(interface))
            .op("link_subnet")
            .field("mode", mode)
            .field("subnet", link.subnet)
            .field_some("ip_address", link.address);
        self.json(call).await
    }

    /// Removes the address configuration `link`; one that is not there is success.
    ///
    /// # Errors
    /// The region refuses or cannot be reached.
    pub async fn unlink_subnet(&self, interface: InterfaceRef<'_>, link: u64) -> Result<(), ProviderError> {
        let call = Call::post("interfaces.unlink_subnet", path(interface)).op("unlink_subnet").field("id", link);
        match self.done(call).await {
            Err(error) if error.is_not_found() => Ok(()),
            other => other,
        }
    }

    /// All subnets of the region.
    ///
    /// # Errors
    /// The region cannot be read.
    pub async fn subnets(&self) -> Result<Vec<Subnet>, ProviderError> {
        self.json(Call::get("subnets.list", "subnets/").listing()).await
    }

    /// Creates a subnet. It is refused when one with this network is there: list first.
    ///
    /// # Errors
    /// [`Refused`](crate::error::ErrorKind::Refused) with 400 when the network is there or the VLAN is not.
    pub async fn create_subnet(&self, new: &NewSubnet) -> Result<Subnet, ProviderError> {
        let call = Call::post("subnets.create", "subnets/")
            .field("cidr", new.cidr)
            .field("name", &new.name)
            .field_some("vlan", new.vlan);
        self.json(call).await
    }
}

fn path(interface: InterfaceRef<'_>) -> String {
    format!("nodes/{}/interfaces/{}/", interface.machine, interface.id)
}
