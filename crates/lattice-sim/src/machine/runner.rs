//! Plays the machines of a site: boots installed systems, serves their SSH, runs their agents, cuts their power.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lattice_api::agent::Bootstrap;
use russh::keys::{PrivateKey, PublicKey};
use tokio::net::TcpListener;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::{JoinHandle, JoinSet};
use tokio_util::sync::CancellationToken;

use super::agent::{AgentLauncher, MachineBoot, RunningAgent};
use super::command::Command;
use super::ssh;
use super::system::{File, Outcome, System};
use crate::maas::faults::MachineFault;
use crate::maas::handle::MaasHandle;
use crate::maas::oauth::ApiKey;
use crate::maas::wire::{Method, Params, Request, Response};
use crate::maas::world::{Boot, Effect};
use crate::stop::Stop;

/// How the machines of a site are played.
#[derive(Debug, Clone, Copy)]
pub struct RunnerOptions {
    /// Port of every machine's SSH server; 22 needs privileges and is often taken.
    pub ssh_port: u16,
    /// From here come the host keys of systems that are given none.
    pub seed: u64,
}

/// Plays the machines of a site until stopped.
pub struct MachineRunner {
    shared: Arc<Shared>,
    stop: Stop,
}

struct Shared {
    site: MaasHandle,
    launcher: Arc<dyn AgentLauncher>,
    options: RunnerOptions,
    machines: Mutex<HashMap<String, Arc<Machine>>>,
    last_nonce: AtomicU64,
}

/// A machine with an installed system.
pub struct Machine {
    shared: Arc<Shared>,
    boot: Boot,
    system: Mutex<System>,
}

impl MachineRunner {
    /// Begins to play. The site's configuration must say that first boots are left to a runner.
    pub fn start(site: MaasHandle, launcher: Arc<dyn AgentLauncher>, options: RunnerOptions) -> Self {
        let effects = site.effects();
        let machines = Mutex::new(HashMap::new());
        let shared = Arc::new(Shared { site, launcher, options, machines, last_nonce: AtomicU64::new(0) });
        let token = CancellationToken::new();
        let task = tokio::spawn(direct(shared.clone(), effects, token.clone()));
        Self { shared, stop: Stop::new(token, task) }
    }

    /// A file on the disks of a machine, by its label.
    pub fn file(&self, label: &str, path: &str) -> Option<File> {
        let machine = self.shared.machines().get(label).cloned();
        machine.and_then(|machine| machine.system().file(path).cloned())
    }

    /// Command lines that the machine did not understand.
    pub fn refused_commands(&self, label: &str) -> Vec<String> {
        let machine = self.shared.machines().get(label).cloned();
        machine.map(|machine| machine.system().refused().to_vec()).unwrap_or_default()
    }

    /// Cuts the power of every machine and waits until all is quiet.
    pub async fn stop(self) {
        self.stop.stop().await;
    }
}

impl Shared {
    fn machines(&self) -> MutexGuard<'_, HashMap<String, Arc<Machine>>> {
        self.machines.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One call of a machine to the region, signed with its own key.
    async fn call(&self, key: &ApiKey, method: Method, path: &str, form: Params, raw: Vec<u8>) -> Response {
        let nonce = self.last_nonce.fetch_add(1, Ordering::Relaxed);
        let authorization = Some(MaasHandle::sign(key, &format!("machine-{nonce}")));
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        let path = format!("/MAAS/metadata/{path}");
        let request = Request { method, path, query: Params::decode(query), form, raw, authorization };
        self.site.call(&request).await
    }
}

/// Passes each effect to the task of its machine, so that one slow machine holds up no other.
async fn direct(shared: Arc<Shared>, mut effects: UnboundedReceiver<Effect>, token: CancellationToken) {
    let mut queues: HashMap<String, UnboundedSender<Effect>> = HashMap::new();
    let mut tasks = JoinSet::new();
    while let Some(Some(effect)) = token.run_until_cancelled(effects.recv()).await {
        let label = match &effect {
            Effect::Booted(boot) => boot.label.clone(),
            Effect::PoweredOff { label } | Effect::Wiped { label } => label.clone(),
        };
        let queue = queues.entry(label).or_insert_with(|| {
            let (sender, receiver) = unbounded_channel();
            tasks.spawn(play(shared.clone(), receiver));
            sender
        });
        if queue.send(effect).is_err() {
            tracing::warn!("the task of a simulated machine has ended");
        }
    }
    // Without senders each machine ends on its own.
    drop(queues);
    while tasks.join_next().await.is_some() {}
}

/// One machine from now on.
async fn play(shared: Arc<Shared>, mut effects: UnboundedReceiver<Effect>) {
    let mut running: Option<Running> = None;
    while let Some(effect) = effects.recv().await {
        if let Some(before) = running.take() {
            before.cut_power().await;
        }
        match effect {
            Effect::Booted(boot) => running = Some(Running::start(shared.clone(), boot)),
            Effect::PoweredOff { .. } => {}
            Effect::Wiped { label } => {
                shared.machines().remove(&label);
                shared.launcher.wipe(&label).await;
            }
        }
    }
    if let Some(last) = running {
        last.cut_power().await;
    }
}

/// A machine that has power.
struct Running {
    power: CancellationToken,
    task: JoinHandle<()>,
}

impl Running {
    fn start(shared: Arc<Shared>, boot: Boot) -> Self {
        let power = CancellationToken::new();
        let task = tokio::spawn(run(shared, boot, power.clone()));
        Self { power, task }
    }

    async fn cut_power(self) {
        self.power.cancel();
        if let Err(error) = self.task.await {
            tracing::error!(%error, "a simulated machine did not end well");
        }
    }
}

/// From boot to the loss of power.
async fn run(shared: Arc<Shared>, boot: Boot, power: CancellationToken) {
    let Some(Some(machine)) = power.run_until_cancelled(boot_system(&shared, boot)).await else { return };
    let ssh = power.run_until_cancelled(machine.open_ssh()).await.flatten();
    let agent = power.run_until_cancelled(machine.bring_up()).await.flatten();
    power.cancelled().await;
    if let Some(agent) = agent {
        agent.stop().await;
    }
    if let Some(ssh) = ssh {
        ssh.stop().await;
    }
}

/// The first boot fetches user-data and installs it; a later one finds what is on the disks.
async fn boot_system(shared: &Arc<Shared>, boot: Boot) -> Option<Arc<Machine>> {
    if !boot.first {
        let known = shared.machines().get(&boot.label).cloned();
        return known.map(|machine| {
            let system = machine.take_system(&boot.hostname);
            let again = Arc::new(Machine { shared: shared.clone(), boot: boot.clone(), system: Mutex::new(system) });
            shared.machines().insert(boot.label.clone(), again.clone());
            again
        });
    }
    let answer = shared.call(&boot.token, Method::Get, "2012-03-01/user-data", Params::default(), Vec::new()).await;
    let user_data = if answer.status == 200 { answer.body } else { Vec::new() };
    match System::install(&user_data, &boot.hostname, shared.options.seed) {
        Ok((system, config)) => {
            let machine = Arc::new(Machine { shared: shared.clone(), boot, system: Mutex::new(system) });
            shared.machines().insert(machine.boot.label.clone(), machine.clone());
            for command in &config.runcmd {
                machine.run_line(&command.line()).await;
            }
            Some(machine)
        }
        Err(error) => {
            report(shared, &boot, "modules-init", "FAIL", &error.to_string()).await;
            None
        }
    }
}

/// What keeps an agent from starting, and which layer of the first boot notes it.
const LAYERS: [(MachineFault, &str); 2] =
    [(MachineFault::SiteBootstrapFails, "site_bootstrap"), (MachineFault::AgentNeverStarts, "agent_bootstrap")];

/// A line of cloud-init's own report.
async fn report(shared: &Shared, boot: &Boot, name: &str, result: &str, description: &str) {
    let message = serde_json::json!({
        "event_type": "finish", "origin": "cloud-init", "name": name, "description": description, "result": result,
    });
    let path = format!("status/{}", boot.system_id);
    let body = message.to_string().into_bytes();
    let answer = shared.call(&boot.token, Method::Post, &path, Params::default(), body).await;
    if answer.status != 204 {
        tracing::warn!(status = answer.status, "the region refused a status message of a simulated machine");
    }
}

impl Machine {
    pub(super) fn host_key(&self) -> PrivateKey {
        self.system().host_key().clone()
    }

    pub(super) fn accepts_password(&self, user: &str, password: &str) -> bool {
        self.system().accepts_password(user, password)
    }

    pub(super) fn accepts_key(&self, user: &str, key: &PublicKey) -> bool {
        self.system().accepts_key(user, key)
    }

    pub(super) fn refuse(&self, line: &str) {
        self.system().refuse(line);
    }

    /// Carries out a command, the first report of a hardware sync included.
    pub(super) async fn run(&self, command: Command, input: Vec<u8>) -> Outcome {
        let outcome = self.system().run(command, input);
        if outcome.starts_sync && !self.sync().await {
            return Outcome { status: 1, output: b"Job for the hardware sync failed.\n".to_vec(), ..outcome };
        }
        outcome
    }

    async fn run_line(&self, line: &str) {
        if let Some(command) = super::command::parse(line) {
            self.run(command, Vec::new()).await;
        }
    }

    /// Reports to the region with the key of the credentials file; false when it refuses, true when there is none yet.
    async fn sync(&self) -> bool {
        let Some(key) = self.system().sync_key() else { return true };
        let form = Params::new(vec![("status".to_owned(), "OK".to_owned())]);
        let answer = self.shared.call(&key, Method::Post, "2012-03-01/?op=signal", form, Vec::new()).await;
        answer.status == 200
    }

    async fn open_ssh(self: &Arc<Self>) -> Option<Stop> {
        if self.shared.site.strikes(MachineFault::SshRefused, &self.boot.system_id) {
            return None;
        }
        let address = (self.boot.address, self.shared.options.ssh_port);
        match TcpListener::bind(address).await {
            Ok(listener) => Some(ssh::serve(listener, self.clone())),
            Err(error) => {
                tracing::warn!(label = self.boot.label, ?address, %error, "no SSH on a simulated machine");
                None
            }
        }
    }

    /// What remains of the boot once SSH listens: hardware sync, the agent, cloud-init's last word.
    async fn bring_up(&self) -> Option<Box<dyn RunningAgent>> {
        self.sync().await;
        let agent = self.start_agent().await;
        if self.boot.first {
            report(&self.shared, &self.boot, "modules-final", "SUCCESS", "running modules for final").await;
        }
        agent
    }

    async fn start_agent(&self) -> Option<Box<dyn RunningAgent>> {
        let bootstrap: Bootstrap = match self.system().bootstrap()? {
            Ok(bootstrap) => bootstrap,
            Err(error) => {
                tracing::warn!(label = self.boot.label, %error, "the agent's bootstrap cannot be read");
                return None;
            }
        };
        for (fault, layer) in LAYERS {
            if self.shared.site.strikes(fault, &self.boot.system_id) {
                self.system().layer_failed(layer);
                return None;
            }
        }
        let hardware = self.shared.site.hardware(&self.boot.label)?;
        let nonce = self.shared.last_nonce.fetch_add(1, Ordering::Relaxed);
        let boot = MachineBoot {
            label: self.boot.label.clone(),
            hostname: self.boot.hostname.clone(),
            system_id: self.boot.system_id.clone(),
            deployment: self.boot.deployment,
            boot_id: format!("{}-{}-{nonce}", self.boot.system_id, self.boot.deployment),
            facts: hardware.facts(),
            bootstrap,
        };
        match self.shared.launcher.launch(boot).await {
            Ok(agent) => Some(agent),
            Err(error) => {
                tracing::warn!(label = self.boot.label, %error, "the agent did not start");
                None
            }
        }
    }

    /// Moves the system to the machine that boots it again.
    fn take_system(&self, hostname: &str) -> System {
        let (empty, _) = System::install(b"", hostname, self.shared.options.seed).expect("no user-data is valid");
        std::mem::replace(&mut *self.system(), empty)
    }

    fn system(&self) -> MutexGuard<'_, System> {
        self.system.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
