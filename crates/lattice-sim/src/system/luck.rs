//! Everything that looks like chance, drawn from the seed. One life runs on one thread, so a stream gives the same each
//! time.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use lattice_core::ids::{IdSource, uuid_v7};
use lattice_core::time::Timestamp;
use lattice_workflow::tools::Entropy;

use crate::dice::{Dice, text_key};

/// A stream of draws.
pub struct Luck(Mutex<u64>);

impl Luck {
    /// The stream of a seed for one purpose: another purpose draws others.
    pub fn new(seed: u64, purpose: &str) -> Self {
        Self(Mutex::new(Dice(seed).bits(&[text_key(purpose)])))
    }

    /// The next 64 bits.
    pub fn bits(&self) -> u64 {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        Dice(*state).bits(&[])
    }

    /// A number below `bound`; 0 for a bound of 0.
    pub fn below(&self, bound: u64) -> u64 {
        if bound == 0 { 0 } else { self.bits() % bound }
    }

    /// True so many times in a thousand.
    pub fn once_in(&self, permille: u64) -> bool {
        self.below(1_000) < permille
    }

    /// A time between two others, in milliseconds.
    pub fn millis(&self, from: u64, to: u64) -> Duration {
        Duration::from_millis(from + self.below(to.saturating_sub(from)))
    }

    /// One of them.
    pub fn pick<'a, T>(&self, all: &'a [T]) -> Option<&'a T> {
        let index = usize::try_from(self.below(all.len() as u64)).unwrap_or_default();
        all.get(index)
    }

    /// Evenly from 0..1.
    pub fn fraction(&self) -> f64 {
        self.below(1 << 32) as f64 / (1_u64 << 32) as f64
    }
}

impl IdSource for Luck {
    fn uuid(&self, at: Timestamp) -> uuid::Uuid {
        let (high, low) = (self.bits().to_be_bytes(), self.bits().to_be_bytes());
        let mut random = [0; 10];
        random[..8].copy_from_slice(&high);
        random[8..].copy_from_slice(&low[..2]);
        uuid_v7(at, random)
    }
}

impl Entropy for Luck {
    fn bytes32(&self) -> [u8; 32] {
        let mut bytes = [0; 32];
        for chunk in bytes.chunks_mut(8) {
            chunk.copy_from_slice(&self.bits().to_be_bytes());
        }
        bytes
    }
}
