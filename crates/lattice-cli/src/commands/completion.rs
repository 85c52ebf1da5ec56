//! `lattice completion`: the completion script of a shell.

use clap::{Args, CommandFactory};
use clap_complete::Shell;

use crate::failure::Failure;
use crate::output;

/// For which shell.
#[derive(Debug, Args)]
pub struct Arguments {
    /// Which shell
    #[arg(value_enum)]
    shell: Shell,
}

/// Prints the script.
///
/// # Errors
/// Stdout cannot be written.
pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut crate::arguments::Arguments::command(), "lattice", &mut script);
    output::data(&script)
}
