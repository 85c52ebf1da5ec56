//! Finds the machine in MAAS, or creates it, or waits for it to appear. spec: S5 4.3, 4.16

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use async_trait::async_trait;
use lattice_core::failure::FailureClass;
use lattice_core::job::StageError;
use lattice_core::site::discovery::{Candidate, Claim, MatchedBy, Wanted, claim};
use lattice_providers::error::ErrorKind;
use lattice_providers::machine::maas::machines::{Creation, MachineFilter, NewMachine};
use lattice_providers::machine::maas::{Machine, MachineStatus, SystemId};

use super::maas;
use crate::providers::failed;
use crate::stage::{Context, Delta, NodeAsk, Observation, Outcome, StageRunner, error, store_failed};

/// How often a machine that should appear by PXE is looked for; one that appears wakes the job besides.
const RECHECK: Duration = Duration::from_secs(15);

/// See the module.
pub struct CreateOrFindInMaas;

#[async_trait]
impl StageRunner for CreateOrFindInMaas {
    async fn observe(&self, ctx: &Context<'_>) -> Result<Observation, StageError> {
        if ctx.job.outputs.provider_ref.is_some() {
            let machine = maas::fresh(ctx).await?;
            return found(ctx, &machine, MatchedBy::Decision, "it was found before").await;
        }
        let asked = maas::asked(ctx)?;
        let policy = &ctx.maas_site()?.policy;
        let machines = candidates(ctx).await?;
        let wanted = Wanted { hostname: asked.hostname, power_address: asked.ipmi_ip, pxe_mac: asked.pxe_mac };
        let list: Vec<Candidate> = machines.values().map(|one| one.candidate.clone()).collect();
        let decision = ctx.job.state.decisions.machine.as_deref();
        match claim(&wanted, &list, decision, policy.auto_claim_single_new_machine) {
            Claim::Found { id, by } => match machines.get(&id) {
                Some(one) => found(ctx, &one.machine, by, &format!("matched by {by}")).await,
                None => Ok(Observation::Absent),
            },
            Claim::Ambiguous(several) => Err(ambiguous(ctx, &several)),
            Claim::Absent if ctx.job.outputs.discovery_since.is_some() => Ok(Observation::Waiting {
                recheck_at: ctx.now + RECHECK,
                waiting_for: format!("{} to boot by PXE and appear in MAAS", asked.hostname),
                delta: Delta::default(),
            }),
            Claim::Absent => Ok(Observation::Absent),
        }
    }

    async fn act(&self, ctx: &Context<'_>, _: &str) -> Result<Outcome, StageError> {
        let asked = maas::asked(ctx)?;
        let region = maas::region(ctx).await?;
        let new = NewMachine {
            architecture: ctx.maas_site()?.architecture.clone(),
            hostname: asked.hostname.to_owned(),
            macs: asked.pxe_mac.map(str::to_owned).into_iter().collect(),
            power: maas::power_login(ctx).await?.setup,
        };
        match region.client().create_or_adopt(&new).await {
            Ok(creation) => {
                let how = match &creation {
                    Creation::Created(_) => "created",
                    Creation::Adopted(_) => "adopted: an earlier attempt created it",
                };
                let machine = creation.into_machine();
                Ok(Outcome::Done(claimed(ctx, &machine, how)))
            }
            Err(refused) if matches!(refused.kind, ErrorKind::Refused { status: 400, .. }) => {
                discover(ctx, &refused.to_string()).await
            }
            Err(other) => Err(failed(ctx.now)(other)),
        }
    }
}

struct Found {
    machine: Machine,
    candidate: Candidate,
}

/// Every machine that could be it: by host name, by BMC address, by MAC, and while discovering, all that are New.
async fn candidates(ctx: &Context<'_>) -> Result<BTreeMap<String, Found>, StageError> {
    let asked = maas::asked(ctx)?;
    let region = maas::region(ctx).await?;
    let client = region.client();
    let addresses = client.power_addresses().await.map_err(failed(ctx.now))?;
    let same_bmc: Vec<SystemId> =
        addresses.iter().filter(|(_, address)| *address == asked.ipmi_ip).map(|(id, _)| id.clone()).collect();
    let mut filters = vec![MachineFilter { hostnames: vec![asked.hostname.to_owned()], ..MachineFilter::default() }];
    if !same_bmc.is_empty() {
        filters.push(MachineFilter { ids: same_bmc, ..MachineFilter::default() });
    }
    if let Some(mac) = asked.pxe_mac {
        filters.push(MachineFilter { macs: vec![mac.to_owned()], ..MachineFilter::default() });
    }
    let looks_for_new =
        ctx.job.outputs.discovery_since.is_some() || ctx.maas_site()?.policy.auto_claim_single_new_machine;
    if looks_for_new {
        filters.push(MachineFilter { status: Some(MachineStatus::New), ..MachineFilter::default() });
    }
    if let Some(decided) = ctx.job.state.decisions.machine.as_deref() {
        filters.push(MachineFilter { ids: vec![maas::system_id(decided)?], ..MachineFilter::default() });
    }
    let known: BTreeSet<&String> = ctx.job.outputs.discovery_known.iter().collect();
    let mut found = BTreeMap::new();
    for filter in filters {
        for machine in client.machines(&filter).await.map_err(failed(ctx.now))? {
            let id = machine.system_id.to_string();
            let candidate = Candidate {
                id: id.clone(),
                hostname: machine.hostname.clone(),
                power_address: addresses.get(&machine.system_id).cloned(),
                macs: machine.macs().collect(),
                is_new: machine.status == MachineStatus::New,
                appeared: ctx.job.outputs.discovery_since.is_some() && !known.contains(&id),
            };
            found.insert(id, Found { machine, candidate });
        }
    }
    Ok(found)
}

async fn found(ctx: &Context<'_>, machine: &Machine, by: MatchedBy, how: &str) -> Result<Observation, StageError> {
    let holder = ctx.tools.store.node_by_provider_ref(ctx.site.id, machine.system_id.as_str()).await;
    if let Some(other) = holder.map_err(store_failed)?.filter(|node| node.id != ctx.node.id) {
        return Err(error(
            FailureClass::StateAmbiguity,
            "machine_taken",
            format!("machine {} ({by}) belongs to node {} already", machine.system_id, other.hostname),
        ));
    }
    Ok(Observation::Done(claimed(ctx, machine, how)))
}

fn claimed(ctx: &Context<'_>, machine: &Machine, how: &str) -> Delta {
    let mut outputs = ctx.outputs();
    outputs.provider_ref = Some(machine.system_id.to_string());
    outputs.discovery_known.clear();
    Delta::said(format!("machine {}: {how}", machine.system_id))
        .outputs(outputs)
        .ask(NodeAsk::ProviderRef(machine.system_id.to_string()))
        .seen(ctx, maas::seen(machine))
}

/// MAAS does not take the machine as it was described: it has to show itself. Those that are there now are not it.
async fn discover(ctx: &Context<'_>, why: &str) -> Result<Outcome, StageError> {
    let region = maas::region(ctx).await?;
    let all = region.client().machines(&MachineFilter::default()).await.map_err(failed(ctx.now))?;
    let mut outputs = ctx.outputs();
    outputs.discovery_since = Some(ctx.now);
    outputs.discovery_known = all.iter().map(|machine| machine.system_id.to_string()).collect();
    Ok(Outcome::StillGoing {
        recheck_at: ctx.now + RECHECK,
        waiting_for: format!("{} to boot by PXE and appear in MAAS; creating it was refused: {why}", ctx.job.hostname),
        delta: Delta::default().outputs(outputs),
    })
}

fn ambiguous(ctx: &Context<'_>, several: &[Candidate]) -> StageError {
    let one = |machine: &Candidate| {
        let bmc = machine.power_address.as_deref().unwrap_or("unknown BMC");
        format!("{} ({}, {bmc})", machine.id, machine.hostname)
    };
    let list = several.iter().map(one).collect::<Vec<_>>().join(", ");
    let text = format!("{} machines could be {}: {list}; say which with `--machine`", several.len(), ctx.job.hostname);
    let choices = several.iter().map(|machine| machine.id.to_string()).collect();
    StageError { choices, ..error(FailureClass::StateAmbiguity, "discovery_ambiguous", text) }
}
