//! Until the machine asked for its boot script since it was switched on: bss tells when it was asked last.

use std::time::Duration;

use async_trait::async_trait;
use lattice_core::job::StageError;
use lattice_core::node::Availability;

use super::openchami::{client, machine, netboot, of};
use crate::enrollment;
use crate::stage::{Context, Delta, Observation, Outcome, StageRunner};

/// How often bss is asked: a machine tests its memory for minutes before it starts.
const RECHECK: Duration = Duration::from_secs(10);

/// See the module.
pub struct WaitForNetworkBoot;

#[async_trait]
impl StageRunner for WaitForNetworkBoot {
    async fn observe(&self, ctx: &Context<'_>) -> Result<Observation, StageError> {
        let token = enrollment::token_of(ctx).await?;
        if ctx.node.state.availability == Availability::Ready || token.is_some_and(|token| token.used_at.is_some()) {
            return Ok(Observation::Done(Delta::said("its agent is there already")));
        }
        let (bss, machine) = (client(ctx).await?, machine(ctx)?);
        let asked = bss.asked_at(&machine).await.map_err(of(ctx))?;
        if asked > netboot(ctx)?.asked_before {
            return Ok(Observation::Done(Delta::said("it asked for its boot script")));
        }
        Ok(Observation::Waiting {
            recheck_at: ctx.now + RECHECK,
            waiting_for: format!("{} to ask for its boot script; it is on, and has not", machine.xname.as_str()),
            delta: Delta::default(),
        })
    }

    async fn act(&self, _: &Context<'_>, _: &str) -> Result<Outcome, StageError> {
        Ok(Outcome::Done(Delta::default().skipped()))
    }
}
