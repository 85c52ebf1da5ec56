//! Webhooks: receivers that events are posted to. The key that signs deliveries is shown once. spec: S5 8.0

use lattice_core::actor::Actor;
use lattice_core::ids::{Generation, WebhookId};
use lattice_core::secret::Secret;
use lattice_core::time::Timestamp;
pub use lattice_core::webhook::delivery::Delivery;
pub use lattice_core::webhook::{EventPattern, WebhookStatus};
use serde::{Deserialize, Serialize};

/// Every key of a webhook starts with it, so that a leaked one is recognised.
pub const WEBHOOK_KEY_PREFIX: &str = "lat_whk_";

/// Creates a webhook.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateWebhook {
    /// What people call it: 1 to 63 letters, digits, `.`, `_` and `-`.
    pub name: String,
    /// Where events are posted to: https, or what the configuration allows.
    pub url: String,
    /// Which events: `node.moved`, `node.onboarding.*`, `*`.
    #[schema(value_type = Vec<String>)]
    pub events: Vec<EventPattern>,
    /// Only events of this site, by id or name; absent: of all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub site: Option<String>,
}

/// Changes a webhook: a field that is absent stays as it is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PatchWebhook {
    /// Another name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Another address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// Other events, in place of those before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Vec<String>>)]
    pub events: Option<Vec<EventPattern>>,
    /// Another site, by id or name; an empty text: of all sites.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub site: Option<String>,
}

/// Lets a webhook get events again.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct EnableWebhook {
    /// Begins with what happens from now on; else it goes on where it stopped.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub skip: bool,
    /// Why, for the audit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// Keeps events from a webhook.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DisableWebhook {
    /// Why, for whoever looks at it later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// Gives a webhook a new key.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RotateWebhookKey {
    /// How long deliveries are signed with the present key too, in seconds, at most 30 days; a day when absent, 0 for a
    /// key that leaked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grace_seconds: Option<u64>,
}

/// A webhook.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct WebhookView {
    /// Identity.
    pub id: WebhookId,
    /// What people call it.
    pub name: String,
    /// Where events are posted to.
    pub url: String,
    /// Which events.
    #[schema(value_type = Vec<String>)]
    pub events: Vec<EventPattern>,
    /// Only events of this site, by name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub site: Option<String>,
    /// Whether it gets them.
    pub status: WebhookStatus,
    /// Why it gets none; empty while it does.
    pub status_reason: String,
    /// Since when it has that status.
    pub status_since: Timestamp,
    /// Events that it wants and has not taken; no more than 1,000 are counted.
    pub waiting: u64,
    /// Attempts in a row that failed.
    pub failed: u32,
    /// Since when it takes nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failing_since: Option<Timestamp>,
    /// When it is tried again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_at: Option<Timestamp>,
    /// What the last failed attempt said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
    /// When it took an event last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delivered_at: Option<Timestamp>,
    /// Attempts so far.
    pub attempts: u64,
    /// Until when deliveries are signed with the key before the last too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub previous_key_until: Option<Timestamp>,
    /// Who created it.
    pub created_by: Actor,
    /// When it was created.
    pub created_at: Timestamp,
    /// When it changed last.
    pub updated_at: Timestamp,
    /// Version of the row: `If-Match`.
    pub generation: Generation,
}

/// A webhook with its new key.
#[derive(Clone, Serialize, Deserialize, utoipa::ToSchema)]
pub struct WebhookWithKey {
    /// The webhook.
    pub webhook: WebhookView,
    /// The key: `lat_whk_…`. It is shown this once and cannot be read again.
    #[serde(serialize_with = "crate::expose")]
    #[schema(value_type = String)]
    pub secret: Secret<String>,
}

/// What came of a test.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct WebhookTest {
    /// Whether the receiver took it.
    pub ok: bool,
    /// Status of its answer; absent when there was none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// What happened, when it was not taken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// How long it took, in milliseconds.
    pub took_ms: u64,
}
