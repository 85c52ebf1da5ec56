//! Words that must not stand in sources: ignored tests, work left undone, arms that swallow the next variant.

use std::collections::BTreeSet;

use super::Finding;
use crate::repository::SourceFile;
use crate::rust_text::{RustText, is_word, matches, words};

/// Macros that leave work undone.
const UNDONE: &[&str] = &["todo!", "unimplemented!", "dbg!"];

/// Ignored tests, unfinished code, and notes without the number of an issue.
pub fn check(files: &[SourceFile]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in files.iter().filter(|file| file.is_rust()) {
        let text = RustText::new(&file.text);
        for (index, line) in text.code.lines().enumerate() {
            if line.contains("#[ignore") {
                findings.push(Finding::at(
                    &file.path,
                    index + 1,
                    "an ignored test tests nothing: make it run or delete it",
                ));
            }
            for undone in UNDONE.iter().filter(|undone| line.contains(**undone)) {
                findings.push(Finding::at(&file.path, index + 1, format!("`{undone}` is not finished")));
            }
        }
        for (index, line) in text.comments.lines().enumerate() {
            if has_unnumbered_note(line) {
                findings.push(Finding::at(&file.path, index + 1, "a note to do carries an issue number: `TODO(#12)`"));
            }
        }
    }
    findings
}

fn has_unnumbered_note(comment: &str) -> bool {
    ["TODO", "FIXME", "XXX"].iter().any(|word| {
        comment.match_indices(word).any(|(at, _)| {
            let before = comment[..at].chars().next_back();
            let rest = &comment[at + word.len()..];
            let numbered =
                rest.strip_prefix("(#").is_some_and(|rest| rest.starts_with(|digit: char| digit.is_ascii_digit()));
            let whole = before.is_none_or(|letter| !is_word(letter) && letter != '`')
                && rest.chars().next().is_none_or(|letter| !is_word(letter) && letter != '`');
            whole && !numbered
        })
    })
}

/// `_ =>` in a match over one of our own enums, outside of tests: the next variant would not break the build.
///
/// A text check sees only arms that name the enum (`Status::Active`, `Self::Active`); the compiler's
/// `wildcard_enum_match_arm` would also count foreign enums.
pub fn swallowing_arms(files: &[SourceFile]) -> Vec<Finding> {
    let sources: Vec<(&SourceFile, String)> = files
        .iter()
        .filter(|file| file.is_rust() && !file.is_test())
        .map(|file| (file, RustText::new(&file.text).production_code()))
        .collect();
    let ours: BTreeSet<String> = sources.iter().flat_map(|(_, code)| enums(code)).collect();
    let mut findings = Vec::new();
    for (file, code) in &sources {
        for found in matches(code) {
            let Some((pattern, _)) = found.patterns.iter().find(|(pattern, _)| names_one(pattern, &ours)) else {
                continue;
            };
            for (_, line) in found.patterns.iter().filter(|(pattern, _)| pattern == "_") {
                findings.push(Finding::at(&file.path, *line, format!("`_ =>` beside `{pattern}`: name the variants")));
            }
        }
    }
    findings
}

fn enums(code: &str) -> Vec<String> {
    let letters: Vec<char> = code.chars().collect();
    let places: Vec<usize> = words(&letters, "enum").collect();
    places
        .into_iter()
        .map(|at| letters[at + 4..].iter().skip_while(|c| c.is_whitespace()).take_while(|c| is_word(**c)).collect())
        .filter(|name: &String| !name.is_empty())
        .collect()
}

/// Whether a pattern names a variant of ours. Guards are no part of it, and `http::Method::GET` is not ours although
/// an enum of ours may be called `Method`.
fn names_one(pattern: &str, ours: &BTreeSet<String>) -> bool {
    let pattern = pattern.split(" if ").next().unwrap_or_default();
    pattern.match_indices("::").any(|(at, _)| {
        let path: String =
            pattern[..at].chars().rev().take_while(|letter| is_word(*letter) || *letter == ':').collect();
        let path: String = path.chars().rev().collect();
        let (parent, name) = path.rsplit_once("::").unwrap_or(("", &path));
        let root = parent.split("::").next().unwrap_or_default();
        let foreign = root.starts_with(|letter: char| letter.is_ascii_lowercase())
            && !["crate", "self", "super"].contains(&root)
            && !root.starts_with("lattice_");
        !foreign && (name == "Self" || ours.contains(name))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(text: &str) -> Vec<SourceFile> {
        vec![SourceFile::new("crates/a/src/b.rs", text)]
    }

    #[test]
    fn an_ignored_test_is_found() {
        assert_eq!(check(&file("#[test]\n#[ignore = \"slow\"]\nfn a() {}"))[0].line, 2);
    }

    #[test]
    fn unfinished_code_is_found_and_the_word_in_a_text_is_not() {
        assert_eq!(check(&file("fn a() { todo!() }")).len(), 1);
        assert!(check(&file("const A: &str = \"todo!\";")).is_empty());
    }

    #[test]
    fn a_note_without_an_issue_is_found() {
        assert_eq!(check(&file("// TODO later")).len(), 1);
        assert!(check(&file("// TODO(#12) later")).is_empty());
    }

    #[test]
    fn an_arm_that_swallows_our_variants_is_found() {
        let text =
            "enum Ours { A, B }\nfn f(o: Ours) { match o { Ours::A => 1,\n _ => 2 } match c { 'x' => 1, _ => 2 } }";
        let found = swallowing_arms(&file(text));
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].line, 3);
    }

    #[test]
    fn guards_and_foreign_names_are_no_patterns_of_ours() {
        let text = "enum Method { Get }\nfn f() { match n { 1 if m == Method::Get => 1, _ => 2 } match m { http::Method::GET => 1, _ => 2 } }";
        assert!(swallowing_arms(&file(text)).is_empty());
        let text = "enum Method { Get }\nfn f() { match m { super::Method::Get => 1, _ => 2 } }";
        assert_eq!(swallowing_arms(&file(text)).len(), 1);
    }

    #[test]
    fn foreign_enums_may_have_a_rest() {
        assert!(swallowing_arms(&file("fn f() { match k { ErrorKind::NotFound => 1, _ => 2 } }")).is_empty());
    }
}
