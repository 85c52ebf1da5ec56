//! Counts that may only fall: what is not right yet is written down, and nothing may be added to it.

use super::Finding;
use crate::repository::{Repository, Unreadable};

/// Where the committed counts are.
pub const FILE: &str = "xtask/ratchet.toml";

/// One counted rule.
pub struct Counted {
    /// Key in the file.
    pub key: &'static str,
    /// Where the rule is broken now.
    pub findings: Vec<Finding>,
}

/// Compares the counts with the committed ones.
///
/// # Errors
/// When the file is not TOML.
pub fn check(repository: &Repository, counted: &[Counted]) -> Result<Vec<Finding>, Unreadable> {
    let text = repository.text(FILE).unwrap_or_default();
    let table: toml::Table =
        toml::from_str(text).map_err(|source| Unreadable::Toml { path: FILE.to_owned(), source: Box::new(source) })?;
    Ok(counted.iter().flat_map(|rule| compare(rule, committed(&table, rule.key))).collect())
}

fn committed(table: &toml::Table, key: &str) -> usize {
    table.get(key).and_then(|value| value.as_integer()).and_then(|value| usize::try_from(value).ok()).unwrap_or(0)
}

fn compare(rule: &Counted, committed: usize) -> Vec<Finding> {
    let now = rule.findings.len();
    if now > committed {
        let mut findings = rule.findings.clone();
        findings
            .push(Finding::in_file(FILE, format!("`{}` rose from {committed} to {now}: it may only fall", rule.key)));
        findings
    } else if now < committed {
        vec![Finding::in_file(
            FILE,
            format!(
                "`{}` fell from {committed} to {now}: write that down with `cargo run -p xtask -- ratchet`",
                rule.key
            ),
        )]
    } else {
        Vec::new()
    }
}

/// The file's text for these counts.
pub fn render(counted: &[Counted]) -> String {
    let mut text = "# Counts that may only fall; `cargo run -p xtask -- ratchet` writes them.\n".to_owned();
    for rule in counted {
        text.push_str(&format!("{} = {}\n", rule.key, rule.findings.len()));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(count: usize) -> Counted {
        Counted { key: "long_functions", findings: vec![Finding::in_file("a.rs", "long"); count] }
    }

    #[test]
    fn a_count_that_rose_names_every_place() {
        let found = compare(&rule(2), 1);
        assert_eq!(found.len(), 3);
        assert!(found[2].message.contains("rose from 1 to 2"));
    }

    #[test]
    fn a_count_that_fell_must_be_written_down() {
        assert!(compare(&rule(0), 1)[0].message.contains("fell from 1 to 0"));
        assert!(compare(&rule(1), 1).is_empty());
    }

    #[test]
    fn the_file_says_what_was_counted() {
        assert!(render(&[rule(2)]).ends_with("long_functions = 2\n"));
    }
}
