//! Confirms a wipe: every step is proven, and the node booted anew since. Each device gets its certificate in the commit
//! that gives the node back. spec: S1 "Sensitive Release Sequence"

use async_trait::async_trait;
use lattice_core::change::Change;
use lattice_core::failure::FailureClass;
use lattice_core::ids::CertificateId;
use lattice_core::job::StageError;
use lattice_core::node::Availability;
use lattice_core::wipe::{WipeCertificate, WipeRun, WipeTarget, WipeTold};

use super::RECHECK;
use super::erase::{told, wiped};
use crate::enrollment::secret_error;
use crate::stage::{Context, Delta, NodeAsk, Observation, Outcome, StageRunner, error, store_failed};
use crate::wipe_keys::{WipeKeys, WipeKeysError};

/// See the module.
pub struct ConfirmWipe;

#[async_trait]
impl StageRunner for ConfirmWipe {
    async fn observe(&self, ctx: &Context<'_>) -> Result<Observation, StageError> {
        let run = proven(ctx)?;
        let node = ctx.node;
        let wait = |waiting_for: String| Observation::Waiting {
            recheck_at: ctx.now + RECHECK,
            waiting_for,
            delta: Delta::default(),
        };
        if node.boot_id == run.boot {
            return Ok(wait(format!("another boot of {} than the one in which it was erased", node.hostname)));
        }
        Ok(match node.state.availability {
            Availability::Ready | Availability::Drained => Observation::Absent,
            Availability::Unknown
            | Availability::Booting
            | Availability::Degraded
            | Availability::Down
            | Availability::Draining
            | Availability::Failed => wait(format!("the health check of {}; it is {}", node.hostname, node.state)),
        })
    }

    async fn act(&self, ctx: &Context<'_>, _: &str) -> Result<Outcome, StageError> {
        let run = proven(ctx)?;
        let keys = WipeKeys::load_or_create(&*ctx.tools.secrets, ctx.tools.entropy.bytes32()).await;
        let keys = keys.map_err(|failed| match failed {
            WipeKeysError::Store(failed) => secret_error(&failed, ctx.now),
            WipeKeysError::Damaged => {
                error(FailureClass::SiteCapabilityMissing, "signing_key_damaged", failed.to_string())
            }
        })?;
        let boot_before = run.boot.clone().unwrap_or_default();
        let boot_after = ctx.node.boot_id.clone().unwrap_or_default();
        let certificates = certificates(ctx, run, (&boot_before, &boot_after)).await?;
        let ids = certificates.iter().map(|one| one.id).collect();
        let confirmed = WipeTold::Confirmed {
            job: ctx.job.id,
            started_at: run.started_at,
            boot_before,
            boot_after,
            certificates: ids,
        };
        let said = format!("confirmed, with {} certificates", certificates.len());
        let mut changes = vec![told(ctx, confirmed)];
        let signed = certificates.into_iter().map(|one| one.signed(&keys.signer));
        changes.extend(signed.map(|file| Change::WipeCertificate(Box::new(file))));
        Ok(Outcome::Done(Delta { changes, ..Delta::said(said) }.ask(NodeAsk::Wiped)))
    }
}

/// The run, if every step of it is proven: whatever an operator had the job skip, an erasure is not.
fn proven<'a>(ctx: &Context<'a>) -> Result<&'a WipeRun, StageError> {
    let unproven = |target: WipeTarget| {
        let why = format!("nothing proves that the agent of {} did {}", ctx.node.hostname, target.in_words());
        error(FailureClass::StateAmbiguity, "step_unproven", why)
    };
    let run = ctx.job.outputs.wipe.as_ref().ok_or_else(|| unproven(WipeTarget::GpuMemory))?;
    match run.unproven() {
        Some(target) => Err(unproven(target)),
        None => Ok(run),
    }
}

async fn certificates(
    ctx: &Context<'_>,
    run: &WipeRun,
    (boot_before, boot_after): (&str, &str),
) -> Result<Vec<WipeCertificate>, StageError> {
    let mut certificates = Vec::new();
    for step in &run.steps {
        let task = ctx.tools.store.task(step.task).await.map_err(store_failed)?;
        let Some(output) = task.as_ref().and_then(wiped) else {
            let why = format!("the evidence of task {} is gone", step.task);
            return Err(error(FailureClass::StateAmbiguity, "evidence_gone", why));
        };
        certificates.extend(output.evidence.iter().map(|evidence| WipeCertificate {
            id: CertificateId::generate(&*ctx.tools.ids, ctx.now),
            node: ctx.node.id,
            hostname: ctx.node.hostname.clone(),
            site: ctx.site.id,
            job: ctx.job.id,
            task: step.task,
            erased: step.target,
            evidence: evidence.clone(),
            inventory: output.inventory.clone(),
            kept: step.kept.clone(),
            boot_before: boot_before.to_owned(),
            boot_after: boot_after.to_owned(),
            wipe_started_at: run.started_at,
            confirmed_at: ctx.now,
        }));
    }
    Ok(certificates)
}
