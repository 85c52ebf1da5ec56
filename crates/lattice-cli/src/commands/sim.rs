//! `lattice sim`: the whole system in its seeded simulation.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use clap::{Args, Subcommand};
use lattice_sim::system::{self, Fault, Lived, Many, Plan, STEPS};
use serde_json::json;
use strum::VariantArray;

use crate::arguments::Global;
use crate::clock::now_millis;
use crate::failure::Failure;
use crate::output::Format;

/// Seconds in which many lives are lived again, counted from the begin of the first.
const WITHIN: u64 = 110;
/// Of many lives, so many-th as many are lived again whatever it takes.
const AGAIN: u64 = 20;

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
    /// Live each life twice, and compare; without it, of many lives a twentieth, and as many as fit into --within
    #[arg(long)]
    check: bool,
    /// Seconds within which lives are lived a second time
    #[arg(long, default_value_t = WITHIN)]
    within: u64,
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
    let (lived, lives) = match arguments.seeds {
        None => (one(arguments)?, 1),
        Some(seeds) => (many(arguments, seeds, begun), seeds),
    };
    let Lived { failed, twice, faults } = lived;
    let seconds = (now_millis() - begun) as f64 / 1_000.0;
    match global.output {
        Format::Json => {
            let seeds: Vec<u64> = failed.iter().map(|report| report.seed).collect();
            println!(
                "{}",
                json!({"lives": lives, "twice": twice, "failed": seeds, "seconds": seconds, "faults": told(&faults)})
            );
        }
        Format::Table | Format::Wide | Format::Yaml | Format::Name => {
            let befell: Vec<String> = told(&faults).iter().map(|(fault, times)| format!("{fault} {times}")).collect();
            println!("befell: {}", befell.join(", "));
            println!("{lives} lives, {twice} of them twice, {} went wrong, {seconds:.1} s", failed.len());
        }
    }
    let Some(first) = failed.first() else { return Ok(()) };
    let failure = Failure::refused(format!("something went wrong in the life of seed {}", first.seed));
    let failure = first.wrong.iter().fold(failure, |failure, what| failure.because(what));
    let steps = if first.steps == STEPS { String::new() } else { format!(" --steps {}", first.steps) };
    Err(failure
        .next(format!("lattice sim run --seed {}{steps} --verbose", first.seed), "lives it again, and tells all"))
}

/// What befell, by its name; what never did, too.
fn told(faults: &BTreeMap<Fault, u64>) -> BTreeMap<String, u64> {
    Fault::VARIANTS.iter().map(|fault| (fault.to_string(), faults.get(fault).copied().unwrap_or_default())).collect()
}

fn one(arguments: &RunArguments) -> Result<Lived, Failure> {
    let plan = Plan { seed: arguments.seed, steps: arguments.steps, shows: arguments.verbose };
    let live = if arguments.check { system::live_twice } else { system::live };
    // A life has a runtime of its own, and this thread has one already.
    let report = std::thread::spawn(move || live(plan)).join();
    let report = report.map_err(|_| Failure::unexpected(format!("the life of seed {} ended in a panic", plan.seed)))?;
    if !arguments.verbose && !report.wrong.is_empty() {
        report.log.iter().for_each(|line| println!("{line}"));
    }
    println!("seed {}: {} lines, hash {:016x}", report.seed, report.lines, report.hash);
    let faults = report.faults.clone();
    let failed = Some(report).filter(|report| !report.wrong.is_empty()).into_iter().collect();
    Ok(Lived { failed, twice: u64::from(arguments.check), faults })
}

fn many(arguments: &RunArguments, seeds: u64, begun: i64) -> Lived {
    let processors = || std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
    let many = Many {
        first: arguments.seed,
        seeds,
        steps: arguments.steps,
        threads: arguments.threads.map_or_else(processors, NonZeroUsize::get),
    };
    let done = Mutex::new(0_u64);
    let asked = AtomicU64::new(0);
    let again = || {
        let is_due = asked.fetch_add(1, Ordering::Relaxed) < seeds / AGAIN;
        let is_time = now_millis() - begun < i64::try_from(arguments.within * 1_000).unwrap_or(i64::MAX);
        arguments.check || is_due || is_time
    };
    system::live_many(many, again, |report| {
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
