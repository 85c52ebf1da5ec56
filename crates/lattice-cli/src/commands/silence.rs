//! `lattice silence`: incidents that raise no attention for a while. A silence hides attention, and changes nothing else.

use std::time::Duration;

use clap::{Args, Subcommand};
use lattice_api::Gone;
use lattice_api::client::{get, post};
use lattice_api::page::Page;
use lattice_api::silence::{CreateSilence, SilenceView};

use crate::failure::Failure;
use crate::output::{self, Look, Row, Shown};
use crate::session::{Session, request};
use crate::span;
use crate::vocabulary::{pair, word};

/// What can be done with silences.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Say that incidents of some nodes raise no attention for a while; you own it
    Create(Create),
    /// List the silences in force
    List,
    /// Lift a silence before its expiry: what it hid needs attention again
    Lift(Lift),
}

/// A silence to create. All that is given must hold.
#[derive(Debug, Args)]
pub struct Create {
    /// Incidents of these nodes, by hostname or id; several with commas
    #[arg(long = "node", value_name = "NODE", value_delimiter = ',')]
    nodes: Vec<String>,
    /// Incidents of nodes with this label, such as rack=c07; of several, all
    #[arg(long = "selector", value_name = "NAME=VALUE", value_parser = pair)]
    selector: Vec<(String, String)>,
    /// Incidents of nodes of this site, by name or id
    #[arg(long)]
    site: Option<String>,
    /// Only incidents of this kind: job_stopped, wipe_failed, node_quarantined, node_down, node_failed, node_degraded
    /// or node_offline
    #[arg(long)]
    kind: Option<String>,
    /// For how long, at most 30d: 90s, 10m, 2h, 7d
    #[arg(long = "for", value_name = "SPAN", value_parser = span::parse)]
    span: Duration,
    /// Why; shown to everybody who wonders
    #[arg(long)]
    reason: String,
}

/// A silence to lift.
#[derive(Debug, Args)]
pub struct Lift {
    /// Its id
    id: String,
}

/// Runs one of them.
///
/// # Errors
/// Refused, or the kind is none.
pub async fn run(command: Command, session: &Session) -> Result<(), Failure> {
    match command {
        Command::Create(create) if create.nodes.is_empty() && create.selector.is_empty() && create.site.is_none() => {
            Err(Failure::refused("a silence must say which nodes it means")
                .next("", "give --node, --selector or --site"))
        }
        Command::Create(create) => {
            let body = CreateSilence {
                kind: create.kind.map(|kind| word("kind of incident", &kind)).transpose()?,
                nodes: create.nodes,
                selector: create.selector.into_iter().collect(),
                site: create.site,
                reason: create.reason,
                for_ms: u64::try_from(create.span.as_millis()).unwrap_or(u64::MAX),
            };
            session.show::<SilenceView>(post(&["silences"]).json(&body)).await
        }
        Command::List => session.show::<Page<SilenceView>>(get(&["silences"])).await,
        Command::Lift(lift) => {
            let answer = session.ask::<Gone>(request(reqwest::Method::DELETE, &["silences", &lift.id])).await?;
            if !session.format().is_for_people() {
                return session.print(&answer);
            }
            output::text(&format!("silence {} is lifted: what it hid needs attention again\n", answer.value.removed))
        }
    }
}

impl Row for SilenceView {
    fn head(_: bool) -> Vec<&'static str> {
        vec!["ID", "SILENCED", "BY", "UNTIL", "REASON"]
    }

    fn cells(&self, _: Look) -> Vec<String> {
        vec![self.id.to_string(), self.whom(), self.by.name.clone(), self.until.to_string(), self.reason.clone()]
    }

    fn name(&self) -> String {
        self.id.to_string()
    }
}

impl Shown for SilenceView {
    fn text(&self, look: Look) -> String {
        output::rows(std::slice::from_ref(self), look)
    }

    fn names(&self) -> Vec<String> {
        vec![self.id.to_string()]
    }
}
