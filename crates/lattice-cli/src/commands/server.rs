//! `lattice server`: the control plane itself; and what is done to its data while it is stopped.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::{Args, Subcommand};
use lattice_api::client::{get, post};
use lattice_api::node::Reason;
use lattice_api::server::AgentCa;
use lattice_api::task::TaskSigningKeys;
use lattice_server::clock::{SystemClock, SystemIds};
use lattice_server::config::Config;
use lattice_server::launch;
use lattice_server::secrets::Existing;
use lattice_server::wiring::Server;
use lattice_server::{BackendConfig, StoreConfig};

use crate::failure::Failure;
use crate::output::{Look, Shown, table};
use crate::session::Session;

/// Options of `lattice server`.
#[derive(Debug, Args)]
pub struct Arguments {
    /// Configuration file; the defaults and LATTICE_… variables alone when absent
    #[arg(long, value_name = "FILE", global = true)]
    config: Option<PathBuf>,
    /// Something else than running it
    #[command(subcommand)]
    command: Option<Command>,
}

/// Beside running it.
#[derive(Debug, Subcommand)]
enum Command {
    /// Read the configuration, list everything that is wrong, start nothing
    CheckConfig,
    /// The secret store of a stopped server
    #[command(subcommand)]
    Secrets(SecretsCommand),
    /// The keys of a running server
    #[command(subcommand)]
    Keys(Keys),
}

/// Keys of a running server.
#[derive(Debug, Subcommand)]
pub enum Keys {
    /// Show the keys that sign tasks of agents
    List,
    /// Print the CA that agents trust: an image that boots from the network holds it as /etc/lattice/ca.pem
    AgentCa,
    /// Sign tasks with a new key; agents trust the one before until its last task is over
    RotateTaskSigning {
        /// Why; kept in the audit
        #[arg(long, default_value = "", hide_default_value = true)]
        reason: String,
    },
}

impl Arguments {
    /// What is asked of a running server, if it is that.
    pub fn keys(&self) -> Option<&Keys> {
        match &self.command {
            Some(Command::Keys(keys)) => Some(keys),
            Some(Command::CheckConfig | Command::Secrets(_)) | None => None,
        }
    }
}

/// Shows or replaces keys of a running server.
///
/// # Errors
/// Refused.
pub async fn keys(keys: &Keys, session: &Session) -> Result<(), Failure> {
    match keys {
        Keys::AgentCa => session.show::<AgentCa>(get(&["agent-ca"])).await,
        Keys::List => session.show::<TaskSigningKeys>(get(&["task-signing-keys"])).await,
        Keys::RotateTaskSigning { reason } => {
            let reason = Reason { reason: reason.clone() };
            session.show::<TaskSigningKeys>(post(&["task-signing-keys", "rotate"]).json(&reason)).await
        }
    }
}

impl Shown for AgentCa {
    fn text(&self, _: Look) -> String {
        self.ca_pem.clone()
    }

    fn names(&self) -> Vec<String> {
        Vec::new()
    }
}

impl Shown for TaskSigningKeys {
    fn text(&self, _: Look) -> String {
        let current = vec![self.current.key_id.clone(), "signs".to_owned(), self.current.public_key.clone()];
        let retired = self.retired.iter().map(|one| {
            vec![one.key.key_id.clone(), format!("trusted until {}", one.until), one.key.public_key.clone()]
        });
        table(&["KEY", "STATE", "PUBLIC KEY"], std::iter::once(current).chain(retired))
    }

    fn names(&self) -> Vec<String> {
        vec![self.current.key_id.clone()]
    }
}

/// What can be done with the secret store of a stopped server.
#[derive(Debug, Subcommand)]
enum SecretsCommand {
    /// Copy every secret of the encrypted file into Vault and read it back; none is printed
    Copy {
        /// Replace what is in Vault already and differs
        #[arg(long)]
        overwrite: bool,
    },
}

/// Options of `lattice restore`.
#[derive(Debug, Args)]
pub struct RestoreArguments {
    /// The backup
    from: PathBuf,
    /// Data directory of the server that will use it; it must hold no database yet
    #[arg(long, value_name = "DIR")]
    data: PathBuf,
}

/// Runs the server until it is asked to stop, or checks its configuration.
///
/// # Errors
/// The configuration is wrong, or something cannot be started.
pub async fn run(arguments: Arguments) -> Result<(), Failure> {
    let env: Vec<(String, String)> = std::env::vars().collect();
    let config = read(arguments.config.as_deref(), &env)?;
    if let Some(Command::Secrets(SecretsCommand::Copy { overwrite })) = arguments.command {
        return copy_secrets(&config, &env, overwrite).await;
    }
    let options = launch::options(&config, &env)
        .map_err(|unusable| Failure::refused(format!("the configuration cannot be used: {unusable}")))?;
    if let Some(Command::CheckConfig) = arguments.command {
        println!("the configuration is good");
        return Ok(());
    }
    launch::log(&config.log.level, config.log.format);
    std::fs::create_dir_all(&config.server.data_dir).map_err(|error| {
        Failure::refused(format!("{} cannot be made: {error}", config.server.data_dir.display()))
            .next("", "create it, writable by the user that runs the server, or set server.data_dir")
    })?;
    let server = Server::start(options, Arc::new(SystemClock), Arc::new(SystemIds)).await.map_err(|error| {
        let mut failure = Failure::refused(error.to_string());
        let mut source = std::error::Error::source(&error);
        while let Some(cause) = source {
            failure = failure.because(cause.to_string());
            source = cause.source();
        }
        match error.remedy() {
            Some(remedy) => failure.next("", remedy),
            None => failure,
        }
    })?;
    let token = launch::first_token(&server, &config.server.data_dir)
        .await
        .map_err(|error| Failure::refused(format!("the first API token cannot be written: {error}")))?;
    let scheme = if config.http.tls_certificate.as_os_str().is_empty() { "http" } else { "https" };
    eprintln!("lattice server: {scheme}://{}, agents at https://{}", server.api, server.agents);
    if let Some(path) = token {
        eprintln!("the first API token is in {}", path.display());
    }
    stop_requested().await?;
    server.stop().await;
    Ok(())
}

async fn copy_secrets(config: &Config, env: &[(String, String)], overwrite: bool) -> Result<(), Failure> {
    let existing = if overwrite { Existing::IsReplaced } else { Existing::Stops };
    let copied = launch::copy_secrets(config, env, existing)
        .await
        .map_err(|error| Failure::refused(format!("the secrets are not copied: {error}")).next("", error.remedy()))?;
    println!("copied and read back: {} secrets; {} were there already", copied.written, copied.there);
    eprintln!("Set backend = \"vault\" in [secrets] and start the server; then destroy secrets.enc and secrets.key.");
    Ok(())
}

/// Waits for SIGTERM or an interrupt.
async fn stop_requested() -> Result<(), Failure> {
    use tokio::signal::unix::{SignalKind, signal};
    let unexpected = |error| Failure::unexpected(format!("cannot wait for a signal: {error}"));
    let mut terminate = signal(SignalKind::terminate()).map_err(unexpected)?;
    tokio::select! {
        interrupted = tokio::signal::ctrl_c() => interrupted.map_err(unexpected),
        _ = terminate.recv() => Ok(()),
    }
}

fn read(path: Option<&Path>, env: &[(String, String)]) -> Result<Config, Failure> {
    let text = match path {
        Some(path) => std::fs::read_to_string(path)
            .map_err(|error| Failure::refused(format!("{} cannot be read: {error}", path.display())))?,
        None => String::new(),
    };
    Config::load(&text, env).map_err(|problems| {
        let name = path.map_or_else(|| "the environment".to_owned(), |path| path.display().to_string());
        let mut failure = Failure::refused(format!("{name}: {} problems in the configuration", problems.len()));
        for problem in &problems {
            failure = failure.because(format!("{}: {}", problem.key, problem.problem));
            failure = failure.next("", format!("{}: {}", problem.key, problem.remedy));
        }
        failure
    })
}

/// Puts a backup where a server will use it.
///
/// # Errors
/// The backup is damaged, or something is there already.
pub async fn restore(arguments: RestoreArguments) -> Result<(), Failure> {
    std::fs::create_dir_all(&arguments.data)
        .map_err(|error| Failure::refused(format!("{} cannot be made: {error}", arguments.data.display())))?;
    let StoreConfig { backend, .. } = StoreConfig::sqlite(arguments.data.join("lattice.db"));
    let target: BackendConfig = backend;
    let summary = lattice_server::restore(&arguments.from, &target)
        .await
        .map_err(|error| Failure::refused(format!("{} is not restored: {error}", arguments.from.display())))?;
    println!(
        "restored and read back: {} nodes, {} jobs, {} events, {} audit rows with an intact chain",
        summary.nodes, summary.jobs, summary.events, summary.audit_rows
    );
    eprintln!("The secret store (secrets.enc) and its key (secrets.key) are backed up on their own.");
    Ok(())
}
