//! Heartbeats over mTLS: server CPU for each, memory for each connection.
//!
//! Servers and load generators are processes of their own, in pairs: one pair holds as many connections as its
//! processes may open descriptors.

pub mod identities;
pub mod load;
pub mod server;

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use crate::accounts::{Used, most_descriptors, raise_descriptors};
use crate::failure::{Failure, wrong};
use crate::figure::{Report, Target};
use crate::measured::Measured;
use crate::suite::Load;
use identities::ThrowawayCa;
use load::{Command, Counted, LoadConfig};
use server::ServerConfig;

/// Role of a measured server.
pub const SERVER: &str = "heartbeat-server";
/// Role of its load generator.
pub const LOAD: &str = "heartbeat-load";

/// Descriptors that a process needs besides its connections, with room: the listener keeps 512.
const OTHER_DESCRIPTORS: u64 = 800;
/// Connections of one server at most: what its own ceiling is by default.
const PER_SERVER: u64 = 12_000;
/// Time from a new pace to the measurement: all connections have their first heartbeat of it behind them.
const SETTLING: Duration = Duration::from_secs(3);

/// One server with its load generator.
struct Pair {
    server: Measured,
    load: Measured,
    idle: Used,
}

/// What one measurement found.
struct Sample {
    rate: f64,
    server_cpu_us: f64,
    load_cpu_us: f64,
    server_share: f64,
    p50_us: f64,
    p99_us: f64,
}

/// Measures at the asked rate, answered at once and parked as agents ask for it; and, with a fleet of one server, at a
/// tenth of the rate.
pub fn run(name: &str, load: &Load) -> Result<Report, Failure> {
    let allowed = raise_descriptors(PER_SERVER + OTHER_DESCRIPTORS)?.saturating_sub(OTHER_DESCRIPTORS);
    let per_server = u32::try_from(allowed.min(PER_SERVER)).unwrap_or(u32::MAX).max(1);
    let servers = load.connections.div_ceil(per_server);
    let ca = ThrowawayCa::create()?;
    let started = Instant::now();
    let mut pairs = Vec::new();
    for number in 0..servers {
        let share = |upto: u32| u64::from(load.connections) * u64::from(upto) / u64::from(servers);
        let (first, end) = (share(number) as u32, share(number + 1) as u32);
        pairs.push(Pair::connect(&ca, first, end - first)?);
    }
    let connecting = started.elapsed().as_secs_f64();
    let interval = f64::from(load.connections) / f64::from(load.rate);
    let seconds = Duration::from_secs(u64::from(load.seconds));
    let direct = measure(&mut pairs, interval, 0.0, seconds)?;
    let resident = pairs.iter_mut().map(Pair::grown_kib).sum::<Result<f64, _>>()?;
    let parked = measure(&mut pairs, interval, 0.9, seconds)?;
    let many = load.connections > 20_000;
    // A tenth of the rate over so many would be a heartbeat each hundred seconds: nobody beats like that.
    let slow = match many {
        true => None,
        false => Some(measure(&mut pairs, interval * 10.0, 0.9, seconds.max(Duration::from_secs(12)))?),
    };
    let target = Target::AtMost(if many { 35.0 } else { 25.0 });
    let conditions = format!(
        "{} connections of {servers} server process(es), each may open {} descriptors here; HTTP/1.1 kept alive, TLS \
         1.3 with client certificates; connected in {connecting:.1} s; load generators used {:.1} µs each",
        load.connections,
        most_descriptors()?,
        parked.load_cpu_us
    );
    let mut report = Report::new(name, conditions)
        .figure("sustained", direct.rate, "per s", Target::AtLeast(f64::from(load.rate) * 0.95))
        .figure(format!("server CPU at {:.0}/s", direct.rate), direct.server_cpu_us, "µs each", target)
        .figure(format!("parked as by agents at {:.0}/s", parked.rate), parked.server_cpu_us, "µs each", target)
        .figure("of a core", direct.server_share * 100.0, "%", Target::Informative)
        .figure("answer p50", direct.p50_us / 1000.0, "ms", Target::Informative)
        .figure("p99", direct.p99_us / 1000.0, "ms", Target::Informative)
        .figure(
            "server memory",
            resident * 1.024 / f64::from(load.connections),
            "kB per connection",
            Target::AtMost(32.0),
        )
        .peer("Nomad 93 µs each, without TLS; ≈ 200 kB per client");
    if let Some(slow) = slow {
        report = report.figure(format!("at {:.0}/s", slow.rate), slow.server_cpu_us, "µs each", Target::Informative);
    }
    Ok(report)
}

fn measure(pairs: &mut [Pair], interval: f64, parked: f64, seconds: Duration) -> Result<Sample, Failure> {
    let pace = Command::Pace { interval_us: (interval * 1e6) as u64, wait_ms: (interval * parked * 1e3) as u64 };
    for pair in pairs.iter_mut() {
        let () = pair.load.ask(&pace)?;
    }
    std::thread::sleep(SETTLING.max(Duration::from_secs_f64(interval * 1.2)));
    let before = pairs.iter_mut().map(Pair::read).collect::<Result<Vec<_>, _>>()?;
    let started = Instant::now();
    std::thread::sleep(seconds);
    let after = pairs.iter_mut().map(Pair::read).collect::<Result<Vec<_>, _>>()?;
    let wall = started.elapsed().as_secs_f64();
    let sum = |of: fn(&(Used, Counted)) -> f64, list: &[(Used, Counted)]| list.iter().map(of).sum::<f64>();
    let answered = sum(|(_, counted)| counted.answered as f64, &after);
    if answered == 0.0 || sum(|(_, counted)| counted.failed as f64, &after) > 0.0 {
        return Err(wrong("send heartbeats", "some were not answered with 200"));
    }
    let server = sum(|(used, _)| used.cpu_us, &after) - sum(|(used, _)| used.cpu_us, &before);
    let load = sum(|(_, counted)| counted.used.cpu_us, &after) - sum(|(_, counted)| counted.used.cpu_us, &before);
    let most = |of: fn(&Counted) -> f64| after.iter().map(|(_, counted)| of(counted)).fold(0.0, f64::max);
    Ok(Sample {
        rate: answered / wall,
        server_cpu_us: server / answered,
        load_cpu_us: load / answered,
        server_share: server / 1e6 / wall,
        p50_us: most(|counted| counted.p50_us),
        p99_us: most(|counted| counted.p99_us),
    })
}

impl Pair {
    fn connect(ca: &ThrowawayCa, first: u32, nodes: u32) -> Result<Self, Failure> {
        let config = ServerConfig { ca: ca.clone(), first, nodes };
        let (mut server, address): (Measured, SocketAddr) = Measured::start(SERVER, &config)?;
        let idle = server.ask(&())?;
        let config = LoadConfig { ca: ca.clone(), server: address, first, nodes };
        let (load, _): (Measured, u32) = Measured::start(LOAD, &config)?;
        Ok(Self { server, load, idle })
    }

    fn read(&mut self) -> Result<(Used, Counted), Failure> {
        Ok((self.server.ask(&())?, self.load.ask(&Command::Count)?))
    }

    fn grown_kib(&mut self) -> Result<f64, Failure> {
        let now: Used = self.server.ask(&())?;
        Ok(now.rss_kib - self.idle.rss_kib)
    }
}
