//! A deployed host, reached by SSH before its agent is there: by its pinned key, as the site's deploy user. spec: S5 4.3

use std::time::Duration;

use lattice_core::failure::FailureClass;
use lattice_core::job::StageError;
use lattice_core::secret::Secret;
use lattice_providers::machine::maas::Machine;
use lattice_providers::message::of_body;
use lattice_providers::provider::CommandOutput;
use lattice_providers::secret::read_field;

use crate::enrollment::secret_error;
use crate::providers::{Shell, ShellTarget, failed};
use crate::stage::{Context, error};
use crate::stages::maas;

/// Longest run of one command on the host.
const COMMAND: Duration = Duration::from_secs(20);

/// The address of the site's SSH interface, else the first one that MAAS reports.
///
/// # Errors
/// MAAS reports none.
pub fn address(ctx: &Context<'_>, machine: &Machine) -> Result<String, StageError> {
    let name = &ctx.maas_site()?.deploy_ssh_iface;
    let preferred = machine.interface_set.iter().find(|interface| interface.name == *name);
    let of_interface = preferred.and_then(|interface| interface.links.iter().find_map(|link| link.ip_address));
    of_interface.or_else(|| machine.ip_addresses.first().copied()).map(|address| address.to_string()).ok_or_else(|| {
        error(
            FailureClass::PostDeployConnectivityFailure,
            "no_ssh_address",
            format!("MAAS reports no address of machine {}", machine.system_id),
        )
    })
}

/// A shell on the host at that address.
///
/// # Errors
/// The host cannot be reached, shows another key than the one of this deployment, or refuses the login.
pub async fn connect(ctx: &Context<'_>, address: &str) -> Result<Box<dyn Shell>, StageError> {
    let site = ctx.maas_site()?;
    let path = maas::secret_path(&site.deploy_password_path)?;
    let password = read_field(&*ctx.tools.secrets, &path, "pass").await.map_err(|e| secret_error(&e, ctx.now))?;
    let host_key = ctx.job.outputs.ssh_host_key.clone().ok_or_else(|| {
        error(FailureClass::StateAmbiguity, "host_key_unknown", "no host key was pinned for this deployment")
    })?;
    let target = ShellTarget {
        address: address.to_owned(),
        port: site.deploy_ssh_port,
        user: site.deploy_user.clone(),
        password,
        host_key,
    };
    ctx.tools.providers.shell(&target).await.map_err(|refused| unreachable(ctx, refused))
}

/// Runs a program and gives what it left behind.
///
/// # Errors
/// The connection broke.
pub async fn output(
    ctx: &Context<'_>,
    shell: &dyn Shell,
    command: &[&str],
    input: &Secret<String>,
) -> Result<CommandOutput, StageError> {
    shell.run(command, input, COMMAND).await.map_err(|broken| unreachable(ctx, broken))
}

/// Runs a program that must succeed.
///
/// # Errors
/// The connection broke, or the program failed.
pub async fn run(
    ctx: &Context<'_>,
    shell: &dyn Shell,
    command: &[&str],
    input: &Secret<String>,
) -> Result<(), StageError> {
    let output = output(ctx, shell, command, input).await?;
    if output.code == Some(0) {
        return Ok(());
    }
    let said = of_body(if output.stderr.is_empty() { &output.stdout } else { &output.stderr }, &[]);
    Err(error(
        FailureClass::PostDeployConnectivityFailure,
        "host_command_failed",
        format!("`{}` ended with {:?}: {said}", command.join(" "), output.code),
    ))
}

fn unreachable(ctx: &Context<'_>, broken: lattice_providers::error::ProviderError) -> StageError {
    StageError { class: FailureClass::PostDeployConnectivityFailure, ..failed(ctx.now)(broken) }
}
