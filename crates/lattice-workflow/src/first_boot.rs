//! What became of the layers of a first boot, as the host wrote it down. spec: S5 9
//!
//! Each command of the site's bundle and of our own part runs through a small script that notes a failure, and after one
//! runs nothing more: a host that its site could not prepare does not become a node unseen.

use lattice_core::failure::FailureClass;
use lattice_core::job::{OperatorAction, StageError};
use lattice_core::secret::Secret;

use crate::deployed_host::{connect, output};
use crate::stage::{Context, error, recovered_by};

/// Where failures are noted: `LAYER failed STATUS: PROGRAM`, one in a line. As `lattice_layer.sh.j2` has it.
pub const NOTES: &str = "/var/lib/lattice/first-boot";
/// The script that runs a command of a layer.
pub const RUNNER: &str = "/usr/local/sbin/lattice-layer";
/// Longest note shown, in characters.
const SHOWN: usize = 200;

/// A layer whose failure keeps the agent from coming.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layer {
    /// The infra-owned bundle of the site.
    SiteBootstrap,
    /// The node agent.
    AgentBootstrap,
}

impl Layer {
    const ALL: [Self; 2] = [Self::SiteBootstrap, Self::AgentBootstrap];

    /// Its name on the host.
    pub const fn name(self) -> &'static str {
        match self {
            Self::SiteBootstrap => "site_bootstrap",
            Self::AgentBootstrap => "agent_bootstrap",
        }
    }

    const fn error_code(self) -> &'static str {
        match self {
            Self::SiteBootstrap => "site_bootstrap_failed",
            Self::AgentBootstrap => "agent_bootstrap_failed",
        }
    }
}

/// Why the agent did not come, as the host says; none when the host cannot be asked, or noted nothing.
pub async fn failure(ctx: &Context<'_>) -> Option<StageError> {
    let address = ctx.job.outputs.ssh_address.clone().or_else(|| ctx.node.address.clone())?;
    let shell = connect(ctx, &address).await.ok()?;
    let read = output(ctx, &*shell, &["sudo", "-n", "cat", NOTES], &Secret::new(String::new())).await.ok()?;
    let notes = String::from_utf8_lossy(&read.stdout).into_owned();
    let (layer, note) = failed_layer(&notes)?;
    let shown: String = note.chars().filter(|letter| !letter.is_control()).take(SHOWN).collect();
    // The first boot is over: only another deployment makes another one.
    Some(recovered_by(
        OperatorAction::RestartClean,
        error(
            FailureClass::AgentEnrollmentFailure,
            layer.error_code(),
            format!("the first boot of {} failed: {shown}", ctx.job.hostname),
        ),
    ))
}

/// The first layer that failed, and its line.
fn failed_layer(notes: &str) -> Option<(Layer, &str)> {
    notes.lines().find_map(|line| {
        let layer = Layer::ALL.into_iter().find(|layer| line.starts_with(&format!("{} failed", layer.name())))?;
        Some((layer, line))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_layer_that_failed_first_is_named() {
        let rows = [
            ("", None),
            ("agent_bootstrap failed 22: curl\n", Some("agent_bootstrap_failed")),
            ("site_bootstrap failed 1: /usr/local/sbin/site-bootstrap\n", Some("site_bootstrap_failed")),
            ("noise\nsite_bootstrap failed 1: x\nagent_bootstrap failed 1: y\n", Some("site_bootstrap_failed")),
        ];
        for (notes, expected) in rows {
            assert_eq!(failed_layer(notes).map(|(layer, _)| layer.error_code()), expected, "{notes}");
        }
    }
}
