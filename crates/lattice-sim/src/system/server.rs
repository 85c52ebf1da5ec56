//! Servers, one after the other over the same rows: each with its own memory, killed at any commit.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use lattice_core::change::{Commit, Outcome};
use lattice_core::secret::Secret;
use lattice_core::time::Clock;
use lattice_core::webhook::delivery::Attempted;
use lattice_providers::webhook::{Message, WebhookSender};
use lattice_server::agent_api::AgentPolicy;
use lattice_server::agent_source::AgentSource;
use lattice_server::http::HttpLimits;
use lattice_server::keys::Keys;
use lattice_server::metrics::Metrics;
use lattice_server::plane::{self, Pauses, Plane, Settings};
use lattice_store::{Store, StoreError, Witness};

use super::acts::Seen;
use super::cloud::{Cloud, Reach};
use super::ground::{Ground, Secrets};
use super::network::{Front, Network};

/// Names of servers in leases.
const NAMES: [&str; 2] = ["lattice-1", "lattice-2"];
/// Longest time in which a server starts.
const START: Duration = Duration::from_secs(120);

/// Where hosts find a server that lives.
const GIVEN: &str = "https://lattice.sim:7443";

/// Where agents reach a server.
fn address_of(name: &str) -> String {
    format!("https://{name}.sim:7443")
}

/// Whether a server lives, and for how long.
pub struct Life {
    /// Its name in leases.
    pub name: String,
    alive: AtomicBool,
    /// Commits until its death; negative: it is not planned.
    fuse: AtomicI64,
    /// What it saw of machines, by what it looked at.
    seen: Mutex<BTreeMap<String, Seen>>,
}

impl Life {
    /// One that has begun.
    pub fn new(name: String) -> Self {
        Self { name, alive: AtomicBool::new(true), fuse: AtomicI64::new(-1), seen: Mutex::default() }
    }

    /// Whether it goes on.
    pub fn lives(&self) -> bool {
        self.alive.load(Ordering::Relaxed)
    }

    /// It ends now: nothing that it was about to do happens.
    pub fn end(&self) {
        self.alive.store(false, Ordering::Relaxed);
    }

    /// It ends at a commit from here on: before it, or before anything that follows it.
    pub fn end_at_commit(&self, commits: u64) {
        self.fuse.store(i64::try_from(commits).unwrap_or(i64::MAX), Ordering::Relaxed);
    }

    /// It saw something.
    pub fn saw(&self, what: &str, seen: Seen) {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).insert(what.to_owned(), seen);
    }

    /// What it saw; once, since what is done next changes it.
    pub fn take_seen(&self, what: &str) -> Option<Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).remove(what)
    }

    fn burns(&self) -> bool {
        self.fuse.load(Ordering::Relaxed) >= 0 && self.fuse.fetch_sub(1, Ordering::Relaxed) == 0
    }
}

/// Stands beside the commits of one server.
struct AtCommits {
    ground: Arc<Ground>,
    life: Arc<Life>,
    cloud: Arc<Cloud>,
}

impl AtCommits {
    /// The dead wait here for ever.
    async fn pass(&self) {
        if self.life.burns() {
            self.ground.log.say(format!("{} dies", self.life.name));
            self.life.end();
        }
        if !self.life.lives() {
            std::future::pending::<()>().await;
        }
    }

    /// Others go on meanwhile.
    async fn dawdle(&self) {
        let luck = &self.ground.store;
        if luck.once_in(100) {
            tokio::time::sleep(luck.millis(1, 400)).await;
        }
    }
}

#[async_trait]
impl Witness for AtCommits {
    async fn before(&self, commits: &[Commit]) -> Result<(), StoreError> {
        self.pass().await;
        self.dawdle().await;
        self.pass().await;
        let found = self.ground.model().impossible(commits);
        found.into_iter().for_each(|what| self.ground.wrong(what));
        match self.ground.store.once_in(self.ground.weather().store) {
            true => Err(StoreError::Unknown { why: "the connection to the database broke before".to_owned() }),
            false => Ok(()),
        }
    }

    fn made(&self, commits: &[Commit], outcomes: &[Outcome]) {
        super::check::at_commits(&self.ground, &self.cloud, commits, outcomes);
    }

    async fn after(&self) -> Result<(), StoreError> {
        self.pass().await;
        self.dawdle().await;
        self.pass().await;
        match self.ground.store.once_in(self.ground.weather().store) {
            true => Err(StoreError::Unknown { why: "the connection to the database broke after".to_owned() }),
            false => Ok(()),
        }
    }
}

/// A server that lives, or whose body is still there.
pub struct Server {
    /// Whether it lives.
    pub life: Arc<Life>,
    plane: Plane,
}

/// What servers are started from.
pub struct Servers {
    /// What all share.
    pub ground: Arc<Ground>,
    /// What they act on.
    pub cloud: Arc<Cloud>,
    /// How agents reach them.
    pub network: Arc<Network>,
    /// The rows.
    pub store: Store,
    /// Their secrets.
    pub secrets: Arc<Secrets>,
    /// How often they look.
    pub pauses: Pauses,
    /// How many there were.
    pub started: u64,
}

impl Servers {
    /// Starts the next one, beside one that goes on if there is one; none when it died at its start.
    ///
    /// # Errors
    /// It does not start though nothing is wrong with the store.
    pub async fn start(&mut self, beside: Option<&Server>) -> Result<Option<Server>, String> {
        self.started += 1;
        // A restart of the same server takes its leases up at once; another one waits for them.
        let first = match beside {
            Some(other) => other.life.name != NAMES[0],
            None => self.ground.store.once_in(700),
        };
        let name = NAMES[usize::from(!first)];
        let life = Arc::new(Life::new(name.to_owned()));
        self.ground.log.say(format!("{name} starts, the {}. time", self.started));
        let started = tokio::time::timeout(START, self.plane(&life)).await;
        let plane = match started {
            Ok(Ok(plane)) => plane,
            Ok(Err(error)) if self.ground.weather().store > 0 => {
                self.ground.log.say(format!("{name} did not start: {error}"));
                return Ok(None);
            }
            Ok(Err(error)) => return Err(format!("{name} did not start: {error}")),
            Err(_) if !life.lives() => return Ok(None),
            Err(_) => return Err(format!("{name} did not start within {} s", START.as_secs())),
        };
        let agents = Arc::clone(&plane.agents);
        self.network.set_front(Some((&address_of(name), Front { life: Arc::clone(&life), agents })));
        Ok(Some(Server { life, plane }))
    }

    async fn plane(&self, life: &Arc<Life>) -> Result<Plane, String> {
        let (ground, life) = (Arc::clone(&self.ground), Arc::clone(life));
        let witness =
            AtCommits { ground: Arc::clone(&ground), life: Arc::clone(&life), cloud: Arc::clone(&self.cloud) };
        let gates = Arc::default();
        let reach = Arc::new(Reach { cloud: Arc::clone(&self.cloud), life: Arc::clone(&life), gates });
        let random = std::array::from_fn(|index| u8::try_from(index).unwrap_or_default());
        let keys = Keys::load_or_create(&*self.secrets, ground.clock.now(), random).await;
        let keys = keys.map_err(|error| error.to_string())?;
        let settings = Settings {
            name: life.name.clone(),
            agent_url: address_of(&life.name),
            certificate_life: Duration::from_secs(86_400),
            agent_policy: AgentPolicy::default(),
            http_limits: HttpLimits::default(),
            pauses: self.pauses,
        };
        let stands_on = plane::Ground {
            store: self.store.witnessed_by(Arc::new(witness)),
            secrets: self.secrets.clone(),
            providers: reach.clone(),
            bmcs: reach,
            webhooks: Arc::new(NoWebhooks { ground: Arc::clone(&ground) }),
            authority: Arc::new(keys.authority),
            task_keys: Arc::new(keys.task_keys),
            clock: ground.clock.clone(),
            ids: ground.ids.clone(),
            entropy: ground.ids.clone(),
            metrics: Arc::new(Metrics::default()),
        };
        let address = GIVEN.to_owned();
        let agent = AgentSource { url: format!("{address}/agent"), sha256: None, binary: None };
        Plane::start(stands_on, address, agent, settings).await.map_err(|error| error.to_string())
    }
}

impl Server {
    /// Its API.
    pub fn router(&self) -> axum::Router {
        self.plane.router.clone()
    }

    /// Takes the body away: its loops end without having done anything more.
    pub fn bury(self) {
        self.life.end();
        self.plane.stop.cancel();
    }
}

/// Nobody listens to events here.
struct NoWebhooks {
    ground: Arc<Ground>,
}

#[async_trait]
impl WebhookSender for NoWebhooks {
    fn check(&self, _: &str) -> Result<(), String> {
        Err("there are no receivers here".to_owned())
    }

    async fn send(&self, url: &str, _: &[Secret<String>], _: Message<'_>) -> Attempted {
        self.ground.wrong(format!("an event was sent to {url}"));
        std::future::pending().await
    }
}
