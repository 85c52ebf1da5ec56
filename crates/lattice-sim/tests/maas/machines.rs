//! Machines that boot, accept SSH, sync their hardware, run an agent, lose power and are wiped.

use std::sync::{Arc, Mutex};
use std::time::Instant;

use async_trait::async_trait;
use lattice_api::agent::Bootstrap;
use lattice_core::secret::Secret;
use lattice_providers::ssh::{ExecLimits, HostKey, SshCredential, SshSession, SshTarget};
use lattice_sim::maas::config::{FirstBoot, SiteConfig};
use lattice_sim::maas::faults::{Fault, MachineFault, SiteFault};
use lattice_sim::machine::agent::{AgentLauncher, MachineBoot, RunningAgent};
use lattice_sim::machine::hardware::Hardware;
use lattice_sim::machine::runner::{MachineRunner, RunnerOptions};
use russh::keys::ssh_key::LineEnding;
use russh::keys::ssh_key::private::{Ed25519Keypair, KeypairData};
use russh::keys::{PrivateKey, PublicKey, PublicKeyOrCertificate};
use russh::{ChannelMsg, Disconnect, client};
use serde_json::Value;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::site::{PATIENCE, Site, quick};

const CREDS: &str = "/etc/maas/maas-machine-creds.yml";

#[derive(Debug, PartialEq, Eq)]
enum Seen {
    Launched { label: String, node: String, gpus: usize, deployment: u64 },
    Stopped { label: String },
    Wiped { label: String },
}

struct Recorder(UnboundedSender<Seen>);

struct Recorded(UnboundedSender<Seen>, String);

#[async_trait]
impl AgentLauncher for Recorder {
    async fn launch(&self, boot: MachineBoot) -> Result<Box<dyn RunningAgent>, String> {
        let node = boot.bootstrap.node_id.to_string();
        let (label, gpus, deployment) = (boot.label.clone(), boot.facts.gpus.len(), boot.deployment);
        self.0.send(Seen::Launched { label, node, gpus, deployment }).expect("the test listens");
        Ok(Box::new(Recorded(self.0.clone(), boot.label)))
    }

    async fn wipe(&self, label: &str) {
        self.0.send(Seen::Wiped { label: label.to_owned() }).expect("the test listens");
    }
}

#[async_trait]
impl RunningAgent for Recorded {
    async fn stop(self: Box<Self>) {
        self.0.send(Seen::Stopped { label: self.1 }).expect("the test listens");
    }
}

pub struct Plant {
    site: Site,
    runner: MachineRunner,
    machine: Hardware,
    port: u16,
    host_key: PrivateKey,
    id: String,
}

const NODE: &str = "0192f0c1-2d3e-7a4b-8c5d-6e7f8091a2b3";

impl Plant {
    /// A machine that is Ready on a running site, and what is seen of its agent.
    async fn ready(faults: &[MachineFault]) -> (Self, UnboundedReceiver<Seen>) {
        let (sender, seen) = unbounded_channel();
        (Self::with_agents(faults, Arc::new(Recorder(sender))).await, seen)
    }

    /// The same with other agents.
    pub async fn with_agents(faults: &[MachineFault], agents: Arc<dyn AgentLauncher>) -> Self {
        let mut config = SiteConfig { first_boot: FirstBoot::ByRunner, ..quick(1) };
        // Tests run side by side: each has its own port on the machine's address.
        let probe = std::net::TcpListener::bind(("127.0.0.1", 0)).expect("a port");
        let port = probe.local_addr().expect("an address").port();
        let machine = config.population.machines[0].clone();
        for what in faults {
            config.faults.arm_permanently(Fault::Machine { name: machine.label.clone(), what: *what });
        }
        let mut site = Site::start(config).await;
        let options = RunnerOptions { ssh_port: port, seed: 1 };
        let runner = MachineRunner::start(site.handle.clone(), agents, options);
        let form = [
            ("hostname", machine.label.as_str()),
            ("power_type", "ipmi"),
            ("power_parameters_power_address", &machine.bmc.address.to_string()),
            ("power_parameters_power_user", &machine.bmc.user),
            ("power_parameters_power_pass", &machine.bmc.password),
        ];
        let id = site.json("POST", "machines/", &form).await["system_id"].as_str().expect("an id").to_owned();
        site.wait_for(&format!("machines/{id}/"), "Ready").await;
        let pair = KeypairData::Ed25519(Ed25519Keypair::from_seed(&[7; 32]));
        let host_key = PrivateKey::new(pair, "host").expect("a key");
        Self { site, runner, machine, port, host_key, id }
    }

    fn path(&self) -> String {
        format!("machines/{}/", self.id)
    }

    async fn token(&mut self) -> Value {
        let target = format!("{}?op=get_token", self.path());
        self.site.json("GET", &target, &[]).await
    }

    pub fn label(&self) -> String {
        self.machine.label.clone()
    }

    pub async fn power_cycle(&mut self) {
        for op in ["power_off", "power_on"] {
            let target = format!("{}?op={op}", self.path());
            self.site.json("POST", &target, &[]).await;
        }
    }

    async fn deploy(&mut self) {
        let bootstrap = format!(
            r#"{{"server":"https://127.0.0.1:7443","node_id":"{NODE}","token":"lat_enroll_x","ca_pem":"PEM"}}"#
        );
        self.deploy_with(&serde_json::from_str(&bootstrap).expect("a bootstrap")).await;
    }

    pub async fn deploy_with(&mut self, bootstrap: &Bootstrap) {
        let pem = self.host_key.to_openssh(LineEnding::LF).expect("PEM");
        let pem = pem.lines().map(|line| format!("    {line}\n")).collect::<String>();
        let bootstrap = serde_json::to_string(bootstrap).expect("JSON");
        let text = format!(
            "#cloud-config\nssh_keys:\n  ed25519_private: |\n{pem}ssh_pwauth: true\nusers:\n  - name: hpcadmin\n    \
             lock_passwd: false\n    plain_text_passwd: hunter2\nwrite_files:\n  - path: /etc/lattice/bootstrap.json\n    \
             permissions: '0600'\n    content: '{bootstrap}'\nruncmd:\n  - [systemctl, enable, --now, lattice-agent]\n"
        );
        let user_data = base64(&text);
        let form = [("user_data", user_data.as_str()), ("enable_hw_sync", "true")];
        let target = format!("{}?op=deploy", self.path());
        self.site.json("POST", &target, &form).await;
        // The next call of a client meets a busy region; the machine, which calls at the same time, does not.
        self.site.handle.arm(Fault::Site { what: SiteFault::NoRack }, Some(1));
        let met = self.site.send("GET", "machines/", &[]).await.expect("an answer").0;
        assert_eq!(met, 503);
        let path = self.path();
        self.site.wait_for(&path, "Deployed").await;
    }

    /// Runs one command over SSH with `input`; gives exit status and output.
    async fn ssh(&self, password: &str, line: &str, input: &[u8]) -> Result<(u32, String), String> {
        let wanted = self.host_key.public_key().clone();
        let seen = Arc::new(Mutex::new(None));
        let handler = Pinned { wanted, seen: seen.clone() };
        let address = (self.machine.address, self.port);
        let connected = client::connect(Arc::new(client::Config::default()), address, handler).await;
        let mut session = connected.map_err(|error| format!("{error} {:?}", seen.lock().expect("no panic")))?;
        let login = session.authenticate_password("hpcadmin", password).await.map_err(|error| error.to_string())?;
        if !login.success() {
            return Err("refused".to_owned());
        }
        let mut channel = session.channel_open_session().await.map_err(|error| error.to_string())?;
        channel.exec(true, line).await.map_err(|error| error.to_string())?;
        channel.data(input).await.map_err(|error| error.to_string())?;
        channel.eof().await.map_err(|error| error.to_string())?;
        let (mut status, mut output) = (None, Vec::new());
        while let Some(message) = channel.wait().await {
            match message {
                ChannelMsg::Data { data } => output.extend_from_slice(&data),
                ChannelMsg::ExitStatus { exit_status } => status = Some(exit_status),
                _ => {}
            }
        }
        let _closed = session.disconnect(Disconnect::ByApplication, "", "").await;
        status.map(|status| (status, String::from_utf8_lossy(&output).into_owned())).ok_or_else(|| "cut".to_owned())
    }

    /// The listener opens a moment after the machine says that it is Deployed.
    async fn ssh_when_up(&self, line: &str, input: &[u8]) -> (u32, String) {
        let begun = Instant::now();
        loop {
            match self.ssh("hunter2", line, input).await {
                Ok(answer) => return answer,
                Err(error) => assert!(begun.elapsed() < PATIENCE, "no SSH: {error}"),
            }
            tokio::task::yield_now().await;
        }
    }

    pub async fn stop(self) {
        self.runner.stop().await;
        self.site.stop().await;
    }
}

struct Pinned {
    wanted: PublicKey,
    seen: Arc<Mutex<Option<PublicKey>>>,
}

impl client::Handler for Pinned {
    type Error = russh::Error;

    async fn check_server_key(&mut self, offered: &PublicKeyOrCertificate) -> Result<bool, Self::Error> {
        let PublicKeyOrCertificate::PublicKey { key, .. } = offered else { return Ok(false) };
        *self.seen.lock().expect("no panic") = Some(key.clone());
        Ok(key.key_data() == self.wanted.key_data())
    }
}

fn base64(text: &str) -> String {
    use base64::Engine;
    base64::engine::general_purpose::STANDARD.encode(text)
}

fn creds(token: &Value, secret: &str) -> Vec<u8> {
    let text = |key: &str| token[key].as_str().unwrap_or_default().to_owned();
    format!(
        "reporting:\n  maas:\n    type: webhook\n    consumer_key: {}\n    token_key: {}\n    token_secret: {secret}\n",
        text("consumer_key"),
        text("token_key")
    )
    .into_bytes()
}

#[tokio::test]
async fn a_deployed_machine_runs_its_agent_and_syncs_once_its_credentials_are_pushed() {
    let (mut plant, mut seen) = Plant::ready(&[]).await;
    let token = plant.token().await;
    assert!(token["token_key"].is_string(), "commissioning rendered a preseed: {token}");
    plant.deploy().await;
    let label = plant.machine.label.clone();
    let launched = Seen::Launched { label: label.clone(), node: NODE.into(), gpus: 8, deployment: 1 };
    assert_eq!(seen.recv().await, Some(launched));
    let path = plant.path();
    assert!(plant.site.json("GET", &path, &[]).await["last_sync"].is_null());

    let install = format!("sudo install -m 600 /dev/stdin {CREDS}");
    let restart = "sudo systemctl restart maas_hardware_sync.timer";
    assert_eq!(plant.ssh_when_up(&install, &creds(&token, "wrong")).await.0, 0);
    assert_eq!(plant.ssh_when_up(restart, b"").await.0, 1, "the region refuses a wrong key");
    let right = creds(&token, token["token_secret"].as_str().expect("a secret"));
    assert_eq!(plant.ssh_when_up(&install, &right).await.0, 0);
    assert_eq!(plant.ssh_when_up(restart, b"").await.0, 0);
    let machine = plant.site.json("GET", &path, &[]).await;
    assert!(machine["last_sync"].is_string() && machine["next_sync"].is_string(), "{machine}");
    assert_eq!(plant.runner.file(&label, CREDS).map(|file| (file.content, file.mode)), Some((right, 0o600)));
    plant.stop().await;
}

#[tokio::test]
async fn a_machine_without_power_has_neither_ssh_nor_agent_and_comes_back_with_its_files() {
    let (mut plant, mut seen) = Plant::ready(&[]).await;
    plant.deploy().await;
    let label = plant.machine.label.clone();
    assert!(matches!(seen.recv().await, Some(Seen::Launched { deployment: 1, .. })));
    assert_eq!(plant.ssh_when_up("install -m 644 /dev/stdin /etc/motd", b"hello").await.0, 0);
    let path = plant.path();
    plant.site.json("POST", &format!("{path}?op=power_off"), &[]).await;
    assert_eq!(seen.recv().await, Some(Seen::Stopped { label: label.clone() }));
    plant.site.json("POST", &format!("{path}?op=power_on"), &[]).await;
    assert!(matches!(seen.recv().await, Some(Seen::Launched { deployment: 1, .. })));
    assert_eq!(plant.ssh_when_up("cat /etc/motd", b"").await, (0, "hello".into()));
    plant.site.json("POST", &format!("{path}?op=release"), &[]).await;
    assert_eq!(seen.recv().await, Some(Seen::Stopped { label: label.clone() }));
    assert_eq!(seen.recv().await, Some(Seen::Wiped { label: label.clone() }));
    assert_eq!(plant.runner.file(&label, "/etc/motd"), None);
    assert!(plant.ssh("hunter2", "true", b"").await.is_err());
    plant.stop().await;
}

#[tokio::test]
async fn ssh_refuses_a_wrong_password_and_whatever_is_not_a_fixed_form() {
    let (mut plant, _seen) = Plant::ready(&[]).await;
    plant.deploy().await;
    assert_eq!(plant.ssh_when_up("cloud-init status --wait", b"").await, (0, "status: done\n".into()));
    assert_eq!(plant.ssh("wrong", "true", b"").await, Err("refused".into()));
    assert_eq!(plant.ssh_when_up("rm -rf /", b"").await.0, 127);
    assert_eq!(plant.runner.refused_commands(&plant.machine.label), ["rm -rf /"]);
    plant.host_key =
        PrivateKey::new(KeypairData::Ed25519(Ed25519Keypair::from_seed(&[8; 32])), "other").expect("a key");
    assert!(plant.ssh("hunter2", "true", b"").await.is_err(), "another host key is not the pinned one");
    plant.stop().await;
}

#[tokio::test]
async fn a_machine_whose_agent_never_starts_is_deployed_all_the_same() {
    let (mut plant, mut seen) = Plant::ready(&[MachineFault::AgentNeverStarts, MachineFault::HwSyncUnhealthy]).await;
    let token = plant.token().await;
    plant.deploy().await;
    let right = creds(&token, token["token_secret"].as_str().expect("a secret"));
    assert_eq!(plant.ssh_when_up(&format!("install -m 600 /dev/stdin {CREDS}"), &right).await.0, 0);
    assert_eq!(plant.ssh_when_up("systemctl restart maas-agent", b"").await.0, 0);
    let path = plant.path();
    assert!(plant.site.json("GET", &path, &[]).await["last_sync"].is_null());
    assert!(seen.try_recv().is_err());
    plant.stop().await;
}

#[tokio::test]
async fn the_ssh_client_of_lattice_pushes_credentials_and_starts_the_sync() {
    let (mut plant, _seen) = Plant::ready(&[]).await;
    let token = plant.token().await;
    plant.deploy().await;
    plant.ssh_when_up("true", b"").await;
    let host_key = plant.host_key.public_key().to_openssh().expect("a key");
    let target = SshTarget {
        address: (plant.machine.address, plant.port).into(),
        host_key: HostKey::from_openssh(&host_key).expect("a key"),
        user: "hpcadmin".to_owned(),
    };
    let password = SshCredential::Password(Secret::new("hunter2".to_owned()));
    let session = SshSession::connect(&target, &password, PATIENCE).await.expect("a session");
    let right = creds(&token, token["token_secret"].as_str().expect("a secret"));
    let commands: [(&[&str], Vec<u8>); 2] = [
        (&["sudo", "-n", "install", "-m", "600", "/dev/stdin", CREDS], right),
        (&["sudo", "-n", "systemctl", "enable", "--now", "maas_hardware_sync.timer"], Vec::new()),
    ];
    for (command, input) in commands {
        let ended = session.exec(command, &Secret::new(input), ExecLimits::default()).await.expect("an end");
        assert_eq!(ended.code, Some(0), "{command:?}");
    }
    session.close().await;
    let path = plant.path();
    assert!(plant.site.json("GET", &path, &[]).await["last_sync"].is_string());
    plant.stop().await;
}
