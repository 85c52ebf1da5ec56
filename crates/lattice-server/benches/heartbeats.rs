//! What a heartbeat and a connected node cost the server: real agents, real TLS, two processes.
//!
//! `cargo bench -p lattice-server --bench heartbeats -- [--agents N] [--interval-ms M] [--secs S] [-o json]`
//!
//! The listener runs in this process and is measured alone; the agents run in a child of it. Enrolment and
//! registration are left out: measuring begins when every agent has a session.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use async_trait::async_trait;
use lattice_agent::{AgentConfig, Host, Pace, Storage, VERSION};
use lattice_api::agent::{Bootstrap, HealthSummary, HeartbeatConfig};
use lattice_api::error::Problem;
use lattice_core::agent::task::SigningKey;
use lattice_core::heartbeat::Registry;
use lattice_core::ids::{IdSource, NodeId, uuid_v7};
use lattice_core::node::HostFacts;
use lattice_core::secret::Secret;
use lattice_core::time::{Clock, Timestamp};
use lattice_server::agent_api::{
    AgentEvents, AgentListener, AgentPolicy, AgentService, Enrolment, Granted, IdentityRefusal, Limits, Parts,
    Registered, Registration, Report, server_tls,
};
use lattice_server::pki::{Authority, CaMaterial, CertificateSpan};
use lattice_server::task_keys::TaskKeys;
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;

const DAY: Duration = Duration::from_secs(24 * 3600);

struct Machine;

impl Clock for Machine {
    fn now(&self) -> Timestamp {
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).expect("the clock is past 1970");
        Timestamp::from_millis(since_1970.as_millis() as i64)
    }
}

impl IdSource for Machine {
    fn uuid(&self, at: Timestamp) -> uuid::Uuid {
        uuid_v7(at, rand::random())
    }
}

/// Says yes at once: what the store costs is another benchmark's.
#[derive(Default)]
struct Agreeable {
    registered: AtomicU64,
}

#[async_trait]
impl AgentEvents for Agreeable {
    async fn enroll(&self, _: Enrolment) -> Result<Granted, Problem> {
        Ok(Granted { epoch: 1, certificate_life: DAY })
    }
    async fn renew(&self, _: NodeId, _: Timestamp) -> Result<Granted, Problem> {
        Ok(Granted { epoch: 1, certificate_life: DAY })
    }
    async fn register(&self, _: Registration) -> Result<Registered, Problem> {
        self.registered.fetch_add(1, Ordering::Relaxed);
        Ok(Registered::Open { ownership_epoch: lattice_core::ids::OwnershipEpoch::default() })
    }
    async fn report(&self, _: Report) -> Result<(), Problem> {
        Ok(())
    }
    async fn refused(&self, _: IdentityRefusal) {}
}

#[async_trait]
impl Host for Machine {
    async fn boot_id(&self) -> std::io::Result<String> {
        Ok("bench".into())
    }
    async fn facts(&self) -> HostFacts {
        HostFacts::default()
    }
    async fn health(&self) -> HealthSummary {
        HealthSummary { gpu_count: 8, max_temperature_c: Some(61), ..HealthSummary::default() }
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let options: HashMap<&str, &str> = arguments.chunks(2).map(|pair| (pair[0].as_str(), pair[1].as_str())).collect();
    let number = |name: &str, default: u64| options.get(name).map_or(default, |text| text.parse().expect("a number"));
    let agents = number("--agents", 2_000);
    if options.contains_key("--child") {
        return run_agents(agents);
    }
    let (interval_ms, secs) = (number("--interval-ms", 200), number("--secs", 10));
    let figures = measure(agents, interval_ms, secs);
    if options.get("-o") == Some(&"json") {
        println!("{figures}");
    } else {
        println!(
            "heartbeats: {} us server CPU each at {}/s over {} connections; {} kB per connection, {} B per record",
            figures["cpu_us"], figures["per_second"], agents, figures["connection_kb"], figures["record_bytes"]
        );
    }
}

fn measure(agents: u64, interval_ms: u64, secs: u64) -> serde_json::Value {
    let machine = Arc::new(Machine);
    let (registry, events) = (Arc::new(Registry::new()), Arc::new(Agreeable::default()));
    let (listener, bootstrap) = listen(&machine, &registry, &events, (agents, interval_ms));
    let idle_kb = resident_kb();
    let mut child = Command::new(std::env::current_exe().expect("a path"))
        .args(["--agents", &agents.to_string(), "--child", "1"])
        .stdin(Stdio::piped())
        .spawn()
        .expect("a child");
    let mut input = child.stdin.take().expect("piped");
    input.write_all(&serde_json::to_vec(&bootstrap).expect("plain data")).expect("the child reads");
    drop(input);
    while events.registered.load(Ordering::Relaxed) < agents {
        std::thread::sleep(Duration::from_millis(100));
    }
    std::thread::sleep(Duration::from_millis(2 * interval_ms));
    let (began, spent) = (Instant::now(), cpu());
    std::thread::sleep(Duration::from_secs(secs));
    let (lasted, spent) = (began.elapsed(), cpu() - spent);
    let connection_kb = (resident_kb() - idle_kb) as f64 / agents as f64;
    child.kill().expect("it runs");
    child.wait().expect("it ended");
    drop(listener);
    let per_second = agents as f64 * 1000.0 / interval_ms as f64;
    let each = spent.as_secs_f64() * 1e6 / (per_second * lasted.as_secs_f64());
    serde_json::json!({
        "cpu_us": (each * 10.0).round() / 10.0,
        "per_second": per_second.round() as u64,
        "connections": agents,
        "connection_kb": (connection_kb * 10.0).round() / 10.0,
        "record_bytes": registry.bytes() as u64 / agents,
    })
}

fn listen(
    machine: &Arc<Machine>,
    registry: &Arc<Registry>,
    events: &Arc<Agreeable>,
    (agents, interval_ms): (u64, u64),
) -> (AgentListener, Bootstrap) {
    let now = machine.now();
    let ca = CaMaterial::create("bench", CertificateSpan::starting(now, DAY, DAY), [1; 16]).expect("a CA");
    let authority = Arc::new(Authority::open(&ca).expect("just made"));
    let names = vec!["127.0.0.1".to_owned()];
    let tls = server_tls(Arc::clone(&authority), names, machine.clone(), machine.clone(), Secret::new(vec![7; 32]))
        .expect("TLS");
    let service = AgentService::new(Parts {
        registry: Arc::clone(registry),
        events: events.clone(),
        authority,
        task_keys: Arc::new(TaskKeys::new(SigningKey::from_seed(&Secret::new(vec![5; 32])).expect("32 bytes"))),
        desk: Arc::default(),
        clock: machine.clone(),
        ids: machine.clone(),
        policy: AgentPolicy { heartbeat: HeartbeatConfig { interval_ms, wait_ms: interval_ms * 9 / 10 } },
    });
    let socket = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let limits = Limits { connections: agents as usize + agents as usize / 10 + 64, ..Limits::default() };
    let listener =
        AgentListener::start(socket, Arc::new(service), tls, limits).unwrap_or_else(|error| panic!("{error}"));
    let bootstrap = Bootstrap {
        server: format!("https://{}", listener.address()),
        node_id: NodeId::generate(&**machine, now),
        token: Secret::new("lat_enroll_bench".into()),
        ca_pem: ca.certificate_pem,
    };
    (listener, bootstrap)
}

/// The child: agents that differ in their node id, started over a while, until the parent ends it.
fn run_agents(agents: u64) {
    let mut text = Vec::new();
    std::io::stdin().read_to_end(&mut text).expect("the parent writes");
    let bootstrap: Bootstrap = serde_json::from_slice(&text).expect("a bootstrap");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        for _ in 0..agents {
            let node_id = NodeId::generate(&Machine, Machine.now());
            let config = AgentConfig {
                bootstrap: Bootstrap { node_id, ..bootstrap.clone() },
                version: VERSION.to_owned(),
                storage: Storage::memory(),
                pace: Pace::default(),
            };
            tokio::spawn(lattice_agent::run(config, Arc::new(Machine), Arc::new(Machine), Default::default()));
            // A full enrolment costs both sides a millisecond together; faster would only make them queue.
            tokio::time::sleep(Duration::from_micros(1200)).await;
        }
        std::future::pending::<()>().await;
    });
}

fn cpu() -> Duration {
    let usage = getrusage(UsageWho::RUSAGE_SELF).expect("one's own usage");
    let micros = usage.user_time().num_microseconds() + usage.system_time().num_microseconds();
    Duration::from_micros(micros as u64)
}

fn resident_kb() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("VmRSS");
    line.trim().trim_end_matches("kB").trim().parse().expect("a number")
}
