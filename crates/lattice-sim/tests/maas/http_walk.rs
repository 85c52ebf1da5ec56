//! Over a real socket with a plain HTTP client.

use lattice_sim::maas::config::{SiteConfig, Timings};
use lattice_sim::maas::faults::{Fault, SiteFault};
use lattice_sim::maas::handle::MaasHandle;
use lattice_sim::maas::oauth::{ApiKey, sign};
use lattice_sim::maas::server::serve;
use lattice_sim::maas::world::{Effect, MaasWorld};
use lattice_sim::stop::Stop;
use serde_json::Value;
use tokio::net::TcpListener;

struct Site {
    handle: MaasHandle,
    url: String,
    key: ApiKey,
    http: reqwest::Client,
    running: Vec<Stop>,
    nonce: u64,
}

impl Site {
    async fn start(config: SiteConfig) -> Self {
        let key = config.admin_key.clone();
        let handle = MaasHandle::new(MaasWorld::new(config));
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url = format!("http://{}/MAAS/api/2.0", listener.local_addr().expect("an address"));
        let running = vec![handle.start_clock(), serve(listener, handle.clone())];
        Self { handle, url, key, http: reqwest::Client::new(), running, nonce: 0 }
    }

    async fn send(&mut self, method: &str, target: &str, form: &[(&str, &str)]) -> reqwest::Result<(u16, String)> {
        self.nonce += 1;
        let seconds = std::time::UNIX_EPOCH.elapsed().expect("after 1970").as_secs();
        let header = sign(&self.key, &format!("n{}", self.nonce), seconds as i64);
        let method = method.parse().expect("a method");
        let request = self.http.request(method, format!("{}/{target}", self.url)).header("Authorization", header);
        let request = if form.is_empty() { request } else { request.form(form) };
        let response = request.send().await?;
        Ok((response.status().as_u16(), response.text().await?))
    }

    async fn json(&mut self, method: &str, target: &str, form: &[(&str, &str)]) -> Value {
        let (status, text) = self.send(method, target, form).await.expect("an answer");
        assert_eq!(status, 200, "{method} {target}: {text}");
        serde_json::from_str(&text).expect("JSON")
    }

    async fn stop(self) {
        for task in self.running {
            task.stop().await;
        }
    }
}

fn quick(count: u32) -> SiteConfig {
    SiteConfig { timings: Timings::dev().scaled(0.01), ..SiteConfig::dev(1, count) }
}

#[tokio::test]
async fn a_plain_client_takes_a_machine_from_new_to_deployed() {
    let config = quick(1);
    let bmc = config.population.machines[0].bmc.clone();
    let mut site = Site::start(config).await;
    let mut effects = site.handle.effects();
    let (status, version) = site.send("GET", "version/", &[]).await.expect("an answer");
    assert_eq!((status, version.contains("3.7.3")), (200, true));
    let form = [
        ("hostname", "c01u43"),
        ("commission", "false"),
        ("power_type", "ipmi"),
        ("power_parameters_power_address", &*bmc.address.to_string()),
        ("power_parameters_power_user", &bmc.user),
        ("power_parameters_power_pass", &bmc.password),
    ];
    let machine = site.json("POST", "machines/", &form).await;
    let path = format!("machines/{}/", machine["system_id"].as_str().expect("an id"));
    site.json("POST", &format!("{path}?op=commission"), &[("testing_scripts", "none")]).await;
    wait_for(&mut site, &path, "Ready").await;
    site.json("POST", &format!("{path}?op=deploy"), &[("user_data", "I2Nsb3Vk")]).await;
    wait_for(&mut site, &path, "Deployed").await;
    loop {
        match effects.recv().await.expect("the site runs") {
            Effect::Booted(boot) => break assert_eq!(boot.user_data, b"#cloud"),
            Effect::PoweredOff { .. } | Effect::Wiped { .. } => {}
        }
    }
    assert_eq!(site.handle.report().unknown_requests, []);
    site.stop().await;
}

async fn wait_for(site: &mut Site, path: &str, status: &str) {
    for _ in 0..2000 {
        if site.json("GET", path, &[]).await["status_name"] == status {
            return;
        }
        tokio::task::yield_now().await;
    }
    panic!("never {status}");
}

#[tokio::test]
async fn a_site_that_is_down_breaks_connections_and_comes_back_when_healed() {
    let mut site = Site::start(quick(1)).await;
    let down = Fault::Site { what: SiteFault::Down };
    site.handle.arm(down.clone(), None);
    assert!(site.send("GET", "machines/", &[]).await.is_err());
    assert!(site.handle.heal(&down));
    assert_eq!(site.json("GET", "machines/", &[]).await, serde_json::json!([]));
    site.handle.arm(Fault::Site { what: SiteFault::Html }, Some(1));
    let (status, text) = site.send("GET", "machines/", &[]).await.expect("an answer");
    assert!(status == 502 && text.starts_with("<html>"));
    site.stop().await;
}
