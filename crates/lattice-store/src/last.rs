//! The last place of the outbox that is known, and who waits for a later one. They are woken in the order in which they
//! began to wait: a simulation whose servers follow one outbox lives the same life each time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use lattice_core::ids::EventSeq;
use tokio::sync::Notify;

#[derive(Debug, Default)]
struct Inner {
    last: AtomicU64,
    is_closed: AtomicBool,
    moved: Notify,
}

/// Moves it forward; dropped: nobody does any more.
pub(crate) struct Advance(Arc<Inner>);

/// Waits for it.
#[derive(Debug, Clone)]
pub(crate) struct Last(Arc<Inner>);

/// Both ends, at 0.
pub(crate) fn channel() -> (Advance, Last) {
    let inner = Arc::<Inner>::default();
    (Advance(Arc::clone(&inner)), Last(inner))
}

impl Advance {
    /// Forward, never back.
    pub(crate) fn to(&self, seq: EventSeq) {
        if self.0.last.fetch_max(seq.0, Ordering::SeqCst) < seq.0 {
            self.0.moved.notify_waiters();
        }
    }
}

impl Drop for Advance {
    fn drop(&mut self) {
        self.0.is_closed.store(true, Ordering::SeqCst);
        self.0.moved.notify_waiters();
    }
}

impl Last {
    /// Waits until it is behind `seen`; none: nobody moves it any more.
    pub(crate) async fn after(&self, seen: EventSeq) -> Option<EventSeq> {
        loop {
            // What moves from here on wakes it, whether it waits already or not.
            let moved = self.0.moved.notified();
            let last = EventSeq(self.0.last.load(Ordering::SeqCst));
            if last > seen {
                return Some(last);
            }
            if self.0.is_closed.load(Ordering::SeqCst) {
                return None;
            }
            moved.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    #[tokio::test]
    async fn who_waits_first_is_woken_first_and_all_are_told_of_the_end() {
        for _ in 0..50 {
            let (advance, last) = channel();
            let woken = Arc::<Mutex<Vec<usize>>>::default();
            let waiting: Vec<_> = (0..5)
                .map(|index| {
                    let (last, woken) = (last.clone(), Arc::clone(&woken));
                    tokio::spawn(async move {
                        let seen = last.after(EventSeq(0)).await;
                        woken.lock().unwrap().push(index);
                        (seen, last.after(EventSeq(7)).await)
                    })
                })
                .collect();
            tokio::task::yield_now().await;
            advance.to(EventSeq(7));
            advance.to(EventSeq(3));
            tokio::task::yield_now().await;
            drop(advance);
            for one in waiting {
                assert_eq!(one.await.unwrap(), (Some(EventSeq(7)), None));
            }
            assert_eq!(*woken.lock().unwrap(), [0, 1, 2, 3, 4]);
        }
    }
}
