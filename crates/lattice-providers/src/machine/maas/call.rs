//! A call before it is signed: where, with what, how long, and whether it changes something.

use std::time::Duration;

use http::{HeaderMap, Method};
use lattice_core::secret::Secret;

use super::transport::{MaasRequest, Params};
use super::verdict::Effect;

/// Which calls a call waits behind when many are made at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lane {
    /// The region answers by itself.
    Ordinary,
    /// The region waits for a BMC, perhaps for half a minute: nobody else should wait behind that.
    Power,
}

/// A call under construction.
pub(super) struct Call {
    request: MaasRequest,
    effect: Effect,
    lane: Lane,
}

impl Call {
    /// Longest wait for an ordinary answer: a single read costs the region some 160 SQL statements.
    const ORDINARY: Duration = Duration::from_secs(30);
    /// Largest ordinary body, in bytes: one machine is 20 KB, a page of 1000 events half a MB.
    const ORDINARY_BODY: usize = 16 << 20;
    /// Longest wait for a listing: users report 40 s for 100 machines.
    const LISTING: Duration = Duration::from_secs(300);
    /// Largest listing, in bytes: 10,000 machines of 20 KB, doubled.
    const LISTING_BODY: usize = 400 << 20;
    /// Longest wait for a power query, which blocks while the BMC is silent: 25 s were seen.
    const POWER: Duration = Duration::from_secs(60);

    /// A read.
    pub(super) fn get(name: &'static str, path: impl Into<String>) -> Self {
        Self::new(name, Method::GET, path.into(), Effect::Reads)
    }

    /// A creation, or an operation that changes something.
    pub(super) fn post(name: &'static str, path: impl Into<String>) -> Self {
        Self::new(name, Method::POST, path.into(), Effect::Changes)
    }

    /// An update.
    pub(super) fn put(name: &'static str, path: impl Into<String>) -> Self {
        Self::new(name, Method::PUT, path.into(), Effect::Changes)
    }

    /// A removal.
    pub(super) fn delete(name: &'static str, path: impl Into<String>) -> Self {
        Self::new(name, Method::DELETE, path.into(), Effect::Changes)
    }

    fn new(call: &'static str, method: Method, path: String, effect: Effect) -> Self {
        let request = MaasRequest {
            call,
            method,
            path,
            query: Params::new(),
            form: Params::new(),
            headers: HeaderMap::new(),
            timeout: Self::ORDINARY,
            body_limit: Self::ORDINARY_BODY,
        };
        Self { request, effect, lane: Lane::Ordinary }
    }

    /// Selects an operation.
    pub(super) fn op(self, op: &'static str) -> Self {
        self.query("op", op)
    }

    /// Adds a parameter to the query string.
    pub(super) fn query(mut self, name: &'static str, value: impl ToString) -> Self {
        self.request.query = std::mem::take(&mut self.request.query).with(name, value);
        self
    }

    /// Adds a list to the query string.
    pub(super) fn query_each(mut self, name: &'static str, values: impl IntoIterator<Item = impl ToString>) -> Self {
        self.request.query = std::mem::take(&mut self.request.query).with_each(name, values);
        self
    }

    /// Adds a parameter to the form.
    pub(super) fn field(mut self, name: &'static str, value: impl ToString) -> Self {
        self.request.form = std::mem::take(&mut self.request.form).with(name, value);
        self
    }

    /// Adds a parameter to the form when it has a value.
    pub(super) fn field_some(mut self, name: &'static str, value: Option<impl ToString>) -> Self {
        self.request.form = std::mem::take(&mut self.request.form).with_some(name, value);
        self
    }

    /// Adds a secret parameter to the form.
    pub(super) fn field_secret(mut self, name: &'static str, value: Secret<String>) -> Self {
        self.request.form = std::mem::take(&mut self.request.form).with_secret(name, value);
        self
    }

    /// Changes the form as a whole.
    pub(super) fn form(mut self, change: impl FnOnce(Params) -> Params) -> Self {
        self.request.form = change(std::mem::take(&mut self.request.form));
        self
    }

    /// A call that may answer with every machine.
    pub(super) fn listing(mut self) -> Self {
        self.request.timeout = Self::LISTING;
        self.request.body_limit = Self::LISTING_BODY;
        self
    }

    /// A call that waits for a BMC.
    pub(super) fn waits_for_power(mut self) -> Self {
        self.request.timeout = Self::POWER;
        self.lane = Lane::Power;
        self
    }

    /// Its name in errors and counters.
    pub(super) const fn name(&self) -> &'static str {
        self.request.call
    }

    /// The request, still unsigned.
    pub(super) fn into_request(self) -> (MaasRequest, Effect, Lane) {
        (self.request, self.effect, self.lane)
    }
}
