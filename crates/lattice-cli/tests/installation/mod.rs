//! A server as a process of its own: its place, its configuration, and what is asked of it.
#![allow(dead_code, reason = "each test uses a part of it")]

use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

/// The server's place, and the server while it runs.
pub struct Installation {
    pub folder: tempfile::TempDir,
    /// Where it answers people.
    pub api: SocketAddr,
    /// Where it hears agents.
    pub agents: SocketAddr,
    /// Where the token of an administrator is.
    pub token: PathBuf,
    name: String,
    http: reqwest::Client,
    deadline: Instant,
    child: Option<Child>,
}

impl Installation {
    /// A place for a server of that name; everything that is waited for comes within `patience`.
    pub fn new(name: &str, patience: Duration) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (api, agents) = (free_port(), free_port());
        let token = folder.path().join("data").join("admin.token");
        let deadline = Instant::now() + patience;
        Self { folder, api, agents, token, name: name.to_owned(), http: reqwest::Client::new(), deadline, child: None }
    }

    /// Its configuration: where it is and listens, and `more`.
    pub fn configure(&self, more: &str) {
        let (data, name) = (self.path("data"), &self.name);
        let text = format!(
            "[server]\ndata_dir = \"{data}\"\nname = \"{name}\"\n[http]\nlisten = \"{api}\"\n\
             [agents]\nlisten = \"{agents}\"\naddress = \"https://{agents}\"\n\
             [log]\nlevel = \"debug\"\nformat = \"json\"\n{more}",
            data = data.display(),
            api = self.api,
            agents = self.agents,
        );
        std::fs::write(self.path("lattice.toml"), text).unwrap();
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn log(&self) -> String {
        std::fs::read_to_string(self.path("log")).unwrap_or_default()
    }

    pub fn spawn(&self) -> Child {
        let log = std::fs::File::options().create(true).append(true).open(self.path("log")).unwrap();
        Command::new(env!("CARGO_BIN_EXE_lattice"))
            .args(["server", "--config"])
            .arg(self.path("lattice.toml"))
            .env_remove("LATTICE_TOKEN_FILE")
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap()
    }

    pub async fn start(&mut self) {
        self.child = Some(self.spawn());
        self.until("the server", async || self.get("sites").await.0 == 200).await;
    }

    /// It is asked to stop, and does.
    pub fn end(&mut self) {
        let Some(mut child) = self.child.take() else { return };
        let asked = Command::new("kill").arg("-TERM").arg(child.id().to_string()).status().unwrap();
        assert!(asked.success() && child.wait().unwrap().success(), "{}", tail(&self.log()));
    }

    /// It is killed.
    pub fn stop(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    pub async fn until(&self, what: &str, mut is_so: impl AsyncFnMut() -> bool) {
        let mut pause = tokio::time::interval(Duration::from_millis(100));
        while !is_so().await {
            assert!(Instant::now() < self.deadline, "{what} did not come:\n{}", tail(&self.log()));
            pause.tick().await;
        }
    }

    async fn send(&self, request: reqwest::RequestBuilder) -> (u16, Value) {
        let token = std::fs::read_to_string(&self.token).unwrap_or_default();
        let Ok(answer) = request.bearer_auth(token).send().await else { return (0, Value::Null) };
        let status = answer.status().as_u16();
        let bytes = answer.bytes().await.unwrap_or_default();
        let text = || Value::String(String::from_utf8_lossy(&bytes).into_owned());
        (status, serde_json::from_slice(&bytes).unwrap_or_else(|_| text()))
    }

    pub async fn get(&self, path: &str) -> (u16, Value) {
        self.send(self.http.get(format!("http://{}/api/v1/admin/{path}", self.api))).await
    }

    pub async fn post(&self, path: &str, body: Value) -> (u16, Value) {
        self.send(self.http.post(format!("http://{}/api/v1/admin/{path}", self.api)).json(&body)).await
    }

    pub async fn ok(&self, path: &str, body: Value) -> Value {
        let (status, answer) = self.post(path, body).await;
        assert!((200..300).contains(&status), "{path}: {status} {answer}");
        answer
    }

    pub async fn events(&self) -> Vec<String> {
        let (_, page) = self.get("events?limit=1000").await;
        page["events"].as_array().unwrap().iter().map(|event| event["name"].as_str().unwrap().to_owned()).collect()
    }

    pub async fn metrics(&self) -> String {
        let (_, text) = self.send(self.http.get(format!("http://{}/metrics", self.api))).await;
        text.as_str().unwrap_or_default().to_owned()
    }

    pub async fn active(&self, wanted: usize) {
        self.until(&format!("active node number {wanted}"), async || {
            let (_, nodes) = self.get("nodes?limit=100").await;
            let is_active = |row: &&Value| row["status"] == "active" && row["availability"] == "ready";
            nodes["items"].as_array().is_some_and(|rows| rows.iter().filter(is_active).count() == wanted)
        })
        .await;
    }
}

impl Drop for Installation {
    fn drop(&mut self) {
        self.stop();
    }
}

pub fn tail(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(30)..].join("\n")
}

pub fn free_port() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}
