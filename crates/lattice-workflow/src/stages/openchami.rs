//! What stages at an OpenCHAMI site share: its client, the component, what it boots.

use std::sync::Arc;

use lattice_core::failure::FailureClass;
use lattice_core::job::{JobInput, Netboot, StageError};
use lattice_core::node::PowerFact;
use lattice_core::secret::Secret;
use lattice_core::site::openchami::{MAC_PARAMETER, NODE_PARAMETER, PROFILE_PARAMETER, parameter};
use lattice_providers::error::ProviderError;
use lattice_providers::machine::openchami::{BootParameters, Boots, Component, Machine, OchamiClient, Xname};
use lattice_providers::secret::{SecretError, SecretObject};

use crate::enrollment::{boot_before_secrets, secret_error};
use crate::providers::failed;
use crate::stage::{Context, Seen, error};

/// The services of the site.
pub(crate) async fn client(ctx: &Context<'_>) -> Result<Arc<OchamiClient>, StageError> {
    ctx.tools.providers.openchami(ctx.site).await.map_err(failed(ctx.now))
}

/// The component of the node, as this job or an earlier one found it.
pub(crate) fn xname(ctx: &Context<'_>) -> Result<Xname, StageError> {
    let known = ctx.job.outputs.provider_ref.as_deref().or(ctx.node.provider_ref.as_deref());
    let Some(name) = known else {
        let why = format!("no stage found the component of {}", ctx.node.hostname);
        return Err(error(FailureClass::StateAmbiguity, "machine_unknown", why));
    };
    Xname::parse(name).map_err(failed(ctx.now))
}

/// How the machine boots, as an earlier stage found out.
pub(super) fn netboot<'a>(ctx: &'a Context<'_>) -> Result<&'a Netboot, StageError> {
    ctx.job.outputs.netboot.as_ref().ok_or_else(|| {
        let why = format!("no earlier stage found the interface that {} boots from", ctx.node.hostname);
        error(FailureClass::StateAmbiguity, "interface_unknown", why)
    })
}

/// The machine under both names that bss knows it by.
pub(super) fn machine(ctx: &Context<'_>) -> Result<Machine, StageError> {
    Ok(Machine { xname: xname(ctx)?, mac: netboot(ctx)?.mac.clone() })
}

/// What was seen of a component. Its state is what somebody told State Manager, so it says nothing of power.
pub(super) fn seen(component: &Component, addresses: &[String]) -> Seen {
    let state = component.state.map_or_else(|| "no state".to_owned(), |state| state.to_string());
    let status = match component.flag.as_deref() {
        Some(flag) if flag != "OK" => format!("{state} ({flag})"),
        Some(_) | None => state,
    };
    Seen {
        provider_ref: component.id.as_str().to_owned(),
        status: lattice_providers::message::bounded(&status),
        power: PowerFact::Unknown,
        addresses: addresses.to_vec(),
    }
}

/// Whether parameters were set for this node by Lattice.
pub(super) fn are_ours(ctx: &Context<'_>, boot: &BootParameters) -> bool {
    parameter(&boot.params, NODE_PARAMETER) == Some(ctx.node.id.to_string().as_str())
}

/// The hardware address that this node was booted from before, as its boot parameters say.
pub(super) fn mac_before(ctx: &Context<'_>, boots: &Boots) -> Option<String> {
    let ours = boots.each().find(|boot| are_ours(ctx, boot))?;
    parameter(&ours.params, MAC_PARAMETER).map(str::to_owned)
}

/// What the machine is to boot: what this job was asked, else what it boots, else what the site says.
pub(super) fn wanted(
    ctx: &Context<'_>,
    machine: &Machine,
    boots: &Boots,
) -> Result<(String, BootParameters), StageError> {
    let site = ctx.openchami_site()?;
    let now = boots.each().find(|boot| are_ours(ctx, boot)).and_then(|boot| parameter(&boot.params, PROFILE_PARAMETER));
    let name = match &ctx.job.input {
        JobInput::OnboardOpenchami { boot_profile, .. } => boot_profile.as_deref(),
        JobInput::Reimage { image } => image.as_deref(),
        JobInput::Reboot { .. } | JobInput::WipeSensitive { .. } => {
            now.filter(|name| site.profile(Some(name)).is_some())
        }
        JobInput::OnboardMaas { .. }
        | JobInput::ReimageMaas { .. }
        | JobInput::OnboardLxd { .. }
        | JobInput::OnboardManual { .. }
        | JobInput::Drain { .. }
        | JobInput::Retire { .. }
        | JobInput::Remove
        | JobInput::InvestigateBmc
        | JobInput::SecureErase { .. } => None,
    };
    let Some((name, profile)) = site.profile(name) else {
        let why = format!("site {} has no boot profile `{}`", ctx.site.name, name.unwrap_or(&site.boot_profile));
        return Err(error(FailureClass::InputConfigError, "boot_profile_unknown", why));
    };
    let own = lattice_core::site::openchami::NodeParameters {
        server: &ctx.tools.bootstrap.server,
        node: ctx.node.id,
        mac: &machine.mac,
    };
    let boot = BootParameters {
        kernel: profile.kernel.clone(),
        initrd: profile.initrd.clone(),
        params: profile.params_of(name, &own),
    };
    Ok((name.to_owned(), boot))
}

/// What the machine booted before this job, if this epoch of the job kept it.
pub(super) async fn kept_before(ctx: &Context<'_>) -> Result<Option<Boots>, StageError> {
    let kept = match ctx.tools.secrets.read(&boot_before_secrets(ctx.job.id)).await {
        Ok(kept) => kept,
        Err(SecretError::NotFound { .. }) => return Ok(None),
        Err(failed) => return Err(secret_error(&failed, ctx.now)),
    };
    let is_of_now = kept.get("epoch").is_some_and(|epoch| *epoch.expose() == ctx.job.state.epoch.to_string());
    let boots = kept.get("boots").filter(|_| is_of_now);
    Ok(boots.and_then(|boots| serde_json::from_str(boots.expose()).ok()))
}

/// Keeps what the machine boots before this job changes it.
pub(super) async fn keep_before(ctx: &Context<'_>, boots: &Boots) -> Result<(), StageError> {
    let text = serde_json::to_string(boots).expect("boot parameters have only text keys");
    let object: SecretObject =
        [("epoch".to_owned(), Secret::new(ctx.job.state.epoch.to_string())), ("boots".to_owned(), Secret::new(text))]
            .into();
    ctx.tools
        .secrets
        .write(&boot_before_secrets(ctx.job.id), object)
        .await
        .map_err(|failed| secret_error(&failed, ctx.now))
}

/// Forgets it: nothing is put back any more.
pub(super) async fn forget_before(ctx: &Context<'_>) -> Result<(), StageError> {
    if ctx.job.outputs.netboot.is_none() {
        return Ok(());
    }
    match ctx.tools.secrets.delete(&boot_before_secrets(ctx.job.id)).await {
        Ok(()) | Err(SecretError::NotFound { .. }) => Ok(()),
        Err(failed) => Err(secret_error(&failed, ctx.now)),
    }
}

/// A failure of one of the services.
pub(super) fn of(ctx: &Context<'_>) -> impl Fn(ProviderError) -> StageError + use<> {
    failed(ctx.now)
}
