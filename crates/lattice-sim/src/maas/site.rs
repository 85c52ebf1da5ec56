//! A whole simulated site in one value: region, clock, HTTP front, machines.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use tokio::net::TcpListener;

use super::config::{FirstBoot, SiteConfig};
use super::handle::MaasHandle;
use super::oauth::ApiKey;
use super::server::serve;
use super::world::MaasWorld;
use crate::machine::agent::AgentLauncher;
use crate::machine::runner::{MachineRunner, RunnerOptions};
use crate::stop::Stop;

/// A simulated site that runs.
pub struct SimulatedSite {
    /// The region, for in-process clients, faults and reports.
    pub handle: MaasHandle,
    /// The machines.
    pub runner: MachineRunner,
    /// Base address for clients, `http://127.0.0.1:5240/MAAS`.
    pub url: String,
    /// The administrator's key.
    pub key: ApiKey,
    server: Stop,
    clock: Stop,
}

impl SimulatedSite {
    /// Starts a site on `address`; port 0 takes a free one. First boots are played by the machines themselves.
    ///
    /// # Errors
    /// When the address cannot be bound.
    pub async fn start(
        config: SiteConfig,
        address: SocketAddr,
        launcher: Arc<dyn AgentLauncher>,
        ssh_port: u16,
    ) -> io::Result<Self> {
        let listener = TcpListener::bind(address).await?;
        let url = format!("http://{}/MAAS", listener.local_addr()?);
        let (key, seed) = (config.admin_key.clone(), config.seed);
        let config = SiteConfig { first_boot: FirstBoot::ByRunner, url: url.clone(), ..config };
        let handle = MaasHandle::new(MaasWorld::new(config));
        let runner = MachineRunner::start(handle.clone(), launcher, RunnerOptions { ssh_port, seed });
        let clock = handle.start_clock();
        let server = serve(listener, handle.clone());
        Ok(Self { handle, runner, url, key, server, clock })
    }

    /// Answers no more, cuts the power of every machine, and waits until all is quiet.
    pub async fn stop(self) {
        self.server.stop().await;
        self.clock.stop().await;
        self.runner.stop().await;
    }
}
