//! Signing in, and a page that could not be made: what, why, what next.

use askama::Template;
use lattice_api::error::Problem;

use super::action::Remedy;
use super::shell::Shell;

/// A refusal as a page.
#[derive(Template)]
#[template(path = "failure.html", blocks = ["main"])]
pub struct FailurePage {
    /// Frame.
    pub shell: Shell,
    /// What is refused, and why.
    pub problem: Problem,
    /// What helps.
    pub remedies: Vec<Remedy>,
}

impl FailurePage {
    /// The page of a problem.
    pub fn of(problem: Problem, shell: Shell) -> Self {
        let remedies = Remedy::all(&problem.next_actions, &shell);
        Self { shell, problem, remedies }
    }
}

/// The form that takes a token.
#[derive(Template)]
#[template(path = "login.html")]
pub struct LoginPage {
    /// Frame.
    pub shell: Shell,
    /// Where to go then.
    pub next: String,
    /// Why the last token was refused.
    pub problem: Option<String>,
}
