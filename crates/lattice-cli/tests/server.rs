//! The command line against the real API over a real store.

#![allow(clippy::unwrap_used, reason = "a test stops at what it cannot do")]

use std::process::{Command, Output, Stdio};
use std::sync::Arc;

use async_trait::async_trait;
use lattice_core::actor::{Actor, Role};
use lattice_core::agent::task::SigningKey;
use lattice_core::change::{Change, Commit};
use lattice_core::credential::ApiToken;
use lattice_core::heartbeat::Registry;
use lattice_core::ids::{ApiTokenId, CorrelationId, Generation, IdSource, OpId, SiteId};
use lattice_core::node::class::HeartbeatPolicy;
use lattice_core::secret::{Secret, token_hash};
use lattice_core::site::{Site, SiteProvider, SiteStatus};
use lattice_core::time::Clock;
use lattice_core::webhook::address::AddressPolicy;
use lattice_providers::secret::file::FileSecretStore;
use lattice_providers::webhook::HttpSender;
use lattice_server::auth::new_token;
use lattice_server::clock::{SystemClock, SystemIds};
use lattice_server::http::{HttpLimits, NewSecrets, Parts, ProbeFailed, Probed, SiteProber, router};
use lattice_server::metrics::Metrics;
use lattice_server::task_keys::TaskKeys;
use lattice_store::{Store, StoreConfig};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

/// A site whose provider always answers.
struct Answers;

#[async_trait]
impl SiteProber for Answers {
    async fn probe(&self, _: &Site, _: &NewSecrets) -> Result<Probed, ProbeFailed> {
        Ok(Probed { version: Some("3.5.0".into()), details: vec!["2 rack controllers".into()] })
    }
}

struct Server {
    address: String,
    token: String,
    home: tempfile::TempDir,
    /// Serves as long as it lives.
    _runtime: tokio::runtime::Runtime,
}

impl Server {
    fn start() -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let home = tempfile::tempdir().unwrap();
        let (address, token) = runtime.block_on(serve(home.path()));
        Self { address, token, home, _runtime: runtime }
    }

    fn lattice(&self, words: &[&str]) -> Output {
        self.lattice_with(words, "")
    }

    fn lattice_with(&self, words: &[&str], stdin: &str) -> Output {
        use std::io::Write;
        let mut child = Command::new(env!("CARGO_BIN_EXE_lattice"))
            .args(words)
            .env_clear()
            .env("HOME", self.home.path())
            .env("LATTICE_SERVER", &self.address)
            .env("LATTICE_TOKEN", &self.token)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(stdin.as_bytes()).unwrap();
        child.wait_with_output().unwrap()
    }

    /// Stdout of a command that must succeed.
    fn ok(&self, words: &[&str]) -> String {
        let output = self.lattice(words);
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success(), "{words:?}: {stderr}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// Stderr of a command that must be refused.
    fn refused(&self, words: &[&str]) -> String {
        let output = self.lattice(words);
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{words:?}: {stderr}");
        assert!(stderr.starts_with("error: "), "{words:?}: {stderr}");
        stderr
    }

    fn json(&self, words: &[&str]) -> Value {
        let words: Vec<&str> = words.iter().copied().chain(["-o", "json"]).collect();
        serde_json::from_str(&self.ok(&words)).unwrap()
    }
}

async fn serve(home: &std::path::Path) -> (String, String) {
    let store = Store::open(StoreConfig::sqlite(home.join("lattice.db"))).await.unwrap();
    let token = first_rows(&store).await;
    let secrets = Arc::new(FileSecretStore::open(home, &home.join("secrets.key")).unwrap());
    let parts = Parts {
        store,
        clock: Arc::new(SystemClock),
        ids: Arc::new(SystemIds),
        random: Arc::new(|| {
            let (a, b) = (SystemIds.uuid(SystemClock.now()), SystemIds.uuid(SystemClock.now()));
            let mut bytes = [0; 32];
            bytes[..16].copy_from_slice(a.as_bytes());
            bytes[16..].copy_from_slice(b.as_bytes());
            bytes
        }),
        wake: Arc::new(|_| {}),
        webhooks: Arc::new(HttpSender::new(AddressPolicy::of_trials())),
        secret_standing: Arc::default(),
        bmcs: Arc::new(lattice_providers::machine::bmc::BmcClients::new(secrets.clone(), Arc::new(SystemClock))),
        secrets,
        prober: Arc::new(Answers),
        registry: Arc::new(Registry::new()),
        agent_ca_pem: "CA".to_owned(),
        notices: Arc::default(),
        task_keys: Arc::new(TaskKeys::new(SigningKey::from_seed(&Secret::new(vec![5; 32])).unwrap())),
        metrics: Arc::new(Metrics::default()),
        bootstrap_command: Arc::new(|node, token| Secret::new(format!("join {node} {}", token.expose()))),
        limits: HttpLimits::default(),
        stop: CancellationToken::new(),
    };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, router(parts)).await });
    (address, token)
}

async fn first_rows(store: &Store) -> String {
    let at = SystemClock.now();
    let secret = new_token([7; 32]);
    let token = ApiToken {
        id: ApiTokenId::generate(&SystemIds, at),
        name: "ada".into(),
        role: Role::PlatformAdmin,
        hash: token_hash(secret.expose()),
        issued_at: at,
        expires_at: None,
        revoked_at: None,
        generation: Generation::FIRST,
    };
    let local = Site {
        id: SiteId::generate(&SystemIds, at),
        name: "local".into(),
        region_code: "local".into(),
        provider: SiteProvider::Manual,
        heartbeat: HeartbeatPolicy::default(),
        bmc: lattice_core::bmc::BmcPolicy::default(),
        automation: lattice_core::site::AutomationPolicy::default(),
        brake: None,
        let_go_at: None,
        approved: Vec::new(),
        sensitive: lattice_core::site::SensitivePolicy::default(),
        status: SiteStatus::Active,
        created_at: at,
        updated_at: at,
        generation: Generation::FIRST,
    };
    let commit = Commit {
        op: OpId::generate(&SystemIds, at),
        guards: Vec::new(),
        changes: vec![Change::ApiToken(token), Change::Site(Box::new(local))],
        actor: Actor::system("test"),
        reason: String::new(),
        at,
        correlation: CorrelationId::generate(&SystemIds, at),
    };
    store.commit_one(commit).await.unwrap();
    secret.expose().clone()
}

#[test]
fn a_node_is_created_looked_at_and_withdrawn() {
    let server = Server::start();
    assert!(server.ok(&["token", "whoami"]).contains("platform_admin"));
    assert!(server.ok(&["sku", "create", "lxd"]).contains("lxd"));
    let command = server.ok(&["node", "create", "c07u43", "--sku", "lxd", "--reason", "rack 7"]);
    assert!(command.starts_with("join ") && command.lines().count() == 1, "{command}");

    assert_eq!(server.ok(&["node", "list", "-o", "name"]), "c07u43\n");
    assert_eq!(server.ok(&["node", "list", "--state", "degraded", "-o", "name"]), "");
    assert!(server.ok(&["node", "show", "c07u43"]).contains("bootstrap_issued"));
    assert!(server.ok(&["node", "status", "c07u43"]).contains("schedulable   no"));
    assert!(server.ok(&["node", "timeline", "c07u43"]).contains("ada"));
    assert!(!server.ok(&["node", "history", "c07u43"]).is_empty());
    assert!(server.ok(&["explain", "node", "c07u43"]).contains("c07u43"));
    let again = server.ok(&["node", "bootstrap", "c07u43"]);
    assert_ne!(again, command);

    let refused = server.refused(&["node", "drain", "c07u43"]);
    assert!(refused.contains("because: ") && refused.contains("next: "), "{refused}");
    let withdrawn = server.ok(&["node", "withdraw", "c07u43", "--yes"]);
    assert!(withdrawn.contains("deleted"), "{withdrawn}");
}

#[test]
fn every_next_action_of_a_new_node_can_be_run() {
    let server = Server::start();
    server.ok(&["sku", "create", "lxd"]);
    server.ok(&["node", "create", "c07u43", "--sku", "lxd"]);
    let explained = server.json(&["explain", "node", "c07u43"]);
    let steps = explained["next_actions"].as_array().unwrap();
    let commands: Vec<&str> = steps.iter().filter_map(|step| step["command"].as_str()).collect();
    assert!(!commands.is_empty(), "{explained}");
    for command in commands {
        let words: Vec<&str> = command.split_whitespace().skip(1).collect();
        let output = server.lattice(&words);
        assert!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

#[test]
fn jobs_events_and_the_fleet_are_told() {
    let server = Server::start();
    server.ok(&["sku", "create", "lxd"]);
    server.ok(&["node", "create", "c07u43", "--sku", "lxd"]);
    let jobs = server.ok(&["job", "list", "--node", "c07u43", "--kind", "onboarding", "-o", "name"]);
    let job = jobs.trim();
    assert!(server.ok(&["job", "show", job]).contains("wait_for_agent_enrollment"));
    assert!(server.ok(&["onboard", "show", job]).contains("c07u43"));
    assert_eq!(server.ok(&["onboard", "list", "-o", "name"]), jobs);
    assert!(!server.ok(&["explain", "job", job]).is_empty());
    let refused = server.refused(&["job", "rerun", job]);
    assert!(refused.contains("LAT0042") && refused.contains("next: "), "{refused}");

    assert!(server.ok(&["events", "--node", "c07u43"]).contains("node."));
    assert!(server.ok(&["events", "--job", job, "-o", "name"]).contains("job."));
    assert!(server.ok(&["fleet"]).contains("1 nodes"));
    assert!(server.ok(&["version"]).contains("server "));
}

#[test]
fn a_site_gets_its_credentials_from_a_file() {
    let server = Server::start();
    let created = ["site", "create", "maas", "dc1", "--api-url", "http://10.1.1.1:5240/MAAS"];
    server.ok(&created);
    assert!(server.ok(&["site", "list"]).contains("missing"));
    assert!(server.refused(&created).contains("LAT0011"), "a name is taken once");
    let secrets = "api_token = \"a:b:c\"\ndeploy_password = \"x\"\n[power]\nuser = \"root\"\npass = \"calvin\"\n";
    let written = server.lattice_with(&["site", "credentials", "set", "dc1", "--from-stdin"], secrets);
    assert!(written.status.success(), "{}", String::from_utf8_lossy(&written.stderr));
    assert!(server.ok(&["site", "list"]).contains("complete"));
    assert!(server.ok(&["site", "probe", "dc1"]).contains("3.5.0"));
    assert!(server.ok(&["site", "set", "dc1", "policy.batch_max_parallel=3"]).contains("policy.batch_max_parallel"));
    assert!(server.ok(&["site", "disable", "dc1"]).contains("disabled"));
    server.ok(&["sku", "create", "mi300x", "--gpus", "8", "--gpu-vendor", "amd"]);
    let onboard = ["onboard", "maas", "c07u43", "--site", "dc1", "--sku", "mi300x", "--ipmi-ip", "10.1.2.3"];
    let refused = server.refused(&onboard);
    assert!(refused.contains("LAT0050") && refused.contains("lattice site enable dc1"), "{refused}");
    assert!(server.ok(&["site", "enable", "dc1"]).contains("active"));
    assert!(server.ok(&onboard).contains("pending"));
}

#[test]
fn holds_tokens_and_the_audit_work_together() {
    let server = Server::start();
    server.ok(&["sku", "create", "lxd"]);
    server.ok(&["node", "create", "c07u43", "--sku", "lxd"]);
    assert!(
        server
            .ok(&["hold", "set", "c07u43", "maintenance", "--reason", "riser", "--for", "2h"])
            .contains("maintenance")
    );
    assert!(server.ok(&["hold", "list"]).contains("riser"));
    assert!(server.ok(&["hold", "clear", "c07u43", "maintenance"]).contains("no holds"));

    let secret = server.ok(&["token", "create", "ci", "--role", "project-viewer", "--ttl", "1d"]);
    let file = server.home.path().join("token");
    std::fs::write(&file, &secret).unwrap();
    let path = file.display().to_string();
    let refused = server.refused(&["node", "withdraw", "c07u43", "--token-file", &path]);
    assert!(refused.contains("LAT0003"), "{refused}");
    let tokens = server.json(&["token", "list"]);
    let ci = tokens["items"].as_array().unwrap().iter().find(|token| token["name"] == "ci").unwrap();
    server.ok(&["token", "revoke", ci["id"].as_str().unwrap()]);
    assert!(server.refused(&["node", "list", "--token-file", &path]).contains("LAT0002"));

    assert!(server.ok(&["audit", "list", "-w"]).contains("riser"));
    assert!(server.ok(&["audit", "verify"]).starts_with("intact: "));
    let export = server.home.path().join("audit.jsonl").display().to_string();
    server.ok(&["audit", "export", "--to", &export]);
    let offline = server.ok(&["audit", "verify", &export]);
    assert!(offline.starts_with("intact: "), "{offline}");
    let text = std::fs::read_to_string(&export).unwrap();
    std::fs::write(&export, text.replacen("riser", "rider", 1)).unwrap();
    assert!(server.refused(&["audit", "verify", &export]).contains("was changed"));
}

#[test]
fn events_are_followed_as_they_come() {
    use std::io::{BufRead, BufReader};
    let server = Server::start();
    server.ok(&["sku", "create", "lxd"]);
    let mut child = Command::new(env!("CARGO_BIN_EXE_lattice"))
        .args(["events", "--follow", "--after", "0", "-o", "json"])
        .env_clear()
        .env("LATTICE_SERVER", &server.address)
        .env("LATTICE_TOKEN", &server.token)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let stdout = child.stdout.take().unwrap();
    let follower = Ended(child);
    let mut lines = BufReader::new(stdout).lines();
    let mut next = || -> Value { serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap() };
    let first = next();
    assert_eq!(first["seq"], 1);
    server.ok(&["node", "create", "c07u43", "--sku", "lxd"]);
    let mut last = first;
    while last["name"] != "node.created" {
        let event = next();
        assert_eq!(event["seq"].as_u64(), last["seq"].as_u64().map(|seq| seq + 1), "nothing is skipped");
        last = event;
    }
    drop(follower);
}

/// A process that ends with its test.
struct Ended(std::process::Child);

impl Drop for Ended {
    fn drop(&mut self) {
        // It may have ended by itself; then there is nothing to kill.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
