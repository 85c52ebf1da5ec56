//! How a host learns to become a node: the bootstrap file, and the command that an operator runs by hand.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use lattice_core::ids::NodeId;
use lattice_core::secret::Secret;

/// Where the agent reads its bootstrap file. It holds a secret: mode 0600.
pub const BOOTSTRAP_PATH: &str = "/etc/lattice/bootstrap.json";
/// What the server's addresses are trusted by.
pub const CA_PATH: &str = "/etc/lattice/ca.pem";
/// Where the agent is installed.
pub const AGENT_PATH: &str = "/usr/local/bin/lattice-agent";

/// What every new host is told about this control plane.
#[derive(Debug, Clone)]
pub struct BootstrapConfig {
    /// Base address of the agent listener: `https://lattice.dc1:7443`.
    pub server: String,
    /// Certificates that the server's must chain to, in PEM.
    pub ca_pem: String,
    /// Where the agent's binary is fetched from.
    pub agent_url: String,
    /// SHA-256 of that binary, in hex.
    pub agent_sha256: Option<String>,
    /// Keys that tasks are signed with, in PEM.
    pub task_keys_pem: String,
}

/// Content of the bootstrap file: `server`, `node_id`, `token`, `ca_pem`.
pub fn bootstrap_json(config: &BootstrapConfig, node: NodeId, token: &Secret<String>) -> Secret<String> {
    let body = serde_json::json!({
        "server": config.server, "node_id": node, "token": token.expose(), "ca_pem": config.ca_pem,
    });
    Secret::new(body.to_string())
}

/// The one line that an operator runs on a host to make it the node: it writes the bootstrap file from its standard
/// input, fetches the agent and starts it. The token stands in the line and in no process's argument list: a
/// here-string is read by the shell itself. spec: S5 2.1
pub fn manual_command(config: &BootstrapConfig, node: NodeId, token: &Secret<String>) -> Secret<String> {
    let file = STANDARD.encode(bootstrap_json(config, node, token).expose());
    let ca = STANDARD.encode(&config.ca_pem);
    let check = config
        .agent_sha256
        .as_ref()
        .map_or(String::new(), |digest| format!(" && sha256sum --check --strict <<<'{digest}  {AGENT_PATH}'"));
    Secret::new(format!(
        "sudo install -d -m 0755 /etc/lattice && base64 -d <<<'{ca}' | sudo install -m 0644 /dev/stdin {CA_PATH} && \
         base64 -d <<<'{file}' | sudo install -m 0600 /dev/stdin {BOOTSTRAP_PATH} && \
         sudo curl --fail --silent --show-error --location --cacert {CA_PATH} --output {AGENT_PATH} {url}{check} && \
         sudo chmod 0755 {AGENT_PATH} && sudo {AGENT_PATH} install",
        url = config.agent_url,
    ))
}
