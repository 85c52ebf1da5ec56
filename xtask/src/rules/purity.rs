//! Pure crates have no IO, no clock and no entropy; elsewhere the clock is read in a few named places only.
//! design: 1-architecture, 6-style 4

use std::path::Path;
use std::process::Command;

use super::Finding;
use crate::repository::{Repository, SourceFile, Unreadable, run};
use crate::rust_text::{RustText, is_word};

/// Crates whose decisions must not depend on anything but their arguments.
const PURE: &[&str] = &["lattice-core", "lattice-planner"];

/// What would let IO, a clock or entropy into a pure crate.
const IMPURE_DEPENDENCIES: &[&str] = &[
    "axum",
    "deadpool-postgres",
    "fastrand",
    "getrandom",
    "hyper",
    "mio",
    "rand",
    "rand_core",
    "reqwest",
    "rusqlite",
    "socket2",
    "tokio",
    "tokio-postgres",
];

/// What a pure crate's source must not name. `std::net` has addresses too, so its sockets are named one by one.
const IMPURE_PATHS: &[&str] = &[
    "SystemTime::now",
    "Instant::now",
    "Utc::now",
    "Timestamp::now",
    "Zoned::now",
    "std::fs",
    "std::env",
    "std::process",
    "std::thread",
    "std::net::TcpStream",
    "std::net::TcpListener",
    "std::net::UdpSocket",
    "std::net::ToSocketAddrs",
    "Uuid::now_v7",
    "Uuid::new_v4",
];

/// What reads a clock.
const CLOCK_READS: &[&str] = &["SystemTime::now", "Instant::now", "Utc::now", "Zoned::now"];

/// Files that own a clock, by name.
const CLOCK_OWNERS: &[&str] = &["main.rs", "wiring.rs", "clock.rs"];

/// Crates that own a clock altogether.
const CLOCK_CRATES: &[&str] = &["crates/lattice-sim", "xtask", "benches"];

/// Everything: dependencies of the pure crates, and all sources.
///
/// # Errors
/// When cargo cannot be asked.
pub fn check(repository: &Repository) -> Result<Vec<Finding>, Unreadable> {
    let mut findings = check_sources(&repository.files);
    for pure in PURE.iter().filter(|name| repository.text(&format!("crates/{name}/Cargo.toml")).is_some()) {
        findings.extend(check_tree(pure, &tree(&repository.root, pure)?));
    }
    Ok(findings)
}

/// What is linked into a crate, as `cargo tree` lists it. Procedural macros run at build time only.
fn tree(root: &Path, package: &str) -> Result<String, Unreadable> {
    run(Command::new(env!("CARGO")).current_dir(root).args([
        "tree",
        "--offline",
        "--package",
        package,
        "--edges",
        "normal,no-proc-macro",
        "--prefix",
        "none",
        "--format",
        "{p}",
    ]))
}

fn check_tree(package: &str, tree: &str) -> Vec<Finding> {
    let manifest = format!("crates/{package}/Cargo.toml");
    let mut found: Vec<&str> = tree
        .lines()
        .filter_map(|line| line.split_whitespace().next())
        .filter(|name| IMPURE_DEPENDENCIES.contains(name))
        .collect();
    found.sort_unstable();
    found.dedup();
    found
        .into_iter()
        .map(|name| Finding::in_file(&manifest, format!("`{package}` is pure, and `{name}` is linked into it")))
        .collect()
}

fn is_pure(file: &SourceFile) -> bool {
    PURE.iter().any(|name| file.crate_folder() == format!("crates/{name}"))
}

fn check_sources(files: &[SourceFile]) -> Vec<Finding> {
    const WHY: &str = "does not belong into a pure crate: take it as an argument";
    files
        .iter()
        .filter(|file| file.is_rust() && !file.is_test() && is_pure(file))
        .flat_map(|file| named(file, IMPURE_PATHS, WHY))
        .collect()
}

/// Clocks that are read outside of the pure crates, other than by those who own one. Counted: timers of the agent and
/// of adapters are still among them.
pub fn hidden_clocks(files: &[SourceFile]) -> Vec<Finding> {
    const WHY: &str =
        "reads a hidden clock: take the time as an argument (only main.rs, wiring.rs and clock.rs own one)";
    files
        .iter()
        .filter(|file| file.is_rust() && !file.is_test() && !is_pure(file) && !owns_clock(file))
        .flat_map(|file| named(file, CLOCK_READS, WHY))
        .collect()
}

fn owns_clock(file: &SourceFile) -> bool {
    let name = file.path.rsplit('/').next().unwrap_or_default();
    CLOCK_OWNERS.contains(&name) || CLOCK_CRATES.contains(&file.crate_folder())
}

fn named(file: &SourceFile, paths: &[&str], why: &str) -> Vec<Finding> {
    let code = RustText::new(&file.text).production_code();
    let mut findings = Vec::new();
    for (index, line) in code.lines().enumerate() {
        for path in paths.iter().filter(|path| names(line, path)) {
            findings.push(Finding::at(&file.path, index + 1, format!("`{path}` {why}")));
        }
    }
    findings
}

/// Whether the line names the path, and not a longer word.
fn names(line: &str, path: &str) -> bool {
    line.match_indices(path).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let after = line[at + path.len()..].chars().next();
        before.is_none_or(|letter| !is_word(letter)) && after.is_none_or(|letter| !is_word(letter))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(path: &str, text: &str) -> Vec<usize> {
        let files = [SourceFile::new(path, text)];
        check_sources(&files).into_iter().chain(hidden_clocks(&files)).map(|finding| finding.line).collect()
    }

    #[test]
    fn a_pure_crate_that_reads_a_file_or_the_time_is_found() {
        let text = "use std::fs;\nfn f() { let t = std::time::SystemTime::now(); }\n// std::fs in a comment\n";
        assert_eq!(lines("crates/lattice-core/src/a.rs", text), [1, 2]);
    }

    #[test]
    fn addresses_are_no_sockets() {
        assert!(lines("crates/lattice-core/src/a.rs", "use std::net::Ipv4Addr;").is_empty());
    }

    #[test]
    fn a_hidden_clock_is_found_outside_of_its_owners() {
        let text = "fn f() { tokio::time::Instant::now(); }";
        assert_eq!(lines("crates/lattice-server/src/sse.rs", text), [1]);
        assert!(lines("crates/lattice-server/src/wiring.rs", text).is_empty());
        assert!(lines("crates/lattice-sim/src/fleet.rs", text).is_empty());
        assert!(lines("crates/lattice-server/tests/sse.rs", text).is_empty());
        assert!(
            lines("crates/lattice-server/src/sse.rs", "#[cfg(test)]\nmod tests { fn f() { Instant::now(); } }")
                .is_empty()
        );
    }

    #[test]
    fn an_impure_dependency_is_found_however_deep() {
        let found = check_tree(
            "lattice-core",
            "lattice-core v0.1.0 (/x)\nuuid v1.0.0\ngetrandom v0.3.0\ngetrandom v0.3.0 (*)\n",
        );
        assert_eq!(found.len(), 1);
        assert!(found[0].message.contains("`getrandom`"));
    }
}
