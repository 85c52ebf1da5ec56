//! Credentials as rows: what they allow and until when, never the secret itself.

use std::time::Duration;

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

    /// How long after its use the same host may ask again, because the answer was lost on the way. An agent asks again
    /// within seconds; a longer window would only serve who stole the key and was revoked.
    pub const REPEAT_WINDOW: Duration = Duration::from_secs(300);

    /// Whether this is the same host asking again for the answer it lost: same node, same key, shortly after its use.
    pub fn is_repeat(&self, node: NodeId, key_hash: &str, now: Timestamp) -> bool {
        self.node == node
            && self.key_hash.as_deref() == Some(key_hash)
            && self.revoked_at.is_none()
            && now < self.expires_at
            && self.used_at.is_some_and(|used| now.since(used) < Self::REPEAT_WINDOW)
    }

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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::uuid_v7;

    const ISSUED: Timestamp = Timestamp::from_millis(1_000_000);

    fn after(secs: u64) -> Timestamp {
        ISSUED + Duration::from_secs(secs)
    }

    fn node(byte: u8) -> NodeId {
        NodeId::new(uuid_v7(ISSUED, [byte; 10]))
    }

    fn used() -> EnrollmentToken {
        EnrollmentToken {
            id: TokenId::new(uuid_v7(ISSUED, [9; 10])),
            node: node(1),
            job: None,
            hash: String::new(),
            issued_at: ISSUED,
            expires_at: after(7_200),
            used_at: Some(after(10)),
            key_hash: Some("key".into()),
            refreshes: 0,
            revoked_at: None,
            generation: Generation::FIRST,
        }
    }

    #[test]
    fn only_the_same_host_may_ask_again_and_only_shortly_after() {
        let token = used();
        assert!(token.is_repeat(node(1), "key", after(309)));
        assert!(!token.is_repeat(node(1), "key", after(310)), "too late");
        assert!(!token.is_repeat(node(1), "other", after(11)), "another key");
        assert!(!token.is_repeat(node(2), "key", after(11)), "another node");
        let revoked = EnrollmentToken { revoked_at: Some(after(11)), ..used() };
        assert!(!revoked.is_repeat(node(1), "key", after(12)), "withdrawn");
    }

    #[test]
    fn each_misuse_of_a_token_has_its_own_answer() {
        let fresh = EnrollmentToken { used_at: None, key_hash: None, ..used() };
        assert_eq!(fresh.check(node(1), after(1)), Ok(()));
        assert_eq!(fresh.check(node(2), after(1)), Err(TokenRefused::Foreign));
        assert_eq!(fresh.check(node(1), after(7_200)), Err(TokenRefused::Expired));
        assert_eq!(used().check(node(1), after(11)), Err(TokenRefused::Used));
        let revoked = EnrollmentToken { revoked_at: Some(after(1)), ..fresh };
        assert_eq!(revoked.check(node(1), after(2)), Err(TokenRefused::Revoked));
    }
}
