//! Webhooks: who gets events, how far each is, and its last deliveries. Keys are in the secret store.

use lattice_core::ids::WebhookId;
use lattice_core::webhook::Webhook;
use lattice_core::webhook::delivery::{DELIVERIES_KEPT, Delivery, WebhookProgress};

use crate::error::StoreError;
use crate::page::PAGE_MAX;
use crate::sql::{Query, Value};
use crate::store::Store;
use crate::table::{Kind, Table, Writes, col};

/// One row for each webhook; the whole of it stands in `body`.
pub(crate) const WEBHOOKS: Table = Table {
    name: "webhooks",
    key: 1,
    writes: Writes::Replace,
    columns: &[
        col("id", Kind::Id),
        col("name", Kind::Text),
        col("status", Kind::Text),
        col("generation", Kind::Int),
        col("body", Kind::Text),
    ],
};

/// How far each webhook is.
pub(crate) const WEBHOOK_PROGRESS: Table = Table {
    name: "webhook_progress",
    key: 1,
    writes: Writes::Replace,
    columns: &[
        col("webhook", Kind::Id),
        col("cursor", Kind::Int),
        col("generation", Kind::Int),
        col("body", Kind::Text),
    ],
};

/// The last deliveries of each webhook, in a ring: the newest takes the place of the oldest.
pub(crate) const WEBHOOK_DELIVERIES: Table = Table {
    name: "webhook_deliveries",
    key: 2,
    writes: Writes::Replace,
    columns: &[col("webhook", Kind::Id), col("place", Kind::Int), col("number", Kind::Int), col("body", Kind::Text)],
};

pub(crate) fn row(webhook: &Webhook) -> Vec<Value<'_>> {
    vec![
        Value::Id(webhook.id.uuid()),
        Value::text(&webhook.name),
        Value::name(webhook.status),
        Value::generation(webhook.generation),
        Value::json(webhook),
    ]
}

pub(crate) fn progress_row(progress: &WebhookProgress) -> Vec<Value<'_>> {
    vec![
        Value::Id(progress.webhook.uuid()),
        Value::count(progress.cursor.0),
        Value::generation(progress.generation),
        Value::json(progress),
    ]
}

pub(crate) fn delivery_row(webhook: WebhookId, delivery: &Delivery) -> Vec<Value<'_>> {
    vec![
        Value::Id(webhook.uuid()),
        Value::count(delivery.number % DELIVERIES_KEPT),
        Value::count(delivery.number),
        Value::json(delivery),
    ]
}

impl Store {
    /// A webhook.
    ///
    /// # Errors
    /// The database fails.
    pub async fn webhook(&self, id: WebhookId) -> Result<Option<Webhook>, StoreError> {
        const WEBHOOK: &str = "SELECT body FROM webhooks WHERE id = ?1";
        Ok(self.fetch(Query::new(WEBHOOK, vec![Value::Id(id.uuid())]), |r| r.json()).await?.pop())
    }

    /// The webhook of that name.
    ///
    /// # Errors
    /// The database fails.
    pub async fn webhook_by_name(&self, name: &str) -> Result<Option<Webhook>, StoreError> {
        const WEBHOOK: &str = "SELECT body FROM webhooks WHERE name = ?1";
        Ok(self.fetch(Query::new(WEBHOOK, vec![Value::owned(name.to_owned())]), |r| r.json()).await?.pop())
    }

    /// All webhooks, by name; there are at most [`lattice_core::webhook::WEBHOOKS_MAX`].
    ///
    /// # Errors
    /// The database fails.
    pub async fn webhooks(&self) -> Result<Vec<Webhook>, StoreError> {
        const WEBHOOKS: &str = "SELECT body FROM webhooks ORDER BY name LIMIT ?1";
        self.fetch(Query::new(WEBHOOKS, vec![Value::Int(PAGE_MAX as i64)]), |r| r.json()).await
    }

    /// How far a webhook is.
    ///
    /// # Errors
    /// The database fails.
    pub async fn webhook_progress(&self, id: WebhookId) -> Result<Option<WebhookProgress>, StoreError> {
        const PROGRESS: &str = "SELECT body FROM webhook_progress WHERE webhook = ?1";
        Ok(self.fetch(Query::new(PROGRESS, vec![Value::Id(id.uuid())]), |r| r.json()).await?.pop())
    }

    /// The last deliveries of a webhook, the newest first.
    ///
    /// # Errors
    /// The database fails.
    pub async fn webhook_deliveries(&self, id: WebhookId, limit: usize) -> Result<Vec<Delivery>, StoreError> {
        const DELIVERIES: &str = "SELECT body FROM webhook_deliveries WHERE webhook = ?1 ORDER BY number DESC LIMIT ?2";
        let params = vec![Value::Id(id.uuid()), Value::count(limit.min(PAGE_MAX) as u64)];
        self.fetch(Query::new(DELIVERIES, params), |r| r.json()).await
    }
}
