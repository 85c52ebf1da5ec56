//! Refusals as HTTP answers: one place maps each code to its status.

use axum::response::{IntoResponse, Response};
use http::{HeaderValue, StatusCode, header};
use lattice_api::error::{FieldError, PROBLEM_JSON, Problem};
use lattice_core::command;
use lattice_core::explain::{Code, Explain, NextAction};
use lattice_core::ids::CorrelationId;
use lattice_store::StoreError;
use tracing::{error, warn};

/// A request that was refused. Its body is the problem document.
#[derive(Debug)]
pub struct Refusal {
    problem: Box<Problem>,
    retry_after_s: Option<u64>,
}

/// What a handler gives.
pub type Answer<T> = Result<T, Refusal>;

impl Refusal {
    /// A refusal of that kind.
    pub fn new(code: Code, detail: impl Into<String>) -> Self {
        Self::from(Problem::new(status_of(code), code, detail))
    }

    /// The refusal that an explained error is.
    pub fn explained(error: &dyn Explain) -> Self {
        let code = error.code();
        Self::from(Problem::of(status_of(code), error))
    }

    /// Nothing has that id or name.
    pub fn not_found(noun: &str, given: &str) -> Self {
        let given: String = given.chars().take(80).collect();
        let list = format!("lattice {noun} list");
        Self::new(Code::NotFound, format!("no {noun} has the id or name `{given}`"))
            .next(NextAction::run(list, "shows those that there are"))
    }

    /// A field is well formed but not acceptable.
    pub fn invalid(field: &str, problem: impl std::fmt::Display) -> Self {
        let mut refusal = Self::new(Code::Invalid, format!("`{field}` {problem}"));
        refusal.problem.field = Some(field.to_owned());
        refusal
    }

    /// A field cannot be parsed.
    pub fn malformed(field: &str, problem: impl std::fmt::Display) -> Self {
        let mut refusal = Self::new(Code::Malformed, format!("`{field}` {problem}"));
        refusal.problem.field = Some(field.to_owned());
        refusal
    }

    /// The same with one more fact.
    #[must_use]
    pub fn because(mut self, fact: impl Into<String>) -> Self {
        self.problem.because.push(fact.into());
        self
    }

    /// The same with one more thing to do.
    #[must_use]
    pub fn next(mut self, action: NextAction) -> Self {
        self.problem.next_actions.push(action.into());
        self
    }

    /// The same with every field that is wrong.
    #[must_use]
    pub fn errors(mut self, errors: Vec<FieldError>) -> Self {
        self.problem.errors = errors;
        self
    }

    /// The same with another status than its code's.
    #[must_use]
    pub fn status(mut self, status: StatusCode) -> Self {
        self.problem.status = status.as_u16();
        self
    }

    /// The same, asking to come back after some seconds.
    #[must_use]
    pub fn retry_after_s(mut self, seconds: u64) -> Self {
        self.retry_after_s = Some(seconds);
        self
    }

    /// The same, found in the log by that id.
    #[must_use]
    pub fn correlation(mut self, id: CorrelationId) -> Self {
        self.problem.correlation_id.get_or_insert(id);
        self
    }

    /// What is refused, and why.
    pub const fn problem(&self) -> &Problem {
        &self.problem
    }
}

impl From<Problem> for Refusal {
    fn from(problem: Problem) -> Self {
        let retry_after_s = (problem.status == StatusCode::SERVICE_UNAVAILABLE.as_u16()).then_some(1);
        Self { problem: Box::new(problem), retry_after_s }
    }
}

impl From<command::Refused> for Refusal {
    /// A field that core refused is named as such.
    fn from(refused: command::Refused) -> Self {
        let mut refusal = Self::explained(&refused);
        if let command::Refused::Invalid { field, .. } = refused {
            refusal.problem.field = Some(field.to_owned());
        }
        refusal
    }
}

impl From<StoreError> for Refusal {
    /// What the caller can mend is explained to it; the rest is told to the log, and the caller gets its id.
    fn from(error: StoreError) -> Self {
        let code = error.code();
        match error {
            StoreError::BadCursor { .. } => Self::malformed("cursor", "is not one that this list gave")
                .next(NextAction::Fix { what: "start the list again without a cursor".to_owned() }),
            StoreError::Unknown { .. } | StoreError::Closed | StoreError::Postgres { .. } => {
                warn!(%error, because = ?error.because(), "store unavailable");
                Self::explained(&error)
            }
            StoreError::Open { .. }
            | StoreError::DataDirectoryBusy { .. }
            | StoreError::SchemaNewer { .. }
            | StoreError::InvalidCommit { .. }
            | StoreError::Sqlite(_)
            | StoreError::Corrupt { .. }
            | StoreError::TargetExists { .. }
            | StoreError::BadCopy { .. }
            | StoreError::Unsupported { .. } => {
                error!(%error, because = ?error.because(), code = %code.text(), "store failed");
                Self::new(Code::Internal, "the store failed; the server's log says how")
                    .next(NextAction::Fix { what: "find the correlation id in the server's log".to_owned() })
            }
        }
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.problem.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let body = serde_json::to_vec(&*self.problem).expect("a problem has only text keys");
        let mut response = (status, body).into_response();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(PROBLEM_JSON));
        if let Some(seconds) = self.retry_after_s {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        if status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"lattice\""));
        }
        response
    }
}

/// The status of each kind of refusal. design: 8-interfaces "Errors"
pub const fn status_of(code: Code) -> StatusCode {
    match code {
        Code::Malformed => StatusCode::BAD_REQUEST,
        Code::Unauthenticated => StatusCode::UNAUTHORIZED,
        Code::Forbidden
        | Code::TokenUsed
        | Code::TokenExpired
        | Code::TokenUnknown
        | Code::TokenForeign
        | Code::CertificateForeign
        | Code::CertificateRevoked
        | Code::CertificateExpired => StatusCode::FORBIDDEN,
        Code::NotFound => StatusCode::NOT_FOUND,
        Code::StaleVersion => StatusCode::PRECONDITION_FAILED,
        Code::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
        Code::RateLimited => StatusCode::TOO_MANY_REQUESTS,
        Code::Unavailable | Code::StandsBy | Code::SecretStore | Code::DataDirectoryBusy | Code::SchemaNewer => {
            StatusCode::SERVICE_UNAVAILABLE
        }
        Code::Unsupported => StatusCode::UNSUPPORTED_MEDIA_TYPE,
        Code::Internal => StatusCode::INTERNAL_SERVER_ERROR,
        Code::KeyReused
        | Code::Invalid
        | Code::ConfirmationNeeded
        | Code::DecisionNeeded
        | Code::NothingObserved
        | Code::SiteCredentials
        | Code::Provider
        | Code::NoEvidence
        | Code::CertificateRequest => StatusCode::UNPROCESSABLE_ENTITY,
        Code::Taken
        | Code::NodeState
        | Code::NodeHeld
        | Code::NodeBusy
        | Code::HealthCheckFailed
        | Code::JobNotResumable
        | Code::BatchOver
        | Code::TaskOver
        | Code::AllocationOver
        | Code::SiteDisabled
        | Code::HeartbeatReplayed
        | Code::SessionUnknown => StatusCode::CONFLICT,
    }
}
