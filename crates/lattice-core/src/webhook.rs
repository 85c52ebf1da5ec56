//! Webhooks: who wants which events, and which key signs what is sent to them. spec: S5 8.0; design: 8-interfaces
//!
//! A webhook gets its events in the order of the outbox, each at least once; the next one is sent when the one before
//! was taken. `docs/guides/webhooks.md` is its contract with receivers.

pub mod address;
pub mod delivery;

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::actor::Actor;
use crate::change::EventRow;
use crate::ids::{Generation, SiteId, WebhookId, WebhookKeyId};
use crate::time::Timestamp;

/// Most webhooks of an installation: each reads the outbox for itself.
pub const WEBHOOKS_MAX: usize = 100;
/// Most patterns of one webhook.
pub const PATTERNS_MAX: usize = 50;
/// How long the key before the last is signed with too, unless the operator says otherwise: a day to bring the new one
/// to every receiver.
pub const GRACE: Duration = Duration::from_secs(24 * 3_600);
/// Longest such time: a key that is not trusted any more is worth nothing to its owner after a month.
pub const GRACE_MAX: Duration = Duration::from_secs(30 * 24 * 3_600);

/// Whether a webhook gets events. One spelling for SQL, JSON, CLI and metrics.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    utoipa::ToSchema,
    strum::Display,
    strum::EnumString,
    strum::IntoStaticStr,
    strum::VariantArray,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum WebhookStatus {
    /// It does.
    Enabled,
    /// An operator said that it does not; its place in the outbox is kept.
    Disabled,
    /// Lattice gave up, because nothing was taken for too long; its place in the outbox is kept.
    GaveUp,
}

/// Which events a webhook wants: a name, all below a name (`node.onboarding.*`), or all (`*`).
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct EventPattern(String);

/// A text that is no pattern.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` names no events: expected a name such as node.moved, all below one such as node.onboarding.*, or *")]
pub struct InvalidPattern(String);

impl EventPattern {
    /// Whether it lets an event of that name through.
    pub fn matches(&self, name: &str) -> bool {
        match self.0.strip_suffix('*') {
            Some(prefix) => name.starts_with(prefix),
            None => name == self.0,
        }
    }
}

impl FromStr for EventPattern {
    type Err = InvalidPattern;
    fn from_str(text: &str) -> Result<Self, InvalidPattern> {
        let named = text.strip_suffix(".*").unwrap_or(text);
        let is_word =
            |word: &str| !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
        if text == "*" || (text.len() <= 100 && named.split('.').all(is_word)) {
            return Ok(Self(text.to_owned()));
        }
        Err(InvalidPattern(text.chars().take(64).collect()))
    }
}

impl TryFrom<String> for EventPattern {
    type Error = InvalidPattern;
    fn try_from(text: String) -> Result<Self, InvalidPattern> {
        text.parse()
    }
}

impl From<EventPattern> for String {
    fn from(pattern: EventPattern) -> Self {
        pattern.0
    }
}

impl fmt::Display for EventPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl utoipa::PartialSchema for EventPattern {
    fn schema() -> utoipa::openapi::RefOr<utoipa::openapi::schema::Schema> {
        String::schema()
    }
}
impl utoipa::ToSchema for EventPattern {}

/// The key before the last, which is signed with too for a while.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PreviousKey {
    /// Which.
    pub key: WebhookKeyId,
    /// Until when.
    pub until: Timestamp,
}

/// A receiver of events. Its keys stand in the secret store, under [`Webhook::key_path`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Webhook {
    /// Identity.
    pub id: WebhookId,
    /// What people call it.
    pub name: String,
    /// Where events are posted to.
    pub url: String,
    /// Which events; one of these must let it through.
    pub events: Vec<EventPattern>,
    /// Only events of this site; none: of all.
    pub site: Option<SiteId>,
    /// Whether it gets them.
    pub status: WebhookStatus,
    /// Why it has that status, in words; empty while it is enabled.
    pub status_reason: String,
    /// Since when.
    pub status_since: Timestamp,
    /// The key that deliveries are signed with.
    pub key: WebhookKeyId,
    /// The one before, until its time is over.
    pub previous_key: Option<PreviousKey>,
    /// Who created it.
    pub created_by: Actor,
    /// When it was created.
    pub created_at: Timestamp,
    /// When its row changed last.
    pub updated_at: Timestamp,
    /// Version of the row.
    pub generation: Generation,
}

impl Webhook {
    /// Where a key of it is kept in the secret store. Each has a place of its own: two rotations at once cannot mix.
    pub fn key_path(&self, key: WebhookKeyId) -> String {
        format!("kv/webhooks/{}/{key}", self.id)
    }

    /// Where all keys of it are kept.
    pub fn key_paths(&self) -> Vec<String> {
        let previous = self.previous_key.map(|previous| previous.key);
        std::iter::once(self.key).chain(previous).map(|key| self.key_path(key)).collect()
    }

    /// The keys that sign at `now`, the present one first.
    pub fn keys_at(&self, now: Timestamp) -> Vec<WebhookKeyId> {
        let previous = self.previous_key.filter(|previous| now < previous.until);
        std::iter::once(self.key).chain(previous.map(|previous| previous.key)).collect()
    }

    /// Host and port of its address, for logs, events and audits: paths and queries may hold secrets of the receiver.
    pub fn host(&self) -> &str {
        let rest = self.url.split_once("://").map_or(self.url.as_str(), |(_, rest)| rest);
        rest.split(['/', '?', '#']).next().unwrap_or_default()
    }

    /// Whether it wants an event.
    pub fn wants(&self, event: &EventRow) -> bool {
        self.events.iter().any(|pattern| pattern.matches(&event.name))
            && self.site.is_none_or(|site| site_of(event) == Some(site))
    }

    /// The same, enabled.
    #[must_use]
    pub fn enabled(self, now: Timestamp) -> Self {
        self.with_status(WebhookStatus::Enabled, String::new(), now)
    }

    /// The same, getting nothing because somebody said so.
    #[must_use]
    pub fn disabled(self, reason: String, now: Timestamp) -> Self {
        self.with_status(WebhookStatus::Disabled, reason, now)
    }

    /// The same, getting nothing because it takes nothing.
    #[must_use]
    pub fn given_up(self, reason: String, now: Timestamp) -> Self {
        self.with_status(WebhookStatus::GaveUp, reason, now)
    }

    fn with_status(self, status: WebhookStatus, status_reason: String, now: Timestamp) -> Self {
        let changed = Self { status, status_reason, status_since: now, ..self };
        changed.next(now)
    }

    /// The same with a new key; the present one is signed with too until `until`, if it is given a time.
    #[must_use]
    pub fn rekeyed(self, key: WebhookKeyId, until: Option<Timestamp>, now: Timestamp) -> Self {
        let previous_key = until.map(|until| PreviousKey { key: self.key, until });
        Self { key, previous_key, ..self }.next(now)
    }

    /// The same as its next version.
    #[must_use]
    pub fn next(self, now: Timestamp) -> Self {
        Self { updated_at: now, generation: self.generation.next(), ..self }
    }
}

/// The site that an event belongs to: it is about that site, or about a node, job or batch of it.
pub fn site_of(event: &EventRow) -> Option<SiteId> {
    match event.resource_kind.as_str() {
        "site" => event.resource_id.parse().ok(),
        _ => event.payload.get("site")?.as_str()?.parse().ok(),
    }
}

/// What happened to a webhook, as its events and its audit name it: `webhook.disabled`.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    strum::Display,
    strum::EnumString,
    strum::IntoStaticStr,
    strum::VariantArray,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum WebhookCause {
    /// It was created.
    Created,
    /// Its name, address, site or events changed.
    Updated,
    /// It gets events again.
    Enabled,
    /// An operator disabled it.
    Disabled,
    /// Lattice disabled it: it took nothing for too long.
    GaveUp,
    /// It has a new key.
    KeyRotated,
}

/// A changed webhook row.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WebhookChange {
    /// The row after the change.
    pub after: Webhook,
    /// Its status before; none when it is created.
    pub before: Option<WebhookStatus>,
    /// What happened.
    pub cause: WebhookCause,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::uuid_v7;

    const NOW: Timestamp = Timestamp::from_millis(1_763_712_000_000);

    fn key(number: u8) -> WebhookKeyId {
        WebhookKeyId::new(uuid_v7(NOW, [number; 10]))
    }

    fn webhook(events: &[&str], site: Option<SiteId>) -> Webhook {
        Webhook {
            id: WebhookId::new(uuid_v7(NOW, [1; 10])),
            name: "ticketing".to_owned(),
            url: "https://hooks.example/".to_owned(),
            events: events.iter().map(|text| text.parse().unwrap()).collect(),
            site,
            status: WebhookStatus::Enabled,
            status_reason: String::new(),
            status_since: NOW,
            key: key(1),
            previous_key: None,
            created_by: Actor::system("test"),
            created_at: NOW,
            updated_at: NOW,
            generation: Generation::FIRST,
        }
    }

    fn event(name: &str, kind: &str, id: &str, payload: serde_json::Value) -> EventRow {
        EventRow {
            at: NOW,
            name: name.to_owned(),
            resource_kind: kind.to_owned(),
            resource_id: id.to_owned(),
            node: None,
            correlation: String::new(),
            payload,
        }
    }

    #[test]
    fn patterns_name_one_event_all_below_or_all() {
        let rows = [
            ("*", "node.moved", true),
            ("node.moved", "node.moved", true),
            ("node.moved", "node.moved_on", false),
            ("node.onboarding.*", "node.onboarding.failed", true),
            ("node.onboarding.*", "node.onboarding", false),
            ("node.*", "node.onboarding.failed", true),
            ("node.*", "nodes.x", false),
        ];
        for (pattern, name, expected) in rows {
            assert_eq!(pattern.parse::<EventPattern>().unwrap().matches(name), expected, "{pattern} {name}");
        }
        for bad in ["", ".", "node.", "Node.moved", "node*", "*.moved", "node..moved", "node.moved ", &"a".repeat(101)]
        {
            assert!(bad.parse::<EventPattern>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_webhook_of_a_site_gets_what_belongs_to_that_site() {
        let [here, there] = [1, 2].map(|number| SiteId::new(uuid_v7(NOW, [number; 10])));
        let of_site = webhook(&["*"], Some(here));
        let rows = [
            (event("site.updated", "site", &here.to_string(), serde_json::json!({})), true),
            (event("site.updated", "site", &there.to_string(), serde_json::json!({})), false),
            (event("node.moved", "node", "n", serde_json::json!({"site": here})), true),
            (event("node.moved", "node", "n", serde_json::json!({"site": there})), false),
            (event("api_token.issued", "api_token", "t", serde_json::json!({"name": "ci"})), false),
        ];
        for (event, expected) in rows {
            assert_eq!(of_site.wants(&event), expected, "{event:?}");
            assert!(webhook(&["*"], None).wants(&event), "{event:?}");
        }
    }

    #[test]
    fn after_a_rotation_both_keys_sign_for_a_while() {
        let rotated = webhook(&["*"], None).rekeyed(key(2), Some(NOW + GRACE), NOW);
        assert_eq!(rotated.keys_at(NOW), [key(2), key(1)]);
        assert_eq!(rotated.keys_at(NOW + GRACE), [key(2)]);
        assert_eq!(rotated.key_paths().len(), 2);
        assert_eq!(rotated.rekeyed(key(3), None, NOW).keys_at(NOW), [key(3)], "a key that leaked signs no more");
    }
}
