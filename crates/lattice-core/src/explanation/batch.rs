//! Why a batch is not moving: which permit its machines wait for, who holds it, and what comes next.

use super::{Explanation, Unmet};
use crate::batch::admission::Held;
use crate::batch::{Batch, BatchStatus, Children, status};
use crate::explain::NextAction;
use crate::ids::JobId;
use crate::job::StageName;
use crate::time::{Timestamp, human};

/// Holders of permits that are named; the list of the batch's machines has all of them.
const NAMED: usize = 5;

/// What else is known about a batch when it is explained.
#[derive(Debug, Clone)]
pub struct BatchContext<'a> {
    /// Its children's counts.
    pub children: Children,
    /// What its pending children wait for; none when there are none, or one may start now.
    pub held: Option<Held>,
    /// Its site's name.
    pub site: &'a str,
    /// Children that hold its permits, the longest running first.
    pub holders: Vec<Holder>,
    /// Onboardings of other batches, and single ones, that hold permits of the site.
    pub others: u64,
    /// Children that stopped, the newest first.
    pub stopped: Vec<Holder>,
    /// The machine that is started next.
    pub next: Option<String>,
}

/// A child that holds a permit, or stopped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holder {
    /// Its hostname.
    pub hostname: String,
    /// Its onboarding.
    pub job: JobId,
    /// At which stage.
    pub stage: StageName,
    /// What failed, if it stopped.
    pub error_code: Option<String>,
    /// Since when it runs, or stands still.
    pub since: Timestamp,
}

/// Explains a batch.
pub fn batch(batch: &Batch, context: &BatchContext, now: Timestamp) -> Explanation {
    let children = &context.children;
    let state = status(batch.control, children);
    let mut story = Story { batch, context, now, because: Vec::new(), next: Vec::new() };
    story.held();
    story.stopped();
    let headline = match state {
        BatchStatus::Completed => format!("done: {} of {} became nodes", children.succeeded, batch.machines),
        BatchStatus::Cancelled => format!("cancelled; {} had become nodes before", children.succeeded),
        BatchStatus::Pending => "accepted; nothing was started yet".to_owned(),
        BatchStatus::Running => {
            let left = children.pending;
            format!("{} run, {left} wait to be started, {} are done", children.moving(), children.succeeded)
        }
        BatchStatus::Paused => {
            format!("paused: {} wait to be started, {} run to their end", children.pending, children.moving())
        }
        BatchStatus::Cancelling => {
            format!("being cancelled: {} are not over", children.total() - children.over())
        }
        BatchStatus::PartialFailure | BatchStatus::Failed => {
            format!("stands still: {} stopped and need an operator, {} are done", children.failed(), children.succeeded)
        }
    };
    let fine = match state {
        BatchStatus::Completed => true,
        BatchStatus::Pending | BatchStatus::Running => children.failed() == 0 && story.because.is_empty(),
        BatchStatus::Paused
        | BatchStatus::Cancelling
        | BatchStatus::PartialFailure
        | BatchStatus::Failed
        | BatchStatus::Cancelled => false,
    };
    Explanation {
        subject: batch.id.to_string(),
        state: state.to_string(),
        headline: format!("batch of {} at {}: {headline}", batch.machines, context.site),
        fine,
        because: story.because,
        next: story.next,
    }
}

struct Story<'a> {
    batch: &'a Batch,
    context: &'a BatchContext<'a>,
    now: Timestamp,
    because: Vec<Unmet>,
    next: Vec<NextAction>,
}

impl Story<'_> {
    fn unmet(&mut self, what: String, since: Option<Timestamp>, owner: String) {
        self.because.push(Unmet { what, since, owner, class: None });
    }

    fn run(&mut self, command: String, effect: &str) {
        self.next.push(NextAction::run(command, effect));
    }

    /// Which permit is missing, and who has it.
    fn held(&mut self) {
        let Some(held) = self.context.held else { return };
        let (batch, site) = (self.batch, self.context.site);
        let by = format!("operator {}", batch.control_by.name);
        match held {
            Held::Paused => {
                self.unmet(format!("{} paused it", batch.control_by.name), Some(batch.control_since), by);
                self.run(format!("lattice onboarding batch resume {}", batch.id), "lets its machines start again");
            }
            Held::Cancelled => {
                self.unmet(format!("{} cancelled it", batch.control_by.name), Some(batch.control_since), by);
            }
            Held::SiteDisabled => {
                self.unmet(format!("site {site} is disabled: nothing new starts there"), None, "operator".to_owned());
                self.run(format!("lattice site enable {site}"), "lets new work start there");
            }
            Held::BatchFull { running, limit } => {
                self.unmet(
                    format!("{running} of {limit} permits of the batch are taken"),
                    None,
                    format!("site policy batch_max_parallel of {site}"),
                );
                self.holders();
            }
            Held::SiteFull { running, limit } => {
                self.unmet(
                    format!(
                        "{running} of {limit} permits of the site are taken, {} of them by others",
                        self.context.others
                    ),
                    None,
                    format!("site policy site_max_parallel of {site}"),
                );
                self.holders();
            }
        }
        if let Some(next) = &self.context.next {
            self.unmet(format!("{next} is started next"), None, "lattice".to_owned());
        }
    }

    fn holders(&mut self) {
        let longest: Vec<Holder> = self.context.holders.iter().take(NAMED).cloned().collect();
        for holder in longest {
            let what = format!("{} holds one: at {}", holder.hostname, holder.stage);
            self.unmet(what, Some(holder.since), format!("job {}", holder.job));
        }
        let more = self.context.holders.len().saturating_sub(NAMED);
        if more > 0 {
            self.unmet(format!("{more} more of its machines hold one each"), None, "lattice".to_owned());
        }
        if let Some(longest) = self.context.holders.first() {
            let job = longest.job;
            let effect = format!("says what {} waits for, the longest holder", longest.hostname);
            self.run(format!("lattice explain job {job}"), &effect);
        }
    }

    /// What stopped does not hold a permit, and is what a person can do something about.
    fn stopped(&mut self) {
        let failed = self.context.children.failed();
        if failed == 0 {
            return;
        }
        let named: Vec<Holder> = self.context.stopped.iter().take(NAMED).cloned().collect();
        for holder in &named {
            let code = holder.error_code.as_deref().unwrap_or("unknown");
            let age = human(self.now.since(holder.since));
            let what = format!("{} stopped at {}, {age} ago: {code}", holder.hostname, holder.stage);
            self.unmet(what, Some(holder.since), format!("job {}", holder.job));
            self.run(format!("lattice explain job {}", holder.job), "says why it stopped and what would move it");
        }
        let more = failed.saturating_sub(named.len() as u64);
        if more > 0 {
            self.unmet(format!("{more} more stopped"), None, "operator".to_owned());
            self.run(
                format!("lattice onboard list --batch {} --status failed", self.batch.id),
                "lists them with their failures",
            );
        }
    }
}
