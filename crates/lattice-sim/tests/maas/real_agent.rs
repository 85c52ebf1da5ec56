//! The agent's own code on a simulated machine, over real TLS to the server's own listener.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use lattice_agent::Pace;
use lattice_api::agent::{Bootstrap, HeartbeatConfig};
use lattice_api::error::Problem;
use lattice_core::agent::task::SigningKey;
use lattice_core::heartbeat::Registry;
use lattice_core::ids::{IdSource, NodeId, uuid_v7};
use lattice_core::secret::Secret;
use lattice_core::time::{Clock, Timestamp};
use lattice_server::agent_api::{
    AgentEvents, AgentListener, AgentPolicy, AgentService, Enrolment, Granted, IdentityRefusal, Limits, Parts,
    Registered, Registration, Report, server_tls,
};
use lattice_server::pki::{Authority, CaMaterial, CertificateSpan};
use lattice_server::task_keys::TaskKeys;
use lattice_sim::clock::SystemClock;
use lattice_sim::machine::real_agent::RealAgents;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::machines::Plant;

const LIFE: Duration = Duration::from_secs(3600);

struct CountedIds(AtomicU64);

impl IdSource for CountedIds {
    fn uuid(&self, at: Timestamp) -> uuid::Uuid {
        let mut random = [0; 10];
        random[2..].copy_from_slice(&self.0.fetch_add(1, Ordering::SeqCst).to_be_bytes());
        uuid_v7(at, random)
    }
}

/// Lets everyone in and passes registrations on.
struct OpenDoor(UnboundedSender<Registration>);

#[async_trait]
impl AgentEvents for OpenDoor {
    async fn enroll(&self, _enrolment: Enrolment) -> Result<Granted, Problem> {
        Ok(Granted { epoch: 1, certificate_life: LIFE })
    }
    async fn renew(&self, _node: NodeId, _at: Timestamp) -> Result<Granted, Problem> {
        Ok(Granted { epoch: 1, certificate_life: LIFE })
    }
    async fn register(&self, registration: Registration) -> Result<Registered, Problem> {
        self.0.send(registration).expect("the test listens");
        Ok(Registered::Open { ownership_epoch: lattice_core::ids::OwnershipEpoch::default() })
    }
    async fn report(&self, _report: Report) -> Result<(), Problem> {
        Ok(())
    }
    async fn refused(&self, _refusal: IdentityRefusal) {}
}

struct Server {
    listener: AgentListener,
    registrations: UnboundedReceiver<Registration>,
    bootstrap: Bootstrap,
}

impl Server {
    fn start() -> Self {
        let (clock, ids) = (Arc::new(SystemClock), Arc::new(CountedIds(AtomicU64::new(1))));
        let now = clock.now();
        let span = CertificateSpan::starting(now, Duration::from_secs(3600), LIFE * 24);
        let ca = CaMaterial::create("lattice test", span, [1; 16]).expect("a CA");
        let authority = Arc::new(Authority::open(&ca).expect("an authority"));
        let names = vec!["127.0.0.1".to_owned()];
        let tls =
            server_tls(authority.clone(), names, clock.clone(), ids.clone(), Secret::new(vec![7; 32])).expect("TLS");
        let (sender, registrations) = unbounded_channel();
        let service = Arc::new(AgentService::new(Parts {
            registry: Arc::new(Registry::new()),
            events: Arc::new(OpenDoor(sender)),
            authority,
            task_keys: Arc::new(TaskKeys::new(SigningKey::from_seed(&Secret::new(vec![5; 32])).expect("32 bytes"))),
            desk: Arc::default(),
            clock: clock.clone(),
            ids: ids.clone(),
            policy: AgentPolicy { heartbeat: HeartbeatConfig { interval_ms: 20, wait_ms: 10 } },
        }));
        let socket = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let limits = Limits { connections: 16, ..Limits::default() };
        let listener = AgentListener::start(socket, service, tls, limits).expect("a listener");
        let node_id = NodeId::generate(&*ids, now);
        let bootstrap = Bootstrap {
            server: format!("https://{}", listener.address()),
            node_id,
            token: Secret::new(format!("lat_enroll_{node_id}")),
            ca_pem: ca.certificate_pem.clone(),
        };
        Self { listener, registrations, bootstrap }
    }
}

#[tokio::test]
async fn the_real_agent_enrols_from_a_simulated_machine_and_again_after_a_power_cycle() {
    let mut server = Server::start();
    let agents = RealAgents::new(Pace { backoff_base: Duration::from_millis(5), ..Pace::default() });
    let mut plant = Plant::with_agents(&[], Arc::new(agents.clone())).await;
    let label = plant.label();
    plant.deploy_with(&server.bootstrap).await;
    let first = server.registrations.recv().await.expect("a registration");
    assert_eq!(first.node, server.bootstrap.node_id);
    assert_eq!((first.request.facts.gpus.len(), first.request.health.gpu_count), (8, 8));

    assert!(agents.kill(&label) && agents.revive(&label));
    let second = server.registrations.recv().await.expect("a registration");
    assert_eq!(second.request.boot_id, first.request.boot_id, "the same boot, another process");

    plant.power_cycle().await;
    let third = server.registrations.recv().await.expect("a registration");
    assert_ne!(third.request.boot_id, first.request.boot_id);
    assert_eq!(agents.ended(&label), None);
    plant.stop().await;
    server.listener.drain().await;
}
