//! `lattice job`: durable work on nodes, and what an operator may ask of it. spec: S2 8, S5 4.9

use clap::{Args, Subcommand};
use lattice_api::client::{get, post};
use lattice_api::job::{ActOnJob, JobAction, JobActionAnswer, JobQuery, JobRow, JobView, StageView};
use lattice_api::page::Page;

use crate::failure::{Failure, joined, step_texts};
use crate::output::{Look, Row, Shown, facts, table};
use crate::paging::Paging;
use crate::session::Session;
use crate::span;
use crate::vocabulary::word;
use crate::watch::{self, Deadline};

/// What can be done with jobs.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// List jobs, newest first
    List(List),
    /// Show a job with its stages, its failure and what to do
    #[command(alias = "get")]
    Show(Show),
    /// Follow a job until it ends; exit status 0 only if it ended well
    Watch(Watch),
    /// Run the failed stage again
    RetryStage(Act),
    /// Continue from the last safe stage, with a decision if the stage asked for one
    Resume(Resume),
    /// From the top: each stage adopts what it observes
    Rerun(Act),
    /// Undo what was done, then from the top
    RestartClean(RestartClean),
    /// Stop, and undo what can be undone
    Cancel(Act),
    /// Accept what a fresh observation proves, and go on from there
    Adopt(Adopt),
    /// Freeze until a person decides
    #[command(alias = "mark-manual-intervention-required")]
    MarkManualIntervention(Act),
}

/// Which jobs.
#[derive(Debug, Args)]
pub struct List {
    /// Only jobs in this status; `failed` means both failed ones, `live` all that are not finished
    #[arg(long)]
    status: Option<String>,
    /// Only jobs of this kind: onboarding, drain, retire, remove
    #[arg(long)]
    kind: Option<String>,
    /// Only jobs on this node
    #[arg(long)]
    node: Option<String>,
    /// Only jobs at this site
    #[arg(long)]
    site: Option<String>,
    /// Which page, and how long
    #[command(flatten)]
    page: Paging,
}

/// One job to look at.
#[derive(Debug, Args)]
pub struct Show {
    /// Its id
    job: String,
    /// Follow it until it ends, then show it
    #[arg(long)]
    watch: bool,
    /// How long
    #[command(flatten)]
    deadline: Deadline,
}

/// One job to follow.
#[derive(Debug, Args)]
pub struct Watch {
    /// Its id
    job: String,
    /// How long
    #[command(flatten)]
    deadline: Deadline,
}

/// Options of every action.
#[derive(Debug, Args)]
pub struct Act {
    /// Its id
    job: String,
    /// Why; kept in the audit
    #[arg(long, default_value = "", hide_default_value = true)]
    reason: String,
    /// Follow the job afterwards until it ends
    #[arg(long)]
    wait: bool,
    /// How long
    #[command(flatten)]
    deadline: Deadline,
}

/// Options of `resume`.
#[derive(Debug, Args)]
pub struct Resume {
    /// Which job, and why
    #[command(flatten)]
    act: Act,
    /// Disk to boot from, by its name in the provider
    #[arg(long, value_name = "DISK")]
    boot_disk: Option<String>,
    /// The discovered machine that it is, by its id in the provider
    #[arg(long, value_name = "SYSTEM_ID")]
    machine: Option<String>,
    /// The machine may be released although its OS runs: its disks are lost
    #[arg(long)]
    release_deployed: bool,
    /// The host's OS is gone for good, on your word: nothing of it can answer any more
    #[arg(long)]
    os_gone: bool,
    /// Any other decision that the stage asked for
    #[arg(long, value_name = "KEY=VALUE", value_parser = decision)]
    decide: Vec<(String, serde_json::Value)>,
}

/// Options of `restart-clean`.
#[derive(Debug, Args)]
pub struct RestartClean {
    /// Which job, and why
    #[command(flatten)]
    act: Act,
    /// The machine may be released although its OS runs: its disks are lost
    #[arg(long)]
    release_deployed: bool,
}

/// Options of `adopt`.
#[derive(Debug, Args)]
pub struct Adopt {
    /// Which job, and why
    #[command(flatten)]
    act: Act,
    /// The last stage that is done, where the observation leaves it open
    #[arg(long, value_name = "STAGE")]
    proves: Option<String>,
}

fn decision(text: &str) -> Result<(String, serde_json::Value), String> {
    match text.split_once('=') {
        Some((key, "true")) => Ok((key.replace('-', "_"), true.into())),
        Some((key, value)) if !key.is_empty() => Ok((key.replace('-', "_"), value.into())),
        Some(_) | None => Err(format!("`{text}` is no decision: expected KEY=VALUE, such as boot_disk=nvme0n1")),
    }
}

impl Resume {
    /// The decisions, as the API takes them.
    fn body(&self) -> Result<ActOnJob, Failure> {
        let mut body = ActOnJob::default();
        if !self.decide.is_empty() {
            let given = self.decide.iter().map(|(key, value)| (key.clone(), value.clone()));
            body.decisions = serde_json::from_value(given.collect::<serde_json::Map<_, _>>().into())
                .map_err(|error| Failure::refused("there is no such decision").because(error.to_string()))?;
        }
        if self.boot_disk.is_some() {
            body.decisions.boot_disk.clone_from(&self.boot_disk);
        }
        if self.machine.is_some() {
            body.decisions.machine.clone_from(&self.machine);
        }
        body.decisions.release_deployed |= self.release_deployed;
        body.decisions.os_gone |= self.os_gone;
        Ok(body)
    }
}

/// Runs one of them.
///
/// # Errors
/// Refused, not confirmed, or the job ended badly while it was followed.
pub async fn run(command: Command, session: &Session) -> Result<(), Failure> {
    match command {
        Command::List(list) => self::list(list, session).await,
        Command::Show(show) if show.watch => follow(&show.job, show.deadline, session).await,
        Command::Show(show) => session.show::<JobView>(get(&["jobs", &show.job])).await,
        Command::Watch(watch) => follow(&watch.job, watch.deadline, session).await,
        Command::RetryStage(act) => self::act(JobAction::RetryStage, act, ActOnJob::default(), session).await,
        Command::Resume(resume) => {
            let body = resume.body()?;
            self::act(JobAction::Resume, resume.act, body, session).await
        }
        Command::Rerun(act) => self::act(JobAction::Rerun, act, ActOnJob::default(), session).await,
        Command::RestartClean(restart) => {
            let mut body = ActOnJob::default();
            body.decisions.release_deployed = restart.release_deployed;
            self::act(JobAction::RestartClean, restart.act, body, session).await
        }
        Command::Cancel(act) => self::act(JobAction::Cancel, act, ActOnJob::default(), session).await,
        Command::Adopt(adopt) => {
            let proves = adopt.proves.map(|stage| word("stage", &stage)).transpose()?;
            self::act(JobAction::AdoptObservedState, adopt.act, ActOnJob { proves, ..ActOnJob::default() }, session)
                .await
        }
        Command::MarkManualIntervention(act) => {
            self::act(JobAction::MarkManualInterventionRequired, act, ActOnJob::default(), session).await
        }
    }
}

async fn list(list: List, session: &Session) -> Result<(), Failure> {
    let kind = list.kind.map(|text| word("kind", &text)).transpose()?;
    let node_id = match &list.node {
        Some(node) => Some(session.client.node(node).await?.row.id),
        None => None,
    };
    let site_id = match &list.site {
        Some(site) => Some(session.client.site(site).await?.id),
        None => None,
    };
    let page = list.page.query();
    let query = JobQuery {
        cursor: page.cursor,
        limit: page.limit,
        status: list.status,
        kind,
        node_id,
        site_id,
        ..JobQuery::default()
    };
    session.show::<Page<JobRow>>(get(&["jobs"]).query(&query)).await
}

/// Follows a job, then prints it.
///
/// # Errors
/// It ended badly, or the deadline passed.
pub async fn follow(job: &str, deadline: Deadline, session: &Session) -> Result<(), Failure> {
    let answer = watch::job(session, job, deadline).await?;
    session.print(&answer)
}

async fn act(action: JobAction, act: Act, body: ActOnJob, session: &Session) -> Result<(), Failure> {
    if action == JobAction::RestartClean {
        session.confirm(
            &format!("restart job {} from scratch", act.job),
            "what it did is undone first; a deployed machine is released and its disks are lost",
        )?;
    }
    let body = ActOnJob { reason: act.reason, ..body };
    let call = post(&["jobs", &act.job, action.verb()]).json(&body);
    let answer = session.ask::<JobActionAnswer>(call).await?;
    session.print(&answer)?;
    if act.wait {
        watch::job(session, &act.job, act.deadline).await?;
    }
    Ok(())
}

impl Row for JobRow {
    fn head(wide: bool) -> Vec<&'static str> {
        let mut head = vec!["JOB", "KIND", "NODE", "STATUS", "STAGE", "ATTEMPT", "AGE", "FAILURE"];
        if wide {
            head.extend(["ERROR", "CREATED", "FINISHED", "NODE ID"]);
        }
        head
    }

    fn cells(&self, look: Look) -> Vec<String> {
        let mut cells = vec![
            self.id.to_string(),
            self.kind.to_string(),
            self.hostname.clone(),
            self.status.to_string(),
            self.stage.to_string(),
            self.attempt.to_string(),
            look.age(self.created_at.as_millis()),
            self.failure_class.map(|class| class.to_string()).unwrap_or_default(),
        ];
        if look.wide {
            cells.extend([
                self.error_code.clone().unwrap_or_default(),
                self.created_at.to_string(),
                self.finished_at.map(|at| at.to_string()).unwrap_or_default(),
                self.node_id.to_string(),
            ]);
        }
        cells
    }

    fn name(&self) -> String {
        self.id.to_string()
    }
}

impl Shown for JobView {
    fn text(&self, look: Look) -> String {
        let row = &self.row;
        let mut text = format!("{}  {} {}  {}\n", row.id, row.kind, row.hostname, row.status);
        text.push_str(&facts(&[
            ("asked by", format!("{}, {} ago", self.requested_by.name, look.age(row.created_at.as_millis()))),
            ("reason", self.reason.clone()),
            (
                "runs on",
                self.lease.as_ref().map(|lease| format!("{} until {}", lease.holder, lease.until)).unwrap_or_default(),
            ),
            (
                "waits for",
                self.wait
                    .as_ref()
                    .map(|wait| format!("{}, looks again at {}", wait.reason, wait.until))
                    .unwrap_or_default(),
            ),
            ("stage ends", self.deadline.map(|at| format!("{at} at the latest")).unwrap_or_default()),
            (
                "provider said",
                self.observed
                    .as_ref()
                    .map(|seen| format!("{}, power {}, {} ago", seen.status, seen.power, look.age(seen.at.as_millis())))
                    .unwrap_or_default(),
            ),
        ]));
        text.push('\n');
        text.push_str(&stages(&self.stages));
        if let Some(failure) = &self.failure {
            text.push_str(&format!("\nstopped: {}\n", failure.message));
            text.push_str(&format!("  class  {} ({})\n", failure.class, failure.error_code));
            if !failure.next_actions.is_empty() {
                text.push_str("next\n");
            }
            for step in &failure.next_actions {
                let (command, effect) = step_texts(step);
                text.push_str(&format!("  {}\n", joined(&command, &effect)));
            }
        }
        for warning in &self.warnings {
            text.push_str(&format!("warning: {}: {} ({})\n", warning.stage, warning.message, warning.error_code));
        }
        let actions: Vec<&str> = self.actions.iter().map(|action| action.verb()).collect();
        if !actions.is_empty() {
            text.push_str(&format!("\nmay be asked: {}\n", actions.join(", ")));
        }
        text
    }

    fn names(&self) -> Vec<String> {
        vec![self.row.id.to_string()]
    }
}

/// The stages of a job, one line each.
pub fn stages(stages: &[StageView]) -> String {
    let rows = stages.iter().map(|stage| {
        vec![
            format!("  {}", stage.stage),
            stage.progress.to_string(),
            if stage.attempts > 1 { format!("{} attempts", stage.attempts) } else { String::new() },
            stage.took_ms.map(span::words).unwrap_or_default(),
            stage.usual_ms.map(|usual| format!("usually {}", span::words(usual))).unwrap_or_default(),
            stage.message.clone().unwrap_or_default(),
        ]
    });
    table(&[], rows)
}

impl Shown for JobActionAnswer {
    fn text(&self, _: Look) -> String {
        let row = &self.job.row;
        let so = if self.changed { "" } else { " (it was so already)" };
        format!("job {} is {} at {}{so}\n", row.id, row.status, row.stage)
    }

    fn names(&self) -> Vec<String> {
        vec![self.job.row.id.to_string()]
    }

    fn note(&self) -> Option<String> {
        Some(format!("follow it: lattice job watch {}", self.job.row.id))
    }
}
