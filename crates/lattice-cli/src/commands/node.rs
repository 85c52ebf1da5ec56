//! `lattice node`: the inventory, and what an operator may ask of a node. spec: S1 "Operator Commands"

pub mod actions;
mod bmc;
mod tasks;
mod views;

use clap::{Args, Subcommand};
use lattice_api::client::{get, post};
use lattice_api::node::{ChangeLabels, CreateNode, NodeBootstrap, NodeQuery, NodeRow, NodeView, Reason, Timeline};
use lattice_api::page::Page;

use crate::failure::Failure;
use crate::output::{self, Format, Shown};
use crate::paging::Paging;
use crate::session::{Answer, Session};
use crate::vocabulary::word;
use crate::watch::{self, Deadline};
use actions::{Act, Drain, Plain, Reimage, Retire, SecureErase, Wait};

/// What can be done with nodes.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// List nodes
    List(List),
    /// Show all that is known about a node
    #[command(alias = "get")]
    Show(Named),
    /// Show a node's states, holds and health, and why it is not schedulable
    Status(Named),
    /// Show everything that happened to a node, newest first
    Timeline(Named),
    /// Show the changes of a node's states, newest first
    History(History),
    /// List what a node's agent was asked to do, newest first
    Tasks(tasks::List),
    /// Show one task of an agent, with what it said
    Task(tasks::Named),
    /// Ask a node's agent how its host is and what runs on it, now
    Check(Plain),
    /// Create a node by hand and print the one-line command that makes the machine join
    Create(Create),
    /// Print a new bootstrap command; the earlier one stops working
    Bootstrap(Plain),
    /// Empty a node: no new work, running work ends
    Drain(Drain),
    /// Give a draining or drained node back
    Undrain(Act),
    /// Take a node down at once; heartbeats do not undo it
    Disable(Act),
    /// Give a disabled node back
    Enable(Act),
    /// Boot a node again: a job power-cycles it; you do, now, where it has neither a provider nor a BMC
    Reboot(actions::Reboot),
    /// Give up on a boot that failed: once the node's agent registers, its health check decides
    Reset(Act),
    /// Wait until a node's status or availability is what you name
    Wait(Until),
    /// Replace the OS of a node that is drained or down: it boots or is deployed anew, and enrols again
    Reimage(Reimage),
    /// Have a node's BMC erase drives of it, out of band: for a machine whose wipe failed, or that leaves
    SecureErase(SecureErase),
    /// Take a node out of scheduling for good; its identity stays
    Retire(Retire),
    /// Give a retired node back
    Reactivate(Act),
    /// End a retired node's identity
    Remove(Wait),
    /// Block a node from scheduling until it is proven healthy
    Quarantine(Act),
    /// Give a quarantined node back
    Recover(Act),
    /// Resume, or create anew, the job that a draining or removing node waits for
    Resume(Act),
    /// Withdraw a bootstrap that nobody used
    Withdraw(Act),
    /// Revoke every certificate of a node, at once
    #[command(alias = "revoke")]
    RevokeCertificate(Plain),
    /// Set labels, such as rack=c07, and take others away, such as rack-
    Label(Label),
    /// A node's BMC: set it, show it, look at it, have its credential tried again
    #[command(subcommand)]
    Bmc(bmc::Command),
}

/// One node.
#[derive(Debug, Args)]
pub struct Named {
    /// Hostname or id
    node: String,
}

/// Which nodes.
#[derive(Debug, Args)]
pub struct List {
    /// Only nodes whose status or availability has this name: degraded, enrolling …
    #[arg(long)]
    state: Option<String>,
    /// Only nodes in this inventory status
    #[arg(long)]
    status: Option<String>,
    /// Only nodes with this availability
    #[arg(long)]
    availability: Option<String>,
    /// Only nodes of this site
    #[arg(long)]
    site: Option<String>,
    /// Only nodes of this SKU
    #[arg(long)]
    sku: Option<String>,
    /// Only nodes whose hostname begins with this
    #[arg(long, value_name = "TEXT")]
    prefix: Option<String>,
    /// Only nodes with these labels: rack=c07, several with commas between
    #[arg(long, value_name = "NAME=VALUE")]
    label: Option<String>,
    /// Deleted nodes too
    #[arg(long)]
    deleted: bool,
    /// Which page, and how long
    #[command(flatten)]
    page: Paging,
}

/// History of a node.
#[derive(Debug, Args)]
pub struct History {
    /// Hostname or id
    node: String,
    /// Which page, and how long
    #[command(flatten)]
    page: Paging,
}

/// A node to be bootstrapped by hand.
#[derive(Debug, Args)]
pub struct Create {
    /// Name of the node
    hostname: String,
    /// What the machine must have
    #[arg(long)]
    sku: String,
    /// Site with the provider `manual`; the built-in `local` when absent
    #[arg(long)]
    site: Option<String>,
    /// Class when nothing claims it: standard, sensitive or borrowed
    #[arg(long)]
    class: Option<String>,
    /// Why; kept in the audit
    #[arg(long, default_value = "", hide_default_value = true)]
    reason: String,
}

/// What is waited for.
#[derive(Debug, Args)]
pub struct Until {
    /// Hostname or id
    node: String,
    /// Name of a status or an availability: ready, down, quarantined …
    state: String,
    /// How long
    #[command(flatten)]
    deadline: Deadline,
}

/// Labels to set and to take away.
#[derive(Debug, Args)]
pub struct Label {
    /// Hostname or id
    node: String,
    /// NAME=VALUE sets one, NAME- takes one away
    #[arg(required = true, value_name = "LABEL")]
    labels: Vec<String>,
    /// Why; kept in the audit
    #[arg(long, default_value = "", hide_default_value = true)]
    reason: String,
}

/// Runs one of them.
///
/// # Errors
/// Refused, not confirmed, or it ended badly while it was waited for.
pub async fn run(command: Command, session: &Session) -> Result<(), Failure> {
    use lattice_api::node::NodeVerb as Verb;
    match command {
        Command::List(list) => session.show::<Page<NodeRow>>(get(&["nodes"]).query(&query(list)?)).await,
        Command::Show(named) => session.show::<NodeView>(get(&["nodes", &named.node])).await,
        Command::Status(named) => status(&named.node, session).await,
        Command::Timeline(named) => session.show::<Timeline>(get(&["nodes", &named.node, "timeline"])).await,
        Command::History(history) => {
            let call = get(&["nodes", &history.node, "history"]).query(&history.page.query());
            session.show::<Page<lattice_api::node::HistoryEntry>>(call).await
        }
        Command::Tasks(list) => tasks::list(list, session).await,
        Command::Task(named) => tasks::show(named, session).await,
        Command::Check(plain) => tasks::check(plain, session).await,
        Command::Create(create) => self::create(create, session).await,
        Command::Bootstrap(plain) => {
            let reason = Reason { reason: plain.reason };
            bootstrap(&plain.node, post(&["nodes", &plain.node, "bootstrap"]).json(&reason), session).await
        }
        Command::Drain(drain) => actions::drain(drain, session).await,
        Command::Undrain(act) => actions::act(Verb::Undrain, act, session).await,
        Command::Disable(act) => actions::act(Verb::Disable, act, session).await,
        Command::Enable(act) => actions::act(Verb::Enable, act, session).await,
        Command::Reboot(reboot) => actions::reboot(reboot, session).await,
        Command::Reset(act) => actions::act(Verb::Reset, act, session).await,
        Command::Reimage(reimage) => actions::reimage(reimage, session).await,
        Command::SecureErase(erase) => actions::secure_erase(erase, session).await,
        Command::Retire(retire) => actions::retire(retire, session).await,
        Command::Reactivate(act) => actions::act(Verb::Reactivate, act, session).await,
        Command::Remove(wait) => actions::wait(Verb::Remove, wait, session).await,
        Command::Quarantine(act) => actions::act(Verb::Quarantine, act, session).await,
        Command::Recover(act) => actions::act(Verb::Recover, act, session).await,
        Command::Resume(act) => actions::act(Verb::Resume, act, session).await,
        Command::Withdraw(act) => actions::act(Verb::Withdraw, act, session).await,
        Command::RevokeCertificate(plain) => revoke(plain, session).await,
        Command::Wait(until) => watch::state(session, &until.node, &until.state, until.deadline).await,
        Command::Label(label) => self::label(label, session).await,
        Command::Bmc(command) => bmc::run(command, session).await,
    }
}

fn query(list: List) -> Result<NodeQuery, Failure> {
    let status = list.status.map(|text| word("status", &text)).transpose()?;
    let availability = list.availability.map(|text| word("availability", &text)).transpose()?;
    let page = list.page.query();
    Ok(NodeQuery {
        cursor: page.cursor,
        limit: page.limit,
        status,
        availability,
        state: list.state,
        site: list.site,
        sku: list.sku,
        hostname_prefix: list.prefix,
        label: list.label,
        deleted: list.deleted.then_some(true),
    })
}

async fn label(label: Label, session: &Session) -> Result<(), Failure> {
    let mut body = ChangeLabels { reason: label.reason, ..ChangeLabels::default() };
    for text in label.labels {
        match (text.split_once('='), text.strip_suffix('-')) {
            (Some((name, value)), _) => {
                body.set.insert(name.to_owned(), value.to_owned());
            }
            (None, Some(name)) => body.remove.push(name.to_owned()),
            (None, None) => {
                return Err(Failure::refused(format!("`{text}` is no label"))
                    .because("NAME=VALUE sets one, NAME- takes one away"));
            }
        }
    }
    let answer = session.ask::<NodeView>(post(&["nodes", &label.node, "labels"]).json(&body)).await?;
    if !session.format().is_for_people() {
        return session.print(&answer);
    }
    let node = &answer.value;
    output::text(&format!("{}: {}\n", node.row.hostname, views::labels(node)))
}

async fn status(node: &str, session: &Session) -> Result<(), Failure> {
    let answer = session.ask::<NodeView>(get(&["nodes", node])).await?;
    match session.format() {
        Format::Table => output::text(&views::status(&answer.value, session.look())),
        Format::Wide | Format::Json | Format::Yaml | Format::Name => session.print(&answer),
    }
}

async fn create(create: Create, session: &Session) -> Result<(), Failure> {
    let body = CreateNode {
        hostname: create.hostname.clone(),
        sku: create.sku,
        site: create.site,
        class: create.class.map(|text| word("class", &text)).transpose()?,
        reason: create.reason,
    };
    bootstrap(&create.hostname, post(&["nodes"]).json(&body), session).await
}

/// Prints the command alone to stdout, so that it can be piped to where it runs.
async fn bootstrap(name: &str, call: lattice_api::client::Call, session: &Session) -> Result<(), Failure> {
    let answer = session.ask::<NodeBootstrap>(call).await?;
    session.print(&answer)?;
    if session.format().is_for_people() {
        let value = &answer.value;
        eprintln!(
            "node {}: run this line as root on {name}, in sh, bash or zsh, before {}.",
            value.node_id, value.expires_at
        );
        eprintln!("It holds a token that works once, and is shown this once.");
        match value.job_id {
            Some(job) => eprintln!("then: lattice job watch {job}"),
            None => eprintln!("then: lattice explain node {name}"),
        }
    }
    Ok(())
}

async fn revoke(plain: Plain, session: &Session) -> Result<(), Failure> {
    let action = format!("revoke the certificates of {}", plain.node);
    session.confirm(&action, "its agent is locked out until `lattice node bootstrap` gives it a new identity")?;
    let call = post(&["nodes", &plain.node, "revoke-certificate"]).json(&Reason { reason: plain.reason });
    let answer: Answer<NodeView> = session.ask(call).await?;
    match session.format() {
        Format::Table | Format::Wide => {
            let row = &answer.value.row;
            let line =
                format!("{}: certificates revoked, identity epoch {}\n", row.hostname, answer.value.identity_epoch);
            output::text(&line)
        }
        Format::Json | Format::Yaml | Format::Name => session.print(&answer),
    }
}

impl Shown for NodeBootstrap {
    fn text(&self, _: output::Look) -> String {
        format!("{}\n", self.command.expose())
    }
    fn names(&self) -> Vec<String> {
        vec![self.node_id.to_string()]
    }
}
