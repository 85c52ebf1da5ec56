//! Identities. Every id is a UUIDv7 made by the process's wiring and handed in as an argument.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::time::Timestamp;

/// A text that should have been an id, and was not.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{given}` is not a {kind} id: expected a UUID such as 0190c2a4-7d1e-7c3a-9b1f-2f6d1c0a5e11")]
pub struct InvalidId {
    /// What was expected, for the message.
    pub kind: &'static str,
    /// What was given, cut to 64 characters.
    pub given: String,
}

/// Makes a UUIDv7 from a time and 10 random bytes; the caller owns both the clock and the entropy.
pub fn uuid_v7(at: Timestamp, random: [u8; 10]) -> Uuid {
    uuid::Builder::from_unix_timestamp_millis(at.as_millis().max(0) as u64, &random).into_uuid()
}

/// Where new ids come from. The server draws them from the operating system, the simulator from its seed.
pub trait IdSource: Send + Sync {
    /// A fresh UUIDv7 for something created at `at`.
    fn uuid(&self, at: Timestamp) -> Uuid;
}

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident = $kind:literal;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(Uuid);

        impl $name {
            /// Wraps a UUID.
            pub const fn new(uuid: Uuid) -> Self { Self(uuid) }
            /// The UUID.
            pub const fn uuid(self) -> Uuid { self.0 }
            /// A new id from the process's source.
            pub fn generate(source: &dyn IdSource, at: Timestamp) -> Self { Self(source.uuid(at)) }
        }
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result { self.0.hyphenated().fmt(f) }
        }
        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result { self.0.hyphenated().fmt(f) }
        }
        impl FromStr for $name {
            type Err = InvalidId;
            fn from_str(text: &str) -> Result<Self, InvalidId> {
                Uuid::parse_str(text).map(Self).map_err(|_| InvalidId {
                    kind: $kind,
                    given: text.chars().take(64).collect(),
                })
            }
        }
        impl utoipa::PartialSchema for $name {
            fn schema() -> utoipa::openapi::RefOr<utoipa::openapi::schema::Schema> { String::schema() }
        }
        impl utoipa::ToSchema for $name {}
    )*};
}

// A macro, because so many identical newtypes written by hand would hide a difference between them.
ids! {
    /// One machine under control; never reused after removal.
    NodeId = "node";
    /// One durable work of the control plane.
    JobId = "job";
    /// Parent of a batch of jobs.
    BatchId = "batch";
    /// One provider endpoint with its credentials, network and policy.
    SiteId = "site";
    /// One policy bundle of a site (spec: S5 3.7).
    ProfileId = "profile";
    /// One BMC login that stands over its site's default (spec: S5 3.2.1).
    OverrideId = "power override";
    /// One RoCE address of a host's interface (spec: S5 3.3).
    RoceId = "RoCE assignment";
    /// One enrolment token; the secret itself is never stored.
    TokenId = "token";
    /// One receiver of events.
    WebhookId = "webhook";
    /// One key that signs what a webhook sends; the key itself is in the secret store.
    WebhookKeyId = "webhook key";
    /// One saying that incidents raise no attention for a while.
    SilenceId = "silence";
    /// One API token; the secret itself is never stored.
    ApiTokenId = "API token";
    /// Makes a commit safe to repeat: the second one with the same id is answered with the first one's outcome.
    OpId = "operation";
    /// Ties together everything that one request or one job caused.
    CorrelationId = "correlation";
    /// One start of an agent's heartbeat stream, granted by the server.
    SessionId = "session";
    /// One thing that an agent is asked to do.
    TaskId = "task";
    /// One signed statement that a device was wiped.
    CertificateId = "wipe certificate";
    /// One piece of work of a user on a node.
    AllocationId = "allocation";
}

/// Version of a row: grows by one with each change of it; the guard of compare-and-set.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, Default, utoipa::ToSchema,
)]
#[serde(transparent)]
pub struct Generation(pub u64);

impl Generation {
    /// The first version of a new row.
    pub const FIRST: Self = Self(1);
    /// The version after this one.
    pub const fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

/// Fencing number of a lease: grows with each new holder, so a former holder's commits are refused.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, Default, utoipa::ToSchema,
)]
#[serde(transparent)]
pub struct LeaseEpoch(pub u64);

/// Fencing number of a node's ownership: grows when it is lost, so that what runs under an earlier one is stopped.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, Default, utoipa::ToSchema,
)]
#[serde(transparent)]
pub struct OwnershipEpoch(pub u64);

/// Place of an event in the outbox: dense, in commit order.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, Default, utoipa::ToSchema,
)]
#[serde(transparent)]
pub struct EventSeq(pub u64);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_ordered_by_their_time() {
        let early = NodeId::new(uuid_v7(Timestamp::from_millis(1_000), [0xff; 10]));
        let late = NodeId::new(uuid_v7(Timestamp::from_millis(2_000), [0; 10]));
        assert!(early < late);
    }

    #[test]
    fn a_bad_id_says_what_was_expected() {
        let error = "c07u43".parse::<JobId>().unwrap_err();
        assert!(error.to_string().contains("not a job id"), "{error}");
    }
}
