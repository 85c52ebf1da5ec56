//! What the MAAS stages share: reading a machine, knowing whose it is, telling what was seen.

use std::sync::Arc;

use lattice_core::failure::FailureClass;
use lattice_core::job::{JobInput, OperatorAction, StageError};
use lattice_core::site::power_credentials::{PowerTarget, choose};
use lattice_providers::machine::maas::machines::{PowerSetup, Presence};
use lattice_providers::machine::maas::{MaasObserver, Machine, MachineStatus, SystemId};
use lattice_providers::observer::STAMP;
use lattice_providers::secret::SecretPath;

use crate::enrollment::secret_error;
use crate::providers::failed;
use crate::stage::{Context, Delta, Observation, Seen, error, recovered_by, store_failed};

/// The site's region.
pub(crate) async fn region(ctx: &Context<'_>) -> Result<Arc<MaasObserver>, StageError> {
    ctx.tools.providers.maas(ctx.site).await.map_err(failed(ctx.now))
}

/// MAAS's name of a machine.
pub(crate) fn system_id(name: &str) -> Result<SystemId, StageError> {
    name.parse().map_err(|_| {
        error(FailureClass::StateAmbiguity, "machine_unknown", format!("`{name}` is not a machine's id in MAAS"))
    })
}

/// The job's machine as MAAS describes it now.
pub(super) async fn fresh(ctx: &Context<'_>) -> Result<Machine, StageError> {
    let id = system_id(ctx.provider_ref()?)?;
    let region = region(ctx).await?;
    match region.client().machine(&id).await.map_err(failed(ctx.now))? {
        Some(machine) => Ok(machine),
        None => Err(missing(ctx, &region, &id).await?),
    }
}

/// The node's machine as MAAS describes it now, for jobs of a node that is there.
pub(crate) async fn fresh_of_node(ctx: &Context<'_>) -> Result<(Arc<MaasObserver>, Machine), StageError> {
    let name = ctx.node.provider_ref.as_deref().ok_or_else(|| {
        error(FailureClass::StateAmbiguity, "machine_unknown", format!("{} has no machine in MAAS", ctx.node.hostname))
    })?;
    let id = system_id(name)?;
    let region = region(ctx).await?;
    match region.client().machine(&id).await.map_err(failed(ctx.now))? {
        Some(machine) => Ok((region, machine)),
        None => Err(StageError { recovery: None, ..missing(ctx, &region, &id).await? }),
    }
}

/// The job's machine as it was last seen, if that was in this stage; else as it is now. What was asked in the very
/// millisecond in which the stage was entered may have been answered before the stage before it acted.
pub(super) async fn recent(ctx: &Context<'_>) -> Result<Arc<Machine>, StageError> {
    let id = system_id(ctx.provider_ref()?)?;
    match seen_in_stage(ctx, &*region(ctx).await?, &id) {
        Some(machine) => Ok(machine),
        None => fresh(ctx).await.map(Arc::new),
    }
}

/// The machine as the site's poll saw it last, if that was since the stage was entered.
pub(super) fn seen_in_stage(ctx: &Context<'_>, region: &MaasObserver, id: &SystemId) -> Option<Arc<Machine>> {
    let seen = region.observed(id).filter(|seen| seen.at > ctx.job.state.stage_entered_at)?;
    Some(seen.machine)
}

/// The listing does not hold the machine: a 404 on it proves that it was deleted.
async fn missing(ctx: &Context<'_>, region: &MaasObserver, id: &SystemId) -> Result<StageError, StageError> {
    match region.client().presence(id).await.map_err(failed(ctx.now))? {
        // Only a clean restart forgets the machine that it found, and finds or creates another one.
        Presence::Absent => Ok(recovered_by(
            OperatorAction::RestartClean,
            error(FailureClass::StateAmbiguity, "machine_deleted", format!("machine {id} was deleted from MAAS")),
        )),
        Presence::Present => Ok(error(
            FailureClass::UpstreamTransient,
            "listing_incomplete",
            format!("MAAS has machine {id} and does not list it"),
        )),
    }
}

/// Whether this job's deployment is on the machine, or was.
pub(super) fn is_ours(ctx: &Context<'_>, machine: &Machine) -> bool {
    let job = ctx.job.id.to_string();
    machine.owner_data.get(STAMP).is_some_and(|stamp| stamp.split('/').any(|part| part == job))
}

/// Whether the machine is past what a stage before the deploy could still change, by this very job.
pub(super) fn is_deployed_by_us(ctx: &Context<'_>, machine: &Machine) -> bool {
    let is_past =
        matches!(machine.status, MachineStatus::Deploying | MachineStatus::Deployed | MachineStatus::FailedDeployment);
    is_past && is_ours(ctx, machine)
}

/// The machine is in a state that this job neither made nor may undo.
pub(crate) fn out_of_band(machine: &Machine, wanted: &str) -> StageError {
    let owner = machine.owner.as_deref().unwrap_or("nobody");
    let text = format!("machine {} is {}, held by {owner}; {wanted}", machine.system_id, machine.status);
    // Whoever took it may have changed anything about it: each stage looks again.
    recovered_by(OperatorAction::Rerun, error(FailureClass::StateAmbiguity, "changed_out_of_band", text))
}

/// The same as what a stage saw, so that the job shows it. spec: S5 4.12, 4.13
pub(super) fn conflict(ctx: &Context<'_>, machine: &Machine, wanted: &str) -> Observation {
    Observation::Failed(out_of_band(machine, wanted), Delta::default().seen(ctx, seen(machine)))
}

/// Somebody took the deployed machine from this job: nothing that was done since its deploy is worth anything.
pub(super) fn taken_away(ctx: &Context<'_>, machine: &Machine) -> Option<Observation> {
    if machine.status == MachineStatus::Deployed && is_ours(ctx, machine) {
        return None;
    }
    let error = out_of_band(machine, "this job's deployment is not on it any more");
    let error = recovered_by(OperatorAction::RestartClean, error);
    Some(Observation::Failed(error, Delta::default().seen(ctx, seen(machine))))
}

/// What was seen of a machine.
pub(crate) fn seen(machine: &Machine) -> Seen {
    Seen {
        provider_ref: machine.system_id.to_string(),
        status: machine.status.to_string(),
        power: machine.power_state,
        addresses: machine.ip_addresses.iter().map(ToString::to_string).collect(),
    }
}

/// What MAAS says about why, in a few words.
pub(super) fn reason(machine: &Machine) -> String {
    let texts = [machine.error_description.as_str(), machine.status_message.as_deref().unwrap_or_default()];
    let said: Vec<&str> = texts.into_iter().filter(|text| !text.is_empty()).collect();
    if said.is_empty() { "MAAS gives no reason".to_owned() } else { said.join("; ") }
}

/// What a MAAS onboarding was asked.
pub(super) struct Asked<'a> {
    pub(super) hostname: &'a str,
    pub(super) ipmi_ip: &'a str,
    pub(super) pxe_mac: Option<&'a str>,
}

/// The job's input.
pub(super) fn asked<'a>(ctx: &'a Context<'_>) -> Result<Asked<'a>, StageError> {
    match &ctx.job.input {
        JobInput::OnboardMaas { hostname, ipmi_ip, pxe_mac, .. } => {
            Ok(Asked { hostname, ipmi_ip, pxe_mac: pxe_mac.as_deref() })
        }
        JobInput::OnboardLxd { .. }
        | JobInput::OnboardOpenchami { .. }
        | JobInput::OnboardManual { .. }
        | JobInput::Drain { .. }
        | JobInput::Retire { .. }
        | JobInput::Remove
        | JobInput::Reboot { .. }
        | JobInput::Reimage { .. }
        | JobInput::ReimageMaas { .. }
        | JobInput::InvestigateBmc
        | JobInput::SecureErase { .. }
        | JobInput::WipeSensitive { .. } => Err(error(
            FailureClass::InputConfigError,
            "wrong_input",
            "this stage belongs to an onboarding through MAAS",
        )),
    }
}

/// A BMC login, and where it came from.
pub(super) struct PowerLogin {
    pub(super) source: String,
    pub(super) setup: PowerSetup,
}

/// The BMC login of the job's machine, read anew each time: what is rotated or overridden counts from then on.
///
/// Where the chosen login is missing nothing else is tried: BMCs lock themselves. spec: S5 3.2.1, 3.5
pub(super) async fn power_login(ctx: &Context<'_>) -> Result<PowerLogin, StageError> {
    let asked = asked(ctx)?;
    let target = PowerTarget { hostname: asked.hostname, ipmi_ip: asked.ipmi_ip, pxe_mac: asked.pxe_mac };
    let overrides = ctx.tools.store.power_overrides_of(ctx.site.id, &target).await.map_err(store_failed)?;
    let choice = choose(ctx.maas_site()?, &overrides, &target);
    let mut object = ctx.tools.secrets.read(&secret_path(&choice.path)?).await.map_err(|failed| {
        let failure = secret_error(&failed, ctx.now);
        StageError { message: format!("BMC login {}: {}", choice.source, failure.message), ..failure }
    })?;
    let (Some(user), Some(password)) = (object.remove("user"), object.remove("pass")) else {
        return Err(error(
            FailureClass::SiteCapabilityMissing,
            "secret_incomplete",
            format!("the BMC login {} has no user or no password: write it again", choice.source),
        ));
    };
    let setup = PowerSetup::ipmi(asked.ipmi_ip, user.expose().clone(), password);
    Ok(PowerLogin { source: choice.source, setup })
}

/// A path as the site has it.
pub(crate) fn secret_path(path: &str) -> Result<SecretPath, StageError> {
    path.parse().map_err(|bad: lattice_providers::secret::InvalidSecretPath| {
        error(FailureClass::InputConfigError, "bad_secret_path", bad.to_string())
    })
}
