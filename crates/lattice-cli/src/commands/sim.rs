//! `lattice sim`: the whole system in its seeded simulation.

use std::num::NonZeroUsize;
use std::sync::Mutex;

use clap::{Args, Subcommand};
use lattice_sim::system::{self, Many, Plan, Report, STEPS};
use serde_json::json;

use crate::arguments::Global;
use crate::clock::now_millis;
use crate::failure::Failure;
use crate::output::Format;

/// Of many lives, each so many-th is lived twice.
const TWICE: u64 = 10;

/// What to do with the simulation.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Live one life, or many: agents and servers of production, in one thread, with a time of its own
    Run(RunArguments),
}

/// Which lives.
#[derive(Debug, Args)]
pub struct RunArguments {
    /// The life of this seed; with --seeds the first of them
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// So many lives, one seed after the other
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    seeds: Option<u64>,
    /// How much happens in a life
    #[arg(long, default_value_t = STEPS)]
    steps: u64,
    /// Live each life twice, and compare
    #[arg(long)]
    check: bool,
    /// Print everything that happens
    #[arg(long, short, conflicts_with = "seeds")]
    verbose: bool,
    /// Lives at a time; as many as there are processors when absent
    #[arg(long)]
    threads: Option<NonZeroUsize>,
}

/// Runs it.
///
/// # Errors
/// Something was found wrong: each life that went wrong is named with the command that lives it again.
pub fn run(command: &Command, global: &Global) -> Result<(), Failure> {
    let Command::Run(arguments) = command;
    let begun = now_millis();
    let (failed, lives) = match arguments.seeds {
        None => (one(arguments)?, 1),
        Some(seeds) => (many(arguments, seeds), seeds),
    };
    let seconds = (now_millis() - begun) as f64 / 1_000.0;
    match global.output {
        Format::Json => {
            let seeds: Vec<u64> = failed.iter().map(|report| report.seed).collect();
            println!("{}", json!({"lives": lives, "failed": seeds, "seconds": seconds}));
        }
        Format::Table | Format::Wide | Format::Yaml | Format::Name => {
            println!("{lives} lives, {} went wrong, {seconds:.1} s", failed.len());
        }
    }
    let Some(first) = failed.first() else { return Ok(()) };
    let failure = Failure::refused(format!("something went wrong in the life of seed {}", first.seed));
    let failure = first.wrong.iter().fold(failure, |failure, what| failure.because(what));
    let steps = if first.steps == STEPS { String::new() } else { format!(" --steps {}", first.steps) };
    Err(failure
        .next(format!("lattice sim run --seed {}{steps} --verbose", first.seed), "lives it again, and tells all"))
}

fn one(arguments: &RunArguments) -> Result<Vec<Report>, Failure> {
    let plan = Plan { seed: arguments.seed, steps: arguments.steps, shows: arguments.verbose };
    let live = if arguments.check { system::live_twice } else { system::live };
    // A life has a runtime of its own, and this thread has one already.
    let report = std::thread::spawn(move || live(plan)).join();
    let report = report.map_err(|_| Failure::unexpected(format!("the life of seed {} ended in a panic", plan.seed)))?;
    if !arguments.verbose && !report.wrong.is_empty() {
        report.log.iter().for_each(|line| println!("{line}"));
    }
    println!("seed {}: {} lines, hash {:016x}", report.seed, report.lines, report.hash);
    Ok(Some(report).filter(|report| !report.wrong.is_empty()).into_iter().collect())
}

fn many(arguments: &RunArguments, seeds: u64) -> Vec<Report> {
    let processors = || std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
    let many = Many {
        first: arguments.seed,
        seeds,
        steps: arguments.steps,
        twice: if arguments.check { 1 } else { TWICE },
        threads: arguments.threads.map_or_else(processors, NonZeroUsize::get),
    };
    let done = Mutex::new(0_u64);
    system::live_many(many, |report| {
        let mut done = done.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        *done += 1;
        for what in &report.wrong {
            println!("seed {}: {what}", report.seed);
        }
        if done.is_multiple_of(100) {
            eprintln!("{done} of {seeds}");
        }
    })
}
