//! Static RoCE addresses of the host's interfaces. spec: S5 3.3, 4.3 ApplyRoCEPhase2
//!
//! Not essential: what cannot be applied is a warning. The guest's half, the routing, is in its first-boot payload.

use std::net::IpAddr;

use async_trait::async_trait;
use lattice_core::job::StageError;
use lattice_core::site::RoceAssignment;
use lattice_providers::error::{ErrorKind, ProviderError};
use lattice_providers::machine::maas::body::{Interface, LinkMode, Subnet};
use lattice_providers::machine::maas::network::{InterfaceRef, NewLink, NewSubnet};
use lattice_providers::machine::maas::{MaasClient, Machine};

use super::maas;
use crate::providers::failed;
use crate::stage::{Context, Delta, Observation, Outcome, StageRunner, store_failed};

/// See the module.
pub struct ApplyRocePhase2;

#[async_trait]
impl StageRunner for ApplyRocePhase2 {
    async fn observe(&self, ctx: &Context<'_>) -> Result<Observation, StageError> {
        if !ctx.maas_site()?.policy.enable_phase2_roce {
            return Ok(Observation::Done(Delta::said("the site does not use RoCE").skipped()));
        }
        let wanted = wanted(ctx).await?;
        if wanted.is_empty() {
            return Ok(Observation::Done(Delta::said("no addresses are assigned to this host").skipped()));
        }
        let machine = maas::fresh(ctx).await?;
        if maas::is_deployed_by_us(ctx, &machine) {
            return Ok(Observation::Done(Delta::said("it is deployed by this job already").skipped()));
        }
        let applied = wanted.iter().filter(|one| interface(&machine, one).is_some_and(|found| has(found, one))).count();
        if applied == wanted.len() {
            return Ok(Observation::Done(result(ctx, applied, Vec::new())));
        }
        Ok(Observation::Absent)
    }

    async fn act(&self, ctx: &Context<'_>, _: &str) -> Result<Outcome, StageError> {
        let machine = maas::fresh(ctx).await?;
        let region = maas::region(ctx).await?;
        let mut subnets = region.client().subnets().await.map_err(failed(ctx.now))?;
        let (mut applied, mut warnings) = (0, Vec::new());
        for one in wanted(ctx).await? {
            let Some(found) = interface(&machine, &one) else {
                warnings.push(format!("RoCE: the machine has no interface {}", one.interface));
                continue;
            };
            if has(found, &one) {
                applied += 1;
                continue;
            }
            match apply(region.client(), &machine, found, &one, &mut subnets).await {
                Ok(()) => applied += 1,
                Err(refused) if matches!(refused.kind, ErrorKind::Refused { .. }) => {
                    warnings.push(format!("RoCE: {} on {}: {refused}", one.ipv4_cidr, one.interface));
                }
                Err(other) => return Err(failed(ctx.now)(other)),
            }
        }
        Ok(Outcome::Done(result(ctx, applied, warnings)))
    }
}

async fn wanted(ctx: &Context<'_>) -> Result<Vec<RoceAssignment>, StageError> {
    ctx.tools.store.roce_assignments(ctx.site.id, &ctx.job.hostname).await.map_err(store_failed)
}

fn interface<'a>(machine: &'a Machine, one: &RoceAssignment) -> Option<&'a Interface> {
    machine.interface_set.iter().find(|interface| interface.name == one.interface)
}

fn has(interface: &Interface, one: &RoceAssignment) -> bool {
    let address = IpAddr::V4(one.ipv4_cidr.addr());
    interface.links.iter().any(|link| link.mode == LinkMode::Static && link.ip_address == Some(address))
}

async fn apply(
    client: &MaasClient,
    machine: &Machine,
    interface: &Interface,
    one: &RoceAssignment,
    subnets: &mut Vec<Subnet>,
) -> Result<(), ProviderError> {
    let network = one.ipv4_cidr.trunc();
    let subnet = match subnets.iter().find(|subnet| subnet.cidr == network.to_string()) {
        Some(known) => known.id,
        None => {
            let new = NewSubnet {
                cidr: network.into(),
                name: format!("roce-{network}"),
                vlan: interface.vlan.as_ref().map(|vlan| vlan.id),
            };
            let made = client.create_subnet(&new).await?;
            let id = made.id;
            subnets.push(made);
            id
        }
    };
    let reference = InterfaceRef { machine: &machine.system_id, id: interface.id };
    let link = NewLink { mode: LinkMode::Static, subnet, address: Some(IpAddr::V4(one.ipv4_cidr.addr())) };
    client.link_subnet(reference, link).await.map(drop)
}

fn result(ctx: &Context<'_>, applied: usize, warnings: Vec<String>) -> Delta {
    let mut outputs = ctx.outputs();
    outputs.roce_applied = u32::try_from(applied).ok();
    outputs.warnings.retain(|known| !known.starts_with("RoCE: "));
    let message = match warnings.as_slice() {
        [] => format!("{applied} RoCE addresses applied"),
        some => format!("{applied} RoCE addresses applied; {}", some.join("; ")),
    };
    outputs.warnings.extend(warnings);
    Delta::said(message).outputs(outputs)
}
