//! The agent's life: an identity, a connection, a session, heartbeats.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use lattice_api::agent::{
    ENROLL_PATH, EnrollRequest, EnrollResponse, HeartbeatConfig, HeartbeatRequest, HeartbeatResponse, MAX_WAIT_MS,
    RegisterRequest, RegisterResponse, RenewRequest, RenewResponse, heartbeat_path, register_path, renew_path,
};
use lattice_api::error::Problem;
use lattice_core::agent::task::{Envelope, TaskKey};
use lattice_core::explain::Code;
use lattice_core::ids::SessionId;
use lattice_core::node::HostFacts;
use lattice_core::secret::{Secret, token_hash};
use lattice_core::time::{Clock, Timestamp};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::backoff::Backoff;
use crate::config::AgentConfig;
use crate::error::AgentError;
use crate::host::{Host, fingerprint};
use crate::identity::{Identity, certificate_request, enrolment_key, new_key};
use crate::link::{CallError, Link, Network, Reach, Target, TlsNetwork};
use crate::servers::Servers;
use crate::storage::Item;
use crate::tasks::{self, Tasks};
use crate::workloads::Workloads;

/// Shortest time from a heartbeat that brought tasks to the next one: what a server allows, twice over.
const TASKS_INTERVAL_MS: u64 = 20;
/// Whatever a server asks for: no faster, so that a wrong setting does not burn a core of each host.
const MIN_INTERVAL_MS: u64 = 10;
/// And no slower: a minute of silence already degrades a node.
const MAX_INTERVAL_MS: u64 = 60_000;
/// Refusals of an enrolment that no waiting changes.
const FINAL_FOR_TOKENS: [Code; 4] = [Code::TokenUsed, Code::TokenExpired, Code::TokenUnknown, Code::TokenForeign];
/// Refusals of an identity that no waiting changes.
const FINAL_FOR_IDENTITIES: [Code; 3] = [Code::CertificateRevoked, Code::CertificateForeign, Code::CertificateExpired];

/// Chances, drawn evenly from 0..1: they keep a fleet from doing the same at once.
pub type Chance = dyn Fn() -> f64 + Send + Sync;

/// What an agent stands on.
#[derive(Clone)]
pub struct Ground {
    /// The machine.
    pub host: Arc<dyn Host>,
    /// The present time.
    pub clock: Arc<dyn Clock>,
    /// The way to servers.
    pub network: Arc<dyn Network>,
    /// Chances.
    pub chance: Arc<Chance>,
}

/// Runs an agent until `shutdown`; writes its state file then. What runs on the host goes on running.
///
/// # Errors
/// [`AgentError`] says why it stopped by itself: a token or an identity that the server refuses for good, a state
/// folder that cannot be written, a bootstrap that cannot be used. Everything else is tried again.
pub async fn run(
    config: AgentConfig,
    host: Arc<dyn Host>,
    clock: Arc<dyn Clock>,
    shutdown: CancellationToken,
) -> Result<(), AgentError> {
    let network = Arc::new(TlsNetwork { clock: Arc::clone(&clock) });
    run_on(config, Ground { host, clock, network, chance: Arc::new(rand::random) }, shutdown).await
}

/// The same, over another network and with chances of the caller.
///
/// # Errors
/// As [`run`].
pub async fn run_on(config: AgentConfig, ground: Ground, shutdown: CancellationToken) -> Result<(), AgentError> {
    // What comes first is looked at first, here and elsewhere: a simulation goes the same way each time.
    let mut agent = tokio::select! {
        biased;
        agent = Agent::start(config, ground) => agent?,
        () = shutdown.cancelled() => return Ok(()),
    };
    let (workloads, tasks) = (Arc::clone(&agent.workloads), Arc::clone(&agent.tasks));
    let ended = tokio::select! {
        biased;
        ended = agent.live() => ended.map(|never| match never {}),
        // Boxed: most of an agent's life nothing is to be done.
        ended = Box::pin(tasks.run()) => ended.map(|never| match never {}).map_err(AgentError::from),
        () = shutdown.cancelled() => Ok(()),
    };
    workloads.save().await?;
    info!(node_id = %agent.config.bootstrap.node_id, "agent stopped");
    ended
}

struct Agent {
    config: AgentConfig,
    ground: Ground,
    workloads: Arc<Workloads>,
    tasks: Arc<Tasks>,
    facts: HostFacts,
    fingerprint: String,
    /// Whether the fingerprint was recomputed since a heartbeat that was answered.
    fingerprint_is_news: bool,
    inspect_at: Instant,
    /// When the hardware was looked at last.
    inspected_at: Instant,
    /// How long after that the next look is.
    inspect_after: Duration,
    identity: Option<Identity>,
    renew_at: Timestamp,
    servers: Servers,
    way: Option<Way>,
    session: Option<Session>,
    pace: HeartbeatConfig,
    beat_at: Instant,
    backoff: Backoff,
}

/// How to reach a server as somebody. Kept from connection to connection, since the tickets are in it with which the
/// next one resumes: that costs the server half of a full handshake.
struct Way {
    server: String,
    certificate_pem: String,
    target: Target,
}

struct Session {
    id: SessionId,
    /// Of the last heartbeat that was sent, answered or not.
    sequence: u64,
}

/// Why one connection's time ended.
enum Trouble {
    /// The server or the way to it: it comes back by itself.
    Passing(String),
    /// The server said no, but not for good.
    Refused(String),
    Final(AgentError),
}

impl From<AgentError> for Trouble {
    fn from(error: AgentError) -> Self {
        Self::Final(error)
    }
}

impl From<std::io::Error> for Trouble {
    fn from(error: std::io::Error) -> Self {
        Self::Final(AgentError::Storage(error))
    }
}

impl Agent {
    async fn start(config: AgentConfig, ground: Ground) -> Result<Self, AgentError> {
        let (host, clock) = (Arc::clone(&ground.host), Arc::clone(&ground.clock));
        let (node_id, now) = (config.bootstrap.node_id, clock.now());
        let boot_id = host.boot_id().await?;
        let (hands, storage) = (host.hands(), config.storage.clone());
        let whose = (node_id, boot_id);
        let workloads = Workloads::recover(whose, Arc::clone(&hands), storage.clone(), Arc::clone(&clock)).await?;
        let workloads = Arc::new(workloads);
        let tasks = Tasks::load(tasks::Parts {
            node: node_id,
            version: config.version.clone(),
            pace: config.pace,
            ground: ground.clone(),
            hands,
            workloads: Arc::clone(&workloads),
            storage,
        })
        .await?;
        let facts = host.facts().await;
        let fingerprint = fingerprint(&facts);
        let mut agent = Self {
            backoff: Backoff::new(config.pace.backoff_base),
            inspect_at: Instant::now() + config.pace.inspect_first,
            inspected_at: Instant::now(),
            inspect_after: config.pace.inspect_first * 2,
            identity: None,
            renew_at: now,
            servers: Servers::given(config.bootstrap.server.clone()),
            way: None,
            session: None,
            pace: HeartbeatConfig::default(),
            beat_at: Instant::now(),
            fingerprint_is_news: false,
            config,
            ground,
            workloads,
            tasks: Arc::new(tasks),
            facts,
            fingerprint,
        };
        if let Some(identity) = Identity::load(&agent.config.storage, &agent.config.bootstrap).await? {
            agent.take(identity);
        }
        Ok(agent)
    }

    async fn live(&mut self) -> Result<Infallible, AgentError> {
        loop {
            let node_id = self.config.bootstrap.node_id;
            let (reason, cap) = match self.one_connection().await {
                Ok(never) => match never {},
                Err(Trouble::Final(error)) => return Err(error),
                Err(Trouble::Passing(reason)) => (reason, self.config.pace.backoff_cap),
                Err(Trouble::Refused(reason)) => (reason, self.config.pace.refused_cap),
            };
            let wait = self.backoff.failed(cap, (self.ground.chance)());
            info!(%node_id, reason, wait_ms = wait.as_millis(), "trying again");
            tokio::time::sleep(wait).await;
        }
    }

    /// Enrols if there is no identity, connects, and beats until something goes wrong.
    async fn one_connection(&mut self) -> Result<Infallible, Trouble> {
        let identity = match self.identity.clone() {
            Some(identity) if identity.is_valid(self.ground.clock.now()) => identity,
            Some(_) | None => self.enroll().await?,
        };
        let mut identity = identity;
        let (mut link, mut replace_at) = self.open(&identity).await?;
        loop {
            if self.ground.clock.now() >= self.renew_at && self.renew(&mut link, &identity).await? {
                identity = self.identity.clone().unwrap_or(identity);
                replace_at = Instant::now();
            }
            if link.is_closing() || Instant::now() >= replace_at {
                // The new one stands before the old one goes: the server hears no gap.
                (link, replace_at) = self.open(&identity).await?;
            }
            self.beat(&mut link).await?;
            self.backoff.reset();
            tokio::time::sleep_until(self.beat_at).await;
        }
    }

    async fn enroll(&mut self) -> Result<Identity, Trouble> {
        let bootstrap = self.config.bootstrap.clone();
        let key = enrolment_key(&self.config.storage).await?;
        let request = EnrollRequest {
            node_id: bootstrap.node_id,
            token: bootstrap.token.clone(),
            csr_pem: certificate_request(&key)?,
            boot_id: self.workloads.boot_id(),
            agent_version: self.config.version.clone(),
            facts: self.facts.clone(),
        };
        let reach = Reach { server: self.servers.next(), ca_pem: &bootstrap.ca_pem, identity: None };
        let target = Target::new(&*self.ground.network, &reach);
        let timeout = self.config.pace.call_timeout;
        let mut link = self.link(target).await?;
        let enrolled: EnrollResponse = match link.call(ENROLL_PATH, &request, timeout).await {
            Ok(enrolled) => enrolled,
            Err(CallError::Refused(problem)) if is_any(&problem, &FINAL_FOR_TOKENS) => {
                return Err(Trouble::Final(AgentError::EnrolmentRefused(problem)));
            }
            Err(error) => {
                self.follow(&error);
                return Err(passing(error));
            }
        };
        let identity = Identity {
            node_id: enrolled.node_id,
            issued: enrolled.identity,
            key_pem: Secret::new(key.serialize_pem()),
            token_hash: token_hash(bootstrap.token.expose()),
        };
        identity.save(&self.config.storage).await?;
        self.config.storage.remove(Item::PendingKey).await?;
        self.pace = enrolled.heartbeat;
        info!(node_id = %identity.node_id, not_after = %identity.issued.not_after, "enrolled");
        self.take(identity.clone());
        Ok(identity)
    }

    fn take(&mut self, identity: Identity) {
        self.tasks.trust(&identity.issued.task_signing_keys, identity.issued.identity_epoch);
        self.renew_at = identity.renew_at((self.ground.chance)());
        self.identity = Some(identity);
    }

    /// A connection as `identity`, and when to replace it.
    async fn open(&mut self, identity: &Identity) -> Result<(Link, Instant), Trouble> {
        let target = self.target(identity);
        let link = self.link(target).await?;
        let life = self.config.pace.link_life;
        Ok((link, Instant::now() + life - (life / 5).mul_f64((self.ground.chance)())))
    }

    /// A connection to a server; after one that does not answer another one is next, where another one is known.
    async fn link(&mut self, target: Result<Target, AgentError>) -> Result<Link, Trouble> {
        let opened = match target {
            Ok(target) => Link::open(&target, self.config.pace.call_timeout).await.map_err(passing),
            // One that was named to it is not the only one that there is.
            Err(error) if self.servers.next() != self.config.bootstrap.server => {
                Err(Trouble::Passing(error.to_string()))
            }
            Err(error) => Err(Trouble::Final(error)),
        };
        if opened.is_err() {
            self.servers.unreachable();
        }
        opened
    }

    fn target(&mut self, identity: &Identity) -> Result<Target, AgentError> {
        let server = self.servers.next();
        let certificate_pem = &identity.issued.certificate_pem;
        if let Some(way) = self.way.as_ref().filter(|w| w.server == server && w.certificate_pem == *certificate_pem) {
            return Ok(way.target.clone());
        }
        let reach = Reach { server, ca_pem: &identity.issued.ca_bundle_pem, identity: Some(identity.shown()) };
        let target = Target::new(&*self.ground.network, &reach)?;
        let (server, certificate_pem) = (server.to_owned(), certificate_pem.clone());
        self.way = Some(Way { server, certificate_pem, target: target.clone() });
        self.tasks.reach(target.clone());
        Ok(target)
    }

    /// Renews the certificate; false when that did not work and will be tried later.
    async fn renew(&mut self, link: &mut Link, identity: &Identity) -> Result<bool, Trouble> {
        let key = new_key()?;
        let request = RenewRequest { csr_pem: certificate_request(&key)? };
        let path = renew_path(identity.node_id);
        match link.call::<RenewResponse>(&path, &request, self.config.pace.call_timeout).await {
            Ok(renewed) => {
                let renewed = Identity {
                    issued: renewed.identity,
                    key_pem: Secret::new(key.serialize_pem()),
                    ..identity.clone()
                };
                renewed.save(&self.config.storage).await?;
                info!(node_id = %identity.node_id, not_after = %renewed.issued.not_after, "certificate renewed");
                self.take(renewed);
                Ok(true)
            }
            Err(error) => {
                self.renew_at = identity.renew_again_at(self.ground.clock.now());
                warn!(node_id = %identity.node_id, %error, again_at = %self.renew_at, "certificate not renewed");
                Ok(false)
            }
        }
    }

    /// Opens a session, or does what comes before.
    async fn register(&mut self, link: &mut Link) -> Result<(), Trouble> {
        let request = RegisterRequest {
            boot_id: self.workloads.boot_id(),
            agent_version: self.config.version.clone(),
            facts: self.facts.clone(),
            fingerprint: self.fingerprint.clone(),
            health: self.ground.host.health().await,
            running: self.workloads.running(),
            ownership_epoch: self.workloads.ownership_epoch(),
        };
        let path = register_path(self.config.bootstrap.node_id);
        let registered: RegisterResponse =
            link.call(&path, &request, self.config.pace.call_timeout).await.map_err(|error| self.judge(error))?;
        // A partition must never leave one allocation running twice: the server counts on them being gone.
        let disowned = self.workloads.disown(&registered.stop_first).await;
        disowned.map_err(|error| Trouble::Passing(error.to_string()))?;
        let fenced = self.workloads.fence(registered.ownership_epoch).await;
        fenced.map_err(|error| Trouble::Passing(error.to_string()))?;
        let Some(session) = registered.session else { return Ok(()) };
        info!(node_id = %self.config.bootstrap.node_id, "registered");
        self.session = Some(Session { id: session, sequence: 0 });
        self.pace = registered.heartbeat;
        self.fingerprint_is_news = false;
        Ok(())
    }

    /// Sends one heartbeat, in a session that is opened first if there is none.
    async fn beat(&mut self, link: &mut Link) -> Result<(), Trouble> {
        self.inspect().await;
        self.workloads.sweep().await?;
        if self.session.is_none() {
            self.register(link).await?;
        }
        // Something had to be ended or learned first: the next round registers again.
        let Some(session) = &mut self.session else { return Ok(()) };
        session.sequence += 1;
        let request = HeartbeatRequest {
            session: session.id,
            sequence: session.sequence,
            health: self.ground.host.health().await,
            allocations: self.workloads.count(),
            fingerprint: self.fingerprint_is_news.then(|| self.fingerprint.clone()),
            agent_version: self.config.version.clone(),
            ended: self.workloads.ended(),
        };
        let wait_ms = self.pace.wait_ms.min(MAX_WAIT_MS);
        let path = heartbeat_path(self.config.bootstrap.node_id, wait_ms);
        let timeout = self.config.pace.call_timeout + Duration::from_millis(wait_ms);
        let started = Instant::now();
        match link.call::<HeartbeatResponse>(&path, &request, timeout).await {
            Ok(answer) => {
                self.fingerprint_is_news &= request.fingerprint.is_none();
                // One that brought tasks was answered before its time: the next task need not wait for the rest of it.
                let pause = match answer.tasks.is_empty() {
                    true => answer.next_interval_ms.clamp(MIN_INTERVAL_MS, MAX_INTERVAL_MS),
                    false => TASKS_INTERVAL_MS,
                };
                self.beat_at = started + Duration::from_millis(pause);
                if answer.holder.is_some() {
                    self.servers.hears(answer.holder);
                }
                self.workloads.told(&request.ended);
                self.hear(answer.task_signing_keys, &answer.tasks).await
            }
            Err(CallError::Refused(problem)) if is_any(&problem, &[Code::SessionUnknown, Code::HeartbeatReplayed]) => {
                let just_opened = request.sequence == 1;
                self.session = None;
                if just_opened {
                    // Something else ends the session as fast as it is opened: not a matter of registering again at once.
                    return Err(Trouble::Passing(problem.detail));
                }
                // The connection is fine: register and beat in the next round, without a wait.
                self.beat_at = Instant::now();
                Ok(())
            }
            Err(error) => Err(self.judge(error)),
        }
    }

    /// Takes in who may sign tasks, then the tasks.
    async fn hear(&mut self, keys: Vec<TaskKey>, tasks: &[Envelope]) -> Result<(), Trouble> {
        if let Some(identity) =
            self.identity.as_mut().filter(|one| !keys.is_empty() && one.issued.task_signing_keys != keys)
        {
            identity.issued.task_signing_keys = keys;
            identity.save(&self.config.storage).await?;
            self.tasks.trust(&identity.issued.task_signing_keys, identity.issued.identity_epoch);
            info!(node_id = %identity.node_id, "keys that sign tasks changed");
        }
        Ok(self.tasks.take(tasks).await?)
    }

    /// Looks at the hardware again when it is time; twice as long after each look, as drivers may come later than the agent.
    /// What changed is registered: the server judges a host by that.
    async fn inspect(&mut self) {
        let pace = &self.config.pace;
        // Who works on a host does so while nothing runs there, and it is judged by this when it is given back.
        let now = Instant::now();
        let is_idle = now >= self.inspected_at + pace.inspect_idle
            && self.workloads.count() == 0
            // A device that is being erased is not what it was, nor what it will be.
            && !self.tasks.is_at_one();
        let is_due = now >= self.inspect_at;
        if !is_due && !is_idle {
            return;
        }
        self.facts = self.ground.host.facts().await;
        let found = fingerprint(&self.facts);
        if found != self.fingerprint {
            self.session = None;
        }
        self.fingerprint = found;
        self.inspected_at = now;
        // What a look in between found to be the same is no news.
        if is_due {
            self.fingerprint_is_news = true;
            self.inspect_at = now + self.inspect_after.min(pace.inspect_every);
            self.inspect_after = (self.inspect_after * 2).min(pace.inspect_every);
        }
    }

    /// Goes where agents are heard, if that is elsewhere.
    fn follow(&mut self, error: &CallError) {
        if let CallError::Refused(problem) = error
            && problem.is(Code::StandsBy)
        {
            self.servers.hears(problem.holder.clone());
        }
    }

    fn judge(&mut self, error: CallError) -> Trouble {
        self.follow(&error);
        match error {
            CallError::Refused(problem) if is_any(&problem, &FINAL_FOR_IDENTITIES) => {
                if problem.is(Code::CertificateExpired) && self.identity.take().is_some() {
                    // The token may still be good; if it is not, its refusal ends the agent.
                    return Trouble::Passing("the certificate expired".into());
                }
                Trouble::Final(AgentError::IdentityRefused(problem))
            }
            CallError::Refused(_) | CallError::Transport(_) | CallError::TimedOut(_) => passing(error),
        }
    }
}

fn is_any(problem: &Problem, codes: &[Code]) -> bool {
    codes.iter().any(|code| problem.is(*code))
}

fn passing(error: CallError) -> Trouble {
    let reason = error.to_string();
    match error {
        CallError::Refused(problem) if problem.status < 500 => Trouble::Refused(reason),
        CallError::Refused(_) | CallError::Transport(_) | CallError::TimedOut(_) => Trouble::Passing(reason),
    }
}
