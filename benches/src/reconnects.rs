//! A fleet that comes back: the server is killed in the middle of its work and started again on the same files.
//!
//! Every agent behaves as the real one: it waits as its backoff says, connects, is told that its session is unknown,
//! registers, beats. Twice: with the session tickets that it has, and without any.

pub mod load;
pub mod server;

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use crate::accounts::raise_descriptors;
use crate::failure::{Failure, at, wrong};
use crate::figure::{Report, Target};
use crate::heartbeats::identities::ThrowawayCa;
use crate::measured::Measured;
use load::{Command, Fleet, LoadConfig};
use server::{Place, State};

/// Role of the server that is killed.
pub const SERVER: &str = "reconnect-server";
/// Role of the agents.
pub const LOAD: &str = "reconnect-load";

/// How often the agents are counted.
const LOOK: Duration = Duration::from_millis(20);
/// How long the server is gone.
const GONE: Duration = Duration::from_millis(500);
/// Longest wait for a fleet to be back.
const PATIENCE: Duration = Duration::from_secs(90);
/// How long a fleet that is back is watched for false verdicts: longer than the silence that degrades a node.
const WATCHED: Duration = Duration::from_secs(35);

/// One return of the fleet.
struct Back {
    wall_s: f64,
    cpu_us: f64,
    load_cpu_us: f64,
    resumed: u32,
    start_s: f64,
}

/// Measures `nodes` agents that come back at once.
pub fn run(nodes: u32) -> Result<Report, Failure> {
    let allowed = raise_descriptors(u64::from(nodes) + 4_000)?;
    if allowed < u64::from(nodes) + 1_000 {
        return Err(wrong("hold so many connections", format!("a process may open {allowed} descriptors here")));
    }
    let folder = tempfile::tempdir().map_err(at("make a folder"))?;
    let ca = ThrowawayCa::create()?;
    let mut place = Place { ca: ca.clone(), folder: folder.path().to_owned(), port: 0, nodes };
    let (mut server, address) = start(&place)?;
    place.port = address.port();
    let (mut agents, _): (Measured, u32) = Measured::start(LOAD, &LoadConfig { ca, server: address, nodes })?;
    let resumed = restart(&mut server, &mut agents, &place)?;
    let () = agents.ask(&Command::ForgetTickets)?;
    let full = restart(&mut server, &mut agents, &place)?;
    std::thread::sleep(WATCHED);
    let state: State = server.ask(&())?;
    let each = f64::from(nodes);
    let conditions = format!(
        "{nodes} agents, the server killed with -9 and started again after {:.1} s on the same SQLite file, mTLS on \
         loopback; load generator {:.0} µs of CPU each",
        GONE.as_secs_f64() + resumed.start_s,
        full.load_cpu_us / each
    );
    Ok(Report::new("reconnects", conditions)
        .figure("false verdicts", state.verdicts as f64, "nodes", Target::AtMost(0.0))
        .figure("all heard again after", full.wall_s, "s", Target::AtMost(5.0))
        .figure("server CPU", full.cpu_us / 1e3 / each, "ms each", Target::AtMost(0.3))
        .figure("resumed: all heard again after", resumed.wall_s, "s", Target::AtMost(5.0))
        .figure("server CPU", resumed.cpu_us / 1e3 / each, "ms each", Target::AtMost(0.15))
        .figure("of them resumed", f64::from(resumed.resumed) / each * 100.0, "%", Target::AtLeast(99.0))
        .figure("the restarted server listens after", resumed.start_s, "s", Target::Informative))
}

fn start(place: &Place) -> Result<(Measured, SocketAddr), Failure> {
    Measured::start(SERVER, place)
}

fn restart(server: &mut Measured, agents: &mut Measured, place: &Place) -> Result<Back, Failure> {
    let before: Fleet = agents.ask(&Command::Count)?;
    server.kill();
    std::thread::sleep(GONE);
    let began = Instant::now();
    let (fresh, _) = start(place)?;
    *server = fresh;
    let start_s = began.elapsed().as_secs_f64();
    let at_start: State = server.ask(&())?;
    let listening = Instant::now();
    loop {
        let fleet: Fleet = agents.ask(&Command::Count)?;
        if fleet.heard == place.nodes {
            let state: State = server.ask(&())?;
            return Ok(Back {
                wall_s: listening.elapsed().as_secs_f64(),
                cpu_us: state.used.cpu_us - at_start.used.cpu_us,
                load_cpu_us: fleet.used.cpu_us - before.used.cpu_us,
                resumed: fleet.resumed - before.resumed,
                start_s,
            });
        }
        if listening.elapsed() > PATIENCE {
            return Err(wrong("wait for the fleet", format!("{} of {} are back", fleet.heard, place.nodes)));
        }
        std::thread::sleep(LOOK);
    }
}
