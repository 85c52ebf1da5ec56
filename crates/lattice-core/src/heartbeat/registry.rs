//! Who was heard when: one slot per node in dense arrays, at most 100 bytes each, no lock shared by two nodes.
//! Heartbeats change only this; transitions alone reach the store. design: 4 "Heartbeats"

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

use super::index::Index;
use crate::ids::{NodeId, SessionId};
use crate::time::Timestamp;

/// Slots are allocated this many at a time, so that a slot never moves while connections hold handles to it.
const CHUNK: usize = 1024;
/// In `heard`: nothing sits in the slot. Such a slot is never silent.
const VACANT: i64 = i64::MAX;
/// In `silence_ms`: silence is not judged.
const UNWATCHED: u32 = u32::MAX;
/// In `pace_ms`: nobody said how often the node is to be heard.
const NO_PACE: u32 = 0;
const NO_SESSION: u64 = 0;
/// A server that was not seen to listen for longer did not.
const DEAF: Duration = Duration::from_secs(3);

/// The nodes that heartbeats may come from.
#[derive(Default)]
pub struct Registry {
    directory: RwLock<Directory>,
    /// When the server was seen to listen last; 0: never.
    listened: AtomicI64,
    /// Since when it listens without a gap.
    since: AtomicI64,
    /// Another server hears the agents.
    stands_by: AtomicBool,
    /// Where that one is reached.
    elsewhere: Mutex<Option<String>>,
}

#[derive(Default)]
struct Directory {
    chunks: Vec<Arc<Chunk>>,
    nodes: Vec<NodeId>,
    index: Index,
    vacant: Vec<u32>,
}

/// The scan touches the first two arrays alone: 12 bytes per node, in order.
struct Chunk {
    heard: [AtomicI64; CHUNK],
    silence_ms: [AtomicU32; CHUNK],
    pace_ms: [AtomicU32; CHUNK],
    slots: [Mutex<Slot>; CHUNK],
    /// Heartbeats accepted from all that ever sat here.
    beats: AtomicU64,
}

#[derive(Default)]
struct Slot {
    /// Lower half of the session's UUID: 62 random bits.
    session: u64,
    sequence: u64,
    epoch: u64,
    vitals: Vitals,
    /// Counts who sat in this slot: a handle of an earlier one is refused.
    tenancy: u32,
    report_return: bool,
    /// `heard` is when it was heard, and not when watching began or silence was counted anew.
    was_heard: bool,
    /// The health changed since [`Handle::settle`].
    news: bool,
}

/// A node's slot, held by its connection: heartbeats through it look nothing up.
#[derive(Clone)]
pub struct Handle {
    chunk: Arc<Chunk>,
    at: u16,
    tenancy: u32,
}

/// One heartbeat, as far as the registry judges it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Beat {
    /// The session that registration granted.
    pub session: SessionId,
    /// Must grow within the session.
    pub sequence: u64,
    /// How the host is.
    pub vitals: Vitals,
}

/// How a host is; numbers too large are cut to the largest that fits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Vitals {
    /// Uncorrectable memory errors since boot.
    pub ecc_uncorrected: u32,
    /// Allocations that run.
    pub allocations: u32,
    /// [`Vitals::issue_mark`] of the minor issue; 0: none.
    pub issue: u32,
    /// GPUs on the bus.
    pub gpu_count: u16,
    /// Highest GPU temperature in degrees Celsius; `i16::MIN`: unknown.
    pub max_temperature_c: i16,
}

/// What an accepted heartbeat means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Heard {
    /// When the node was heard before.
    pub before: Timestamp,
    /// GPU count, ECC errors or the minor issue changed since the last [`Handle::settle`].
    pub health_changed: bool,
    /// Somebody asked, with [`Registry::watch`], to be told that this node is heard again.
    pub returned: bool,
}

/// Why a heartbeat or an identity is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// The node is not under control, or not any more.
    #[error("the node is not known here")]
    NodeUnknown,
    /// The certificate carries another epoch than the node has.
    #[error("the certificate has identity epoch {certificate}, the node is at {current}")]
    Revoked {
        /// Epoch in the certificate.
        certificate: u64,
        /// Epoch of the node.
        current: u64,
    },
    /// No such session: the server was restarted, the node was Down, or another agent registered.
    #[error("the session is not known")]
    SessionUnknown,
    /// The sequence did not grow.
    #[error("sequence {given} came, but {last} was accepted before")]
    Replayed {
        /// As sent.
        given: u64,
        /// The highest accepted in this session.
        last: u64,
    },
}

/// A node that was not heard for as long as it may be silent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Silence {
    /// Who.
    pub node: NodeId,
    /// When it was heard last, or when watching it began.
    pub last_heard: Timestamp,
}

/// What a node said last, and when.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Said {
    /// When it was heard last.
    pub at: Timestamp,
    /// What it said then.
    pub vitals: Vitals,
    /// Whether its session is open: without one what it says is not taken in.
    pub in_session: bool,
}

/// What the detector wants to know about one node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Watch {
    /// Longest silence before the scan reports the node; `None`: silence is not judged.
    pub silence: Option<Duration>,
    /// Whether each heartbeat says that the node is heard again.
    pub report_return: bool,
}

impl Slot {
    fn raise_epoch(&mut self, epoch: u64) {
        self.epoch = self.epoch.max(epoch);
    }
}

impl Vitals {
    /// Stands for a minor issue's text: never 0, so that an issue differs from none.
    pub fn issue_mark(text: &str) -> u32 {
        let fnv = text.bytes().fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
        fnv.max(1)
    }

    fn differs_in_health(&self, other: &Self) -> bool {
        (self.gpu_count, self.ecc_uncorrected, self.issue) != (other.gpu_count, other.ecc_uncorrected, other.issue)
    }
}

impl Registry {
    /// A registry that knows nobody.
    pub fn new() -> Self {
        Self::default()
    }

    /// Lets heartbeats of `node` in, under certificates of `epoch`.
    ///
    /// A new node's silence counts from `now`; a known one keeps its session. Epochs only grow: one that is older than
    /// the node's changes nothing.
    pub fn admit(&self, node: NodeId, epoch: u64, now: Timestamp) -> Handle {
        let mut directory = self.write();
        if let Some(slot) = directory.index.find(node, &directory.nodes) {
            let handle = directory.handle(slot);
            handle.slot().raise_epoch(epoch);
            return handle;
        }
        let slot = directory.occupy(node);
        let handle = directory.handle(slot);
        handle.slot().epoch = epoch;
        handle.heard().store(now.as_millis(), Ordering::Relaxed);
        handle
    }

    /// Revokes every certificate of `node` with an earlier epoch, on live connections too, and ends its session.
    ///
    /// Epochs only grow. False when the node is not known.
    pub fn revoke_before(&self, node: NodeId, epoch: u64) -> bool {
        self.with_slot(node, |slot| {
            slot.raise_epoch(epoch);
            slot.session = NO_SESSION;
        })
    }

    /// Ends the session of `node`: its next heartbeat is told to register again. False when the node is not known.
    pub fn end_session(&self, node: NodeId) -> bool {
        self.with_slot(node, |slot| slot.session = NO_SESSION)
    }

    /// Forgets `node`: handles to it are refused from now on. False when it was not known.
    ///
    /// Its agent is told that the node is not known here, and goes on trying; [`Registry::revoke_before`] stops it.
    pub fn remove(&self, node: NodeId) -> bool {
        let directory = &mut *self.write();
        let Some(slot) = directory.index.remove(node, &directory.nodes) else { return false };
        let handle = directory.handle(slot);
        {
            let mut left = handle.slot();
            *left = Slot { tenancy: left.tenancy.wrapping_add(1), ..Slot::default() };
        }
        handle.heard().store(VACANT, Ordering::Relaxed);
        handle.silence_ms().store(UNWATCHED, Ordering::Relaxed);
        handle.pace_ms().store(NO_PACE, Ordering::Relaxed);
        directory.vacant.push(slot);
        true
    }

    /// The slot of `node`, for its connection to hold.
    pub fn handle(&self, node: NodeId) -> Option<Handle> {
        let directory = self.read();
        directory.index.find(node, &directory.nodes).map(|slot| directory.handle(slot))
    }

    /// Says what to report about `node`, and answers when it was heard last; `None` when it is not known.
    pub fn watch(&self, node: NodeId, watch: Watch) -> Option<Timestamp> {
        let handle = self.handle(node)?;
        let silence_ms = match watch.silence {
            Some(silence) => u32::try_from(silence.as_millis()).unwrap_or(UNWATCHED).min(UNWATCHED - 1),
            None => UNWATCHED,
        };
        handle.slot().report_return = watch.report_return;
        handle.silence_ms().store(silence_ms, Ordering::Relaxed);
        Some(handle.last_heard())
    }

    /// Says how often `node` is to be heard, by its site's policy; [`Handle::pace`] tells it to each heartbeat.
    pub fn set_pace(&self, node: NodeId, interval: Duration) {
        let Some(handle) = self.handle(node) else { return };
        let pace_ms = u32::try_from(interval.as_millis()).unwrap_or(u32::MAX);
        handle.pace_ms().store(pace_ms, Ordering::Relaxed);
    }

    /// Lets every silence count from `now` at the earliest: after a start or a takeover no verdict falls before one
    /// full window. When a node was heard before is forgotten.
    pub fn restart_silence(&self, now: Timestamp) {
        self.since.store(now.as_millis(), Ordering::Relaxed);
        for chunk in &self.read().chunks {
            for (heard, slot) in chunk.heard.iter().zip(&chunk.slots) {
                // Under its lock: a heartbeat that arrives just now is before this, or after it.
                let mut slot = lock(slot);
                if heard.load(Ordering::Relaxed) < now.as_millis() {
                    heard.store(now.as_millis(), Ordering::Relaxed);
                    slot.was_heard = false;
                }
            }
        }
    }

    /// The server listens at `now`; to be said more often than every 3 s. When it was not, nobody knows who was silent
    /// meanwhile: the process stood still, its machine slept, or its clock was set, forward or back. That time counts for
    /// no silence. What it was, in milliseconds, if it is left out.
    pub fn listens(&self, now: Timestamp) -> Option<i64> {
        let before = self.listened.swap(now.as_millis(), Ordering::Relaxed);
        let missed = now.as_millis() - before;
        if before == 0 || (0..=DEAF.as_millis() as i64).contains(&missed) {
            return None;
        }
        self.since.store(now.as_millis(), Ordering::Relaxed);
        for chunk in &self.read().chunks {
            for (heard, slot) in chunk.heard.iter().zip(&chunk.slots) {
                let mut slot = lock(slot);
                let at = heard.load(Ordering::Relaxed);
                // Whoever was heard since a clock was set back has its time already.
                if at != VACANT && (missed > 0 || at > now.as_millis()) {
                    heard.store(at.saturating_add(missed).min(now.as_millis()), Ordering::Relaxed);
                    slot.was_heard = false;
                }
            }
        }
        Some(missed)
    }

    /// From now on another server hears the agents, or this one does again. design: 1-architecture "Several servers"
    pub fn stand_by(&self, stands_by: bool) {
        self.stands_by.store(stands_by, Ordering::Relaxed);
    }

    /// Says where the server that hears the agents is reached, as far as it is known.
    pub fn heard_at(&self, address: Option<String>) {
        *self.elsewhere.lock().unwrap_or_else(PoisonError::into_inner) = address;
    }

    /// Where agents are heard while this server stands by; none: here, or nobody said where.
    pub fn elsewhere(&self) -> Option<String> {
        if !self.stands_by() {
            return None;
        }
        self.elsewhere.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Whether another server hears the agents: what is known here of any of them is old, and no agent is taken in.
    pub fn stands_by(&self) -> bool {
        self.stands_by.load(Ordering::Relaxed)
    }

    /// The agent of `node` spoke at `now`, and what is committed of that follows: whoever reads it there finds that the node
    /// was heard.
    pub fn spoke(&self, node: NodeId, now: Timestamp) {
        if let Some(handle) = self.handle(node) {
            handle.heard().fetch_max(now.as_millis(), Ordering::Relaxed);
        }
    }

    /// For how long it has listened at `now`, without a gap.
    pub fn listens_for(&self, now: Timestamp) -> Duration {
        now.since(Timestamp::from_millis(self.since.load(Ordering::Relaxed)))
    }

    /// Adds to `silent` every watched node whose silence at `now` has reached what is tolerated.
    ///
    /// Reports a node again in each scan until it is heard or watched otherwise.
    pub fn silent(&self, now: Timestamp, silent: &mut Vec<Silence>) {
        let now = now.as_millis();
        let directory = self.read();
        for (number, chunk) in directory.chunks.iter().enumerate() {
            for (at, (heard, tolerated)) in chunk.heard.iter().zip(&chunk.silence_ms).enumerate() {
                let (heard, tolerated) = (heard.load(Ordering::Relaxed), tolerated.load(Ordering::Relaxed));
                if now.saturating_sub(heard) >= i64::from(tolerated) && tolerated != UNWATCHED {
                    let node = directory.nodes[number * CHUNK + at];
                    silent.push(Silence { node, last_heard: Timestamp::from_millis(heard) });
                }
            }
        }
    }

    /// When `node` was heard last, or when watching it began; `None` when it is not known.
    pub fn last_heard(&self, node: NodeId) -> Option<Timestamp> {
        self.handle(node).map(|handle| handle.last_heard())
    }

    /// What `node` said last about itself, in whatever session: work that it counted then may still run. `None` when it is
    /// not known.
    pub fn vitals(&self, node: NodeId) -> Option<Vitals> {
        self.handle(node).map(|handle| handle.slot().vitals)
    }

    /// What `node` said last in the session that is open; `None` without one, or while another server hears it: what it said
    /// before may be old.
    pub fn vitals_now(&self, node: NodeId) -> Option<Vitals> {
        self.heard_here(node).filter(|one| one.slot().session != NO_SESSION).map(|one| one.slot().vitals)
    }

    /// What `node` said last here, and when; `None` while it was not heard here, or another server hears it.
    pub fn said(&self, node: NodeId) -> Option<Said> {
        let handle = self.heard_here(node)?;
        let slot = handle.slot();
        let (at, in_session) = (handle.last_heard(), slot.session != NO_SESSION);
        slot.was_heard.then_some(Said { at, vitals: slot.vitals, in_session })
    }

    /// Heartbeats accepted since it was made.
    pub fn beats(&self) -> u64 {
        self.read().chunks.iter().map(|chunk| chunk.beats.load(Ordering::Relaxed)).sum()
    }

    /// How many nodes it knows.
    pub fn len(&self) -> usize {
        let directory = self.read();
        directory.nodes.len() - directory.vacant.len()
    }

    /// Whether it knows nobody.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes that it takes, handles aside.
    pub fn bytes(&self) -> usize {
        let directory = self.read();
        directory.chunks.len() * size_of::<Chunk>()
            + directory.nodes.capacity() * size_of::<NodeId>()
            + directory.index.bytes()
            + directory.vacant.capacity() * size_of::<u32>()
    }

    fn heard_here(&self, node: NodeId) -> Option<Handle> {
        if self.stands_by() { None } else { self.handle(node) }
    }

    fn with_slot(&self, node: NodeId, change: impl FnOnce(&mut Slot)) -> bool {
        let Some(handle) = self.handle(node) else { return false };
        change(&mut handle.slot());
        true
    }

    // A panic elsewhere leaves each slot whole: nothing under these locks can stop half way.
    fn read(&self) -> RwLockReadGuard<'_, Directory> {
        self.directory.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Directory> {
        self.directory.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Directory {
    fn occupy(&mut self, node: NodeId) -> u32 {
        let slot = match self.vacant.pop() {
            Some(slot) => {
                self.nodes[slot as usize] = node;
                slot
            }
            None => {
                if self.nodes.len() == self.chunks.len() * CHUNK {
                    self.chunks.push(Arc::new(Chunk::vacant()));
                    self.nodes.reserve_exact(CHUNK);
                }
                self.nodes.push(node);
                (self.nodes.len() - 1) as u32
            }
        };
        self.index.insert(slot, &self.nodes);
        slot
    }

    fn handle(&self, slot: u32) -> Handle {
        let (chunk, at) = (slot as usize / CHUNK, slot as usize % CHUNK);
        let chunk = Arc::clone(&self.chunks[chunk]);
        let tenancy = lock(&chunk.slots[at]).tenancy;
        Handle { chunk, at: at as u16, tenancy }
    }
}

impl Chunk {
    fn vacant() -> Self {
        Self {
            heard: std::array::from_fn(|_| AtomicI64::new(VACANT)),
            silence_ms: std::array::from_fn(|_| AtomicU32::new(UNWATCHED)),
            pace_ms: std::array::from_fn(|_| AtomicU32::new(NO_PACE)),
            slots: std::array::from_fn(|_| Mutex::default()),
            beats: AtomicU64::new(0),
        }
    }
}

impl Handle {
    /// How often the node is to be heard; `None` while nobody said.
    pub fn pace(&self) -> Option<Duration> {
        let pace_ms = self.pace_ms().load(Ordering::Relaxed);
        (pace_ms != NO_PACE).then(|| Duration::from_millis(u64::from(pace_ms)))
    }

    /// Whether a certificate of `epoch` still stands for the node.
    ///
    /// # Errors
    /// [`Refused::Revoked`] when the node has another epoch, [`Refused::NodeUnknown`] when it was removed.
    pub fn authorise(&self, epoch: u64) -> Result<(), Refused> {
        let slot = self.tenant()?;
        if slot.epoch == epoch { Ok(()) } else { Err(Refused::Revoked { certificate: epoch, current: slot.epoch }) }
    }

    /// Opens a session: the one before ends. Counts as a sign of life.
    ///
    /// # Errors
    /// [`Refused::NodeUnknown`] when the node was removed.
    pub fn open_session(&self, session: SessionId, vitals: Vitals, now: Timestamp) -> Result<(), Refused> {
        let mut slot = self.tenant()?;
        (slot.session, slot.sequence, slot.vitals, slot.news) = (session_key(session), 0, vitals, false);
        slot.was_heard = true;
        self.heard().store(now.as_millis(), Ordering::Relaxed);
        Ok(())
    }

    /// Whether a session is open, and it is not this one.
    pub fn is_open_to_another(&self, mine: SessionId) -> bool {
        self.tenant().is_ok_and(|slot| slot.session != NO_SESSION && slot.session != session_key(mine))
    }

    /// Takes a heartbeat that arrived at `now`.
    ///
    /// # Errors
    /// [`Refused::SessionUnknown`], [`Refused::Replayed`], [`Refused::NodeUnknown`]; nothing changes then.
    pub fn beat(&self, beat: &Beat, now: Timestamp) -> Result<Heard, Refused> {
        let mut slot = self.tenant()?;
        if slot.session == NO_SESSION || slot.session != session_key(beat.session) {
            return Err(Refused::SessionUnknown);
        }
        if beat.sequence <= slot.sequence {
            return Err(Refused::Replayed { given: beat.sequence, last: slot.sequence });
        }
        slot.news |= slot.vitals.differs_in_health(&beat.vitals);
        (slot.sequence, slot.vitals, slot.was_heard) = (beat.sequence, beat.vitals, true);
        let before = self.heard().swap(now.as_millis(), Ordering::Relaxed);
        self.chunk.beats.fetch_add(1, Ordering::Relaxed);
        Ok(Heard { before: Timestamp::from_millis(before), health_changed: slot.news, returned: slot.report_return })
    }

    /// Says that the changed health was taken in: until then each heartbeat says again that it changed.
    pub fn settle(&self) {
        if let Ok(mut slot) = self.tenant() {
            slot.news = false;
        }
    }

    /// When the node was heard last, or when watching it began.
    pub fn last_heard(&self) -> Timestamp {
        Timestamp::from_millis(self.heard().load(Ordering::Relaxed))
    }

    fn tenant(&self) -> Result<MutexGuard<'_, Slot>, Refused> {
        let slot = self.slot();
        if slot.tenancy == self.tenancy { Ok(slot) } else { Err(Refused::NodeUnknown) }
    }

    fn slot(&self) -> MutexGuard<'_, Slot> {
        lock(&self.chunk.slots[usize::from(self.at)])
    }

    fn heard(&self) -> &AtomicI64 {
        &self.chunk.heard[usize::from(self.at)]
    }

    fn silence_ms(&self) -> &AtomicU32 {
        &self.chunk.silence_ms[usize::from(self.at)]
    }

    fn pace_ms(&self) -> &AtomicU32 {
        &self.chunk.pace_ms[usize::from(self.at)]
    }
}

fn lock(slot: &Mutex<Slot>) -> MutexGuard<'_, Slot> {
    slot.lock().unwrap_or_else(PoisonError::into_inner)
}

fn session_key(session: SessionId) -> u64 {
    session.uuid().as_u64_pair().1.max(1)
}

#[cfg(test)]
mod tests;
