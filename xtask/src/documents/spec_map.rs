//! `docs/spec-map.md`: every section of the specifications with the code that names it, or "not yet".

use std::collections::BTreeMap;

use super::table;
use crate::repository::{Repository, SourceFile};
use crate::rules::Finding;
use crate::rust_text::RustText;

const PATH: &str = "docs/spec-map.md";
const SECTIONS: &str = include_str!("../../spec-sections.txt");
const NOTES: &str = include_str!("../../spec-notes.txt");

const DOCUMENTS: &[(&str, &str)] = &[
    ("S1", "Node lifecycle"),
    ("S2", "MAAS node state model"),
    ("S3", "Node operations and agent lifecycle"),
    ("S4", "Control plane component lifecycle"),
    ("S5", "MAAS bare metal lifecycle"),
];

/// One section of a specification.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Section {
    /// `S5`.
    document: &'static str,
    /// `4.3`; empty where sections have no number.
    number: &'static str,
    /// Its heading.
    title: &'static str,
}

/// A place that says which section it follows.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Reference {
    /// `S5`.
    document: String,
    /// A number, or a heading or term in quotes.
    target: Target,
    /// File that says so.
    path: String,
    /// Line of it.
    line: usize,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Target {
    Number(String),
    Name(String),
}

/// The document.
pub fn document(repository: &Repository) -> SourceFile {
    let sections = sections(SECTIONS);
    let references = references(&repository.files);
    let mut text = "# Specification map\n\nDrawn from the `spec:` notes in the sources by `cargo run -p xtask -- docs`; do not edit.\n"
        .to_owned();
    for (document, title) in DOCUMENTS {
        let own: Vec<&Section> = sections.iter().filter(|section| section.document == *document).collect();
        let done = own.iter().filter(|section| !places(section, &references).is_empty()).count();
        let rows = own.iter().map(|section| row(section, &references));
        text.push_str(&format!(
            "\n## {document} {title}\n\n{done} of {} sections are named by code.\n\n{}",
            own.len(),
            table(&["section", "code"], rows)
        ));
        text.push_str(&row_by_row(document, &own, &notes(NOTES)));
    }
    SourceFile { path: PATH.to_owned(), text }
}

/// Where one row of a section stands.
struct Note {
    place: &'static str,
    row: &'static str,
    state: &'static str,
}

fn notes(text: &'static str) -> Vec<Note> {
    text.lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| {
            let (place, rest) = line.split_once(" | ")?;
            let (row, state) = rest.split_once(" | ")?;
            Some(Note { place, row, state })
        })
        .collect()
}

/// The sections of a document that were gone through row by row.
fn row_by_row(document: &str, sections: &[&Section], notes: &[Note]) -> String {
    let mut text = String::new();
    for section in sections {
        let place = format!("{document} {}", section.number);
        let rows: Vec<Vec<String>> = notes
            .iter()
            .filter(|note| note.place == place)
            .map(|note| vec![note.row.to_owned(), note.state.to_owned()])
            .collect();
        if !rows.is_empty() {
            let table = table(&["row", "where it stands"], rows);
            text.push_str(&format!("\n### {place} {}, row by row\n\n{table}", section.title));
        }
    }
    text
}

fn row(section: &Section, references: &[Reference]) -> Vec<String> {
    let name = format!("{} {}", section.number, section.title).trim().replace('|', "\\|");
    let places = places(section, references);
    let code = if places.is_empty() { "not yet".to_owned() } else { places.join(", ") };
    vec![name, code]
}

/// Files that name the section, each once, without line numbers: those would change with every edit.
fn places(section: &Section, references: &[Reference]) -> Vec<String> {
    let mut paths: Vec<String> = references
        .iter()
        .filter(|reference| reference.document == section.document && names(&reference.target, section))
        .map(|reference| format!("`{}`", reference.path))
        .collect();
    paths.dedup();
    paths
}

fn names(target: &Target, section: &Section) -> bool {
    match target {
        Target::Number(number) => section.number == number,
        Target::Name(name) => section.title == name,
    }
}

/// Numbers that no specification has: a slip of the pen, or a section that was renumbered.
pub fn unknown_sections(repository: &Repository) -> Vec<Finding> {
    unknown(&sections(SECTIONS), &references(&repository.files))
}

fn unknown(sections: &[Section], references: &[Reference]) -> Vec<Finding> {
    references
        .iter()
        .filter(|reference| !sections.iter().any(|s| s.document == reference.document && names(&reference.target, s)))
        .filter_map(|reference| match &reference.target {
            Target::Number(number) => Some(Finding::at(
                &reference.path,
                reference.line,
                format!("{} has no section {number}", reference.document),
            )),
            // Terms inside a section are quoted too: `S1 "heartbeat_interval"`.
            Target::Name(_) => None,
        })
        .collect()
}

fn sections(text: &'static str) -> Vec<Section> {
    text.lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| line.split_once(" | "))
        .map(|(place, title)| {
            let (document, number) = place.split_once(' ').unwrap_or((place, ""));
            Section { document, number, title }
        })
        .collect()
}

/// All notes of all production sources, ordered by file.
fn references(files: &[SourceFile]) -> Vec<Reference> {
    let mut found = BTreeMap::new();
    for file in files.iter().filter(|file| file.is_rust() && !file.path.starts_with("xtask/")) {
        for (index, line) in RustText::new(&file.text).comments.lines().enumerate() {
            for note in line.match_indices("spec:").map(|(at, word)| &line[at + word.len()..]) {
                for (document, target) in targets(note) {
                    let key = (file.path.clone(), document.clone(), target.clone());
                    found.entry(key).or_insert(Reference {
                        document,
                        target,
                        path: file.path.clone(),
                        line: index + 1,
                    });
                }
            }
        }
    }
    found.into_values().collect()
}

/// `S2 3.2–3.3, S5 4.6 "Ready → Degraded"; design: …` as its parts. Ends at the first word that is none of these.
fn targets(note: &str) -> Vec<(String, Target)> {
    let mut found = Vec::new();
    let mut document: Option<String> = None;
    let mut rest = note.trim_start();
    while !rest.is_empty() {
        if let Some(quoted) = rest.strip_prefix('"') {
            let Some((name, after)) = quoted.split_once('"') else { break };
            found.extend(document.clone().map(|document| (document, Target::Name(name.to_owned()))));
            rest = after;
        } else {
            let end = rest.find([' ', ',', ';', ')', '"']).unwrap_or(rest.len()).max(1);
            let (word, after) = rest.split_at(end);
            if DOCUMENTS.iter().any(|(name, _)| *name == word) {
                document = Some(word.to_owned());
            } else if word.starts_with(|letter: char| letter.is_ascii_digit()) {
                let numbers = word.split(['–', '-']).map(|number| number.trim_end_matches('.'));
                let numbers = numbers.filter(|number| !number.is_empty());
                found.extend(document.iter().flat_map(|document| {
                    numbers.clone().map(|number| (document.clone(), Target::Number(number.to_owned())))
                }));
            } else if word == ";" || word == ")" || word.starts_with("design") {
                break;
            }
            rest = after;
        }
        rest = rest.trim_start_matches([' ', ',']);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(note: &str) -> Vec<String> {
        targets(note)
            .into_iter()
            .map(|(document, target)| match target {
                Target::Number(number) => format!("{document} {number}"),
                Target::Name(name) => format!("{document} {name:?}"),
            })
            .collect()
    }

    #[test]
    fn notes_are_read_as_people_write_them() {
        assert_eq!(
            shown(" S2 3.2–3.3, S5 4.6, 7.3; design: 2-state-model \"Holds\""),
            ["S2 3.2", "S2 3.3", "S5 4.6", "S5 7.3"]
        );
        assert_eq!(shown(" S1 \"Timeouts\", \"Heartbeat Protocol\""), ["S1 \"Timeouts\"", "S1 \"Heartbeat Protocol\""]);
        assert_eq!(shown(" S5 4.6 WaitForAgentEnrollment, design: 3-jobs 9"), ["S5 4.6"]);
        assert_eq!(shown(" S5 3.7)."), ["S5 3.7"]);
    }

    #[test]
    fn every_heading_of_the_list_has_a_document_and_a_title() {
        let sections = sections(SECTIONS);
        assert_eq!(sections.len(), SECTIONS.lines().filter(|line| !line.starts_with('#')).count());
        for (document, _) in DOCUMENTS {
            assert!(sections.iter().any(|section| section.document == *document), "{document}");
        }
    }

    #[test]
    fn every_note_is_about_a_section_that_there_is() {
        let sections = sections(SECTIONS);
        let lines = NOTES.lines().filter(|line| !line.starts_with('#')).count();
        let notes = notes(NOTES);
        assert_eq!(notes.len(), lines, "each line has three parts");
        for note in notes {
            let known = sections.iter().any(|s| format!("{} {}", s.document, s.number) == note.place);
            assert!(known && !note.state.is_empty(), "{} {}", note.place, note.row);
        }
    }

    #[test]
    fn a_section_that_does_not_exist_is_found() {
        let file = SourceFile::new("crates/a/src/b.rs", "/// A thing. spec: S5 99.1\nstruct A;");
        let found = unknown(&sections(SECTIONS), &references(&[file]));
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].message, "S5 has no section 99.1");
    }

    #[test]
    fn a_named_section_shows_its_code_and_the_others_say_not_yet() {
        let file = SourceFile::new("crates/a/src/b.rs", "/// A thing. spec: S5 4.7\nstruct A;");
        let repository = Repository { root: "/".into(), files: vec![file] };
        let text = document(&repository).text;
        assert!(text.contains("| 4.7 Failure taxonomy | `crates/a/src/b.rs` |"));
        assert!(text.contains("| 4.8 Workflow recovery state model | not yet |"));
    }
}
