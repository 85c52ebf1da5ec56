//! Delivers events to webhooks: one server at a time, each webhook for itself, its events one after the other.
//!
//! A webhook's place in the outbox is stored after its receiver took an event: a crash in between delivers that event
//! again, and never skips one. Every step carries the lease's epoch and the webhook's generation, so a server that lost
//! the lease and an operator's change are both noticed before the next event.

mod rounds;

pub use rounds::deliver;

use std::sync::Arc;
use std::time::Duration;

use lattice_api::event::Event;
use lattice_core::change::{Change, Guard, Outcome};
use lattice_core::command::Request;
use lattice_core::ids::{CorrelationId, EventSeq, IdSource, LeaseEpoch, WebhookId};
use lattice_core::secret::Secret;
use lattice_core::time::{Clock, Timestamp};
use lattice_core::webhook::delivery::{After, Attempted, Delivery, WebhookProgress, WebhookStep, after};
use lattice_core::webhook::{Webhook, WebhookCause, WebhookChange, WebhookStatus};
use lattice_providers::secret::{SecretError, SecretPath, SecretStore, SecretTrouble, read_field};
use lattice_providers::webhook::{Message, WebhookSender};
use lattice_store::{EventFilter, Store, StoreError};
use tracing::warn;

use crate::clock::Stopwatch;
use crate::http::Parts;
use crate::metrics::Metrics;

/// Name of the lease.
const LEASE: &str = "webhooks";

/// Events read from the outbox at once. The place of a webhook that wants none of them is stored after so many.
const PAGE: usize = 256;

/// Pause when the secret store does not give the key: its outage is not the receiver's fault, and is not counted.
const PATIENCE: Duration = Duration::from_secs(15);

/// The name of a key in the secret store's object.
pub(crate) const KEY_FIELD: &str = "key";

/// Delivers to one webhook at a time; shared by all that are under way.
pub struct Courier {
    /// Everything durable.
    pub store: Store,
    /// The keys.
    pub secrets: Arc<dyn SecretStore>,
    /// The way out.
    pub sender: Arc<dyn WebhookSender>,
    /// The present time.
    pub clock: Arc<dyn Clock>,
    /// New ids.
    pub ids: Arc<dyn IdSource>,
    /// What is counted.
    pub metrics: Arc<Metrics>,
    /// This server's name in leases.
    pub holder: String,
}

/// What a turn came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Turn {
    /// There may be more at once.
    Again,
    /// Everything up to there was taken, or is not wanted.
    UpTo(EventSeq),
    /// Not before that time; the event that waits happened then.
    Until(Timestamp, Timestamp),
    /// It gets nothing: disabled, given up, removed.
    Nothing,
}

/// What became of one delivery.
enum Step {
    /// It is stored; how far the webhook is now.
    Stored(WebhookProgress),
    /// The key cannot be read now.
    NoKey(Timestamp),
    /// The webhook changed, or the lease is lost: nothing of it is stored.
    Overtaken,
}

impl Courier {
    /// Of the server of that name, with the parts of its API.
    pub fn of(parts: &Parts, holder: String) -> Self {
        Self {
            store: parts.store.clone(),
            secrets: Arc::clone(&parts.secrets),
            sender: Arc::clone(&parts.webhooks),
            clock: Arc::clone(&parts.clock),
            ids: Arc::clone(&parts.ids),
            metrics: Arc::clone(&parts.metrics),
            holder,
        }
    }

    /// Delivers what waits for a webhook, until one event is not taken or a page of them is done.
    ///
    /// # Errors
    /// The store fails: what was stored stands, the next turn goes on from there.
    pub async fn turn(&self, id: WebhookId, lease: LeaseEpoch) -> Result<Turn, StoreError> {
        let (Some(webhook), Some(mut progress)) =
            (self.store.webhook(id).await?, self.store.webhook_progress(id).await?)
        else {
            return Ok(Turn::Nothing);
        };
        if webhook.status != WebhookStatus::Enabled {
            return Ok(Turn::Nothing);
        }
        // Read before the events: whatever is committed up to here is seen by the query below.
        let known = self.store.last_event().await?;
        let events = self.store.events(progress.cursor, &EventFilter::default(), PAGE).await?;
        let is_full = events.len() == PAGE;
        let last = events.last().map_or(progress.cursor, |event| event.seq);
        for event in events.into_iter().filter(|event| webhook.wants(&event.row)) {
            let at = event.row.at;
            if let Some(next) = progress.next_at.filter(|next| self.clock.now() < *next) {
                return Ok(Turn::Until(next, at));
            }
            match self.step(&webhook, &progress, Event::of(event.seq, event.row), lease).await? {
                Step::Stored(after) => progress = after,
                Step::NoKey(until) => return Ok(Turn::Until(until, at)),
                Step::Overtaken => return Ok(Turn::Again),
            }
            if let Some(next) = progress.next_at {
                return Ok(Turn::Until(next, at));
            }
        }
        if !is_full {
            return Ok(Turn::UpTo(last.max(known)));
        }
        if last > progress.cursor {
            self.pass(&webhook, progress.past(last), lease).await?;
        }
        Ok(Turn::Again)
    }

    /// One attempt at one event, and what it leads to.
    async fn step(
        &self,
        webhook: &Webhook,
        progress: &WebhookProgress,
        event: Event,
        lease: LeaseEpoch,
    ) -> Result<Step, StoreError> {
        let at = self.clock.now();
        let begun = Stopwatch::start();
        let attempted = match self.keys(webhook, at).await {
            Ok(keys) => self.send(webhook, &event, &keys, at).await,
            Err(error) if error.trouble() == SecretTrouble::Missing => {
                let rotate = format!("`lattice webhook rotate-secret {}` makes a new one", webhook.name);
                Attempted::Failed { why: format!("its key is not in the secret store: {rotate}") }
            }
            Err(error) => {
                warn!(webhook_id = %webhook.id, %error, "a webhook waits for the secret store");
                return Ok(Step::NoKey(at + PATIENCE));
            }
        };
        let took = begun.elapsed();
        self.metrics.webhook_delivery(attempted.result(), took);
        let delivery = Delivery {
            number: progress.attempts,
            event: event.seq,
            name: event.name,
            attempt: progress.failed + 1,
            at,
            status: attempted.status(),
            error: attempted.error(),
            took_ms: u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
        };
        let After { progress: next, given_up } = after(progress, event.seq, &attempted, self.clock.now());
        let mut changes =
            vec![Change::WebhookStep(Box::new(WebhookStep { after: next.clone(), delivery: Some(delivery) }))];
        if let Some(reason) = given_up {
            warn!(webhook_id = %webhook.id, %reason, "webhook given up");
            let after = webhook.clone().given_up(reason, self.clock.now());
            let before = Some(webhook.status);
            changes.push(Change::Webhook(Box::new(WebhookChange { after, before, cause: WebhookCause::GaveUp })));
        }
        let is_stored = self.commit(webhook, changes, lease).await?;
        Ok(if is_stored { Step::Stored(next) } else { Step::Overtaken })
    }

    async fn send(&self, webhook: &Webhook, event: &Event, keys: &[Secret<String>], at: Timestamp) -> Attempted {
        let body = serde_json::to_vec(event).expect("an event has only text keys");
        let message = Message { webhook: webhook.id.to_string(), name: &event.name, id: event.seq.0, at, body };
        self.sender.send(&webhook.url, keys, message).await
    }

    async fn keys(&self, webhook: &Webhook, now: Timestamp) -> Result<Vec<Secret<String>>, SecretError> {
        keys(&*self.secrets, webhook, now).await
    }

    /// Stores that a webhook is past events that it does not want.
    async fn pass(&self, webhook: &Webhook, after: WebhookProgress, lease: LeaseEpoch) -> Result<(), StoreError> {
        let step = WebhookStep { after, delivery: None };
        self.commit(webhook, vec![Change::WebhookStep(Box::new(step))], lease).await.map(drop)
    }

    /// Whether it is stored. If not, the webhook changed, or somebody else delivers now.
    async fn commit(&self, webhook: &Webhook, changes: Vec<Change>, lease: LeaseEpoch) -> Result<bool, StoreError> {
        let now = self.clock.now();
        let correlation = CorrelationId::generate(&*self.ids, now);
        let request = Request::of_system("webhooks", &*self.ids, now, correlation);
        let guards = vec![
            Guard::Lease { name: LEASE.to_owned(), epoch: lease },
            Guard::WebhookGeneration { webhook: webhook.id, have: webhook.generation },
        ];
        match self.store.commit_one(request.commit(guards, changes)).await? {
            Outcome::Applied { .. } | Outcome::Duplicate { .. } => Ok(true),
            Outcome::Conflict { .. } | Outcome::Missing { .. } | Outcome::Fenced => Ok(false),
        }
    }
}

/// The keys that sign at `now`, the present one first. The one before the last is left out when it is gone already.
///
/// # Errors
/// The secret store does not give the present one.
pub(crate) async fn keys(
    secrets: &dyn SecretStore,
    webhook: &Webhook,
    now: Timestamp,
) -> Result<Vec<Secret<String>>, SecretError> {
    let mut keys = Vec::new();
    for key in webhook.keys_at(now) {
        let path: SecretPath = webhook.key_path(key).parse().expect("ids make a well-formed path");
        match read_field(secrets, &path, KEY_FIELD).await {
            Ok(key) => keys.push(key),
            Err(error) if error.trouble() == SecretTrouble::Missing && !keys.is_empty() => {}
            Err(error) => return Err(error),
        }
    }
    Ok(keys)
}
