//! Refusals and explanations: what, why, what next.

pub mod article;

pub use article::{ARTICLES, Article};

use serde::{Deserialize, Serialize};

use crate::time::Timestamp;

/// Number of an error that an operator can meet; `docs/errors/LATnnnn.md` describes it.
///
/// The variant's name is stable, its number is what is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, strum::IntoStaticStr, strum::VariantArray)]
pub enum Code {
    /// The request cannot be parsed: field and remedy are in the detail.
    Malformed = 1,
    /// No or a wrong credential.
    Unauthenticated = 2,
    /// The role does not allow it.
    Forbidden = 3,
    /// Nothing has that id or name.
    NotFound = 4,
    /// The row changed since it was read.
    StaleVersion = 5,
    /// The same idempotency key was used with another request.
    KeyReused = 6,
    /// The body is larger than allowed.
    TooLarge = 7,
    /// Too many requests.
    RateLimited = 8,
    /// The server is stopping or not ready.
    Unavailable = 9,
    /// A value is well formed but not acceptable.
    Invalid = 10,
    /// A name or address is in use.
    Taken = 11,
    /// Method or media type is not supported here.
    Unsupported = 12,
    /// The request was refused for a reason inside the server; its correlation id finds the log.
    Internal = 13,
    /// The node's state does not allow it.
    NodeState = 20,
    /// The node is held.
    NodeHeld = 21,
    /// A job already owns the node.
    NodeBusy = 22,
    /// A confirmation is needed.
    ConfirmationNeeded = 23,
    /// The health check did not pass.
    HealthCheckFailed = 24,
    /// The job's status does not allow the action.
    JobNotResumable = 42,
    /// The job needs a decision that was not given.
    DecisionNeeded = 43,
    /// No fresh observation proves the state that should be adopted.
    NothingObserved = 44,
    /// The batch is over, or cancelled.
    BatchOver = 45,
    /// The site is disabled.
    SiteDisabled = 50,
    /// The site lacks credentials.
    SiteCredentials = 51,
    /// The provider refused or could not be reached.
    Provider = 52,
    /// The secret store is sealed, cannot be reached, or refuses.
    SecretStore = 53,
    /// The enrolment token was used before.
    TokenUsed = 60,
    /// The enrolment token is too old.
    TokenExpired = 61,
    /// The enrolment token is unknown.
    TokenUnknown = 62,
    /// The enrolment token belongs to another node.
    TokenForeign = 63,
    /// The certificate belongs to another node than the path names.
    CertificateForeign = 64,
    /// The certificate is revoked.
    CertificateRevoked = 65,
    /// The certificate is expired.
    CertificateExpired = 66,
    /// The heartbeat's sequence did not grow.
    HeartbeatReplayed = 67,
    /// The heartbeat's session is unknown; register again.
    SessionUnknown = 68,
    /// The certificate request cannot be signed.
    CertificateRequest = 69,
    /// The task is over, or its agent has it.
    TaskOver = 70,
    /// Another server hears the agents.
    StandsBy = 72,
    /// A wipe was reported as done without evidence.
    NoEvidence = 71,
    /// The allocation is over, or stands where that does nothing.
    AllocationOver = 75,
    /// Another server owns the data directory.
    DataDirectoryBusy = 80,
    /// The data was written by a newer version.
    SchemaNewer = 81,
}

impl Code {
    /// As printed: `LAT0042`.
    pub fn text(self) -> String {
        format!("LAT{:04}", self as u16)
    }
}

/// What would unblock something, in a form that can be executed as printed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum NextAction {
    /// A command line, and what it does.
    Run {
        /// The whole command: `lattice job retry-stage 0190…`.
        command: String,
        /// What happens then, in one short line.
        effect: String,
    },
    /// Nothing but waiting helps.
    WaitUntil {
        /// When it moves by itself.
        until: Timestamp,
        /// What it waits for.
        waiting_for: String,
    },
    /// Something outside Lattice must be put right first.
    Fix {
        /// What, where.
        what: String,
    },
}

impl NextAction {
    /// A command and its effect.
    pub fn run(command: impl Into<String>, effect: impl Into<String>) -> Self {
        Self::Run { command: command.into(), effect: effect.into() }
    }
}

/// An error an operator can meet.
pub trait Explain: std::error::Error {
    /// Its number.
    fn code(&self) -> Code;
    /// The facts that led to it, most important first.
    fn because(&self) -> Vec<String>;
    /// What to do, best first.
    fn next_actions(&self) -> Vec<NextAction>;
}
