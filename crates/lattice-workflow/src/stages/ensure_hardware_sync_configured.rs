//! Seeds MAAS's hardware sync on the deployed host, by SSH, once before the agent is there. spec: S5 4.3, 9.1

use std::time::Duration;

use async_trait::async_trait;
use lattice_core::failure::FailureClass;
use lattice_core::job::StageError;
use lattice_core::secret::Secret;
use lattice_providers::machine::maas::lifecycle::MachineToken;
use lattice_providers::machine::maas::{MaasClient, Machine};
use lattice_providers::message::of_body;
use lattice_providers::secret::read_field;

use super::maas;
use crate::enrollment::secret_error;
use crate::providers::{Shell, ShellTarget, failed};
use crate::stage::{Context, Delta, NodeAsk, Observation, Outcome, StageRunner, error};

/// Name of the setting in MAAS.
const INTERVAL: &str = "hardware_sync_interval";
/// Longest run of one command on the host.
const COMMAND: Duration = Duration::from_secs(20);
/// Writes the credentials; they come over standard input.
const WRITE: [&str; 7] = ["sudo", "-n", "install", "-m", "600", "/dev/stdin", "/etc/maas/maas-machine-creds.yml"];
/// What reads them.
const RESTART: [&[&str]; 2] = [
    &["sudo", "-n", "systemctl", "restart", "maas-agent"],
    &["sudo", "-n", "systemctl", "enable", "--now", "maas_hardware_sync.timer"],
];

/// See the module.
pub struct EnsureHardwareSyncConfigured;

#[async_trait]
impl StageRunner for EnsureHardwareSyncConfigured {
    async fn observe(&self, ctx: &Context<'_>) -> Result<Observation, StageError> {
        if !ctx.maas_site()?.policy.require_hw_sync {
            return Ok(Observation::Done(Delta::said("the site does not ask for hardware sync").skipped()));
        }
        let machine = maas::fresh(ctx).await?;
        if machine.hardware_sync_is_healthy() {
            return Ok(Observation::Done(Delta::said("MAAS receives the hardware sync").skipped()));
        }
        Ok(Observation::Absent)
    }

    async fn act(&self, ctx: &Context<'_>, _: &str) -> Result<Outcome, StageError> {
        let machine = maas::fresh(ctx).await?;
        let region = maas::region(ctx).await?;
        let token = region.client().machine_token(&machine.system_id).await.map_err(failed(ctx.now))?;
        let Some(token) = token else {
            return Err(error(
                FailureClass::HardwareSyncFailure,
                "machine_token_missing",
                format!("MAAS has not made a key for machine {} yet", machine.system_id),
            ));
        };
        set_interval(ctx, region.client()).await?;
        let address = address(ctx, &machine)?;
        let shell = connect(ctx, &address).await?;
        run(ctx, &*shell, &WRITE, &credentials(&token)).await?;
        for command in RESTART {
            run(ctx, &*shell, command, &Secret::new(String::new())).await?;
        }
        let mut outputs = ctx.outputs();
        outputs.ssh_address = Some(address.clone());
        let message = format!("hardware sync seeded on {address}");
        Ok(Outcome::Done(Delta::said(message).outputs(outputs).ask(NodeAsk::Address(address))))
    }
}

async fn set_interval(ctx: &Context<'_>, client: &MaasClient) -> Result<(), StageError> {
    let wanted = &ctx.maas_site()?.policy.hardware_sync_interval;
    let known = client.config(INTERVAL).await.map_err(failed(ctx.now))?;
    if known.as_ref() != Some(wanted) {
        client.set_config(INTERVAL, wanted).await.map_err(failed(ctx.now))?;
    }
    Ok(())
}

/// The address of the site's SSH interface, else the first one that MAAS reports.
fn address(ctx: &Context<'_>, machine: &Machine) -> Result<String, StageError> {
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

async fn connect(ctx: &Context<'_>, address: &str) -> Result<Box<dyn Shell>, StageError> {
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
    ctx.tools.providers.shell(&target).await.map_err(|refused| StageError {
        class: FailureClass::PostDeployConnectivityFailure,
        ..failed(ctx.now)(refused)
    })
}

async fn run(ctx: &Context<'_>, shell: &dyn Shell, command: &[&str], input: &Secret<String>) -> Result<(), StageError> {
    let output = shell.run(command, input, COMMAND).await.map_err(|broken| StageError {
        class: FailureClass::PostDeployConnectivityFailure,
        ..failed(ctx.now)(broken)
    })?;
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

/// The file in the form that MAAS's own tools read.
fn credentials(token: &MachineToken) -> Secret<String> {
    let quoted = |text: &str| serde_json::Value::from(text).to_string();
    Secret::new(format!(
        "reporting:\n  maas:\n    consumer_key: {}\n    token_key: {}\n    token_secret: {}\n",
        quoted(&token.consumer_key),
        quoted(token.token_key.expose()),
        quoted(token.token_secret.expose())
    ))
}
