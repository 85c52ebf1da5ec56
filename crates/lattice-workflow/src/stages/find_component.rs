//! Finds the component in State Manager by the names that were given, and the interface that it boots from.

use std::collections::BTreeSet;
use std::time::Duration;

use async_trait::async_trait;
use lattice_core::failure::FailureClass;
use lattice_core::job::{JobInput, Netboot, StageError};
use lattice_providers::machine::openchami::{Component, Interface, Machine, OchamiClient, State, Xname};

use super::openchami::{client, mac_before, of, seen, xname};
use crate::stage::{Context, Delta, NodeAsk, Observation, Outcome, StageRunner, error, store_failed};

/// How often State Manager is asked for a component that it does not know yet.
const RECHECK: Duration = Duration::from_secs(15);

/// See the module.
pub struct FindComponent;

#[async_trait]
impl StageRunner for FindComponent {
    async fn observe(&self, ctx: &Context<'_>) -> Result<Observation, StageError> {
        let smd = client(ctx).await?;
        if ctx.job.outputs.provider_ref.is_some() || ctx.node.provider_ref.is_some() {
            let name = xname(ctx)?;
            return match smd.component(&name).await.map_err(of(ctx))? {
                Some(component) => found(ctx, &smd, &component).await,
                None => Err(error(
                    FailureClass::StateAmbiguity,
                    "component_gone",
                    format!("State Manager has no component {} any more", name.as_str()),
                )),
            };
        }
        let named = Named::of(ctx)?;
        let matches = named.matches(ctx, &smd).await?;
        match chosen(ctx, &matches)? {
            Some(name) => match smd.component(&name).await.map_err(of(ctx))? {
                Some(component) => found(ctx, &smd, &component).await,
                None => Ok(waits(ctx, &named)),
            },
            None => Ok(waits(ctx, &named)),
        }
    }

    async fn act(&self, ctx: &Context<'_>, _: &str) -> Result<Outcome, StageError> {
        // Nothing is brought about here: what is not known to State Manager is waited for.
        let waiting_for = format!("State Manager to know {}", ctx.job.hostname);
        Ok(Outcome::StillGoing { recheck_at: ctx.now + RECHECK, waiting_for, delta: Delta::default() })
    }
}

/// The names that an operator gave a machine.
struct Named<'a> {
    xname: Option<&'a str>,
    mac: Option<&'a str>,
    bmc_address: Option<&'a str>,
}

/// What State Manager knows under one of the names.
struct Match {
    by: String,
    names: BTreeSet<Xname>,
}

impl<'a> Named<'a> {
    fn of(ctx: &'a Context<'_>) -> Result<Self, StageError> {
        match &ctx.job.input {
            JobInput::OnboardOpenchami { xname, mac, bmc_address, .. } => {
                Ok(Self { xname: xname.as_deref(), mac: mac.as_deref(), bmc_address: bmc_address.as_deref() })
            }
            JobInput::OnboardMaas { .. }
            | JobInput::OnboardLxd { .. }
            | JobInput::OnboardManual { .. }
            | JobInput::Drain { .. }
            | JobInput::Retire { .. }
            | JobInput::Remove
            | JobInput::Reboot { .. }
            | JobInput::Reimage { .. }
            | JobInput::ReimageMaas { .. }
            | JobInput::InvestigateBmc
            | JobInput::SecureErase { .. }
            | JobInput::WipeSensitive { .. } => {
                let why = format!("{} has no component at its provider", ctx.node.hostname);
                Err(error(FailureClass::InputConfigError, "machine_unknown", why))
            }
        }
    }

    fn words(&self) -> String {
        let named = [("", self.xname), ("the hardware address ", self.mac), ("the BMC ", self.bmc_address)];
        let words = named.into_iter().filter_map(|(what, name)| Some(format!("{what}{}", name?)));
        words.collect::<Vec<_>>().join(" and ")
    }

    async fn matches(&self, ctx: &Context<'_>, smd: &OchamiClient) -> Result<Vec<Match>, StageError> {
        let mut matches = Vec::new();
        if let Some(text) = self.xname {
            let found = smd.component(&Xname::parse(text).map_err(of(ctx))?).await.map_err(of(ctx))?;
            let names = found.into_iter().filter(is_node).map(|component| component.id).collect();
            matches.push(Match { by: text.to_owned(), names });
        }
        if let Some(mac) = self.mac {
            let found = smd.interfaces(mac).await.map_err(of(ctx))?;
            let of_it = found.into_iter().filter(|one| one.mac.eq_ignore_ascii_case(mac));
            let names = of_it.filter_map(|one| Xname::parse(&one.component).ok()).collect();
            matches.push(Match { by: mac.to_owned(), names });
        }
        if let Some(address) = self.bmc_address {
            let mut names = BTreeSet::new();
            for bmc in smd.endpoints_at(address).await.map_err(of(ctx))? {
                let below = smd.nodes_below(&bmc.id).await.map_err(of(ctx))?;
                names.extend(below.into_iter().filter(is_node).map(|component| component.id));
            }
            matches.push(Match { by: format!("BMC {address}"), names });
        }
        Ok(matches)
    }
}

fn is_node(component: &Component) -> bool {
    component.kind == "Node"
}

fn waits(ctx: &Context<'_>, named: &Named<'_>) -> Observation {
    Observation::Waiting {
        recheck_at: ctx.now + RECHECK,
        waiting_for: format!("State Manager to know {}", named.words()),
        delta: Delta::default(),
    }
}

/// The one that all names mean. None: one of the names is not known yet.
fn chosen(ctx: &Context<'_>, matches: &[Match]) -> Result<Option<Xname>, StageError> {
    let all: BTreeSet<&Xname> = matches.iter().flat_map(|one| &one.names).collect();
    if let Some(decided) = &ctx.job.state.decisions.machine {
        return match all.iter().find(|name| name.as_str() == decided) {
            Some(name) => Ok(Some((*name).clone())),
            None => Err(ambiguous(&all, format!("`{decided}` is none of the components that it could be"))),
        };
    }
    if matches.iter().any(|one| one.names.is_empty()) {
        return Ok(None);
    }
    let common: Vec<&Xname> =
        all.iter().copied().filter(|name| matches.iter().all(|one| one.names.contains(*name))).collect();
    match common.as_slice() {
        [one] => Ok(Some((*one).clone())),
        [] => {
            let list: Vec<String> = matches.iter().map(|one| format!("{} is {}", one.by, joined(&one.names))).collect();
            Err(ambiguous(&all, format!("the names of {} are not one machine: {}", ctx.job.hostname, list.join("; "))))
        }
        several => Err(ambiguous(
            &several.iter().copied().collect(),
            format!("{} components could be {}: {}", several.len(), ctx.job.hostname, joined(several.iter().copied())),
        )),
    }
}

fn joined<'a>(names: impl IntoIterator<Item = &'a Xname>) -> String {
    names.into_iter().map(Xname::as_str).collect::<Vec<_>>().join(", ")
}

fn ambiguous(choices: &BTreeSet<&Xname>, why: String) -> StageError {
    let choices = choices.iter().map(|name| name.as_str().to_owned()).collect();
    let text = format!("{why}; say which with `--machine`");
    StageError { choices, ..error(FailureClass::StateAmbiguity, "discovery_ambiguous", text) }
}

async fn found(ctx: &Context<'_>, smd: &OchamiClient, component: &Component) -> Result<Observation, StageError> {
    let name = component.id.as_str();
    if ctx.node.provider_ref.is_none() {
        is_free(ctx, component).await?;
    }
    let interfaces = smd.interfaces_of(&component.id).await.map_err(of(ctx))?;
    let mac = boot_interface(ctx, smd, component, &interfaces).await?;
    let addresses: BTreeSet<String> =
        interfaces.iter().flat_map(|one| &one.addresses).map(|one| one.address.clone()).collect();
    let addresses: Vec<String> = addresses.into_iter().filter(|address| !address.is_empty()).collect();
    if addresses.is_empty() {
        let why = format!(
            "State Manager knows no address of {name}: who enrols as it could not be told from another; add it there \
             (Inventory/EthernetInterfaces)"
        );
        return Err(error(FailureClass::SiteCapabilityMissing, "component_without_address", why));
    }
    let mut outputs = ctx.outputs();
    outputs.provider_ref = Some(name.to_owned());
    let earlier = outputs.netboot.take();
    outputs.netboot = Some(Netboot {
        mac: mac.clone(),
        addresses: addresses.clone(),
        profile: earlier.as_ref().and_then(|netboot| netboot.profile.clone()),
        asked_before: earlier.and_then(|netboot| netboot.asked_before),
    });
    let seen = seen(component, &addresses);
    let delta = Delta::said(format!("component {name}, boots from {mac}")).outputs(outputs);
    Ok(Observation::Done(delta.ask(NodeAsk::ProviderRef(name.to_owned())).seen(ctx, seen)))
}

/// Neither another node's, nor taken out of use, nor running something that State Manager calls ready.
async fn is_free(ctx: &Context<'_>, component: &Component) -> Result<(), StageError> {
    let name = component.id.as_str();
    let holder = ctx.tools.store.node_by_provider_ref(ctx.site.id, name).await.map_err(store_failed)?;
    if let Some(other) = holder.filter(|node| node.id != ctx.node.id) {
        let why = format!("component {name} belongs to node {} already", other.hostname);
        return Err(error(FailureClass::StateAmbiguity, "machine_taken", why));
    }
    if component.enabled == Some(false) {
        let why = format!("State Manager says that {name} is disabled: enable it there");
        return Err(error(FailureClass::SiteCapabilityMissing, "component_disabled", why));
    }
    let is_decided = ctx.job.state.decisions.machine.as_deref() == Some(name);
    if component.state == Some(State::Ready) && !is_decided {
        let why = format!(
            "State Manager says that {name} is Ready: a system that Lattice does not know runs on it, and would be lost"
        );
        let choices = vec![name.to_owned()];
        return Err(StageError { choices, ..error(FailureClass::StateAmbiguity, "component_in_use", why) });
    }
    Ok(())
}

/// The hardware address that it boots from: the one that was given, the one of its boots before, or its only one.
async fn boot_interface(
    ctx: &Context<'_>,
    smd: &OchamiClient,
    component: &Component,
    interfaces: &[Interface],
) -> Result<String, StageError> {
    let (name, known) =
        (component.id.as_str(), |mac: &str| interfaces.iter().any(|one| one.mac.eq_ignore_ascii_case(mac)));
    if let JobInput::OnboardOpenchami { mac: Some(mac), .. } = &ctx.job.input {
        if known(mac) {
            return Ok(mac.clone());
        }
        let why = format!("State Manager has no interface {mac} of {name}");
        return Err(error(FailureClass::StateAmbiguity, "interface_not_of_component", why));
    }
    match interfaces {
        [one] => return Ok(one.mac.to_ascii_lowercase()),
        [] => {
            let why =
                format!("State Manager knows no interface of {name}: add it there (Inventory/EthernetInterfaces)");
            return Err(error(FailureClass::SiteCapabilityMissing, "component_without_interface", why));
        }
        [_, _, ..] => {}
    }
    // Its boot parameters under its name say which one it was; the hardware address plays no part in finding them.
    let by_name = Machine { xname: component.id.clone(), mac: interfaces[0].mac.clone() };
    let before = smd.boots(&by_name).await.map_err(of(ctx))?;
    if let Some(mac) = mac_before(ctx, &before).filter(|mac| known(mac)) {
        return Ok(mac);
    }
    let macs: Vec<&str> = interfaces.iter().map(|one| one.mac.as_str()).collect();
    let why = format!(
        "{name} has {} interfaces: {}; which one it boots from is not known: cancel, and onboard it with `--mac`",
        macs.len(),
        macs.join(", ")
    );
    Err(error(FailureClass::InputConfigError, "several_interfaces", why))
}
