//! The HTTP API: one table of routes, one middleware for who and how fast, handlers that read, ask core, and commit.
//!
//! Handlers decide nothing: rows come from the store, decisions from `lattice_core::command`, and what was decided is
//! committed before it is answered. design: 8-interfaces

pub mod surface;

pub mod allocations;
pub(crate) mod audit;
mod backup;
pub(crate) mod batches;
pub(crate) mod bmc;
mod events;
pub(crate) mod extract;
pub(crate) mod fleet;
mod guard;
mod holds;
pub(crate) mod jobs;
mod node_health;
mod node_verbs;
mod node_view;
pub(crate) mod nodes;
mod notices;
mod onboardings;
pub(crate) mod power_overrides;
pub(crate) mod profiles;
pub(crate) mod roce;
mod rows;
mod server;
pub(crate) mod silences;
mod site_credentials;
pub(crate) mod site_orders;
mod site_rules;
pub(crate) mod sites;
mod skus;
mod table;
pub(crate) mod tasks;
#[cfg(test)]
mod tests;
pub(crate) mod timeline;
mod tokens;
pub(crate) mod webhooks;
pub(crate) mod wipes;

pub use table::surface;

use std::sync::Arc;

use async_trait::async_trait;
use axum::Router;
use lattice_api::site::CallLine;
use lattice_core::explain::Code;
use lattice_core::heartbeat::Registry;
use lattice_core::ids::{IdSource, JobId, NodeId};
use lattice_core::secret::Secret;
use lattice_core::site::Site;
use lattice_core::time::Clock;
use lattice_providers::machine::bmc::BmcReaders;
use lattice_providers::secret::{SecretObject, SecretPath, SecretStore};
use lattice_providers::webhook::WebhookSender;
use lattice_store::Store;
use lattice_workflow::components::Notices;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use crate::auth::{Rate, RateLimiter};
use crate::metrics::Metrics;
use crate::secrets::SecretStanding;
use crate::task_keys::TaskKeys;

/// What handlers work with; put together by the wiring, or by a test.
pub struct Parts {
    /// Everything durable.
    pub store: Store,
    /// The present time.
    pub clock: Arc<dyn Clock>,
    /// New ids.
    pub ids: Arc<dyn IdSource>,
    /// 32 bytes that nobody can guess, for tokens.
    pub random: Arc<dyn Fn() -> [u8; 32] + Send + Sync>,
    /// Wakes the driver of a job after its row changed.
    pub wake: Arc<dyn Fn(JobId) + Send + Sync>,
    /// Secrets of sites.
    pub secrets: Arc<dyn SecretStore>,
    /// Whether the secret store gives secrets.
    pub secret_standing: Arc<SecretStanding>,
    /// Checks and tries receivers of events.
    pub webhooks: Arc<dyn WebhookSender>,
    /// Reads BMCs, in the same queues as the jobs.
    pub bmcs: Arc<dyn BmcReaders>,
    /// Tries sites.
    pub prober: Arc<dyn SiteProber>,
    /// Who was heard when.
    pub registry: Arc<Registry>,
    /// Who signs tasks.
    pub task_keys: Arc<TaskKeys>,
    /// Whom agents trust as their server, in PEM.
    pub agent_ca_pem: String,
    /// What State Managers told of.
    pub notices: Arc<Notices>,
    /// What is counted.
    pub metrics: Arc<Metrics>,
    /// The line that makes a host the node, from its id and one-time token.
    pub bootstrap_command: BootstrapCommand,
    /// Bounds.
    pub limits: HttpLimits,
    /// Cancelled when the server begins to stop: streams end, `/readyz` says so.
    pub stop: CancellationToken,
}

/// Makes the line from a node's id and its one-time token.
pub type BootstrapCommand = Arc<dyn Fn(NodeId, &Secret<String>) -> Secret<String> + Send + Sync>;

/// Parts, and what the API itself keeps.
pub struct AppState {
    parts: Parts,
    rates: RateLimiter,
    refusals: RateLimiter,
    notices_rate: RateLimiter,
    streams: Arc<Semaphore>,
}

/// What every handler gets.
pub type App = Arc<AppState>;

impl AppState {
    /// A nonce for a task.
    pub fn nonce(&self) -> [u8; 16] {
        nonce_of((self.parts.random)())
    }
}

/// A task's nonce is half of what nobody can guess.
pub(crate) fn nonce_of(random: [u8; 32]) -> [u8; 16] {
    std::array::from_fn(|index| random[index])
}

impl std::ops::Deref for AppState {
    type Target = Parts;
    fn deref(&self) -> &Parts {
        &self.parts
    }
}

/// Bounds of the API.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HttpLimits {
    /// Largest request body, in bytes.
    pub max_body_bytes: usize,
    /// How fast one token may ask.
    pub rate: Rate,
    /// Event streams at once.
    pub max_streams: usize,
}

impl Default for HttpLimits {
    /// 1 MiB bodies (a batch of 1,000 machines takes 100 kB); 200 requests per second and token with bursts of 400
    /// (a page with a hundred open tabs stays below); 1,000 streams (each costs two reads per commit).
    fn default() -> Self {
        Self { max_body_bytes: 1 << 20, rate: Rate { per_second: 200, burst: 400 }, max_streams: 1_000 }
    }
}

/// Refused requests written to the audit per minute, all callers together: somebody who guesses must not fill it.
const AUDITED_REFUSALS: Rate = Rate { per_second: 1, burst: 60 };

/// Secrets of a site that are to be tried before they are written.
pub type NewSecrets = Vec<(SecretPath, SecretObject)>;

/// What a site said when it was tried.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Probed {
    /// Version that it names.
    pub version: Option<String>,
    /// What else it said, line by line.
    pub details: Vec<String>,
}

/// Why a site could not be used, in words and without secrets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProbeFailed {
    /// What happened.
    pub why: String,
    /// What kind of refusal that is: the credentials, the provider, or our own secret store.
    pub code: Code,
}

/// Tries sites: the boundary to their providers.
#[async_trait]
pub trait SiteProber: Send + Sync {
    /// Asks the site's provider who it is, with the stored secrets, those in `fresh` standing over them.
    async fn probe(&self, site: &Site, fresh: &NewSecrets) -> Result<Probed, ProbeFailed>;

    /// What jobs and the poller asked of the site's provider since its client was made; empty where none is counted.
    async fn calls(&self, site: &Site) -> Vec<CallLine> {
        let _ = site;
        Vec::new()
    }
}

/// The router over these parts.
pub fn router(parts: Parts) -> Router {
    let limits = parts.limits;
    let app: App = Arc::new(AppState {
        rates: RateLimiter::new(limits.rate),
        refusals: RateLimiter::new(AUDITED_REFUSALS),
        notices_rate: RateLimiter::new(notices::NOTICES),
        streams: Arc::new(Semaphore::new(limits.max_streams)),
        parts,
    });
    let (routes, mut access) = surface().into_router();
    let (pages, open) = crate::ui::routes();
    access.extend(open.into_iter().map(|route| (route, surface::Access::Public)));
    let routes = routes.merge(pages);
    guard::guarded(routes, app.clone(), access).with_state(app)
}
