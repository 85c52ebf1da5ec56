//! What an agent is told at its start.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use lattice_api::agent::Bootstrap;
use tracing::warn;

use crate::error::AgentError;
use crate::storage::Storage;

/// Version of this agent.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// What an agent is told at its start.
pub struct AgentConfig {
    /// Where to go and with what.
    pub bootstrap: Bootstrap,
    /// Version to report.
    pub version: String,
    /// Where identity and state are kept.
    pub storage: Storage,
    /// How fast things go.
    pub pace: Pace,
}

/// How fast things go. The server sets the pace of heartbeats.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pace {
    /// Mean of the first wait after a failure is half of it; each further one doubles.
    pub backoff_base: Duration,
    /// Longest wait after a failure: well under the 30 s after which a node counts as silent.
    pub backoff_cap: Duration,
    /// Longest wait after a refusal that may pass: somebody has to do something first.
    pub refused_cap: Duration,
    /// Longest wait for an answer, besides what the server may park.
    pub call_timeout: Duration,
    /// A connection is replaced after this, less up to a fifth: before the server closes it, at 50 minutes at the earliest.
    pub link_life: Duration,
    /// Pause between the first look at the hardware and the second; each further one is twice as long.
    pub inspect_first: Duration,
    /// Longest pause between two looks at the hardware; each look recomputes the fingerprint.
    pub inspect_every: Duration,
    /// The same while nothing runs on the host.
    pub inspect_idle: Duration,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            backoff_base: Duration::from_millis(500),
            backoff_cap: Duration::from_secs(10),
            refused_cap: Duration::from_secs(60),
            call_timeout: Duration::from_secs(10),
            link_life: Duration::from_secs(48 * 60),
            inspect_first: Duration::from_secs(15),
            inspect_every: Duration::from_secs(3600),
            inspect_idle: Duration::from_secs(60),
        }
    }
}

/// Reads a bootstrap file.
///
/// # Errors
/// [`AgentError::Bootstrap`] when it cannot be read or parsed. The content is not shown: it holds the token.
pub fn read_bootstrap(path: &Path) -> Result<Bootstrap, AgentError> {
    let bad = |why: String| AgentError::Bootstrap { path: PathBuf::from(path), why };
    let text = std::fs::read(path).map_err(|error| bad(error.to_string()))?;
    let mode = std::fs::metadata(path).map_err(|error| bad(error.to_string()))?.permissions().mode();
    if mode & 0o077 != 0 {
        warn!(path = %path.display(), mode = format!("{:o}", mode & 0o777), "bootstrap file can be read by others: it holds the token");
    }
    parse_bootstrap(path, &text)
}

/// Parses the content of a bootstrap file that is, or is to be, at `path`.
///
/// # Errors
/// [`AgentError::Bootstrap`]. The content is not shown: it holds the token.
pub(crate) fn parse_bootstrap(path: &Path, text: &[u8]) -> Result<Bootstrap, AgentError> {
    // The parser's message can quote a value; where it stopped is enough to find it.
    serde_json::from_slice(text).map_err(|error| AgentError::Bootstrap {
        path: PathBuf::from(path),
        why: format!(
            "line {}, column {}: expected an object with server, node_id, token and ca_pem",
            error.line(),
            error.column()
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bad_bootstrap_file_is_named_and_its_token_is_not_shown() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("bootstrap.json");
        std::fs::write(&path, r#"{"server":"https://x","token":"lat_enroll_hush","node_id":"lat_enroll_hush"}"#)
            .unwrap();
        let error = read_bootstrap(&path).map(|_| ()).unwrap_err().to_string();
        assert!(error.contains("bootstrap.json") && error.contains("node_id") && !error.contains("hush"), "{error}");
        let missing = read_bootstrap(&folder.path().join("none.json")).map(|_| ()).unwrap_err().to_string();
        assert!(missing.contains("none.json"), "{missing}");
    }
}
