//! What happened in a life, line by line, and a hash over it: two lives of one seed have the same.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::dice::text_key;

/// Lines that are kept.
const KEPT: usize = 60;

/// The log of a life.
pub struct Log {
    begun: tokio::time::Instant,
    shows: bool,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    hash: u64,
    lines: u64,
    /// The last lines.
    kept: VecDeque<String>,
}

impl Log {
    /// An empty one, which prints each line at once if it `shows` them.
    pub fn new(shows: bool) -> Self {
        Self { begun: tokio::time::Instant::now(), shows, inner: Mutex::default() }
    }

    /// Adds a line; the time of the life goes before it.
    pub fn say(&self, line: impl AsRef<str>) {
        let line = format!("{} {}", clock(self.begun.elapsed()), line.as_ref());
        if self.shows {
            println!("{line}");
        }
        let mut inner = self.inner();
        inner.hash = inner.hash.rotate_left(5) ^ text_key(&line);
        inner.lines += 1;
        if inner.kept.len() >= KEPT {
            inner.kept.pop_front();
        }
        inner.kept.push_back(line);
    }

    /// Hash over every line.
    pub fn hash(&self) -> u64 {
        self.inner().hash
    }

    /// How many lines there were.
    pub fn lines(&self) -> u64 {
        self.inner().lines
    }

    /// The lines that are kept.
    pub fn kept(&self) -> Vec<String> {
        self.inner().kept.iter().cloned().collect()
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn clock(elapsed: Duration) -> String {
    let (seconds, millis) = (elapsed.as_secs(), elapsed.subsec_millis());
    format!("{}:{:02}:{:02}.{millis:03}", seconds / 3_600, seconds / 60 % 60, seconds % 60)
}
