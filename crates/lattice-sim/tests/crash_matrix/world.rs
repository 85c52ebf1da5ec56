//! What outlives a server, and the servers that live in it one after another.

use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use lattice_controllers::{SecretWatch, Watched};
use lattice_core::actor::{Actor, Role};
use lattice_core::change::{Change, Commit, NodeAction, NodeChange, Outcome};
use lattice_core::command::agent::{Registration, enrolled, registered};
use lattice_core::command::job::{ActRefused, Asked, act};
use lattice_core::command::node::Known;
use lattice_core::command::{Planned, Refused, Request, agent};
use lattice_core::ids::{CorrelationId, Generation, IdSource, JobId, NodeId, OpId, RoceId, SiteId, uuid_v7};
use lattice_core::job::row::MANUAL_TOKEN_TTL;
use lattice_core::job::{Job, JobInput, JobStatus, NewJob, ParkedFor, allowed_node_statuses, flow_for};
use lattice_core::node::availability::AvailabilityEvent;
use lattice_core::node::class::HeartbeatPolicy;
use lattice_core::node::machine::Health;
use lattice_core::node::{Availability, Node, NodeClass, NodeState, OnboardingMode, Status};
use lattice_core::secret::{Secret, token_hash};
use lattice_core::site::{MaasPolicy, MaasSettings, MaasSite, RoceAssignment, RoceRow, Site, SiteProvider, SiteStatus};
use lattice_core::sku::Sku;
use lattice_core::time::{Clock, Timestamp};
use lattice_providers::machine::maas::follow::FollowLimits;
use lattice_providers::machine::maas::{ClientSettings, MaasClient, MaasObserver, Machine, RetryPolicy, SystemId};
use lattice_providers::secret::SecretStore;
use lattice_sim::maas::config::SiteConfig;
use lattice_sim::maas::faults::{Fault, MachineFault};
use lattice_sim::machine::hardware::NicRole;
use lattice_store::{Store, StoreConfig};
use lattice_workflow::bootstrap::BootstrapConfig;
use lattice_workflow::crash::Spoil;
use lattice_workflow::enrollment::{TokenFor, issue};
use lattice_workflow::runner::{Occasion, Runner, Turn, TurnError};
use lattice_workflow::tools::{Entropy, Limits, LiveWork, SiteCache, Tools};

use crate::life::{Death, Life};
use crate::region::{HandClock, Host, Lie, Reach, Region, Wire};
use crate::secrets::Memory;

/// When every world begins.
pub const START: Timestamp = Timestamp::from_millis(1_763_712_000_000);
/// Most turns of a job before it is taken for stuck.
const TURNS: u32 = 3_000;
/// How soon an agent that was refused comes again.
const AGENT_PAUSE: Duration = Duration::from_secs(30);

/// Ids and secrets that are the same in each run.
#[derive(Default)]
pub struct Counter(AtomicU64);

impl IdSource for Counter {
    fn uuid(&self, at: Timestamp) -> uuid::Uuid {
        let mut random = [3; 10];
        random[2..].copy_from_slice(&self.0.fetch_add(1, Ordering::SeqCst).to_be_bytes());
        uuid_v7(at, random)
    }
}

impl Entropy for Counter {
    fn bytes32(&self) -> [u8; 32] {
        let mut bytes = [7; 32];
        bytes[..8].copy_from_slice(&self.0.fetch_add(1, Ordering::SeqCst).to_be_bytes());
        bytes
    }
}

struct Idle;

#[async_trait]
impl LiveWork for Idle {
    async fn live_allocations(&self, _: NodeId) -> Option<u32> {
        Some(0)
    }
    async fn last_heard(&self, _: NodeId) -> Option<Timestamp> {
        None
    }
}

/// Which onboarding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Maas,
    Manual,
}

/// What outlives a server: the rows, the secrets, the region with its machines.
pub struct World {
    pub store: Store,
    pub region: Region,
    pub secrets: Arc<Memory>,
    pub site: Site,
    pub job: JobId,
    pub node: NodeId,
    label: String,
    lie: Lie,
    /// Deployments that faults rejected which are healed by now.
    rejected: AtomicU64,
    /// The stage that fails, while it does.
    spoil: Mutex<Option<Spoil>>,
    clock: Arc<HandClock>,
    ids: Arc<Counter>,
    sku: Sku,
}

/// How a job ended, or where it stopped.
pub struct Driven {
    pub job: Job,
    pub deaths: u32,
    /// Places that the last server passed.
    pub places: u64,
    /// Calls that the last server made in turns.
    pub calls: Vec<&'static str>,
}

enum Step {
    Sleeps(Timestamp),
    Ends,
    Dies,
}

/// A server that lives.
struct Server {
    runner: Runner,
    observer: Arc<MaasObserver>,
    life: Arc<Life>,
}

impl World {
    pub async fn open(kind: Kind) -> Self {
        Self::lying(kind, Lie::None).await
    }

    pub async fn lying(kind: Kind, lie: Lie) -> Self {
        Self::opened(kind, lie, |_| {}).await
    }

    /// With a site that is changed before the onboarding is accepted.
    pub async fn opened(kind: Kind, lie: Lie, change: impl FnOnce(&mut MaasSite)) -> Self {
        let clock = Arc::new(HandClock::at(START));
        let ids = Arc::new(Counter::default());
        let config = SiteConfig::dev(7, 1);
        let key = config.admin_key.joined();
        let region = Region::new(config, clock.clone());
        let hardware = region.with(|world| world.machines()[0].hardware.clone());
        let pxe = hardware.pxe_nic().unwrap().name.clone();
        let provider = match kind {
            Kind::Maas => {
                let mut site = maas_site(pxe);
                change(&mut site);
                SiteProvider::Maas(site)
            }
            Kind::Manual => SiteProvider::Manual,
        };
        let secrets = Arc::new(Memory::default());
        for (path, object) in [
            ("maas/token", vec![("token", key)]),
            ("maas/power", vec![("user", hardware.bmc.user.clone()), ("pass", hardware.bmc.password.clone())]),
            ("maas/deploy", vec![("pass", "hunter22-of-the-site".to_owned())]),
        ] {
            let object = object.into_iter().map(|(name, value)| (name.to_owned(), Secret::new(value))).collect();
            secrets.write(&path.parse().unwrap(), object).await.unwrap();
        }
        let mut world = Self {
            store: Store::open(StoreConfig::memory()).await.unwrap(),
            region,
            secrets,
            site: site(&ids, provider),
            job: JobId::generate(&*ids, START),
            node: NodeId::generate(&*ids, START),
            label: hardware.label.clone(),
            lie,
            rejected: AtomicU64::new(0),
            spoil: Mutex::new(None),
            clock,
            ids,
            sku: sku(hardware.gpus.len()),
        };
        let mut changes = vec![Change::Site(Box::new(world.site.clone())), Change::Sku(world.sku.clone())];
        if kind == Kind::Maas {
            let nics = hardware.nics.iter().filter(|nic| nic.role == NicRole::Roce).take(2);
            changes.extend(nics.enumerate().map(|(at, nic)| {
                let assignment = RoceAssignment {
                    hostname: hardware.label.clone(),
                    interface: nic.name.clone(),
                    ipv4_cidr: format!("{}/31", Ipv4Addr::new(172, 30, 9, 2 * at as u8 + 1)).parse().unwrap(),
                };
                Change::Roce(RoceRow::new(RoceId::generate(&*world.ids, START), world.site.id, assignment, START))
            }));
        }
        world.commit(changes).await;
        world.accept(kind, hardware.bmc.address.to_string()).await;
        world
    }

    /// Accepts the onboarding, as the server does.
    async fn accept(&mut self, kind: Kind, bmc: String) {
        let hostname = self.label.clone();
        let (status, mode, input) = match kind {
            Kind::Maas => (
                Status::Enrolling,
                OnboardingMode::Maas,
                JobInput::OnboardMaas {
                    hostname: hostname.clone(),
                    ipmi_ip: bmc.clone(),
                    pxe_mac: None,
                    settings: Box::new(settings(&self.site)),
                },
            ),
            Kind::Manual => (
                Status::BootstrapIssued,
                OnboardingMode::Manual,
                JobInput::OnboardManual { hostname: hostname.clone() },
            ),
        };
        let bmc_address = Some(bmc);
        let node = Node { bmc_address, ..new_node(self.node, self.site.id, hostname.clone(), (status, mode)) };
        let mut job = NewJob { node: &node, site: &self.site, input, batch: None }.build(&self.request("test"));
        let mut changes = Vec::new();
        if kind == Kind::Manual {
            let whose = TokenFor { node: self.node, job: job.id, now: START, life: MANUAL_TOKEN_TTL };
            let (row, secret) = issue(whose, &*self.ids, &*self.ids);
            job.outputs.token = Some(row.id);
            changes.push(Change::EnrollmentToken(row));
            let facts = self.region.with(|world| world.machines()[0].hardware.facts());
            let due = START + Duration::from_secs(45);
            let host = Host { label: hostname, node: self.node, token: secret, facts, boot_id: "1".to_owned(), due };
            self.region.comes_again(host, Duration::from_secs(45));
        }
        self.job = job.id;
        changes.push(Change::Node(Box::new(NodeChange {
            after: Node { owning_job: Some(job.id), ..node },
            before: None,
            action: NodeAction::Created,
            cause: "created".to_owned(),
            detail: String::new(),
        })));
        changes.push(job.created());
        self.commit(changes).await;
    }

    /// Arms a fault of the machine; without `hits` it stays until it is healed.
    pub fn machine_fault(&self, what: MachineFault, hits: Option<u32>) {
        self.arm(Fault::Machine { name: self.label.clone(), what }, hits);
    }

    fn arm(&self, fault: Fault, hits: Option<u32>) {
        self.region.with(|world| match hits {
            Some(hits) => world.faults().arm(fault, hits),
            None => world.faults().arm_permanently(fault),
        });
    }

    /// Keeps a secret of the site.
    pub async fn keep_secret(&self, path: &str, fields: &[(&str, &str)]) {
        let secret = |value: &str| Secret::new(value.to_owned());
        let object = fields.iter().map(|(name, value)| ((*name).to_owned(), secret(value))).collect();
        self.secrets.write(&path.parse().unwrap(), object).await.unwrap();
    }

    /// Everything works from now on, and agents come.
    pub fn heal(&self) {
        self.region.with(|world| {
            let armed = world.faults().all().to_vec();
            for one in &armed {
                if rejects_deployments(&one.fault) {
                    self.rejected.fetch_add(u64::from(one.hits), Ordering::SeqCst);
                }
                world.faults().heal(&one.fault);
            }
        });
        *self.spoil.lock().unwrap() = None;
        self.region.agents_come(Some(Duration::from_secs(5)));
    }

    /// From now on that stage fails.
    pub fn spoil(&self, spoil: Spoil) {
        *self.spoil.lock().unwrap() = Some(spoil);
    }

    /// Deployments that faults rejected.
    pub fn rejected(&self) -> u64 {
        let armed = self.region.with(|world| world.faults().all().to_vec());
        let now = armed.iter().filter(|one| rejects_deployments(&one.fault)).map(|one| u64::from(one.hits));
        self.rejected.load(Ordering::SeqCst) + now.sum::<u64>()
    }

    pub async fn job_row(&self) -> Job {
        self.store.job(self.job).await.unwrap().unwrap()
    }

    pub async fn node_row(&self) -> Node {
        self.store.node(self.node).await.unwrap().unwrap()
    }

    pub async fn commit(&self, changes: Vec<Change>) {
        let request = self.request("test");
        let commit: Commit = request.commit(Vec::new(), changes);
        let outcome = self.store.commit_one(commit).await.unwrap();
        assert!(matches!(outcome, Outcome::Applied { .. }), "{outcome:?}");
    }

    fn request(&self, who: &str) -> Request<'_> {
        let now = self.clock.now();
        Request {
            actor: Actor { name: who.to_owned(), role: Role::PlatformAdmin },
            reason: "test".to_owned(),
            now,
            ids: &*self.ids,
            op: OpId::generate(&*self.ids, now),
            correlation: CorrelationId::generate(&*self.ids, now),
        }
    }

    /// Does what an operator asks, as the server does; false when the job is there already.
    pub async fn operate(&self, asked: &Asked) -> Result<bool, ActRefused> {
        let (job, node) = (self.job_row().await, self.node_row().await);
        let Some(planned) = act(&self.request("operator"), &job, &node, &self.site, asked)? else { return Ok(false) };
        let outcome = self.store.commit_one(planned.commit).await.unwrap();
        assert!(matches!(outcome, Outcome::Applied { .. }), "{outcome:?}");
        Ok(true)
    }

    /// Drives the job until it is over or waits for a person. A server that dies is followed by another with no
    /// memory of it: the same one started again, or, every other time, one of another name that waits for the lease.
    pub async fn drive(&self, death: Death) -> Driven {
        let heir = match death {
            Death::AtPlace(number) | Death::AfterCall(number) if number % 2 == 1 => "lattice-2",
            Death::AtPlace(_) | Death::AfterCall(_) | Death::Never => "lattice-1",
        };
        let mut server = self.server(death, "lattice-1", false);
        let mut deaths = 0;
        for _ in 0..TURNS {
            self.agents_enrol().await;
            let step = self.step(&server).await;
            self.check_pair().await;
            match step {
                Step::Sleeps(until) => self.pass_time(until),
                Step::Dies => {
                    deaths += 1;
                    server = self.server(Death::Never, heir, true);
                    // A server that starts takes up what is to be driven, and leaves alone what waits for a person.
                    if self.job_row().await.state.status.is_failed() {
                        return Driven { job: self.job_row().await, deaths, places: 0, calls: Vec::new() };
                    }
                }
                Step::Ends => {
                    let (places, calls) = (server.runner.tools().crash.passed(), server.life.calls());
                    return Driven { job: self.job_row().await, deaths, places, calls };
                }
            }
        }
        panic!("{death:?}: the job does not end: {:?}", self.job_row().await.state)
    }

    /// Drives the job, of whose server nothing dies, until `holds` of its row.
    pub async fn drive_until(&self, holds: impl Fn(&Job) -> bool) -> Job {
        let server = self.server(Death::Never, "lattice-1", false);
        for _ in 0..TURNS {
            let job = self.job_row().await;
            if holds(&job) {
                return job;
            }
            self.agents_enrol().await;
            match self.step(&server).await {
                Step::Sleeps(until) => self.pass_time(until),
                Step::Ends | Step::Dies => return self.job_row().await,
            }
        }
        panic!("never: {:?}", self.job_row().await.state)
    }

    /// Somebody does something with the machine in MAAS.
    pub async fn meddle(&self, operation: &str) {
        let system_id = self.job_row().await.outputs.provider_ref.expect("a machine");
        self.meddle_with(&system_id, operation);
    }

    /// The same, with that machine.
    pub fn meddle_with(&self, system_id: &str, operation: &str) {
        self.region.meddle(system_id, operation, &SiteConfig::dev(7, 1).admin_key);
    }

    /// The job's machine as MAAS describes it.
    pub async fn machine(&self, system_id: &str) -> Machine {
        let server = self.server(Death::Never, "looker", false);
        server.observer.client().machine(&system_id.parse().unwrap()).await.unwrap().expect("it is there")
    }

    /// One look of a server that starts now at its secret store.
    pub async fn watch_secrets(&self) -> Watched {
        let ids: Arc<dyn IdSource> = self.ids.clone();
        let mut watch = SecretWatch::new(self.store.clone(), self.secrets.clone(), ids, "lattice-1".to_owned());
        watch.tick(self.clock.now()).await.unwrap()
    }

    /// Lets time pass without a server's turn; agents come meanwhile.
    pub async fn let_pass(&self, time: Duration) {
        self.clock.set(self.clock.now() + time);
        self.agents_enrol().await;
    }

    fn server(&self, death: Death, name: &str, is_second: bool) -> Server {
        let life = Arc::new(Life::new(death, is_second));
        let wire = Wire { region: self.region.clone(), life: life.clone(), lie: self.lie };
        let settings = ClientSettings {
            nonce_prefix: self.ids.uuid(self.clock.now()).simple().to_string(),
            retry: RetryPolicy { first_pause: Duration::ZERO, ..RetryPolicy::default() },
        };
        let key = Secret::new(SiteConfig::dev(7, 1).admin_key.joined());
        let client = MaasClient::new(&key, settings, Arc::new(wire), self.clock.clone()).unwrap();
        let observer = Arc::new(MaasObserver::new(Arc::new(client), FollowLimits::default()));
        let reach = Reach { region: self.region.clone(), observer: observer.clone(), life: life.clone() };
        let runner = Runner::new(Arc::new(Tools {
            store: self.store.clone(),
            clock: self.clock.clone(),
            ids: self.ids.clone(),
            entropy: self.ids.clone(),
            secrets: self.secrets.clone(),
            providers: Arc::new(reach),
            live_work: Arc::new(Idle),
            bootstrap: BootstrapConfig {
                server: "https://127.0.0.1:7443".to_owned(),
                ca_pem: "-----BEGIN CERTIFICATE-----\nx\n-----END CERTIFICATE-----\n".to_owned(),
                agent_url: "https://127.0.0.1:7443/agent".to_owned(),
                agent_sha256: Some("00ff".to_owned()),
                task_keys_pem: "KEY".to_owned(),
            },
            holder: name.to_owned(),
            limits: Limits::default(),
            crash: death.plan().spoiling(*self.spoil.lock().unwrap()),
            sites: SiteCache::default(),
        }));
        Server { runner, observer, life }
    }

    /// One look at the site and one turn, as the driver makes them when something happened.
    async fn step(&self, server: &Server) -> Step {
        let job = self.job_row().await;
        let machine = job.outputs.provider_ref.as_deref().and_then(|name| name.parse::<SystemId>().ok());
        if let Some(machine) = machine.filter(|_| job.state.status == JobStatus::Running) {
            // A look that failed is made again with the next turn.
            let _looked = server.observer.poll(&[machine]).await;
        }
        server.life.turn_runs(true);
        let turn = tokio::select! {
            biased;
            ended = server.runner.turn(self.job, Occasion { woken: true, permitted: true }) => ended,
            () = server.life.died() => return Step::Dies,
        };
        server.life.turn_runs(false);
        match turn {
            Ok(Turn::Sleep { until, .. } | Turn::Held { until }) => Step::Sleeps(until),
            Ok(Turn::Over { .. } | Turn::Parked { why: ParkedFor::Operator, .. }) => Step::Ends,
            Err(TurnError::Crashed(_)) => Step::Dies,
            Ok(turn @ (Turn::Parked { .. } | Turn::Missing)) => panic!("{turn:?}"),
            Err(other) => panic!("{other}"),
        }
    }

    /// Until the job is due, or something happens in the region before.
    fn pass_time(&self, until: Timestamp) {
        let next = self.region.next_due().map_or(until, |due| due.min(until));
        self.clock.set(next.max(self.clock.now() + Duration::from_millis(1)));
    }

    /// The node stands where the job's status allows it, after every turn and every death. spec: S2 4.3, 5.3
    async fn check_pair(&self) {
        let (job, node) = (self.job_row().await, self.node_row().await);
        let flow = flow_for(&job.input, &self.site);
        let allowed = allowed_node_statuses(flow.name, job.state.status);
        let is_out = job.state.status.is_terminal() && node.owning_job != Some(job.id);
        assert!(
            allowed.contains(&node.state.status) || is_out && node.state.status == Status::Offline,
            "{} beside a job that is {}: {:?}",
            node.state,
            job.state.status,
            job.state
        );
    }

    /// What the server does when agents come: they enrol with their token and register.
    async fn agents_enrol(&self) {
        for host in self.region.take_due() {
            if !self.enrols(&host).await {
                self.region.comes_again(host, AGENT_PAUSE);
            }
        }
        for label in self.region.take_returned() {
            self.returns(&label).await;
        }
    }

    /// The agent of a system that booted again registers.
    async fn returns(&self, label: &str) {
        let facts = self.region.with(|world| world.hardware(label).unwrap().facts());
        let registration = Registration {
            facts: &facts,
            fingerprint: "fingerprint",
            boot_id: "another boot",
            agent_version: "1.0.0",
            ecc_uncorrected: 0,
            minor_issue: None,
            address: None,
        };
        let node = self.node_row().await;
        let chained = registered(&self.request("agent"), &node, &self.sku, &registration, Duration::from_secs(600));
        self.commit_all(chained).await;
    }

    /// The node's heartbeat is lost.
    pub async fn lose(&self) {
        for event in [AvailabilityEvent::HeartbeatMissed, AvailabilityEvent::GraceExpired] {
            let node = self.node_row().await;
            let verdict = agent::Verdict { event, detail: String::new(), placed: &[], braked_until: None };
            self.commit_all(agent::judged(&self.request("detector"), &node, verdict)).await;
        }
    }

    /// Asks for a reboot, as the server does; its job is driven from now on.
    pub async fn reboot(&mut self) {
        self.asked(|known, request| lattice_core::command::node::reboot(known, request, None)).await;
    }

    /// Asks for a reimage, in the same way.
    pub async fn reimage(&mut self) {
        use lattice_core::command::node::{Image, reimage};
        self.asked(|known, request| reimage(known, request, Image::default())).await;
    }

    async fn asked(&mut self, ask: impl FnOnce(&Known, &Request) -> Result<Planned, Refused>) {
        let node = self.node_row().await;
        let known = Known {
            node: &node,
            job: None,
            health: Health::NotReported,
            live_allocations: 0,
            site: &self.site,
            placed: &[],
            has_bmc: false,
        };
        let planned = ask(&known, &self.request("operator")).unwrap();
        let job = planned.job.expect("a job does it");
        let outcome = self.store.commit_one(planned.commit).await.unwrap();
        assert!(matches!(outcome, Outcome::Applied { .. }), "{outcome:?}");
        self.job = job;
    }

    async fn enrols(&self, host: &Host) -> bool {
        let now = self.clock.now();
        let hash = token_hash(host.token.expose());
        let token = self.store.enrollment_token_by_hash(&hash).await.unwrap().expect("it was issued before its boot");
        if token.check(host.node, now).is_err() {
            return false;
        }
        let boot_timeout = Duration::from_secs(600);
        let first = enrolled(&self.request("agent"), &self.node_row().await, &token, &host.boot_id, boot_timeout);
        self.commit_all(first).await;
        let registration = Registration {
            facts: &host.facts,
            fingerprint: "fingerprint",
            boot_id: &host.boot_id,
            agent_version: "1.0.0",
            ecc_uncorrected: 0,
            minor_issue: None,
            address: None,
        };
        let node = self.node_row().await;
        self.commit_all(registered(&self.request("agent"), &node, &self.sku, &registration, boot_timeout)).await;
        true
    }

    async fn commit_all(&self, chained: agent::Chained) {
        for outcome in self.store.commit(chained.commits).await.unwrap() {
            assert!(matches!(outcome, Outcome::Applied { .. }), "{outcome:?}");
        }
    }
}

fn rejects_deployments(fault: &Fault) -> bool {
    match fault {
        Fault::Machine { what, .. } | Fault::EveryMachine { what } => *what == MachineFault::DeployRejected,
        Fault::Site { .. } => false,
    }
}

fn sku(gpus: usize) -> Sku {
    Sku {
        name: "any".to_owned(),
        gpus: gpus as u32,
        gpu_vendor: None,
        gpu_model: None,
        nics: Vec::new(),
        disks: Vec::new(),
        created_at: START,
        updated_at: START,
        generation: Generation::FIRST,
    }
}

fn settings(site: &Site) -> MaasSettings {
    let SiteProvider::Maas(maas) = &site.provider else { panic!("a MAAS site") };
    MaasSettings::of(maas, None)
}

fn maas_site(pxe: String) -> MaasSite {
    MaasSite {
        api_base_url: "http://127.0.0.1:5240/MAAS".to_owned(),
        api_token_path: "maas/token".to_owned(),
        default_power_creds_path: "maas/power".to_owned(),
        deploy_password_path: "maas/deploy".to_owned(),
        pxe_iface: "ens19".to_owned(),
        pxe_vlan_vid: 0,
        node_pxe_iface: pxe.clone(),
        distro_series: "ubuntu/noble".to_owned(),
        architecture: "amd64/generic".to_owned(),
        deploy_user: "hpcadmin".to_owned(),
        deploy_ssh_iface: pxe,
        deploy_ssh_port: 22,
        upstream_dns_servers: vec!["1.1.1.1".to_owned()],
        policy: MaasPolicy::default(),
        default_profile_id: None,
    }
}

fn site(ids: &Counter, provider: SiteProvider) -> Site {
    Site {
        id: SiteId::generate(ids, START),
        name: "dc1".to_owned(),
        region_code: "eu".to_owned(),
        provider,
        heartbeat: HeartbeatPolicy::default(),
        bmc: lattice_core::bmc::BmcPolicy::default(),
        automation: lattice_core::site::AutomationPolicy::default(),
        brake: None,
        let_go_at: None,
        approved: Vec::new(),
        sensitive: lattice_core::site::SensitivePolicy::default(),
        status: SiteStatus::Active,
        created_at: START,
        updated_at: START,
        generation: Generation::FIRST,
    }
}

fn new_node(id: NodeId, site: SiteId, hostname: String, (status, mode): (Status, OnboardingMode)) -> Node {
    Node {
        id,
        hostname,
        site,
        sku: "any".to_owned(),
        class: NodeClass::Standard,
        mode,
        state: NodeState::new(status, Availability::Unknown),
        status_since: START,
        availability_since: START,
        down_cause: None,
        deadline: None,
        boot_failures: 0,
        drain_intent: false,
        minor_issue: None,
        identity_epoch: 1,
        boot_id: None,
        agent_version: None,
        fingerprint: None,
        deviates_since: None,
        labels: lattice_core::node::Labels::new(),
        address: None,
        bmc_address: None,
        provider_ref: None,
        owning_job: None,
        holds: Vec::new(),
        ownership: lattice_core::allocation::Ownership::default(),
        created_at: START,
        updated_at: START,
        generation: Generation::FIRST,
    }
}
