//! Why a command did not do what it was asked, in three parts: what, why, what next.

use std::process::ExitCode;

use lattice_api::client::ClientError;
use lattice_api::error::{NextStep, Problem};

use crate::output::{Format, harmless};

/// A command that did not do what it was asked.
#[derive(Debug)]
pub struct Failure {
    kind: Kind,
    what: String,
    because: Vec<String>,
    next: Vec<(String, String)>,
    problem: Option<Box<Problem>>,
}

/// Which exit status it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Refused, invalid, declined, or it ended badly: 1.
    Refused,
    /// Nobody expected it: 2.
    Unexpected,
}

impl Failure {
    /// Something was refused or is invalid.
    pub fn refused(what: impl Into<String>) -> Self {
        Self { kind: Kind::Refused, what: what.into(), because: Vec::new(), next: Vec::new(), problem: None }
    }

    /// Something that should work did not.
    pub fn unexpected(what: impl Into<String>) -> Self {
        Self { kind: Kind::Unexpected, ..Self::refused(what) }
    }

    /// The same with one more fact.
    #[must_use]
    pub fn because(mut self, fact: impl Into<String>) -> Self {
        self.because.push(fact.into());
        self
    }

    /// The same with one more thing to do: a command, or what is to be done, and its effect; either may be empty.
    #[must_use]
    pub fn next(mut self, command: impl Into<String>, effect: impl Into<String>) -> Self {
        self.next.push((command.into(), effect.into()));
        self
    }

    /// The same with what the API recommends.
    #[must_use]
    pub fn next_steps(mut self, steps: &[NextStep]) -> Self {
        self.next.extend(steps.iter().map(step_texts));
        self
    }

    /// The server's refusal behind it.
    pub fn problem(&self) -> Option<&Problem> {
        self.problem.as_deref()
    }

    /// The same, printed as that refusal under JSON.
    #[must_use]
    pub fn with_problem(mut self, problem: Problem) -> Self {
        self.problem = Some(Box::new(problem));
        self
    }

    /// Prints it to stderr, as JSON when JSON was asked for, and says how the process ends.
    pub fn report(&self, format: Format) -> ExitCode {
        match (format, &self.problem) {
            (Format::Json, Some(problem)) => match serde_json::to_string_pretty(problem) {
                Ok(text) => eprintln!("{text}"),
                Err(_) => eprint!("{}", harmless(&self.text())),
            },
            (Format::Json | Format::Table | Format::Wide | Format::Yaml | Format::Name, _) => {
                eprint!("{}", harmless(&self.text()))
            }
        }
        ExitCode::from(match self.kind {
            Kind::Refused => 1,
            Kind::Unexpected => 2,
        })
    }

    fn text(&self) -> String {
        let mut text = format!("error: {}\n", self.what);
        for (index, fact) in self.because.iter().enumerate() {
            text.push_str(if index == 0 { "  because: " } else { "           " });
            text.push_str(fact);
            text.push('\n');
        }
        for (index, (command, effect)) in self.next.iter().enumerate() {
            let lead = if index == 0 { "  next: " } else { "        " };
            text.push_str(&format!("{lead}{}\n", joined(command, effect)));
        }
        text
    }
}

/// A command and its effect in one line; either may be empty.
pub fn joined(command: &str, effect: &str) -> String {
    match (command.is_empty(), effect.is_empty()) {
        (true, _) => effect.to_owned(),
        (false, true) => format!("`{command}`"),
        (false, false) => format!("`{command}`: {effect}"),
    }
}

/// The command and the effect of a step; what is waited for stands with its time.
pub fn step_texts(step: &NextStep) -> (String, String) {
    let effect = match step.until {
        Some(until) => format!("{}, until {until}", step.effect),
        None => step.effect.clone(),
    };
    (step.command.clone().unwrap_or_default(), effect)
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Self {
        match error {
            ClientError::Refused(problem) => {
                let mut failure = Self::refused(format!("{} ({})", problem.detail, problem.code));
                if problem.status >= 500 {
                    failure.kind = Kind::Unexpected;
                    let id = problem.correlation_id.map(|id| format!("the server's log tells more under {id}"));
                    failure.because.extend(id);
                }
                failure.because.splice(0..0, problem.because.iter().cloned());
                failure.next.extend(problem.next_actions.iter().map(step_texts));
                failure.problem = Some(problem);
                failure
            }
            ClientError::Lost(lost) => Self::unexpected(format!("the server at {} gave no answer", lost.server))
                .because(lost.why)
                .next("", "check the address (--server, LATTICE_SERVER) and that the server runs"),
            ClientError::Unreadable { status, why } => {
                Self::unexpected(format!("the server's answer ({status}) cannot be read"))
                    .because(why)
                    .next("lattice version", "compares the versions of this program and the server")
            }
        }
    }
}

/// Prints what clap has to say: help to stdout with status 0, a wrong command line to stderr with status 1.
pub fn usage(error: &clap::Error) -> ExitCode {
    let status = if error.use_stderr() { ExitCode::from(1) } else { ExitCode::SUCCESS };
    // A closed pipe behind `lattice --help | head` is no failure.
    let _ = error.print();
    status
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_has_three_parts() {
        let failure = Failure::refused("job 7c1e cannot resume: stage `deploy_via_maas` is still leased")
            .because("runner lattice-2 holds the lease until 14:02:10Z")
            .because("it was renewed 2 s ago")
            .next("", "wait")
            .next("lattice job cancel 7c1e", "stops it");
        insta::assert_snapshot!(failure.text(), @r"
        error: job 7c1e cannot resume: stage `deploy_via_maas` is still leased
          because: runner lattice-2 holds the lease until 14:02:10Z
                   it was renewed 2 s ago
          next: wait
                `lattice job cancel 7c1e`: stops it
        ");
    }
}
