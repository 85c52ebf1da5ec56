//! A simulated site, the real driver, real clients over HTTP and SSH; agents come as their machines boot.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use lattice_core::actor::{Actor, Role};
use lattice_core::batch::BatchStatus;
use lattice_core::change::{Change, Commit, NodeAction, NodeChange, Outcome};
use lattice_core::command::Request;
use lattice_core::command::batch::{InUse, NewBatch, NewMachine, PlannedBatch, create};
use lattice_core::credential::EnrollmentToken;
use lattice_core::ids::{BatchId, CorrelationId, Generation, IdSource, JobId, NodeId, OpId, RoceId, SiteId, uuid_v7};
use lattice_core::job::{Job, JobInput, NewJob};
use lattice_core::node::availability::AvailabilityEvent;
use lattice_core::node::class::HeartbeatPolicy;
use lattice_core::node::machine::{Facts, Health, NodeEvent, decide};
use lattice_core::node::status::Owner;
use lattice_core::node::{Availability, Node, NodeClass, NodeState, OnboardingMode, Status};
use lattice_core::secret::{Secret, token_hash};
use lattice_core::site::{
    MaasPolicy, MaasSettings, MaasSite, RoceAssignment, RoceRow, Site, SiteProfile, SiteProvider, SiteStatus,
};
use lattice_core::sku::Sku;
use lattice_core::time::{Clock, Timestamp};
use lattice_providers::machine::maas::Machine;
use lattice_providers::secret::{SecretError, SecretObject, SecretPath, SecretStore};
use lattice_sim::clock::SystemClock;
use lattice_sim::maas::config::{SiteConfig, Timings};
use lattice_sim::maas::site::SimulatedSite;
use lattice_sim::machine::agent::{AgentLauncher, MachineBoot, RunningAgent};
use lattice_sim::machine::hardware::NicRole;
use lattice_store::{Store, StoreConfig};
use lattice_workflow::bootstrap::BootstrapConfig;
use lattice_workflow::crash::CrashPlan;
use lattice_workflow::driver::embedded::{DriverLimits, EmbeddedDriver, Waker};
use lattice_workflow::providers::Providers;
use lattice_workflow::runner::Runner;
use lattice_workflow::site_clients::SiteClients;
use lattice_workflow::tools::{Limits, LiveWork, SiteCache, SystemEntropy, Tools};
use tokio::net::TcpListener;
use tokio::sync::mpsc;

/// Longest wait for something that must happen; a busy machine may need some of it.
const PATIENCE: Duration = Duration::from_secs(90);

#[derive(Default)]
pub struct Ids(AtomicU64);

impl IdSource for Ids {
    fn uuid(&self, at: Timestamp) -> uuid::Uuid {
        let mut random = [3; 10];
        random[2..].copy_from_slice(&self.0.fetch_add(1, Ordering::Relaxed).to_be_bytes());
        uuid_v7(at, random)
    }
}

#[derive(Default)]
struct Memory(Mutex<BTreeMap<String, SecretObject>>);

#[async_trait]
impl SecretStore for Memory {
    async fn read(&self, path: &SecretPath) -> Result<SecretObject, SecretError> {
        let found = self.0.lock().unwrap().get(path.as_str()).cloned();
        found.ok_or_else(|| SecretError::NotFound { path: path.clone() })
    }
    async fn write(&self, path: &SecretPath, object: SecretObject) -> Result<(), SecretError> {
        self.0.lock().unwrap().insert(path.as_str().to_owned(), object);
        Ok(())
    }
    async fn delete(&self, path: &SecretPath) -> Result<(), SecretError> {
        self.0.lock().unwrap().remove(path.as_str());
        Ok(())
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

/// Hands each boot to whoever plays the agents.
struct Boots(mpsc::UnboundedSender<MachineBoot>);

struct Booted;

#[async_trait]
impl RunningAgent for Booted {
    async fn stop(self: Box<Self>) {}
}

#[async_trait]
impl AgentLauncher for Boots {
    async fn launch(&self, boot: MachineBoot) -> Result<Box<dyn RunningAgent>, String> {
        self.0.send(boot).map_err(|_| "nobody plays agents any more".to_owned())?;
        Ok(Box::new(Booted))
    }
    async fn wipe(&self, _: &str) {}
}

pub struct Datacenter {
    pub site: SimulatedSite,
    pub row: Site,
    pub store: Store,
    ids: Arc<Ids>,
    pub waker: Waker,
    secrets: Arc<dyn SecretStore>,
    providers: Arc<SiteClients>,
    driver: EmbeddedDriver,
    boots: mpsc::UnboundedReceiver<MachineBoot>,
}

impl Datacenter {
    pub async fn open(seed: u64, machines: u32) -> Self {
        let (sender, boots) = mpsc::unbounded_channel();
        let probe = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let ssh_port = probe.local_addr().unwrap().port();
        drop(probe);
        let config = SiteConfig { timings: Timings::dev().scaled(0.05), ..SiteConfig::dev(seed, machines) };
        let address = "127.0.0.1:0".parse().unwrap();
        let site = SimulatedSite::start(config, address, Arc::new(Boots(sender)), ssh_port).await.unwrap();
        let ids = Arc::new(Ids::default());
        let store = Store::open(StoreConfig::memory()).await.unwrap();
        let row = site_row(&site, &ids, ssh_port);
        let secrets: Arc<dyn SecretStore> = Arc::new(Memory::default());
        let bmc = site.handle.machines()[0].hardware.bmc.clone();
        for (path, object) in [
            ("maas/token", vec![("token", site.key.joined())]),
            ("maas/power", vec![("user", bmc.user), ("pass", bmc.password)]),
            ("maas/deploy", vec![("pass", "hunter22-of-the-site".to_owned())]),
        ] {
            let object = object.into_iter().map(|(name, value)| (name.to_owned(), Secret::new(value))).collect();
            secrets.write(&path.parse().unwrap(), object).await.unwrap();
        }
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let providers = Arc::new(SiteClients::new(Arc::clone(&secrets), Arc::clone(&clock), ids.clone()));
        let runner = Runner::new(Arc::new(Tools {
            store: store.clone(),
            clock,
            ids: ids.clone(),
            entropy: Arc::new(SystemEntropy),
            secrets: Arc::clone(&secrets),
            providers: Arc::clone(&providers) as Arc<dyn Providers>,
            live_work: Arc::new(Idle),
            bootstrap: BootstrapConfig {
                server: "https://127.0.0.1:7443".to_owned(),
                ca_pem: "-----BEGIN CERTIFICATE-----\nx\n-----END CERTIFICATE-----\n".to_owned(),
                agent_url: "https://127.0.0.1:7443/agent".to_owned(),
                agent_sha256: Some("00ff".to_owned()),
                task_keys_pem: "KEY".to_owned(),
            },
            holder: "lattice-1".to_owned(),
            limits: Limits::default(),
            crash: CrashPlan::never(),
            sites: SiteCache::default(),
        }));
        let driver = EmbeddedDriver::start(runner, DriverLimits::default());
        let waker = driver.waker();
        let world = Self { site, row, store, ids, waker, secrets, providers, driver, boots };
        world.commit(vec![Change::Site(Box::new(world.row.clone())), Change::Sku(any_sku())]).await;
        world
    }

    pub fn request(&self) -> Request<'_> {
        let now = SystemClock.now();
        Request {
            actor: Actor { name: "test".to_owned(), role: Role::PlatformAdmin },
            reason: "test".to_owned(),
            now,
            ids: &*self.ids,
            op: OpId::generate(&*self.ids, now),
            correlation: CorrelationId::generate(&*self.ids, now),
        }
    }

    pub async fn commit(&self, changes: Vec<Change>) {
        let commit = self.request().commit(Vec::new(), changes);
        let outcome = self.store.commit_one(commit).await.unwrap();
        assert!(matches!(outcome, Outcome::Applied { .. }), "{outcome:?}");
    }

    /// A fresh id's source and the time.
    pub fn now(&self) -> (&Ids, Timestamp) {
        (&self.ids, SystemClock.now())
    }

    /// Keeps a login at a path of the secret store.
    pub async fn keep_login(&self, path: &str, user: &str, password: &str) {
        let object = [("user", user), ("pass", password)];
        let object = object.map(|(name, value)| (name.to_owned(), Secret::new(value.to_owned())));
        self.secrets.write(&path.parse().unwrap(), object.into()).await.unwrap();
    }

    /// The machine of a job as MAAS describes it.
    pub async fn machine(&self, job: &Job) -> Machine {
        let id = job.outputs.provider_ref.as_ref().unwrap().parse().unwrap();
        let region = self.providers.maas(&self.row).await.unwrap();
        region.client().machine(&id).await.unwrap().unwrap()
    }

    /// Gives the `index`th machine its RoCE addresses: how many.
    pub async fn assign_roce(&self, index: usize) -> usize {
        let hardware = self.site.handle.machines()[index].hardware.clone();
        let nics = hardware.nics.iter().filter(|nic| nic.role == NicRole::Roce);
        let assignments: Vec<Change> = nics
            .enumerate()
            .map(|(at, nic)| {
                let assignment = RoceAssignment {
                    hostname: hardware.label.clone(),
                    interface: nic.name.clone(),
                    ipv4_cidr: format!("{}/31", Ipv4Addr::new(172, 30, index as u8, 2 * at as u8 + 1)).parse().unwrap(),
                };
                let now = SystemClock.now();
                Change::Roce(RoceRow::new(RoceId::generate(&*self.ids, now), self.row.id, assignment, now))
            })
            .collect();
        let count = assignments.len();
        self.commit(assignments).await;
        count
    }

    fn settings(&self, profile: Option<&SiteProfile>) -> MaasSettings {
        let SiteProvider::Maas(maas) = &self.row.provider else { panic!("a MAAS site") };
        MaasSettings::of(maas, profile)
    }

    /// Accepts the onboarding of the `index`th machine.
    pub async fn onboard(&self, index: usize) -> Job {
        self.onboard_with(index, None).await
    }

    /// The same with a profile.
    pub async fn onboard_with(&self, index: usize, profile: Option<&SiteProfile>) -> Job {
        let hardware = self.site.handle.machines()[index].hardware.clone();
        let now = SystemClock.now();
        let node = Node {
            id: NodeId::generate(&*self.ids, now),
            hostname: hardware.label.clone(),
            site: self.row.id,
            sku: "any".to_owned(),
            class: NodeClass::Standard,
            mode: OnboardingMode::Maas,
            state: NodeState::new(Status::Enrolling, Availability::Unknown),
            status_since: now,
            availability_since: now,
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
            bmc_address: Some(hardware.bmc.address.to_string()),
            provider_ref: None,
            owning_job: None,
            holds: Vec::new(),
            ownership: lattice_core::allocation::Ownership::default(),
            created_at: now,
            updated_at: now,
            generation: Generation::FIRST,
        };
        let input = JobInput::OnboardMaas {
            hostname: hardware.label,
            ipmi_ip: hardware.bmc.address.to_string(),
            pxe_mac: None,
            settings: Box::new(self.settings(profile)),
        };
        let job = NewJob { node: &node, site: &self.row, input, batch: None }.build(&self.request());
        let after = Node { owning_job: Some(job.id), ..node };
        let node = NodeChange {
            after,
            before: None,
            action: NodeAction::Created,
            cause: "created".to_owned(),
            detail: String::new(),
        };
        self.commit(vec![Change::Node(Box::new(node)), job.clone().created()]).await;
        self.waker.job(job.id).await;
        job
    }

    /// Accepts a batch of the first `machines` machines, at most `at_once` of them at a time.
    pub async fn onboard_batch(&self, machines: usize, at_once: u32) -> PlannedBatch {
        let sku = any_sku();
        let hardware = self.site.handle.machines().into_iter().take(machines).map(|machine| machine.hardware);
        let new = NewBatch {
            site: &self.row,
            sku: &sku,
            profile: None,
            class: NodeClass::Standard,
            max_parallel: Some(at_once),
            machines: hardware
                .map(|hardware| NewMachine {
                    hostname: hardware.label.clone(),
                    ipmi_ip: Some(hardware.bmc.address.to_string()),
                })
                .collect(),
        };
        let planned = create(&self.request(), &new, &InUse::default()).unwrap();
        let outcome = self.store.commit_one(planned.commit.clone()).await.unwrap();
        assert!(matches!(outcome, Outcome::Applied { .. }), "{outcome:?}");
        planned
    }

    /// Plays the agents until the batch stands so; the most of its machines that ran at once.
    pub async fn until_batch(&mut self, batch: BatchId, wanted: BatchStatus) -> u64 {
        let patience = tokio::time::sleep(PATIENCE);
        let mut patience = std::pin::pin!(patience);
        let mut look = tokio::time::interval(Duration::from_millis(10));
        let mut most = 0;
        loop {
            tokio::select! {
                Some(boot) = self.boots.recv() => self.agent_comes(&boot).await,
                _ = look.tick() => {
                    let children = self.store.children_of(&[batch]).await.unwrap()[&batch];
                    most = most.max(children.moving());
                    if self.store.batch(batch).await.unwrap().unwrap().status == wanted {
                        return most;
                    }
                }
                () = &mut patience => panic!("never {wanted}; {:?}", self.store.children_of(&[batch]).await.unwrap()),
            }
        }
    }

    /// Plays the agents until `holds` of the job's row.
    pub async fn until(&mut self, job: JobId, holds: impl Fn(&Job) -> bool) -> Job {
        let patience = tokio::time::sleep(PATIENCE);
        let mut patience = std::pin::pin!(patience);
        let mut look = tokio::time::interval(Duration::from_millis(10));
        loop {
            tokio::select! {
                Some(boot) = self.boots.recv() => self.agent_comes(&boot).await,
                _ = look.tick() => {
                    let row = self.store.job(job).await.unwrap().unwrap();
                    if holds(&row) {
                        return row;
                    }
                }
                () = &mut patience => panic!("never; {:?}", self.store.job(job).await.unwrap().unwrap()),
            }
        }
    }

    /// What enrolment and detection do when an agent comes with its token and is healthy.
    async fn agent_comes(&self, boot: &MachineBoot) {
        let hash = token_hash(boot.bootstrap.token.expose());
        let token = self.store.enrollment_token_by_hash(&hash).await.unwrap().expect("the token was issued before");
        let now = SystemClock.now();
        assert!(token.check(boot.bootstrap.node_id, now).is_ok(), "{token:?}");
        let used = EnrollmentToken { used_at: Some(now), generation: token.generation.next(), ..token };
        self.commit(vec![Change::EnrollmentToken(used)]).await;
        for event in [AvailabilityEvent::AgentRegistered, AvailabilityEvent::HealthPassed] {
            self.try_move(boot.bootstrap.node_id, event).await;
        }
        self.waker.node(boot.bootstrap.node_id).await;
    }

    /// Moves a node unless a job changed its row at the same moment; then again.
    async fn try_move(&self, id: NodeId, event: AvailabilityEvent) {
        loop {
            let node = self.store.node(id).await.unwrap().unwrap();
            let facts = Facts { health: Health::Passed, ..Facts::of(Owner::AgentContact, Actor::system("test")) };
            let at = SystemClock.now();
            let Ok(moved) = decide(&node, NodeEvent::Availability(event), &facts, at) else { return };
            let commit = Commit {
                op: OpId::generate(&*self.ids, at),
                guards: vec![],
                changes: vec![Change::Node(Box::new(moved.change))],
                actor: Actor::system("test"),
                reason: String::new(),
                at,
                correlation: CorrelationId::generate(&*self.ids, at),
            };
            if matches!(self.store.commit_one(commit).await.unwrap(), Outcome::Applied { .. }) {
                return;
            }
        }
    }

    pub async fn close(self) {
        self.driver.drain().await;
        self.site.stop().await;
    }
}

fn any_sku() -> Sku {
    let now = SystemClock.now();
    Sku {
        name: "any".to_owned(),
        gpus: 0,
        gpu_vendor: None,
        gpu_model: None,
        nics: Vec::new(),
        disks: Vec::new(),
        created_at: now,
        updated_at: now,
        generation: Generation::FIRST,
    }
}

fn site_row(site: &SimulatedSite, ids: &Ids, ssh_port: u16) -> Site {
    let now = SystemClock.now();
    let hardware = &site.handle.machines()[0].hardware;
    let pxe = hardware.pxe_nic().expect("machines boot over the network").name.clone();
    Site {
        id: SiteId::generate(ids, now),
        name: "dc1".to_owned(),
        region_code: "eu".to_owned(),
        provider: SiteProvider::Maas(MaasSite {
            api_base_url: site.url.clone(),
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
            deploy_ssh_port: ssh_port,
            upstream_dns_servers: vec!["1.1.1.1".to_owned()],
            policy: MaasPolicy { poll_interval_ms: 50, ..MaasPolicy::default() },
            default_profile_id: None,
        }),
        heartbeat: HeartbeatPolicy::default(),
        bmc: lattice_core::bmc::BmcPolicy::default(),
        automation: lattice_core::site::AutomationPolicy::default(),
        brake: None,
        let_go_at: None,
        approved: Vec::new(),
        sensitive: lattice_core::site::SensitivePolicy::default(),
        status: SiteStatus::Active,
        created_at: now,
        updated_at: now,
        generation: Generation::FIRST,
    }
}
