//! `lattice hold`: named reasons why a usable node must not be scheduled.

use std::time::Duration;

use clap::{Args, Subcommand};
use lattice_api::client::{get, post};
use lattice_api::hold::{HoldView, SetHold};
use lattice_api::node::NodeView;
use lattice_api::page::Page;

use crate::failure::Failure;
use crate::output::{self, Look, Row};
use crate::paging::Paging;
use crate::session::{Session, request};
use crate::span;
use crate::vocabulary::word;

/// What can be done with holds.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// List the holds of one node, or of all
    List(List),
    /// Set a hold; one of the same kind is replaced
    Set(Set),
    /// Clear a hold
    Clear(Clear),
}

/// Which holds.
#[derive(Debug, Args)]
pub struct List {
    /// Hostname or id; all nodes when absent
    node: Option<String>,
    /// Which page, and how long
    #[command(flatten)]
    page: Paging,
}

/// A hold to set.
#[derive(Debug, Args)]
pub struct Set {
    /// Hostname or id
    node: String,
    /// Kind: maintenance, rollout, drift, conformance_drift or agent_upgrade
    kind: String,
    /// Why; shown to everybody who wonders
    #[arg(long)]
    reason: String,
    /// Ends by itself after this: 90s, 10m, 2h, 7d
    #[arg(long = "for", value_name = "SPAN", value_parser = span::parse)]
    span: Option<Duration>,
}

/// A hold to clear.
#[derive(Debug, Args)]
pub struct Clear {
    /// Hostname or id
    node: String,
    /// Kind: maintenance, rollout, drift, conformance_drift or agent_upgrade
    kind: String,
}

/// Runs one of them.
///
/// # Errors
/// Refused, or the kind is none.
pub async fn run(command: Command, session: &Session) -> Result<(), Failure> {
    match command {
        Command::List(List { node: Some(node), .. }) => {
            session.show::<Page<HoldView>>(get(&["nodes", &node, "holds"])).await
        }
        Command::List(List { node: None, page }) => {
            session.show::<Page<HoldView>>(get(&["holds"]).query(&page.query())).await
        }
        Command::Set(set) => {
            // The end counts by the server's clock, which answers first.
            let node = session.client.node(&set.node).await?;
            let until = set.span.map(|span| node.explanation.at + span);
            let body = SetHold { kind: word("hold", &set.kind)?, reason: set.reason, until };
            changed(post(&["nodes", &set.node, "holds"]).json(&body), session).await
        }
        Command::Clear(clear) => {
            let kind = clear.kind.replace('-', "_");
            changed(request(reqwest::Method::DELETE, &["nodes", &clear.node, "holds", &kind]), session).await
        }
    }
}

async fn changed(call: lattice_api::client::Call, session: &Session) -> Result<(), Failure> {
    let answer = session.ask::<NodeView>(call).await?;
    if !session.format().is_for_people() {
        return session.print(&answer);
    }
    let node = &answer.value;
    let kinds: Vec<String> = node.row.holds.iter().map(ToString::to_string).collect();
    let holds = if kinds.is_empty() { "no holds".to_owned() } else { format!("holds: {}", kinds.join(", ")) };
    output::text(&format!("{}: {holds}\n", node.row.hostname))
}

impl Row for HoldView {
    fn head(_: bool) -> Vec<&'static str> {
        vec!["NODE", "HOLD", "BY", "FOR", "UNTIL", "JOB", "REASON"]
    }

    fn cells(&self, look: Look) -> Vec<String> {
        let until = self.until.map(|until| until.to_string()).unwrap_or_default();
        vec![
            self.hostname.clone(),
            self.kind.to_string(),
            self.by.name.clone(),
            look.age(self.since.as_millis()),
            if self.in_force { until } else { format!("{until} (over)") },
            self.job.map(|job| job.to_string()).unwrap_or_default(),
            self.reason.clone(),
        ]
    }

    fn name(&self) -> String {
        format!("{}/{}", self.hostname, self.kind)
    }
}
