//! Documents that are drawn from the code, so that they cannot say anything else.

pub mod errors;
pub mod jobs;
pub mod spec_map;
pub mod state_model;

use crate::repository::{Repository, SourceFile, Unreadable};
use crate::rules::Finding;

/// All documents as they should be.
pub fn generate(repository: &Repository) -> Vec<SourceFile> {
    let mut documents = vec![state_model::document(), jobs::document()];
    documents.extend(errors::documents());
    documents.push(spec_map::document(repository));
    documents
}

/// Documents that are not what the code says, and articles about errors that do not exist.
pub fn check(repository: &Repository) -> Vec<Finding> {
    let mut findings = stale(&repository.files, &generate(repository));
    findings.extend(spec_map::unknown_sections(repository));
    findings
}

fn stale(present: &[SourceFile], wanted: &[SourceFile]) -> Vec<Finding> {
    const REMEDY: &str = "write it with `cargo run -p xtask -- docs`";
    let mut findings = Vec::new();
    for document in wanted {
        match present.iter().find(|file| file.path == document.path) {
            None => findings.push(Finding::in_file(&document.path, format!("is missing: {REMEDY}"))),
            Some(file) if file.text != document.text => {
                let line = file.text.lines().zip(document.text.lines()).take_while(|(have, want)| have == want).count();
                findings.push(Finding::at(&document.path, line + 1, format!("is stale: {REMEDY}")));
            }
            Some(_) => {}
        }
    }
    let generated_folder = |path: &str| path.starts_with(errors::FOLDER) && path.ends_with(".md");
    for file in present.iter().filter(|file| generated_folder(&file.path)) {
        if !wanted.iter().any(|document| document.path == file.path) {
            findings.push(Finding::in_file(&file.path, "describes an error that does not exist: delete it"));
        }
    }
    findings
}

/// Writes all documents.
///
/// # Errors
/// When a file cannot be written.
pub fn write(repository: &Repository) -> Result<usize, Unreadable> {
    let mut written = 0;
    for document in generate(repository) {
        if repository.text(&document.path) == Some(document.text.as_str()) {
            continue;
        }
        let path = repository.root.join(&document.path);
        let folder = path.parent().expect("documents lie below the root");
        std::fs::create_dir_all(folder)
            .and_then(|()| std::fs::write(&path, &document.text))
            .map_err(|source| Unreadable::File { path, source })?;
        written += 1;
    }
    Ok(written)
}

/// A Markdown table.
pub fn table(head: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let mut text = format!("| {} |\n|{}\n", head.join(" | "), " --- |".repeat(head.len()));
    for row in rows {
        text.push_str(&format!("| {} |\n", row.join(" | ")));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stale_a_missing_and_a_leftover_document_are_found() {
        let present = [
            SourceFile::new("docs/state-model.md", "one\ntwo\n"),
            SourceFile::new("docs/errors/LAT9999.md", "left over"),
        ];
        let wanted = [SourceFile::new("docs/state-model.md", "one\n2\n"), SourceFile::new("docs/spec-map.md", "")];
        let found = stale(&present, &wanted);
        assert_eq!(
            found.iter().map(|f| (f.path.as_str(), f.line)).collect::<Vec<_>>(),
            [("docs/state-model.md", 2), ("docs/spec-map.md", 0), ("docs/errors/LAT9999.md", 0),]
        );
        assert!(stale(&wanted, &wanted).is_empty());
    }
}
