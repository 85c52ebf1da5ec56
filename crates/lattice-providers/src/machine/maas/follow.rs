//! Decides what must be read again: pure, so that it can be shown that nothing is missed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use lattice_core::time::Timestamp;

use super::body::{Machine, SystemId};
use super::event::Event;

/// When to read what.
#[derive(Debug, Clone, Copy)]
pub struct FollowLimits {
    /// Age of the last whole listing at which another is made: it finds what no event told.
    pub listing_every: Duration,
    /// Age at which a watched machine is read again though no event named it: hardware sync makes none.
    pub watched_age: Duration,
    /// Machines per read: keeps the address of the request below 2 KB.
    pub ids_per_read: usize,
    /// How long an event may come after one with a higher id: MAAS numbers events when they are written, and they
    /// become visible when their transaction ends, up to 90 s later.
    pub overlap: Duration,
    /// Pages of events per poll; behind by more than that, a whole listing is cheaper.
    pub pages_per_poll: u32,
}

impl Default for FollowLimits {
    /// An hour between listings: at 10,000 machines one costs the region some 230,000 SQL statements.
    fn default() -> Self {
        Self {
            listing_every: Duration::from_secs(3_600),
            watched_age: Duration::from_secs(30),
            ids_per_read: 100,
            overlap: Duration::from_secs(90),
            pages_per_poll: 20,
        }
    }
}

/// A machine and the time at which the region was asked about it.
#[derive(Debug, Clone, PartialEq)]
pub struct Seen {
    /// As it was then.
    pub machine: Arc<Machine>,
    /// When the question was sent: the state is at least as new.
    pub at: Timestamp,
}

/// What to do next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Ask for the newest events, then for all machines, in this order.
    List,
    /// Ask for the events after this one.
    Follow {
        /// Id up to which no event can be missing any more.
        after: u64,
    },
}

/// What is known of a region's machines, and what has become doubtful.
#[derive(Debug, Default)]
pub struct Followed {
    /// Up to here no event can be missing any more.
    cursor: Option<u64>,
    /// Events above the cursor that were taken in, and when.
    recent: BTreeMap<u64, Timestamp>,
    listed_at: Option<Timestamp>,
    machines: BTreeMap<SystemId, Seen>,
    doubtful: BTreeSet<SystemId>,
    /// Named by events and yet not machines (racks, devices, what was deleted): asked for once per listing.
    not_machines: BTreeSet<SystemId>,
}

impl Followed {
    /// Whether to list or to follow.
    pub fn next(&self, now: Timestamp, limits: &FollowLimits) -> Step {
        match (self.cursor, self.listed_at) {
            (Some(after), Some(at)) if now.since(at) < limits.listing_every => Step::Follow { after },
            (Some(_) | None, Some(_) | None) => Step::List,
        }
    }

    /// Takes in a whole listing that was asked for at `at`, after the newest events `before` it, oldest first. Gives
    /// the machines that are new, changed or gone.
    pub fn listed(&mut self, before: &[Event], machines: Vec<Machine>, at: Timestamp) -> Vec<SystemId> {
        let mut gone: BTreeSet<SystemId> = self.machines.keys().cloned().collect();
        let mut changed = Vec::new();
        for machine in machines {
            gone.remove(&machine.system_id);
            self.put(machine, at, &mut changed);
        }
        for id in gone {
            self.machines.remove(&id);
            changed.push(id);
        }
        self.cursor = Some(before.first().map_or(0, |oldest| oldest.id.saturating_sub(1)));
        self.recent = before.iter().map(|event| (event.id, at)).collect();
        self.listed_at = Some(at);
        self.doubtful.clear();
        self.not_machines.clear();
        changed
    }

    /// Takes in events read at `now`: the machines that new ones name become doubtful.
    pub fn heard(&mut self, events: &[Event], now: Timestamp, limits: &FollowLimits) {
        for event in events {
            // The first time counts: what is heard again with each poll must grow old all the same.
            if Some(event.id) <= self.cursor || self.recent.contains_key(&event.id) {
                continue;
            }
            self.recent.insert(event.id, now);
            if let Some(id) = event.system_id().filter(|id| !self.not_machines.contains(id)) {
                self.doubtful.insert(id);
            }
        }
        let settled = self.recent.iter().rev().find(|(_, heard_at)| now.since(**heard_at) >= limits.overlap);
        if let Some((id, _)) = settled {
            let id = *id;
            self.cursor = self.cursor.max(Some(id));
            self.recent = self.recent.split_off(&(id + 1));
        }
    }

    /// The events cannot be caught up with: the next step is a listing.
    pub fn lost_track(&mut self) {
        self.cursor = None;
    }

    /// Machines to read now: the doubtful ones, and of the watched ones those seen too long ago.
    pub fn to_read(&self, watched: &[SystemId], now: Timestamp, limits: &FollowLimits) -> Vec<SystemId> {
        let aged = |id: &&SystemId| self.machines.get(*id).is_none_or(|seen| now.since(seen.at) >= limits.watched_age);
        let mut ids = self.doubtful.clone();
        ids.extend(watched.iter().filter(aged).cloned());
        ids.into_iter().collect()
    }

    /// Takes in the answer to a read of `asked`, sent at `at`. Gives the machines that are new, changed or gone.
    pub fn read(&mut self, asked: &[SystemId], machines: Vec<Machine>, at: Timestamp) -> Vec<SystemId> {
        let mut missing: BTreeSet<&SystemId> = asked.iter().collect();
        let mut changed = Vec::new();
        for machine in machines {
            missing.remove(&machine.system_id);
            self.put(machine, at, &mut changed);
        }
        for id in missing {
            if self.machines.remove(id).is_some() {
                changed.push(id.clone());
            }
            self.not_machines.insert(id.clone());
        }
        for id in asked {
            self.doubtful.remove(id);
        }
        changed
    }

    /// What was last seen of a machine; `None` when no listing holds it, which does not prove that it is gone.
    pub fn seen(&self, id: &SystemId) -> Option<&Seen> {
        self.machines.get(id)
    }

    /// Everything that was last seen.
    pub fn all(&self) -> impl Iterator<Item = &Seen> {
        self.machines.values()
    }

    /// When all machines were last listed.
    pub const fn listed_at(&self) -> Option<Timestamp> {
        self.listed_at
    }

    fn put(&mut self, machine: Machine, at: Timestamp, changed: &mut Vec<SystemId>) {
        let id = machine.system_id.clone();
        self.not_machines.remove(&id);
        match self.machines.get_mut(&id) {
            Some(seen) if *seen.machine == machine => seen.at = at,
            Some(seen) => {
                *seen = Seen { machine: Arc::new(machine), at };
                changed.push(id);
            }
            None => {
                self.machines.insert(id.clone(), Seen { machine: Arc::new(machine), at });
                changed.push(id);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const LIMITS: FollowLimits = FollowLimits {
        listing_every: Duration::from_secs(100),
        watched_age: Duration::from_secs(10),
        ids_per_read: 10,
        overlap: Duration::from_secs(5),
        pages_per_poll: 3,
    };

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_millis(seconds * 1_000)
    }

    fn id(text: &str) -> SystemId {
        text.parse().unwrap()
    }

    fn machine(name: &str, status: i64) -> Machine {
        serde_json::from_value(json!({ "system_id": name, "status": status })).unwrap()
    }

    fn event(number: u64, node: &str) -> Event {
        serde_json::from_value(json!({ "id": number, "node": node, "created": "Sat, 21 Nov. 2026 09:37:12" })).unwrap()
    }

    fn listed() -> Followed {
        let mut followed = Followed::default();
        assert_eq!(followed.next(at(0), &LIMITS), Step::List);
        assert_eq!(
            followed.listed(&[event(7, "x")], vec![machine("a", 4), machine("b", 4)], at(0)),
            [id("a"), id("b")]
        );
        followed
    }

    #[test]
    fn only_machines_named_by_an_event_are_read_again() {
        let mut followed = listed();
        assert_eq!(followed.next(at(1), &LIMITS), Step::Follow { after: 6 });
        assert!(followed.to_read(&[], at(1), &LIMITS).is_empty());
        followed.heard(&[event(9, "b"), event(8, "b"), event(10, "")], at(1), &LIMITS);
        assert_eq!(followed.to_read(&[], at(1), &LIMITS), [id("b")]);
        assert_eq!(followed.read(&[id("b")], vec![machine("b", 9)], at(2)), [id("b")]);
        assert!(followed.to_read(&[], at(2), &LIMITS).is_empty());
        assert_eq!(followed.seen(&id("b")).map(|seen| (seen.machine.status.number(), seen.at)), Some((9, at(2))));
    }

    #[test]
    fn an_event_that_becomes_visible_after_a_later_one_is_not_missed() {
        let mut followed = listed();
        followed.heard(&[event(9, "a")], at(1), &LIMITS);
        followed.read(&[id("a")], vec![machine("a", 9)], at(1));
        assert_eq!(followed.next(at(2), &LIMITS), Step::Follow { after: 6 });
        followed.heard(&[event(8, "b"), event(9, "a")], at(2), &LIMITS);
        assert_eq!(followed.to_read(&[], at(2), &LIMITS), [id("b")]);
        followed.read(&[id("b")], vec![machine("b", 9)], at(2));
        followed.heard(&[event(8, "b"), event(9, "a")], at(6), &LIMITS);
        assert!(followed.to_read(&[], at(6), &LIMITS).is_empty());
        assert_eq!(followed.next(at(6), &LIMITS), Step::Follow { after: 9 });
    }

    #[test]
    fn a_read_that_never_came_stays_to_be_read() {
        let mut followed = listed();
        followed.heard(&[event(8, "a")], at(1), &LIMITS);
        assert_eq!(followed.to_read(&[], at(1), &LIMITS), [id("a")]);
        followed.heard(&[], at(50), &LIMITS);
        assert_eq!(followed.to_read(&[], at(50), &LIMITS), [id("a")]);
    }

    #[test]
    fn an_unchanged_machine_is_newer_and_not_changed() {
        let mut followed = listed();
        assert!(followed.read(&[id("a")], vec![machine("a", 4)], at(5)).is_empty());
        assert_eq!(followed.seen(&id("a")).unwrap().at, at(5));
    }

    #[test]
    fn a_watched_machine_is_read_when_its_state_is_old() {
        let followed = listed();
        let watched = [id("a"), id("new")];
        assert_eq!(followed.to_read(&watched, at(9), &LIMITS), [id("new")]);
        assert_eq!(followed.to_read(&watched, at(10), &LIMITS), [id("a"), id("new")]);
    }

    #[test]
    fn a_machine_that_is_no_longer_returned_is_reported_once() {
        let mut followed = listed();
        assert_eq!(followed.read(&[id("a")], vec![], at(3)), [id("a")]);
        assert!(followed.seen(&id("a")).is_none());
        assert_eq!(followed.listed(&[event(10, "x")], vec![machine("b", 4)], at(4)), []);
    }

    #[test]
    fn racks_are_asked_for_once_and_a_machine_that_appears_later_is_found() {
        let mut followed = listed();
        followed.heard(&[event(8, "rack1")], at(1), &LIMITS);
        assert!(followed.read(&[id("rack1")], vec![], at(1)).is_empty());
        followed.heard(&[event(9, "rack1")], at(1), &LIMITS);
        assert!(followed.to_read(&[], at(1), &LIMITS).is_empty());
        assert_eq!(
            followed.listed(&[event(9, "x")], vec![machine("a", 4), machine("b", 4), machine("rack1", 0)], at(2)),
            [id("rack1")]
        );
        followed.heard(&[event(10, "rack1")], at(3), &LIMITS);
        assert_eq!(followed.to_read(&[], at(3), &LIMITS), [id("rack1")]);
    }

    #[test]
    fn an_old_listing_and_a_lost_track_lead_to_a_listing() {
        let mut followed = listed();
        assert_eq!(followed.next(at(99), &LIMITS), Step::Follow { after: 6 });
        assert_eq!(followed.next(at(100), &LIMITS), Step::List);
        followed.lost_track();
        assert_eq!(followed.next(at(1), &LIMITS), Step::List);
        // A region that was restored counts its events from below: the listing's cursor is taken as it is.
        followed.listed(&[event(4, "x")], vec![machine("a", 4)], at(1));
        assert_eq!(followed.next(at(2), &LIMITS), Step::Follow { after: 3 });
    }
}
