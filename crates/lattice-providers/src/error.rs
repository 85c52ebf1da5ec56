//! What can go wrong with a system that is not ours, in kinds that decide what may be done next.

use std::time::Duration;

use lattice_core::explain::{Code, Explain, NextAction};
use lattice_core::failure::FailureClass;

use crate::message;
use crate::secret::{SecretError, SecretTrouble};

/// A call to a provider that did not give what was asked for.
///
/// Its text is bounded, free of control characters and of every secret that was part of the request.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{call}: {kind}")]
pub struct ProviderError {
    /// Which call, without arguments that could be secret: `maas machines.deploy`.
    pub call: String,
    /// What happened.
    pub kind: ErrorKind,
}

/// What happened to a call.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ErrorKind {
    /// No connection could be made: the request was certainly not acted on.
    #[error("cannot be reached: {detail}")]
    Unreachable {
        /// What the network said.
        detail: String,
    },
    /// A request without effect got no answer in time.
    #[error("no answer within {} ms", limit.as_millis())]
    Timeout {
        /// How long was waited.
        limit: Duration,
    },
    /// The request may or may not have been acted on: read the state before anything else.
    #[error("the answer was lost, the effect is unknown: {detail}")]
    Ambiguous {
        /// How the answer was lost.
        detail: String,
    },
    /// The credential is wrong, expired or absent.
    #[error("the credential was refused: {message}")]
    Unauthorised {
        /// The provider's words.
        message: String,
    },
    /// The credential is good and does not allow it.
    #[error("not allowed: {message}")]
    Forbidden {
        /// The provider's words, or ours when it gave none.
        message: String,
    },
    /// What was addressed does not exist.
    #[error("not found: {message}")]
    NotFound {
        /// The provider's words.
        message: String,
    },
    /// The request was understood and refused; the same request will be refused again in this state.
    #[error("refused with {status}: {message}")]
    Refused {
        /// HTTP status.
        status: u16,
        /// The provider's words.
        message: String,
    },
    /// Not acted on, and worth another try later.
    #[error("busy, asks to come back in {} s", after.as_secs())]
    RetryLater {
        /// How long to wait at least.
        after: Duration,
    },
    /// The provider could not control the machine's power.
    #[error("power control failed: {message}")]
    PowerFailed {
        /// The provider's words.
        message: String,
    },
    /// The provider, or a proxy before it, failed inside.
    #[error("failed with {status}: {message}")]
    ServerFailed {
        /// HTTP status.
        status: u16,
        /// The provider's words.
        message: String,
    },
    /// The answer is not what the provider's contract promises.
    #[error("the answer makes no sense: {what}")]
    Malformed {
        /// What was expected and what came.
        what: String,
    },
    /// The peer's certificate or host key is not the pinned one.
    #[error("the peer is not the pinned one: {detail}")]
    BadCertificate {
        /// What did not match.
        detail: String,
    },
    /// Several objects match where one was meant; choosing is not ours.
    #[error("ambiguous: {what}")]
    SeveralMatch {
        /// Which ones.
        what: String,
    },
    /// The credential could not be had from the secret store: the provider was not asked at all.
    #[error("{message}")]
    NoCredential {
        /// What kind of trouble the store has.
        trouble: SecretTrouble,
        /// What happened and what to do, without any secret.
        message: String,
    },
    /// What was addressed works, and does not have this capability.
    #[error("not offered: {what}")]
    NotOffered {
        /// Which capability, of what.
        what: String,
    },
    /// The credential was refused too often: the provider was not asked at all.
    #[error("{message}")]
    LockedOut {
        /// Who was refused last, and when.
        message: String,
    },
    /// What Lattice was given cannot be used for this call: a malformed key, address or name.
    #[error("{what}")]
    Unusable {
        /// What is wrong with it, without its value when it is secret.
        what: String,
    },
}

/// What may be done after a failed call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Remedy {
    /// The same call may be made again at once.
    Repeat,
    /// The same call may be made again after this time.
    RepeatAfter(Duration),
    /// The state must be read before the call is made again.
    ReadFirst,
    /// Repeating does not help while nothing else changes.
    Stop,
}

impl ProviderError {
    /// An error of a call; every text in `kind` must already be [bounded](crate::message::bounded).
    pub fn new(call: impl Into<String>, kind: ErrorKind) -> Self {
        Self { call: call.into(), kind }
    }

    /// The answer does not have the promised form. The text is bounded here.
    pub fn malformed(call: impl Into<String>, what: impl std::fmt::Display) -> Self {
        Self::new(call, ErrorKind::Malformed { what: message::bounded(&what.to_string()) })
    }

    /// The secret store did not give the credential of a call.
    pub fn no_credential(call: impl Into<String>, error: &SecretError) -> Self {
        let message = message::bounded(&error.told());
        Self::new(call, ErrorKind::NoCredential { trouble: error.trouble(), message })
    }

    /// What Lattice was given cannot be used. The text is bounded here and must not hold a secret.
    pub fn unusable(call: impl Into<String>, what: impl std::fmt::Display) -> Self {
        Self::new(call, ErrorKind::Unusable { what: message::bounded(&what.to_string()) })
    }

    /// A capability that is not there. The text is bounded here.
    pub fn not_offered(call: impl Into<String>, what: impl std::fmt::Display) -> Self {
        Self::new(call, ErrorKind::NotOffered { what: message::bounded(&what.to_string()) })
    }

    /// What may be done next.
    pub const fn remedy(&self) -> Remedy {
        match &self.kind {
            ErrorKind::Unreachable { .. } | ErrorKind::Timeout { .. } => Remedy::Repeat,
            ErrorKind::RetryLater { after } => Remedy::RepeatAfter(*after),
            ErrorKind::NoCredential { trouble, .. } => match trouble.retry_after() {
                Some(after) => Remedy::RepeatAfter(after),
                None => Remedy::Stop,
            },
            ErrorKind::Ambiguous { .. } | ErrorKind::ServerFailed { .. } | ErrorKind::PowerFailed { .. } => {
                Remedy::ReadFirst
            }
            ErrorKind::Unauthorised { .. }
            | ErrorKind::Forbidden { .. }
            | ErrorKind::NotFound { .. }
            | ErrorKind::Refused { .. }
            | ErrorKind::Malformed { .. }
            | ErrorKind::BadCertificate { .. }
            | ErrorKind::SeveralMatch { .. }
            | ErrorKind::NotOffered { .. }
            | ErrorKind::LockedOut { .. }
            | ErrorKind::Unusable { .. } => Remedy::Stop,
        }
    }

    /// The class when the stage that made the call knows no better one. spec: S5 4.7
    pub const fn class(&self) -> FailureClass {
        match &self.kind {
            ErrorKind::Unreachable { .. }
            | ErrorKind::Timeout { .. }
            | ErrorKind::Ambiguous { .. }
            | ErrorKind::RetryLater { .. }
            | ErrorKind::ServerFailed { .. } => FailureClass::UpstreamTransient,
            ErrorKind::NoCredential { trouble, .. } => trouble.class(),
            ErrorKind::PowerFailed { .. } => FailureClass::BmcPowerFailure,
            ErrorKind::Unauthorised { .. }
            | ErrorKind::Forbidden { .. }
            | ErrorKind::BadCertificate { .. }
            | ErrorKind::NotOffered { .. }
            | ErrorKind::LockedOut { .. }
            | ErrorKind::Malformed { .. } => FailureClass::SiteCapabilityMissing,
            // The state is not the one that was observed before the call.
            ErrorKind::Refused { status: 409 | 412, .. }
            | ErrorKind::NotFound { .. }
            | ErrorKind::SeveralMatch { .. } => FailureClass::StateAmbiguity,
            ErrorKind::Refused { .. } | ErrorKind::Unusable { .. } => FailureClass::InputConfigError,
        }
    }

    /// Whether the thing that was addressed does not exist.
    pub const fn is_not_found(&self) -> bool {
        matches!(self.kind, ErrorKind::NotFound { .. })
    }

    /// Whether the effect of the call is unknown.
    pub const fn is_ambiguous(&self) -> bool {
        matches!(self.kind, ErrorKind::Ambiguous { .. })
    }
}

impl Explain for ProviderError {
    fn code(&self) -> Code {
        match self.kind {
            ErrorKind::Unauthorised { .. }
            | ErrorKind::LockedOut { .. }
            | ErrorKind::NoCredential { trouble: SecretTrouble::Missing, .. } => Code::SiteCredentials,
            ErrorKind::NoCredential { .. } => Code::SecretStore,
            ErrorKind::Unreachable { .. }
            | ErrorKind::Timeout { .. }
            | ErrorKind::Ambiguous { .. }
            | ErrorKind::Forbidden { .. }
            | ErrorKind::NotFound { .. }
            | ErrorKind::Refused { .. }
            | ErrorKind::RetryLater { .. }
            | ErrorKind::PowerFailed { .. }
            | ErrorKind::ServerFailed { .. }
            | ErrorKind::Malformed { .. }
            | ErrorKind::BadCertificate { .. }
            | ErrorKind::SeveralMatch { .. }
            | ErrorKind::NotOffered { .. }
            | ErrorKind::Unusable { .. } => Code::Provider,
        }
    }

    fn because(&self) -> Vec<String> {
        vec![self.to_string()]
    }

    fn next_actions(&self) -> Vec<NextAction> {
        let what = match &self.kind {
            ErrorKind::Unreachable { .. } | ErrorKind::Timeout { .. } => {
                "check that the provider's address answers from this server, then repeat"
            }
            ErrorKind::Unauthorised { .. } => "store a valid credential for the site, then repeat",
            ErrorKind::NoCredential { .. } => "put the secret store right as the message says, then repeat",
            ErrorKind::LockedOut { .. } => {
                "store the BMC's right credential: \
                 `lattice node bmc set NODE --address ADDRESS --protocol redfish --from-stdin`; or have the same one \
                 tried again: `lattice node bmc reset-breaker NODE`"
            }
            ErrorKind::NotOffered { .. } => "use another way, or hardware or firmware that offers it",
            ErrorKind::Forbidden { .. } => "give the site's credential the administrator's rights",
            ErrorKind::BadCertificate { .. } => {
                "compare the peer's certificate with the pinned one; replace the pin if the change is yours"
            }
            ErrorKind::Ambiguous { .. } | ErrorKind::ServerFailed { .. } => {
                "look at the machine in the provider, then resume"
            }
            ErrorKind::PowerFailed { .. } => "check the BMC's address, login and network",
            ErrorKind::RetryLater { .. } => "wait, then repeat",
            ErrorKind::NotFound { .. } | ErrorKind::SeveralMatch { .. } => {
                "look in the provider which machine is meant"
            }
            ErrorKind::Refused { .. } | ErrorKind::Unusable { .. } => "correct what the message names, then repeat",
            ErrorKind::Malformed { .. } => "check that the address is the provider's API and its version is supported",
        };
        vec![NextAction::Fix { what: what.to_owned() }]
    }
}
