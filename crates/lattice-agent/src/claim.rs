//! The bootstrap of a machine that booted from the network: its kernel's parameters say where to go and as which node,
//! its image whom to trust, and the server gives the token of this boot to the machine's address.

use std::path::Path;
use std::sync::Arc;

use lattice_api::agent::{Bootstrap, ClaimRequest, ClaimResponse, claim_path};
use lattice_core::ids::NodeId;
use lattice_core::site::openchami::{NODE_PARAMETER, SERVER_PARAMETER, parameter};
use lattice_core::time::Clock;
use tracing::info;

use crate::backoff::Backoff;
use crate::config::{Pace, VERSION, parse_bootstrap};
use crate::error::AgentError;
use crate::link::{CallError, Link, Reach, Target, TlsNetwork};
use crate::storage::replace;

/// Where a booted machine's agent goes, and as whom.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BootPlace {
    /// Base address of the agent listener.
    pub server: String,
    /// Which node the machine is.
    pub node: NodeId,
}

impl BootPlace {
    /// From the kernel's parameters. None: they name no node.
    ///
    /// # Errors
    /// [`AgentError::BootstrapValue`]: what they say cannot be used.
    pub fn of(cmdline: &str) -> Result<Option<Self>, AgentError> {
        let Some(node) = parameter(cmdline, NODE_PARAMETER) else { return Ok(None) };
        let bad = |field, why: String| AgentError::BootstrapValue { field, why };
        let node =
            node.parse().map_err(|invalid: lattice_core::ids::InvalidId| bad("lattice.node", invalid.to_string()))?;
        let server = parameter(cmdline, SERVER_PARAMETER)
            .ok_or_else(|| bad("lattice.server", "the kernel's parameters do not have it".to_owned()))?;
        Ok(Some(Self { server: server.to_owned(), node }))
    }
}

/// The bootstrap that is in place for that node, if there is one: an agent that is started again has no need of another.
pub fn in_place(path: &Path, place: &BootPlace) -> Option<Bootstrap> {
    let text = std::fs::read(path).ok()?;
    parse_bootstrap(path, &text).ok().filter(|bootstrap| bootstrap.node_id == place.node)
}

/// Takes the token of this boot. It is asked for until it is given: the machine may boot before anybody expects it.
///
/// # Errors
/// The address or the authorities cannot be used. Everything else is tried again.
pub async fn claim(
    place: &BootPlace,
    ca_pem: String,
    (boot_id, pace): (String, Pace),
    clock: Arc<dyn Clock>,
) -> Result<Bootstrap, AgentError> {
    let target = Target::new(&TlsNetwork { clock }, &Reach { server: &place.server, ca_pem: &ca_pem, identity: None })?;
    let request = ClaimRequest { boot_id, agent_version: VERSION.to_owned() };
    let mut backoff = Backoff::new(pace.backoff_base);
    loop {
        let error = match ask(&target, place.node, &request, pace).await {
            Ok(answer) => {
                info!(node_id = %place.node, "took the enrolment token of this boot");
                let server = place.server.clone();
                return Ok(Bootstrap { server, node_id: place.node, token: answer.token, ca_pem });
            }
            Err(error) => error,
        };
        let cap = match &error {
            CallError::Refused(_) => pace.refused_cap,
            CallError::Transport(_) | CallError::TimedOut(_) => pace.backoff_cap,
        };
        let wait = backoff.failed(cap, rand::random());
        info!(node_id = %place.node, reason = %error, wait_ms = wait.as_millis(), "no token yet");
        tokio::time::sleep(wait).await;
    }
}

async fn ask(target: &Target, node: NodeId, request: &ClaimRequest, pace: Pace) -> Result<ClaimResponse, CallError> {
    let mut link = Link::open(target, pace.call_timeout).await?;
    link.call(&claim_path(node), request, pace.call_timeout).await
}

/// Keeps a bootstrap for the agent's next start in this boot, readable for its owner alone.
///
/// # Errors
/// What the file system says.
pub fn keep(path: &Path, bootstrap: &Bootstrap) -> Result<(), AgentError> {
    let text = serde_json::to_vec(bootstrap).map_err(std::io::Error::other)?;
    Ok(replace(path, &text, 0o600)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_parameters_say_where_to_go() {
        let node = "0190c2a4-7d1e-7c3a-9b1f-2f6d1c0a5e11";
        let line = format!("initrd=initrd quiet lattice.server=https://l:7443 lattice.node={node} xname=x1n0\n");
        let place = BootPlace::of(&line).unwrap().unwrap();
        assert_eq!((place.server.as_str(), place.node.to_string()), ("https://l:7443", node.to_owned()));
        assert_eq!(BootPlace::of("quiet splash").unwrap(), None);
        for (bad, field) in [
            ("lattice.node=me lattice.server=https://l", "lattice.node"),
            (&format!("lattice.node={node}"), "lattice.server"),
        ] {
            assert!(BootPlace::of(bad).unwrap_err().to_string().contains(field), "{bad}");
        }
    }

    #[test]
    fn what_is_kept_is_found_for_the_same_node_alone() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("bootstrap.json");
        let node: NodeId = "0190c2a4-7d1e-7c3a-9b1f-2f6d1c0a5e11".parse().unwrap();
        let place = BootPlace { server: "https://l:7443".to_owned(), node };
        assert!(in_place(&path, &place).is_none());
        let token = lattice_core::secret::Secret::new("lat_enroll_hush".to_owned());
        let bootstrap = Bootstrap { server: place.server.clone(), node_id: node, token, ca_pem: "CA".to_owned() };
        keep(&path, &bootstrap).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(in_place(&path, &place).unwrap().token.expose(), "lat_enroll_hush");
        let other = BootPlace { node: "0190c2a4-7d1e-7c3a-9b1f-2f6d1c0a5e12".parse().unwrap(), ..place };
        assert!(in_place(&path, &other).is_none());
    }
}
