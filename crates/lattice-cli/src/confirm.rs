//! Asking before something is done that disturbs running work or cannot be undone.

use std::io::{BufRead, IsTerminal, Write};

use crate::failure::Failure;

/// Asks `action: effect`, unless it is confirmed already.
///
/// # Errors
/// The answer was not yes, or there is nobody to ask.
pub fn confirm(confirmed: Confirmed, action: &str, effect: &str) -> Result<(), Failure> {
    if confirmed == Confirmed::Yes {
        return Ok(());
    }
    let stdin = std::io::stdin();
    if !stdin.is_terminal() {
        return Err(Failure::refused(format!("{action} needs a confirmation"))
            .because(effect)
            .next("", "repeat it with --yes, or in a terminal"));
    }
    eprint!("{action}: {effect}. Continue? [y/N] ");
    // The question is only a courtesy when stderr is closed; the answer decides.
    let _ = std::io::stderr().flush();
    let mut answer = String::new();
    let read = stdin.lock().read_line(&mut answer);
    match (read, answer.trim().to_ascii_lowercase().as_str()) {
        (Ok(_), "y" | "yes") => Ok(()),
        (Ok(_) | Err(_), _) => Err(Failure::refused(format!("{action}: not confirmed")).because("nothing was changed")),
    }
}

/// Whether the command line confirmed already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Confirmed {
    /// By `--yes`.
    Yes,
    /// Not yet.
    NotYet,
}
