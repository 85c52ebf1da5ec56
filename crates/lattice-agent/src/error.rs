//! Why an agent stops by itself. Everything that passes is tried again instead.

use std::path::PathBuf;

use lattice_api::error::Problem;

/// Why an agent stops by itself.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// The bootstrap file cannot be used.
    #[error("bootstrap file {} cannot be used: {why}", path.display())]
    Bootstrap {
        /// Which file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// A value of the bootstrap is not usable.
    #[error("the bootstrap's `{field}` cannot be used: {why}")]
    BootstrapValue {
        /// Which value.
        field: &'static str,
        /// What is wrong with it.
        why: String,
    },
    /// The server refuses the token.
    #[error("enrolment was refused: {}", .0.detail)]
    EnrolmentRefused(Box<Problem>),
    /// The server refuses the identity.
    #[error("the identity was refused: {}", .0.detail)]
    IdentityRefused(Box<Problem>),
    /// The state folder cannot be written.
    #[error("the agent's state cannot be kept")]
    Storage(#[from] std::io::Error),
    /// The service manager refused.
    #[error("`{command}` failed: {why}")]
    Service {
        /// What was asked of it.
        command: String,
        /// What it said.
        why: String,
    },
    /// The TLS library refused a key or a certificate.
    #[error("TLS cannot be used: {0}")]
    Tls(String),
}

impl AgentError {
    /// The server's refusal, if it is one.
    pub fn problem(&self) -> Option<&Problem> {
        match self {
            Self::EnrolmentRefused(problem) | Self::IdentityRefused(problem) => Some(problem),
            Self::Bootstrap { .. }
            | Self::BootstrapValue { .. }
            | Self::Storage(_)
            | Self::Service { .. }
            | Self::Tls(_) => None,
        }
    }
}
