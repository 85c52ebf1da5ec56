//! Agents that lose their server and come back, as the real ones do.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use lattice_agent::{Backoff, Pace};
use lattice_api::agent::HeartbeatConfig;
use lattice_core::ids::NodeId;
use lattice_core::node::HostFacts;
use rustls::ClientConfig;
use rustls::client::Resumption;
use serde::{Deserialize, Serialize};
use tokio::sync::Semaphore;

use crate::accounts::{Used, raise_descriptors, used};
use crate::failure::{Failure, at};
use crate::heartbeats::identities::{Identities, ThrowawayCa, node};
use crate::heartbeats::load::Session;
use crate::measured::{configuration, hear, reply};
use crate::plane::hosts::facts;

/// Handshakes at a time when the fleet comes for the first time.
const CONNECTING: usize = 64;
/// Answer to a heartbeat in a session that the server does not know.
const CONFLICT: u16 = 409;

/// Whom to speak for.
#[derive(Serialize, Deserialize)]
pub struct LoadConfig {
    /// Signs the nodes' certificates.
    pub ca: ThrowawayCa,
    /// Where the server listens.
    pub server: SocketAddr,
    /// How many agents there are.
    pub nodes: u32,
}

/// What the parent says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Command {
    /// Tell how the fleet is.
    Count,
    /// The next connection of each resumes nothing.
    ForgetTickets,
}

/// How the fleet is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Fleet {
    /// Agents with a session that the server knows.
    pub heard: u32,
    /// Connections so far that resumed an earlier session of TLS.
    pub resumed: u32,
    /// What the load generator used up to now.
    pub used: Used,
}

#[derive(Default)]
struct Shared {
    heard: AtomicU32,
    resumed: AtomicU32,
    forget: AtomicBool,
}

struct Agent {
    node: NodeId,
    server: SocketAddr,
    tls: ClientConfig,
    facts: HostFacts,
    shared: Arc<Shared>,
}

/// Connects all agents, then lets them live.
///
/// # Errors
/// An agent cannot connect or register at first.
pub fn serve() -> Result<(), Failure> {
    let config: LoadConfig = configuration()?;
    raise_descriptors(u64::from(config.nodes) + 1_000)?;
    let shared = Arc::new(Shared::default());
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_io()
        .enable_time()
        .build()
        .map_err(at("start the agents"))?;
    runtime.block_on(connect_all(&config, &shared))?;
    reply(&config.nodes)?;
    while let Some(command) = hear()? {
        match command {
            Command::Count => reply(&Fleet {
                heard: shared.heard.load(Ordering::Relaxed),
                resumed: shared.resumed.load(Ordering::Relaxed),
                used: used()?,
            })?,
            Command::ForgetTickets => {
                shared.forget.store(true, Ordering::Relaxed);
                reply(&())?;
            }
        }
    }
    Ok(())
}

async fn connect_all(config: &LoadConfig, shared: &Arc<Shared>) -> Result<(), Failure> {
    let identities = Identities::new(&config.ca)?;
    let turns = Arc::new(Semaphore::new(CONNECTING));
    let mut tasks = Vec::new();
    for number in 0..config.nodes {
        let node = node(number);
        let tls = identities.resuming_tls(node)?;
        let agent = Agent { node, server: config.server, tls, facts: facts(), shared: Arc::clone(shared) };
        let turn = Arc::clone(&turns).acquire_owned().await.map_err(at("wait for a turn"))?;
        tasks.push(tokio::spawn(async move {
            let session = agent.come().await;
            drop(turn);
            session.map(|session| tokio::spawn(agent.live(session)))
        }));
    }
    for task in tasks {
        // It lives until the process ends.
        let _life = task.await.map_err(at("connect"))??;
    }
    Ok(())
}

impl Agent {
    /// Connects and is heard.
    async fn come(&self) -> Result<Session, Failure> {
        let mut tls = self.tls.clone();
        if self.shared.forget.load(Ordering::Relaxed) {
            tls.resumption = Resumption::disabled();
        }
        let mut session = Session::connect(Arc::new(tls), self.server, self.node).await?;
        if session.is_resumed() {
            self.shared.resumed.fetch_add(1, Ordering::Relaxed);
        }
        // It still believes in its session, until it is told that the server does not know it.
        if session.send(0).await? == CONFLICT {
            session.register(self.facts.clone()).await?;
        }
        self.shared.heard.fetch_add(1, Ordering::Relaxed);
        Ok(session)
    }

    async fn live(self, mut session: Session) {
        let HeartbeatConfig { interval_ms, wait_ms } = HeartbeatConfig::default();
        let rest = Duration::from_millis(interval_ms - wait_ms);
        loop {
            while session.heartbeat(wait_ms).await.is_ok() {
                tokio::time::sleep(rest).await;
            }
            self.shared.heard.fetch_sub(1, Ordering::Relaxed);
            session = self.come_back().await;
        }
    }

    async fn come_back(&self) -> Session {
        let pace = Pace::default();
        let mut backoff = Backoff::new(pace.backoff_base);
        loop {
            tokio::time::sleep(backoff.failed(pace.backoff_cap, rand::random())).await;
            if let Ok(session) = self.come().await {
                return session;
            }
        }
    }
}
