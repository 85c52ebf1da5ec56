//! The machine behind a simulated BMC, and what is wrong with both.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lattice_core::time::{Clock, Timestamp};
use tokio::sync::watch;

/// What is wrong with a simulated BMC.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BmcFault {
    /// It takes connections and never answers.
    Hangs,
    /// It takes an order, says so, and does nothing.
    IgnoresOrders,
    /// It says that the machine is on, whatever it is.
    SaysOn,
    /// It says a word for power that nobody knows.
    SaysNonsense,
    /// Its answers are HTML.
    AnswersHtml,
    /// The next change of a resource is lost to another writer.
    LosesNextVersion,
    /// It links to another host.
    LinksElsewhere,
    /// A power supply failed.
    PowerSupplyFailed,
    /// A memory module counted an uncorrectable error.
    UncorrectableMemory,
    /// A GPU fell off the bus.
    GpuOffBus,
    /// A GPU's slot is empty.
    GpuAbsent,
    /// The first GPU is not well, and on the bus.
    GpuWarns,
    /// A fan is slow.
    FanSlow,
    /// Reading this resource ends with this status; 200: with a body that says nothing.
    Unreadable {
        /// Its path.
        path: &'static str,
        /// The status.
        status: u16,
    },
    /// It starts from its disk, and from nothing else.
    BootsFromDisk,
    /// It offers no secure erase of its drive.
    ErasesNothing,
    /// Somebody put another drive in.
    DriveSwapped,
    /// It forgets every task at once.
    ForgetsTasks,
    /// Its processors come in two pages.
    Pages,
    /// The second page of its processors is followed by itself.
    PagesWithoutEnd,
}

/// How a reset is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resets {
    /// 204, done at once.
    AtOnce,
    /// 204, done after this time; until then the old state is told.
    After(Duration),
    /// 202 with a task that ends after this time.
    AsTask(Duration),
}

/// An order that was taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Order {
    /// `On`, `ForceOff`, `boot Pxe`, `erase`.
    pub what: String,
    /// When.
    pub at: Timestamp,
}

/// A simulated BMC and its machine.
pub struct SimBmc {
    clock: Arc<dyn Clock>,
    power: watch::Sender<bool>,
    state: Mutex<State>,
}

pub(super) struct State {
    pub(super) user: String,
    pub(super) password: String,
    pub(super) faults: Vec<BmcFault>,
    pub(super) resets: Resets,
    pub(super) pending: Option<(Timestamp, bool)>,
    pub(super) erasing: Option<Timestamp>,
    pub(super) boot_once: Option<String>,
    pub(super) starts: Vec<Option<String>>,
    pub(super) version: u64,
    pub(super) orders: Vec<Order>,
    pub(super) refused_logins: u32,
    pub(super) task_fails: bool,
}

impl SimBmc {
    /// A BMC of a machine that is off.
    pub fn new(user: &str, password: &str, clock: Arc<dyn Clock>) -> Arc<Self> {
        let state = State {
            user: user.to_owned(),
            password: password.to_owned(),
            faults: Vec::new(),
            resets: Resets::AtOnce,
            pending: None,
            erasing: None,
            boot_once: None,
            starts: Vec::new(),
            version: 1,
            orders: Vec::new(),
            refused_logins: 0,
            task_fails: false,
        };
        Arc::new(Self { clock, power: watch::Sender::new(false), state: Mutex::new(state) })
    }

    /// Something goes wrong from now on.
    pub fn add(&self, fault: BmcFault) {
        self.state().faults.push(fault);
    }

    /// Nothing is wrong any more.
    pub fn repair(&self) {
        self.state().faults.clear();
    }

    /// How resets are answered from now on.
    pub fn set_resets(&self, resets: Resets) {
        self.state().resets = resets;
    }

    /// Tasks of resets and erasures end in an exception.
    pub fn fail_tasks(&self) {
        self.state().task_fails = true;
    }

    /// Another password is the right one.
    pub fn set_password(&self, password: &str) {
        password.clone_into(&mut self.state().password);
    }

    /// Orders that were taken, in order.
    pub fn orders(&self) -> Vec<Order> {
        self.state().orders.clone()
    }

    /// Logins that were refused.
    pub fn refused_logins(&self) -> u32 {
        self.state().refused_logins
    }

    /// Whether the machine is really on.
    pub fn is_on(&self) -> bool {
        self.settle();
        *self.power.borrow()
    }

    /// The machine is switched by hand.
    pub fn switch(&self, on: bool) {
        self.state().pending = None;
        self.set_power(on);
    }

    /// A start takes the override with it.
    fn set_power(&self, on: bool) {
        let was_on = self.power.send_replace(on);
        if on && !was_on {
            let mut state = self.state();
            let from = state.boot_once.take();
            state.starts.push(from);
        }
    }

    /// Follows the machine's power.
    pub fn follow_power(&self) -> watch::Receiver<bool> {
        self.power.subscribe()
    }

    /// What each start was from, the first one before others; none: as always.
    pub fn starts(&self) -> Vec<Option<String>> {
        self.settle();
        self.state().starts.clone()
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// What was due happened.
    pub(super) fn settle(&self) {
        let now = self.now();
        let due = {
            let mut state = self.state();
            match state.pending {
                Some((at, on)) if at <= now => {
                    state.pending = None;
                    Some(on)
                }
                Some(_) | None => None,
            }
        };
        if let Some(on) = due {
            self.set_power(on);
        }
    }

    pub(super) fn has(&self, fault: &BmcFault) -> bool {
        self.state().faults.contains(fault)
    }

    /// The status that reading this resource ends with, if it is not read as it is.
    pub(super) fn unreadable(&self, asked: &str) -> Option<u16> {
        self.state().faults.iter().find_map(|fault| {
            let BmcFault::Unreadable { path, status } = fault else { return None };
            (*path == asked).then_some(*status)
        })
    }

    pub(super) fn record(&self, what: impl Into<String>) {
        let order = Order { what: what.into(), at: self.now() };
        self.state().orders.push(order);
    }
}
