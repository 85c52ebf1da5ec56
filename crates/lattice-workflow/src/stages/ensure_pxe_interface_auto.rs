//! The PXE interface gets its address automatically. spec: S5 4.3 EnsurePxeInterfaceAuto

use async_trait::async_trait;
use lattice_core::failure::FailureClass;
use lattice_core::job::StageError;
use lattice_providers::machine::maas::Machine;
use lattice_providers::machine::maas::body::{Interface, LinkMode, Subnet};
use lattice_providers::machine::maas::network::{InterfaceRef, NewLink};

use super::maas;
use crate::providers::failed;
use crate::stage::{Context, Delta, Observation, Outcome, StageRunner, error};

/// See the module.
pub struct EnsurePxeInterfaceAuto;

#[async_trait]
impl StageRunner for EnsurePxeInterfaceAuto {
    async fn observe(&self, ctx: &Context<'_>) -> Result<Observation, StageError> {
        let machine = maas::fresh(ctx).await?;
        if maas::is_deployed_by_us(ctx, &machine) {
            return Ok(Observation::Done(Delta::said("it is deployed by this job already").skipped()));
        }
        let interface = interface(ctx, &machine)?;
        if is_automatic(interface) {
            return Ok(Observation::Done(
                Delta::said(format!("{} gets its address automatically", interface.name)).skipped(),
            ));
        }
        Ok(Observation::Absent)
    }

    async fn act(&self, ctx: &Context<'_>, _: &str) -> Result<Outcome, StageError> {
        let machine = maas::fresh(ctx).await?;
        let interface = interface(ctx, &machine)?;
        let region = maas::region(ctx).await?;
        let subnets = region.client().subnets().await.map_err(failed(ctx.now))?;
        let subnet = subnet(ctx, interface, &subnets)?;
        let reference = InterfaceRef { machine: &machine.system_id, id: interface.id };
        for link in &interface.links {
            region.client().unlink_subnet(reference, link.id).await.map_err(failed(ctx.now))?;
        }
        let link = NewLink { mode: LinkMode::Auto, subnet: subnet.id, address: None };
        let linked = region.client().link_subnet(reference, link).await.map_err(failed(ctx.now))?;
        if !is_automatic(&linked) {
            // Linked once more by the next attempt, then it is for an operator. spec: S5 4.6
            return Err(error(
                FailureClass::UpstreamTransient,
                "pxe_link_not_there",
                format!("{} was linked to {} and has no automatic address all the same", interface.name, subnet.cidr),
            ));
        }
        Ok(Outcome::Done(Delta::said(format!("{} linked to {} as AUTO", interface.name, subnet.cidr))))
    }
}

/// Whether it gets its address by itself, from a subnet: MAAS refuses to deploy a machine of which no interface does.
fn is_automatic(interface: &Interface) -> bool {
    let automatic = |mode| matches!(mode, LinkMode::Auto | LinkMode::Dhcp);
    interface.links.iter().any(|link| automatic(link.mode) && link.subnet.is_some())
}

pub(super) fn interface<'a>(ctx: &Context<'_>, machine: &'a Machine) -> Result<&'a Interface, StageError> {
    let name = &ctx.maas_site()?.node_pxe_iface;
    machine.interface_set.iter().find(|interface| interface.name == *name).ok_or_else(|| {
        let there: Vec<&str> = machine.interface_set.iter().map(|interface| interface.name.as_str()).collect();
        error(
            FailureClass::HardwareMismatch,
            "pxe_interface_absent",
            format!("the machine has no interface {name}; there are: {}", there.join(", ")),
        )
    })
}

/// The subnet it should be linked to: the one it is linked to, else one of its VLAN, else one of the site's PXE VLAN.
fn subnet(ctx: &Context<'_>, interface: &Interface, all: &[Subnet]) -> Result<Subnet, StageError> {
    let linked = interface.links.iter().find_map(|link| link.subnet.clone());
    let of_vlan = || {
        let vlan = interface.vlan.as_ref()?;
        all.iter().find(|subnet| subnet.vlan.as_ref().is_some_and(|other| other.id == vlan.id)).cloned()
    };
    let vid = ctx.maas_site()?.pxe_vlan_vid;
    let of_site = || all.iter().find(|subnet| subnet.vlan.as_ref().is_some_and(|vlan| vlan.vid == vid)).cloned();
    linked.or_else(of_vlan).or_else(of_site).ok_or_else(|| {
        error(
            FailureClass::HardwareMismatch,
            "pxe_subnet_unknown",
            format!("{} is in no VLAN that has a subnet, and VLAN {vid} has none", interface.name),
        )
    })
}
