//! Two real servers on one PostgreSQL and one Vault, with real agents: one hears them, the other one sends them there and
//! takes over when the first is killed, or stops. No node is lost by it.
#![allow(clippy::unwrap_used, reason = "a test stops at what it cannot do")]

#[path = "../../lattice-providers/tests/vault/mod.rs"]
mod vault;

mod installation;

use std::net::SocketAddr;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use installation::Installation;
use lattice_agent::Pace;
use lattice_sim::maas::config::SiteConfig;
use lattice_sim::maas::site::SimulatedSite;
use lattice_sim::machine::real_agent::RealAgents;
use serde_json::json;
use vault::Vault;

const MACHINES: u32 = 3;
/// Longest time for the whole: most of what a quiet machine takes is the 35 seconds until a dead server is replaced.
const PATIENCE: Duration = Duration::from_secs(400);
/// Not that of another test.
const SSH_PORT: u16 = 22_144;

/// A database, until it is dropped.
struct Database {
    server: String,
    name: String,
}

impl Database {
    fn create() -> Option<Self> {
        let Ok(url) = std::env::var("LATTICE_TEST_POSTGRES") else {
            println!("skipped: servers (LATTICE_TEST_POSTGRES is not set)");
            return None;
        };
        let (server, _) = url.rsplit_once('/').expect("postgres://user@host:port/database");
        let made = Self { server: server.to_owned(), name: format!("servers_{}", std::process::id()) };
        made.administer(&format!("DROP DATABASE IF EXISTS {} WITH (FORCE)", made.name));
        made.administer(&format!("CREATE DATABASE {}", made.name));
        Some(made)
    }

    fn url(&self) -> String {
        format!("{}/{}", self.server, self.name)
    }

    fn administer(&self, sql: &str) {
        let url = format!("{}/postgres", self.server);
        assert!(Command::new("psql").args(["--quiet", "--command", sql, &url]).status().unwrap().success(), "{sql}");
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        // A test that fails already says why.
        let sql = format!("DROP DATABASE {} WITH (FORCE)", self.name);
        let _ =
            Command::new("psql").args(["--quiet", "--command", &sql, &format!("{}/postgres", self.server)]).status();
    }
}

async fn hears(server: &Installation) -> bool {
    server.metrics().await.contains("\nlattice_hears_agents 1")
}

/// Every node was heard by this server, in a session that is open.
async fn heard_at(server: &Installation, nodes: &[String]) -> bool {
    for node in nodes {
        let (_, view) = server.get(&format!("nodes/{node}")).await;
        if view["health"]["said"].is_null() || !view["health"]["caveat"].is_null() {
            return false;
        }
    }
    true
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn agents_follow_the_server_that_hears_and_no_node_is_lost_when_it_dies_or_stops() {
    let (Some(vault), Some(database)) = (Vault::in_memory().await, Database::create()) else { return };
    let (mut one, mut two) = (Installation::new("one", PATIENCE), Installation::new("two", PATIENCE));
    let secret_id = vault.secret_id().await;
    for server in [&one, &two] {
        std::fs::write(server.path("secret-id"), &secret_id).unwrap();
        std::fs::write(server.path("database"), database.url()).unwrap();
        // Hosts are given the second one: it must send their agents on.
        server.configure(&format!(
            "[store]\nbackend = \"postgres\"\npostgres_url = \"file:{}\"\n[bootstrap]\nserver = \"https://{}\"\n\
             [secrets]\nbackend = \"vault\"\nvault_address = \"{}\"\nvault_role_id = \"{}\"\n\
             vault_secret_id = \"file:{}\"\n",
            server.path("database").display(),
            two.agents,
            vault.address,
            vault.role_id().await,
            server.path("secret-id").display(),
        ));
    }
    let region = SiteConfig::dev(13, MACHINES);
    let machines = region.population.machines.clone();
    let nodes: Vec<String> = machines.iter().map(|machine| machine.label.clone()).collect();
    let agents = Arc::new(RealAgents::new(Pace::default()));
    let site = SimulatedSite::start(region, SocketAddr::from(([127, 0, 0, 1], 0)), agents, SSH_PORT).await.unwrap();
    one.start().await;
    one.until("one to hear agents", async || hears(&one).await).await;
    two.token.clone_from(&one.token);
    two.start().await;
    assert!(!hears(&two).await, "one does");

    // By the one that stands by, whatever is asked of it.
    let provider = json!({"kind": "maas", "api_base_url": site.url, "pxe_iface": "ens19", "pxe_vlan_vid": 0,
        "node_pxe_iface": "eno8303", "deploy_ssh_port": SSH_PORT, "policy": {"poll_interval_ms": 250}});
    two.ok("sites", json!({"name": "dc1", "region_code": "r", "provider": provider})).await;
    let bmc = &machines[0].bmc;
    let credentials = json!({"api_token": site.key.joined(), "deploy_password": "deploy-password",
        "power": {"user": bmc.user, "pass": bmc.password}});
    two.ok("sites/dc1/credentials", credentials).await;
    two.ok("skus", json!({"name": "any8", "gpus": 8})).await;
    for machine in &machines {
        let body = json!({"site_id": "dc1", "sku_id": "any8", "hostname": machine.label,
            "ipmi_ip": machine.bmc.address.to_string()});
        two.ok("onboardings", body).await;
    }
    two.active(nodes.len()).await;
    one.until("every agent", async || heard_at(&one, &nodes).await).await;
    assert!(!heard_at(&two, &nodes[..1]).await, "they were sent to the first");

    one.stop();
    two.until("two to hear agents", async || hears(&two).await).await;
    two.until("every agent", async || heard_at(&two, &nodes).await).await;
    one.start().await;
    assert!(!hears(&one).await, "two does");
    two.end();
    one.until("one to hear agents", async || hears(&one).await).await;
    one.until("every agent", async || heard_at(&one, &nodes).await).await;
    one.active(nodes.len()).await;

    let (_, page) = one.get("events?limit=1000").await;
    assert_ne!(page["more"], true, "all of them are looked at");
    let moved = |to: &str| {
        let events = page["events"].as_array().unwrap().iter().filter(|event| event["name"] == "node.moved");
        events.filter(|event| event["payload"]["availability"] == to).count()
    };
    assert!(moved("ready") >= nodes.len() && moved("down") == 0, "{page}");
    one.end();
    site.stop().await;
}
