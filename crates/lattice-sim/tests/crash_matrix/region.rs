//! The simulated region in virtual time, reached without a socket, with the systems on its machines and their agents.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue, RETRY_AFTER};
use lattice_core::ids::NodeId;
use lattice_core::node::HostFacts;
use lattice_core::secret::Secret;
use lattice_core::site::Site;
use lattice_core::time::{Clock, Timestamp};
use lattice_providers::error::{ErrorKind, ProviderError};
use lattice_providers::machine::maas::{self, MaasObserver, MaasRequest, MaasResponse, MaasTransport};
use lattice_providers::provider::CommandOutput;
use lattice_sim::maas::config::SiteConfig;
use lattice_sim::maas::faults::{Fault, MachineFault, SiteFault};
use lattice_sim::maas::oauth::{ApiKey, sign};
use lattice_sim::maas::wire::{Method, Params, Request, Response};
use lattice_sim::maas::world::{Boot, Effect, MaasWorld};
use lattice_sim::machine::system::System;
use lattice_workflow::providers::{InstanceHost, Providers, Shell, ShellTarget};

use crate::life::Life;

/// A clock that moves only when it is told to.
pub struct HandClock(AtomicI64);

impl HandClock {
    pub const fn at(start: Timestamp) -> Self {
        Self(AtomicI64::new(start.as_millis()))
    }

    pub fn set(&self, at: Timestamp) {
        self.0.fetch_max(at.as_millis(), Ordering::SeqCst);
    }
}

impl Clock for HandClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(self.0.load(Ordering::SeqCst))
    }
}

/// The first boot of a host, and what it was given for its agent.
#[derive(Clone)]
pub struct Host {
    pub label: String,
    pub node: NodeId,
    pub token: Secret<String>,
    pub facts: HostFacts,
    pub boot_id: String,
    pub due: Timestamp,
}

/// How the wire lies, to see that the checks of the matrix can fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lie {
    /// It does not.
    None,
    /// Each deploy is sent twice: a client that repeats what it must not.
    DeploysTwice,
    /// A second server does not see that a machine was deployed already: it deploys blindly.
    HidesDeployment,
}

/// The region and its machines; outlives every server.
#[derive(Clone)]
pub struct Region {
    pub clock: Arc<HandClock>,
    state: Arc<Mutex<State>>,
}

struct State {
    world: MaasWorld,
    /// By the address of the machine.
    systems: BTreeMap<IpAddr, (Boot, System)>,
    hosts: Vec<Host>,
    /// Systems that were there and booted again.
    returned: Vec<String>,
    /// How long after its boot an agent comes; none: never.
    agent_after: Option<Duration>,
    /// What strikes the region when it is called so, and how often.
    strike: Option<(String, SiteFault, u32)>,
    nonce: u64,
    deploys: u32,
    seed: u64,
}

fn jiff_time(at: Timestamp) -> jiff::Timestamp {
    jiff::Timestamp::from_millisecond(at.as_millis()).unwrap()
}

impl Region {
    pub fn new(config: SiteConfig, clock: Arc<HandClock>) -> Self {
        let state = State {
            seed: config.seed,
            world: MaasWorld::new(config),
            systems: BTreeMap::new(),
            hosts: Vec::new(),
            returned: Vec::new(),
            agent_after: Some(Duration::from_secs(5)),
            strike: None,
            nonce: 0,
            deploys: 0,
        };
        Self { clock, state: Arc::new(Mutex::new(state)) }
    }

    /// Looks at the region, or meddles with it, as it is now.
    pub fn with<T>(&self, look: impl FnOnce(&mut MaasWorld) -> T) -> T {
        let mut state = self.advanced();
        let result = look(&mut state.world);
        state.advance(self.clock.now());
        result
    }

    /// How long after its boot an agent comes from now on; none: never. Those who wait come, or stay away, accordingly.
    pub fn agents_come(&self, after: Option<Duration>) {
        let now = self.clock.now();
        let mut state = self.advanced();
        state.agent_after = after;
        for host in &mut state.hosts {
            host.due = after.map_or(Timestamp::from_millis(i64::MAX), |after| now + after);
        }
    }

    /// From the first call of that name on, the region suffers `what` for so many calls.
    pub fn strike_at(&self, call: &str, what: SiteFault, hits: u32) {
        self.lock().strike = Some((call.to_owned(), what, hits));
    }

    /// Hosts whose agents come now.
    pub fn take_due(&self) -> Vec<Host> {
        let now = self.clock.now();
        let mut state = self.advanced();
        let (due, later) = std::mem::take(&mut state.hosts).into_iter().partition(|host| host.due <= now);
        state.hosts = later;
        due
    }

    /// Systems that booted again since this was asked.
    pub fn take_returned(&self) -> Vec<String> {
        std::mem::take(&mut self.advanced().returned)
    }

    /// An agent that was refused comes again later.
    pub fn comes_again(&self, host: Host, after: Duration) {
        let due = self.clock.now() + after;
        self.lock().hosts.push(Host { due, ..host });
    }

    /// When something happens by itself next.
    pub fn next_due(&self) -> Option<Timestamp> {
        let state = self.advanced();
        let world = state.world.next_due().map(|at| Timestamp::from_millis(at.as_millisecond() + 1));
        world.into_iter().chain(state.hosts.iter().map(|host| host.due)).min()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    fn advanced(&self) -> MutexGuard<'_, State> {
        let mut state = self.lock();
        state.advance(self.clock.now());
        state
    }

    /// One call of a client.
    fn call(&self, name: &str, request: &Request) -> Response {
        let now = self.clock.now();
        let mut state = self.advanced();
        if let Some((_, what, hits)) = state.strike.take_if(|(call, _, _)| call == name) {
            state.world.faults().arm(Fault::Site { what }, hits);
        }
        if request.method == Method::Post && request.op() == Some("deploy") {
            state.deploys += 1;
        }
        let response = state.world.handle(request, jiff_time(now));
        state.advance(now);
        response
    }

    /// Somebody else's operation on a machine, by the region's own page: `release`, `commission`.
    pub fn meddle(&self, system_id: &str, operation: &str, key: &ApiKey) {
        let now = self.clock.now();
        let mut state = self.advanced();
        state.nonce += 1;
        let request = Request {
            method: Method::Post,
            path: format!("/MAAS/api/2.0/machines/{system_id}/"),
            query: Params::decode(&format!("op={operation}")),
            form: Params::decode("comment=by+hand"),
            raw: Vec::new(),
            authorization: Some(sign(key, &format!("meddler-{}", state.nonce), jiff_time(now).as_second())),
        };
        let answer = state.world.handle(&request, jiff_time(now));
        assert_eq!(answer.status, 200, "{operation}: {}", String::from_utf8_lossy(&answer.body));
        state.advance(now);
    }

    /// The first report of a hardware sync, with the key that lies on the host.
    fn sync(&self, key: &ApiKey) -> bool {
        let now = self.clock.now();
        let mut state = self.advanced();
        state.nonce += 1;
        let header = sign(key, &format!("machine-{}", state.nonce), jiff_time(now).as_second());
        let request = Request {
            method: Method::Post,
            path: "/MAAS/metadata/2012-03-01/".to_owned(),
            query: Params::decode("op=signal"),
            form: Params::decode("status=OK"),
            raw: Vec::new(),
            authorization: Some(header),
        };
        state.world.handle(&request, jiff_time(now)).status == 200
    }
}

impl State {
    fn advance(&mut self, now: Timestamp) {
        for effect in self.world.advance(jiff_time(now)) {
            match effect {
                Effect::Booted(boot) if boot.first => self.first_boot(boot, now),
                Effect::Booted(boot) => self.returned.push(boot.label),
                Effect::PoweredOff { label } => self.hosts.retain(|host| host.label != label),
                Effect::Wiped { label } => {
                    self.hosts.retain(|host| host.label != label);
                    self.systems.retain(|_, (boot, _)| boot.label != label);
                }
            }
        }
    }

    fn first_boot(&mut self, boot: Boot, now: Timestamp) {
        let (mut system, _) = System::install(&boot.user_data, &boot.hostname, self.seed).expect("a valid payload");
        let bootstrap = system.bootstrap().expect("the payload starts the agent").expect("a bootstrap");
        let facts = self.world.hardware(&boot.label).expect("a known machine").facts();
        let failed =
            [(MachineFault::SiteBootstrapFails, "site_bootstrap"), (MachineFault::AgentNeverStarts, "agent_bootstrap")];
        let names = [boot.label.as_str(), boot.system_id.as_str()];
        if let Some((_, layer)) = failed.into_iter().find(|(fault, _)| self.world.faults().strikes(*fault, &names)) {
            system.layer_failed(layer);
            self.systems.insert(IpAddr::V4(boot.address), (boot, system));
            return;
        }
        self.hosts.push(Host {
            label: boot.label.clone(),
            node: bootstrap.node_id,
            token: bootstrap.token,
            facts,
            boot_id: format!("{}-{}", boot.system_id, boot.deployment),
            due: self.agent_after.map_or(Timestamp::from_millis(i64::MAX), |after| now + after),
        });
        self.systems.insert(IpAddr::V4(boot.address), (boot, system));
    }
}

/// One server's connection to the region; it breaks off when the server dies.
pub struct Wire {
    pub region: Region,
    pub life: Arc<Life>,
    pub lie: Lie,
}

#[async_trait]
impl MaasTransport for Wire {
    async fn send(&self, request: &MaasRequest) -> Result<MaasResponse, ProviderError> {
        let method = Method::parse(request.method.as_str()).expect("a method that MAAS has");
        let call = to_call(request, method);
        let mut answer = self.region.call(request.call, &call);
        if self.lie == Lie::DeploysTwice && call.op() == Some("deploy") {
            self.region.call(request.call, &to_call(request, method));
        }
        self.region.clock.set(self.region.clock.now() + answer.delay.min(request.timeout));
        self.life.called(request.call).await;
        let failed = |kind| Err(ProviderError::new(format!("maas {}", request.call), kind));
        if answer.delay > request.timeout {
            return failed(ErrorKind::Timeout { limit: request.timeout });
        }
        if answer.dropped {
            return failed(ErrorKind::Ambiguous { detail: "the region closed the connection".to_owned() });
        }
        if self.lie == Lie::HidesDeployment && self.life.is_second() && self.region.lock().deploys < 2 {
            answer.body = deployed_as_ready(&answer.body);
        }
        Ok(to_answer(answer))
    }
}

fn deployed_as_ready(body: &[u8]) -> Vec<u8> {
    let text = String::from_utf8_lossy(body);
    text.replace("\"status\":9,", "\"status\":4,").replace("\"status\":6,", "\"status\":4,").into_bytes()
}

fn to_call(request: &MaasRequest, method: Method) -> Request {
    let pairs = |params: &maas::Params| {
        Params::new(params.iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect())
    };
    let authorization = request.headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok()).map(str::to_owned);
    Request {
        method,
        path: format!("/MAAS/api/2.0/{}", request.path),
        query: pairs(&request.query),
        form: pairs(&request.form),
        raw: Vec::new(),
        authorization,
    }
}

fn to_answer(answer: Response) -> MaasResponse {
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(answer.content_type));
    if let Some(seconds) = answer.retry_after_s {
        headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
    }
    let status = http::StatusCode::from_u16(answer.status).unwrap();
    MaasResponse { status, headers, body: Bytes::from(answer.body) }
}

/// What one server reaches: the region by its observer, hosts by their shell.
pub struct Reach {
    pub region: Region,
    pub observer: Arc<MaasObserver>,
    pub life: Arc<Life>,
}

#[async_trait]
impl Providers for Reach {
    async fn instances(&self, _: &Site) -> Result<Arc<dyn InstanceHost>, ProviderError> {
        Err(ProviderError::unusable("lxd", "there is none here"))
    }

    async fn maas(&self, _: &Site) -> Result<Arc<MaasObserver>, ProviderError> {
        Ok(self.observer.clone())
    }

    async fn shell(&self, target: &ShellTarget) -> Result<Box<dyn Shell>, ProviderError> {
        let address: IpAddr = target.address.parse().unwrap();
        let mut state = self.region.lock();
        let unreachable =
            |detail: &str| Err(ProviderError::new("ssh connect", ErrorKind::Unreachable { detail: detail.to_owned() }));
        let Some(label) = state.systems.get(&address).map(|(boot, _)| boot.label.clone()) else {
            return unreachable("no route to host");
        };
        if state.world.faults().strikes(MachineFault::SshRefused, &[&label]) {
            return unreachable("connection refused");
        }
        let Some((_, system)) = state.systems.get(&address) else { return unreachable("no route to host") };
        let shown = system.host_key().public_key().to_openssh().unwrap();
        let words = |key: &str| key.split(' ').take(2).map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(words(&shown), words(&target.host_key), "the host that answers is the one that was pinned");
        assert!(system.accepts_password(&target.user, target.password.expose()), "the login of the payload");
        drop(state);
        Ok(Box::new(HostShell {
            region: self.region.clone(),
            life: self.life.clone(),
            address,
            credentials: Mutex::default(),
        }))
    }
}

/// A connection to a host that knows the commands which seed the hardware sync.
struct HostShell {
    region: Region,
    life: Arc<Life>,
    address: IpAddr,
    credentials: Mutex<Option<ApiKey>>,
}

#[async_trait]
impl Shell for HostShell {
    async fn run(&self, command: &[&str], input: &Secret<String>, _: Duration) -> Result<CommandOutput, ProviderError> {
        let mut stdout = Vec::new();
        let is_done = match command {
            ["sudo", "-n", "cat", path] => {
                let state = self.region.lock();
                let file = state.systems.get(&self.address).and_then(|(_, system)| system.file(path));
                stdout = file.map(|file| file.content.clone()).unwrap_or_default();
                file.is_some()
            }
            ["sudo", "-n", "install", .., "/etc/maas/maas-machine-creds.yml"] => {
                *self.credentials.lock().unwrap() = Some(key_of(input.expose()));
                true
            }
            ["sudo", "-n", "systemctl", .., unit] if unit.contains("maas") => {
                let key = self.credentials.lock().unwrap().clone();
                key.is_some_and(|key| self.region.sync(&key))
            }
            other => panic!("no host understands {other:?}"),
        };
        self.life.called("ssh exec").await;
        let code = Some(i32::from(!is_done));
        Ok(CommandOutput { code, stdout, stderr: Vec::new(), truncated: false })
    }
}

fn key_of(text: &str) -> ApiKey {
    let find = |name: &str| {
        let line = text.lines().find_map(|line| line.trim().strip_prefix(name)?.strip_prefix(": "));
        serde_json::from_str(line.expect("a complete file")).expect("a quoted text")
    };
    ApiKey { consumer: find("consumer_key"), token: find("token_key"), secret: find("token_secret") }
}
