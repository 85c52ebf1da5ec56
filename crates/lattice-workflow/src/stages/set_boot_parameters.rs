//! Sets what the machine boots, under both of its names. They hold no secret: anybody may read a boot script. spec: S1
//! "OpenCHAMI BSS serves the appropriate image"

use async_trait::async_trait;
use lattice_core::job::{Netboot, StageError, UndoKind};

use super::openchami::{are_ours, client, forget_before, keep_before, kept_before, machine, netboot, of, wanted};
use crate::stage::{Context, Delta, Observation, Outcome, StageRunner};

/// See the module.
pub struct SetBootParameters;

#[async_trait]
impl StageRunner for SetBootParameters {
    async fn observe(&self, ctx: &Context<'_>) -> Result<Observation, StageError> {
        let (bss, machine) = (client(ctx).await?, machine(ctx)?);
        let boots = bss.boots(&machine).await.map_err(of(ctx))?;
        let (name, boot) = wanted(ctx, &machine, &boots)?;
        if boots.are(&boot) { Ok(Observation::Done(set(ctx, name)?)) } else { Ok(Observation::Absent) }
    }

    async fn act(&self, ctx: &Context<'_>, _: &str) -> Result<Outcome, StageError> {
        let (bss, machine) = (client(ctx).await?, machine(ctx)?);
        let boots = bss.boots(&machine).await.map_err(of(ctx))?;
        let (name, boot) = wanted(ctx, &machine, &boots)?;
        // Kept before the first change and never overwritten: an attempt that was cut off set one of the two already.
        if ctx.stage.undo.is_some() && kept_before(ctx).await?.is_none() {
            keep_before(ctx, &boots).await?;
        }
        bss.set_boot(&machine, &boot).await.map_err(of(ctx))?;
        Ok(Outcome::Done(set(ctx, name)?))
    }

    async fn undo(&self, ctx: &Context<'_>, _: UndoKind, _: &str) -> Result<Outcome, StageError> {
        let Some(before) = kept_before(ctx).await? else {
            return Ok(Outcome::Done(Delta::said("its boot parameters were not changed").skipped()));
        };
        let (bss, machine) = (client(ctx).await?, machine(ctx)?);
        let boots = bss.boots(&machine).await.map_err(of(ctx))?;
        let is_ours = boots.each().any(|boot| are_ours(ctx, boot));
        if is_ours && boots != before {
            bss.restore_boots(&machine, &before).await.map_err(of(ctx))?;
        }
        forget_before(ctx).await?;
        Ok(Outcome::Done(Delta::said(match is_ours {
            true => "it boots again what it booted before",
            false => "somebody else set what it boots meanwhile: that is left",
        })))
    }
}

fn set(ctx: &Context<'_>, name: String) -> Result<Delta, StageError> {
    let said = format!("it boots `{name}`");
    let mut outputs = ctx.outputs();
    outputs.netboot = Some(Netboot { profile: Some(name), ..netboot(ctx)?.clone() });
    Ok(Delta::said(said).outputs(outputs))
}
