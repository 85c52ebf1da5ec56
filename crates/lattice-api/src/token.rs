//! Local API tokens. The secret is shown once, at creation; only its hash is kept.

use lattice_core::actor::Role;
use lattice_core::ids::ApiTokenId;
use lattice_core::secret::Secret;
use lattice_core::time::Timestamp;
use serde::{Deserialize, Serialize};

/// Every API token starts with it, so that a leaked one is recognised.
pub const API_TOKEN_PREFIX: &str = "lat_api_";

/// Creates a token.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateToken {
    /// Who it is: the actor's name in the audit. 1 to 63 letters, digits, `.`, `_`, `@` and `-`.
    pub name: String,
    /// What it may do; not `agent` or `system`.
    pub role: Role,
    /// How long it is valid, in seconds, at most 366 days; 90 days when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl_seconds: Option<u64>,
}

/// A token that was created, with its secret.
#[derive(Clone, Serialize, Deserialize, utoipa::ToSchema)]
pub struct CreatedToken {
    /// The token, without its secret.
    pub token: TokenView,
    /// The secret: `lat_api_…`. It is shown this once and cannot be read again.
    #[serde(serialize_with = "crate::expose")]
    #[schema(value_type = String)]
    pub secret: Secret<String>,
}

/// A token, without its secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct TokenView {
    /// Identity of the token.
    pub id: ApiTokenId,
    /// Who it is.
    pub name: String,
    /// What it may do.
    pub role: Role,
    /// When it was issued.
    pub issued_at: Timestamp,
    /// From when on it is refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
    /// When it was withdrawn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revoked_at: Option<Timestamp>,
    /// Whether it is accepted now.
    pub valid: bool,
}

/// Who the caller is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct WhoAmI {
    /// The actor's name in the audit.
    pub name: String,
    /// What it may do.
    pub role: Role,
    /// The token that was used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token_id: Option<ApiTokenId>,
    /// From when on that token is refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
}
