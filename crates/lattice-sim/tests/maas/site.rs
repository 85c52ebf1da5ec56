//! A running site and a plain HTTP client of it.

use std::time::{Duration, Instant};

use lattice_sim::maas::config::{SiteConfig, Timings};
use lattice_sim::maas::handle::MaasHandle;
use lattice_sim::maas::oauth::{ApiKey, sign};
use lattice_sim::maas::server::serve;
use lattice_sim::maas::world::MaasWorld;
use lattice_sim::stop::Stop;
use serde_json::Value;
use tokio::net::TcpListener;

/// Longest wait for something that must happen; a busy machine may need some of it.
pub const PATIENCE: Duration = Duration::from_secs(30);

pub struct Site {
    pub handle: MaasHandle,
    url: String,
    key: ApiKey,
    http: reqwest::Client,
    running: Vec<Stop>,
    nonce: u64,
}

impl Site {
    pub async fn start(config: SiteConfig) -> Self {
        let key = config.admin_key.clone();
        let handle = MaasHandle::new(MaasWorld::new(config));
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url = format!("http://{}/MAAS/api/2.0", listener.local_addr().expect("an address"));
        let running = vec![handle.start_clock(), serve(listener, handle.clone())];
        Self { handle, url, key, http: reqwest::Client::new(), running, nonce: 0 }
    }

    /// The base address that a client is given.
    pub fn root(&self) -> String {
        self.url.trim_end_matches("/api/2.0").to_owned()
    }

    pub async fn send(&mut self, method: &str, target: &str, form: &[(&str, &str)]) -> reqwest::Result<(u16, String)> {
        self.nonce += 1;
        let seconds = std::time::UNIX_EPOCH.elapsed().expect("after 1970").as_secs();
        let header = sign(&self.key, &format!("n{}", self.nonce), seconds as i64);
        let method = method.parse().expect("a method");
        let request = self.http.request(method, format!("{}/{target}", self.url)).header("Authorization", header);
        let request = if form.is_empty() { request } else { request.form(form) };
        let response = request.send().await?;
        Ok((response.status().as_u16(), response.text().await?))
    }

    pub async fn json(&mut self, method: &str, target: &str, form: &[(&str, &str)]) -> Value {
        let (status, text) = self.send(method, target, form).await.expect("an answer");
        assert_eq!(status, 200, "{method} {target}: {text}");
        serde_json::from_str(&text).expect("JSON")
    }

    pub async fn stop(self) {
        for task in self.running {
            task.stop().await;
        }
    }
}

pub fn quick(count: u32) -> SiteConfig {
    SiteConfig { timings: Timings::dev().scaled(0.01), ..SiteConfig::dev(1, count) }
}

impl Site {
    /// Polls a machine until it has a status.
    pub async fn wait_for(&mut self, path: &str, status: &str) {
        self.wait_until(path, status, |machine| machine["status_name"] == status).await;
    }

    /// Polls a machine until something is true of it.
    pub async fn wait_until(&mut self, path: &str, what: &str, holds: impl Fn(&Value) -> bool) {
        let begun = Instant::now();
        while !holds(&self.json("GET", path, &[]).await) {
            assert!(begun.elapsed() < PATIENCE, "never {what}");
            tokio::task::yield_now().await;
        }
    }
}
