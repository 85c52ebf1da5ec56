//! Reads that a driver may hold up: each waits for a bounded time, and of each kind one at most is under way.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use tokio::sync::watch;

/// One kind of read.
#[derive(Debug)]
pub struct Reading<T> {
    under_way: Mutex<Option<UnderWay<T>>>,
}

#[derive(Debug)]
struct UnderWay<T> {
    told: watch::Receiver<Option<T>>,
    /// Somebody waited for it in vain.
    is_late: bool,
}

impl<T> UnderWay<T> {
    /// It brought something, or its thread dropped its end: it panicked, or could not be started.
    fn is_over(&self) -> bool {
        self.told.borrow().is_some() || self.told.has_changed().is_err()
    }
}

impl<T> Default for Reading<T> {
    fn default() -> Self {
        Self { under_way: Mutex::new(None) }
    }
}

impl<T: Clone + Send + Sync + 'static> Reading<T> {
    /// What `read` brings within that time; none: nothing, or one that was begun earlier and is late still hangs.
    /// Nothing is begun then. Who asks while one is under way that is not late waits for that one.
    pub async fn within(&self, patience: Duration, read: impl FnOnce() -> T + Send + 'static) -> Option<T> {
        let mut told = self.begun(read)?;
        if let Ok(brought) = tokio::time::timeout(patience, told.wait_for(Option::is_some)).await {
            return brought.ok()?.clone();
        }
        if let Some(one) = self.under_way().as_mut().filter(|one| one.told.same_channel(&told)) {
            one.is_late = true;
        }
        None
    }

    /// Whether a read hangs.
    pub fn is_late(&self) -> bool {
        self.under_way().as_ref().is_some_and(|one| one.is_late && !one.is_over())
    }

    fn begun(&self, read: impl FnOnce() -> T + Send + 'static) -> Option<watch::Receiver<Option<T>>> {
        let mut under_way = self.under_way();
        if let Some(one) = under_way.as_ref().filter(|one| !one.is_over()) {
            return (!one.is_late).then(|| one.told.clone());
        }
        let (tell, told) = watch::channel(None);
        // Not one of the runtime's threads: these are waited for when the agent ends. One that cannot be started drops its
        // end at once, and brings nothing.
        let _ = thread::Builder::new().name("sensors".to_owned()).spawn(move || tell.send(Some(read())));
        *under_way = Some(UnderWay { told: told.clone(), is_late: false });
        Some(told)
    }

    fn under_way(&self) -> MutexGuard<'_, Option<UnderWay<T>>> {
        // Nothing under this lock can panic half way.
        self.under_way.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::sync::mpsc;

    use tokio::time::Instant;

    use super::*;

    const SHORT: Duration = Duration::from_millis(20);
    const LONG: Duration = Duration::from_secs(20);

    #[tokio::test]
    async fn while_a_read_hangs_no_other_is_begun_and_nobody_waits_for_it_again() {
        let (reading, begun) = (Reading::default(), Arc::new(AtomicU32::new(0)));
        let (release, held) = mpsc::channel::<()>();
        let (begins, has_begun) = mpsc::channel();
        let count = Arc::clone(&begun);
        let hangs = move || {
            count.fetch_add(1, Ordering::SeqCst);
            begins.send(()).unwrap();
            let _ = held.recv();
            1
        };
        assert_eq!(reading.within(SHORT, hangs).await, None);
        // Its thread may be slower than who waits for it.
        has_begun.recv_timeout(LONG).unwrap();
        assert!(reading.is_late());
        let asked_at = Instant::now();
        for _ in 0..50 {
            let count = Arc::clone(&begun);
            let other = move || count.fetch_add(1, Ordering::SeqCst);
            assert_eq!(reading.within(LONG, other).await, None);
        }
        assert!(asked_at.elapsed() < LONG, "said at once");
        assert_eq!(begun.load(Ordering::SeqCst), 1);
        drop(release);
        while reading.is_late() {
            tokio::task::yield_now().await;
        }
        assert_eq!(reading.within(LONG, || 7).await, Some(7), "a new one, not what the late one brought");
    }

    #[tokio::test]
    async fn who_asks_while_a_read_is_under_way_waits_for_it() {
        let reading = Reading::default();
        let (release, held) = mpsc::channel::<u32>();
        let first = reading.within(LONG, move || held.recv().unwrap_or_default());
        let second = async {
            release.send(5).unwrap();
            reading.within(LONG, || 6).await
        };
        let (first, second) = tokio::join!(first, second);
        assert_eq!(first, Some(5));
        assert!(second == Some(5) || second == Some(6), "{second:?}");
        let panics = || panic!("the driver said something odd");
        assert_eq!(Reading::<u32>::default().within(LONG, panics).await, None);
    }
}
