//! The node agent's process.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use clap::{Args, Parser, Subcommand};
use lattice_agent::{
    AgentConfig, AgentError, BootPlace, Host, Install, Installed, Keeper, LinuxHost, Pace, Storage, VERSION, Workplace,
    claim, in_place, keep, read_bootstrap, read_given,
};
use lattice_api::agent::Bootstrap;
use lattice_core::time::{Clock, Timestamp};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tracing_subscriber::EnvFilter;

/// Lattice's agent on a node: enrols it, keeps its identity fresh, reports that it lives.
#[derive(Parser)]
#[command(name = "lattice-agent", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run until SIGTERM. What runs on the host goes on running.
    Run(RunArguments),
    /// Put the bootstrap file in place and run as a service; the line of `lattice node create` ends with it.
    Install(InstallArguments),
    /// Become the program of a workload, as standard input says; started by the agent itself.
    #[command(hide = true)]
    Enter,
    /// Overwrite free memory and print how many bytes; started by the agent itself.
    #[command(hide = true)]
    ScrubMemory {
        /// Memory left alone, in MiB.
        #[arg(long, value_name = "MIB")]
        reserve_mib: u64,
    },
}

#[derive(Args)]
struct InstallArguments {
    /// Where the bootstrap file is, or is put.
    #[arg(long, value_name = "FILE", default_value = "/etc/lattice/bootstrap.json")]
    bootstrap: PathBuf,
    /// Read the bootstrap file's content from standard input, so that its token is in no argument list.
    #[arg(long)]
    from_stdin: bool,
    /// Put files in place alone: something else than systemd runs the agent.
    #[arg(long)]
    no_service: bool,
}

#[derive(Args)]
struct RunArguments {
    /// File with server, node_id, token and ca_pem; mode 0600, since it holds the enrolment token.
    #[arg(long, value_name = "FILE", default_value = "/etc/lattice/bootstrap.json")]
    bootstrap: PathBuf,
    /// The kernel's parameters; where they name a node, the token of this boot is asked for there.
    #[arg(long, value_name = "FILE", default_value = "/proc/cmdline")]
    cmdline: PathBuf,
    /// Whom a machine that booted from the network trusts as its server; a file of its image.
    #[arg(long, value_name = "FILE", default_value = "/etc/lattice/ca.pem")]
    ca: PathBuf,
    /// Where certificate and key are kept.
    #[arg(long, value_name = "FOLDER", default_value = "/var/lib/lattice")]
    state_dir: PathBuf,
    /// What runs, kept across restarts; default: agent-state.json in the state folder.
    #[arg(long, value_name = "FILE")]
    state_file: Option<PathBuf>,
    /// Root of the unified cgroup hierarchy; default: where it is mounted.
    #[arg(long, value_name = "FOLDER")]
    cgroup_root: Option<PathBuf>,
    /// Slice that holds the scopes of allocations.
    #[arg(long, value_name = "NAME", default_value = "workload.slice")]
    slice: String,
}

/// The one place of the agent that reads the system's clock.
struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Timestamp::from_millis(i64::try_from(since_1970.as_millis()).unwrap_or(i64::MAX))
    }
}

fn main() -> ExitCode {
    let command = Cli::parse().command;
    let filter = EnvFilter::try_from_env("LATTICE_LOG").unwrap_or_else(|_| EnvFilter::new("info"));
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(false).init();
    let ended = match command {
        Command::Run(arguments) => run(arguments),
        Command::Install(arguments) => install(arguments),
        // It never returns but to say that it could not begin; the agent was told on standard output.
        Command::Enter => {
            lattice_agent::enter();
            return ExitCode::from(126);
        }
        Command::ScrubMemory { reserve_mib } => scrub(reserve_mib),
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            explain(&error);
            exit_code(&error)
        }
    }
}

fn run(arguments: RunArguments) -> Result<(), AgentError> {
    let workplace = Workplace { cgroup_root: arguments.cgroup_root, slice: arguments.slice, ..Workplace::default() };
    let storage = Storage::folder(arguments.state_dir, arguments.state_file);
    let boot = Boot { bootstrap: arguments.bootstrap, cmdline: arguments.cmdline, ca: arguments.ca };
    // One thread: an agent waits nearly all the time.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let shutdown = CancellationToken::new();
        let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
        let stop = shutdown.clone();
        tokio::spawn(async move {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
            stop.cancel();
        });
        let host = LinuxHost::new().working_at(workplace);
        let bootstrap = tokio::select! {
            bootstrap = boot.bootstrap(&host) => bootstrap?,
            () = shutdown.cancelled() => return Ok(()),
        };
        let config = AgentConfig { bootstrap, version: VERSION.to_owned(), storage, pace: Pace::default() };
        lattice_agent::run(config, Arc::new(host), Arc::new(SystemClock), shutdown).await
    })
}

/// Where the agent learns which node it is.
struct Boot {
    bootstrap: PathBuf,
    cmdline: PathBuf,
    ca: PathBuf,
}

impl Boot {
    /// What is in place; else what a machine that booted from the network is given.
    async fn bootstrap(&self, host: &LinuxHost) -> Result<Bootstrap, AgentError> {
        let cmdline = std::fs::read_to_string(&self.cmdline).unwrap_or_default();
        let Some(place) = BootPlace::of(&cmdline)? else { return read_bootstrap(&self.bootstrap) };
        if let Some(bootstrap) = in_place(&self.bootstrap, &place) {
            return Ok(bootstrap);
        }
        let ca = std::fs::read_to_string(&self.ca).map_err(|error| AgentError::BootstrapValue {
            field: "ca_pem",
            why: format!("{}: {error}; the image must hold the server's CA", self.ca.display()),
        })?;
        let boot_id = host.boot_id().await?;
        let bootstrap = claim(&place, ca, (boot_id, Pace::default()), Arc::new(SystemClock)).await?;
        keep(&self.bootstrap, &bootstrap)?;
        Ok(bootstrap)
    }
}

fn scrub(reserve_mib: u64) -> Result<(), AgentError> {
    println!("{}", lattice_agent::scrub_memory(reserve_mib)?);
    Ok(())
}

fn install(arguments: InstallArguments) -> Result<(), AgentError> {
    let given = arguments.from_stdin.then(|| read_given(std::io::stdin().lock())).transpose()?;
    let keeper = if arguments.no_service { Keeper::Caller } else { Keeper::Systemd };
    let plan = Install { bootstrap: arguments.bootstrap, given, keeper, root: PathBuf::from("/") };
    match lattice_agent::install(&plan)? {
        Installed::Serves => {
            eprintln!("lattice-agent runs, and starts with this host; its log: journalctl -u lattice-agent")
        }
        Installed::StartWith(command) => {
            eprintln!("lattice-agent is in place and does not run yet: no systemd keeps it on this host");
            eprintln!("  next: {command}    keep it running by what starts services here");
        }
    }
    Ok(())
}

/// 1: refused or invalid, a restart alone does not help; 2: unexpected.
fn exit_code(error: &AgentError) -> ExitCode {
    match error {
        AgentError::Bootstrap { .. }
        | AgentError::BootstrapValue { .. }
        | AgentError::EnrolmentRefused(_)
        | AgentError::IdentityRefused(_) => ExitCode::from(1),
        AgentError::Storage(_) | AgentError::Service { .. } | AgentError::Tls(_) => ExitCode::from(2),
    }
}

/// What, why, next: on stderr, for the journal.
fn explain(error: &AgentError) {
    match error.problem() {
        Some(problem) => eprintln!("error: {error} ({})", problem.code),
        None => eprintln!("error: {error}"),
    }
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        eprintln!("  because: {cause}");
        source = cause.source();
    }
    let Some(problem) = error.problem() else { return };
    for fact in &problem.because {
        eprintln!("  because: {fact}");
    }
    for step in &problem.next_actions {
        match &step.command {
            Some(command) => eprintln!("  next: {command}    {}", step.effect),
            None => eprintln!("  next: {}", step.effect),
        }
    }
}
