//! Asks MAAS to deploy, once: the key is stamped on the machine before. spec: S5 4.3, 4.10 "not blindly"

use std::collections::BTreeMap;
use std::time::Duration;

use async_trait::async_trait;
use lattice_core::failure::FailureClass;
use lattice_core::job::{StageError, UndoKind};
use lattice_core::node::availability::AvailabilityEvent;
use lattice_providers::error::ErrorKind;
use lattice_providers::machine::maas::lifecycle::{Deploy, Erase};
use lattice_providers::machine::maas::{Machine, MachineStatus};
use lattice_providers::observer::STAMP;

use super::maas;
use crate::enrollment;
use crate::providers::failed;
use crate::stage::{Context, Delta, NodeAsk, Observation, Outcome, StageRunner, error};

/// How soon a release is looked at again.
const RECHECK: Duration = Duration::from_secs(10);

/// See the module.
pub struct DeployViaMaas;

#[async_trait]
impl StageRunner for DeployViaMaas {
    async fn observe(&self, ctx: &Context<'_>) -> Result<Observation, StageError> {
        let machine = maas::fresh(ctx).await?;
        let key = ctx.job.state.key(ctx.flow, ctx.stage.name);
        let is_this = machine.owner_data.get(STAMP) == Some(&key);
        match machine.status {
            MachineStatus::Deploying | MachineStatus::Deployed | MachineStatus::FailedDeployment if is_this => {
                Ok(Observation::Done(begun(ctx, &machine).await?.skipped()))
            }
            // A stamp is gone with a release, and a deployment that began leaves these two: none has begun.
            MachineStatus::Ready | MachineStatus::Allocated if is_configured(ctx, &machine) => Ok(Observation::Absent),
            MachineStatus::Ready | MachineStatus::Allocated => {
                Ok(maas::conflict(ctx, &machine, "its storage is not as this job set it"))
            }
            MachineStatus::Releasing => Ok(Observation::Waiting {
                recheck_at: ctx.now + RECHECK,
                waiting_for: format!("MAAS to release {} before it is deployed", ctx.job.hostname),
                delta: Delta::default().seen(ctx, maas::seen(&machine)),
            }),
            MachineStatus::Deploying | MachineStatus::Deployed | MachineStatus::FailedDeployment => {
                Ok(maas::conflict(ctx, &machine, "this job did not deploy it"))
            }
            MachineStatus::New
            | MachineStatus::Commissioning
            | MachineStatus::FailedCommissioning
            | MachineStatus::Missing
            | MachineStatus::Reserved
            | MachineStatus::Retired
            | MachineStatus::Broken
            | MachineStatus::FailedReleasing
            | MachineStatus::DiskErasing
            | MachineStatus::FailedDiskErasing
            | MachineStatus::RescueMode
            | MachineStatus::EnteringRescueMode
            | MachineStatus::FailedEnteringRescueMode
            | MachineStatus::ExitingRescueMode
            | MachineStatus::FailedExitingRescueMode
            | MachineStatus::Testing
            | MachineStatus::FailedTesting
            | MachineStatus::Other(_) => Ok(maas::conflict(ctx, &machine, "it should be Ready to be deployed")),
        }
    }

    async fn act(&self, ctx: &Context<'_>, key: &str) -> Result<Outcome, StageError> {
        let site = ctx.maas_site()?;
        let id = maas::system_id(ctx.provider_ref()?)?;
        let region = maas::region(ctx).await?;
        let mut kept = enrollment::kept(ctx).await?;
        let user_data = kept.remove("user_data").ok_or_else(|| {
            error(FailureClass::StateAmbiguity, "payload_missing", "the first-boot payload is not kept any more")
        })?;
        // A payload that no commit knows carries a token that nobody could use.
        if !enrollment::is_rendered(ctx, &user_data) {
            let text = "the kept first-boot payload is not the one that this job rendered";
            return Err(error(FailureClass::StateAmbiguity, "payload_foreign", text));
        }
        let stamp = BTreeMap::from([(STAMP.to_owned(), key.to_owned())]);
        region.client().set_owner_data(&id, &stamp).await.map_err(failed(ctx.now))?;
        let what = Deploy {
            distro_series: site.distro_series.clone(),
            user_data: Some(user_data),
            enable_hw_sync: site.policy.require_hw_sync,
            comment: Some(format!("Lattice job {}", ctx.job.id)),
        };
        let machine = region.client().deploy(&id, what).await.map_err(|refused| {
            let mut failure = failed(ctx.now)(refused.clone());
            if matches!(refused.kind, ErrorKind::Refused { .. }) {
                // S5 4.6 tries a rejected deploy again: an image import or a lock may be in its way.
                failure.class = FailureClass::UpstreamTransient;
                failure.error_code = "deploy_rejected".to_owned();
            }
            failure
        })?;
        Ok(Outcome::Done(begun(ctx, &machine).await?))
    }

    async fn undo(&self, ctx: &Context<'_>, _: UndoKind, _: &str) -> Result<Outcome, StageError> {
        let machine = match maas::fresh(ctx).await {
            Ok(machine) => machine,
            Err(missing) if missing.error_code == "machine_deleted" => {
                return Ok(Outcome::Done(gone(ctx)));
            }
            Err(other) => return Err(other),
        };
        if machine.status == MachineStatus::Ready {
            return Ok(Outcome::Done(undone(ctx, "Ready in MAAS").seen(ctx, maas::seen(&machine))));
        }
        let is_ours = maas::is_ours(ctx, &machine) || machine.status == MachineStatus::Releasing;
        if !is_ours {
            return Err(maas::out_of_band(&machine, "this job did not deploy it and does not release it"));
        }
        release(ctx, &machine).await
    }
}

/// The last look before the disks are written: it boots from the disk that was chosen. spec: S5 4.13
fn is_configured(ctx: &Context<'_>, machine: &Machine) -> bool {
    let boots = machine.boot_disk.as_ref().map(|disk| disk.id.to_string());
    // A job whose configuration an operator had adopted chose none.
    ctx.job.outputs.boot_disk.as_ref().is_none_or(|chosen| boots.as_deref() == Some(chosen.id.as_str()))
}

/// One step of a way back to Ready: abort what runs, release what is held, else wait.
pub(super) async fn release(ctx: &Context<'_>, machine: &Machine) -> Result<Outcome, StageError> {
    let region = maas::region(ctx).await?;
    let comment = format!("Lattice job {}", ctx.job.id);
    let id = &machine.system_id;
    let after = if machine.status == MachineStatus::Deploying {
        region.client().abort(id, &comment).await.map_err(failed(ctx.now))?
    } else if machine.status.releasable() && machine.status != MachineStatus::Releasing {
        region.client().release(id, erase(ctx, machine)?, &comment).await.map_err(failed(ctx.now))?
    } else {
        machine.clone()
    };
    // An aborted deployment leaves the machine allocated: it is released in the next step, at once.
    let pause = if after.status == MachineStatus::Allocated { Duration::ZERO } else { RECHECK };
    Ok(Outcome::StillGoing {
        recheck_at: ctx.now + pause,
        waiting_for: format!("MAAS to release {}; it is {}", ctx.job.hostname, after.status),
        delta: Delta::default().seen(ctx, maas::seen(&after)),
    })
}

/// What a release erases: what the region is configured to; nothing once that failed, if the site's policy lets it.
/// spec: S5 3.6 `release_fallback_no_erase`, 5.3
fn erase(ctx: &Context<'_>, machine: &Machine) -> Result<Erase, StageError> {
    if !matches!(machine.status, MachineStatus::FailedReleasing | MachineStatus::FailedDiskErasing) {
        return Ok(Erase::AsConfigured);
    }
    if ctx.maas_site()?.policy.release_fallback_no_erase {
        return Ok(Erase::Nothing);
    }
    let text = format!(
        "machine {} is {} ({}), and the policy release_fallback_no_erase forbids a release without erasing: release it in \
         MAAS, or mark it fixed there",
        machine.system_id,
        machine.status,
        maas::reason(machine)
    );
    Err(error(FailureClass::StateAmbiguity, "release_failed", text))
}

fn undone(ctx: &Context<'_>, message: &str) -> Delta {
    let mut outputs = ctx.outputs();
    outputs.deployed = false;
    Delta::said(message).outputs(outputs)
}

/// Nothing is left of the machine: who begins anew looks for it anew.
fn gone(ctx: &Context<'_>) -> Delta {
    let mut outputs = ctx.outputs();
    outputs.deployed = false;
    outputs.provider_ref = None;
    outputs.boot_disk = None;
    Delta::said("the machine is gone from MAAS").outputs(outputs)
}

/// What a deployment that began means for the job and its node. The node boots, unless the agent of this very deployment
/// came before the deployment was seen to have begun.
async fn begun(ctx: &Context<'_>, machine: &Machine) -> Result<Delta, StageError> {
    let policy = &ctx.maas_site()?.policy;
    let mut outputs = ctx.outputs();
    outputs.deployed = true;
    let said = format!("deployment of {} begun", machine.system_id);
    let delta = Delta::said(said).outputs(outputs).seen(ctx, maas::seen(machine));
    let came = enrollment::token_of(ctx).await?.is_some_and(|token| token.used_at.is_some());
    if came {
        return Ok(delta);
    }
    // Deployed is said before the first boot ends: the agent has its own time after it.
    let boot_timeout = Duration::from_millis(policy.deploy_timeout_ms + policy.enrollment_timeout_ms);
    Ok(delta.ask(NodeAsk::Availability { event: AvailabilityEvent::BootStarted, boot_timeout }))
}
