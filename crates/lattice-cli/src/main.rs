//! The `lattice` binary: commands for operators.

mod arguments;
mod clock;
mod commands;
mod confirm;
mod connection;
mod failure;
mod machines;
mod output;
mod paging;
mod session;
mod span;
mod transport;
mod vocabulary;
mod watch;

use std::process::ExitCode;

use clap::Parser;

use arguments::Arguments;
use failure::Failure;

/// About a tenth less CPU than with the system's allocator; SQLite and TLS allocate here too. docs/benchmarks.md
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => return failure::usage(&error),
    };
    let format = arguments.global.output;
    match run(arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(format),
    }
}

fn run(arguments: Arguments) -> Result<(), Failure> {
    // A server works on all cores; a command waits for answers.
    let mut builder = match arguments.command {
        arguments::Command::Dev(_) | arguments::Command::Server(_) => tokio::runtime::Builder::new_multi_thread(),
        _ => tokio::runtime::Builder::new_current_thread(),
    };
    let runtime =
        builder.enable_all().build().map_err(|error| Failure::unexpected(format!("cannot start: {error}")))?;
    runtime.block_on(arguments::run(arguments))
}
