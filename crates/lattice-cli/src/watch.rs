//! Following a job or a node until it is where it should be, or until the deadline.

use std::io::IsTerminal;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use lattice_api::allocation::{AllocationStatus, AllocationView};
use lattice_api::batch::{BatchStatus, BatchView};
use lattice_api::client::get;
use lattice_api::job::{JobView, StageEventView, StageProgress};
use lattice_api::node::{Availability, NodeView, Status};
use serde::de::DeserializeOwned;

use crate::failure::Failure;
use crate::output::harmless;
use crate::session::{Answer, Session};
use crate::span;

/// Pause between two looks: what a person still takes for live.
const PAUSE: Duration = Duration::from_millis(500);

/// Pause between two looks at a batch: its estimate costs the server some work.
const BATCH_PAUSE: Duration = Duration::from_secs(2);

/// How long to wait, and what to say when it was not enough.
#[derive(Debug, Clone, Copy, clap::Args)]
pub struct Deadline {
    /// Give up waiting after this: 90s, 10m, 2h; the work itself goes on
    #[arg(long, value_name = "SPAN", value_parser = span::parse, default_value = "1h")]
    pub timeout: Duration,
}

/// Follows a job with its progress on stderr until it ends, and gives its last view.
///
/// # Errors
/// It ended badly, the deadline passed, or the server could not be asked.
pub async fn job(session: &Session, id: &str, deadline: Deadline) -> Result<Answer<JobView>, Failure> {
    let lines = Lines::new(&format!("job {id}"));
    let mut progress = Progress::default();
    let seen = |job: &JobView| progress.update(&lines, job);
    let path = ["jobs", id];
    let watching = until_ended(session, &path, PAUSE, seen, ended);
    let job = within(deadline, &format!("job {id}"), &format!("lattice explain job {id}"), watching).await;
    lines.finish();
    job
}

/// Looks again and again until `ended` says how it ended; each look is shown to `seen`.
async fn until_ended<T: DeserializeOwned>(
    session: &Session,
    path: &[&str],
    pause: Duration,
    mut seen: impl FnMut(&T),
    ended: fn(&T) -> Option<Result<(), Failure>>,
) -> Result<Answer<T>, Failure> {
    loop {
        let answer = session.ask::<T>(get(path)).await?;
        seen(&answer.value);
        if let Some(ended) = ended(&answer.value) {
            return ended.map(|()| answer);
        }
        tokio::time::sleep(pause).await;
    }
}

/// What is waited for, or the failure that it took too long.
async fn within<T>(
    deadline: Deadline,
    what: &str,
    explain: &str,
    watching: impl Future<Output = Result<T, Failure>>,
) -> Result<T, Failure> {
    match tokio::time::timeout(deadline.timeout, watching).await {
        Ok(done) => done,
        Err(_) => Err(too_late(deadline, what, explain)),
    }
}

/// None while it moves.
fn ended(job: &JobView) -> Option<Result<(), Failure>> {
    let status = job.row.status;
    if !status.is_terminal() && !status.is_failed() {
        return None;
    }
    let id = job.row.id;
    match (&job.failure, status.to_string().as_str()) {
        (_, "completed" | "reconciled") => Some(Ok(())),
        (Some(failure), status) => {
            Some(Err(Failure::refused(format!("job {id} is {status} at {}: {}", job.row.stage, failure.message))
                .because(format!("{} ({})", failure.class, failure.error_code))
                .next_steps(&failure.next_actions)))
        }
        (None, status) => Some(Err(Failure::refused(format!("job {id} is {status}"))
            .next(format!("lattice explain job {id}"), "says why, and what can be done"))),
    }
}

/// Follows a batch with its progress on stderr until nothing of it moves any more, and gives its last view.
///
/// # Errors
/// A machine of it stopped for an operator or was cancelled, the deadline passed, or the server could not be asked.
pub async fn batch(session: &Session, id: &str, deadline: Deadline) -> Result<Answer<BatchView>, Failure> {
    let lines = Lines::new(&format!("batch {id}"));
    let mut progress = BatchProgress::default();
    let seen = |batch: &BatchView| progress.update(&lines, batch);
    let path = ["onboardings", "batch", id];
    let watching = until_ended(session, &path, BATCH_PAUSE, seen, batch_ended);
    let batch = within(deadline, &format!("batch {id}"), &format!("lattice explain batch {id}"), watching).await;
    lines.finish();
    batch
}

/// None while it moves. A paused batch is waited for: somebody will let it go on.
fn batch_ended(batch: &BatchView) -> Option<Result<(), Failure>> {
    let (row, children) = (&batch.row, &batch.row.children);
    let failure = || {
        let text = format!(
            "batch {} is {}: {} of {} machines became nodes, {} stopped, {} were cancelled",
            row.id,
            row.status,
            children.succeeded,
            row.machines,
            children.failed(),
            children.cancelled
        );
        Some(Err(Failure::refused(text)
            .next(format!("lattice explain batch {}", row.id), "says which machines stopped, and what helps")))
    };
    match row.status {
        BatchStatus::Completed if children.succeeded == row.machines => Some(Ok(())),
        BatchStatus::Completed | BatchStatus::Cancelled | BatchStatus::PartialFailure | BatchStatus::Failed => {
            failure()
        }
        BatchStatus::Pending | BatchStatus::Running | BatchStatus::Paused | BatchStatus::Cancelling => None,
    }
}

/// A line for each machine that stopped and each change of status.
#[derive(Default)]
struct BatchProgress {
    status: Option<BatchStatus>,
    told: std::collections::HashSet<String>,
}

impl BatchProgress {
    fn update(&mut self, lines: &Lines, batch: &BatchView) {
        let (row, children) = (&batch.row, &batch.row.children);
        if self.status != Some(row.status) {
            lines.tell(&format!("batch {} is {}", row.id, row.status));
            self.status = Some(row.status);
        }
        for job in batch.stopped.iter().rev() {
            let code = job.error_code.as_deref().unwrap_or("unknown");
            let line = format!("{} stopped at {}: {code}", job.hostname, job.stage);
            if self.told.insert(format!("{line} {}", job.generation.0)) {
                lines.tell(&harmless(&line));
            }
        }
        let Some(bar) = &lines.bar else { return };
        bar.set_length(row.machines);
        bar.set_position(children.over());
        let left = batch.time_left.as_ref().map(crate::commands::batch::left).unwrap_or_default();
        let stopped = if children.failed() > 0 { format!(", {} stopped", children.failed()) } else { String::new() };
        bar.set_message(format!("{} run, {} wait{stopped}; {left}", children.moving(), children.pending));
    }
}

/// Lines for what happened; in a terminal a bar below them.
struct Lines {
    bar: Option<ProgressBar>,
}

impl Lines {
    fn new(message: &str) -> Self {
        let bar = std::io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::new(1);
            let style = ProgressStyle::with_template("{bar:24} {pos}/{len} {elapsed} {wide_msg}");
            bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
            bar.set_message(message.to_owned());
            bar.enable_steady_tick(PAUSE);
            bar
        });
        Self { bar }
    }

    fn tell(&self, line: &str) {
        match &self.bar {
            Some(bar) => bar.println(line),
            None => eprintln!("{line}"),
        }
    }

    fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

/// Follows a node until its availability is `wanted`.
///
/// # Errors
/// It failed or went down, the deadline passed, or the server could not be asked.
pub async fn node(session: &Session, name: &str, wanted: &str, deadline: Deadline) -> Result<(), Failure> {
    let explain = format!("lattice explain node {name}");
    let watching = async {
        let mut last = String::new();
        loop {
            let node: NodeView = session.client.node(name).await?;
            let now = node.row.availability.to_string();
            if now != last {
                eprintln!("{name}: {} / {now}", node.row.status);
            }
            if now == wanted {
                return Ok(());
            }
            if (now == "failed" || now == "down") && now != last && !last.is_empty() {
                return Err(Failure::refused(format!("{name} is {now}, and was to become {wanted}"))
                    .next(explain.clone(), "says why, and what can be done"));
            }
            last = now;
            tokio::time::sleep(PAUSE).await;
        }
    };
    within(deadline, name, &explain, watching).await
}

/// Waits until a node's status or availability has that name.
///
/// # Errors
/// Nothing is called so, the deadline passed, or the server could not be asked.
pub async fn state(session: &Session, name: &str, wanted: &str, deadline: Deadline) -> Result<(), Failure> {
    let wanted = wanted.replace('-', "_");
    if wanted.parse::<Availability>().is_err() && wanted.parse::<Status>().is_err() {
        return Err(Failure::refused(format!("`{wanted}` is no status and no availability of a node"))
            .next("lattice node list", "shows both of each node"));
    }
    let waiting = async {
        loop {
            let node: NodeView = session.client.node(name).await?;
            let row = &node.row;
            if row.availability.to_string() == wanted || row.status.to_string() == wanted {
                return crate::output::text(&format!("{name}: {} / {}\n", row.status, row.availability));
            }
            tokio::time::sleep(PAUSE).await;
        }
    };
    within(deadline, name, &format!("lattice explain node {name}"), waiting).await
}

/// Waits until an allocation has that status.
///
/// # Errors
/// The deadline passed, or the server could not be asked.
pub async fn allocation(
    session: &Session,
    id: &str,
    wanted: AllocationStatus,
    deadline: Deadline,
) -> Result<(), Failure> {
    let waiting = async {
        loop {
            let one = session.ask::<AllocationView>(get(&["allocations", id])).await?.value.row;
            if one.status == wanted {
                let at = one.hostname.map_or_else(String::new, |hostname| format!(" on {hostname}"));
                return crate::output::text(&format!("{id}: {}{at}\n", one.status));
            }
            tokio::time::sleep(PAUSE).await;
        }
    };
    within(deadline, id, &format!("lattice explain allocation {id}"), waiting).await
}

fn too_late(deadline: Deadline, what: &str, explain: &str) -> Failure {
    let span = span::words(u64::try_from(deadline.timeout.as_millis()).unwrap_or(u64::MAX));
    Failure::refused(format!("{what} was not done within {span}"))
        .because("only the waiting stopped; the work goes on")
        .next(explain, "says what it waits for")
}

/// A line for each event of a job's stages.
#[derive(Default)]
struct Progress {
    told: usize,
    last: Option<StageEventView>,
}

impl Progress {
    fn update(&mut self, lines: &Lines, job: &JobView) {
        // The newest events are kept, so the place of the last one told moves when old ones fall out.
        let from = match &self.last {
            Some(last) => job.events.iter().rposition(|event| event == last).map_or(0, |at| at + 1),
            None => self.told,
        };
        for event in &job.events[from.min(job.events.len())..] {
            lines.tell(&harmless(&event_line(event)));
        }
        self.told = job.events.len();
        self.last = job.events.last().cloned();
        if let Some(bar) = &lines.bar {
            let done = job.stages.iter().filter(|stage| is_over(stage.progress)).count();
            bar.set_length(job.stages.len() as u64);
            bar.set_position(done as u64);
            let usual = job.stages.iter().find(|stage| stage.stage == job.row.stage).and_then(|stage| stage.usual_ms);
            let usual = usual.map(|ms| format!(", usually {}", span::words(ms))).unwrap_or_default();
            bar.set_message(format!("{} {}{usual}", job.row.hostname, job.row.stage));
        }
    }
}

const fn is_over(progress: StageProgress) -> bool {
    match progress {
        StageProgress::Succeeded | StageProgress::Skipped => true,
        StageProgress::Pending | StageProgress::Running | StageProgress::Failed | StageProgress::Compensated => false,
    }
}

/// One event of a stage in one line.
pub fn event_line(event: &StageEventView) -> String {
    let attempt = if event.attempt > 1 { format!(" (attempt {})", event.attempt) } else { String::new() };
    let message = if event.message.is_empty() { String::new() } else { format!(": {}", event.message) };
    format!("{} {} {}{attempt}{message}", event.at, event.stage, event.status)
}
