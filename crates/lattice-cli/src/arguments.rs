//! The command tree: one variant for each noun, and the options that all of them share.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use crate::commands::{audit, completion, events, explain, fleet, hold, job, node, onboard, site, sku, token, version};
use crate::output::Format;

/// Lattice: the lifecycle of bare-metal machines, from first boot to removal.
#[derive(Debug, Parser)]
#[command(name = "lattice", version, propagate_version = false, max_term_width = 100, after_help = AFTER_HELP)]
pub struct Arguments {
    /// Options of every command.
    #[command(flatten)]
    pub global: Global,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

const AFTER_HELP: &str = "\
Data goes to stdout, everything else to stderr. Exit status: 0 done, 1 refused or invalid, 2 unexpected.
Without --server the address and token are taken from LATTICE_SERVER and LATTICE_TOKEN, then from
~/.config/lattice/config.toml, then from a running `lattice dev`.";

/// Options of every command.
#[derive(Debug, Clone, Args)]
pub struct Global {
    /// Address of the server: https://lattice.example:7440
    #[arg(long, global = true, env = "LATTICE_SERVER", value_name = "URL", help_heading = "Global options")]
    pub server: Option<String>,
    /// File that holds the API token; LATTICE_TOKEN stands for the token itself
    #[arg(long, global = true, env = "LATTICE_TOKEN_FILE", value_name = "FILE", help_heading = "Global options")]
    pub token_file: Option<PathBuf>,
    /// Certificates that the server's must chain to, in PEM, beside those of the system
    #[arg(long, global = true, env = "LATTICE_CA_FILE", value_name = "FILE", help_heading = "Global options")]
    pub ca_file: Option<PathBuf>,
    /// How to print: table and wide for people, json as the API answered, yaml, name for scripts
    #[arg(short, long, global = true, value_enum, default_value = "table", help_heading = "Global options")]
    pub output: Format,
    /// Short for -o wide
    #[arg(short, long, global = true, conflicts_with = "output", help_heading = "Global options")]
    pub wide: bool,
    /// Confirm without being asked
    #[arg(short, long, global = true, help_heading = "Global options")]
    pub yes: bool,
}

/// One noun each.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Machines under control: list, look, create, and everything an operator may ask of one
    #[command(subcommand)]
    Node(node::Command),
    /// Provider endpoints with their credentials and settings
    #[command(subcommand)]
    Site(site::Command),
    /// What a machine of one kind must have
    #[command(subcommand)]
    Sku(sku::Command),
    /// Turn machines into nodes
    #[command(subcommand)]
    Onboard(onboard::Command),
    /// Durable work on nodes, stage by stage
    #[command(subcommand)]
    Job(job::Command),
    /// Named reasons why a usable node must not be scheduled
    #[command(subcommand)]
    Hold(hold::Command),
    /// What happened, in order, as it happens
    Events(events::Arguments),
    /// Who did what, and proof that nobody changed it afterwards
    #[command(subcommand)]
    Audit(audit::Command),
    /// API tokens
    #[command(subcommand)]
    Token(token::Command),
    /// Why something is not moving, and what would unblock it
    #[command(subcommand)]
    Explain(explain::Command),
    /// The fleet at a glance, and what needs attention
    Fleet,
    /// Print the completion script of a shell
    Completion(completion::Arguments),
    /// Version of this program, and of the server if one is known
    Version,
}

/// Runs a command.
///
/// # Errors
/// Refused by the server or the person asked, or failed in an unexpected way.
pub async fn run(arguments: Arguments) -> Result<(), crate::failure::Failure> {
    use crate::session::Session;
    let global = arguments.global;
    match arguments.command {
        Command::Completion(arguments) => completion::run(&arguments),
        Command::Version => version::run(&global).await,
        Command::Audit(command) if command.is_local() => audit::run_local(command, &global),
        Command::Audit(command) => audit::run(command, &Session::open(&global)?).await,
        Command::Node(command) => node::run(command, &Session::open(&global)?).await,
        Command::Site(command) => site::run(command, &Session::open(&global)?).await,
        Command::Sku(command) => sku::run(command, &Session::open(&global)?).await,
        Command::Onboard(command) => onboard::run(command, &Session::open(&global)?).await,
        Command::Job(command) => job::run(command, &Session::open(&global)?).await,
        Command::Hold(command) => hold::run(command, &Session::open(&global)?).await,
        Command::Events(arguments) => events::run(arguments, &Session::open(&global)?).await,
        Command::Token(command) => token::run(command, &Session::open(&global)?).await,
        Command::Explain(command) => explain::run(command, &Session::open(&global)?).await,
        Command::Fleet => fleet::run(&Session::open(&global)?).await,
    }
}
