//! Caps on files and functions, and names that no module may have. design: 6-style 12

use super::Finding;
use crate::repository::SourceFile;
use crate::rust_text::{RustText, functions};

/// Most lines of a source file: about what fits a reader's head at once.
const FILE_LINES: usize = 600;

/// Most lines of a test file: tables of cases are read row by row.
const TEST_FILE_LINES: usize = 1_000;

/// A function over this many lines counts in the ratchet.
pub const FUNCTION_LINES: usize = 70;

/// Names that say nothing: a function without a home lacks a concept.
const NAMELESS: &[&str] = &["common", "helper", "helpers", "misc", "util", "utils"];

/// Files that are too long, and modules without a noun.
pub fn check(files: &[SourceFile]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in files.iter().filter(|file| file.is_rust()) {
        let cap = if file.is_test() { TEST_FILE_LINES } else { FILE_LINES };
        let lines = file.text.lines().count();
        if lines > cap {
            findings
                .push(Finding::in_file(&file.path, format!("has {lines} lines, {cap} are allowed: split it by noun")));
        }
        for part in file.path.trim_end_matches(".rs").split('/') {
            if NAMELESS.contains(&part) {
                findings.push(Finding::in_file(&file.path, format!("`{part}` names nothing: name the concept")));
            }
        }
    }
    findings
}

/// Functions that are longer than a screen, outside of tests.
pub fn long_functions(files: &[SourceFile]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in files.iter().filter(|file| file.is_rust() && !file.is_test()) {
        for function in functions(&RustText::new(&file.text).production_code()) {
            if function.lines > FUNCTION_LINES {
                findings.push(Finding::at(
                    &file.path,
                    function.line,
                    format!(
                        "`{}` has {} lines; aim for one screen, {FUNCTION_LINES} at most",
                        function.name, function.lines
                    ),
                ));
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_over_its_cap_is_found() {
        let long = SourceFile::new("crates/a/src/b.rs", &"\n".repeat(601));
        let test = SourceFile::new("crates/a/tests/b.rs", &"\n".repeat(601));
        assert_eq!(check(&[long, test]).len(), 1);
        assert_eq!(check(&[SourceFile::new("crates/a/tests/b.rs", &"\n".repeat(1_001))]).len(), 1);
    }

    #[test]
    fn a_module_without_a_noun_is_found() {
        assert_eq!(check(&[SourceFile::new("crates/a/src/utils.rs", "")]).len(), 1);
        assert_eq!(check(&[SourceFile::new("crates/a/tests/common/mod.rs", "")]).len(), 1);
        assert!(check(&[SourceFile::new("crates/a/src/uncommon.rs", "")]).is_empty());
    }

    #[test]
    fn a_function_over_a_screen_is_found() {
        let text = format!("fn short() {{}}\nfn long() {{{}}}\n", "\n".repeat(70));
        let found = long_functions(&[SourceFile::new("crates/a/src/b.rs", &text)]);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].line, 2);
    }
}
