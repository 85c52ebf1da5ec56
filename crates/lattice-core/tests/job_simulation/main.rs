//! Whole lives of jobs against a hostile world, decided by a seed: crashes after each commit and before each act,
//! effects that land late, failures of every class, operators who do anything at any time, stale and duplicate
//! results. After the hostility the world heals and the recommended next actions are followed to the end.
//!
//! `LATTICE_SIM_SEEDS=100000` sets how many seeds are run, `LATTICE_SIM_SEED=17` replays one and prints its log.
#![allow(clippy::unwrap_used, reason = "a test stops at what it cannot do")]

mod checkers;
mod dice;
mod life;
mod world;

use life::{Life, Mutant};

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{variable} is not a number")))
}

/// The first seed, out of `seeds`, in which a checker objects, with what it said.
fn first_objection(mutant: Mutant, seeds: std::ops::Range<u64>) -> Option<(u64, String)> {
    seeds.into_iter().find_map(|seed| Life::new(seed, mutant).live().err().map(|objection| (seed, objection)))
}

#[test]
fn every_job_ends_well_whatever_happens_to_it() {
    if let Some(seed) = number("LATTICE_SIM_SEED") {
        let mut life = Life::new(seed, Mutant::None);
        life.log = Some(Vec::new());
        let outcome = life.live();
        life.log.iter().flatten().for_each(|line| println!("{line}"));
        assert_eq!(outcome, Ok(()), "seed {seed}");
        return;
    }
    let seeds = number("LATTICE_SIM_SEEDS").unwrap_or(2_000);
    let threads = std::thread::available_parallelism().map_or(1, usize::from) as u64;
    let share = seeds.div_ceil(threads);
    let objections: Vec<_> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|n| scope.spawn(move || first_objection(Mutant::None, n * share..((n + 1) * share).min(seeds))))
            .collect();
        workers.into_iter().filter_map(|worker| worker.join().expect("a worker panicked")).collect()
    });
    if let Some((seed, objection)) = objections.first() {
        panic!(
            "seed {seed}: {objection}\nreplay: LATTICE_SIM_SEED={seed} cargo test -p lattice-core --test job_simulation -- --nocapture"
        );
    }
}

#[test]
fn the_same_seed_lives_the_same_life() {
    let log = |seed| {
        let mut life = Life::new(seed, Mutant::None);
        life.log = Some(Vec::new());
        life.live().unwrap();
        life.log.unwrap()
    };
    for seed in 0..20 {
        assert_eq!(log(seed), log(seed));
    }
}

#[test]
fn every_status_action_class_and_stage_occurs() {
    let mut seen = checkers::Coverage::default();
    for seed in 0..3_000 {
        let mut life = Life::new(seed, Mutant::None);
        life.live().unwrap();
        seen.add(&life.coverage);
    }
    assert_eq!(seen.missing(), Vec::<String>::new());
}

/// A checker that cannot fail proves nothing: each mutant is caught, with the words of the checker that is for it.
#[test]
fn each_mutant_is_caught_by_the_checker_that_is_for_it() {
    let rows = [
        (Mutant::ActsBlindly, "deployed twice without an undo between"),
        (Mutant::IgnoresLeases, "deployed twice without an undo between"),
        (Mutant::TakesDoubtForNo, "deployed twice without an undo between"),
        (Mutant::AcceptsStaleResults, "a stale result changed the job"),
        (Mutant::ReleasesAnyway, "released a machine whose operating system ran"),
        (Mutant::NeverGivesUp, "does not settle"),
        (Mutant::StopsWithoutAWord, "stopped without a next action"),
        (Mutant::LeavesItsNode, "may not stand beside"),
        (Mutant::SkipsUndo, "was cancelled and left"),
    ];
    for (mutant, words) in rows {
        let is_caught = (0..5_000).any(|seed| Life::new(seed, mutant).live().is_err_and(|said| said.contains(words)));
        assert!(is_caught, "{mutant:?} was not caught with the words: {words}");
    }
}
