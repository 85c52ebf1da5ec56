//! `lattice site conformance`: which fingerprints nodes may have. spec: S1 "Conformance drift"

use clap::{Args, Subcommand};
use lattice_api::client::{get, post};
use lattice_api::site::{ConformanceView, NameFingerprint};

use crate::failure::Failure;
use crate::output::{Look, Shown, table};
use crate::session::Session;

/// What can be done with fingerprints.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// List the fingerprints of a site, approved and reported ones
    List(Site),
    /// Approve the fingerprint of a node, or one that is named: nodes of its SKU with others deviate from then on
    Approve(Named),
    /// Take an approval back
    Withdraw(Named),
}

/// One site.
#[derive(Debug, Args)]
pub struct Site {
    /// Name or id
    site: String,
}

/// One fingerprint.
#[derive(Debug, Args)]
pub struct Named {
    /// Name or id of the site
    site: String,
    /// The one that this node has now
    #[arg(long, required_unless_present = "fingerprint")]
    node: Option<String>,
    /// Of which SKU
    #[arg(long, requires = "fingerprint", conflicts_with = "node")]
    sku: Option<String>,
    /// As `list` prints it
    #[arg(long, requires = "sku", conflicts_with = "node")]
    fingerprint: Option<String>,
    /// Why; kept in the audit
    #[arg(long, default_value = "", hide_default_value = true)]
    reason: String,
}

/// Runs one of them.
///
/// # Errors
/// Refused.
pub async fn run(command: Command, session: &Session) -> Result<(), Failure> {
    match command {
        Command::List(Site { site }) => session.show::<ConformanceView>(get(&["sites", &site, "conformance"])).await,
        Command::Approve(named) => act("approve", named, session).await,
        Command::Withdraw(named) => act("withdraw", named, session).await,
    }
}

async fn act(verb: &str, named: Named, session: &Session) -> Result<(), Failure> {
    let Named { site, node, sku, fingerprint, reason } = named;
    let body = NameFingerprint { sku, fingerprint, node, reason };
    session.show::<ConformanceView>(post(&["sites", &site, "conformance", verb]).json(&body)).await
}

impl Shown for ConformanceView {
    fn text(&self, look: Look) -> String {
        let rows = self.fingerprints.iter().map(|line| {
            let standing = match (&line.approved, line.deviates) {
                (Some(approved), _) => {
                    format!("approved by {}, {} ago", approved.by.name, look.age(approved.at.as_millis()))
                }
                (None, true) => "deviates".to_owned(),
                (None, false) => "not judged: none is approved for its SKU".to_owned(),
            };
            vec![line.sku.clone(), line.fingerprint.clone(), line.nodes.to_string(), standing]
        });
        table(&["SKU", "FINGERPRINT", "NODES", "STANDING"], rows)
    }

    fn names(&self) -> Vec<String> {
        self.fingerprints.iter().map(|line| line.fingerprint.clone()).collect()
    }
}
