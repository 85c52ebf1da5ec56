//! Where new hosts get the agent from: this server's own file, or the operator's address.

use std::path::PathBuf;

use bytes::Bytes;
use lattice_api::agent::AGENT_BINARY_PATH;
use sha2::{Digest, Sha256};

use crate::wiring::Options;

/// Where new hosts get the agent from, and what they check.
pub struct AgentSource {
    /// Its address.
    pub url: String,
    /// SHA-256 of what is there, in hex, as far as it is known.
    pub sha256: Option<String>,
    /// What the agent listener gives. Kept in memory, so that what is given is what was hashed: an agent is some MiB,
    /// and a file that is replaced while the server runs would not fit the lines that were printed before.
    pub binary: Option<Bytes>,
}

/// The file that the configuration names cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("the agent's binary {} cannot be read: {source}; name another in bootstrap.agent_binary", path.display())]
pub struct Unreadable {
    path: PathBuf,
    source: std::io::Error,
}

impl AgentSource {
    /// The operator's own address, or else this server's agent listener, which is at `server` for hosts.
    ///
    /// # Errors
    /// [`Unreadable`].
    pub async fn find(options: &Options, server: &str) -> Result<Self, Unreadable> {
        let binary = match options.agent_binary.clone() {
            Some(path) => {
                Some(Bytes::from(tokio::fs::read(&path).await.map_err(|source| Unreadable { path, source })?))
            }
            None => None,
        };
        if !options.agent_binary_url.is_empty() {
            let sha256 = options.agent_binary_sha256.clone();
            return Ok(Self { url: options.agent_binary_url.clone(), sha256, binary });
        }
        let sha256 = binary.as_ref().map(|binary| hex::encode(Sha256::digest(binary)));
        Ok(Self { url: format!("{}{AGENT_BINARY_PATH}", server.trim_end_matches('/')), sha256, binary })
    }
}
