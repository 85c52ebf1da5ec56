//! Keeps tasks moving: rings for what waits, gives up what is overdue, takes up new signing keys.

use std::sync::Arc;
use std::time::Duration;

use lattice_controllers::expire_tasks;
use lattice_core::agent::task::TaskCause;
use lattice_core::command::task::REDELIVER_AFTER;
use lattice_core::ids::IdSource;
use lattice_core::time::{Clock, Timestamp};
use lattice_providers::secret::SecretStore;
use lattice_store::{Event, Store, StoreError};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::warn;

use crate::agent_api::TaskDesk;
use crate::metrics::Metrics;
use crate::task_keys::TaskKeys;

/// Event that tells other servers to read the signing keys again.
pub const ROTATED: &str = "task_signing.rotated";

/// Event of a wipe that failed: it is counted.
const WIPE_FAILED: &str = "node.wipe_failed";

/// Rings for forgotten tasks, and looks at the signing keys, at each so many looks.
const RARELY: u32 = 5;
const KEYS_RARELY: u32 = 120;

/// What the loop works with.
pub struct TaskLoop {
    store: Store,
    secrets: Arc<dyn SecretStore>,
    keys: Arc<TaskKeys>,
    desk: Arc<TaskDesk>,
    metrics: Arc<Metrics>,
    ids: Arc<dyn IdSource>,
}

impl TaskLoop {
    /// Over the rows and the signing keys, with an empty desk.
    pub fn new(
        store: &Store,
        secrets: &Arc<dyn SecretStore>,
        keys: &Arc<TaskKeys>,
        metrics: &Arc<Metrics>,
        ids: &Arc<dyn IdSource>,
    ) -> Self {
        Self {
            store: store.clone(),
            secrets: Arc::clone(secrets),
            keys: Arc::clone(keys),
            desk: Arc::default(),
            metrics: Arc::clone(metrics),
            ids: Arc::clone(ids),
        }
    }

    /// Where tasks wait.
    pub fn desk(&self) -> Arc<TaskDesk> {
        Arc::clone(&self.desk)
    }

    /// Rings for what waited before this server started, and runs from then on.
    ///
    /// # Errors
    /// The store fails.
    pub async fn start(
        self,
        clock: &Arc<dyn Clock>,
        pause: Duration,
        tasks: &TaskTracker,
        stop: &CancellationToken,
    ) -> Result<Arc<Self>, StoreError> {
        self.load().await?;
        let running = Arc::new(self);
        tasks.spawn(Arc::clone(&running).run(Arc::clone(clock), pause, stop.clone()));
        Ok(running)
    }

    async fn load(&self) -> Result<(), StoreError> {
        let mut last = None;
        loop {
            let nodes = self.store.nodes_with_tasks(last).await?;
            let Some(end) = nodes.last() else { return Ok(()) };
            last = Some(*end);
            nodes.into_iter().for_each(|node| self.desk.ring(node));
        }
    }

    /// Takes in what was committed, by whomever.
    pub async fn take_in(&self, events: &[Event]) {
        for event in events {
            let name = event.row.name.as_str();
            if name == ROTATED {
                self.read_keys().await;
                continue;
            }
            if name == WIPE_FAILED {
                self.metrics.wipe_failure();
                continue;
            }
            let Some(cause) = name.strip_prefix("task.") else { continue };
            if cause == <&str>::from(TaskCause::Issued)
                && let Some(node) = event.row.node
            {
                self.desk.ring(node);
            }
            let kind = event.row.payload.get("kind").and_then(|kind| kind.as_str()).unwrap_or_default();
            self.metrics.task(kind, cause);
        }
    }

    async fn run(self: Arc<Self>, clock: Arc<dyn Clock>, pause: Duration, stop: CancellationToken) {
        let mut timer = tokio::time::interval(pause);
        timer.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut scans = 0_u32;
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                _ = timer.tick() => {}
            }
            scans = scans.wrapping_add(1);
            if let Err(error) = self.scan(scans, clock.now()).await {
                warn!(%error, "tasks wait for the store");
            }
        }
    }

    async fn scan(&self, scans: u32, now: Timestamp) -> Result<(), StoreError> {
        expire_tasks(&self.store, &*self.ids, now).await?;
        self.keys.prune(now);
        if scans.is_multiple_of(KEYS_RARELY) {
            self.read_keys().await;
        }
        if scans.is_multiple_of(RARELY) {
            self.remind(now).await?;
        }
        Ok(())
    }

    /// What was handed over and not begun, because the answer was lost, and what no event told of.
    async fn remind(&self, now: Timestamp) -> Result<(), StoreError> {
        let mut last = None;
        loop {
            let nodes = self.store.nodes_to_remind(now - REDELIVER_AFTER, last).await?;
            let Some(end) = nodes.last() else { return Ok(()) };
            last = Some(*end);
            nodes.into_iter().for_each(|node| self.desk.ring(node));
        }
    }

    async fn read_keys(&self) {
        if let Err(error) = self.keys.reload(&*self.secrets).await {
            warn!(%error, "the keys that sign tasks cannot be read again: those before stay in use");
        }
    }
}
