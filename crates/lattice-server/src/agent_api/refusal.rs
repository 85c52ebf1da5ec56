//! Why an agent's request is refused, and what the agent is told.

use http::StatusCode;
use lattice_api::agent::MAX_BODY_BYTES;
use lattice_api::error::Problem;
use lattice_core::explain::{Code, NextAction};
use lattice_core::heartbeat::Refused;
use lattice_core::ids::NodeId;
use lattice_core::time::Timestamp;

use super::allowance::HEARTBEATS_PER_SECOND;
use crate::pki::{IdentityError, PkiError};

/// A refusal, before it becomes a body.
#[derive(Debug, thiserror::Error)]
pub(super) enum Refusal {
    #[error("nothing is at this path")]
    NotFound,
    #[error("this server stands by: another one of the same database hears the agents")]
    StandsBy { elsewhere: Option<String> },
    #[error("this server has no agent binary to give")]
    NoAgentBinary,
    #[error("{method} is not supported here")]
    Method { method: String },
    #[error("the body must be application/json")]
    MediaType,
    #[error("the body is larger than {MAX_BODY_BYTES} bytes")]
    TooLarge,
    #[error("the body did not arrive within {secs} s")]
    TooSlow { secs: u64 },
    #[error("{what}")]
    Malformed { what: String },
    #[error("a client certificate is needed here")]
    NoCertificate,
    #[error("the client certificate is not a node's: {0}")]
    NotANode(#[from] IdentityError),
    #[error("the certificate is of node {certificate}, the path names {path}")]
    Foreign { certificate: NodeId, path: NodeId },
    #[error("the certificate of node {node} expired at {not_after}")]
    Expired { node: NodeId, not_after: Timestamp },
    #[error("node {node} was deleted: its identity is never used again")]
    Deleted { node: NodeId },
    #[error("node {node}: {refused}")]
    Registry { node: NodeId, refused: Refused },
    #[error("node {node} sends more than {HEARTBEATS_PER_SECOND} heartbeats a second over one connection")]
    TooOften { node: NodeId },
    #[error("node {node} registers, or says something new, more than once a second over one connection")]
    TooMuchNews { node: NodeId },
    #[error(transparent)]
    Pki(#[from] PkiError),
    #[error("refused by the server's decision: {}", .0.detail)]
    Decided(Box<Problem>),
}

impl Refusal {
    pub(super) fn malformed(what: impl Into<String>) -> Self {
        Self::Malformed { what: what.into() }
    }

    /// Status and code, for the body, the log and the audit.
    pub(super) fn kind(&self) -> (StatusCode, Code) {
        match self {
            Self::NotFound | Self::NoAgentBinary => (StatusCode::NOT_FOUND, Code::NotFound),
            Self::StandsBy { .. } => (StatusCode::SERVICE_UNAVAILABLE, Code::StandsBy),
            Self::Method { .. } => (StatusCode::METHOD_NOT_ALLOWED, Code::Unsupported),
            Self::MediaType => (StatusCode::UNSUPPORTED_MEDIA_TYPE, Code::Unsupported),
            Self::TooLarge => (StatusCode::PAYLOAD_TOO_LARGE, Code::TooLarge),
            Self::TooSlow { .. } => (StatusCode::REQUEST_TIMEOUT, Code::Malformed),
            Self::Malformed { .. } => (StatusCode::BAD_REQUEST, Code::Malformed),
            Self::NoCertificate | Self::NotANode(_) => (StatusCode::UNAUTHORIZED, Code::Unauthenticated),
            Self::Foreign { .. } => (StatusCode::FORBIDDEN, Code::CertificateForeign),
            Self::Expired { .. } => (StatusCode::UNAUTHORIZED, Code::CertificateExpired),
            Self::Deleted { .. } => (StatusCode::GONE, Code::CertificateRevoked),
            Self::Registry { refused, .. } => match refused {
                // Not a verdict on the certificate: a server that has just started may not know all nodes yet.
                Refused::NodeUnknown => (StatusCode::NOT_FOUND, Code::NotFound),
                Refused::Revoked { .. } => (StatusCode::FORBIDDEN, Code::CertificateRevoked),
                Refused::SessionUnknown => (StatusCode::CONFLICT, Code::SessionUnknown),
                Refused::Replayed { .. } => (StatusCode::CONFLICT, Code::HeartbeatReplayed),
            },
            Self::TooOften { .. } | Self::TooMuchNews { .. } => (StatusCode::TOO_MANY_REQUESTS, Code::RateLimited),
            Self::Pki(PkiError::Request(_)) => (StatusCode::UNPROCESSABLE_ENTITY, Code::CertificateRequest),
            Self::Pki(PkiError::Material(_) | PkiError::Name(_) | PkiError::Library(_)) => {
                (StatusCode::INTERNAL_SERVER_ERROR, Code::Internal)
            }
            Self::Decided(_) => (StatusCode::INTERNAL_SERVER_ERROR, Code::Internal),
        }
    }

    /// The body.
    pub(super) fn problem(self) -> Problem {
        let (status, code) = self.kind();
        let problem = Problem::new(status, code, self.to_string());
        match self {
            Self::Decided(problem) => *problem,
            Self::StandsBy { elsewhere } => Problem { holder: elsewhere, ..problem },
            Self::Registry { refused: Refused::SessionUnknown, .. } => {
                problem.next(NextAction::Fix { what: "register again, then go on with sequence 1".into() })
            }
            Self::Registry { refused: Refused::Revoked { .. }, node } => problem.next(NextAction::run(
                format!("lattice explain node {node}"),
                "says why, and what gives the node a new identity if it is to have one",
            )),
            Self::Deleted { .. } => problem.next(NextAction::Fix {
                what: "stop the agent on this host: systemctl disable --now lattice-agent".into(),
            }),
            Self::TooMuchNews { .. } => problem.next(NextAction::Fix {
                what: "wait a second; if it goes on, look at what changes on this host: lattice node timeline shows it"
                    .into(),
            }),
            Self::TooOften { .. } => problem.next(NextAction::Fix {
                what: "wait a second, then send them at the interval that the last answer named".into(),
            }),
            Self::NoAgentBinary => problem.next(NextAction::Fix {
                what: "set bootstrap.agent_binary in the server's configuration and restart it".into(),
            }),
            Self::Expired { node, .. } => problem.next(NextAction::run(
                format!("lattice node bootstrap {node}"),
                "issues a new enrolment token for this node",
            )),
            Self::Registry { refused: Refused::Replayed { .. } | Refused::NodeUnknown, .. }
            | Self::NotFound
            | Self::Method { .. }
            | Self::MediaType
            | Self::TooLarge
            | Self::TooSlow { .. }
            | Self::Malformed { .. }
            | Self::NoCertificate
            | Self::NotANode(_)
            | Self::Foreign { .. }
            | Self::Pki(_) => problem,
        }
    }
}

impl From<Problem> for Refusal {
    fn from(problem: Problem) -> Self {
        Self::Decided(Box::new(problem))
    }
}
