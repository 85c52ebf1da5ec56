//! A real Vault of one test: its own process, port and directory. `LATTICE_TEST_VAULT` names the binary.
#![allow(dead_code, reason = "each test program uses a part of it")]
#![allow(clippy::unwrap_used, reason = "a test stops at what it cannot do")]

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use lattice_core::secret::Secret;
use lattice_providers::secret::vault::{Credential, VaultAuth, VaultSettings};
use serde_json::{Value, json};

/// The policy that operators are given.
const POLICY: &str = include_str!("../../../../deploy/vault-policy.hcl");
/// Longest wait for a Vault that starts, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// Where its storage is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Storage {
    Memory,
    MemoryTls,
    Disk,
}

/// A Vault that runs until it is dropped.
pub struct Vault {
    /// `http://127.0.0.1:PORT`.
    pub address: String,
    /// Its root token.
    pub root: String,
    binary: PathBuf,
    storage: Storage,
    home: tempfile::TempDir,
    key: String,
    http: reqwest::Client,
    child: Option<Child>,
}

impl Vault {
    /// In memory, unsealed, with the mount `kv`, the policy and the role `lattice`. None: there is no Vault to test with.
    pub async fn in_memory() -> Option<Self> {
        Self::start(Storage::Memory).await
    }

    /// The same, with TLS by an authority of its own.
    pub async fn with_tls() -> Option<Self> {
        Self::start(Storage::MemoryTls).await
    }

    /// On disk.
    pub async fn on_disk() -> Option<Self> {
        Self::start(Storage::Disk).await
    }

    async fn start(storage: Storage) -> Option<Self> {
        let Some(binary) = std::env::var_os("LATTICE_TEST_VAULT") else {
            eprintln!("skipped: LATTICE_TEST_VAULT names no Vault");
            return None;
        };
        let home = tempfile::tempdir().unwrap();
        // The second one is for the cluster that a Vault on disk insists on.
        let port = loop {
            let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
            if port < u16::MAX && std::net::TcpListener::bind(("127.0.0.1", port + 1)).is_ok() {
                break port;
            }
        };
        let scheme = if storage == Storage::MemoryTls { "https" } else { "http" };
        let http = reqwest::Client::builder().no_proxy().timeout(Duration::from_secs(10));
        let http = if storage == Storage::MemoryTls {
            http.tls_danger_accept_invalid_certs(true)
        } else {
            http.tls_certs_only([])
        };
        let mut vault = Self {
            address: format!("{scheme}://127.0.0.1:{port}"),
            root: "root".to_owned(),
            binary: binary.into(),
            storage,
            home,
            key: String::new(),
            http: http.build().unwrap(),
            child: None,
        };
        vault.run().await;
        if storage == Storage::Disk {
            let (_, made) = vault.call("PUT", "sys/init", json!({"secret_shares": 1, "secret_threshold": 1})).await;
            vault.root = made["root_token"].as_str().unwrap().to_owned();
            vault.key = made["keys"][0].as_str().unwrap().to_owned();
            vault.unseal().await;
        }
        vault.set_up().await;
        Some(vault)
    }

    /// What docs/guides/vault.md tells an operator to do.
    async fn set_up(&self) {
        self.mount("kv", "2").await;
        self.ok("PUT", "sys/policies/acl/lattice", json!({"policy": POLICY})).await;
        self.ok("POST", "sys/auth/approle", json!({"type": "approle"})).await;
        self.role(json!({"token_policies": ["lattice"], "token_ttl": "1h", "token_max_ttl": "4h"})).await;
    }

    /// Mounts a key-value store.
    pub async fn mount(&self, name: &str, version: &str) {
        self.ok("POST", &format!("sys/mounts/{name}"), json!({"type": "kv", "options": {"version": version}})).await;
        if version == "2" {
            // A new mount needs a moment before it takes writes.
            let path = format!("{name}/data/lattice/mounted");
            self.until(|| async { self.call("POST", &path, json!({"data": {"a": "b"}})).await.0 == 200 }).await;
            self.ok("DELETE", &format!("{name}/metadata/lattice/mounted"), Value::Null).await;
        }
    }

    /// Sets the role `lattice`.
    pub async fn role(&self, settings: Value) {
        self.ok("POST", "auth/approle/role/lattice", settings).await;
    }

    /// The role's id.
    pub async fn role_id(&self) -> String {
        let (_, body) = self.call("GET", "auth/approle/role/lattice/role-id", Value::Null).await;
        body["data"]["role_id"].as_str().unwrap().to_owned()
    }

    /// A fresh secret id of the role.
    pub async fn secret_id(&self) -> String {
        let (_, body) = self.call("POST", "auth/approle/role/lattice/secret-id", json!({})).await;
        body["data"]["secret_id"].as_str().unwrap().to_owned()
    }

    /// A fresh token of these policies.
    pub async fn token(&self, settings: Value) -> String {
        let (_, body) = self.call("POST", "auth/token/create", settings).await;
        body["auth"]["client_token"].as_str().unwrap().to_owned()
    }

    /// Ends every token that the role's logins gave.
    pub async fn revoke_logins(&self) {
        self.ok("PUT", "sys/leases/revoke-prefix/auth/approle/login", json!({})).await;
    }

    /// How many tokens there are.
    pub async fn tokens(&self) -> usize {
        let (_, body) = self.call("LIST", "auth/token/accessors", Value::Null).await;
        body["data"]["keys"].as_array().unwrap().len()
    }

    /// Seals it.
    pub async fn seal(&self) {
        self.ok("PUT", "sys/seal", json!({})).await;
    }

    /// Unseals it, and waits until it serves.
    pub async fn unseal(&self) {
        self.ok("PUT", "sys/unseal", json!({"key": self.key})).await;
        self.until(|| async { self.call("GET", "sys/health", Value::Null).await.0 == 200 }).await;
    }

    /// Kills it. What is on disk stays.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    /// Starts it again at the same address; on disk it is sealed then.
    pub async fn run(&mut self) {
        let home = self.home.path();
        let mut command = Command::new(&self.binary);
        command.arg("server");
        let listen = self.address.split_once("://").unwrap().1.to_owned();
        match self.storage {
            Storage::Memory => {
                command.args(["-dev", "-dev-root-token-id=root", "-dev-no-store-token"]);
                command.arg(format!("-dev-listen-address={listen}"));
            }
            Storage::MemoryTls => {
                command.args(["-dev-tls", "-dev-root-token-id=root", "-dev-no-store-token"]);
                command.arg(format!("-dev-tls-cert-dir={}", home.display()));
                command.arg(format!("-dev-listen-address={listen}"));
            }
            Storage::Disk => {
                let config = home.join("vault.hcl");
                std::fs::create_dir_all(home.join("data")).unwrap();
                std::fs::write(&config, disk(home, &listen)).unwrap();
                command.arg(format!("-config={}", config.display()));
            }
        }
        let log = std::fs::File::options().create(true).append(true).open(home.join("log")).unwrap();
        command.env_clear().env("HOME", home).stdin(Stdio::null());
        command.stdout(log.try_clone().unwrap()).stderr(log);
        self.child = Some(command.spawn().unwrap());
        self.until(|| async { self.call("GET", "sys/health", Value::Null).await.0 != 0 }).await;
    }

    /// The authority of its certificate, in PEM.
    pub fn ca(&self) -> Vec<u8> {
        std::fs::read(self.home.path().join("vault-ca.pem")).unwrap()
    }

    /// What it logged.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.home.path().join("log")).unwrap_or_default()
    }

    /// A request as root: status and body; 0 when there is no answer.
    pub async fn call(&self, method: &str, path: &str, body: Value) -> (u16, Value) {
        let request = self.http.request(method.parse().unwrap(), format!("{}/v1/{path}", self.address));
        let request = request.header("x-vault-token", &self.root);
        let request = if body.is_null() { request } else { request.body(body.to_string()) };
        let Ok(answer) = request.send().await else { return (0, Value::Null) };
        let status = answer.status().as_u16();
        (status, serde_json::from_slice(&answer.bytes().await.unwrap_or_default()).unwrap_or(Value::Null))
    }

    /// A request as root that must succeed.
    pub async fn ok(&self, method: &str, path: &str, body: Value) {
        let (status, answer) = self.call(method, path, body).await;
        assert!((200..300).contains(&status), "{method} {path}: {status} {answer}\n{}", self.log());
    }

    async fn until<F: Future<Output = bool>>(&self, is_so: impl Fn() -> F) {
        let begun = Instant::now();
        while !is_so().await {
            assert!(begun.elapsed() < PATIENCE, "Vault at {} does not come up:\n{}", self.address, self.log());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Settings that log in this way.
    pub fn settings(&self, auth: VaultAuth) -> VaultSettings {
        VaultSettings {
            address: self.address.clone(),
            mount: "kv".to_owned(),
            namespace: None,
            ca_pem: None,
            auth,
            timeout: Duration::from_secs(5),
        }
    }

    /// Settings that log in as the role, with whatever the cell holds.
    pub async fn by_role(&self, secret_id: &Cell) -> VaultSettings {
        let auth = VaultAuth::AppRole {
            path: "approle".to_owned(),
            role_id: self.role_id().await,
            secret_id: secret_id.credential(),
        };
        self.settings(auth)
    }
}

impl Drop for Vault {
    fn drop(&mut self) {
        self.kill();
    }
}

fn disk(home: &Path, listen: &str) -> String {
    let port: u16 = listen.rsplit_once(':').unwrap().1.parse().unwrap();
    let data = home.join("data");
    format!(
        "storage \"raft\" {{\n path = \"{}\"\n node_id = \"n1\"\n performance_multiplier = 1\n}}\n\
         listener \"tcp\" {{\n address = \"{listen}\"\n tls_disable = true\n}}\n\
         api_addr = \"http://{listen}\"\ncluster_addr = \"http://127.0.0.1:{}\"\ndisable_mlock = true\nui = false\n",
        data.display(),
        port + 1
    )
}

/// A credential that a test changes while it is used.
#[derive(Clone)]
pub struct Cell(Arc<Mutex<Result<String, String>>>);

impl Cell {
    /// Holding that.
    pub fn new(secret: impl Into<String>) -> Self {
        Self(Arc::new(Mutex::new(Ok(secret.into()))))
    }

    /// Puts another in its place.
    pub fn set(&self, secret: Result<String, String>) {
        *self.0.lock().unwrap() = secret;
    }

    /// As a store reads it.
    pub fn credential(&self) -> Credential {
        let cell = Arc::clone(&self.0);
        Arc::new(move || cell.lock().unwrap().clone().map(Secret::new))
    }
}
