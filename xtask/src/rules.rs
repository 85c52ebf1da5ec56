//! The rules that a machine can check. design: 1-architecture "Crates", 6-style

pub mod arrows;
pub mod leaks;
pub mod purity;
pub mod ratchet;
pub mod size;
pub mod words;

use std::fmt;

/// One place that breaks a rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// Path from the root.
    pub path: String,
    /// Line from 1; 0 when the whole file is meant.
    pub line: usize,
    /// What is wrong, and what would be right.
    pub message: String,
}

impl Finding {
    /// A finding in one line.
    pub fn at(path: &str, line: usize, message: impl Into<String>) -> Self {
        Self { path: path.to_owned(), line, message: message.into() }
    }

    /// A finding about a whole file.
    pub fn in_file(path: &str, message: impl Into<String>) -> Self {
        Self::at(path, 0, message)
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "{}: {}", self.path, self.message),
            line => write!(f, "{}:{line}: {}", self.path, self.message),
        }
    }
}
