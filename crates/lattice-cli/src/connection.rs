//! Where the server is and which token to show it.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::arguments::Global;
use crate::failure::Failure;

/// What `lattice dev` leaves in its runtime file, and what the configuration file may say.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
struct Known {
    /// Address of the server.
    server: Option<String>,
    /// The token itself.
    token: Option<String>,
    /// File that holds the token.
    token_file: Option<PathBuf>,
    /// Certificates of the server, in PEM.
    ca_file: Option<PathBuf>,
}

/// How to reach the server.
#[derive(Clone)]
pub struct Connection {
    /// Its address, without a slash at the end.
    pub server: String,
    /// The bearer token; none: the server may allow it.
    pub token: Option<String>,
    /// Certificates that the server's must chain to, in PEM.
    pub ca_pem: Option<Vec<u8>>,
}

/// Name of the file in which a running `lattice dev` tells its address and token. Mode 0600: it holds a secret.
pub const RUNTIME_FILE: &str = "lattice-dev.json";

/// Finds the server: the command line and the environment first, then the configuration file, then a running
/// `lattice dev`. A token goes only to the server that it was named with, unless the command line or the environment
/// names it.
///
/// # Errors
/// No server is known, or a file that was named cannot be read.
pub fn find(global: &Global) -> Result<Connection, Failure> {
    let given_token = given_token(global)?;
    let known = match &global.server {
        Some(server) => matching(server)?,
        None => first_known()?.ok_or_else(no_server)?,
    };
    let server = global.server.clone().or(known.server).ok_or_else(no_server)?;
    let token = match (given_token, known.token, known.token_file) {
        (Some(token), _, _) | (None, Some(token), _) => Some(token),
        (None, None, Some(path)) => Some(read_token(&path)?),
        (None, None, None) => None,
    };
    let ca_pem = match global.ca_file.clone().or(known.ca_file) {
        Some(path) => Some(std::fs::read(&path).map_err(|error| unreadable(&path, &error))?),
        None => None,
    };
    Ok(Connection { server: checked(&server)?, token, ca_pem })
}

fn given_token(global: &Global) -> Result<Option<String>, Failure> {
    match (&global.token_file, std::env::var("LATTICE_TOKEN")) {
        (Some(path), _) => Ok(Some(read_token(path)?)),
        (None, Ok(token)) if !token.trim().is_empty() => Ok(Some(token.trim().to_owned())),
        (None, Ok(_) | Err(_)) => Ok(None),
    }
}

/// The first file that names a server.
fn first_known() -> Result<Option<Known>, Failure> {
    let config = config_file()?.filter(|known| known.server.is_some());
    Ok(config.or_else(|| runtime_file().filter(|known| known.server.is_some())))
}

/// What a file knows about that very server.
fn matching(server: &str) -> Result<Known, Failure> {
    let same = |known: &Known| known.server.as_deref().map(trimmed) == Some(trimmed(server));
    if let Some(known) = config_file()?.filter(same) {
        return Ok(known);
    }
    Ok(runtime_file().filter(same).unwrap_or_default())
}

fn config_file() -> Result<Option<Known>, Failure> {
    let folder = std::env::var_os("XDG_CONFIG_HOME").map(PathBuf::from);
    let Some(folder) = folder.or_else(|| std::env::home_dir().map(|home| home.join(".config"))) else {
        return Ok(None);
    };
    let path = folder.join("lattice/config.toml");
    match std::fs::read_to_string(&path) {
        Ok(text) => toml::from_str(&text).map(Some).map_err(|error| {
            Failure::refused(format!("{} is not valid", path.display())).because(error.message().to_owned())
        }),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(unreadable(&path, &error)),
    }
}

/// The runtime file of `lattice dev`: only if it is ours alone, since temporary folders are open to everybody.
fn runtime_file() -> Option<Known> {
    let folder = std::env::var_os("XDG_RUNTIME_DIR").map_or_else(std::env::temp_dir, PathBuf::from);
    let path = folder.join(RUNTIME_FILE);
    let metadata = std::fs::symlink_metadata(&path).ok()?;
    let own = std::fs::metadata("/proc/self").ok()?.uid();
    if !metadata.is_file() || metadata.uid() != own || metadata.mode() & 0o077 != 0 {
        return None;
    }
    serde_json::from_slice(&std::fs::read(&path).ok()?).ok()
}

fn read_token(path: &Path) -> Result<String, Failure> {
    let text = std::fs::read_to_string(path).map_err(|error| unreadable(path, &error))?;
    let token = text.trim();
    if token.is_empty() {
        return Err(Failure::refused(format!("{} holds no token", path.display())));
    }
    Ok(token.to_owned())
}

/// HTTPS anywhere, plain HTTP on this machine only: a token must not cross a network in clear.
fn checked(server: &str) -> Result<String, Failure> {
    let server = trimmed(server);
    match server.split_once("://") {
        Some(("https", _)) => Ok(server.to_owned()),
        Some(("http", rest)) if is_loopback(rest) => Ok(server.to_owned()),
        Some(("http", _)) => Err(Failure::refused(format!("{server} would be asked in clear over the network"))
            .because("the token and every answer could be read on the way")
            .next("", "use its https:// address")),
        Some(_) | None => Err(Failure::refused(format!("`{server}` is not an address of a server"))
            .because("expected https://host:port, or http://127.0.0.1:port on the same machine")),
    }
}

/// Whether the rest of an address stays on this machine.
pub fn is_loopback(rest: &str) -> bool {
    let host = rest.split('/').next().unwrap_or_default();
    let host = host.rsplit_once('@').map_or(host, |(_, host)| host);
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.split(':').next().unwrap_or_default(),
    };
    name == "localhost" || name.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

fn trimmed(server: &str) -> &str {
    server.trim_end_matches('/')
}

fn unreadable(path: &Path, error: &std::io::Error) -> Failure {
    Failure::refused(format!("cannot read {}", path.display())).because(error.to_string())
}

fn no_server() -> Failure {
    Failure::refused("no server is known")
        .because(
            "neither --server nor LATTICE_SERVER nor a configuration file names one, and no `lattice dev` runs here",
        )
        .next("lattice dev", "starts a server with a simulated site")
        .next("", "or name one: --server https://lattice.example:7070")
}
