//! The running site: one world, a clock, and whoever calls it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::Notify;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::faults::{Fault, MachineFault};
use super::oauth::ApiKey;
use super::report::Report;
use super::wire::{Method, Request, Response};
use super::world::{BmcCommand, BmcError, Effect, Event, MaasWorld, MachineFacts};
use crate::clock::{now, until};
use crate::machine::hardware::Hardware;
use crate::stop::{Stop, spawn_until_stopped};

/// How long the clock rests when nothing is due. A call that changes something wakes it before.
const IDLE: Duration = Duration::from_secs(3600);

/// A running site, shared by its server, its machines and in-process clients.
#[derive(Clone)]
pub struct MaasHandle {
    shared: Arc<Shared>,
}

struct Shared {
    world: Mutex<State>,
    changed: Notify,
}

struct State {
    world: MaasWorld,
    subscribers: Vec<UnboundedSender<Effect>>,
}

/// The connection broke before an answer came: the call may have had its effect or not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the region closed the connection without an answer")]
pub struct ConnectionBroken;

impl MaasHandle {
    /// Puts a world behind a handle. Time passes with calls, and by itself once the clock is started.
    pub fn new(world: MaasWorld) -> Self {
        let state = State { world, subscribers: Vec::new() };
        Self { shared: Arc::new(Shared { world: Mutex::new(state), changed: Notify::new() }) }
    }

    /// Lets what is due happen when it is due, until stopped.
    pub fn start_clock(&self) -> Stop {
        let site = self.clone();
        spawn_until_stopped(async move {
            loop {
                let due = site.with(|world| world.next_due());
                let rest = due.map_or(IDLE, until);
                tokio::select! {
                    () = tokio::time::sleep(rest) => {}
                    () = site.shared.changed.notified() => {}
                }
            }
        })
    }

    /// One call without HTTP, from the parts of a request: for in-process clients and for the machines.
    pub async fn call(&self, request: &Request) -> Response {
        let response = self.with(|world| world.handle(request, now()));
        self.shared.changed.notify_one();
        if !response.delay.is_zero() {
            tokio::time::sleep(response.delay).await;
        }
        response
    }

    /// One call as an HTTP message that never touches a socket. The path begins with `/MAAS/`.
    ///
    /// # Errors
    /// [`ConnectionBroken`] where a socket would have been closed, which happens while the site is down.
    pub async fn call_inline(&self, request: http::Request<Bytes>) -> Result<http::Response<Bytes>, ConnectionBroken> {
        let (parts, body) = request.into_parts();
        let header = |name: http::HeaderName| parts.headers.get(name).and_then(|value| value.to_str().ok());
        let Some(method) = Method::parse(parts.method.as_str()) else {
            return Ok(to_http(Response::text(405, "Method Not Allowed")));
        };
        let target = parts.uri.path_and_query().map_or("/", |target| target.as_str());
        let content_type = header(http::header::CONTENT_TYPE).unwrap_or_default();
        let authorization = header(http::header::AUTHORIZATION).map(str::to_owned);
        let request = Request::from_parts(method, target, content_type, authorization, body.to_vec());
        let response = self.call(&request).await;
        if response.dropped { Err(ConnectionBroken) } else { Ok(to_http(response)) }
    }

    /// Everything that happens to the machines from now on, in order.
    pub fn effects(&self) -> UnboundedReceiver<Effect> {
        let (sender, receiver) = unbounded_channel();
        self.lock().subscribers.push(sender);
        receiver
    }

    /// What the region saw of its clients so far.
    pub fn report(&self) -> Report {
        self.with(|world| world.report())
    }

    /// The event log, oldest first.
    pub fn events(&self) -> Vec<Event> {
        self.with(|world| world.events().to_vec())
    }

    /// Every machine in its rack.
    pub fn machines(&self) -> Vec<MachineFacts> {
        self.with(|world| world.machines())
    }

    /// Arms a fault; `hits` is after how many it heals, `None` is never.
    pub fn arm(&self, fault: Fault, hits: Option<u32>) {
        self.with(|world| match hits {
            Some(hits) => world.faults().arm(fault, hits),
            None => world.faults().arm_permanently(fault),
        });
    }

    /// Heals a fault; says whether there was one.
    pub fn heal(&self, fault: &Fault) -> bool {
        self.with(|world| world.faults().heal(fault))
    }

    /// Talks to a BMC directly, past MAAS.
    ///
    /// # Errors
    /// [`BmcError`] when it does not answer or refuses the login.
    pub fn bmc(&self, address: &str, login: (&str, &str), command: BmcCommand) -> Result<bool, BmcError> {
        let answer = self.with(|world| world.bmc(address, login, command, now()));
        self.shared.changed.notify_one();
        answer
    }

    /// Where machines reach the region; it stands in their preseed.
    pub fn set_url(&self, url: String) {
        self.with(|world| world.set_url(url));
    }

    /// A machine by its label.
    pub(crate) fn hardware(&self, label: &str) -> Option<Hardware> {
        self.with(|world| world.hardware(label).cloned())
    }

    /// Whether a fault strikes a machine now; counts the hit.
    pub(crate) fn strikes(&self, what: MachineFault, system_id: &str) -> bool {
        self.with(|world| world.strikes(what, system_id))
    }

    /// The header with which a machine signs a call; `nonce` must be new.
    pub(crate) fn sign(key: &ApiKey, nonce: &str) -> String {
        super::oauth::sign(key, nonce, now().as_second())
    }

    /// Lets time pass up to now, looks at or changes the world, and passes on what happened.
    fn with<T>(&self, look: impl FnOnce(&mut MaasWorld) -> T) -> T {
        let mut state = self.lock();
        let now = now();
        let mut effects = state.world.advance(now);
        let result = look(&mut state.world);
        effects.extend(state.world.advance(now));
        for effect in effects {
            state.subscribers.retain(|subscriber| subscriber.send(effect.clone()).is_ok());
        }
        result
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // A panic while the world was locked is a defect of the simulation; the rest may go on.
        self.shared.world.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn to_http(response: Response) -> http::Response<Bytes> {
    let mut builder = http::Response::builder()
        .status(response.status)
        .header(http::header::CONTENT_TYPE, response.content_type)
        .header("X-MaaS-API-Hash", "simulated");
    if let Some(seconds) = response.retry_after_s {
        builder = builder.header(http::header::RETRY_AFTER, seconds);
    }
    let body = if response.status == 204 { Bytes::new() } else { Bytes::from(response.body) };
    builder.body(body).expect("a status and headers made here are valid")
}
