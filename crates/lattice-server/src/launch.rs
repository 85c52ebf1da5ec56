//! From a configuration to a running server: resolves what stands there by reference.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use lattice_core::actor::Role;
use lattice_core::secret::Secret;
use lattice_core::webhook::address::AddressPolicy;
use lattice_providers::secret::SecretError;
use lattice_providers::secret::file::FileSecretStore;
use lattice_providers::secret::vault::{Credential, VaultAuth, VaultSettings, VaultStore};
use lattice_store::StoreConfig;

use crate::clock::SystemClock;
use crate::config::{BackendKind, Config, LogFormat, SecretRef, SecretsKind, VaultAuthKind};
use crate::secrets::{Copied, CopyError, Existing, copy};
use crate::wiring::{Options, Server, Tls};

/// Name of the file that holds the first API token.
pub const FIRST_TOKEN_FILE: &str = "admin.token";

/// A value of the configuration that cannot be used on this machine.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{key}: {problem}")]
pub struct Unusable {
    /// Which key.
    pub key: &'static str,
    /// What is wrong with it, and what would be right.
    pub problem: String,
}

/// The options that a checked configuration means here.
///
/// # Errors
/// A file, a variable or an address that the configuration names is not to be had.
pub fn options(config: &Config, env: &[(String, String)]) -> Result<Options, Unusable> {
    let data = config.server.data_dir.clone();
    let given = Some(&config.bootstrap.server).filter(|given| !given.is_empty()).unwrap_or(&config.agents.address);
    let mut agent_names = vec![host_of(&config.agents.address), host_of(given)];
    agent_names.dedup();
    Ok(Options {
        store: store(config, env)?,
        secrets_key: data.join("secrets.key"),
        secrets_dir: data,
        vault: vault(config, env)?,
        api_listen: address("http.listen", &config.http.listen)?,
        api_tls: api_tls(config, env)?,
        agent_listen: address("agents.listen", &config.agents.listen)?,
        agent_url: Some(config.agents.address.clone()),
        given_url: Some(given.clone()),
        agent_names,
        agent_binary: Some(config.bootstrap.agent_binary.clone()).filter(|path| !path.as_os_str().is_empty()),
        agent_binary_sha256: Some(config.bootstrap.agent_sha256.clone()).filter(|digest| !digest.is_empty()),
        agent_binary_url: config.bootstrap.agent_url.clone(),
        name: server_name(&config.server.name),
        certificate_life: Duration::from_secs(u64::from(config.agents.certificate_hours) * 3_600),
        http_limits: config.http.limits(),
        webhooks: AddressPolicy::of_ranges(&config.webhooks.allow).map_err(|range| Unusable {
            key: "webhooks.allow",
            problem: format!("`{range}` is not a range such as 10.1.0.0/16"),
        })?,
        ..Options::default()
    })
}

fn store(config: &Config, env: &[(String, String)]) -> Result<StoreConfig, Unusable> {
    match config.store.backend {
        BackendKind::Sqlite => Ok(StoreConfig::sqlite(config.server.data_dir.join("lattice.db"))),
        BackendKind::Postgres => {
            let url = secret("store.postgres_url", &config.store.postgres_url, env)?;
            Ok(StoreConfig::postgres(url.expose().clone()))
        }
    }
}

fn vault(config: &Config, env: &[(String, String)]) -> Result<Option<VaultSettings>, Unusable> {
    match config.secrets.backend {
        SecretsKind::File => Ok(None),
        SecretsKind::Vault => vault_settings(config, env).map(Some),
    }
}

/// Copies the secrets of the encrypted file into the Vault that the configuration describes, whichever of the two it names
/// as the secret store. The server must be stopped: the file has one user at a time.
///
/// # Errors
/// There is no such file; Vault is not described or does not answer; a secret differs or cannot be copied.
pub async fn copy_secrets(config: &Config, env: &[(String, String)], existing: Existing) -> Result<Copied, NotCopied> {
    let (data, clock) = (&config.server.data_dir, Arc::new(SystemClock));
    if !data.join("secrets.enc").exists() {
        return Err(NotCopied::Nothing { directory: data.clone() });
    }
    let vault = VaultStore::new(vault_settings(config, env)?, clock)?;
    let file = FileSecretStore::open(data, &data.join("secrets.key"))?;
    Ok(copy(&file, &vault, existing).await?)
}

/// Why secrets are not copied.
#[derive(Debug, thiserror::Error)]
pub enum NotCopied {
    /// There is no encrypted file.
    #[error("{} holds no secrets.enc", .directory.display())]
    Nothing {
        /// Where it would be.
        directory: PathBuf,
    },
    /// Vault is not described as it should be.
    #[error(transparent)]
    Unusable(#[from] Unusable),
    /// One of the two stores cannot be opened.
    #[error(transparent)]
    Store(#[from] SecretError),
    /// One of the secrets cannot be copied.
    #[error(transparent)]
    Copy(#[from] CopyError),
}

impl NotCopied {
    /// What to do about it.
    pub fn remedy(&self) -> String {
        let again = "put it right and run this again: what was copied stays";
        match self {
            Self::Nothing { .. } => {
                "name the configuration of the server whose secrets they are: --config FILE".to_owned()
            }
            Self::Unusable(_) => "describe the Vault in [secrets]; backend may still be \"file\"".to_owned(),
            Self::Copy(CopyError::Different { .. }) => {
                "look at what is there; --overwrite replaces it by what the file has".to_owned()
            }
            Self::Store(source) | Self::Copy(CopyError::Store { source, .. }) => {
                source.remedy().unwrap_or_else(|| again.to_owned())
            }
            Self::Copy(CopyError::NotTheSame { .. }) => {
                "something else writes there: stop it, and run this again".to_owned()
            }
        }
    }
}

fn vault_settings(config: &Config, env: &[(String, String)]) -> Result<VaultSettings, Unusable> {
    let given = &config.secrets;
    if let Some(problem) = given.vault_problems().into_iter().next() {
        return Err(Unusable { key: "secrets", problem: problem.to_string() });
    }
    let auth = match given.vault_auth {
        VaultAuthKind::Approle => VaultAuth::AppRole {
            path: given.vault_approle_path.trim_matches('/').to_owned(),
            role_id: given.vault_role_id.clone(),
            secret_id: credential("secrets.vault_secret_id", &given.vault_secret_id, env)?,
        },
        VaultAuthKind::Token => VaultAuth::Token { token: credential("secrets.vault_token", &given.vault_token, env)? },
    };
    let ca = &given.vault_ca_file;
    let ca_pem = if ca.as_os_str().is_empty() {
        None
    } else {
        Some(std::fs::read(ca).map_err(|error| Unusable {
            key: "secrets.vault_ca_file",
            problem: format!("{} cannot be read: {error}", ca.display()),
        })?)
    };
    Ok(VaultSettings {
        address: given.vault_address.clone(),
        mount: given.vault_mount.clone(),
        namespace: Some(given.vault_namespace.clone()).filter(|name| !name.is_empty()),
        ca_pem,
        auth,
        timeout: Duration::from_millis(u64::from(given.vault_timeout_ms)),
    })
}

/// Read again at each use, so that a file can be rotated while the server runs; tried once here.
fn credential(key: &'static str, reference: &str, env: &[(String, String)]) -> Result<Credential, Unusable> {
    let parsed: SecretRef = reference.parse().map_err(|error| Unusable { key, problem: format!("{error}") })?;
    let env = match &parsed {
        SecretRef::File(_) => Vec::new(),
        SecretRef::Env(name) => env.iter().filter(|(variable, _)| variable == name).cloned().collect(),
    };
    parsed.resolve(&env).map_err(|problem| Unusable { key, problem })?;
    Ok(Arc::new(move || parsed.resolve(&env)))
}

fn api_tls(config: &Config, env: &[(String, String)]) -> Result<Option<Tls>, Unusable> {
    let path = &config.http.tls_certificate;
    if path.as_os_str().is_empty() {
        return Ok(None);
    }
    let chain_pem = std::fs::read_to_string(path).map_err(|error| Unusable {
        key: "http.tls_certificate",
        problem: format!("{} cannot be read: {error}", path.display()),
    })?;
    Ok(Some(Tls { chain_pem, key_pem: secret("http.tls_key", &config.http.tls_key, env)? }))
}

fn secret(key: &'static str, reference: &str, env: &[(String, String)]) -> Result<Secret<String>, Unusable> {
    let reference: SecretRef = reference.parse().map_err(|error| Unusable { key, problem: format!("{error}") })?;
    reference.resolve(env).map_err(|problem| Unusable { key, problem })
}

fn address(key: &'static str, text: &str) -> Result<SocketAddr, Unusable> {
    text.parse().map_err(|_| Unusable {
        key,
        problem: format!("`{text}` is not an address and port; write it as 127.0.0.1:7440"),
    })
}

/// The host in `https://host:port`.
fn host_of(url: &str) -> String {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let host = rest.split('/').next().unwrap_or(rest);
    match host.rsplit_once(':') {
        Some((name, port)) if port.chars().all(|c| c.is_ascii_digit()) => name,
        Some(_) | None => host,
    }
    .trim_matches(['[', ']'])
    .to_owned()
}

fn server_name(configured: &str) -> String {
    if !configured.is_empty() {
        return configured.to_owned();
    }
    nix::unistd::gethostname().ok().and_then(|name| name.into_string().ok()).unwrap_or_else(|| "lattice".to_owned())
}

/// Begins to log, as the configuration says. Call it once.
pub fn log(level: &str, format: LogFormat) {
    use tracing_subscriber::EnvFilter;
    let filter = EnvFilter::try_new(level).unwrap_or_else(|_| EnvFilter::new("info"));
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    match format {
        LogFormat::Json => builder.json().init(),
        LogFormat::Text => builder.with_ansi(false).init(),
    }
}

/// The first start of an installation leaves an API token that may do everything in a file of its own, mode 0600.
/// Nothing happens when any token exists.
///
/// # Errors
/// The store fails, or the file cannot be written.
pub async fn first_token(server: &Server, data_dir: &std::path::Path) -> Result<Option<PathBuf>, std::io::Error> {
    use std::io::Write;
    use std::os::unix::fs::OpenOptionsExt;
    let known = server.store.api_tokens().await.map_err(std::io::Error::other)?;
    if !known.is_empty() {
        return Ok(None);
    }
    let path = data_dir.join(FIRST_TOKEN_FILE);
    let mut file = std::fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&path)?;
    let token = server.issue_token("admin", Role::PlatformAdmin).await.map_err(std::io::Error::other)?;
    file.write_all(token.expose().as_bytes())?;
    file.sync_all()?;
    Ok(Some(path))
}

#[cfg(test)]
mod tests {
    use super::host_of;

    #[test]
    fn the_certificate_is_made_for_the_host_that_agents_call() {
        let rows = [
            ("https://lattice.dc1:7443", "lattice.dc1"),
            ("https://10.0.0.1", "10.0.0.1"),
            ("https://[fd00::1]:7443/", "fd00::1"),
        ];
        for (url, host) in rows {
            assert_eq!(host_of(url), host);
        }
    }
}
