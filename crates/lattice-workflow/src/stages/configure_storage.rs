//! Boot disk and storage layout. spec: S5 4.3 ConfigureStorage

use async_trait::async_trait;
use lattice_core::failure::FailureClass;
use lattice_core::job::{BootDisk, StageError};
use lattice_core::site::disks::{DiskCandidate, boot_disk, describe};
use lattice_providers::machine::maas::body::BlockDevice;
use lattice_providers::machine::maas::{Machine, MachineStatus};

use super::maas;
use crate::providers::failed;
use crate::stage::{Context, Delta, Observation, Outcome, StageRunner, error};

/// See the module.
pub struct ConfigureStorage;

#[async_trait]
impl StageRunner for ConfigureStorage {
    async fn observe(&self, ctx: &Context<'_>) -> Result<Observation, StageError> {
        let machine = maas::fresh(ctx).await?;
        if maas::is_deployed_by_us(ctx, &machine) {
            return Ok(Observation::Done(Delta::said("it is deployed by this job already").skipped()));
        }
        if !matches!(machine.status, MachineStatus::Ready | MachineStatus::Allocated) {
            return Ok(maas::conflict(ctx, &machine, "its storage can be set only while it is Ready"));
        }
        let wanted = wanted(ctx, &machine)?;
        let boots = machine.boot_disk.as_ref().filter(|disk| disk.id.to_string() == wanted.id);
        if boots.is_some_and(BlockDevice::has_flat_layout) {
            return Ok(Observation::Done(set(ctx, wanted).skipped()));
        }
        Ok(Observation::Absent)
    }

    async fn act(&self, ctx: &Context<'_>, _: &str) -> Result<Outcome, StageError> {
        let machine = maas::fresh(ctx).await?;
        let disk = wanted(ctx, &machine)?;
        let number: u64 = disk.id.parse().map_err(|_| {
            error(FailureClass::StateAmbiguity, "disk_unknown", format!("`{}` is not a disk's id in MAAS", disk.id))
        })?;
        let region = maas::region(ctx).await?;
        region.client().set_boot_disk(&machine.system_id, number).await.map_err(failed(ctx.now))?;
        region.client().set_flat_layout(&machine.system_id).await.map_err(failed(ctx.now))?;
        Ok(Outcome::Done(set(ctx, disk)))
    }
}

fn set(ctx: &Context<'_>, disk: BootDisk) -> Delta {
    let mut outputs = ctx.outputs();
    let message = format!("boots from {} ({}), flat layout", disk.name, disk.model);
    outputs.boot_disk = Some(disk);
    Delta::said(message).outputs(outputs)
}

/// The disk to boot from: an operator's choice, else the boot card.
pub(super) fn wanted(ctx: &Context<'_>, machine: &Machine) -> Result<BootDisk, StageError> {
    let disks: Vec<DiskCandidate> = machine
        .physicalblockdevice_set
        .iter()
        .map(|disk| DiskCandidate {
            id: disk.id.to_string(),
            name: disk.name.clone(),
            model: disk.model.clone(),
            id_path: disk.id_path.clone(),
            size_bytes: disk.size,
        })
        .collect();
    let decision = ctx.job.state.decisions.boot_disk.as_deref();
    match boot_disk(&disks, decision) {
        Some(disk) => Ok(BootDisk { id: disk.id.clone(), name: disk.name.clone(), model: disk.model.clone() }),
        None => {
            let wanted = decision
                .map_or("no disk looks like a boot card".to_owned(), |name| format!("no disk is called {name}"));
            let text = format!("{wanted}; there are: {}", describe(&disks));
            let choices = disks.iter().map(|disk| disk.name.clone()).collect();
            Err(StageError { choices, ..error(FailureClass::HardwareMismatch, "boot_disk_not_found", text) })
        }
    }
}
