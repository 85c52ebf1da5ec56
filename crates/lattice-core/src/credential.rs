//! Credentials as rows: what they allow and until when, never the secret itself.

use serde::{Deserialize, Serialize};

use crate::actor::Role;
use crate::ids::{ApiTokenId, Generation, JobId, NodeId, TokenId};
use crate::time::Timestamp;

/// A one-time enrolment token, bound to one node. design: 4-agent "Identity"
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EnrollmentToken {
    /// Identity of the token.
    pub id: TokenId,
    /// The only node that may use it.
    pub node: NodeId,
    /// The job that issued it.
    pub job: Option<JobId>,
    /// SHA-256 of the token, in hex.
    pub hash: String,
    /// When it was issued.
    pub issued_at: Timestamp,
    /// From when on it is refused.
    pub expires_at: Timestamp,
    /// When it was used.
    pub used_at: Option<Timestamp>,
    /// SHA-256 of the public key that it was used for: the same host may ask again when the answer was lost.
    pub key_hash: Option<String>,
    /// How often its life was extended; at most [`EnrollmentToken::MAX_REFRESHES`].
    pub refreshes: u32,
    /// When it was withdrawn, with its node or its job.
    pub revoked_at: Option<Timestamp>,
    /// Version of the row.
    pub generation: Generation,
}

impl EnrollmentToken {
    /// An unused token is extended at most twice. spec: S5 4.6 WaitForAgentEnrollment, design: 3-jobs
    pub const MAX_REFRESHES: u32 = 2;

    /// Judges a use of the token for `node` at `now`.
    ///
    /// # Errors
    /// Used, withdrawn, expired, or bound to another node.
    pub fn check(&self, node: NodeId, now: Timestamp) -> Result<(), TokenRefused> {
        if self.node != node {
            Err(TokenRefused::Foreign)
        } else if self.used_at.is_some() {
            Err(TokenRefused::Used)
        } else if self.revoked_at.is_some() {
            Err(TokenRefused::Revoked)
        } else if now >= self.expires_at {
            Err(TokenRefused::Expired)
        } else {
            Ok(())
        }
    }
}

/// Why an enrolment token was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TokenRefused {
    /// Nobody issued it.
    #[error("the enrolment token is unknown")]
    Unknown,
    /// It was used before.
    #[error("the enrolment token was used before")]
    Used,
    /// It was withdrawn.
    #[error("the enrolment token was withdrawn")]
    Revoked,
    /// It came too late.
    #[error("the enrolment token is expired")]
    Expired,
    /// It belongs to another node.
    #[error("the enrolment token belongs to another node")]
    Foreign,
}

/// A local API token. design: 8-interfaces "Security"
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApiToken {
    /// Identity of the token.
    pub id: ApiTokenId,
    /// Who it is: the actor's name in the audit.
    pub name: String,
    /// What it may do.
    pub role: Role,
    /// SHA-256 of the token, in hex.
    pub hash: String,
    /// When it was issued.
    pub issued_at: Timestamp,
    /// From when on it is refused; none: never.
    pub expires_at: Option<Timestamp>,
    /// When it was withdrawn.
    pub revoked_at: Option<Timestamp>,
    /// Version of the row.
    pub generation: Generation,
}
