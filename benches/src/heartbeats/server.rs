//! The measured process: the agent listener as the server has it, with nothing behind it that commits.

use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use lattice_api::agent::HeartbeatConfig;
use lattice_api::error::Problem;
use lattice_core::agent::task::SigningKey;
use lattice_core::heartbeat::Registry;
use lattice_core::ids::{NodeId, OwnershipEpoch};
use lattice_core::secret::Secret;
use lattice_core::time::{Clock, Timestamp};
use lattice_server::agent_api::{
    AgentEvents, AgentListener, AgentPolicy, AgentService, Enrolment, Granted, IdentityRefusal, Limits, Parts,
    Registered, Registration, Report, server_tls,
};
use lattice_server::clock::{SystemClock, SystemIds};
use lattice_server::task_keys::TaskKeys;
use serde::{Deserialize, Serialize};

use super::identities::{EPOCH, ThrowawayCa, node};
use crate::accounts::used;
use crate::failure::{Failure, at};
use crate::measured::{configuration, hear, reply};

/// Which nodes the server knows.
#[derive(Serialize, Deserialize)]
pub struct ServerConfig {
    /// Signs its certificate and the nodes'.
    pub ca: ThrowawayCa,
    /// Number of the first node.
    pub first: u32,
    /// How many there are.
    pub nodes: u32,
}

/// Heartbeats that say nothing new do not come here; the others are taken without a word.
struct Silent;

#[async_trait]
impl AgentEvents for Silent {
    async fn enroll(&self, _: Enrolment) -> Result<Granted, Problem> {
        Ok(Granted { epoch: EPOCH, certificate_life: Duration::from_secs(3600) })
    }
    async fn renew(&self, _: NodeId, _: Timestamp) -> Result<Granted, Problem> {
        Ok(Granted { epoch: EPOCH, certificate_life: Duration::from_secs(3600) })
    }
    async fn register(&self, _: Registration) -> Result<Registered, Problem> {
        Ok(Registered::Open { ownership_epoch: OwnershipEpoch::default() })
    }
    async fn report(&self, _: Report) -> Result<(), Problem> {
        Ok(())
    }
    async fn refused(&self, _: IdentityRefusal) {}
}

/// Listens, and answers each command with what the process used so far.
///
/// # Errors
/// It cannot listen.
pub fn serve() -> Result<(), Failure> {
    let config: ServerConfig = configuration()?;
    let registry = Arc::new(Registry::new());
    let now = SystemClock.now();
    for number in config.first..config.first + config.nodes {
        registry.admit(node(number), EPOCH, now);
    }
    let (clock, ids) = (Arc::new(SystemClock), Arc::new(SystemIds));
    let authority = Arc::new(config.ca.authority()?);
    let names = vec!["127.0.0.1".to_owned()];
    let tls = server_tls(Arc::clone(&authority), names, clock.clone(), ids.clone(), Secret::new(vec![7; 32]))
        .map_err(at("configure TLS"))?;
    let service = Arc::new(AgentService::new(Parts {
        registry,
        events: Arc::new(Silent),
        authority,
        task_keys: Arc::new(TaskKeys::new(SigningKey::from_seed(&Secret::new(vec![5; 32])).expect("32 bytes"))),
        desk: Arc::default(),
        clock,
        ids,
        policy: AgentPolicy { heartbeat: HeartbeatConfig::default() },
    }));
    let socket = TcpListener::bind("127.0.0.1:0").map_err(at("bind"))?;
    let limits = Limits { connections: config.nodes as usize + 100, ..Limits::default() };
    let listener = AgentListener::start(socket, service, tls, limits).map_err(at("listen"))?;
    reply(&listener.address())?;
    while let Some(()) = hear()? {
        reply(&used()?)?;
    }
    Ok(())
}
