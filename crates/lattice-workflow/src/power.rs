//! The power of a node's machine or instance, as its BMC or its provider sees and switches it. Unknown is not off.
//!
//! A node's own BMC comes first, where it has one: it answers for the machine whatever its provider thinks of it.

use std::sync::Arc;
use std::time::Duration;

use lattice_core::bmc::{PowerReading, PowerSaid};
use lattice_core::failure::FailureClass;
use lattice_core::job::StageError;
use lattice_core::node::PowerFact;
use lattice_core::site::SiteProvider;
use lattice_core::time::Timestamp;
use lattice_providers::error::ProviderError;
use lattice_providers::machine::bmc::{BmcControl, Caller, PowerOrder};
use lattice_providers::machine::maas::power::StopMode;
use lattice_providers::machine::maas::{MaasObserver, Machine, MachineStatus};
use lattice_providers::machine::openchami::{PowerOperation, Transition, TransitionId};
use lattice_providers::observer::{MachineState, STAMP};
use lattice_providers::provider::Stop;

use crate::evidence::{instance_name, is_of_node, own_instance};
use crate::providers::failed;
use crate::providers::seen as seen_of;
use crate::stage::{Context, Delta, Observation, Seen, error};
use crate::stages::{maas, openchami};

/// How soon power control is asked again about an order that it carries out.
const POWER_RECHECK: Duration = Duration::from_secs(3);
/// How old what power control says may be, to prove anything by itself: some of its rounds, of 15 to 30 seconds each.
const POWER_AGE: Duration = Duration::from_secs(120);
/// How long ago an order may have been given that proves what power control says: twice what it tries itself.
const ORDER_AGE: Duration = Duration::from_secs(600);
/// How long an instance may take to stop by itself.
const SOFT: Duration = Duration::from_secs(30);

/// What the power of a node's machine was seen to be, now.
pub struct Power {
    /// On or off, asked for at this moment; unknown where what was said is too old to prove it.
    pub fact: PowerFact,
    /// What else the provider said.
    pub seen: Seen,
}

/// Asks the provider: the BMC through MAAS, the state of an instance.
///
/// # Errors
/// The provider or the BMC does not answer; the machine is gone, without an OS, or not this node's.
pub async fn power(ctx: &Context<'_>) -> Result<Power, StageError> {
    if let Some(bmc) = own_bmc(ctx).await? {
        return known(ctx, &bmc.power().await.map_err(of_bmc(ctx.now))?);
    }
    match &ctx.site.provider {
        SiteProvider::Maas(_) => {
            let (region, machine) = machine(ctx).await?;
            let fact = region.client().query_power(&machine.system_id).await.map_err(failed(ctx.now))?;
            if fact == PowerFact::Unknown {
                return Err(error(
                    FailureClass::BmcPowerFailure,
                    "power_unknown",
                    format!("the BMC of {} does not say whether it is on: nothing is switched", ctx.node.hostname),
                ));
            }
            Ok(Power { fact, seen: Seen { power: fact, ..maas::seen(&machine) } })
        }
        SiteProvider::Lxd(_) => {
            let Some(found) = own_instance(ctx).await? else {
                return Err(error(
                    FailureClass::StateAmbiguity,
                    "instance_deleted",
                    format!("instance {} is not there any more", instance_name(ctx)),
                ));
            };
            let fact = match found.state {
                MachineState::Running => PowerFact::On,
                MachineState::Stopped => PowerFact::Off,
                MachineState::Changing | MachineState::Failed | MachineState::Unknown => {
                    return Err(error(
                        FailureClass::UpstreamTransient,
                        "instance_unclear",
                        format!("instance {} is {}: neither running nor stopped", found.name, found.status),
                    ));
                }
            };
            Ok(Power { fact, seen: Seen { power: fact, ..seen_of(&found) } })
        }
        SiteProvider::Openchami(_) => by_power_control(ctx).await,
        SiteProvider::Manual => Err(by_hand(ctx)),
    }
}

/// Power control answers from its store, and a store that nobody fills any more says what was long ago. So an old word
/// counts only after an order of this job that was carried out since; until then it is unknown, and the order is given.
async fn by_power_control(ctx: &Context<'_>) -> Result<Power, StageError> {
    let pcs = openchami::client(ctx).await?;
    let reading = pcs.power(&openchami::xname(ctx)?).await.map_err(of_bmc(ctx.now))?;
    let power = known(ctx, &reading)?;
    // Its clock is not ours: what is a little ahead is new as well.
    let apart = |at: Timestamp| ctx.now.since(at).max(at.since(ctx.now));
    if apart(reading.at) <= POWER_AGE {
        return Ok(power);
    }
    let carried_out = match &ctx.job.outputs.power_order {
        Some(order) => pcs.carried_out(&TransitionId(order.clone())).await.map_err(of_bmc(ctx.now))?,
        None => None,
    };
    if carried_out.is_some_and(|begun| apart(begun) <= ORDER_AGE) {
        return Ok(power);
    }
    Ok(Power { fact: PowerFact::Unknown, seen: Seen { power: PowerFact::Unknown, ..power.seen } })
}

/// A reading, where it says on or off.
fn known(ctx: &Context<'_>, reading: &PowerReading) -> Result<Power, StageError> {
    if let PowerSaid::Unknown { why } = &reading.said {
        let message = format!("{} does not say whether {} is on: {why}", reading.source, ctx.node.hostname);
        return Err(error(FailureClass::BmcPowerFailure, "power_unknown", message));
    }
    Ok(Power { fact: reading.fact(), seen: seen_by_bmc(ctx, reading) })
}

/// What became of the last order to power control, where it is not done: it goes on, or it failed and says why.
///
/// # Errors
/// Power control cannot be asked.
pub async fn order_in_progress(ctx: &Context<'_>) -> Result<Option<Observation>, StageError> {
    let Some(order) = &ctx.job.outputs.power_order else { return Ok(None) };
    let pcs = openchami::client(ctx).await?;
    let why = match pcs.transition(&TransitionId(order.clone())).await {
        Ok(Transition::Running) => {
            return Ok(Some(Observation::Waiting {
                recheck_at: ctx.now + POWER_RECHECK,
                waiting_for: format!("power control to switch {}; it is at it", ctx.node.hostname),
                delta: Delta::default(),
            }));
        }
        // The power itself tells whether it came about; a record that expired says nothing.
        Ok(Transition::Succeeded) => return Ok(None),
        Err(gone) if gone.is_not_found() => return Ok(None),
        Ok(failed @ Transition::Failed(_)) => failed.checked().err(),
        Err(other) => Some(other),
    };
    let mut outputs = ctx.outputs();
    // The next attempt gives the order anew, twice; then it is told as it is.
    if ctx.job.state.attempt < 2 {
        outputs.power_order = None;
    }
    Ok(why.map(|why| Observation::Failed(of_bmc(ctx.now)(why), Delta::default().outputs(outputs))))
}

/// What a stage keeps of an order to power control, to look for its end.
fn ordered(ctx: &Context<'_>, order: TransitionId) -> Delta {
    let mut outputs = ctx.outputs();
    outputs.power_order = Some(order.0);
    Delta::default().outputs(outputs)
}

/// How hard a machine is switched off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Off {
    /// Its OS is asked.
    Asked,
    /// The power is cut.
    Cut,
}

/// Switches it off; the power is looked at again afterwards. What is to be kept of the order is returned.
///
/// # Errors
/// The provider or the BMC refuses or does not answer.
pub async fn switch_off(ctx: &Context<'_>, how: Off, key: &str) -> Result<Delta, StageError> {
    if let Some(bmc) = own_bmc(ctx).await? {
        let order = if how == Off::Asked { PowerOrder::SoftOff } else { PowerOrder::Off };
        bmc.order(order).await.map_err(of_bmc(ctx.now))?;
        return Ok(Delta::default());
    }
    match &ctx.site.provider {
        SiteProvider::Maas(_) => {
            let (region, machine) = machine(ctx).await?;
            let mode = if how == Off::Asked { StopMode::Soft } else { StopMode::Hard };
            region.client().power_off(&machine.system_id, mode).await.map_err(failed(ctx.now))?;
            Ok(Delta::default())
        }
        SiteProvider::Lxd(_) => {
            let stop = if how == Off::Asked { Stop::Soft { within: SOFT } } else { Stop::Hard };
            let instances = ctx.tools.providers.instances(ctx.site).await.map_err(failed(ctx.now))?;
            instances.stop(instance_name(ctx), stop, key).await.map_err(failed(ctx.now))?;
            Ok(Delta::default())
        }
        SiteProvider::Openchami(_) => {
            let operation = if how == Off::Asked { PowerOperation::SoftOff } else { PowerOperation::ForceOff };
            let pcs = openchami::client(ctx).await?;
            let order = pcs.begin_power(&openchami::xname(ctx)?, operation).await.map_err(of_bmc(ctx.now))?;
            Ok(ordered(ctx, order))
        }
        SiteProvider::Manual => Err(by_hand(ctx)),
    }
}

/// Switches it on, if it is seen to be off. What is to be kept of the order is returned.
///
/// # Errors
/// The provider or the BMC refuses or does not answer.
pub async fn switch_on(ctx: &Context<'_>, key: &str) -> Result<Delta, StageError> {
    if let Some(bmc) = own_bmc(ctx).await? {
        bmc.order(PowerOrder::On).await.map_err(of_bmc(ctx.now))?;
        return Ok(Delta::default());
    }
    match &ctx.site.provider {
        SiteProvider::Maas(_) => {
            let (region, machine) = machine(ctx).await?;
            region.client().ensure_on(&machine.system_id).await.map_err(failed(ctx.now))?;
            Ok(Delta::default())
        }
        SiteProvider::Lxd(_) => {
            let instances = ctx.tools.providers.instances(ctx.site).await.map_err(failed(ctx.now))?;
            instances.start(instance_name(ctx), key).await.map_err(failed(ctx.now))?;
            Ok(Delta::default())
        }
        SiteProvider::Openchami(_) => {
            let pcs = openchami::client(ctx).await?;
            let order = pcs.begin_power(&openchami::xname(ctx)?, PowerOperation::On).await.map_err(of_bmc(ctx.now))?;
            Ok(ordered(ctx, order))
        }
        SiteProvider::Manual => Err(by_hand(ctx)),
    }
}

/// The node's own BMC, if one is set; this job waits for it in its queue under its own name.
///
/// # Errors
/// It is set, and cannot be called.
pub async fn own_bmc(ctx: &Context<'_>) -> Result<Option<Arc<dyn BmcControl>>, StageError> {
    let known = ctx.tools.store.bmc(ctx.node.id).await.map_err(|failure| {
        error(FailureClass::UpstreamTransient, "store_failed", format!("the row of its BMC cannot be read: {failure}"))
    })?;
    let Some(bmc) = known else { return Ok(None) };
    let caller = Caller { who: format!("job {}", ctx.job.id), why: ctx.job.state.stage.to_string() };
    ctx.tools.providers.bmc(ctx.site, &bmc, caller).await.map(Some).map_err(of_bmc(ctx.now))
}

/// The node's own BMC, for what nothing else can do.
///
/// # Errors
/// It has none any more, or it cannot be called.
pub async fn needed_bmc(ctx: &Context<'_>) -> Result<Arc<dyn BmcControl>, StageError> {
    own_bmc(ctx).await?.ok_or_else(|| {
        let why = format!("{} has no BMC any more", ctx.node.hostname);
        error(FailureClass::InputConfigError, "no_bmc", why)
    })
}

/// A failure of a BMC, of its own class: what a provider would call transient is the BMC's here. spec: S5 4.7
pub fn of_bmc(now: Timestamp) -> impl Fn(ProviderError) -> StageError {
    move |failure| {
        let failed = failed(now)(failure);
        let class = match failed.class {
            FailureClass::UpstreamTransient => FailureClass::BmcPowerFailure,
            other => other,
        };
        StageError { class, ..failed }
    }
}

/// A reading as what was seen of the machine.
pub fn seen_by_bmc(ctx: &Context<'_>, reading: &PowerReading) -> Seen {
    Seen {
        provider_ref: ctx.node.provider_ref.clone().unwrap_or_else(|| ctx.node.hostname.clone()),
        status: reading.to_string(),
        power: reading.fact(),
        addresses: Vec::new(),
    }
}

/// The node's machine, fresh: deployed, and by a job of this node. Nothing else is switched.
async fn machine(ctx: &Context<'_>) -> Result<(Arc<MaasObserver>, Machine), StageError> {
    let (region, machine) = maas::fresh_of_node(ctx).await?;
    let is_ours = is_of_node(ctx, machine.owner_data.get(STAMP).map(String::as_str)).await?;
    if machine.status == MachineStatus::Deployed && is_ours {
        return Ok((region, machine));
    }
    Err(maas::out_of_band(&machine, "only what this node's onboarding deployed is switched"))
}

fn by_hand(ctx: &Context<'_>) -> StageError {
    error(
        FailureClass::InputConfigError,
        "no_power_control",
        format!("{} was bootstrapped by hand and has no BMC: nothing here can switch it", ctx.node.hostname),
    )
}
