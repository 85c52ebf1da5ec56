//! Seeds MAAS's hardware sync on the deployed host, by SSH, once before the agent is there. spec: S5 4.3, 9.1

use async_trait::async_trait;
use lattice_core::failure::FailureClass;
use lattice_core::job::StageError;
use lattice_core::secret::Secret;
use lattice_providers::machine::maas::MaasClient;
use lattice_providers::machine::maas::lifecycle::MachineToken;

use super::maas;
use crate::deployed_host::{address, connect, run};
use crate::providers::failed;
use crate::stage::{Context, Delta, NodeAsk, Observation, Outcome, StageRunner, error};

/// Name of the setting in MAAS.
const INTERVAL: &str = "hardware_sync_interval";
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
        if let Some(taken) = maas::taken_away(ctx, &machine) {
            return Ok(taken);
        }
        if machine.hardware_sync_is_healthy() {
            return Ok(Observation::Done(Delta::said("MAAS receives the hardware sync").skipped()));
        }
        Ok(Observation::Absent)
    }

    async fn act(&self, ctx: &Context<'_>, _: &str) -> Result<Outcome, StageError> {
        Ok(Outcome::Done(seed(ctx).await?))
    }
}

/// Gives the host the machine's key, starts what uses it, and sets how often it reports. Doing it again does no harm.
pub(super) async fn seed(ctx: &Context<'_>) -> Result<Delta, StageError> {
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
    outputs.hw_sync_seeded_at = Some(ctx.now);
    let message = format!("hardware sync seeded on {address}");
    Ok(Delta::said(message).outputs(outputs).ask(NodeAsk::Address(address)))
}

async fn set_interval(ctx: &Context<'_>, client: &MaasClient) -> Result<(), StageError> {
    let wanted = &ctx.maas_site()?.policy.hardware_sync_interval;
    let known = client.config(INTERVAL).await.map_err(failed(ctx.now))?;
    if known.as_ref() != Some(wanted) {
        client.set_config(INTERVAL, wanted).await.map_err(failed(ctx.now))?;
    }
    Ok(())
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
