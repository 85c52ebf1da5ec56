//! A server over a file, one node, its agent as a task of this process, and hands that only remember.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use lattice_agent::{AgentConfig, AllocationState, Born, Found, HandError, Hands, Host, Pace, Storage, VERSION};
use lattice_api::agent::{Bootstrap, HealthSummary};
use lattice_core::actor::{Actor, Role};
use lattice_core::agent::task::{
    AllocationStart, CheckpointHow, CheckpointResult, ExitStatus, Progress, Running, StopResult, Task, TaskErrorCode,
    TaskInput, TaskOwner, TaskStatus, Term, WipeEvidence, WipeOutput,
};
use lattice_core::allocation::{
    Allocation, AllocationCause, AllocationChange, AllocationStatus, RequeuePolicy, Wanted,
};
use lattice_core::change::{Change, Outcome};
use lattice_core::command::Request;
use lattice_core::command::task::{NewTask, issue};
use lattice_core::ids::{AllocationId, CorrelationId, Generation, IdSource, OpId, OwnershipEpoch, TaskId};
use lattice_core::node::{Availability, HostFacts, Node, NodeClass};
use lattice_core::time::{Clock, Timestamp};
use lattice_server::StoreConfig;
use lattice_server::clock::{SystemClock, SystemIds};
use lattice_server::wiring::{Options, Server};
use lattice_store::{PageRequest, Store, TaskFilter};
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// A wipe has four tasks, one after the other.
const PATIENCE: Duration = Duration::from_secs(90);

pub async fn until(what: &str, condition: impl Fn() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    let mut ticks = tokio::time::interval(Duration::from_millis(2));
    while !condition() {
        assert!(Instant::now() < deadline, "{what} did not happen");
        ticks.tick().await;
    }
}

pub fn code(task: &Task) -> Option<TaskErrorCode> {
    match &task.report.as_ref()?.progress {
        Progress::Failed { code, .. } => Some(*code),
        Progress::Running | Progress::Succeeded { .. } => None,
    }
}

/// Where a start stops, for the agent to be killed there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Hang {
    Never,
    Before,
    After,
}

/// Remembers what was done to it.
pub struct Remembering {
    alive: Mutex<BTreeMap<AllocationId, u64>>,
    started: Mutex<Vec<AllocationId>>,
    hang: Mutex<Hang>,
    hangs: AtomicBool,
    reboots: AtomicUsize,
    wipes: AtomicBool,
}

impl Remembering {
    fn new() -> Self {
        Self {
            alive: Mutex::default(),
            started: Mutex::default(),
            hang: Mutex::new(Hang::Never),
            hangs: AtomicBool::new(false),
            reboots: AtomicUsize::new(0),
            wipes: AtomicBool::new(false),
        }
    }

    /// Whether it has the tools to wipe with.
    pub fn wipes(&self, able: bool) {
        self.wipes.store(able, Ordering::SeqCst);
    }

    /// The next start hangs: after its effect, or before it.
    pub fn hang_after_start(&self, after: bool) {
        *self.hang.lock().unwrap() = if after { Hang::After } else { Hang::Before };
    }

    pub fn release(&self) {
        *self.hang.lock().unwrap() = Hang::Never;
        self.hangs.store(false, Ordering::SeqCst);
    }

    pub fn hangs(&self) -> bool {
        self.hangs.load(Ordering::SeqCst)
    }

    pub fn starts(&self, allocation: AllocationId) -> usize {
        self.started.lock().unwrap().iter().filter(|one| **one == allocation).count()
    }

    pub fn running(&self) -> Vec<AllocationId> {
        self.alive.lock().unwrap().keys().copied().collect()
    }

    /// Its process ends by itself.
    pub fn end(&self, allocation: AllocationId) {
        self.alive.lock().unwrap().remove(&allocation);
    }

    pub fn reboots(&self) -> usize {
        self.reboots.load(Ordering::SeqCst)
    }

    async fn hang(&self) {
        self.hangs.store(true, Ordering::SeqCst);
        std::future::pending::<()>().await;
    }
}

#[async_trait]
impl Hands for Remembering {
    fn lacks(&self, input: &TaskInput) -> Option<String> {
        match input {
            TaskInput::GpuScrub(_) | TaskInput::NvmeErase(_) | TaskInput::RamScrub(_) => {
                (!self.wipes.load(Ordering::SeqCst)).then(|| "no tool to wipe with".to_owned())
            }
            TaskInput::NodeDrain(_)
            | TaskInput::AllocationStart(_)
            | TaskInput::AllocationStop(_)
            | TaskInput::AllocationCheckpoint(_)
            | TaskInput::HeartbeatCheck(_)
            | TaskInput::NodeReboot(_) => None,
        }
    }
    fn scope(&self, running: Running) -> String {
        format!("{}-{}", running.allocation, running.ownership_epoch.0)
    }
    async fn start(&self, start: &AllocationStart, _: &str) -> Result<Born, HandError> {
        let hang = *self.hang.lock().unwrap();
        if hang == Hang::Before {
            self.hang().await;
        }
        self.started.lock().unwrap().push(start.allocation);
        self.alive.lock().unwrap().insert(start.allocation, start.ownership_epoch.0);
        if hang == Hang::After {
            self.hang().await;
        }
        Ok(Born { pid: 7, start_ticks: 7, not_limited: Vec::new() })
    }
    async fn first_process(&self, one: &AllocationState) -> Result<(), Option<ExitStatus>> {
        let epoch = self.alive.lock().unwrap().get(&one.allocation).copied();
        if epoch == Some(one.ownership_epoch.0) && one.pid != 0 { Ok(()) } else { Err(None) }
    }
    async fn stop(&self, one: &AllocationState, _: Duration) -> Result<StopResult, HandError> {
        self.alive.lock().unwrap().remove(&one.allocation);
        Ok(StopResult::Graceful)
    }
    async fn checkpoint(
        &self,
        _: &AllocationState,
        _: &CheckpointHow,
        _: Duration,
    ) -> Result<CheckpointResult, HandError> {
        Ok(CheckpointResult::Unsupported)
    }
    async fn clean(&self, cgroup: &str) -> Result<(), HandError> {
        self.alive.lock().unwrap().retain(|allocation, epoch| format!("{allocation}-{epoch}") != cgroup);
        Ok(())
    }
    async fn scopes(&self) -> Vec<Found> {
        let alive = self.alive.lock().unwrap();
        let found = |(allocation, epoch): (&AllocationId, &u64)| Found {
            cgroup: format!("{allocation}-{epoch}"),
            running: Some(Running { allocation: *allocation, ownership_epoch: OwnershipEpoch(*epoch) }),
            process: Some((7, 7)),
        };
        alive.iter().map(found).collect()
    }
    async fn wipe(&self, input: &TaskInput, clock: &dyn Clock) -> Result<WipeOutput, HandError> {
        // A host without GPUs and drives has its memory alone.
        let devices: BTreeSet<String> = match input {
            TaskInput::RamScrub(_) => BTreeSet::from(["memory".to_owned()]),
            _ => BTreeSet::new(),
        };
        let record = |device: &String| WipeEvidence {
            device: device.clone(),
            model: String::new(),
            serial: String::new(),
            bytes: Some(1 << 30),
            method: "overwrite".to_owned(),
            tool: "scrub".to_owned(),
            tool_version: "1".to_owned(),
            exit_code: 0,
            status_before: "used".to_owned(),
            status_after: "zero".to_owned(),
            started_at: clock.now(),
            finished_at: clock.now(),
        };
        Ok(WipeOutput { evidence: devices.iter().map(record).collect(), inventory: devices })
    }
    async fn reboot(&self) -> Result<(), HandError> {
        self.reboots.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }
}

struct Machine {
    boot: Mutex<String>,
    hands: Arc<Remembering>,
}

#[async_trait]
impl Host for Machine {
    async fn boot_id(&self) -> std::io::Result<String> {
        Ok(self.boot.lock().unwrap().clone())
    }
    async fn facts(&self) -> HostFacts {
        HostFacts::default()
    }
    async fn health(&self) -> HealthSummary {
        HealthSummary::default()
    }
    fn hands(&self) -> Arc<dyn Hands> {
        self.hands.clone()
    }
}

pub struct World {
    pub node: Node,
    pub hands: Arc<Remembering>,
    server: Server,
    client: reqwest::Client,
    token: String,
    machine: Arc<Machine>,
    bootstrap: Bootstrap,
    storage: Storage,
    agent: Option<JoinHandle<()>>,
    _folder: tempfile::TempDir,
}

impl World {
    pub async fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let loopback = "127.0.0.1:0".parse().unwrap();
        let options = Options {
            store: StoreConfig::sqlite(folder.path().join("lattice.db")),
            secrets_key: folder.path().join("secrets.key"),
            secrets_dir: folder.path().to_owned(),
            api_listen: loopback,
            agent_listen: loopback,
            ..Options::default()
        };
        let server = Server::start(options, Arc::new(SystemClock), Arc::new(SystemIds)).await.unwrap();
        let token = server.issue_token("test", Role::PlatformAdmin).await.unwrap().expose().clone();
        let client = reqwest::Client::new();
        let hands = Arc::new(Remembering::new());
        let machine = Arc::new(Machine { boot: Mutex::new("boot-1".to_owned()), hands: hands.clone() });
        let at = |path: &str| format!("http://{}/api/v1/admin/{path}", server.api);
        let sku = json!({"name": "lab", "gpus": 0});
        let answer = client.post(at("skus")).bearer_auth(&token).json(&sku).send().await.unwrap();
        assert!(answer.status().is_success(), "{}", answer.text().await.unwrap());
        let body = json!({"hostname": "c01u01", "sku": "lab"});
        let answer = client.post(at("nodes")).bearer_auth(&token).json(&body).send().await.unwrap();
        let created: Value = answer.json().await.unwrap();
        let bootstrap = bootstrap_in(created["command"].as_str().unwrap());
        let node = server.store.node(bootstrap.node_id).await.unwrap().unwrap();
        let storage = Storage::memory();
        let mut world =
            Self { node, hands, server, client, token, machine, bootstrap, storage, agent: None, _folder: folder };
        world.start_agent().await;
        world
    }

    pub fn store(&self) -> &Store {
        &self.server.store
    }

    pub fn agent_storage(&self) -> &Storage {
        &self.storage
    }

    /// Starts the agent, and waits until it is known.
    pub async fn start_agent(&mut self) {
        let config = AgentConfig {
            bootstrap: self.bootstrap.clone(),
            version: VERSION.to_owned(),
            storage: self.storage.clone(),
            pace: Pace { backoff_base: Duration::from_millis(5), ..Pace::default() },
        };
        let machine: Arc<dyn Host> = self.machine.clone();
        self.agent = Some(tokio::spawn(async move {
            let _ = lattice_agent::run(config, machine, Arc::new(SystemClock), CancellationToken::new()).await;
        }));
    }

    /// As `kill -9` does.
    pub async fn kill_agent(&mut self) {
        if let Some(agent) = self.agent.take() {
            agent.abort();
            let _ = agent.await;
        }
    }

    pub fn boot(&self, id: &str) {
        *self.machine.boot.lock().unwrap() = id.to_owned();
    }

    /// The node as it stands.
    pub async fn row(&self) -> Node {
        self.store().node(self.node.id).await.unwrap().unwrap()
    }

    /// The node once it is so.
    pub async fn node_until(&self, what: &str, is_so: impl Fn(&Node) -> bool) -> Node {
        let deadline = Instant::now() + PATIENCE;
        let mut ticks = tokio::time::interval(Duration::from_millis(20));
        loop {
            let node = self.row().await;
            if is_so(&node) {
                return node;
            }
            assert!(Instant::now() < deadline, "{what} did not happen: {node:?}");
            ticks.tick().await;
        }
    }

    /// Until its agent enrolled and its health check passed.
    pub async fn ready(&self) {
        let is_ready = |node: &Node| node.state.availability == Availability::Ready && node.owning_job.is_none();
        self.node_until("it is ready", is_ready).await;
    }

    pub async fn commit(&self, changes: Vec<Change>) {
        let commit = request(SystemClock.now()).commit(Vec::new(), changes);
        let outcome = self.store().commit_one(commit).await.unwrap();
        assert!(matches!(outcome, Outcome::Applied { .. }), "{outcome:?}");
    }

    /// The node owns that allocation, as if it had been placed there.
    pub async fn own(&self, allocation: AllocationId) {
        let now = SystemClock.now();
        let row = Allocation {
            id: allocation,
            user: "test".to_owned(),
            class: NodeClass::Standard,
            wanted: Wanted::default(),
            workload: serde_json::from_value(json!({"argv": ["/bin/work"]})).unwrap(),
            requeue: RequeuePolicy::Never,
            status: AllocationStatus::Active,
            status_since: now,
            why: String::new(),
            node: Some(self.node.id),
            epoch: Some(OwnershipEpoch(1)),
            saved: false,
            evicted: false,
            retry: None,
            placements: 1,
            requested_by: Actor::system("test"),
            requested_at: now,
            correlation: CorrelationId::generate(&SystemIds, now),
            updated_at: now,
            generation: Generation::FIRST,
        };
        let change = AllocationChange { after: row, before: None, cause: AllocationCause::Requested };
        let commit = request(now).commit(Vec::new(), vec![Change::Allocation(Box::new(change))]);
        let outcome = self.store().commit_one(commit).await.unwrap();
        assert!(matches!(outcome, Outcome::Applied { .. }), "{outcome:?}");
    }

    pub async fn issue(&self, key: &str, input: TaskInput) -> TaskId {
        self.put(key, input, None).await
    }

    pub async fn issue_for(&self, key: &str, input: TaskInput, start_within: Duration) -> TaskId {
        self.put(key, input, Some(Term { start_within, finish_within: start_within })).await
    }

    async fn put(&self, key: &str, input: TaskInput, term: Option<Term>) -> TaskId {
        let node = self.store().node(self.node.id).await.unwrap().unwrap();
        let now = SystemClock.now();
        let new = NewTask { node: &node, owner: TaskOwner::Request, key: key.to_owned(), input, term };
        let nonce = *SystemIds.uuid(now).as_bytes();
        let (task, commit) = issue(&request(now), new, nonce).unwrap();
        let outcome = self.store().commit_one(commit).await.unwrap();
        assert!(matches!(outcome, Outcome::Applied { .. }), "{outcome:?}");
        task.id
    }

    /// The task once it is over.
    pub async fn over(&self, id: TaskId) -> Task {
        let deadline = Instant::now() + PATIENCE;
        let mut ticks = tokio::time::interval(Duration::from_millis(5));
        loop {
            let task = self.store().task(id).await.unwrap().unwrap();
            if task.status.is_final() {
                return task;
            }
            assert!(Instant::now() < deadline, "{task:?}");
            ticks.tick().await;
        }
    }

    /// An allocation once no node has it.
    pub async fn allocation_over(&self, id: AllocationId) -> Allocation {
        let deadline = Instant::now() + PATIENCE;
        let mut ticks = tokio::time::interval(Duration::from_millis(5));
        loop {
            let row = self.store().allocation(id).await.unwrap().unwrap();
            if row.placed_on().is_none() {
                return row;
            }
            assert!(Instant::now() < deadline, "{row:?}");
            ticks.tick().await;
        }
    }

    pub async fn last(&self, status: TaskStatus) -> TaskId {
        let filter = TaskFilter { statuses: vec![status], ..TaskFilter::default() };
        self.store().tasks(&filter, &PageRequest::first(1)).await.unwrap().items[0].id
    }

    pub async fn get(&self, path: &str) -> Value {
        let url = format!("http://{}/api/v1/admin/{path}", self.server.api);
        self.client.get(url).bearer_auth(&self.token).send().await.unwrap().json().await.unwrap()
    }

    pub async fn text(&self, path: &str) -> String {
        let url = format!("http://{}{path}", self.server.api);
        self.client.get(url).bearer_auth(&self.token).send().await.unwrap().text().await.unwrap()
    }

    pub async fn post(&self, path: &str, body: Value) -> Value {
        let url = format!("http://{}/api/v1/admin/{path}", self.server.api);
        let answer = self.client.post(url).bearer_auth(&self.token).json(&body).send().await.unwrap();
        assert!(answer.status().is_success(), "{}", answer.text().await.unwrap());
        answer.json().await.unwrap()
    }

    /// Status and code of a post that is refused.
    pub async fn refused(&self, path: &str) -> (u16, String) {
        let url = format!("http://{}/api/v1/admin/{path}", self.server.api);
        let answer = self.client.post(url).bearer_auth(&self.token).json(&json!({})).send().await.unwrap();
        let status = answer.status().as_u16();
        let problem: Value = answer.json().await.unwrap();
        (status, problem["code"].as_str().unwrap().to_owned())
    }

    pub async fn stop(mut self) {
        self.kill_agent().await;
        self.server.stop().await;
    }
}

fn request(now: Timestamp) -> Request<'static> {
    Request {
        actor: Actor::system("test"),
        reason: String::new(),
        now,
        ids: &SystemIds,
        op: OpId::generate(&SystemIds, now),
        correlation: CorrelationId::generate(&SystemIds, now),
    }
}

/// The file that the line hands to the agent: its last text in base64.
fn bootstrap_in(line: &str) -> Bootstrap {
    let texts = line.split('\'').filter_map(|text| STANDARD.decode(text).ok());
    let mut files = texts.filter_map(|text| serde_json::from_slice(&text).ok());
    files.next_back().expect("a bootstrap file in the line")
}
