//! The body of every refusal: RFC 9457 problem details, with the facts and what to do next. design: 8-interfaces

use http::StatusCode;
use lattice_core::explain::{Code, Explain, NextAction};
use lattice_core::ids::CorrelationId;
use serde::{Deserialize, Serialize};

/// Media type of a [`Problem`].
pub const PROBLEM_JSON: &str = "application/problem+json";

/// Why a request was refused, and what helps.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Problem {
    /// HTTP status, repeated for readers of the body alone.
    pub status: u16,
    /// Stable number: `LAT0042`; `docs/errors/LAT0042.md` describes it.
    pub code: String,
    /// The kind of refusal in a few words; the same for each of its kind.
    pub title: String,
    /// What happened this time.
    pub detail: String,
    /// The facts that led to it, most important first.
    #[serde(default)]
    pub because: Vec<String>,
    /// What to do, best first.
    #[serde(default)]
    pub next_actions: Vec<NextAction>,
    /// Finds the server's log lines of this request.
    #[schema(value_type = Option<String>)]
    pub correlation_id: Option<CorrelationId>,
}

impl Problem {
    /// A problem without facts and actions.
    pub fn new(status: StatusCode, code: Code, detail: impl Into<String>) -> Self {
        Self {
            status: status.as_u16(),
            code: code.text(),
            title: title(code),
            detail: detail.into(),
            because: Vec::new(),
            next_actions: Vec::new(),
            correlation_id: None,
        }
    }

    /// The problem that an explained error is.
    pub fn of(status: StatusCode, error: &dyn Explain) -> Self {
        Self {
            because: error.because(),
            next_actions: error.next_actions(),
            ..Self::new(status, error.code(), error.to_string())
        }
    }

    /// The same with one more fact.
    #[must_use]
    pub fn because(mut self, fact: impl Into<String>) -> Self {
        self.because.push(fact.into());
        self
    }

    /// The same with one more thing to do.
    #[must_use]
    pub fn next(mut self, action: NextAction) -> Self {
        self.next_actions.push(action);
        self
    }

    /// Whether this is a refusal of that kind.
    pub fn is(&self, code: Code) -> bool {
        self.code == code.text()
    }
}

/// `HeartbeatReplayed` reads "heartbeat replayed".
fn title(code: Code) -> String {
    let name: &'static str = code.into();
    let mut title = String::with_capacity(name.len() + 4);
    for letter in name.chars() {
        if letter.is_ascii_uppercase() && !title.is_empty() {
            title.push(' ');
        }
        title.push(letter.to_ascii_lowercase());
    }
    title
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_names_its_kind_and_its_number() {
        let problem = Problem::new(StatusCode::CONFLICT, Code::HeartbeatReplayed, "sequence 7 came after 9");
        assert_eq!((problem.status, problem.title.as_str()), (409, "heartbeat replayed"));
        assert_eq!(problem.code, "LAT0067");
        assert!(problem.is(Code::HeartbeatReplayed) && !problem.is(Code::SessionUnknown));
    }
}
