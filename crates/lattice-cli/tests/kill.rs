//! kill -9 of the real server, again and again, while machines onboard through a simulated region over HTTP: every
//! machine becomes active, each is deployed once, the audit's chain is whole, and a webhook gets every event in order.
#![allow(clippy::unwrap_used, reason = "a test stops at what it cannot do")]

use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use lattice_agent::Pace;
use lattice_sim::maas::config::SiteConfig;
use lattice_sim::maas::site::SimulatedSite;
use lattice_sim::machine::real_agent::RealAgents;
use serde_json::{Value, json};

const MACHINES: u32 = 6;
/// Longest time for the whole: a quiet machine takes a fifth of it.
const PATIENCE: Duration = Duration::from_secs(180);
/// Not the port of `lattice dev`: both may run on one host.
const SSH_PORT: u16 = 22_122;

/// The server as a process of its own.
struct Server {
    child: Child,
    api: SocketAddr,
}

impl Server {
    fn start(config: &Path, api: SocketAddr) -> Self {
        let child = Command::new(env!("CARGO_BIN_EXE_lattice"))
            .args(["server", "--config"])
            .arg(config)
            .env_remove("LATTICE_TOKEN_FILE")
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("the server starts");
        Self { child, api }
    }

    fn kill(mut self) {
        self.child.kill().expect("it runs");
        self.child.wait().expect("it is ours");
    }
}

struct Api {
    http: reqwest::Client,
    base: String,
    token: String,
}

impl Api {
    async fn post(&self, path: &str, body: &Value) {
        let answer = self.http.post(format!("{}/{path}", self.base)).bearer_auth(&self.token).json(body).send().await;
        let answer = answer.expect("it answers");
        let status = answer.status();
        assert!(status.is_success(), "POST {path}: {status} {}", answer.text().await.unwrap());
    }

    /// None while the server is away.
    async fn get(&self, path: &str) -> Option<Value> {
        let answer = self.http.get(format!("{}/{path}", self.base)).bearer_auth(&self.token).send().await.ok()?;
        answer.json().await.ok()
    }

    async fn active(&self) -> Option<usize> {
        let nodes = self.get("nodes?limit=1000").await?;
        let rows = nodes["items"].as_array()?;
        Some(rows.iter().filter(|row| row["status"] == "active" && row["availability"] == "ready").count())
    }

    /// Place of the last event.
    async fn last_event(&self) -> Option<u64> {
        let mut after = 0;
        loop {
            let page = self.get(&format!("events?after={after}&limit=1000")).await?;
            let events = page["events"].as_array().or_else(|| page["items"].as_array())?;
            match events.last() {
                Some(last) => after = last["seq"].as_u64()?,
                None => return Some(after),
            }
        }
    }
}

/// A receiver of events: the places that it got, in the order in which they came.
async fn receiver() -> (String, Arc<Mutex<Vec<u64>>>) {
    let got: Arc<Mutex<Vec<u64>>> = Arc::default();
    let kept = got.clone();
    let router = axum::Router::new().fallback(async move |headers: axum::http::HeaderMap| {
        let seq = headers["lattice-event-id"].to_str().unwrap().parse().unwrap();
        kept.lock().unwrap().push(seq);
    });
    let socket = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/hook", socket.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(socket, router).await });
    (url, got)
}

fn free_port() -> SocketAddr {
    let socket = TcpListener::bind("127.0.0.1:0").expect("a free port");
    socket.local_addr().expect("it has an address")
}

/// Waits until `look` gives something; nothing here can be waited for but by looking, the server being killed.
async fn until<T>(deadline: Instant, what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let mut pause = tokio::time::interval(Duration::from_millis(50));
    loop {
        pause.tick().await;
        if let Some(found) = look().await {
            return found;
        }
        assert!(Instant::now() < deadline, "{what} did not come");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_killed_again_and_again_onboards_every_machine_and_deploys_each_once() {
    let folder = tempfile::tempdir().expect("a folder");
    let (api_at, agents_at) = (free_port(), free_port());
    let config = folder.path().join("lattice.toml");
    let data = folder.path().join("data");
    let text = format!(
        "[server]\ndata_dir = \"{}\"\nname = \"one\"\n[http]\nlisten = \"{api_at}\"\n[agents]\nlisten = \"{agents_at}\"\n\
         address = \"https://{agents_at}\"\n[webhooks]\nallow = [\"127.0.0.1\"]\n[log]\nlevel = \"warn\"\nformat = \"text\"\n",
        data.display()
    );
    std::fs::write(&config, text).expect("written");

    let deadline = Instant::now() + PATIENCE;
    let region = SiteConfig::dev(7, MACHINES);
    let machines = region.population.machines.clone();
    let agents = Arc::new(RealAgents::new(Pace::default()));
    let site =
        SimulatedSite::start(region, SocketAddr::from(([127, 0, 0, 1], 0)), agents, SSH_PORT).await.expect("a site");

    let mut server = Server::start(&config, api_at);
    let token_file = data.join("admin.token");
    let token = until(deadline, "the first token", async || {
        std::fs::read_to_string(&token_file).ok().filter(|text| !text.is_empty())
    })
    .await;
    let api = Api { http: reqwest::Client::new(), base: format!("http://{}/api/v1/admin", server.api), token };
    until(deadline, "the server", async || api.active().await).await;

    let (url, got) = receiver().await;
    api.post("webhooks", &json!({"name": "mirror", "url": url, "events": ["*"]})).await;
    let provider = json!({"kind": "maas", "api_base_url": site.url, "pxe_iface": "ens19", "pxe_vlan_vid": 0,
        "node_pxe_iface": "eno8303", "deploy_ssh_port": SSH_PORT, "policy": {"poll_interval_ms": 250}});
    api.post("sites", &json!({"name": "dc1", "region_code": "r", "provider": provider})).await;
    let bmc = &machines[0].bmc;
    let credentials = json!({"api_token": site.key.joined(), "power": {"user": bmc.user, "pass": bmc.password},
        "deploy_password": "correct-horse-battery"});
    api.post("sites/dc1/credentials", &credentials).await;
    api.post("skus", &json!({"name": "any8", "gpus": 8})).await;
    for machine in &machines {
        let body = json!({"site_id": "dc1", "sku_id": "any8", "hostname": machine.label,
            "ipmi_ip": machine.bmc.address.to_string()});
        api.post("onboardings", &body).await;
    }

    // Kill it after every few events, at another place of the work each time.
    let mut kills = 0;
    loop {
        let active = until(deadline, "the server", async || api.active().await).await;
        if active == MACHINES as usize {
            break;
        }
        let seen = until(deadline, "the feed", async || api.last_event().await).await;
        let more = 5 + (kills % 7) * 4;
        until(deadline, "progress", async || {
            let moved = api.last_event().await.is_some_and(|last| last >= seen + more);
            let done = api.active().await == Some(MACHINES as usize);
            (moved || done).then_some(())
        })
        .await;
        server.kill();
        kills += 1;
        server = Server::start(&config, api_at);
    }
    assert!(kills >= 5, "killed only {kills} times");

    let report = site.handle.report();
    let deploys: u64 =
        report.calls.iter().filter(|(call, _)| call.contains("op=deploy")).map(|(_, count)| *count).sum();
    assert_eq!(deploys, u64::from(MACHINES), "after {kills} kills: {:#?}", report.calls);
    assert_eq!(report.unknown_requests, []);
    let verdict = api.get("audit/verify").await.expect("it answers");
    assert_eq!(verdict["ok"], true, "{verdict}");
    let last = until(deadline, "the feed", async || api.last_event().await).await;
    let last_got = || got.lock().unwrap().last().copied();
    until(deadline, "the last event", async || last_got().filter(|seq| *seq >= last)).await;
    let mut seqs = got.lock().unwrap().clone();
    // What was taken and not stored when the server died comes again, and nothing else does.
    let came = seqs.len();
    seqs.dedup();
    assert!(came - seqs.len() <= kills as usize, "{} repeats after {kills} kills", came - seqs.len());
    assert!(seqs.is_sorted_by(|a, b| a + 1 == *b), "in order and without gaps: {seqs:?}");
    assert_eq!(seqs.len() as u64, seqs.last().unwrap() - seqs[0] + 1);
    println!("webhook: {} events, {} twice, after {kills} kills", seqs.len(), came - seqs.len());
    server.kill();
    site.stop().await;
}
