//! Brings reports to the server, each until it is taken, over a connection of its own: the agent's own one is parked.

use std::convert::Infallible;
use std::time::Duration;

use lattice_api::agent::{ReportTaken, report_path};
use lattice_core::agent::task::{Progress, TaskErrorCode, TaskReport};
use lattice_core::explain::Code;
use lattice_core::ids::NodeId;
use tracing::{info, warn};

use super::journal::Stage;
use super::{Job, Tasks};
use crate::backoff::Backoff;
use crate::link::{CallError, Link, Target};

/// Connections without a report are closed after this: reports come in bursts.
const IDLE: Duration = Duration::from_secs(20);

/// What the server said to a report.
enum Answer {
    /// It has it, or nothing that an agent can do would make it take it.
    Settled,
    /// The wipe is not proven: the task is to be reported as failed.
    NotProven(String),
    /// Something that passes.
    Again(String),
}

impl Tasks {
    /// Brings what is to be said to the server, for ever.
    pub(super) async fn report(&self) -> Infallible {
        let mut link: Option<(Target, Link)> = None;
        let mut backoff = Backoff::new(self.pace.backoff_base);
        loop {
            let Some(job) = self.next_report() else {
                let rung = tokio::time::timeout(IDLE, self.to_report.notified());
                if rung.await.is_err() {
                    // Nothing came for a while.
                    link = None;
                    self.to_report.notified().await;
                }
                continue;
            };
            match self.send(&mut link, &job.report).await {
                Answer::Settled => {
                    backoff.reset();
                    self.settle(job).await;
                }
                Answer::NotProven(detail) => {
                    // Said again, it would be refused again.
                    self.passing().retain(|report| *report != job.report);
                    let progress = Progress::failed(TaskErrorCode::NoEvidence, detail);
                    self.replace(TaskReport { progress, ..job.report }).await;
                }
                Answer::Again(reason) => {
                    link = None;
                    let wait = backoff.failed(self.pace.backoff_cap, (self.ground.chance)());
                    info!(task_id = %job.report.task, reason, wait_ms = wait.as_millis(), "report is sent again");
                    tokio::time::sleep(wait).await;
                }
            }
        }
    }

    /// Urgent words first: that a task began. Then what the journal holds.
    fn next_report(&self) -> Option<Job> {
        let passing = self.passing().front().cloned();
        let passing = passing.map(|report| Job { report, is_kept: false });
        passing.or_else(|| {
            let report = self.journal.unreported().into_iter().next()?;
            Some(Job { report, is_kept: true })
        })
    }

    async fn settle(&self, job: Job) {
        let task = job.report.task;
        if !job.is_kept {
            self.passing().retain(|report| *report != job.report);
            return;
        }
        if let Err(error) = self.journal.put(task, Stage::Reported { report: Box::new(job.report) }).await {
            warn!(task_id = %task, %error, "journal not written: the report is sent again after a restart");
        }
    }

    async fn replace(&self, report: TaskReport) {
        let task = report.task;
        if let Err(error) = self.journal.put(task, Stage::Done { report: Box::new(report) }).await {
            warn!(task_id = %task, %error, "journal not written");
        }
    }

    async fn send(&self, kept: &mut Option<(Target, Link)>, report: &TaskReport) -> Answer {
        let Some((node, target)) = self.way() else { return Answer::Again("no identity yet".to_owned()) };
        let timeout = self.pace.call_timeout;
        let usable = kept.take().filter(|(way, link)| way.is_same(&target) && !link.is_closing());
        let mut link = match usable {
            Some((_, link)) => link,
            None => match Link::open(&target, timeout).await {
                Ok(link) => link,
                Err(error) => return Answer::Again(error.to_string()),
            },
        };
        let answer = link.call::<ReportTaken>(&report_path(node, report.task), report, timeout).await;
        let answer = match answer {
            Ok(taken) => {
                info!(task_id = %report.task, changed = taken.changed, "task reported");
                Answer::Settled
            }
            Err(error) => judge(node, report, error),
        };
        *kept = Some((target, link));
        answer
    }
}

fn judge(node: NodeId, report: &TaskReport, error: CallError) -> Answer {
    match error {
        CallError::Refused(problem) if problem.is(Code::NoEvidence) => Answer::NotProven(problem.detail),
        // It knows no such task, or another end of it, or cannot read what was said: nobody here can change that.
        CallError::Refused(problem)
            if [Code::TaskOver, Code::NotFound, Code::Malformed, Code::Invalid, Code::TooLarge]
                .iter()
                .any(|code| problem.is(*code)) =>
        {
            warn!(node_id = %node, task_id = %report.task, error_code = problem.code, detail = problem.detail,
                "the server does not take a report");
            Answer::Settled
        }
        CallError::Refused(_) | CallError::Transport(_) | CallError::TimedOut(_) => Answer::Again(error.to_string()),
    }
}
