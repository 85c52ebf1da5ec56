//! `docs/errors/LATnnnn.md`: one article for each error that an operator can meet.

use lattice_core::explain::Code;
use strum::VariantArray;

use super::table;
use crate::repository::SourceFile;

/// Where the articles lie; nothing else does.
pub const FOLDER: &str = "docs/errors/";

/// All articles and their index.
pub fn documents() -> Vec<SourceFile> {
    let mut documents: Vec<SourceFile> = Code::VARIANTS.iter().map(|code| article(*code)).collect();
    let rows = Code::VARIANTS
        .iter()
        .map(|code| vec![format!("[{0}]({0}.md)", code.text()), code.title(), code.article().meaning.to_owned()]);
    let index = format!(
        "# Errors\n\nDrawn from `lattice-core` by `cargo run -p xtask -- docs`; do not edit.\n\n{}",
        table(&["number", "title", "meaning"], rows)
    );
    documents.push(SourceFile { path: format!("{FOLDER}README.md"), text: index });
    documents
}

fn article(code: Code) -> SourceFile {
    let article = code.article();
    let text = format!(
        "# {}: {}\n\nDrawn from `lattice-core` by `cargo run -p xtask -- docs`; do not edit.\n\n## What it means\n\n{}\n\n## What to do\n\n{}\n",
        code.text(),
        code.title(),
        article.meaning,
        article.remedy,
    );
    SourceFile { path: format!("{FOLDER}{}.md", code.text()), text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_has_an_article_and_a_row() {
        let documents = documents();
        assert_eq!(documents.len(), Code::VARIANTS.len() + 1);
        let index = documents.last().map(|document| document.text.as_str()).unwrap_or_default();
        for code in Code::VARIANTS {
            assert!(index.contains(&format!("[{0}]({0}.md)", code.text())), "{}", code.text());
        }
    }
}
