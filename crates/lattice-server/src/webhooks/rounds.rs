//! When which webhook is looked at: as soon as something happened, or its pause is over. A slow receiver holds up
//! nobody but itself.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use lattice_core::ids::{EventSeq, Generation, LeaseEpoch, WebhookId};
use lattice_core::time::Timestamp;
use lattice_core::webhook::{Webhook, WebhookStatus};
use lattice_store::{Held, StoreError};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::{error, warn};

use super::{Courier, LEASE, Turn};

/// Shortest pause between two looks: events come in bursts.
const PAUSE: Duration = Duration::from_millis(50);

/// Longest pause: the lease must be kept, and another server's may have run out without an event.
const LONGEST: Duration = Duration::from_secs(10);

/// Delivers until the server stops.
pub async fn deliver(courier: Courier, stop: CancellationToken) {
    let mut events = courier.store.follow();
    let mut rounds = Rounds {
        lease: Held::new(LEASE, courier.holder.clone()),
        courier: Arc::new(courier),
        under_way: JoinSet::new(),
        waits: HashMap::new(),
    };
    loop {
        let seen = rounds.courier.store.last_event().await.unwrap_or_default();
        let pause = match rounds.look(seen).await {
            Ok(pause) => pause,
            Err(error) => {
                warn!(%error, "webhooks wait for the store");
                LONGEST
            }
        };
        let happened = async {
            let woken = events.after(seen).await;
            tokio::time::sleep(PAUSE).await;
            woken
        };
        tokio::select! {
                biased;
            () = stop.cancelled() => return rounds.end().await,
            Some(ended) = rounds.under_way.join_next() => rounds.ended(ended),
            woken = happened => if woken.is_err() { return },
            () = tokio::time::sleep(pause) => {}
        }
    }
}

type Ended = (WebhookId, Generation, Result<Turn, StoreError>);

struct Rounds {
    courier: Arc<Courier>,
    lease: Held,
    under_way: JoinSet<Ended>,
    /// What each webhook waits for, by the version of its row that said so; none of those that are under way.
    waits: HashMap<WebhookId, Waits>,
}

#[derive(Debug, Clone, Copy)]
struct Waits {
    generation: Generation,
    turn: Option<Turn>,
}

impl Waits {
    /// Whether there is something to do for a webhook that stands at `generation`.
    fn is_due(self, generation: Generation, now: Timestamp, last: EventSeq) -> bool {
        match self.turn {
            None => false,
            Some(_) if self.generation != generation => true,
            Some(Turn::Again) => true,
            Some(Turn::UpTo(seen)) => last > seen,
            Some(Turn::Until(at, _)) => now >= at,
            Some(Turn::Nothing) => false,
        }
    }
}

impl Rounds {
    /// Begins what is due; how long nothing else will be.
    async fn look(&mut self, last: EventSeq) -> Result<Duration, StoreError> {
        let webhooks = self.courier.store.webhooks().await?;
        let now = self.courier.clock.now();
        self.courier.metrics.webhooks(webhooks.iter().map(|webhook| webhook.status));
        let enabled = || webhooks.iter().filter(|webhook| webhook.status == WebhookStatus::Enabled);
        // What is under way is waited for, whatever became of its webhook.
        self.waits.retain(|id, waits| waits.turn.is_none() || enabled().any(|webhook| webhook.id == *id));
        let wanted = enabled().next().is_some();
        let lease = if wanted { self.lease.epoch(&self.courier.store, now).await? } else { None };
        let Some(lease) = lease else {
            // Nothing waits, or another server measures it.
            self.courier.metrics.webhook_lag(Duration::ZERO);
            return Ok(LONGEST);
        };
        enabled().for_each(|webhook| self.begin(webhook, lease, now, last));
        self.courier.metrics.webhook_lag(self.lag(now));
        Ok(self.next(now))
    }

    fn begin(&mut self, webhook: &Webhook, lease: LeaseEpoch, now: Timestamp, last: EventSeq) {
        let fresh = Waits { generation: webhook.generation, turn: Some(Turn::Again) };
        let waits = self.waits.entry(webhook.id).or_insert(fresh);
        if !waits.is_due(webhook.generation, now, last) {
            return;
        }
        *waits = Waits { generation: webhook.generation, turn: None };
        let (courier, id, generation) = (Arc::clone(&self.courier), webhook.id, webhook.generation);
        self.under_way.spawn(async move { (id, generation, courier.turn(id, lease).await) });
    }

    fn ended(&mut self, ended: Result<Ended, tokio::task::JoinError>) {
        let (id, generation, turn) = match ended {
            Ok(ended) => ended,
            Err(error) if error.is_cancelled() => return,
            Err(error) => {
                // Whose it was is not known: all are broken off, and looked at anew.
                error!(%error, "a delivery ended in the middle");
                self.under_way.abort_all();
                self.waits.clear();
                return;
            }
        };
        let now = self.courier.clock.now();
        let turn = turn.unwrap_or_else(|error| {
            warn!(webhook_id = %id, %error, "a webhook waits for the store");
            Turn::Until(now + LONGEST, now)
        });
        self.waits.insert(id, Waits { generation, turn: Some(turn) });
    }

    /// Age of the oldest event that was not taken.
    fn lag(&self, now: Timestamp) -> Duration {
        let waiting = self.waits.values().filter_map(|waits| match waits.turn {
            Some(Turn::Until(_, happened)) => Some(now.since(happened)),
            Some(Turn::Again | Turn::UpTo(_) | Turn::Nothing) | None => None,
        });
        waiting.max().unwrap_or_default()
    }

    /// How long until the next pause is over.
    fn next(&self, now: Timestamp) -> Duration {
        let pauses = self.waits.values().filter_map(|waits| match waits.turn {
            Some(Turn::Until(at, _)) => Some(at.since(now)),
            Some(Turn::Again | Turn::UpTo(_) | Turn::Nothing) | None => None,
        });
        pauses.min().unwrap_or(LONGEST).clamp(PAUSE, LONGEST)
    }

    /// Stops: what is under way is broken off, and delivered again by whoever comes next.
    async fn end(mut self) {
        self.under_way.shutdown().await;
        self.lease.release(&self.courier.store).await;
    }
}
