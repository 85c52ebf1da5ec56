//! The whole system in one thread, from a seed: production's servers and agents over a network in memory, with a time of
//! its own, while messages are lost, hosts die, servers are killed and operators meddle. design: 7-tests-and-benchmarks
//!
//! Every commit is judged by [`rules`]; what hosts really run is compared with what the rows say; and in the end, when
//! nothing goes wrong any more, everything must come to its place, and the store must tell the story that was committed.

mod bmc;
mod check;
mod cloud;
mod ground;
mod host;
mod life;
mod log;
mod luck;
mod model;
mod network;
mod operator;
mod rest;
mod rules;
mod server;
mod slow_hands;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

pub use self::rules::{RULES, Rule};

/// How a life is lived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Plan {
    /// What everything is drawn from.
    pub seed: u64,
    /// How much happens.
    pub steps: u64,
    /// Whether its log is printed as it goes.
    pub shows: bool,
}

/// How a life went.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// Its seed.
    pub seed: u64,
    /// Its steps.
    pub steps: u64,
    /// What was found wrong; empty when all was well.
    pub wrong: Vec<String>,
    /// Hash over its log.
    pub hash: u64,
    /// Lines of its log.
    pub lines: u64,
    /// The last lines.
    pub log: Vec<String>,
}

/// Steps of a life that nobody said otherwise of.
pub const STEPS: u64 = 100;

/// Lives one life, on this thread.
pub fn live(plan: Plan) -> Report {
    let Plan { seed, steps, shows } = plan;
    let failed = |why: String| Report { seed, steps, wrong: vec![why], hash: 0, lines: 0, log: Vec::new() };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => return failed(format!("there is no runtime: {error}")),
    };
    runtime.block_on(async {
        let life = match life::LifeOf::begin(seed, shows).await {
            Ok(life) => life,
            Err(why) => return failed(why),
        };
        match life.live(steps).await {
            Ok(ground) => Report {
                seed,
                steps,
                wrong: ground.all_wrong(),
                hash: ground.log.hash(),
                lines: ground.log.lines(),
                log: ground.log.kept(),
            },
            Err(why) => failed(why),
        }
    })
}

/// Lives one life twice; the second report, or that the two differ.
pub fn live_twice(plan: Plan) -> Report {
    let (first, mut second) = (live(plan), live(Plan { shows: false, ..plan }));
    if (first.hash, first.lines) != (second.hash, second.lines) {
        second.wrong.push(format!("one seed gives one life: hashes {:016x} and {:016x}", first.hash, second.hash));
    }
    second
}

/// How many lives are lived, and how.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Many {
    /// The first seed.
    pub first: u64,
    /// How many.
    pub seeds: u64,
    /// Steps of each.
    pub steps: u64,
    /// Each so many-th is lived twice; 0: none.
    pub twice: u64,
    /// Threads.
    pub threads: usize,
}

/// Lives many lives, each on one thread; `told` hears of each as it ends.
pub fn live_many(many: Many, told: impl Fn(&Report) + Sync) -> Vec<Report> {
    let seeds: Mutex<VecDeque<u64>> = Mutex::new((many.first..many.first + many.seeds).collect());
    let failed = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..many.threads.max(1) {
            scope.spawn(|| {
                loop {
                    let next = seeds.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
                    let Some(seed) = next else { return };
                    let plan = Plan { seed, steps: many.steps, shows: false };
                    let is_twice = many.twice > 0 && seed % many.twice == 0;
                    let report = if is_twice { live_twice(plan) } else { live(plan) };
                    told(&report);
                    if !report.wrong.is_empty() {
                        failed.lock().unwrap_or_else(PoisonError::into_inner).push(report);
                    }
                }
            });
        }
    });
    let mut failed = failed.into_inner().unwrap_or_else(PoisonError::into_inner);
    failed.sort_by_key(|report| report.seed);
    failed
}
