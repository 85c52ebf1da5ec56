//! The life of one server: where it dies, and what was called while it lived.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use lattice_workflow::crash::CrashPlan;
use tokio::sync::Notify;

/// Where a server dies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Death {
    /// It does not.
    Never,
    /// At that place of a runner: after a commit, or before an act.
    AtPlace(u64),
    /// When that call of a provider had its effect, and before its answer is heard.
    AfterCall(u64),
}

impl Death {
    pub const fn plan(self) -> CrashPlan {
        match self {
            Self::AtPlace(place) => CrashPlan::at(place),
            Self::Never | Self::AfterCall(_) => CrashPlan::never(),
        }
    }
}

/// One server, from its start to its death.
pub struct Life {
    death: Death,
    is_second: bool,
    in_turn: AtomicBool,
    calls: AtomicU64,
    names: Mutex<Vec<&'static str>>,
    died: Notify,
}

impl Life {
    pub fn new(death: Death, is_second: bool) -> Self {
        Self {
            death,
            is_second,
            in_turn: AtomicBool::new(false),
            calls: AtomicU64::new(0),
            names: Mutex::default(),
            died: Notify::new(),
        }
    }

    /// Calls are counted, and can be the last, only while a turn is made.
    pub fn turn_runs(&self, runs: bool) {
        self.in_turn.store(runs, Ordering::SeqCst);
    }

    /// Whether a server lived before this one.
    pub const fn is_second(&self) -> bool {
        self.is_second
    }

    /// A call had its effect. Never comes back when the server dies of it.
    pub async fn called(&self, name: &'static str) {
        if !self.in_turn.load(Ordering::SeqCst) {
            return;
        }
        self.names.lock().unwrap().push(name);
        if self.death == Death::AfterCall(self.calls.fetch_add(1, Ordering::SeqCst)) {
            self.died.notify_one();
            std::future::pending::<()>().await;
        }
    }

    /// What was called in turns, in order.
    pub fn calls(&self) -> Vec<&'static str> {
        self.names.lock().unwrap().clone()
    }

    /// Comes back when the server dies in a call.
    pub async fn died(&self) {
        self.died.notified().await;
    }
}
