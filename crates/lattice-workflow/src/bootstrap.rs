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
    /// Where the agent's binary is fetched from; below `server` where this server gives it.
    pub agent_url: String,
    /// SHA-256 of that binary, in hex. None where this server has no binary to give, or the operator did not say.
    pub agent_sha256: Option<String>,
    /// Keys that tasks are signed with, in PEM.
    pub task_keys_pem: String,
}

impl BootstrapConfig {
    /// Whether this server gives the agent: its own listener has a certificate of our CA. What an operator serves
    /// elsewhere is trusted as the host trusts it.
    pub fn gives_agent(&self) -> bool {
        self.agent_url.starts_with(&self.server)
    }
}

/// Content of the bootstrap file: `server`, `node_id`, `token`, `ca_pem`.
pub fn bootstrap_json(config: &BootstrapConfig, node: NodeId, token: &Secret<String>) -> Secret<String> {
    let body = serde_json::json!({
        "server": config.server, "node_id": node, "token": token.expose(), "ca_pem": config.ca_pem,
    });
    Secret::new(body.to_string())
}

/// The one line that an operator runs on a host, as root or with sudo, to make it the node: it trusts the control
/// plane's CA, fetches the agent, checks its digest, and hands the bootstrap file to `lattice-agent install`, which puts
/// it in place and starts the service. spec: S5 2.1
///
/// For every POSIX shell. The token stands in the line alone: `echo` is part of the shell, so that no process has it in
/// its argument list, and the agent reads it from its standard input. An agent that is in place already with that digest
/// is not fetched again.
pub fn manual_command(config: &BootstrapConfig, node: NodeId, token: &Secret<String>) -> Secret<String> {
    let file = STANDARD.encode(bootstrap_json(config, node, token).expose());
    let ca = STANDARD.encode(&config.ca_pem);
    let get_agent = get_agent(config);
    Secret::new(format!(
        r#"( set -eu; as=; [ "$(id -u)" = 0 ] || as=sudo; agent={AGENT_PATH}; no() {{ echo "error: $1" >&2; echo "  next: $2" >&2; exit 1; }}; echo '{ca}' | base64 -d | $as sh -c 'umask 022; mkdir -p /etc/lattice; cat >{CA_PATH}'; {get_agent}; echo '{file}' | base64 -d | $as "$agent" install --from-stdin )"#
    ))
}

/// The part of the line that ends with the right agent in place, or with words that say what is missing.
fn get_agent(config: &BootstrapConfig) -> String {
    let url = quoted(&config.agent_url);
    let is_ours = config.gives_agent();
    let trust = if is_ours { format!(" --cacert {CA_PATH}") } else { String::new() };
    let fetch = format!(
        r#"$as curl --fail --silent --show-error --location --retry 3{trust} --create-dirs --output "$agent.new" {url} || no "the agent cannot be fetched from "{url} "see that this host has curl and reaches that address, then run the line again""#
    );
    let put = r#"$as chmod 0755 "$agent.new"; $as mv -f "$agent.new" "$agent""#;
    match &config.agent_sha256 {
        Some(digest) => format!(
            r#"fits() {{ echo '{digest}  '"$1" | $as sha256sum -c >/dev/null 2>&1; }}; fits "$agent" || {{ {fetch}; fits "$agent.new" || no "the fetched agent is not the one that this line names" "ask for a new line with: lattice node bootstrap"; {put}; }}"#
        ),
        None if is_ours => r#"[ -x "$agent" ] || no "the server has no agent to give, and there is none at $agent" "put one there, or set bootstrap.agent_binary in the server's configuration, restart it and ask for a new line""#
            .to_owned(),
        None => format!("{fetch}; {put}"),
    }
}

/// As one word of a POSIX shell.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::process::{Command, Stdio};

    use super::*;

    fn config(agent_url: &str, agent_sha256: Option<&str>) -> BootstrapConfig {
        BootstrapConfig {
            server: "https://lattice.dc1:7443".to_owned(),
            ca_pem: "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n".to_owned(),
            agent_url: agent_url.to_owned(),
            agent_sha256: agent_sha256.map(str::to_owned),
            task_keys_pem: String::new(),
        }
    }

    fn line(config: &BootstrapConfig) -> String {
        let node: NodeId = "0190c2a4-7d1e-7c3a-9b1f-2f6d1c0a5e11".parse().unwrap();
        manual_command(config, node, &Secret::new("lat_enroll_hush".to_owned())).expose().clone()
    }

    const OURS: &str = "https://lattice.dc1:7443/bootstrap/lattice-agent";

    #[test]
    fn the_command_is_one_line_that_every_shell_reads_and_shows_no_token() {
        for config in [config(OURS, Some(&"ab".repeat(32))), config(OURS, None), config("https://o'mirror/a", None)] {
            let line = line(&config);
            assert_eq!(line.lines().count(), 1);
            assert!(!line.contains("lat_enroll") && !line.contains('!'), "{line}");
            for shell in ["sh", "bash", "dash", "zsh", "busybox"] {
                let Ok(mut child) = Command::new(shell)
                    .args(if shell == "busybox" { &["sh", "-n"][..] } else { &["-n"][..] })
                    .stdin(Stdio::piped())
                    .spawn()
                else {
                    continue;
                };
                child.stdin.take().unwrap().write_all(line.as_bytes()).unwrap();
                assert!(child.wait().unwrap().success(), "{shell}: {line}");
            }
        }
    }

    #[test]
    fn only_what_this_server_gives_is_trusted_by_its_ca() {
        let digest = "cd".repeat(32);
        let ours = line(&config(OURS, Some(&digest)));
        assert!(ours.contains("--cacert /etc/lattice/ca.pem") && ours.contains(&digest), "{ours}");
        let mirror = line(&config("https://o'mirror/a", Some(&digest)));
        assert!(!mirror.contains("--cacert") && mirror.contains(r"'https://o'\''mirror/a'"), "{mirror}");
        let none = line(&config(OURS, None));
        assert!(!none.contains("curl") && none.contains("bootstrap.agent_binary"), "{none}");
    }
}
