//! `lattice explain`: why something is not moving, and what would unblock it. design: 8-interfaces

use clap::{Args, Subcommand};
use lattice_api::client::get;
use lattice_api::explanation::{Explanation, Reason};

use crate::failure::{Failure, joined, step_texts};
use crate::output::{Look, Shown, table};
use crate::session::Session;
use crate::span;

/// What can be explained.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Why a node is not schedulable
    Node(Node),
    /// Why a job is not moving
    Job(Job),
    /// Why an allocation stands where it stands, and what would move it
    Allocation(Allocation),
    /// Why a batch of onboardings is not moving: which permit, who holds it, what comes next
    Batch(Batch),
}

/// One node.
#[derive(Debug, Args)]
pub struct Node {
    /// Hostname or id
    node: String,
}

/// One job.
#[derive(Debug, Args)]
pub struct Job {
    /// Its id
    job: String,
}

/// One allocation.
#[derive(Debug, Args)]
pub struct Allocation {
    /// Its id
    allocation: String,
}

/// One batch.
#[derive(Debug, Args)]
pub struct Batch {
    /// Its id
    batch: String,
}

/// Runs one of them.
///
/// # Errors
/// Refused: nothing has that name.
pub async fn run(command: Command, session: &Session) -> Result<(), Failure> {
    let call = match &command {
        Command::Node(named) => get(&["nodes", &named.node, "explain"]),
        Command::Job(named) => get(&["jobs", &named.job, "explain"]),
        Command::Allocation(named) => get(&["allocations", &named.allocation, "explain"]),
        Command::Batch(named) => get(&["onboardings", "batch", &named.batch, "explain"]),
    };
    session.show::<Explanation>(call).await
}

impl Shown for Explanation {
    fn text(&self, _: Look) -> String {
        let mut head = vec![self.subject.name.clone(), self.state.clone()];
        head.extend(self.context.iter().cloned());
        format!("{}\n{}", head.join("  "), reasons(self))
    }

    fn names(&self) -> Vec<String> {
        vec![self.subject.name.clone()]
    }
}

/// All but the headline.
pub fn reasons(explanation: &Explanation) -> String {
    let mut text = format!("{}\n", explanation.summary);
    let mut facts: Vec<Vec<String>> = explanation.because.iter().enumerate().map(reason_cells).collect();
    if let Some(class) = explanation.failure_class {
        facts.push(vec!["  class".to_owned(), class.to_string(), String::new()]);
    }
    text.push_str(&table(&[], facts));
    if !explanation.next_actions.is_empty() {
        text.push_str("next\n");
        let steps = explanation.next_actions.iter().map(|step| {
            let (command, effect) = step_texts(step);
            match command.is_empty() {
                true => vec![format!("  {}", joined("", &effect)), String::new()],
                false => vec![format!("  {command}"), effect],
            }
        });
        text.push_str(&table(&[], steps));
    }
    text
}

fn reason_cells((index, reason): (usize, &Reason)) -> Vec<String> {
    let lead = if index == 0 { "  because" } else { "" };
    let age = reason.age_ms.map(|age| format!("for {}", span::words(age)));
    let owner = (!reason.owner.is_empty()).then(|| format!("owner: {}", reason.owner));
    let rest: Vec<String> = [age, owner].into_iter().flatten().collect();
    vec![lead.to_owned(), reason.fact.clone(), rest.join(", ")]
}
