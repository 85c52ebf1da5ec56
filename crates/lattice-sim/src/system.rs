//! The whole system in one thread, from a seed: production's servers and agents over a network in memory, with a time of
//! its own, while messages are lost, hosts die, servers are killed and operators meddle. design: 7-tests-and-benchmarks
//!
//! Every commit is judged by [`rules`]; what hosts really run is compared with what the rows say; and in the end, when
//! nothing goes wrong any more, everything must come to its place, and the store must tell the story that was committed.

mod acts;
mod bmc;
mod check;
mod cloud;
mod faults;
mod ground;
mod host;
mod life;
mod log;
mod luck;
mod metal;
mod model;
mod network;
mod operator;
mod rest;
mod rules;
mod server;
mod slow_hands;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

pub use self::faults::Fault;
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
    /// What befell it, how often.
    pub faults: BTreeMap<Fault, u64>,
}

/// Steps of a life that nobody said otherwise of.
pub const STEPS: u64 = 100;

/// Lives one life, on this thread.
pub fn live(plan: Plan) -> Report {
    let Plan { seed, steps, shows } = plan;
    let failed = |why: String| Report {
        seed,
        steps,
        wrong: vec![why],
        hash: 0,
        lines: 0,
        log: Vec::new(),
        faults: BTreeMap::new(),
    };
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
                faults: ground.faults.counted(),
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
    /// Threads.
    pub threads: usize,
}

/// How many lives went.
#[derive(Debug, Clone, Default)]
pub struct Lived {
    /// Those in which something was wrong, by seed.
    pub failed: Vec<Report>,
    /// How many were lived twice.
    pub twice: u64,
    /// What befell them, how often.
    pub faults: BTreeMap<Fault, u64>,
}

/// Lives many lives, each on one thread; `told` hears of each as it ends. Then each is lived again, for as long as `again`
/// says so, and must be the same.
pub fn live_many(many: Many, again: impl Fn() -> bool + Sync, told: impl Fn(&Report) + Sync) -> Lived {
    let lived = Mutex::new(Lived::default());
    let first = Mutex::new(BTreeMap::new());
    let plan = |seed| Plan { seed, steps: many.steps, shows: false };
    for_each(
        many,
        || true,
        |seed| {
            let report = live(plan(seed));
            told(&report);
            held(&first).insert(seed, (report.hash, report.lines));
            let mut lived = held(&lived);
            report.faults.iter().for_each(|(fault, times)| *lived.faults.entry(*fault).or_default() += times);
            if !report.wrong.is_empty() {
                lived.failed.push(report);
            }
        },
    );
    for_each(many, &again, |seed| {
        let mut report = live(plan(seed));
        let before = held(&first).get(&seed).copied();
        let mut lived = held(&lived);
        lived.twice += 1;
        if before.is_some_and(|before| before != (report.hash, report.lines)) {
            report.wrong = vec!["one seed gives one life: lived again, it was another".to_owned()];
            told(&report);
            lived.failed.push(report);
        }
    });
    let mut lived = lived.into_inner().unwrap_or_else(PoisonError::into_inner);
    lived.failed.sort_by_key(|report| report.seed);
    lived
}

fn held<T>(what: &Mutex<T>) -> MutexGuard<'_, T> {
    what.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Does it for each seed, on several threads, for as long as `goes_on`.
fn for_each(many: Many, goes_on: impl Fn() -> bool + Sync, each: impl Fn(u64) + Sync) {
    let seeds: Mutex<VecDeque<u64>> = Mutex::new((many.first..many.first + many.seeds).collect());
    std::thread::scope(|scope| {
        for _ in 0..many.threads.max(1) {
            scope.spawn(|| {
                while goes_on() {
                    let Some(seed) = held(&seeds).pop_front() else { return };
                    each(seed);
                }
            });
        }
    });
}
