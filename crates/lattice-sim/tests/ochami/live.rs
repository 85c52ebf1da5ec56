//! A whole server at an OpenCHAMI site: machines boot from the network with the real agent, are rebooted, reimaged, and
//! shown. State Manager and Boot Script Service are simulated, and real where the environment names them.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use lattice_agent::Pace;
use lattice_core::actor::Role;
use lattice_core::component::{ComponentFlag, ComponentState, Word};
use lattice_core::ids::EventSeq;
use lattice_core::node::HostFacts;
use lattice_core::secret::Secret;
use lattice_providers::machine::openchami::{BootScript, Flag, Machine, NewEndpoint, NewSystem, OchamiClient, State};
use lattice_server::clock::{SystemClock, SystemIds};
use lattice_server::wiring::{Options, Server};
use lattice_sim::machine::real_agent::RealAgents;
use lattice_sim::openchami::{SimNode, SimOpenchami};
use lattice_sim::stop::Stop;
use lattice_store::{EventFilter, StoreConfig};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{client, xname};

const ANYWHERE: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);
/// Longest wait for anything: a quiet machine needs a tenth of it.
const PATIENCE: Duration = Duration::from_secs(60);

/// A server, its site, and one machine.
struct Plant {
    _folder: TempDir,
    server: Server,
    token: Secret<String>,
    http: reqwest::Client,
    sim: SimOpenchami,
    ochami: OchamiClient,
    machine: Machine,
    boots: Arc<AtomicU64>,
    _node: Stop,
}

impl Plant {
    /// With real State Manager and Boot Script Service at those addresses, or simulated ones. `slot` names the machine.
    async fn new(real: Option<[String; 2]>, slot: u32) -> Self {
        let bmc = format!("x3000c0s{slot}b0");
        let (node, mac) = (format!("{bmc}n0"), format!("52:54:00:00:30:{slot:02x}"));
        let sim = SimOpenchami::start(&[&node], Arc::new(SystemClock), None).await.unwrap();
        let [sim_smd, sim_bss, pcs] = sim.urls.clone();
        let [smd, bss] = real.unwrap_or([sim_smd, sim_bss]);
        let ochami = client(&smd, &bss, Some(pcs.clone()));
        let system = NewSystem {
            uri: "/redfish/v1/Systems/1".to_owned(),
            uuid: uuid::Uuid::from_u128(0x3000 + u128::from(slot)).to_string(),
            name: "n0".to_owned(),
            boot_interface: (mac.clone(), "127.0.0.1".to_owned()),
        };
        let endpoint = NewEndpoint {
            id: xname(&bmc),
            address: format!("10.30.0.{slot}"),
            user: "root".to_owned(),
            password: Secret::new("hush-hush".to_owned()),
            mac: format!("aabbcc30{slot:04x}"),
            systems: vec![system],
        };
        ochami.make_known(&endpoint).await.unwrap();
        ochami.set_state(&xname(&node), State::On, Flag::Ok).await.unwrap();
        let folder = tempfile::tempdir().unwrap();
        let options = Options {
            store: StoreConfig::sqlite(folder.path().join("lattice.db")),
            secrets_dir: folder.path().to_owned(),
            secrets_key: folder.path().join("secrets.key"),
            api_listen: ANYWHERE,
            agent_listen: ANYWHERE,
            ..Options::default()
        };
        let server = Server::start(options, Arc::new(SystemClock), Arc::new(SystemIds)).await.unwrap();
        let token = server.issue_token("test", Role::PlatformAdmin).await.unwrap();
        let boots = Arc::new(AtomicU64::new(0));
        let mut plant = Self {
            _folder: folder,
            server,
            token,
            http: reqwest::Client::new(),
            ochami,
            machine: Machine { xname: xname(&node), mac: mac.clone() },
            boots: Arc::clone(&boots),
            _node: lattice_sim::stop::spawn_until_stopped(async {}),
            sim,
        };
        let boot = |kernel: &str| json!({ "kernel": format!("http://i/{kernel}"), "initrd": "http://i/initrd" });
        let api = format!("http://{}", plant.server.api);
        plant
            .post(
                "sites",
                json!({ "name": "hpc", "region_code": "eu", "provider": {
                    "kind": "openchami", "smd_url": smd, "bss_url": bss, "pcs_url": pcs, "needs_token": false,
                    "notices_url": api, "policy": { "component_interval_ms": 3_600_000 },
                    "boot_profiles": { "default": boot("compute"), "gpu": boot("gpu") } } }),
            )
            .await;
        plant.post("skus", json!({ "name": "compute", "gpus": 0 })).await;
        let ca_pem = plant.get("agent-ca").await["ca_pem"].as_str().unwrap().to_owned();
        let pace = Pace {
            backoff_base: Duration::from_millis(20),
            refused_cap: Duration::from_millis(200),
            ..Pace::default()
        };
        let machine = SimNode {
            xname: node,
            mac,
            bss,
            ca_pem,
            facts: HostFacts { cpus: 64, memory_mib: 1 << 20, ..HostFacts::default() },
            pcs: Arc::clone(&plant.sim.pcs),
            agents: (RealAgents::new(pace), pace),
        };
        plant._node = machine.run(boots);
        plant
    }

    fn url(&self, path: &str) -> String {
        format!("http://{}/api/v1/admin/{path}", self.server.api)
    }

    async fn post(&self, path: &str, body: Value) -> Value {
        let asked = self.http.post(self.url(path)).bearer_auth(self.token.expose()).json(&body);
        let answer = asked.send().await.unwrap();
        let status = answer.status();
        let text = answer.text().await.unwrap();
        assert!(status.is_success(), "{path}: {status} {text}");
        serde_json::from_str(&text).unwrap()
    }

    async fn get(&self, path: &str) -> Value {
        let answer = self.http.get(self.url(path)).bearer_auth(self.token.expose()).send().await.unwrap();
        let status = answer.status();
        let text = answer.text().await.unwrap();
        assert!(status.is_success(), "{path}: {status} {text}");
        serde_json::from_str(&text).unwrap()
    }

    /// Waits for the end of a job, and says what it came to.
    async fn ended(&self, job: &Value) -> Value {
        let path = format!("jobs/{}", job.as_str().unwrap());
        let mut follower = self.server.store.follow();
        let ends = async {
            loop {
                let last = self.server.store.last_event().await.unwrap();
                let view = self.get(&path).await;
                let status = view["status"].as_str().unwrap_or_default();
                if matches!(status, "completed" | "cancelled" | "reconciled") || status.starts_with("failed") {
                    return view;
                }
                // Looked at again in any case: not every change is an event.
                let _woken = tokio::time::timeout(Duration::from_millis(500), follower.after(last)).await;
            }
        };
        match tokio::time::timeout(PATIENCE, ends).await {
            Ok(view) => view,
            Err(_) => panic!("the job does not end: {:#}", self.get(&path).await),
        }
    }

    /// Waits until State Manager says that of the machine.
    async fn said(&self, word: Word) {
        let says = async {
            loop {
                let said = self.ochami.component(&self.machine.xname).await.unwrap().unwrap().word();
                if said == word {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        };
        tokio::time::timeout(PATIENCE, says).await.unwrap_or_else(|_| panic!("it never says {word}"));
    }

    /// Waits for an event of that name.
    async fn told(&self, name: &str) -> String {
        let mut follower = self.server.store.follow();
        let (mut seen, filter) = (EventSeq(0), EventFilter::default());
        let told = async {
            loop {
                for event in self.server.store.events(seen, &filter, 1_000).await.unwrap() {
                    seen = event.seq;
                    if event.row.name == name {
                        return event.row.payload["detail"].as_str().unwrap_or_default().to_owned();
                    }
                }
                follower.after(seen).await.unwrap();
            }
        };
        tokio::time::timeout(PATIENCE, told).await.unwrap_or_else(|_| panic!("no {name}"))
    }

    async fn node(&self) -> Value {
        self.get("nodes/n1").await
    }

    async fn onboarded(&self) {
        let body = json!({ "site_id": "hpc", "sku_id": "compute", "hostname": "n1", "xname": self.machine.xname });
        let accepted = self.post("onboardings", body).await;
        let done = self.ended(&accepted["onboarding_id"]).await;
        assert_eq!(done["status"], "completed", "{done:#}");
        let node = self.node().await;
        assert_eq!((node["status"].as_str(), node["availability"].as_str()), (Some("active"), Some("ready")));
    }

    async fn drained(&self) {
        let answer = self.post("nodes/n1/drain", json!({})).await;
        self.ended(&answer["job_id"]).await;
        assert_eq!(self.node().await["availability"], "drained");
    }
}

async fn a_life(real: Option<[String; 2]>, slot: u32) {
    let plant = Plant::new(real, slot).await;
    let probed = plant.post("sites/hpc/probe", json!({})).await;
    assert_eq!(probed["ok"], true, "{probed}");
    plant.onboarded().await;
    assert_eq!(plant.boots.load(Ordering::SeqCst), 1);
    let BootScript::Boots { kernel } = plant.ochami.boot_script(&plant.machine).await.unwrap() else {
        panic!("it boots something");
    };
    assert_eq!(kernel, "http://i/compute");
    // A boot script is public: nobody learns a token from it, nor by asking from elsewhere or again.
    let params = plant.ochami.boot(&plant.machine).await.unwrap().unwrap().params;
    assert!(!params.contains("lat_enroll"), "{params}");

    // State Manager is told what the node is, and tells what others make of it, long before it would be asked again.
    plant.said(Word::new(ComponentState::Ready, ComponentFlag::Ok)).await;
    plant.ochami.set_state(&plant.machine.xname, State::Halt, Flag::Ok).await.unwrap();
    let detail = plant.told("node.component.changed").await;
    assert!(detail.contains("State Manager says halt/ok"), "{detail}");
    assert_eq!(plant.node().await["availability"], "ready", "it moves no node");
    assert_eq!(plant.node().await["component"]["said"]["state"], "halt");

    plant.drained().await;
    plant.said(Word::new(ComponentState::Standby, ComponentFlag::Ok)).await;
    let before = plant.node().await;
    let rebooted = plant.post("nodes/n1/reboot", json!({})).await;
    let done = plant.ended(&rebooted["job_id"]).await;
    assert_eq!(done["status"], "completed", "{done:#}");
    let after = plant.node().await;
    assert_eq!(plant.boots.load(Ordering::SeqCst), 2);
    assert_ne!(before["boot_id"], after["boot_id"]);
    assert_eq!(after["availability"], "drained", "its drain stands");

    let reimaged = plant.post("nodes/n1/reimage", json!({ "image": "gpu" })).await;
    let done = plant.ended(&reimaged["job_id"]).await;
    assert_eq!(done["status"], "completed", "{done:#}");
    let node = plant.node().await;
    assert_eq!((node["status"].as_str(), node["availability"].as_str()), (Some("active"), Some("ready")), "{node:#}");
    assert_eq!(node["holds"], json!([]));
    assert_eq!(plant.ochami.boot(&plant.machine).await.unwrap().unwrap().kernel, "http://i/gpu");
    assert_eq!(plant.boots.load(Ordering::SeqCst), 3);
    plant.said(Word::new(ComponentState::Ready, ComponentFlag::Ok)).await;
    plant.server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_machine_is_onboarded_rebooted_and_reimaged_at_a_simulated_site() {
    a_life(None, 1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_machine_is_onboarded_rebooted_and_reimaged_with_real_services() {
    let Some(services) = crate::real() else { return };
    a_life(Some(services), 2).await;
}
