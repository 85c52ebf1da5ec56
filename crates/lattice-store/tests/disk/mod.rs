//! A disk that keeps only what was synced: at the crash every other write is dropped, or some of them are.
//!
//! The model is plain; [`vfs`] shows it to SQLite.

pub mod vfs;

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard};

/// What becomes of writes that were not synced, at the crash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unsynced {
    /// All are dropped.
    Dropped,
    /// Each survives or not, by the disk's dice: disks write in any order.
    Scattered,
}

/// A write that was not synced yet.
enum Pending {
    Write(usize, Vec<u8>),
    Truncate(usize),
}

#[derive(Default)]
struct File {
    /// What SQLite sees.
    live: Vec<u8>,
    /// What a crash leaves; none before the first sync: the file's name is not durable either.
    durable: Option<Vec<u8>>,
    pending: Vec<Pending>,
}

/// All files, by name.
pub struct Disk {
    files: HashMap<String, File>,
    /// Shared memory of files, by name; regions never move once they were handed out.
    shared: HashMap<String, Vec<Box<[u64]>>>,
    /// Writes and syncs until the power goes; none: it stays.
    power: Option<u64>,
    dice: Dice,
}

/// Small numbers that look random and follow from a seed.
pub struct Dice(u64);

impl Dice {
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A number below `end`.
    pub fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % end
    }
}

/// The power is gone: nothing is read or written any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NoPower;

static DISK: Mutex<Option<Disk>> = Mutex::new(None);

fn disk() -> MutexGuard<'static, Option<Disk>> {
    DISK.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Runs something on the disk.
fn with<T>(run: impl FnOnce(&mut Disk) -> T) -> T {
    run(disk().as_mut().expect("the disk is installed"))
}

/// Puts an empty disk under every database that is opened from now on in this process.
pub fn install(seed: u64) {
    *disk() = Some(Disk { files: HashMap::new(), shared: HashMap::new(), power: None, dice: Dice::new(seed) });
    vfs::register();
}

/// Lets the power go after so many further writes and syncs.
pub fn power_for(operations: u64) {
    with(|disk| disk.power = Some(operations));
}

/// After the crash: only what was synced is there, and the power is back. The databases must be closed before.
pub fn restart(unsynced: Unsynced) {
    with(|disk| {
        let Disk { files, dice, .. } = disk;
        files.retain(|_, file| {
            let pending = std::mem::take(&mut file.pending);
            let survivors: Vec<_> = match unsynced {
                Unsynced::Dropped => Vec::new(),
                Unsynced::Scattered => pending.into_iter().filter(|_| dice.below(2) == 0).collect(),
            };
            if file.durable.is_none() && survivors.is_empty() {
                return false;
            }
            let mut content = file.durable.take().unwrap_or_default();
            survivors.iter().for_each(|operation| apply(&mut content, operation));
            file.live.clone_from(&content);
            file.durable = Some(content);
            true
        });
        disk.shared.clear();
        disk.power = None;
    });
}

fn apply(content: &mut Vec<u8>, operation: &Pending) {
    match operation {
        Pending::Write(at, bytes) => {
            let end = at + bytes.len();
            if content.len() < end {
                content.resize(end, 0);
            }
            content[*at..end].copy_from_slice(bytes);
        }
        Pending::Truncate(size) => content.resize(*size, 0),
    }
}

impl Disk {
    /// Counts an operation that changes something against the power that is left.
    fn spend(&mut self) -> Result<(), NoPower> {
        match &mut self.power {
            None => Ok(()),
            Some(0) => Err(NoPower),
            Some(left) => {
                *left -= 1;
                Ok(())
            }
        }
    }

    fn powered(&self) -> Result<(), NoPower> {
        if self.power == Some(0) { Err(NoPower) } else { Ok(()) }
    }

    fn change(&mut self, name: &str, operation: Pending) -> Result<(), NoPower> {
        self.spend()?;
        let file = self.files.entry(name.to_owned()).or_default();
        apply(&mut file.live, &operation);
        file.pending.push(operation);
        Ok(())
    }

    fn sync(&mut self, name: &str) -> Result<(), NoPower> {
        self.spend()?;
        let file = self.files.entry(name.to_owned()).or_default();
        file.pending.clear();
        file.durable = Some(file.live.clone());
        Ok(())
    }

    fn read(&self, name: &str, at: usize, into: &mut [u8]) -> Result<usize, NoPower> {
        self.powered()?;
        let live = self.files.get(name).map_or(&[][..], |file| &file.live);
        let found = live.get(at..).unwrap_or_default();
        let length = found.len().min(into.len());
        into[..length].copy_from_slice(&found[..length]);
        into[length..].fill(0);
        Ok(length)
    }
}
