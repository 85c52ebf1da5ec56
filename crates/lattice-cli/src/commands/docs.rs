//! `lattice docs`: the descriptions of the API, as `api/` holds them. Hidden: for those who build Lattice.

use clap::Subcommand;

use crate::failure::Failure;
use crate::output;

/// Which description.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Print the OpenAPI document
    Openapi,
    /// Print the AsyncAPI document of the events
    Events,
}

/// Prints it.
///
/// # Errors
/// Stdout cannot be written.
pub fn run(command: &Command) -> Result<(), Failure> {
    let text = match command {
        Command::Openapi => lattice_server::openapi::document(),
        Command::Events => lattice_server::openapi::events_document(),
    };
    output::data(text.as_bytes())
}
