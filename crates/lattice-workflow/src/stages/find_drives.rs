//! Finds the drives that the BMC is to erase, before anything is touched.

use async_trait::async_trait;
use lattice_core::bmc::erasure::EVERY_DRIVE;
use lattice_core::bmc::{DriveErasure, ErasureState};
use lattice_core::failure::FailureClass;
use lattice_core::job::{JobInput, OperatorAction, StageError};
use lattice_providers::machine::bmc::DriveSeen;

use crate::power::{needed_bmc, of_bmc};
use crate::stage::{Context, Delta, Observation, Outcome, StageRunner, error, recovered_by};

/// See the module.
pub struct FindDrives;

#[async_trait]
impl StageRunner for FindDrives {
    async fn observe(&self, _: &Context<'_>) -> Result<Observation, StageError> {
        Ok(Observation::Absent)
    }

    async fn act(&self, ctx: &Context<'_>, _: &str) -> Result<Outcome, StageError> {
        let is_running = |one: &DriveErasure| matches!(one.state, ErasureState::Running { .. });
        if ctx.job.outputs.erasures.iter().any(is_running) {
            return Ok(Outcome::Done(Delta::said("its BMC is at one of them").skipped()));
        }
        let seen = needed_bmc(ctx).await?.drives().await.map_err(of_bmc(ctx.now))?;
        let chosen = chosen(ctx, seen)?;
        let names: Vec<&str> = chosen.iter().map(|drive| drive.name.as_str()).collect();
        let said = format!("to be erased: {}", names.join(", "));
        let mut outputs = ctx.outputs();
        // Looked for again, what was told already is not forgotten.
        let known = |seen: &DriveSeen| {
            let same = |one: &&DriveErasure| one.drive == seen.id && one.name == seen.name;
            ctx.job.outputs.erasures.iter().find(same).map(|one| one.state.clone())
        };
        let erasure = |seen: DriveSeen| {
            let state = known(&seen).unwrap_or(ErasureState::Waiting);
            DriveErasure { drive: seen.id, name: seen.name, state }
        };
        outputs.erasures = chosen.into_iter().map(erasure).collect();
        Ok(Outcome::Done(Delta::said(said).outputs(outputs)))
    }
}

/// All of them can be erased, or none is. What was asked for stays what it is: where it cannot be had, the job is over.
fn chosen(ctx: &Context<'_>, seen: Vec<DriveSeen>) -> Result<Vec<DriveSeen>, StageError> {
    let refused =
        |code, why| Err(recovered_by(OperatorAction::Cancel, error(FailureClass::InputConfigError, code, why)));
    let JobInput::SecureErase { drives, .. } = &ctx.job.input else {
        return refused("wrong_input", "this job erases no drives".to_owned());
    };
    let host = &ctx.node.hostname;
    let every = drives.iter().any(|drive| drive == EVERY_DRIVE);
    if let Some(unknown) = drives.iter().find(|name| !every && !seen.iter().any(|drive| drive.id == **name)) {
        let known: Vec<&str> = seen.iter().map(|drive| drive.id.as_str()).collect();
        return refused("drive_unknown", format!("the BMC of {host} has no {unknown}; it has {}", known.join(", ")));
    }
    let chosen: Vec<DriveSeen> = seen.into_iter().filter(|drive| every || drives.contains(&drive.id)).collect();
    if chosen.is_empty() {
        return refused("no_drives", format!("the BMC of {host} lists no drives"));
    }
    match chosen.iter().find(|drive| !drive.erasable) {
        Some(drive) => {
            refused("not_offered", format!("the BMC of {host} offers no secure erase of {} ({})", drive.id, drive.name))
        }
        None => Ok(chosen),
    }
}
