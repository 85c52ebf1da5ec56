//! Structure checks and generated documents: `cargo run -p xtask -- check`.

mod documents;
mod repository;
mod rules;
mod rust_text;

use std::process::ExitCode;

use repository::{Repository, Unreadable};
use rules::Finding;
use rules::ratchet::Counted;

const USAGE: &str = "\
usage: cargo run -p xtask -- <check|docs|ratchet>

  check    hold the sources, the manifests and the generated documents against the rules
  docs     write the generated documents (those of the API: `lattice docs openapi`, `lattice docs events`)
  ratchet  write down the counts that may only fall
";

fn main() -> ExitCode {
    let done = match std::env::args().nth(1).as_deref() {
        Some("check") => check(),
        Some("docs") => docs(),
        Some("ratchet") => ratchet(),
        Some(_) | None => {
            eprint!("{USAGE}");
            return ExitCode::FAILURE;
        }
    };
    done.unwrap_or_else(|error| {
        eprintln!("error: {error}");
        ExitCode::from(2)
    })
}

fn check() -> Result<ExitCode, Unreadable> {
    let repository = Repository::load()?;
    let findings = findings(&repository)?;
    for finding in &findings {
        println!("{finding}");
    }
    eprintln!("structure: {} files, {} findings", repository.files.len(), findings.len());
    Ok(if findings.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn findings(repository: &Repository) -> Result<Vec<Finding>, Unreadable> {
    let mut findings = rules::arrows::check(&repository.files)?;
    findings.extend(rules::purity::check(repository)?);
    findings.extend(rules::size::check(&repository.files));
    findings.extend(rules::words::check(&repository.files));
    findings.extend(rules::leaks::check(repository));
    findings.extend(rules::ratchet::check(repository, &counted(repository))?);
    findings.extend(documents::check(repository));
    Ok(findings)
}

fn counted(repository: &Repository) -> Vec<Counted> {
    vec![
        Counted { key: "hidden_clocks", findings: rules::purity::hidden_clocks(&repository.files) },
        Counted { key: "long_functions", findings: rules::size::long_functions(&repository.files) },
        Counted { key: "swallowing_arms", findings: rules::words::swallowing_arms(&repository.files) },
    ]
}

fn docs() -> Result<ExitCode, Unreadable> {
    let written = documents::write(&Repository::load()?)?;
    eprintln!("documents: {written} written");
    Ok(ExitCode::SUCCESS)
}

fn ratchet() -> Result<ExitCode, Unreadable> {
    let repository = Repository::load()?;
    let counted = counted(&repository);
    let risen: Vec<Finding> = rules::ratchet::check(&repository, &counted)?
        .into_iter()
        .filter(|finding| finding.message.contains("rose"))
        .collect();
    if !risen.is_empty() && repository.text(rules::ratchet::FILE).is_some() {
        for finding in risen {
            println!("{finding}");
        }
        return Ok(ExitCode::FAILURE);
    }
    let path = repository.root.join(rules::ratchet::FILE);
    std::fs::write(&path, rules::ratchet::render(&counted)).map_err(|source| Unreadable::File { path, source })?;
    Ok(ExitCode::SUCCESS)
}
