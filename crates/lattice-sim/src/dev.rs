//! `lattice dev`: a server, its page and a simulated site in one process, from an empty directory.
//!
//! The site is set up and the machines are onboarded through the same HTTP API that everybody uses.

pub mod control;

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use lattice_agent::Pace;
use lattice_core::actor::Role;
use lattice_core::ids::{IdSource, JobId};
use lattice_core::job::StageName;
use lattice_core::node::{Availability, NodeState, Status};
use lattice_core::secret::Secret;
use lattice_core::site::SiteStatus;
use lattice_core::time::{Clock, Timestamp};
use lattice_core::webhook::address::AddressPolicy;
use lattice_server::agent_api::Limits;
use lattice_server::clock::{SystemClock, SystemIds};
use lattice_server::wiring::{Options, Server, StartError};
use lattice_store::{EventFilter, JobFilter, NodeFilter, NodeSort, PageRequest, Store, StoreConfig, StoreError};
use serde::Serialize;
use serde_json::{Value, json};

use crate::maas::config::SiteConfig;
use crate::maas::faults::{ArmedFault, Fault, SiteFault};
use crate::maas::handle::MaasHandle;
use crate::maas::mishaps::Mishaps;
use crate::maas::site::SimulatedSite;
use crate::machine::hardware::{Bmc, Hardware};
use crate::machine::real_agent::RealAgents;
use crate::scenario::{Scenario, SiteTrouble, Trouble};

/// The site's name.
const SITE: &str = "dev";
/// The SKU of the simulated machines.
const SKU: &str = "mi300x.192g.8gpu";

/// What to start.
pub struct DevConfig {
    /// How many simulated machines to onboard; none of a region that exists.
    pub nodes: u32,
    /// From here come all choices of the simulated site.
    pub seed: u64,
    /// What goes wrong.
    pub mishaps: Mishaps,
    /// A scenario instead: how many machines there are, what befalls them, and the policy of their site.
    pub scenario: Option<Scenario>,
    /// Where the data is kept; it must be empty or an earlier run's.
    pub data_dir: PathBuf,
    /// Where the API and the page listen.
    pub api_listen: SocketAddr,
    /// Where agents are served.
    pub agent_listen: SocketAddr,
    /// The agent's binary, for hosts that are bootstrapped by hand.
    pub agent_binary: Option<PathBuf>,
    /// A MAAS region that exists, instead of the simulated one.
    pub maas: Option<RealMaas>,
}

impl DevConfig {
    /// How many machines are simulated.
    pub fn machines(&self) -> u32 {
        self.scenario.as_ref().map_or(self.nodes, |scenario| scenario.nodes)
    }
}

/// A MAAS region that exists.
pub struct RealMaas {
    /// `http://10.176.46.1:5240/MAAS`.
    pub url: String,
    /// Its API key.
    pub key: Secret<String>,
}

impl RealMaas {
    /// The region at `url`, with an administrator's key `consumer:token:secret`.
    pub fn new(url: &str, key: String) -> Self {
        Self { url: url.to_owned(), key: Secret::new(key) }
    }
}

/// Why it does not start.
#[derive(Debug, thiserror::Error)]
pub enum DevError {
    /// The server does not start.
    #[error(transparent)]
    Server(#[from] StartError),
    /// A file or socket is not to be had.
    #[error("{what}")]
    Io {
        /// What was tried.
        what: String,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The API refused or did not answer.
    #[error("{what} was refused: {answer}")]
    Api {
        /// What was asked.
        what: String,
        /// What came back.
        answer: String,
    },
    /// The rows cannot be read.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Everything that runs.
pub struct Dev {
    server: Server,
    site: Option<SimulatedSite>,
    agents: Arc<RealAgents>,
    api: Api,
    token: Secret<String>,
    started_at: Timestamp,
    clock: Arc<dyn Clock>,
    wanted: u32,
}

/// How far the machines are.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Progress {
    /// How many were asked for.
    pub nodes: u32,
    /// How many are active and ready.
    pub active: u32,
    /// Seconds from the start until the first was.
    pub seconds_to_first: Option<f64>,
    /// Seconds from the start until all were.
    pub seconds_to_all: Option<f64>,
    /// Those that are not, with where they stand.
    pub waiting: Vec<Waiting>,
}

/// A node that is not active.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Waiting {
    /// Which.
    pub hostname: String,
    /// Where it stands.
    pub state: NodeState,
}

impl Dev {
    /// Starts everything and asks for the onboardings; returns as soon as they are accepted.
    ///
    /// # Errors
    /// [`DevError`].
    pub async fn start(config: DevConfig) -> Result<Self, DevError> {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let ids: Arc<dyn IdSource> = Arc::new(SystemIds);
        let started_at = clock.now();
        let server = Server::start(options(&config), Arc::clone(&clock), ids).await?;
        let token = server.issue_token("dev", Role::PlatformAdmin).await?;
        let api = Api { base: format!("http://{}", server.api), token: token.clone(), http: reqwest::Client::new() };
        let agents = Arc::new(RealAgents::new(Pace::default()));
        let site = match &config.maas {
            Some(real) => {
                let policy = json!({"poll_interval_ms": 250});
                api.add_site(SITE, &SiteRow { url: &real.url, key: &real.key, ssh_port: 22, policy }, None).await?;
                None
            }
            None => Some(simulate(&config, &api, &server.store, Arc::clone(&agents)).await?),
        };
        // Machines of a region that exists are onboarded by whoever knows their names and BMCs.
        let wanted = if site.is_some() { config.machines() } else { 0 };
        Ok(Self { server, site, agents, api, token, started_at, clock, wanted })
    }

    /// Where the API and the page are.
    pub const fn api(&self) -> SocketAddr {
        self.server.api
    }

    /// A token that may do everything.
    pub const fn token(&self) -> &Secret<String> {
        &self.token
    }

    /// The server's rows, for whoever tests in the same process.
    pub const fn server(&self) -> &Server {
        &self.server
    }

    /// The agents of the simulated machines.
    pub const fn agents(&self) -> &Arc<RealAgents> {
        &self.agents
    }

    /// The simulated region, unless a real one is used.
    pub fn region(&self) -> Option<&MaasHandle> {
        self.site.as_ref().map(|site| &site.handle)
    }

    /// For how long it has been running.
    pub fn running_for(&self) -> Duration {
        self.clock.now().since(self.started_at)
    }

    /// Names of the simulated machines, in rack order.
    pub fn labels(&self) -> Vec<String> {
        let machines = self.region().map(MaasHandle::machines).unwrap_or_default();
        machines.into_iter().map(|machine| machine.hardware.label).collect()
    }

    /// What the API explains about a job, as any client reads it.
    ///
    /// # Errors
    /// It does not answer.
    pub async fn explain_job(&self, job: JobId) -> Result<Value, DevError> {
        self.api.get(&format!("jobs/{job}/explain")).await
    }

    /// A person puts a site of the scenario right.
    ///
    /// # Errors
    /// The API refuses.
    pub async fn put_right(&self, trouble: SiteTrouble) -> Result<(), DevError> {
        let name = site_of(trouble);
        match (trouble, &self.site) {
            (SiteTrouble::SiteDisabled, _) => self.api.set_status(&name, SiteStatus::Active).await,
            (SiteTrouble::WithoutBmcLogin, Some(site)) => {
                let machines = site.handle.machines();
                let login = machines.first().map(|machine| BmcLogin::of(&machine.hardware.bmc));
                self.api.give_credentials(&name, &Secret::new(site.key.joined()), login).await
            }
            (SiteTrouble::WithoutBmcLogin, None) => Ok(()),
        }
    }

    /// How far the machines are.
    ///
    /// # Errors
    /// The rows cannot be read.
    pub async fn progress(&self, before: &Progress) -> Result<Progress, DevError> {
        let page = PageRequest::first(lattice_store::PAGE_MAX);
        let nodes = self.server.store.nodes(&NodeFilter::default(), NodeSort::Hostname, &page).await?.items;
        let ready = NodeState::new(Status::Active, Availability::Ready);
        let waiting: Vec<Waiting> = nodes
            .iter()
            .filter(|node| node.state != ready)
            .map(|node| Waiting { hostname: node.hostname.clone(), state: node.state })
            .collect();
        let active = u32::try_from(nodes.len() - waiting.len()).unwrap_or(u32::MAX);
        let seconds = self.running_for().as_secs_f64();
        Ok(Progress {
            nodes: self.wanted,
            active,
            seconds_to_first: before.seconds_to_first.or_else(|| (active > 0).then_some(seconds)),
            seconds_to_all: before.seconds_to_all.or_else(|| (active >= self.wanted).then_some(seconds)),
            waiting,
        })
    }

    /// Waits until all machines are active, or `timeout` is over; `seen` is told of each step.
    ///
    /// # Errors
    /// The rows cannot be read.
    pub async fn until_all_active(
        &self,
        timeout: Duration,
        mut seen: impl FnMut(&Progress),
    ) -> Result<Progress, DevError> {
        let deadline = self.started_at + timeout;
        let mut follower = self.server.store.follow();
        let mut progress = Progress::none(self.wanted);
        loop {
            let last = self.server.store.last_event().await?;
            progress = self.progress(&progress).await?;
            seen(&progress);
            let rest = deadline.since(self.clock.now());
            if progress.seconds_to_all.is_some() || rest.is_zero() {
                return Ok(progress);
            }
            // An elapsed wait is judged at the top, with the rows as they are then.
            let _woken = tokio::time::timeout(rest, follower.after(last)).await;
        }
    }

    /// The latest events, for people who watch.
    ///
    /// # Errors
    /// The rows cannot be read.
    pub async fn latest(&self, limit: usize) -> Result<Vec<lattice_store::Event>, DevError> {
        Ok(self.server.store.latest_events(&EventFilter::default(), limit).await?)
    }

    /// Cuts the machines' power and stops the server.
    pub async fn stop(self) {
        if let Some(site) = self.site {
            site.stop().await;
        }
        self.server.stop().await;
    }
}

impl Progress {
    /// Nothing yet.
    pub const fn none(nodes: u32) -> Self {
        Self { nodes, active: 0, seconds_to_first: None, seconds_to_all: None, waiting: Vec::new() }
    }
}

fn options(config: &DevConfig) -> Options {
    Options {
        store: StoreConfig::sqlite(config.data_dir.join("lattice.db")),
        secrets_dir: config.data_dir.clone(),
        secrets_key: config.data_dir.join("secrets.key"),
        api_listen: config.api_listen,
        agent_listen: config.agent_listen,
        agent_url: None,
        given_url: None,
        agent_binary: config.agent_binary.clone(),
        agent_names: vec!["127.0.0.1".to_owned(), "localhost".to_owned()],
        name: "dev".to_owned(),
        webhooks: AddressPolicy::of_trials(),
        // Each agent opens its next connection before it closes the last.
        agent_limits: Limits { connections: 100 + 2 * config.machines() as usize, ..Limits::default() },
        ..Options::default()
    }
}

async fn simulate(
    config: &DevConfig,
    api: &Api,
    store: &Store,
    agents: Arc<RealAgents>,
) -> Result<SimulatedSite, DevError> {
    let region = SiteConfig::dev(config.seed, config.machines());
    let mishaps: Vec<ArmedFault> = match &config.scenario {
        Some(scenario) => scenario.faults(&region.population),
        None => config.mishaps.faults(config.seed, &region.population).all().to_vec(),
    };
    let machines = region.population.machines.clone();
    let anywhere = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let io = |source| DevError::Io { what: "the simulated site cannot listen".to_owned(), source };
    let ssh_port = free_port().map_err(io)?;
    let site = SimulatedSite::start(region, anywhere, agents, ssh_port).await.map_err(io)?;
    let Some(login) = machines.first().map(|first| BmcLogin::of(&first.bmc)) else { return Ok(site) };
    let key = Secret::new(site.key.joined());
    let policy = config.scenario.as_ref().map_or_else(|| json!({"poll_interval_ms": 250}), |it| json!(it.policy));
    let row = SiteRow { url: &site.url, key: &key, ssh_port, policy };
    api.add_site(SITE, &row, Some(login)).await?;
    api.add_sku().await?;
    let troubled = |index: usize| match config.scenario.as_ref()?.mishap(index)?.fault {
        Trouble::Site(trouble) => Some(trouble),
        Trouble::Machine(_) => None,
    };
    for (index, machine) in machines.iter().enumerate() {
        let Some(trouble) = troubled(index) else { continue };
        api.add_site(&site_of(trouble), &row, (trouble != SiteTrouble::WithoutBmcLogin).then_some(login)).await?;
        onboard_at_troubled_site(api, store, &site, machine, trouble).await?;
    }
    // Only now: a site that fails while its credentials are tried is refused, as it should be.
    for armed in mishaps {
        site.handle.arm(armed.fault, armed.heals_after);
    }
    for (_, machine) in machines.iter().enumerate().filter(|(index, _)| troubled(*index).is_none()) {
        api.onboard(SITE, machine).await?;
    }
    Ok(site)
}

/// The name of the site that a trouble befalls.
fn site_of(trouble: SiteTrouble) -> String {
    format!("{SITE}-{}", <&'static str>::from(trouble).replace('_', "-"))
}

/// While the region is silent no job gets past its preflight: after the first attempt, the site is met disabled.
async fn onboard_at_troubled_site(
    api: &Api,
    store: &Store,
    site: &SimulatedSite,
    machine: &Hardware,
    trouble: SiteTrouble,
) -> Result<(), DevError> {
    let name = site_of(trouble);
    match trouble {
        SiteTrouble::WithoutBmcLogin => api.onboard(&name, machine).await,
        SiteTrouble::SiteDisabled => {
            let silent = Fault::Site { what: SiteFault::Down };
            site.handle.arm(silent.clone(), None);
            api.onboard(&name, machine).await?;
            api.set_status(&name, SiteStatus::Disabled).await?;
            tried_in_vain(store).await?;
            site.handle.heal(&silent);
            Ok(())
        }
    }
}

/// Waits until the only job that cannot do without the region has failed to reach it, or has met its disabled site.
async fn tried_in_vain(store: &Store) -> Result<(), DevError> {
    let filter = JobFilter { stage: Some(StageName::LoadSiteConfig), ..JobFilter::default() };
    let page = PageRequest::first(lattice_store::PAGE_MAX);
    let mut follower = store.follow();
    loop {
        let last = store.last_event().await?;
        for job in store.jobs(&filter, &page).await?.items {
            if store.job(job.id).await?.is_some_and(|job| job.state.failure.is_some()) {
                return Ok(());
            }
        }
        follower.after(last).await?;
    }
}

/// A port for the SSH servers of all simulated machines, each on a loopback address of its own: two sites on one host
/// must not share it, and 22 needs privileges.
fn free_port() -> std::io::Result<u16> {
    Ok(std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port())
}

/// The HTTP API, as any client uses it.
struct Api {
    base: String,
    token: Secret<String>,
    http: reqwest::Client,
}

/// A site over the simulated or the real region.
struct SiteRow<'a> {
    url: &'a str,
    key: &'a Secret<String>,
    ssh_port: u16,
    policy: Value,
}

/// The login of a BMC.
#[derive(Clone, Copy)]
struct BmcLogin<'a> {
    user: &'a str,
    pass: &'a str,
}

impl<'a> BmcLogin<'a> {
    fn of(bmc: &'a Bmc) -> Self {
        Self { user: &bmc.user, pass: &bmc.password }
    }
}

impl Api {
    async fn get(&self, path: &str) -> Result<Value, DevError> {
        let request = self.http.get(format!("{}/api/v1/admin/{path}", self.base)).bearer_auth(self.token.expose());
        let refused = |answer: String| DevError::Api { what: format!("GET {path}"), answer };
        let answer = request.send().await.and_then(reqwest::Response::error_for_status);
        answer.map_err(|error| refused(error.to_string()))?.json().await.map_err(|error| refused(error.to_string()))
    }

    async fn post(&self, path: &str, body: &Value) -> Result<(), DevError> {
        self.send(reqwest::Method::POST, path, body).await
    }

    async fn set_status(&self, site: &str, status: SiteStatus) -> Result<(), DevError> {
        self.send(reqwest::Method::PATCH, &format!("sites/{site}"), &json!({"status": status})).await
    }

    async fn send(&self, method: reqwest::Method, path: &str, body: &Value) -> Result<(), DevError> {
        let url = format!("{}/api/v1/admin/{path}", self.base);
        let refused = |answer: String| DevError::Api { what: format!("{method} {path}"), answer };
        let request = self.http.request(method.clone(), url).bearer_auth(self.token.expose());
        let answer = request.json(body).send().await.map_err(|error| refused(error.to_string()))?;
        if answer.status().is_success() {
            return Ok(());
        }
        let status = answer.status();
        let text = answer.text().await.unwrap_or_default();
        Err(refused(format!("{status} {text}")))
    }

    async fn add_site(&self, name: &str, row: &SiteRow<'_>, login: Option<BmcLogin<'_>>) -> Result<(), DevError> {
        let provider = json!({"kind": "maas", "api_base_url": row.url, "pxe_iface": "ens19", "pxe_vlan_vid": 0,
            "node_pxe_iface": "eno8303", "deploy_ssh_port": row.ssh_port, "policy": row.policy});
        self.post("sites", &json!({"name": name, "region_code": "dev", "provider": provider})).await?;
        self.give_credentials(name, row.key, login).await
    }

    /// A BMC login is never guessed: without one, the person adds that of a region that exists.
    async fn give_credentials(
        &self,
        site: &str,
        key: &Secret<String>,
        login: Option<BmcLogin<'_>>,
    ) -> Result<(), DevError> {
        let mut credentials = json!({"api_token": key.expose(),
            "deploy_password": SystemIds.uuid(SystemClock.now()).simple().to_string()});
        if let Some(BmcLogin { user, pass }) = login {
            credentials["power"] = json!({"user": user, "pass": pass});
        }
        self.post(&format!("sites/{site}/credentials"), &credentials).await
    }

    async fn onboard(&self, site: &str, machine: &Hardware) -> Result<(), DevError> {
        let body = json!({"site_id": site, "sku_id": SKU, "hostname": machine.label,
            "ipmi_ip": machine.bmc.address.to_string(), "reason": "lattice dev"});
        self.post("onboardings", &body).await
    }

    async fn add_sku(&self) -> Result<(), DevError> {
        let sku = json!({"name": SKU, "gpus": 8, "gpu_vendor": "amd", "gpu_model": "MI300X",
            "nics": [{"count": 8, "min_speed_mbps": 400_000}], "disks": [{"count": 4, "min_size_bytes": 7_000_000_000_000_u64}]});
        self.post("skus", &sku).await
    }
}
