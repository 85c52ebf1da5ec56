//! One step of a wipe: a signed task erases every device of a kind, and its evidence is judged, committed and audited.

use std::collections::BTreeSet;

use async_trait::async_trait;
use lattice_core::agent::task::{
    EraseMethod, GpuScrub, NvmeErase, Progress, RamScrub, Task, TaskInput, TaskStatus, WipeOutput,
};
use lattice_core::change::Change;
use lattice_core::failure::FailureClass;
use lattice_core::job::{JobOutputs, StageError};
use lattice_core::wipe::{ProvenStep, WipeRun, WipeTarget, WipeTold};

use super::{RECHECK, issued, not_done, task_of};
use crate::stage::{Context, Delta, Observation, Outcome, StageRunner, error, store_failed};

/// Memory that is left to the running system while all other memory is overwritten, in MiB: an agent, a shell and the
/// kernel's own need fit in, and little of what an allocation left does. The restart that follows clears the rest.
const RESERVE_MIB: u64 = 1_024;

/// Erases every device of that kind.
pub struct EraseDevices(pub WipeTarget);

#[async_trait]
impl StageRunner for EraseDevices {
    async fn observe(&self, ctx: &Context<'_>) -> Result<Observation, StageError> {
        let Some(task) = task_of(ctx).await? else { return Ok(Observation::Absent) };
        match task.status {
            TaskStatus::Pending | TaskStatus::Delivered | TaskStatus::Running => Ok(Observation::Waiting {
                recheck_at: ctx.now + RECHECK,
                waiting_for: self.waiting_for(ctx, &task),
                delta: Delta::default(),
            }),
            TaskStatus::Succeeded => self.judge(ctx, &task),
            TaskStatus::Failed | TaskStatus::Expired | TaskStatus::Cancelled => {
                Err(not_done(ctx, &task, self.0.in_words()))
            }
        }
    }

    async fn act(&self, ctx: &Context<'_>, _: &str) -> Result<Outcome, StageError> {
        let issued = issued(ctx, self.input(ctx).await?)?;
        let mut delta = Delta { changes: vec![issued], ..Delta::default() };
        if ctx.job.outputs.wipe.is_none() {
            let mut outputs = ctx.outputs();
            outputs.wipe = Some(WipeRun { started_at: ctx.now, boot: None, steps: Vec::new() });
            delta = delta.outputs(outputs);
            delta.changes.push(told(ctx, WipeTold::Began { job: ctx.job.id }));
        }
        let waiting_for = format!("the agent of {} to {}", ctx.node.hostname, self.0.in_words());
        Ok(Outcome::StillGoing { recheck_at: ctx.now + RECHECK, waiting_for, delta })
    }
}

impl EraseDevices {
    fn waiting_for(&self, ctx: &Context<'_>, task: &Task) -> String {
        format!("the agent of {} to {}; task {} is {}", ctx.node.hostname, self.0.in_words(), task.id, task.status)
    }

    async fn input(&self, ctx: &Context<'_>) -> Result<TaskInput, StageError> {
        match self.0 {
            WipeTarget::GpuMemory => {
                let sku = ctx.tools.store.sku(&ctx.node.sku).await.map_err(store_failed)?;
                let Some(sku) = sku else {
                    let why =
                        format!("SKU {} is gone: how many GPUs {} has is not known", ctx.node.sku, ctx.node.hostname);
                    return Err(error(FailureClass::InputConfigError, "sku_unknown", why));
                };
                Ok(TaskInput::GpuScrub(GpuScrub { gpus: sku.gpus }))
            }
            WipeTarget::NvmeDrive => drives(ctx).await,
            WipeTarget::MainMemory => Ok(TaskInput::RamScrub(RamScrub { reserve_mib: RESERVE_MIB })),
        }
    }

    /// A wipe that a device reports as done without evidence is not a wipe.
    fn judge(&self, ctx: &Context<'_>, task: &Task) -> Result<Observation, StageError> {
        let without = |why: String| {
            let message =
                format!("{} says that it did {}: {why} (task {})", ctx.node.hostname, self.0.in_words(), task.id);
            error(FailureClass::HardwareMismatch, "wipe_without_evidence", message)
        };
        let output = wiped(task).ok_or_else(|| without("its report has no evidence".to_owned()))?;
        output.proves(&task.input).map_err(|why| without(why.to_string()))?;
        let devices: BTreeSet<String> = output.evidence.iter().map(|record| record.device.clone()).collect();
        let kept: BTreeSet<String> = output.inventory.difference(&devices).cloned().collect();
        let step = ProvenStep { target: self.0, task: task.id, devices, kept };
        let said = format!("{} erased, with evidence", names(&step.devices));
        let proven =
            WipeTold::StepProven { job: ctx.job.id, target: self.0, task: task.id, evidence: output.evidence.clone() };
        let delta = Delta { changes: vec![told(ctx, proven)], ..Delta::said(said) };
        Ok(Observation::Done(delta.outputs(with_step(ctx, step))))
    }
}

/// What a wipe's task recorded.
pub(super) fn wiped(task: &Task) -> Option<&WipeOutput> {
    match task.report.as_ref().map(|report| &report.progress) {
        Some(Progress::Succeeded { output }) => output.wipe(),
        Some(Progress::Running | Progress::Failed { .. }) | None => None,
    }
}

/// All NVMe drives that the host showed when its agent registered; the agent checks that there are no others.
async fn drives(ctx: &Context<'_>) -> Result<TaskInput, StageError> {
    let facts = ctx.tools.store.host_facts(ctx.node.id).await.map_err(store_failed)?;
    let Some((facts, _)) = facts else {
        let why = format!("what {} has is not known: its agent never registered", ctx.node.hostname);
        return Err(error(FailureClass::StateAmbiguity, "host_unknown", why));
    };
    let (used, devices): (Vec<_>, Vec<_>) =
        facts.disks.into_iter().filter(|disk| disk.name.starts_with("nvme")).partition(|disk| disk.in_use);
    let keep: BTreeSet<String> = used.into_iter().map(|disk| disk.name).collect();
    if let Some(name) = keep.first().filter(|_| !ctx.site.sensitive.keep_system_drive) {
        let why = format!(
            "{name} of {} carries the running system and cannot be erased from within it; a site that accepts that it \
             stays as it is says so: sensitive.keep_system_drive=true",
            ctx.node.hostname
        );
        return Err(error(FailureClass::HardwareMismatch, "system_drive_in_use", why));
    }
    let devices = devices.into_iter().map(|disk| disk.name).collect();
    Ok(TaskInput::NvmeErase(NvmeErase { devices, keep, method: EraseMethod::Crypto }))
}

/// The outputs with one step more. The boot in which it ended is the one that must be over in the end.
fn with_step(ctx: &Context<'_>, step: ProvenStep) -> JobOutputs {
    let mut outputs = ctx.outputs();
    let run = outputs.wipe.get_or_insert_with(|| WipeRun { started_at: ctx.now, boot: None, steps: Vec::new() });
    run.boot = ctx.node.boot_id.clone();
    run.steps.retain(|known| known.target != step.target);
    run.steps.push(step);
    outputs
}

pub(super) fn told(ctx: &Context<'_>, told: WipeTold) -> Change {
    Change::Wipe { node: ctx.node.id, told: Box::new(told) }
}

fn names(devices: &BTreeSet<String>) -> String {
    match devices.is_empty() {
        true => "there is nothing to be".to_owned(),
        false => devices.iter().map(String::as_str).collect::<Vec<_>>().join(", "),
    }
}
