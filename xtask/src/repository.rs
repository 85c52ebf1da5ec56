//! The repository as the checks see it: its root and the text of its files.

use std::path::{Path, PathBuf};
use std::process::Command;

/// A check could not be carried out at all.
#[derive(Debug, thiserror::Error)]
pub enum Unreadable {
    /// A file or folder.
    #[error("cannot read {path}: {source}")]
    File {
        /// Which one.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A program that must be asked.
    #[error("`{command}` failed: {reason}")]
    Program {
        /// As started.
        command: String,
        /// What it said.
        reason: String,
    },
    /// A file that should have been TOML.
    #[error("{path} is not valid TOML: {source}")]
    Toml {
        /// Which one.
        path: String,
        /// Why.
        source: Box<toml::de::Error>,
    },
}

/// One file that git tracks or would track.
#[derive(Debug, Clone)]
pub struct SourceFile {
    /// Path from the root, with `/`.
    pub path: String,
    /// Its text.
    pub text: String,
}

impl SourceFile {
    /// A file made up for a test.
    #[cfg(test)]
    pub fn new(path: &str, text: &str) -> Self {
        Self { path: path.to_owned(), text: text.to_owned() }
    }

    /// Whether it is Rust.
    pub fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }

    /// Whether it is compiled into tests, benchmarks or examples only.
    pub fn is_test(&self) -> bool {
        ["tests/", "benches/", "examples/"]
            .iter()
            .any(|folder| self.path.starts_with(folder) || self.path.contains(&format!("/{folder}")))
            || self.path.ends_with("/tests.rs")
    }

    /// Folder of the crate that it belongs to: `crates/lattice-core`, `xtask`.
    pub fn crate_folder(&self) -> &str {
        let depth = if self.path.starts_with("crates/") { 2 } else { 1 };
        match self.path.match_indices('/').nth(depth - 1) {
            Some((end, _)) => &self.path[..end],
            None => "",
        }
    }
}

/// The checkout.
#[derive(Debug)]
pub struct Repository {
    /// Its root.
    pub root: PathBuf,
    /// Its text files, by path.
    pub files: Vec<SourceFile>,
}

impl Repository {
    /// Reads all text files that git tracks, and the new ones that it does not ignore.
    ///
    /// # Errors
    /// When git cannot be asked or a file cannot be read.
    pub fn load() -> Result<Self, Unreadable> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in the root").to_owned();
        let listed = run(Command::new("git").current_dir(&root).args([
            "ls-files",
            "--cached",
            "--others",
            "--exclude-standard",
        ]))?;
        let mut paths: Vec<&str> = listed.lines().collect();
        paths.sort_unstable();
        paths.dedup();
        let mut files = Vec::new();
        for path in paths {
            let full = root.join(path);
            if !full.is_file() {
                continue;
            }
            let bytes = std::fs::read(&full).map_err(|source| Unreadable::File { path: full, source })?;
            if let Ok(text) = String::from_utf8(bytes) {
                files.push(SourceFile { path: path.to_owned(), text });
            }
        }
        Ok(Self { root, files })
    }

    /// The text of one file, if it is there.
    pub fn text(&self, path: &str) -> Option<&str> {
        self.files.iter().find(|file| file.path == path).map(|file| file.text.as_str())
    }
}

/// Runs a program and returns what it printed.
///
/// # Errors
/// When it cannot be started or fails.
pub fn run(command: &mut Command) -> Result<String, Unreadable> {
    let described = format!("{command:?}");
    let output = command
        .output()
        .map_err(|error| Unreadable::Program { command: described.clone(), reason: error.to_string() })?;
    if !output.status.success() {
        let reason = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        return Err(Unreadable::Program { command: described, reason });
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_knows_its_crate_and_whether_it_is_a_test() {
        let file = SourceFile::new("crates/lattice-core/tests/node.rs", "");
        assert!(file.is_test() && file.is_rust());
        assert_eq!(file.crate_folder(), "crates/lattice-core");
        assert_eq!(SourceFile::new("xtask/src/main.rs", "").crate_folder(), "xtask");
        assert!(!SourceFile::new("xtask/src/main.rs", "").is_test());
    }
}
