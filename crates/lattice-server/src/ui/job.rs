//! A job: its stages against their usual time, its attempts, why it stopped and what would move it.

use askama::Template;
use lattice_api::explanation::Explanation;
use lattice_api::fleet::StageStats;
use lattice_api::job::{JobView, StageEventView, StageProgress, StageView};
use lattice_core::job::{StageEventStatus, StageName};
use lattice_core::time::Timestamp;

use super::action::{Button, Remedy, job_button};
use super::shell::Shell;
use super::words::{Tone, of_job, of_stage, took};

/// What a job is shown from, as the API answers it.
pub struct JobParts {
    /// The job.
    pub view: JobView,
    /// Why it is not moving.
    pub explanation: Explanation,
    /// How long stages have taken.
    pub stats: Vec<StageStats>,
    /// Names that may be chosen where a disk is asked for.
    pub disks: Vec<String>,
}

/// A job, ready to be shown.
pub struct JobSection {
    /// The job.
    pub view: JobView,
    /// Why it is not moving.
    pub explanation: Explanation,
    /// What its status means.
    pub tone: Tone,
    /// Stages that were reached, and the next one.
    pub stages: Vec<StageLine>,
    /// Stages that are still far.
    pub later: Vec<StageLine>,
    /// How long the rest usually takes, when that is known of any of it.
    pub usual_left: Option<String>,
    /// Facts beside the failure's own message.
    pub facts: Vec<String>,
    /// What helps.
    pub remedies: Vec<Remedy>,
    /// What may be asked of it.
    pub buttons: Vec<Button>,
    /// What happened, newest first.
    pub events: Vec<EventLine>,
}

/// One stage.
pub struct StageLine {
    /// Which.
    pub name: StageName,
    /// Its mark.
    pub glyph: &'static str,
    /// What a screen reader says for the mark.
    pub said: &'static str,
    /// How it is drawn.
    pub class: &'static str,
    /// How often it was tried.
    pub attempts: u32,
    /// Time taken, in words.
    pub time: String,
    /// Usual time, in words.
    pub usual: String,
    /// Time taken, drawn.
    pub bar: Option<Bar>,
    /// What it said last, where that still matters.
    pub message: Option<String>,
}

/// A bar of 100 units.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bar {
    /// How far it is filled.
    pub fill: u64,
    /// Where the mark of the usual time stands.
    pub mark: Option<u64>,
    /// How it is drawn.
    pub class: &'static str,
    /// The same in words.
    pub said: String,
}

/// One event of a stage.
pub struct EventLine {
    /// When.
    pub at: Timestamp,
    /// Of which stage.
    pub stage: StageName,
    /// What.
    pub status: StageEventStatus,
    /// In which attempt.
    pub attempt: u32,
    /// For people.
    pub message: String,
    /// Whether it is a failure.
    pub bad: bool,
}

/// The page of one job.
#[derive(Template)]
#[template(path = "job.html", blocks = ["main"])]
pub struct JobPage {
    /// Frame.
    pub shell: Shell,
    /// The job.
    pub job: JobSection,
}

impl JobSection {
    /// The job of these answers.
    pub fn of(parts: JobParts, shell: &Shell) -> Self {
        let JobParts { view, explanation, stats, disks } = parts;
        let reached = view.stages.iter().rposition(|stage| stage.progress != StageProgress::Pending);
        let near = reached.map_or(1, |last| last + 1);
        let usual = |stage: &StageView| usual_of(stage, &stats);
        let (stages, later) = view.stages.split_at(near.min(view.stages.len()));
        let left: u64 = later.iter().filter_map(|stage| stage.usual_ms).sum();
        let steps = view.failure.as_ref().map_or(&explanation.next_actions, |failure| &failure.next_actions);
        Self {
            tone: of_job(&view.row.status),
            stages: stages.iter().map(|stage| line(stage, usual(stage))).collect(),
            later: later.iter().map(|stage| line(stage, usual(stage))).collect(),
            usual_left: (left > 0).then(|| took(left)),
            facts: facts(&view, &explanation),
            remedies: Remedy::all(steps, shell).into_iter().map(|remedy| remedy.choices(&disks)).collect(),
            buttons: view.actions.iter().map(|action| job_button(*action, view.row.id, shell)).collect(),
            events: view.events.iter().rev().map(event_line).collect(),
            view,
            explanation,
        }
    }
}

/// What the explanation adds to the failure's own message.
fn facts(view: &JobView, explanation: &Explanation) -> Vec<String> {
    let Some(failure) = &view.failure else { return Vec::new() };
    let is_new = |fact: &&String| !fact.contains(&failure.message) && !fact.starts_with("the provider last said");
    explanation.because.iter().map(|reason| &reason.fact).filter(is_new).cloned().collect()
}

/// The time by which 95 of 100 runs were done; half of them where only that is known.
fn usual_of(stage: &StageView, stats: &[StageStats]) -> Option<u64> {
    let row = stats.iter().find(|row| row.stage == stage.stage);
    row.map(|row| row.p95_ms).or(stage.usual_ms)
}

fn line(stage: &StageView, usual_ms: Option<u64>) -> StageLine {
    let (glyph, said) = of_stage(&stage.progress);
    StageLine {
        name: stage.stage,
        glyph,
        said,
        class: class_of(stage.progress),
        attempts: stage.attempts,
        time: time_words(stage),
        usual: stage.usual_ms.map_or_else(String::new, |ms| format!("about {}", took(ms))),
        bar: stage.took_ms.map(|ms| bar(ms, usual_ms, stage.progress)),
        message: stage.message.clone().filter(|_| !super::fleet::is_past(stage.progress)),
    }
}

fn time_words(stage: &StageView) -> String {
    let time = stage.took_ms.map(took).unwrap_or_default();
    match stage.progress {
        StageProgress::Failed => format!("failed, {time}"),
        StageProgress::Running => match stage.usual_ms {
            Some(usual) => format!("{time} of about {}", took(usual)),
            None => time,
        },
        StageProgress::Skipped => "nothing to do".to_owned(),
        StageProgress::Compensated => "undone".to_owned(),
        StageProgress::Pending | StageProgress::Succeeded => time,
    }
}

const fn class_of(progress: StageProgress) -> &'static str {
    match progress {
        StageProgress::Pending => "pending",
        StageProgress::Running => "running",
        StageProgress::Succeeded | StageProgress::Skipped => "done",
        StageProgress::Failed => "failed",
        StageProgress::Compensated => "undone",
    }
}

/// The longer of both fills four fifths, so that the mark never stands at the edge.
fn bar(took_ms: u64, usual_ms: Option<u64>, progress: StageProgress) -> Bar {
    let full = took_ms.max(usual_ms.unwrap_or(0)).max(1).saturating_mul(5) / 4;
    let part = |ms: u64| (ms.saturating_mul(100) / full.max(1)).min(100);
    let is_late = usual_ms.is_some_and(|usual| took_ms > usual);
    let class = match (progress, is_late) {
        (StageProgress::Failed, _) => "fail",
        (
            StageProgress::Pending
            | StageProgress::Running
            | StageProgress::Succeeded
            | StageProgress::Skipped
            | StageProgress::Compensated,
            true,
        ) => "late",
        (
            StageProgress::Pending
            | StageProgress::Running
            | StageProgress::Succeeded
            | StageProgress::Skipped
            | StageProgress::Compensated,
            false,
        ) => "fine",
    };
    let usual = usual_ms.map_or_else(String::new, |ms| format!("; 95 of 100 take up to {}", took(ms)));
    Bar {
        fill: part(took_ms).max(1),
        mark: usual_ms.map(part),
        class,
        said: format!("took {}{usual}{}", took(took_ms), if is_late { ": longer than usual" } else { "" }),
    }
}

fn event_line(event: &StageEventView) -> EventLine {
    EventLine {
        at: event.at,
        stage: event.stage,
        status: event.status,
        attempt: event.attempt,
        message: event.message.clone(),
        bad: event.status == StageEventStatus::Failed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_shows_time_taken_against_the_usual_time() {
        let fine = bar(1_000, Some(2_000), StageProgress::Succeeded);
        assert_eq!((fine.fill, fine.mark, fine.class), (40, Some(80), "fine"));
        let late = bar(4_000, Some(2_000), StageProgress::Running);
        assert_eq!((late.fill, late.mark, late.class), (80, Some(40), "late"));
        assert!(late.said.ends_with("longer than usual"), "{}", late.said);
        let failed = bar(900, None, StageProgress::Failed);
        assert_eq!((failed.fill, failed.mark, failed.class), (80, None, "fail"));
        assert_eq!(bar(0, None, StageProgress::Succeeded).fill, 1, "something was done");
    }
}
