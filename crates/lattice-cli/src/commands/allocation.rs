//! `lattice allocation`: users' work on nodes.

use clap::{Args, Subcommand};
use lattice_api::allocation::{
    AllocationActionAnswer, AllocationQuery, AllocationRow, AllocationVerb, AllocationView, CheckpointHow,
    CreateAllocation, Limits, Workload,
};
use lattice_api::client::{get, post};
use lattice_api::node::Reason;
use lattice_api::page::Page;

use crate::failure::Failure;
use crate::output::{Look, Row, Shown};
use crate::paging::Paging;
use crate::session::Session;
use crate::vocabulary::{pair, word};
use crate::watch::{self, Deadline};

/// What can be done with allocations.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// List allocations, newest first
    List(List),
    /// Show one
    Show(One),
    /// Ask for a node and start a program on it
    Request(Box<New>),
    /// End one: its agent sends SIGTERM, and SIGKILL after 30 s
    Release(Verb),
    /// Queue one that failed again
    Requeue(Verb),
    /// Wait until an allocation's status is what you name
    Wait(Until),
}

/// Which allocations.
#[derive(Debug, Args)]
pub struct List {
    /// Only in this status; `live` means all that are not over
    #[arg(long)]
    status: Option<String>,
    /// Only those that have, or had last, this node
    #[arg(long)]
    node: Option<String>,
    /// Only of this user
    #[arg(long)]
    user: Option<String>,
    /// Which page, and how long
    #[command(flatten)]
    page: Paging,
}

/// One allocation.
#[derive(Debug, Args)]
pub struct One {
    /// Its id
    allocation: String,
}

/// What is waited for.
#[derive(Debug, Args)]
pub struct Until {
    /// Its id
    allocation: String,
    /// Name of a status: active, requested, released …
    status: String,
    /// How long
    #[command(flatten)]
    deadline: Deadline,
}

/// One allocation, and why.
#[derive(Debug, Args)]
pub struct Verb {
    /// Its id
    allocation: String,
    /// Why; kept in the audit
    #[arg(long, default_value = "", hide_default_value = true)]
    reason: String,
}

/// Work to be started.
#[derive(Debug, Args)]
pub struct New {
    /// Whose work it is: a node belongs to one user at a time
    #[arg(long)]
    user: String,
    /// Class of the claim: standard, sensitive or borrowed
    #[arg(long)]
    class: Option<String>,
    /// Only on this node, by hostname or id
    #[arg(long)]
    node: Option<String>,
    /// Only at this site
    #[arg(long)]
    site: Option<String>,
    /// Only on nodes of this SKU
    #[arg(long)]
    sku: Option<String>,
    /// GPUs that it needs for itself
    #[arg(long, default_value_t = 0)]
    gpus: u32,
    /// Only on nodes with this label, such as rack=c07
    #[arg(long = "label", value_name = "NAME=VALUE", value_parser = pair)]
    labels: Vec<(String, String)>,
    /// When it is queued again: never, on-node-failure or always
    #[arg(long)]
    requeue: Option<String>,
    /// Variable of its environment; it has no others
    #[arg(long = "env", value_name = "NAME=VALUE", value_parser = pair)]
    env: Vec<(String, String)>,
    /// Its working directory
    #[arg(long, value_name = "PATH")]
    directory: Option<String>,
    /// Most memory, in MiB
    #[arg(long, value_name = "MIB")]
    memory_mib: Option<u64>,
    /// Most processes and threads
    #[arg(long, value_name = "PIDS")]
    pids: Option<u32>,
    /// It saves its state at this signal, and ends
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u8).range(1..=64))]
    checkpoint_signal: Option<u8>,
    /// Why; kept in the audit
    #[arg(long, default_value = "", hide_default_value = true)]
    reason: String,
    /// Program, by its absolute path, and its arguments; no shell is between
    #[arg(last = true, required = true, value_name = "PROGRAM")]
    argv: Vec<String>,
}

/// Runs one of them.
///
/// # Errors
/// Refused: nothing has that id, or it stands where that does nothing.
pub async fn run(command: Command, session: &Session) -> Result<(), Failure> {
    match command {
        Command::List(list) => {
            let page = list.page.query();
            let query = AllocationQuery {
                status: list.status.map(|status| status.replace('-', "_")),
                node: list.node,
                user: list.user,
                cursor: page.cursor,
                limit: page.limit,
            };
            session.show::<Page<AllocationRow>>(get(&["allocations"]).query(&query)).await
        }
        Command::Show(one) => session.show::<AllocationView>(get(&["allocations", &one.allocation])).await,
        Command::Request(new) => {
            let body = body(*new)?;
            session.show::<AllocationView>(post(&["allocations"]).json(&body)).await
        }
        Command::Release(verb) => act(AllocationVerb::Release, verb, session).await,
        Command::Requeue(verb) => act(AllocationVerb::Requeue, verb, session).await,
        Command::Wait(until) => {
            let wanted = word("status of an allocation", &until.status)?;
            watch::allocation(session, &until.allocation, wanted, until.deadline).await
        }
    }
}

async fn act(verb: AllocationVerb, asked: Verb, session: &Session) -> Result<(), Failure> {
    let call = post(&["allocations", &asked.allocation, &verb.to_string()]).json(&Reason { reason: asked.reason });
    session.show::<AllocationActionAnswer>(call).await
}

fn body(new: New) -> Result<CreateAllocation, Failure> {
    let checkpoint = match new.checkpoint_signal {
        Some(number) => CheckpointHow::Signal { number, done_file: None },
        None => CheckpointHow::None,
    };
    Ok(CreateAllocation {
        user: new.user,
        class: new.class.as_deref().map(|class| word("class", class)).transpose()?,
        node: new.node,
        site: new.site,
        sku: new.sku,
        gpus: new.gpus,
        labels: new.labels.into_iter().collect(),
        requeue: new.requeue.as_deref().map(|policy| word("requeue policy", policy)).transpose()?,
        workload: Workload {
            argv: new.argv,
            env: new.env.into_iter().collect(),
            directory: new.directory,
            user: None,
            limits: Limits {
                memory_bytes: new.memory_mib.map(|mib| mib.saturating_mul(1_048_576)),
                cpu: None,
                pids: new.pids,
            },
            mounts: Vec::new(),
            checkpoint,
        },
        reason: new.reason,
    })
}

impl Row for AllocationRow {
    fn head(wide: bool) -> Vec<&'static str> {
        let mut head = vec!["ALLOCATION", "USER", "CLASS", "STATUS", "FOR", "NODE", "GPUS"];
        if wide {
            head.extend(["REQUEUE", "PLACEMENTS", "REQUESTED"]);
        }
        head.push("WHY");
        head
    }

    fn cells(&self, look: Look) -> Vec<String> {
        let mut cells = vec![
            self.id.to_string(),
            self.user.clone(),
            self.class.to_string(),
            self.status.to_string(),
            look.age(self.status_since.as_millis()),
            self.hostname.clone().unwrap_or_default(),
            self.gpus.to_string(),
        ];
        if look.wide {
            let requested = look.age(self.requested_at.as_millis());
            cells.extend([self.requeue.to_string(), self.placements.to_string(), requested]);
        }
        cells.push(self.why.clone());
        cells
    }

    fn name(&self) -> String {
        self.id.to_string()
    }
}

impl Shown for AllocationView {
    fn text(&self, look: Look) -> String {
        let row = &self.row;
        let place = row.hostname.as_deref().unwrap_or("no node");
        let age = look.age(row.status_since.as_millis());
        let mut text = format!("{}  {}  {} for {age}  {place}\n  {}\n", row.id, row.user, row.status, row.why);
        let runs = self.workload.argv.join(" ");
        text.push_str(&format!(
            "  class {}, {} GPUs, requeue {}, placed {} times\n",
            row.class, row.gpus, row.requeue, row.placements
        ));
        text.push_str(&format!("  runs {runs}\n"));
        text
    }

    fn names(&self) -> Vec<String> {
        vec![self.row.id.to_string()]
    }

    fn note(&self) -> Option<String> {
        Some(format!("why it stands there: lattice explain allocation {}", self.row.id))
    }
}

impl Shown for AllocationActionAnswer {
    fn text(&self, look: Look) -> String {
        let unchanged = if self.changed { "" } else { "  (unchanged)\n" };
        format!("{}{unchanged}", self.allocation.text(look))
    }

    fn names(&self) -> Vec<String> {
        self.allocation.names()
    }
}
