//! Lattice's benchmarks: `./bench` runs all, `./bench NAME` one. design: 7-tests-and-benchmarks "Benchmarks"
//!
//! What is measured runs in a process of its own, so that the load generator's CPU is not counted with it.

mod accounts;
mod agent;
mod cold_start;
mod failure;
mod figure;
mod fleet;
mod heartbeats;
mod in_flight;
mod lifecycle;
mod listing;
mod measured;
mod memory;
mod onboarding;
mod plane;
mod programs;
mod reconnects;
mod storm;
mod suite;
mod tasks;

use std::process::ExitCode;

use clap::Parser;

use crate::suite::{Load, NAMES};

/// As in the `lattice` binary.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[derive(Parser)]
#[command(about = "measures Lattice; without a name all of it", override_usage = "./bench [NAME] [OPTIONS]")]
struct Arguments {
    /// What to measure.
    name: Option<String>,
    /// `json`: one object per benchmark, for a program to read.
    #[arg(short, long, value_parser = ["text", "json"], default_value = "text")]
    output: String,
    #[command(flatten)]
    load: Load,
    /// Serves as the measured process; its configuration and commands come on standard input.
    #[arg(long, hide = true)]
    role: Option<String>,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if let Some(role) = &arguments.role {
        return finish(suite::serve(role));
    }
    let names: Vec<&str> = match &arguments.name {
        None => NAMES.to_vec(),
        Some(name) => vec![name.as_str()],
    };
    let mut worst = ExitCode::SUCCESS;
    for name in names {
        match suite::run(name, &arguments.load) {
            Ok(report) if arguments.output == "json" => println!("{}", report.json()),
            Ok(report) => println!("{}", report.text()),
            Err(error) => {
                eprintln!("error: {name} was not measured: {error}");
                worst = ExitCode::FAILURE;
            }
        }
    }
    worst
}

fn finish(outcome: Result<(), failure::Failure>) -> ExitCode {
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
