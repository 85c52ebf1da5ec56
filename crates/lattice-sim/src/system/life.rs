//! One life: a site is built, lived in, left alone, and looked at.

use std::sync::Arc;
use std::time::Duration;

use lattice_agent::Item;
use lattice_core::actor::{Actor, Role};
use lattice_core::bmc::{Bmc, BmcCause, BmcEndpoint, BmcPolicy, BmcWay, BreakerState, CipherSuite};
use lattice_core::change::{Change, Outcome};
use lattice_core::command::Request;
use lattice_core::credential::ApiToken;
use lattice_core::ids::{ApiTokenId, CorrelationId, Generation, OpId, SiteId};
use lattice_core::node::Node;
use lattice_core::node::class::HeartbeatPolicy;
use lattice_core::secret::{Secret, token_hash};
use lattice_core::site::{AutomationPolicy, LxdSite, SensitivePolicy, Site, SiteProvider, SiteStatus};
use lattice_core::sku::Sku;
use lattice_core::time::Clock;
use lattice_server::auth::new_token;
use lattice_server::plane::Pauses;
use lattice_store::{Store, StoreConfig};
use lattice_workflow::tools::Entropy;
use serde_json::json;

use super::cloud::Cloud;
use super::faults::Fault;
use super::ground::{Ground, Secrets, Weather};
use super::host::{GPUS, Host, later};
use super::luck::Luck;
use super::network::Network;
use super::operator::{Ask, Operator, post};
use super::rest;
use super::server::{Server, Servers};

/// Name of the site.
pub const SITE: &str = "sim";
/// How long nothing goes wrong before the end is looked at.
const REST: Duration = Duration::from_secs(30 * 60);
/// How much longer than anything may stand still nothing must move, for the end to come sooner.
const QUIET: Duration = Duration::from_secs(120);

/// One life.
pub struct LifeOf {
    ground: Arc<Ground>,
    cloud: Arc<Cloud>,
    network: Arc<Network>,
    store: Store,
    servers: Servers,
    server: Option<Server>,
    /// One that goes on beside it for a while: agents that are connected to it stay, all others find the newer one.
    elder: Option<(Server, tokio::time::Instant)>,
    /// When the next server starts, while there is none.
    server_due: tokio::time::Instant,
    operator: Arc<Operator>,
    luck: Luck,
    hosts: u64,
    most_hosts: u64,
    /// Nothing goes wrong any more.
    rests: bool,
}

impl LifeOf {
    /// Builds the site and starts the first server.
    ///
    /// # Errors
    /// What does not start though nothing went wrong yet.
    pub async fn begin(seed: u64, shows: bool) -> Result<Self, String> {
        let ground = Arc::new(Ground::new(seed, shows));
        let luck = Luck::new(seed, "life");
        let network = Arc::new(Network::new(&ground));
        let cloud = Arc::new(Cloud::new(&ground, &network));
        let store = Store::open(StoreConfig::memory()).await.map_err(|error| error.to_string())?;
        let token = found(&ground, &store, &luck).await?;
        let pauses = Pauses {
            detector: luck.millis(250, 2_000),
            allocator: luck.millis(1_000, 6_000),
            bootstraps: luck.millis(10_000, 60_000),
            bmcs: luck.millis(2_000, 10_000),
            tasks: luck.millis(1_000, 4_000),
        };
        let mut servers = Servers {
            ground: Arc::clone(&ground),
            cloud: Arc::clone(&cloud),
            network: Arc::clone(&network),
            store: store.clone(),
            secrets: Arc::new(Secrets::default()),
            pauses,
            started: 0,
        };
        let server = servers.start(None).await?;
        let operator = Arc::new(Operator::new(Arc::clone(&ground), token, Luck::new(seed, "operator")));
        // Some sites are large enough for a mass failure.
        let most_hosts = if luck.once_in(150) { 12 + luck.below(3) } else { 2 + luck.below(5) };
        let server_due = tokio::time::Instant::now();
        Ok(Self {
            ground,
            cloud,
            network,
            store,
            servers,
            server,
            elder: None,
            server_due,
            operator,
            luck,
            hosts: 0,
            most_hosts,
            rests: false,
        })
    }

    /// Lives through `steps`, then rests; what was found wrong.
    ///
    /// # Errors
    /// The simulation itself cannot go on.
    pub async fn live(mut self, steps: u64) -> Result<Arc<Ground>, String> {
        for _ in 0..self.most_hosts {
            self.onboard();
        }
        tokio::time::sleep(self.luck.millis(60_000, 180_000)).await;
        for step in 0..steps {
            let pause = match self.luck.below(20) {
                0 => self.luck.millis(60_000, 240_000),
                1..6 => self.luck.millis(5, 1_000),
                _ => self.luck.millis(500, 15_000),
            };
            tokio::time::sleep(pause).await;
            self.keep_server().await?;
            self.give_bmcs().await?;
            self.happens().await?;
            if !self.ground.all_wrong().is_empty() {
                self.ground.log.say(format!("stopped after step {step}"));
                return Ok(self.ground);
            }
        }
        self.rest().await?;
        Ok(self.ground)
    }

    /// Nothing goes wrong from here on; in the end everything must be in its place.
    async fn rest(&mut self) -> Result<(), String> {
        self.ground.log.say("rest");
        self.rests = true;
        self.ground.set_weather(Weather::default());
        self.network.heal();
        for host in self.cloud.hosts() {
            // Whatever the servers' clock says, that of a host that is well says the same.
            host.clock.jump(self.ground.clock.wrong_by());
            host.ail(0, None);
            host.set_broken(false);
            host.set_locked(false);
            host.set_disk_failing(false);
            host.switch_on();
            host.start_agent();
        }
        let until = tokio::time::Instant::now() + REST;
        while tokio::time::Instant::now() < until {
            self.keep_server().await?;
            self.reset_breakers().await?;
            tokio::time::sleep(Duration::from_secs(20)).await;
            if !self.ground.all_wrong().is_empty() {
                return Ok(());
            }
            // Whatever stands still for so long stands still.
            if self.ground.quiet_for() > rest::STUCK + QUIET && self.server.is_some() {
                break;
            }
        }
        let mut wrong = rest::at_rest(&self.ground, &self.cloud);
        wrong.extend(rest::replayed(&self.ground, &self.store).await.map_err(|error| error.to_string())?);
        wrong.into_iter().for_each(|what| self.ground.wrong(what));
        Ok(())
    }

    /// Somebody starts a server again, sooner or later.
    async fn keep_server(&mut self) -> Result<(), String> {
        let now = tokio::time::Instant::now();
        if let Some((elder, _)) = self.elder.take_if(|(elder, until)| !elder.life.lives() || now >= *until) {
            self.ground.log.say(format!("{} is gone", elder.life.name));
            elder.bury();
        }
        match self.server.take_if(|server| !server.life.lives()) {
            Some(dead) => {
                dead.bury();
                self.network.set_front(None);
                let outage = if self.luck.once_in(150) {
                    self.luck.millis(60_000, 400_000)
                } else {
                    self.luck.millis(0, 20_000)
                };
                self.server_due = now + outage;
            }
            None if self.server.is_none() && now >= self.server_due => {
                if !self.rests && self.luck.once_in(300) {
                    self.jump_clock();
                }
                self.server = self.servers.start(self.elder.as_ref().map(|(elder, _)| elder)).await?;
            }
            None => {}
        }
        Ok(())
    }

    /// The clock of the servers is set: of the one that lives, or the next one has another than the one before.
    fn jump_clock(&self) {
        let by = i64::try_from(self.luck.below(600_000)).unwrap_or_default() - 300_000;
        let fault = if by > self.ground.clock.wrong_by() { Fault::ClockAhead } else { Fault::ClockBehind };
        self.ground.faults.befell(fault);
        self.ground.log.say(format!("the servers' clock is wrong by {by} ms"));
        self.ground.set_clock(by);
    }

    /// What was refused too often is tried again once an operator says so.
    async fn reset_breakers(&self) -> Result<(), String> {
        let nodes = self.ground.model().living_nodes();
        for (node, name) in nodes {
            let bmc = self.store.bmc(node).await.map_err(|error| error.to_string())?;
            if bmc.is_some_and(|bmc| bmc.breaker != BreakerState::Closed) {
                let (path, body) = (format!("nodes/{node}/bmc/reset-breaker"), json!({"reason": "its login is right"}));
                self.ask(Some(post(path, body, format!("reset the breaker of {name}"))));
            }
        }
        Ok(())
    }

    /// Something happens.
    async fn happens(&mut self) -> Result<(), String> {
        match self.luck.below(100) {
            0..42 => self.ask(None),
            42..49 => {
                let commits = self.luck.below(25);
                if let Some(server) = &self.server {
                    server.life.end_at_commit(commits);
                }
            }
            49..51 => {
                if let Some(server) = &self.server {
                    self.ground.log.say(format!("{} is killed", server.life.name));
                    server.life.end();
                }
            }
            51..55 => {
                let network = Arc::clone(&self.network);
                tokio::spawn(async move { network.replay().await });
            }
            55..57 => {
                let names: Vec<String> = self.cloud.hosts().iter().map(|host| host.name.clone()).collect();
                self.cut(&names);
            }
            57..59 if self.hosts < self.most_hosts + 3 => self.onboard(),
            57..62 => self.weather(),
            62 => self.jump_clock(),
            63 => self.start_another().await?,
            _ => {
                if let Some(host) = self.luck.pick(&self.cloud.hosts()) {
                    self.befalls(host).await;
                }
            }
        }
        Ok(())
    }

    /// A second server starts while the first one lives, as in an upgrade, or after the first one stood still.
    async fn start_another(&mut self) -> Result<(), String> {
        let lives = |server: &&Server| server.life.lives();
        if self.elder.is_some() || self.server.as_ref().filter(lives).is_none() {
            return Ok(());
        }
        if let Some(server) = self.servers.start(self.server.as_ref()).await? {
            self.ground.faults.befell(Fault::TwoServers);
            let until = tokio::time::Instant::now() + self.luck.millis(1_000, 180_000);
            self.elder = self.server.replace(server).map(|elder| (elder, until));
        }
        Ok(())
    }

    /// Something happens to one host.
    async fn befalls(&self, host: &Arc<Host>) {
        let (log, luck) = (&self.ground.log, &self.luck);
        match luck.below(47) {
            0..8 => self.kill_agent(host).await,
            8..12 => {
                log.say(format!("{} loses power", host.name));
                host.cut_power();
                later(host, luck.millis(1_000, 300_000), Host::switch_on);
            }
            12..15 => {
                log.say(format!("{} reboots", host.name));
                host.reboot();
            }
            15..24 => self.cut(std::slice::from_ref(&host.name)),
            24..27 => {
                let by = i64::try_from(luck.below(7_200_000)).unwrap_or_default() - 3_600_000;
                let by = if luck.once_in(400) { 0 } else { by };
                log.say(format!("{} clock is wrong by {by} ms", host.name));
                host.clock.jump(by);
            }
            27..31 => {
                if let (Some(hands), Some(one)) = (host.hands(), luck.pick(&host.running())) {
                    hands.end(*one);
                    log.say(format!("{} ends by itself on {}", one.allocation, host.name));
                }
            }
            31..35 => {
                let (lost, issue) = match luck.below(3) {
                    0 => (1, None),
                    1 => (0, Some("a fan is slow".to_owned())),
                    _ => (0, None),
                };
                log.say(format!("{} has {} GPUs, issue {issue:?}", host.name, GPUS - lost));
                host.ail(lost, issue);
            }
            35..37 => {
                let broken = !host.broken();
                log.say(format!("{} power supply broken: {broken}", host.name));
                host.set_broken(broken);
            }
            37..40 => {
                let locked = !host.is_locked();
                log.say(format!("{} BMC takes another login: {locked}", host.name));
                host.set_locked(locked);
            }
            40..44 => {
                log.say(format!("{} comes up with another system", host.name));
                host.renew();
            }
            _ => {
                log.say(format!("{} disk fails", host.name));
                host.set_disk_failing(true);
                later(host, luck.millis(500, 90_000), |host| host.set_disk_failing(false));
            }
        }
    }

    async fn kill_agent(&self, host: &Arc<Host>) {
        if host.kill_agent() {
            self.ground.log.say(format!("{} agent killed", host.name));
            for item in [Item::State, Item::Tasks] {
                if self.luck.once_in(150) {
                    let torn_at = self.luck.once_in(500).then(|| self.luck.bits());
                    host.spoil(item, torn_at).await;
                }
            }
        }
        later(host, self.luck.millis(500, 60_000), Host::start_agent);
    }

    fn weather(&self) {
        let luck = &self.luck;
        let some = |most: u64| if luck.once_in(400) { luck.below(most) } else { 0 };
        let weather = Weather {
            lost: some(300),
            late: some(300),
            doubled: some(300),
            provider: some(400),
            store: some(120),
            unknown: some(500),
            hosts: some(200),
        };
        self.ground.log.say(format!("weather: {weather:?}"));
        self.ground.set_weather(weather);
    }

    fn cut(&self, names: &[String]) {
        self.ground.log.say(format!("cut off: {}", names.join(" ")));
        names.iter().for_each(|name| self.network.cut(name, true));
        let pause =
            if self.luck.once_in(300) { self.luck.millis(120_000, 900_000) } else { self.luck.millis(1_000, 120_000) };
        let (names, network, ground) = (names.to_vec(), Arc::clone(&self.network), Arc::clone(&self.ground));
        tokio::spawn(async move {
            tokio::time::sleep(pause).await;
            ground.log.say(format!("heard again: {}", names.join(" ")));
            names.iter().for_each(|name| network.cut(name, false));
        });
    }

    fn onboard(&mut self) {
        self.hosts += 1;
        let hostname = format!("n{:02}", self.hosts);
        let class = if self.luck.once_in(250) { "sensitive" } else { "standard" };
        let body =
            json!({"site_id": SITE, "sku_id": "sim", "hostname": hostname, "class": class, "reason": "a new host"});
        self.ask(Some(post("onboardings".to_owned(), body, format!("onboard {hostname}"))));
    }

    /// Asks for something, or for whatever comes to mind; nobody waits for the answer.
    fn ask(&self, what: Option<Ask>) {
        let Some(server) = self.server.as_ref().filter(|server| server.life.lives()) else { return };
        let Some(what) = what.or_else(|| self.operator.whim()) else { return };
        let (router, operator, life) = (server.router(), Arc::clone(&self.operator), Arc::clone(&server.life));
        tokio::spawn(async move {
            if life.lives() {
                operator.ask(router, what).await;
            }
        });
    }

    /// Every other host has a BMC, set as soon as its node is there.
    async fn give_bmcs(&self) -> Result<(), String> {
        let nodes: Vec<_> = {
            let model = self.ground.model();
            let has_one = |name: &str| name.ends_with(['2', '4', '6', '8']);
            let of = |node: &Node| (node.id, node.site, node.hostname[1..].parse().unwrap_or(0_u8));
            model.nodes.values().filter(|node| has_one(&node.hostname)).map(of).collect()
        };
        for (node, site, place) in nodes {
            if self.store.bmc(node).await.map_err(|error| error.to_string())?.is_some() {
                continue;
            }
            let bmc = Bmc {
                node,
                site,
                endpoint: BmcEndpoint {
                    address: [10, 0, 0, place].into(),
                    port: None,
                    way: BmcWay::Ipmi { cipher: CipherSuite::Seventeen },
                    credential_path: "sim/bmc".to_owned(),
                },
                breaker: BreakerState::Closed,
                refusals: 0,
                set_at: self.ground.clock.now(),
                set_by: "sim".to_owned(),
                generation: Generation::FIRST,
            };
            commit(&self.ground, &self.store, vec![Change::Bmc { after: bmc, cause: BmcCause::Set }]).await?;
        }
        Ok(())
    }
}

/// What Lattice may do there by itself.
fn automation(luck: &Luck) -> AutomationPolicy {
    AutomationPolicy {
        auto_remediate: luck.once_in(600),
        remediate_after_ms: 30_000 + luck.below(120_000),
        max_unavailable_percent: luck.pick(&[0, 10, 25, 50]).copied().unwrap_or(10),
    }
}

/// Founds the site: its row, its SKU, and the token of its operators.
async fn found(ground: &Ground, store: &Store, luck: &Luck) -> Result<Secret<String>, String> {
    let now = ground.clock.now();
    let heartbeat = HeartbeatPolicy {
        // Shorter than a person would wait, so that a life has several boots.
        boot_timeout_ms: 300_000,
        brake: luck.once_in(850),
        ..HeartbeatPolicy::default()
    };
    ground.model().policy = heartbeat;
    let automation = automation(luck);
    ground.model().automation = automation;
    // Where it is not kept, no wipe of a host succeeds whose system runs from an NVMe drive.
    let keep_system_drive = luck.once_in(700);
    ground.model().keeps_system_drive = keep_system_drive;
    let site = Site {
        id: SiteId::generate(&*ground.ids, now),
        name: SITE.to_owned(),
        region_code: "sim".to_owned(),
        provider: SiteProvider::Lxd(LxdSite {
            api_url: "https://sim:8443".to_owned(),
            client_cert_path: "sim/cert".to_owned(),
            client_key_path: "sim/key".to_owned(),
            server_cert_path: "sim/server".to_owned(),
            project: "default".to_owned(),
            default_profile: "default".to_owned(),
            image: "sim".to_owned(),
            agent_binary: None,
            enrollment_timeout_ms: 240_000,
            enrollment_token_ttl_seconds: 7_200,
        }),
        heartbeat,
        bmc: BmcPolicy::default(),
        automation,
        brake: None,
        let_go_at: None,
        approved: Vec::new(),
        sensitive: SensitivePolicy { keep_system_drive, ..SensitivePolicy::default() },
        status: SiteStatus::Active,
        created_at: now,
        updated_at: now,
        generation: Generation::FIRST,
    };
    let sku = Sku {
        name: "sim".to_owned(),
        gpus: GPUS,
        gpu_vendor: None,
        gpu_model: None,
        nics: Vec::new(),
        disks: Vec::new(),
        created_at: now,
        updated_at: now,
        generation: Generation::FIRST,
    };
    let secret = new_token(ground.ids.bytes32());
    let token = ApiToken {
        id: ApiTokenId::generate(&*ground.ids, now),
        name: "operator".to_owned(),
        role: Role::PlatformAdmin,
        hash: token_hash(secret.expose()),
        issued_at: now,
        expires_at: None,
        revoked_at: None,
        generation: Generation::FIRST,
    };
    let changes = vec![Change::Site(Box::new(site)), Change::Sku(sku), Change::ApiToken(token)];
    commit(ground, store, changes).await?;
    Ok(secret)
}

async fn commit(ground: &Ground, store: &Store, changes: Vec<Change>) -> Result<(), String> {
    let now = ground.clock.now();
    let request = Request {
        actor: Actor { name: "founder".to_owned(), role: Role::PlatformAdmin },
        reason: String::new(),
        now,
        ids: &*ground.ids,
        op: OpId::generate(&*ground.ids, now),
        correlation: CorrelationId::generate(&*ground.ids, now),
    };
    match store.commit_one(request.commit(Vec::new(), changes)).await {
        Ok(Outcome::Applied { .. }) => Ok(()),
        Ok(other) => Err(format!("the world cannot be founded: {other:?}")),
        Err(error) => Err(error.to_string()),
    }
}
