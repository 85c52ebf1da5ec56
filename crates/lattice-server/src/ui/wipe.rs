//! The last wipe of a node: each device with how it was erased and what proves it, what it waits for, its certificates.

use askama::Template;
use askama::filters::HtmlSafe;
use axum::Json;
use axum::extract::{Path, State};
use lattice_api::job::{JobQuery, JobView, StageProgress};
use lattice_api::page::MAX_LIMIT;
use lattice_api::task::{TaskQuery, TaskRow, TaskView};
use lattice_api::wipe::{WipeQuery, WipeRow};
use lattice_core::agent::task::{Progress, TaskOutput, TaskStatus, WipeEvidence};
use lattice_core::ids::NodeId;
use lattice_core::job::{JobKind, JobStatus, StageName};
use lattice_core::time::Timestamp;
use lattice_core::wipe::{ProvenStep, WipeTarget};
use strum::VariantArray;

use super::shell::Shell;
use super::words::{Pill, When, ago, lasting, of_job, of_stage, pill};
use crate::error::Answer;
use crate::http::extract::Query;
use crate::http::{App, jobs, tasks, wipes};

/// What the panel is made from, as the API answers it.
pub struct WipeParts {
    /// The newest wipe job of the node.
    pub job: JobView,
    /// The newest task of each of its steps.
    pub tasks: Vec<TaskView>,
    /// The certificates that it made.
    pub certificates: Vec<WipeRow>,
}

impl WipeParts {
    /// The newest wipe of a node, with the newest task of each of its steps.
    pub async fn of_node(app: &App, node: NodeId) -> Answer<Option<Self>> {
        let newest =
            JobQuery { node_id: Some(node), kind: Some(JobKind::SensitiveWipe), limit: Some(1), ..JobQuery::default() };
        let Some(row) = jobs::page(app, newest).await?.items.into_iter().next() else { return Ok(None) };
        let Json(job) = jobs::get(State(app.clone()), Path(row.id.to_string())).await?;
        let began = job.outputs.wipe.as_ref().map(|run| run.started_at);
        let (state, id) = (State(app.clone()), node.to_string());
        let mut tasks = Vec::new();
        for target in WipeTarget::VARIANTS {
            let query = TaskQuery { kind: Some(target.task()), limit: Some(1), ..TaskQuery::default() };
            let Json(page) = tasks::of_node(state.clone(), Path(id.clone()), Query(query)).await?;
            // A job that began anew has other tasks than before.
            let is_its =
                |row: &TaskRow| row.owner.job() == Some(job.row.id) && began.is_some_and(|at| row.issued_at >= at);
            if let Some(row) = page.items.into_iter().find(is_its) {
                tasks.push(tasks::get(state.clone(), Path(row.id.to_string())).await?.0);
            }
        }
        let query = WipeQuery { limit: Some(MAX_LIMIT), ..WipeQuery::default() };
        let Json(page) = wipes::of_node(state, Path(id), Query(query)).await?;
        let is_its = |row: &WipeRow| row.job_id == job.row.id && began.is_some_and(|at| row.confirmed_at >= at);
        let certificates = page.items.into_iter().filter(is_its).collect();
        Ok(Some(Self { job, tasks, certificates }))
    }
}

/// The panel.
#[derive(Template)]
#[template(path = "wipe.html")]
pub struct WipePanel {
    shell: Shell,
    job: JobView,
    steps: Vec<Step>,
    restart: Mark,
    /// Name of the file of its first certificate, once there is one.
    first_file: Option<String>,
}
impl HtmlSafe for WipePanel {}

/// Where something stands, for eyes and for screen readers.
struct Mark {
    progress: StageProgress,
}

impl Mark {
    fn glyph(&self) -> &'static str {
        of_stage(&self.progress).0
    }

    fn said(&self) -> &'static str {
        of_stage(&self.progress).1
    }

    fn class(&self) -> &'static str {
        match self.progress {
            StageProgress::Pending => "pending",
            StageProgress::Running => "running",
            StageProgress::Succeeded | StageProgress::Skipped => "done",
            StageProgress::Failed => "failed",
            StageProgress::Compensated => "pending",
        }
    }
}

/// One kind of device.
struct Step {
    words: &'static str,
    mark: Mark,
    said: String,
    devices: Vec<Device>,
    kept: Vec<String>,
}

/// A device with its evidence.
struct Device {
    evidence: WipeEvidence,
    certificate: Option<WipeRow>,
}

impl Device {
    /// `INTEL SSDPF2KX076, serial PHAC1234`.
    fn identity(&self) -> String {
        let serial = (!self.evidence.serial.is_empty()).then(|| format!("serial {}", self.evidence.serial));
        let model = (!self.evidence.model.is_empty()).then(|| self.evidence.model.clone());
        model.into_iter().chain(serial).collect::<Vec<_>>().join(", ")
    }

    fn ended(&self, shell: &Shell) -> When {
        ago(&self.evidence.finished_at, &shell.at)
    }
}

impl WipePanel {
    /// The panel of a wipe.
    pub fn of(shell: &Shell, parts: WipeParts) -> Self {
        let WipeParts { job, tasks, certificates } = parts;
        let first_file = certificates.first().map(|row| file_name(&row.hostname, &row.device));
        let steps = WipeTarget::VARIANTS.iter().map(|target| step(*target, &job, &tasks, &certificates)).collect();
        Self { shell: shell.clone(), restart: restart(&job), steps, first_file, job }
    }

    fn status(&self) -> Pill<&JobStatus> {
        pill(of_job(&self.job.row.status), &self.job.row.status)
    }

    fn began(&self) -> Option<When> {
        let run = self.job.outputs.wipe.as_ref()?;
        Some(lasting(&run.started_at, &self.shell.at))
    }

    /// When it fails for want of time; none: it is over, or did not begin.
    fn limit(&self) -> Option<When> {
        let is_live = !self.job.row.status.is_terminal() && !self.job.row.status.is_failed();
        self.job.limit_at.filter(|_| is_live).map(|at: Timestamp| ago(&at, &self.shell.at))
    }
}

/// The file of a certificate, as the page hands it out.
pub fn file_name(hostname: &str, device: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || c == '-' { c } else { '-' };
    format!("wipe-{}-{}.json", hostname.replace(|c| plain(c) != c, "-"), device.replace(|c| plain(c) != c, "-"))
}

fn step(target: WipeTarget, job: &JobView, tasks: &[TaskView], certificates: &[WipeRow]) -> Step {
    let steps = job.outputs.wipe.as_ref().map_or(&[][..], |run| &run.steps);
    let proven = steps.iter().find(|step| step.target == target);
    let task = match proven {
        Some(step) => tasks.iter().find(|task| task.row.id == step.task),
        None => tasks.iter().find(|task| task.row.kind == target.task()),
    };
    let evidence = task.map_or_else(Vec::new, evidence);
    let of_device = |evidence: &WipeEvidence| {
        let is_its = |row: &&WipeRow| row.erased == target && row.device == evidence.device;
        certificates.iter().find(is_its).cloned()
    };
    let (progress, said) = standing(proven, task);
    Step {
        words: target.in_words(),
        mark: Mark { progress },
        said,
        devices: evidence.into_iter().map(|one| Device { certificate: of_device(&one), evidence: one }).collect(),
        kept: proven.map_or_else(Vec::new, |step| step.kept.iter().cloned().collect()),
    }
}

fn standing(proven: Option<&ProvenStep>, task: Option<&TaskView>) -> (StageProgress, String) {
    match (proven, task) {
        (Some(step), _) if step.devices.is_empty() => {
            (StageProgress::Skipped, "the host has no such device that is to be erased".to_owned())
        }
        (Some(step), _) => (StageProgress::Succeeded, format!("proven for {}", devices(step.devices.len()))),
        (None, None) => (StageProgress::Pending, "not asked for yet".to_owned()),
        (None, Some(task)) => match task.row.status {
            TaskStatus::Pending => (StageProgress::Running, "waits for its agent to take it".to_owned()),
            TaskStatus::Delivered => (StageProgress::Running, "its agent has it".to_owned()),
            TaskStatus::Running => (StageProgress::Running, "its agent works on it".to_owned()),
            TaskStatus::Succeeded => (StageProgress::Running, "reported as done; not proven yet".to_owned()),
            TaskStatus::Failed | TaskStatus::Expired | TaskStatus::Cancelled => {
                let why = task.row.error.clone().unwrap_or_else(|| task.row.status.to_string());
                (StageProgress::Failed, why)
            }
        },
    }
}

fn devices(many: usize) -> String {
    super::words::many(many as u64, "device")
}

/// What the agent recorded: of a step that failed, too.
fn evidence(task: &TaskView) -> Vec<WipeEvidence> {
    let output = match task.report.as_ref().map(|report| &report.progress) {
        Some(Progress::Succeeded { output }) => Some(output),
        Some(Progress::Failed { output, .. }) => output.as_ref(),
        Some(Progress::Running) | None => None,
    };
    output.and_then(TaskOutput::wipe).map_or_else(Vec::new, |wiped| wiped.evidence.clone())
}

/// Whether the host was seen to have booted anew, which the last stage asks for.
fn restart(job: &JobView) -> Mark {
    let at = |name: StageName| job.stages.iter().find(|stage| stage.stage == name).map(|stage| stage.progress);
    let confirmed = at(StageName::ConfirmWipe).unwrap_or(StageProgress::Pending);
    let stages = [StageName::PowerOff, StageName::PowerOn, StageName::WaitForBoot, StageName::RebootHost];
    let begun = stages.into_iter().filter_map(at).any(|progress| progress != StageProgress::Pending);
    let failed = stages.into_iter().filter_map(at).any(|progress| progress == StageProgress::Failed);
    let progress = match confirmed {
        StageProgress::Pending if failed => StageProgress::Failed,
        StageProgress::Pending if begun => StageProgress::Running,
        StageProgress::Pending
        | StageProgress::Running
        | StageProgress::Succeeded
        | StageProgress::Skipped
        | StageProgress::Failed
        | StageProgress::Compensated => confirmed,
    };
    Mark { progress }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_has_a_name_that_every_system_takes() {
        assert_eq!(file_name("c07u43", "nvme0n1"), "wipe-c07u43-nvme0n1.json");
        assert_eq!(file_name("c07u43", "0000:26:00.0"), "wipe-c07u43-0000-26-00-0.json");
        assert_eq!(file_name("a.b", "../x\"\n"), "wipe-a-b----x--.json");
    }
}
