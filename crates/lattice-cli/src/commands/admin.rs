//! `lattice admin`: what only administrators do. spec: S1 "Wipe Failure Handling"

use clap::Subcommand;

use super::node::actions;
use crate::failure::Failure;
use crate::session::Session;

/// On what.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// On nodes
    #[command(subcommand)]
    Node(Node),
}

/// What can be done with nodes.
#[derive(Debug, Subcommand)]
pub enum Node {
    /// Wipe a node after sensitive work; without --force it says what would happen, and does nothing
    Wipe(actions::Wipe),
}

/// Runs one of them.
///
/// # Errors
/// Refused, not confirmed, or it ended badly while it was waited for.
pub async fn run(command: Command, session: &Session) -> Result<(), Failure> {
    match command {
        Command::Node(Node::Wipe(wipe)) => actions::wipe(wipe, session).await,
    }
}
