//! `lattice dev --until recovered`: every printed command is run as a person would run it, by this program.

use std::process::Stdio;
use std::time::Duration;

use lattice_sim::dev::Dev;
use lattice_sim::recovery::{MishapReport, Play, Recovery};
use lattice_sim::scenario::Scenario;
use serde_json::json;
use tokio::process::Command;

use super::not_started;
use crate::failure::Failure;
use crate::output::Format;

/// Plays the scenario until all recovered.
///
/// # Errors
/// Something did not recover in time: what, one line each.
pub async fn until_recovered(dev: &Dev, scenario: &Scenario, timeout: Duration, format: Format) -> Result<(), Failure> {
    let seen = |report: &MishapReport| {
        if let Some(failure) = report.failures.last() {
            eprintln!("{}: {}", report.hostname, failure.summary);
            if let Some(repair) = &report.repair {
                eprintln!("  {repair}, then:");
            }
            eprintln!("  {}", failure.command);
        }
    };
    let played = Play::new(dev, scenario).until_recovered(timeout, async |line| run(dev, line).await, seen).await;
    let recovery = played.map_err(|error| not_started(&error))?;
    match format {
        Format::Json => println!("{}", json!(recovery)),
        Format::Table | Format::Wide | Format::Yaml | Format::Name => print(&recovery),
    }
    if recovery.recovered {
        return Ok(());
    }
    let failure = Failure::refused(format!("{} did not recover within {timeout:?}", recovery.scenario));
    Err(recovery.missing.into_iter().fold(failure, Failure::because))
}

fn print(recovery: &Recovery) {
    for report in &recovery.mishaps {
        let how = if report.recovered { "recovered" } else { "not recovered" };
        println!("{:<34} {}  {how}", report.class.to_string(), report.hostname);
    }
    match recovery.seconds {
        Some(seconds) => println!("{} of {} active, all after {seconds:.1} s", recovery.active, recovery.nodes),
        None => println!("{} of {} active", recovery.active, recovery.nodes),
    }
}

/// Runs a printed command line as it stands: no shell, the words that are printed, this program as `lattice`. Where it
/// asks whether that is meant, the answer is yes.
async fn run(dev: &Dev, line: &str) -> Result<(), String> {
    match run_words(dev, line, &[]).await {
        Err(asked) if asked.contains("needs a confirmation") => run_words(dev, line, &["--yes"]).await,
        other => other,
    }
}

async fn run_words(dev: &Dev, line: &str, more: &[&str]) -> Result<(), String> {
    let mut words = line.split_whitespace();
    if words.next() != Some("lattice") {
        return Err("it is not a command of `lattice`".to_owned());
    }
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let output = Command::new(program)
        .args(words)
        .args(more)
        .env("LATTICE_SERVER", format!("http://{}", dev.api()))
        .env("LATTICE_TOKEN", dev.token().expose())
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output();
    let output = output.await.map_err(|error| error.to_string())?;
    if output.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()) }
}
