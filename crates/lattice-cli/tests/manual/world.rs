//! A server with everything, and the command line that is pointed at it.

use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use lattice_api::agent::HeartbeatConfig;
use lattice_core::actor::Role;
use lattice_core::change::NodeAction;
use lattice_core::node::{Node, NodeState};
use lattice_core::secret::Secret;
use lattice_core::time::{Clock, Timestamp};
use lattice_server::agent_api::{AgentPolicy, Limits};
use lattice_server::clock::{SystemClock, SystemIds};
use lattice_server::wiring::{Options, Server};
use lattice_store::{NodeFilter, NodeSort, PageRequest, StoreConfig};
use serde_json::Value;

use crate::host::PATIENCE;

/// The system's clock, put forward by the test, and for a while four times as fast: a clock that jumps makes nobody silent.
#[derive(Default)]
pub struct ForwardClock(Mutex<(Duration, Option<Instant>)>);

impl ForwardClock {
    pub fn advance(&self, by: Duration) {
        self.0.lock().unwrap().0 += by;
    }

    pub fn hasten(&self) {
        self.0.lock().unwrap().1 = Some(Instant::now());
    }

    pub fn slow_down(&self) {
        let ahead = self.ahead();
        *self.0.lock().unwrap() = (ahead, None);
    }

    fn ahead(&self) -> Duration {
        let (by, fast_since) = *self.0.lock().unwrap();
        by + fast_since.map_or(Duration::ZERO, |since| since.elapsed() * 3)
    }
}

impl Clock for ForwardClock {
    fn now(&self) -> Timestamp {
        SystemClock.now() + self.ahead()
    }
}

pub struct World {
    pub clock: Arc<ForwardClock>,
    /// Address of the agent listener.
    pub agents: String,
    server: Server,
    token: Secret<String>,
    home: tempfile::TempDir,
}

impl World {
    pub async fn start() -> Self {
        Self::with(Some(agent_binary())).await
    }

    pub async fn without_agent() -> Self {
        Self::with(None).await
    }

    async fn with(agent_binary: Option<PathBuf>) -> Self {
        let home = tempfile::tempdir().unwrap();
        let options = Options {
            store: StoreConfig::sqlite(home.path().join("lattice.db")),
            secrets_dir: home.path().to_owned(),
            secrets_key: home.path().join("secrets.key"),
            api_listen: "127.0.0.1:0".parse().unwrap(),
            agent_listen: "127.0.0.1:0".parse().unwrap(),
            agent_binary,
            agent_policy: AgentPolicy { heartbeat: HeartbeatConfig { interval_ms: 200, wait_ms: 100 } },
            agent_limits: Limits { connections: 100, ..Limits::default() },
            ..Options::default()
        };
        let clock = Arc::new(ForwardClock::default());
        let server = Server::start(options, clock.clone(), Arc::new(SystemIds)).await.unwrap();
        let token = server.issue_token("ada", Role::PlatformAdmin).await.unwrap();
        Self { clock, agents: format!("https://{}", server.agents), server, token, home }
    }

    pub fn lattice(&self, words: &[&str]) -> Output {
        Command::new(env!("CARGO_BIN_EXE_lattice"))
            .args(words)
            .env_clear()
            .env("HOME", self.home.path())
            .env("LATTICE_SERVER", format!("http://{}", self.server.api))
            .env("LATTICE_TOKEN", self.token.expose())
            .stdin(Stdio::null())
            .output()
            .unwrap()
    }

    /// Stdout of a command that must succeed.
    pub fn ok(&self, words: &[&str]) -> String {
        let output = self.lattice(words);
        assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    pub fn json(&self, words: &[&str]) -> Value {
        let words: Vec<&str> = words.iter().copied().chain(["-o", "json"]).collect();
        serde_json::from_str(&self.ok(&words)).unwrap()
    }

    /// SHA-256 of the agent's binary, as `sha256sum` says.
    pub fn agent_digest(&self) -> String {
        let output = Command::new("sha256sum").arg(agent_binary()).output().unwrap();
        String::from_utf8(output.stdout).unwrap()[..64].to_owned()
    }

    async fn node(&self, hostname: &str) -> Node {
        let page = PageRequest::first(lattice_store::PAGE_MAX);
        let nodes = self.server.store.nodes(&NodeFilter::default(), NodeSort::Hostname, &page).await.unwrap().items;
        let id = nodes.iter().find(|node| node.hostname == hostname).unwrap().id;
        self.server.store.node(id).await.unwrap().unwrap()
    }

    pub async fn state(&self, hostname: &str) -> NodeState {
        self.node(hostname).await.state
    }

    /// Waits until the node is there.
    pub async fn until(&self, hostname: &str, wanted: NodeState) {
        self.wait(&format!("{hostname} {wanted}"), async || self.state(hostname).await == wanted).await;
    }

    /// Waits until its agent registered for the first time.
    pub async fn until_registered(&self, hostname: &str) {
        self.wait(&format!("registration of {hostname}"), async || {
            let id = self.node(hostname).await.id;
            let page = PageRequest::first(lattice_store::PAGE_MAX);
            let history = self.server.store.history(id, &page).await.unwrap().items;
            history.iter().any(|entry| entry.row.action == NodeAction::Registered)
        })
        .await;
    }

    async fn wait(&self, what: &str, come: impl AsyncFn() -> bool) {
        let mut follower = self.server.store.follow();
        loop {
            let last = self.server.store.last_event().await.unwrap();
            if come().await {
                return;
            }
            tokio::time::timeout(PATIENCE, follower.after(last)).await.expect(what).unwrap();
        }
    }
}

/// The agent as LATTICE_AGENT_BINARY says, or as cargo builds it beside the command line.
fn agent_binary() -> PathBuf {
    static BUILT: std::sync::OnceLock<PathBuf> = std::sync::OnceLock::new();
    BUILT
        .get_or_init(|| {
            if let Some(path) = std::env::var_os("LATTICE_AGENT_BINARY") {
                return PathBuf::from(path);
            }
            let beside = PathBuf::from(env!("CARGO_BIN_EXE_lattice")).with_file_name("lattice-agent");
            let target = beside.parent().and_then(std::path::Path::parent).unwrap();
            let release: &[&str] = if cfg!(debug_assertions) { &[] } else { &["--release"] };
            let built = Command::new(env!("CARGO"))
                .args(["build", "--quiet", "--package", "lattice-agent", "--target-dir"])
                .arg(target)
                .args(release)
                .current_dir(env!("CARGO_MANIFEST_DIR"))
                .status()
                .unwrap();
            assert!(built.success(), "the agent is built");
            beside
        })
        .clone()
}
