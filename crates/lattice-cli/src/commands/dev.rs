//! `lattice dev`: everything in one process, from an empty directory.

mod machine;
mod recover;

use std::io::Write;
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use lattice_sim::dev::{Dev, DevConfig, Progress, RealMaas};
use lattice_sim::maas::mishaps::Mishaps;
use lattice_sim::scenario::Scenario;
use serde_json::json;

use crate::arguments::Global;
use crate::connection::RUNTIME_FILE;
use crate::failure::Failure;
use crate::output::Format;

/// Nodes whose state is told when the time is over: enough to see a pattern.
const TOLD: usize = 8;

/// Options of `lattice dev`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Arguments {
    /// Something to do to a machine of a `lattice dev` that runs
    #[command(subcommand)]
    command: Option<Command>,
    /// How many simulated machines to onboard
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(0..=10_000))]
    nodes: u32,
    /// From here come all choices of the simulated site
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// What goes wrong: nothing, a few things that heal, or also one that waits for you
    #[arg(long, value_enum, default_value = "few")]
    mishaps: MishapsChoice,
    /// Play a scenario instead: `maas-mishaps`, or a TOML file; it says how many machines there are
    #[arg(long, value_name = "NAME", conflicts_with_all = ["nodes", "mishaps", "site"])]
    scenario: Option<String>,
    /// Stop once this is so, and say how long it took; exit 0 only if it came true
    #[arg(long, value_enum)]
    until: Option<Until>,
    /// Longest wait for --until
    #[arg(long, default_value = "60s", value_parser = crate::span::parse)]
    timeout: Duration,
    /// Where to keep the data; a new temporary directory when absent, removed at the end
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Where the API and the page listen
    #[arg(long, default_value = "127.0.0.1:7070", value_name = "ADDRESS")]
    listen: SocketAddr,
    /// Where agents are served
    #[arg(long, default_value = "127.0.0.1:7443", value_name = "ADDRESS")]
    agent_listen: SocketAddr,
    /// A MAAS region that exists, as maas=URL, with its API key in MAAS_API_KEY
    #[arg(long, value_name = "maas=URL")]
    site: Option<String>,
}

/// What can be done to a `lattice dev` that runs.
#[derive(Debug, Subcommand)]
enum Command {
    /// Kill a machine's agent or start it again, take GPUs off its bus, have its wipes fail
    Machine(machine::Machine),
}

/// What goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum MishapsChoice {
    /// Nothing
    None,
    /// A few that heal within a minute
    Few,
    /// The same, and one that waits for a person
    All,
}

/// What to wait for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Until {
    /// Every machine is active and ready
    AllActive,
    /// Each failure of the scenario appeared, was explained, and was recovered by its printed command
    Recovered,
}

/// Runs until interrupted, or until what was asked for came true.
///
/// # Errors
/// Something could not be started, or what was waited for did not come true in time.
pub async fn run(arguments: Arguments, global: &Global) -> Result<(), Failure> {
    if let Some(Command::Machine(order)) = arguments.command {
        return machine::run(order).await;
    }
    let temporary;
    let data = match &arguments.data {
        Some(data) => {
            std::fs::create_dir_all(data)
                .map_err(|error| Failure::refused(format!("{} cannot be used: {error}", data.display())))?;
            data.clone()
        }
        None => {
            temporary = Temporary::new()?;
            temporary.0.clone()
        }
    };
    let scripted = arguments.until.is_some();
    let scenario =
        arguments.scenario.as_deref().map(Scenario::load).transpose().map_err(|error| not_started(&error))?;
    if arguments.until == Some(Until::Recovered) && scenario.is_none() {
        return Err(Failure::refused("--until recovered needs a scenario")
            .next("lattice dev --scenario maas-mishaps --until recovered", "plays the built-in scenario"));
    }
    let config = DevConfig {
        nodes: arguments.nodes,
        seed: arguments.seed,
        mishaps: match arguments.mishaps {
            MishapsChoice::None => Mishaps::None,
            MishapsChoice::Few => Mishaps::Healing,
            MishapsChoice::All => Mishaps::AndOneForAPerson,
        },
        scenario: scenario.clone(),
        data_dir: data,
        // A script does not care about the address, and must not collide with a person's.
        api_listen: if scripted { anywhere(arguments.listen) } else { arguments.listen },
        agent_listen: if scripted { anywhere(arguments.agent_listen) } else { arguments.agent_listen },
        agent_binary: agent_binary(),
        maas: arguments.site.as_deref().map(real_maas).transpose()?,
    };
    let dev = Dev::start(config).await.map_err(|error| not_started(&error))?;
    let outcome = match (arguments.until, &scenario) {
        (Some(Until::Recovered), Some(scenario)) => {
            recover::until_recovered(&dev, scenario, arguments.timeout, global.output).await
        }
        (Some(Until::AllActive | Until::Recovered), _) => {
            until_all_active(&dev, arguments.timeout, global.output).await
        }
        (None, _) => watch(&dev).await,
    };
    dev.stop().await;
    outcome
}

/// The agent that hosts get when they are bootstrapped by hand: as LATTICE_AGENT_BINARY says, or beside this program.
fn agent_binary() -> Option<PathBuf> {
    if let Some(path) = std::env::var_os("LATTICE_AGENT_BINARY") {
        return Some(PathBuf::from(path));
    }
    let beside = std::env::current_exe().ok()?.with_file_name("lattice-agent");
    beside.is_file().then_some(beside)
}

fn anywhere(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip(), 0)
}

fn real_maas(site: &str) -> Result<RealMaas, Failure> {
    let url = site.strip_prefix("maas=").ok_or_else(|| {
        Failure::refused(format!("--site {site} is not understood"))
            .because("expected maas=URL, such as maas=http://10.176.46.1:5240/MAAS")
    })?;
    let key = std::env::var("MAAS_API_KEY").map_err(|_| {
        Failure::refused("the region's API key is missing")
            .next("export MAAS_API_KEY=consumer:token:secret", "names the key of an administrator of the region")
    })?;
    Ok(RealMaas::new(url, key))
}

fn not_started(error: &(dyn std::error::Error + 'static)) -> Failure {
    let mut failure = Failure::refused(error.to_string());
    let mut source = error.source();
    while let Some(cause) = source {
        failure = failure.because(cause.to_string());
        source = cause.source();
    }
    failure
}

async fn until_all_active(dev: &Dev, timeout: Duration, format: Format) -> Result<(), Failure> {
    let mut told = 0;
    let seen = |progress: &Progress| {
        if progress.active != told {
            told = progress.active;
            eprintln!("{told} of {} active", progress.nodes);
        }
    };
    let progress = dev.until_all_active(timeout, seen).await.map_err(|error| not_started(&error))?;
    match format {
        Format::Json => println!("{}", json!(progress)),
        Format::Table | Format::Wide | Format::Yaml | Format::Name => print_progress(&progress),
    }
    if progress.seconds_to_all.is_some() {
        return Ok(());
    }
    let missing = progress.nodes - progress.active;
    let mut failure =
        Failure::refused(format!("{missing} of {} nodes are not active after {timeout:?}", progress.nodes));
    for waiting in progress.waiting.iter().take(TOLD) {
        failure = failure.because(format!("{} is {}", waiting.hostname, waiting.state));
    }
    Err(failure)
}

fn print_progress(progress: &Progress) {
    let seconds = |value: Option<f64>| value.map_or_else(|| "never".to_owned(), |seconds| format!("{seconds:.1} s"));
    println!(
        "{} of {} active, the first after {}, all after {}",
        progress.active,
        progress.nodes,
        seconds(progress.seconds_to_first),
        seconds(progress.seconds_to_all)
    );
}

/// For a person: the address, the counts as they change, until interrupted.
async fn watch(dev: &Dev) -> Result<(), Failure> {
    let runtime = RuntimeFile::write(dev)?;
    let control = machine::listen(dev)?;
    let (address, token) = (dev.api(), dev.token().expose());
    eprintln!("Lattice runs. The page: http://{address}/ui/login#token={token}");
    eprintln!("The command line finds it by itself: lattice fleet, lattice node list, lattice explain node NAME");
    if dev.region().is_none() {
        eprintln!(
            "The region is site `dev`. Give it your BMC login (lattice site credentials set dev), create a SKU, then:"
        );
        eprintln!("lattice onboard maas HOSTNAME --help");
    }
    eprintln!("Interrupt to stop.");
    let forever = Duration::from_secs(365 * 86_400);
    let mut told = (u32::MAX, usize::MAX);
    let seen = |progress: &Progress| {
        let now = (progress.active, progress.waiting.len());
        if now != told {
            told = now;
            eprintln!("{} of {} active", progress.active, progress.nodes);
        }
    };
    let ended = tokio::select! {
        progress = dev.until_all_active(forever, seen) => progress.map(|_| ()),
        interrupted = tokio::signal::ctrl_c() => {
            drop((runtime, control));
            return interrupted.map_err(|error| Failure::unexpected(format!("cannot wait for a signal: {error}")));
        }
    };
    ended.map_err(|error| not_started(&error))?;
    eprintln!("All are active. Interrupt to stop.");
    let interrupted = tokio::signal::ctrl_c().await;
    drop((runtime, control));
    interrupted.map_err(|error| Failure::unexpected(format!("cannot wait for a signal: {error}")))
}

/// A directory that is removed at the end.
struct Temporary(PathBuf);

impl Temporary {
    fn new() -> Result<Self, Failure> {
        let path = std::env::temp_dir().join(format!("lattice-dev-{}", std::process::id()));
        std::fs::create_dir(&path)
            .map_err(|error| Failure::refused(format!("{} cannot be made: {error}", path.display())))?;
        Ok(Self(path))
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        // What cannot be removed is left to the system's own cleaning.
        let _left = std::fs::remove_dir_all(&self.0);
    }
}

/// Tells other commands of this person where the server is. Mode 0600: it holds a token.
struct RuntimeFile(PathBuf);

impl RuntimeFile {
    fn write(dev: &Dev) -> Result<Self, Failure> {
        let path = runtime_folder().join(RUNTIME_FILE);
        let body = json!({"server": format!("http://{}", dev.api()), "token": dev.token().expose()});
        write_private(&path, &body.to_string())
            .map_err(|error| Failure::refused(format!("{} cannot be written: {error}", path.display())))?;
        Ok(Self(path))
    }
}

impl Drop for RuntimeFile {
    fn drop(&mut self) {
        // A stale file names a server that does not answer; the next `dev` replaces it.
        let _left = std::fs::remove_file(&self.0);
    }
}

/// Where a `lattice dev` that runs is found.
fn runtime_folder() -> PathBuf {
    std::env::var_os("XDG_RUNTIME_DIR").map_or_else(std::env::temp_dir, PathBuf::from)
}

fn write_private(path: &Path, text: &str) -> std::io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
        Ok(()) | Err(_) => {}
    }
    let mut file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(text.as_bytes())
}
