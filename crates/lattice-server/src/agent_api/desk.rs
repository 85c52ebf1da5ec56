//! Where tasks wait for the agents that are to fetch them: who has one, and how to wake the heartbeat that is parked.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use lattice_core::ids::NodeId;
use tokio::sync::Notify;

/// Nodes for which tasks may wait. What waits is in the store; this only saves asking it at each heartbeat.
#[derive(Default)]
pub struct TaskDesk {
    places: Mutex<HashMap<NodeId, Place>>,
}

#[derive(Default)]
struct Place {
    waits: bool,
    /// One for each connection: usually one. A new connection does not make the one before deaf.
    bells: Vec<Weak<Bell>>,
}

/// Of one connection: rings when a task of its node waits. A quiet heartbeat reads one flag of it.
pub(super) struct Bell {
    waits: AtomicBool,
    rung: Notify,
    /// Version of the signing keys that the agent was told on this connection.
    keys_told: AtomicU32,
}

impl Bell {
    /// Whether a task may wait.
    pub(super) fn waits(&self) -> bool {
        self.waits.load(Ordering::Acquire)
    }

    /// Until a task may wait.
    pub(super) async fn rung(&self) {
        while !self.waits() {
            self.rung.notified().await;
        }
    }

    /// Whether the agent has to be told keys of that version; once it was asked, it counts as told.
    pub(super) fn tells_keys(&self, version: u32) -> bool {
        self.keys_told.swap(version, Ordering::Relaxed) != version
    }

    fn ring(&self) {
        self.waits.store(true, Ordering::Release);
        self.rung.notify_waiters();
        // Also for one that has looked at the flag and does not wait yet.
        self.rung.notify_one();
    }
}

impl TaskDesk {
    /// Nobody waits.
    pub fn new() -> Self {
        Self::default()
    }

    /// A task of `node` waits: the heartbeat that is parked is answered.
    pub fn ring(&self, node: NodeId) {
        let mut places = self.places();
        let place = places.entry(node).or_default();
        place.waits = true;
        place.bells.iter().filter_map(Weak::upgrade).for_each(|bell| bell.ring());
    }

    /// The bell of a connection over which the agent of `node` sends heartbeats from now on.
    pub(super) fn attach(&self, node: NodeId) -> Arc<Bell> {
        let mut places = self.places();
        let place = places.entry(node).or_default();
        let bell =
            Arc::new(Bell { waits: AtomicBool::new(place.waits), rung: Notify::new(), keys_told: AtomicU32::new(0) });
        place.bells.retain(|bell| bell.strong_count() > 0);
        place.bells.push(Arc::downgrade(&bell));
        bell
    }

    /// The store is asked now, for whichever connection of the node: what is rung from here on is new.
    pub(super) fn taken(&self, node: NodeId) {
        let mut places = self.places();
        let Some(place) = places.get_mut(&node) else { return };
        place.waits = false;
        place.bells.iter().filter_map(Weak::upgrade).for_each(|bell| bell.waits.store(false, Ordering::Release));
    }

    fn places(&self) -> MutexGuard<'_, HashMap<NodeId, Place>> {
        // A panic elsewhere leaves every place whole.
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use lattice_core::ids::uuid_v7;
    use lattice_core::time::Timestamp;

    use super::*;

    fn node(number: u8) -> NodeId {
        NodeId::new(uuid_v7(Timestamp::from_millis(1), [number; 10]))
    }

    #[tokio::test]
    async fn a_bell_rings_for_what_came_before_and_after_it_was_hung() {
        let desk = TaskDesk::new();
        desk.ring(node(1));
        let bell = desk.attach(node(1));
        bell.rung().await;
        desk.taken(node(1));
        assert!(!bell.waits());
        let other = desk.attach(node(2));
        let waiting = tokio::spawn(async move { other.rung().await });
        tokio::task::yield_now().await;
        desk.ring(node(2));
        waiting.await.unwrap();
        desk.ring(node(1));
        assert!(bell.waits());
    }

    #[test]
    fn what_nobody_fetched_waits_for_the_next_connection() {
        let desk = TaskDesk::new();
        let first = desk.attach(node(1));
        desk.ring(node(1));
        assert!(first.waits());
        let second = desk.attach(node(1));
        assert!(second.waits(), "the first one never asked");
        desk.taken(node(1));
        assert!(!desk.attach(node(1)).waits());
    }

    #[test]
    fn a_connection_that_comes_and_goes_does_not_make_the_others_deaf() {
        let desk = TaskDesk::new();
        let first = desk.attach(node(1));
        drop(desk.attach(node(1)));
        desk.ring(node(1));
        assert!(first.waits());
        let second = desk.attach(node(1));
        desk.taken(node(1));
        assert!(!first.waits() && !second.waits(), "the store is asked once");
        desk.ring(node(1));
        assert!(first.waits() && second.waits());
    }

    #[test]
    fn keys_are_told_once_on_each_connection_and_after_each_change() {
        let bell = TaskDesk::new().attach(node(1));
        assert!(bell.tells_keys(1) && !bell.tells_keys(1) && bell.tells_keys(2) && !bell.tells_keys(2));
    }
}
