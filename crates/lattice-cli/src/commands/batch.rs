//! `lattice onboarding batch`: many machines in one request, watched as one. spec: S5 4.1, 4.4

use std::io::Read;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use lattice_api::batch::{
    ActOnBatch, BatchAccepted, BatchAction, BatchActionAnswer, BatchLogLine, BatchLogQuery, BatchMachine, BatchQuery,
    BatchRow, BatchView, CreateBatch, TimeLeft,
};
use lattice_api::client::{get, post};
use lattice_api::explanation::Explanation;
use lattice_api::job::JobRow;
use lattice_api::page::Page;

use crate::failure::Failure;
use crate::machines::{self, Machine};
use crate::output::{Look, Row, Shown, facts, rows};
use crate::paging::Paging;
use crate::session::Session;
use crate::span;
use crate::vocabulary::word;
use crate::watch::{self, Deadline};

/// Lines that a refusal names.
const NAMED: usize = 20;

/// What can be done with batches.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Onboard the machines of a CSV file with the header `hostname,ipmi_ip`: all of them are accepted, or none
    #[command(alias = "import")]
    Create(Create),
    /// List batches, newest first
    List(List),
    /// Show a batch with its progress and what stopped
    #[command(alias = "get")]
    Show(One),
    /// Follow a batch until nothing moves any more; exit status 0 only if every machine became a node
    Watch(Watch),
    /// Why a batch is not moving: which permit, who holds it, what comes next
    Explain(One),
    /// What happened to its machines, newest first
    Log(Log),
    /// Start no further machine; those that run go on
    Pause(Act),
    /// Start machines again
    Resume(Act),
    /// Cancel every machine that is not done, and undo as far as each one's rule says
    Cancel(Act),
}

/// Options of `create`.
#[derive(Debug, Args)]
pub struct Create {
    /// The file; `-` reads stdin
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// The site, by name or id
    #[arg(long)]
    site: String,
    /// What the machines must have
    #[arg(long)]
    sku: String,
    /// The profile, by name or id; the site's default when absent
    #[arg(long)]
    profile: Option<String>,
    /// So many at once, if that is less than the site's policy allows
    #[arg(long, value_name = "MACHINES", value_parser = clap::value_parser!(u32).range(1..))]
    max_parallel: Option<u32>,
    /// Class when nothing claims them: standard, sensitive or borrowed
    #[arg(long)]
    class: Option<String>,
    /// Leave out the lines of the file that are wrong, and send the others
    #[arg(long)]
    partial: bool,
    /// Why; kept in the audit
    #[arg(long, default_value = "", hide_default_value = true)]
    reason: String,
    /// Follow it until nothing moves any more, with progress
    #[arg(long, alias = "wait")]
    watch: bool,
    /// How long
    #[command(flatten)]
    deadline: Deadline,
}

/// Which batches.
#[derive(Debug, Args)]
pub struct List {
    /// Only batches in this status; `live` means all that are not over
    #[arg(long)]
    status: Option<String>,
    /// Only batches at this site
    #[arg(long)]
    site: Option<String>,
    /// Which page, and how long
    #[command(flatten)]
    page: Paging,
}

/// One batch.
#[derive(Debug, Args)]
pub struct One {
    /// Its id
    batch: String,
}

/// One batch to follow.
#[derive(Debug, Args)]
pub struct Watch {
    /// Its id
    batch: String,
    /// How long
    #[command(flatten)]
    deadline: Deadline,
}

/// Which lines of a log.
#[derive(Debug, Args)]
pub struct Log {
    /// Its id
    batch: String,
    /// Only lines of this machine
    #[arg(long)]
    host: Option<String>,
    /// Which page, and how long
    #[command(flatten)]
    page: Paging,
}

/// Options of every action.
#[derive(Debug, Args)]
pub struct Act {
    /// Its id
    batch: String,
    /// Why; kept in the audit
    #[arg(long, default_value = "", hide_default_value = true)]
    reason: String,
}

/// Runs one of them.
///
/// # Errors
/// Refused, a file that cannot be taken, or the batch ended badly while it was followed.
pub async fn run(command: Command, session: &Session) -> Result<(), Failure> {
    match command {
        Command::Create(create) => self::create(create, session).await,
        Command::List(list) => self::list(list, session).await,
        Command::Show(one) => session.show::<BatchView>(path(&one.batch, &[])).await,
        Command::Watch(watch) => follow(&watch.batch, watch.deadline, session).await,
        Command::Explain(one) => session.show::<Explanation>(path(&one.batch, &["explain"])).await,
        Command::Log(log) => {
            let page = log.page.query();
            let query = BatchLogQuery { cursor: page.cursor, limit: page.limit, hostname: log.host };
            session.show::<Page<BatchLogLine>>(path(&log.batch, &["log"]).query(&query)).await
        }
        Command::Pause(act) => self::act(BatchAction::Pause, act, session).await,
        Command::Resume(act) => self::act(BatchAction::Resume, act, session).await,
        Command::Cancel(act) => {
            session.confirm(
                &format!("cancel batch {}", act.batch),
                "machines that are not done are undone as far as each one's rule says; nodes that are done stay",
            )?;
            self::act(BatchAction::Cancel, act, session).await
        }
    }
}

fn path(batch: &str, rest: &[&str]) -> lattice_api::client::Call {
    let mut parts = vec!["onboardings", "batch", batch];
    parts.extend(rest);
    get(&parts)
}

async fn create(create: Create, session: &Session) -> Result<(), Failure> {
    let (text, name) = text_of(&create.file)?;
    let machines = chosen(machines::read(&text), &name, create.partial)?;
    let machine =
        |machine: &Machine| BatchMachine { hostname: machine.hostname.clone(), ipmi_ip: machine.ipmi_ip.clone() };
    let body = CreateBatch {
        site_id: create.site,
        profile_id: create.profile,
        sku_id: create.sku,
        nodes: machines.iter().map(machine).collect(),
        class: create.class.map(|text| word("class", &text)).transpose()?,
        max_parallel: create.max_parallel,
        reason: create.reason,
    };
    let call = post(&["onboardings", "batch"]).json(&body);
    let answer = session.ask::<BatchAccepted>(call).await.map_err(|failure| lines_of(failure, &machines, &name))?;
    if create.watch {
        return follow(&answer.value.batch_id.to_string(), create.deadline, session).await;
    }
    session.print(&answer)
}

fn text_of(file: &PathBuf) -> Result<(String, String), Failure> {
    if file.as_os_str() == "-" {
        let mut text = String::new();
        let read = std::io::stdin().lock().read_to_string(&mut text);
        return read.map(|_| (text, "stdin".to_owned())).map_err(|error| unreadable("stdin", &error));
    }
    let name = file.display().to_string();
    std::fs::read_to_string(file).map_err(|error| unreadable(&name, &error)).map(|text| (text, name))
}

fn unreadable(name: &str, error: &std::io::Error) -> Failure {
    Failure::refused(format!("{name} cannot be read: {error}")).because("a file of machines is UTF-8 text")
}

/// The machines of a file; none of them unless all lines are right, or the others were asked for.
fn chosen(read: machines::Read, name: &str, partial: bool) -> Result<Vec<Machine>, Failure> {
    let wrong = read.wrong.len();
    if wrong > 0 && (!partial || read.machines.is_empty()) {
        let mut failure = Failure::refused(format!("{wrong} lines of {name} are wrong; nothing was sent"));
        for line in read.wrong.iter().take(NAMED) {
            failure = failure.because(line.to_string());
        }
        if wrong > NAMED {
            failure = failure.because(format!("{} more", wrong - NAMED));
        }
        return Err(failure.next("", "correct them, or leave them out with --partial"));
    }
    for line in &read.wrong {
        eprintln!("left out: {line}");
    }
    if read.machines.is_empty() {
        return Err(Failure::refused(format!("{name} names no machine"))
            .next("", "write one line for each machine below the header"));
    }
    Ok(read.machines)
}

/// What the server said of single machines, by their lines.
fn lines_of(failure: Failure, machines: &[Machine], name: &str) -> Failure {
    let Some(problem) = failure.problem().filter(|problem| !problem.errors.is_empty()) else { return failure };
    let mut told = Failure::refused(format!("{} ({})", problem.detail, problem.code));
    for error in problem.errors.iter().take(NAMED) {
        let place = error.field.strip_prefix("nodes[").and_then(|rest| rest.split_once(']'));
        let line = place.and_then(|(place, _)| machines.get(place.parse::<usize>().ok()?)).map(|machine| machine.line);
        told = told.because(match line {
            Some(line) => format!("line {line} of {name}: {}", error.detail),
            None => format!("{}: {}", error.field, error.detail),
        });
    }
    if problem.errors.len() > NAMED {
        told = told.because(format!("{} more", problem.errors.len() - NAMED));
    }
    told.with_problem(problem.clone()).next("", "correct them, or leave those machines out")
}

async fn list(list: List, session: &Session) -> Result<(), Failure> {
    let site_id = match &list.site {
        Some(site) => Some(session.client.site(site).await?.id),
        None => None,
    };
    let page = list.page.query();
    let query = BatchQuery { cursor: page.cursor, limit: page.limit, status: list.status, site_id };
    session.show::<Page<BatchRow>>(get(&["onboardings", "batch"]).query(&query)).await
}

/// Follows a batch, then prints it.
async fn follow(batch: &str, deadline: Deadline, session: &Session) -> Result<(), Failure> {
    let answer = watch::batch(session, batch, deadline).await?;
    session.print(&answer)
}

async fn act(action: BatchAction, act: Act, session: &Session) -> Result<(), Failure> {
    let call = post(&["onboardings", "batch", &act.batch, &action.to_string()]);
    session.show::<BatchActionAnswer>(call.json(&ActOnBatch { reason: act.reason })).await
}

impl Shown for BatchAccepted {
    fn text(&self, _: Look) -> String {
        format!("batch {} is pending, {} machines\n", self.batch_id, self.onboardings.len())
    }

    fn names(&self) -> Vec<String> {
        vec![self.batch_id.to_string()]
    }

    fn note(&self) -> Option<String> {
        Some(format!("follow it: lattice onboarding batch watch {}", self.batch_id))
    }
}

impl Row for BatchRow {
    fn head(wide: bool) -> Vec<&'static str> {
        let mut head =
            vec!["BATCH", "SITE", "STATUS", "MACHINES", "DONE", "RUN", "WAIT", "STOPPED", "CANCELLED", "AGE"];
        if wide {
            head.extend(["SKU", "ASKED BY", "FINISHED", "REASON"]);
        }
        head
    }

    fn cells(&self, look: Look) -> Vec<String> {
        let children = &self.children;
        let mut cells = vec![
            self.id.to_string(),
            self.site.clone(),
            self.status.to_string(),
            self.machines.to_string(),
            children.succeeded.to_string(),
            children.moving().to_string(),
            children.pending.to_string(),
            children.failed().to_string(),
            children.cancelled.to_string(),
            look.age(self.created_at.as_millis()),
        ];
        if look.wide {
            cells.extend([
                self.sku.clone(),
                self.requested_by.name.clone(),
                self.finished_at.map(|at| at.to_string()).unwrap_or_default(),
                self.reason.clone(),
            ]);
        }
        cells
    }

    fn name(&self) -> String {
        self.id.to_string()
    }
}

impl Shown for BatchView {
    fn text(&self, look: Look) -> String {
        let row = &self.row;
        let children = &row.children;
        let mut text = format!("{}  batch of {} at {}  {}\n", row.id, row.machines, row.site, row.status);
        let asked = format!("{}, {} ago", row.requested_by.name, look.age(row.created_at.as_millis()));
        text.push_str(&facts(&[
            ("done", format!("{} of {}", children.succeeded, row.machines)),
            ("run", format!("{} of {} at once", children.moving(), self.limit)),
            ("wait", children.pending.to_string()),
            ("stopped", children.failed().to_string()),
            ("cancelled", children.cancelled.to_string()),
            ("time left", self.time_left.as_ref().map(left).unwrap_or_default()),
            ("sku", row.sku.clone()),
            ("profile", row.profile.clone().unwrap_or_default()),
            ("asked by", asked),
            ("reason", row.reason.clone()),
        ]));
        for (title, jobs) in [("stopped", &self.stopped), ("running", &self.moving)] {
            if !jobs.is_empty() {
                text.push_str(&format!("\n{title}\n{}", rows::<JobRow>(jobs, look)));
            }
        }
        let actions: Vec<String> = self.actions.iter().map(ToString::to_string).collect();
        if !actions.is_empty() {
            text.push_str(&format!("\nmay be asked: {}\n", actions.join(", ")));
        }
        text
    }

    fn names(&self) -> Vec<String> {
        vec![self.row.id.to_string()]
    }
}

/// The time that is left, in words.
pub fn left(left: &TimeLeft) -> String {
    match (left.p50_ms, left.p95_ms) {
        (Some(p50), Some(p95)) => format!("about {}, rarely more than {}", span::words(p50), span::words(p95)),
        (Some(_) | None, _) => "not known yet".to_owned(),
    }
}

impl Shown for BatchActionAnswer {
    fn text(&self, _: Look) -> String {
        let so = if self.changed { "" } else { " (it was so already)" };
        format!("batch {} is {}{so}\n", self.batch.row.id, self.batch.row.status)
    }

    fn names(&self) -> Vec<String> {
        vec![self.batch.row.id.to_string()]
    }

    fn note(&self) -> Option<String> {
        Some(format!("follow it: lattice onboarding batch watch {}", self.batch.row.id))
    }
}

impl Row for BatchLogLine {
    fn head(_: bool) -> Vec<&'static str> {
        vec!["AT", "NODE", "STAGE", "ATTEMPT", "STATUS", "MESSAGE"]
    }

    fn cells(&self, _: Look) -> Vec<String> {
        vec![
            self.at.to_string(),
            self.hostname.clone(),
            self.stage.to_string(),
            self.attempt.to_string(),
            self.status.to_string(),
            self.message.clone(),
        ]
    }

    fn name(&self) -> String {
        self.hostname.clone()
    }
}
